"""Starting runs, following them, looking at them and commanding them."""

from pathlib import Path

import pytest

from tests.cli.conftest import Give


def test_a_run_that_ends_says_where(give: Give) -> None:
    done = give("run", "flow", "-c", "n=1", "--id", "a")
    assert (done.code, done.out) == (0, "a completed: ended at fine\n")


def test_a_run_that_waits_says_for_what_and_exits_with_7(give: Give) -> None:
    done = give("run", "flow", "-c", "n=50", "--id", "a")
    assert (done.code, done.out) == (7, "a waits in ask for APPROVE or REJECT\n")


def test_a_run_that_fails_says_why_and_exits_with_6(give: Give) -> None:
    done = give("run", "flow", "-c", "n=13", "--id", "a")
    assert done.code == 6
    assert done.out == "a failed in look: ValueError: thirteen is refused\n"
    assert give("runs", "why", "a").out.startswith("failed in look: ValueError: thirteen is refused")


def test_a_run_can_be_left_to_a_worker(give: Give) -> None:
    done = give("run", "flow", "-c", "n=50", "--id", "a", "--no-wait", "--json")
    assert (done.code, done.json["id"], done.json["v"]) == (0, "a", 1)
    assert give("runs", "show", "a").code == 0


def test_the_same_start_goes_on_and_another_input_is_a_conflict(give: Give) -> None:
    give("run", "flow", "-c", "n=50", "--id", "a")
    assert give("run", "flow", "-c", "n=50", "--id", "a").code == 7
    other = give("run", "flow", "-c", "n=51", "--id", "a")
    assert other.code == 5
    assert "exists with another input" in other.err
    assert give("runs", "show", "a", "--json").json["context"]["n"] == 50


def test_a_context_is_taken_from_a_file(give: Give, project: Path) -> None:
    (project / "context.json").write_text('{"n": 2, "text": "ä"}', encoding="utf-8")
    done = give("run", "flow", "--context", "@context.json", "--json")
    assert (done.code, done.json["context"]) == (0, {"n": 2, "text": "ä"})


def test_show_prints_context_and_history_and_a_revision_of_it(give: Give) -> None:
    give("run", "flow", "-c", "n=50", "--id", "a")
    shown = give("runs", "show", "a")
    assert "n  50" in shown.out
    assert "not small" in shown.out
    earlier = give("runs", "show", "a@0", "--json")
    assert (earlier.json["state"], len(earlier.json["history"])) == ("look", 1)
    assert give("runs", "show", "a@7").code == 4


def test_an_id_with_an_at_sign_is_not_taken_for_a_revision(give: Give) -> None:
    give("run", "flow", "-c", "n=1", "--id", "a@1")
    assert give("runs", "show", "a@1", "--json").json["id"] == "a@1"
    assert give("runs", "show", "a@1@0", "--json").json["revision"] == 0


def test_list_shows_runs_newest_first_and_filters(give: Give) -> None:
    for name, n in (("a", "1"), ("b", "50"), ("c", "13")):
        give("run", "flow", "-c", f"n={n}", "--id", name)
    assert [row["id"] for row in give("runs", "list", "--json").lines] == ["c", "b", "a"]
    assert [row["id"] for row in give("runs", "list", "--status", "failed", "--json").lines] == ["c"]
    assert [row["id"] for row in give("runs", "list", "--limit", "1", "--after", "c", "--json").lines] == ["b"]
    assert give("runs", "list").out.splitlines()[0].split() == [
        "ID", "WORKFLOW", "VERSION", "STATUS", "STATE", "REVISION", "CHANGED",
    ]  # fmt: skip


def test_a_failed_run_is_retried_once_its_code_is_mended(give: Give, project: Path) -> None:
    give("run", "flow", "-c", "n=13", "--id", "a")
    code = project / "flows.py"
    code.write_text(code.read_text(encoding="utf-8").replace("case.n == 13", "case.n == 14"), encoding="utf-8")
    done = give("runs", "retry", "a", "--reason", "mended", "--as", "ada")
    assert (done.code, done.out) == (7, "a waits in ask for APPROVE or REJECT\n")


def test_a_waiting_run_is_cancelled_and_tells_by_whom(give: Give) -> None:
    give("run", "flow", "-c", "n=50", "--id", "a")
    assert give("runs", "cancel", "a", "--as", "ada", "--reason", "withdrawn").code == 0
    assert give("runs", "why", "a").out == "cancelled in ask by ada: withdrawn\n"
    again = give("runs", "retry", "a")
    assert (again.code, "only a failed run can be retried" in again.err) == (5, True)


