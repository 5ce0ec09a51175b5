"""Watching, exporting, forking, comparing and judging runs from a terminal."""

import json
import linecache
from pathlib import Path

import pytest

from tests.cli.conftest import Give


@pytest.fixture
def ran(give: Give) -> Give:
    """`a` ended at fine, `b` waits in ask, `c` failed in look."""
    assert give("run", "flow", "-c", "n=1", "--id", "a").code == 0
    assert give("run", "flow", "-c", "n=50", "--id", "b").code == 7
    assert give("run", "flow", "-c", "n=13", "--id", "c").code == 6
    return give


def within_a_terminal(text: str) -> bool:
    return max(map(len, text.splitlines())) <= 100


# --- watch -------------------------------------------------------------------------------------------------------


def test_watch_prints_a_line_for_each_transition_and_how_it_ended(ran: Give) -> None:
    done = ran("runs", "watch", "a")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert done.code == 0
    assert [line.partition(" ")[0] for line in lines[:2]] == ["0", "1"]
    assert lines[0].endswith("-> look")
    assert lines[1].endswith("look -> fine (small)")
    assert lines[2] == "a completed: ended at fine"


def test_watch_ends_with_6_for_a_run_that_failed(ran: Give) -> None:
    done = ran("runs", "watch", "c")
    assert (done.code, done.out.splitlines()[-1]) == (6, "c failed in look: ValueError: thirteen is refused")


def test_watch_for_a_program_prints_an_object_a_line(ran: Give) -> None:
    assert [(line["v"], line["number"], line["target"]) for line in ran("runs", "watch", "a", "--json").lines] == [
        (1, 0, "look"), (1, 1, "fine"),
    ]  # fmt: skip


# --- export ------------------------------------------------------------------------------------------------------


def test_export_prints_a_document_or_writes_it_into_a_file(ran: Give, project: Path) -> None:
    printed = ran("runs", "export", "b")
    written = ran("runs", "export", "b", "-o", "b.json")
    assert (printed.code, written.code, written.out, written.err) == (0, 0, "", "wrote b.json\n")
    assert (project / "b.json").read_text(encoding="utf-8") == printed.out
    document = json.loads(printed.out)
    assert (document["v"], document["run"]["id"], document["waits"][0]["question"]) == (1, "b", "Is 50 fine?")


def test_export_says_where_it_cannot_write(ran: Give) -> None:
    done = ran("runs", "export", "b", "-o", "nowhere/b.json")
    assert (done.code, "--output nowhere/b.json: No such file or directory" in done.err) == (2, True)


# --- fork --------------------------------------------------------------------------------------------------------


def test_fork_starts_a_run_with_other_data_and_drives_it_on(ran: Give) -> None:
    done = ran("runs", "fork", "a@0", "--set", "n=50", "--id", "f", "--as", "ada", "--reason", "more")
    assert (done.code, done.out) == (7, "f waits in ask for APPROVE or REJECT\n")
    assert done.err == "run f is a fork of a@0, effects held\n"
    shown = ran("runs", "show", "f")
    assert "fork of a@0, changed n: more" in shown.out
    assert ran("runs", "show", "a", "--json").json["context"]["n"] == 1


def test_fork_can_be_left_to_a_worker_and_is_shown_as_an_object(ran: Give) -> None:
    done = ran("runs", "fork", "b@1", "--no-drive", "--json", "--id", "f")
    assert (done.code, done.json["id"], done.json["status"], done.json["state"]) == (0, "f", "queued", "ask")


def test_an_id_with_an_at_sign_can_be_forked(give: Give) -> None:
    give("run", "flow", "-c", "n=1", "--id", "a@1")
    assert give("runs", "fork", "a@1@0", "--id", "f").code == 0
    done = give("runs", "fork", "a@1", "--id", "g")
    assert (done.code, "say from which revision, such as a@1@0" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("a",), 2, "a: say from which revision, such as a@0"),
        (("a@1",), 2, "ended at 'fine' with revision 1"),
        (("a@9",), 4, "revisions 0 to 1, not 9"),
        (("nowhere@0",), 4, "there is no run 'nowhere'"),
        (("a@0", "--set", "m=1"), 2, "--set m: Case has no such field"),
        (("a@0", "--set", "n=x"), 2, "these changes do not fit: n: "),
        (("a@0", "--set", "n"), 2, "write NAME=VALUE"),
        (("a@0", "--id", "b"), 5, "run 'b' exists, and is not this fork of 'a'"),
        (("a@0", "--id", "a b"), 2, "run id 'a b'"),
    ],
)
def test_what_cannot_be_forked_says_why(ran: Give, words: tuple[str, ...], code: int, message: str) -> None:
    done = ran("runs", "fork", *words)
    assert (done.code, done.out, message in done.err) == (code, "", True), done.err
    assert len(ran("runs", "list", "--json").lines) == 3


def test_a_fork_that_is_held_says_at_which_effect_and_exits_with_7(give: Give, project: Path) -> None:
    acting = (
        "from agentflow import App, Context, Run, Workflow\n"
        "class Case(Context):\n    act: bool = False\n"
        'flow = Workflow("flow", Case)\n'
        "async def call(key: str) -> str:\n    return key\n"
        "@flow.step()\n"
        "async def look(case: Case, run: Run) -> None:\n"
        '    if case.act:\n        await run.effect("letter", call)\n'
        'flow.build(start=look, transitions=[look.to(flow.end("done"))])\n'
        "app = App([flow])\n"
    )
    (project / "flows.py").write_text(acting, encoding="utf-8")
    give("run", "flow", "--id", "a")
    held = give("runs", "fork", "a@0", "--set", "act=true", "--id", "f")
    assert (held.code, held.out.startswith("f is blocked in look: effect 'letter' is held back")) == (7, True)
    assert "Nothing wakes it but a command" in give("runs", "why", "f").out
    live = give("runs", "fork", "a@0", "--set", "act=true", "--id", "g", "--effects", "live")
    assert (live.code, live.out) == (0, "g completed: ended at done\n")


# --- diff --------------------------------------------------------------------------------------------------------


def test_diff_shows_where_paths_part_and_which_fields_differ(ran: Give) -> None:
    done = ran("runs", "diff", "a", "b")
    assert done.code == 0
    assert done.out.splitlines()[:6] == [
        "a@1 and b@1 share 0 transitions, then part:",
        "  a@1  look -> fine  (small)",
        "  b@1  look -> ask  (not small)",
        "",
        "fields that differ, a@1 -> b@1",
        "  n  1 -> 50",
    ]
    assert within_a_terminal(done.out)


def test_diff_is_an_exit_code_if_that_was_asked_for(ran: Give) -> None:
    assert ran("runs", "diff", "a", "b", "--exit-code").code == 11
    assert ran("runs", "diff", "a", "a", "--exit-code").code == 0
    same = ran("runs", "diff", "a", "a")
    assert "took the same path: 1 transition\n" in same.out
    assert "their contexts are the same" in same.out


def test_diff_for_a_program_tells_missing_from_null(ran: Give) -> None:
    found = ran("runs", "diff", "a@0", "b", "--json").json
    assert (found["v"], found["equal"], found["shared"]) == (1, False, 0)
    assert found["parts"]["one"] is None
    assert found["fields"] == [{"path": "n", "one": {"value": 1}, "other": {"value": 50}}]
    assert found["spent"]["other"]["transitions"] == 1


@pytest.mark.parametrize("words", [("a", "nowhere"), ("a", "b@9")])
def test_diff_of_what_there_is_not_is_not_found(ran: Give, words: tuple[str, str]) -> None:
    assert ran("runs", "diff", *words).code == 4


# --- replay ------------------------------------------------------------------------------------------------------


def change(project: Path, before: str, after: str) -> None:
    code = project / "flows.py"
    source = code.read_text(encoding="utf-8")
    assert before in source
    code.write_text(source.replace(before, after), encoding="utf-8")
    linecache.clearcache()  # outside of tests another process reads the file


def test_replay_of_the_same_code_exits_with_0(ran: Give) -> None:
    done = ran("runs", "replay", "a")
    assert (done.code, done.out) == (0, "a: the same path, 1 transition by version 1\n")
    assert ran("runs", "replay", "a", "--json").json["same"] is True


def test_replay_of_code_that_leads_elsewhere_exits_with_11_and_shows_both_ways(ran: Give, project: Path) -> None:
    change(project, "case.n < 10", "case.n < 1")
    done = ran("runs", "replay", "a")
    assert done.code == 11
    assert done.out.splitlines() == [
        "a: another path from transition 1 on, by version 1",
        "  then  look -> fine  (small)",
        "  now   look -> ask  (not small)",
        "  code changed since: look",
    ]
    found = ran("runs", "replay", "a", "--json").json
    assert (found["v"], found["difference"]["target"], found["difference"]["guards"]) == (1, "ask", {"small": False})


def test_replay_names_what_the_workflow_no_longer_has(ran: Give, project: Path) -> None:
    ran("approvals", "approve", "b", "--as", "ada", "--role", "boss")
    change(project, "APPROVE", "ACCEPT")
    done = ran("runs", "replay", "b")
    assert done.code == 11
    assert "now   nowhere: state 'ask' no longer answers APPROVE" in done.out
    assert "no longer in the workflow: ask.APPROVE" in done.out


def test_replay_judges_by_the_newest_version_if_its_own_is_gone(ran: Give, project: Path) -> None:
    change(project, 'Workflow("flow", Case)', 'Workflow("flow", Case, version=2)')
    done = ran("runs", "replay", "a")
    assert (done.code, done.out) == (0, "a: the same path, 1 transition by version 2\n")