# --- batches -----------------------------------------------------------------------------------------------------


def test_a_batch_runs_every_line_and_sums_up(give: Give, project: Path) -> None:
    (project / "in.jsonl").write_text('{"n": 1, "id": "x"}\n\n{"n": 50}\n{"n": 13}\n', encoding="utf-8")
    done = give("run", "flow", "--inputs", "in.jsonl", "--batch", "monday", "--json")
    assert done.code == 6
    assert done.json["summary"] == [
        {"status": "completed", "at": "fine", "runs": 1},
        {"status": "failed", "at": "look", "runs": 1},
        {"status": "waiting", "at": "ask", "runs": 1},
    ]
    assert done.json["failed"] == ["monday/4"]
    listed = give("runs", "list", "--batch", "monday", "--json").lines
    assert sorted(row["id"] for row in listed) == ["monday/3", "monday/4", "monday/x"]


def test_a_batch_that_is_run_again_retries_what_failed_alone(give: Give, project: Path) -> None:
    (project / "in.jsonl").write_text('{"n": 1}\n{"n": 13}\n', encoding="utf-8")
    give("run", "flow", "--inputs", "in.jsonl", "--batch", "monday")
    code = project / "flows.py"
    code.write_text(code.read_text(encoding="utf-8").replace("case.n == 13", "case.n == 14"), encoding="utf-8")
    done = give("run", "flow", "--inputs", "in.jsonl", "--batch", "monday", "--json")
    assert done.code == 7
    assert done.json["failed"] == []
    assert give("runs", "show", "monday/1", "--json").json["revision"] == 1


def test_a_batch_with_bad_lines_starts_nothing_and_names_them_all(give: Give, project: Path) -> None:
    (project / "in.jsonl").write_text('{"n": 1}\n{bad\n{"n": "x"}\n[1]\n', encoding="utf-8")
    done = give("run", "flow", "--inputs", "in.jsonl", "--batch", "monday")
    assert done.code == 2
    for part in ("nothing was started", "line 2: no JSON", "line 3: Case: n:", "line 4: a JSON object is needed"):
        assert part in done.err
    assert give("runs", "list", "--json").out == ""


@pytest.mark.parametrize(
    "words", [("--batch", "b"), ("--inputs", "in.jsonl"), ("--inputs", "in.jsonl", "--batch", "b", "-c", "n=1")]
)
def test_a_batch_needs_a_file_and_a_name_and_nothing_else(give: Give, project: Path, words: tuple[str, ...]) -> None:
    (project / "in.jsonl").write_text('{"n": 1}\n', encoding="utf-8")
    done = give("run", "flow", *words)
    assert (done.code, done.err.startswith("agentflow: error: a batch")) == (2, True)


def test_a_run_is_paused_and_resumed(give: Give) -> None:
    give("run", "flow", "-c", "n=50", "--id", "a")
    paused = give("runs", "pause", "a", "--as", "ada", "--reason", "a holiday")
    assert (paused.code, paused.err) == (0, "applied: run 'a' stands still in ask\n")
    assert give("runs", "why", "a").out == "paused in ask by ada: a holiday. `resume` goes on\n"
    assert " waiting (paused) " in give("runs", "list").out
    assert give("runs", "show", "a", "--json").json["paused"] is True
    resumed = give("runs", "resume", "a")
    assert (resumed.code, resumed.out) == (7, "a waits in ask for APPROVE or REJECT\n")


def test_a_run_that_met_a_limit_goes_on_with_a_raised_one(give: Give) -> None:
    done = give("run", "narrow", "--id", "a")
    assert (done.code, done.out) == (
        7,
        "a is blocked in again: state 'again' was entered 3 times, max_visits is 2\n",
    )
    assert "`resume` goes on, with it raised" in give("runs", "why", "a").out
    refused = give("runs", "resume", "a", "--limit", "visits=2")
    assert (refused.code, "visits=2 would stop it again" in refused.err) == (5, True)
    resumed = give("runs", "resume", "a", "--limit", "visits=5", "--limit", "cost=2.50")
    assert (resumed.code, resumed.out) == (0, "a completed: ended at fine\n")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("visit=5", "did you mean 'visits'?"),
        ("visits", "write NAME=VALUE"),
        ("visits=many", "--limit visits=many: Input should be a valid integer"),
        ("visits=0", "Limits(visits=0): a limit must be above 0"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(give: Give, typed: str, told: str) -> None:
    give("run", "narrow", "--id", "a")
    done = give("runs", "resume", "a", "--limit", typed)
    assert (done.code, told in done.err) == (2, True)
