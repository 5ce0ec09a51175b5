"""`deploy` and `defs`: what becomes of stored runs under changed code, as a gate of a deploy sees it."""

import linecache
from pathlib import Path

import pytest

from tests.cli.conftest import Give

MIGRATION = """
from agentflow import Stored


@flow.migration(from_version=1)
def with_region(old: Stored) -> Stored:
    return Stored(old.state, {**old.context, "region": "EU"})


@flow.step()
async def look("""


def change(project: Path, *pairs: tuple[str, str]) -> None:
    """Edit the code of the project."""
    code = project / "flows.py"
    text = code.read_text(encoding="utf-8")
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    code.write_text(text, encoding="utf-8")
    linecache.clearcache()  # each command is a process of its own outside of tests


@pytest.fixture
def waiting(give: Give, project: Path) -> Path:
    """A project with two runs that wait and one that is over."""
    for run, n in (("a", 50), ("b", 60), ("c", 1)):
        give("run", "flow", "-c", f"n={n}", "--id", run)
    return project


NO_REJECT = (('REJECT = "reject"\n', ""), ("        ask.on(Verdict.REJECT).to(refused),\n", ""))
REQUIRED = (('text: str = ""', 'text: str = ""\n    region: str'),)
SECOND = ((' = Workflow("flow", Case)', ' = Workflow("flow", Case, version=2)'),)
MIGRATED = (("\n\n@flow.step()\nasync def look(", MIGRATION),)


def test_a_deploy_that_takes_every_run_passes(give: Give, waiting: Path) -> None:
    change(waiting, ("case.n < 10", "case.n < 20"))
    done = give("deploy", "check")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "2 continue, 0 migrate, 0 blocked"
    assert done.out.splitlines()[1].split()[:2] == ["flow", "1"]


def test_a_deploy_that_blocks_runs_fails_and_says_where_why_and_what_mends_it(give: Give, waiting: Path) -> None:
    change(waiting, *NO_REJECT)
    done = give("deploy", "check")
    assert done.code == 3
    assert "blocked in ask of flow v1, such as b, a:" in done.out
    assert "its answer REJECT is gone" in done.out
    assert "migration(from_version=1)" in done.out
    found = give("deploy", "check", "--json").json
    assert (found["ok"], found["blocked"], found["prospects"][0]["runs"]) == (False, 2, 2)


def test_runs_of_a_workflow_that_the_app_lacks_block_a_deploy_unless_it_is_named_out(give: Give, waiting: Path) -> None:
    change(waiting, ('Workflow("flow", Case)', 'Workflow("stream", Case)'))
    done = give("deploy", "check")
    assert (done.code, "this App has no workflow 'flow'" in done.out) == (3, True)
    assert give("deploy", "check", "stream", "narrow").code == 0


def test_a_migration_is_seen_tried_and_done(give: Give, waiting: Path) -> None:
    change(waiting, *REQUIRED, *SECOND)
    assert give("deploy", "check").code == 3
    refused = give("runs", "why", "a")
    assert "field 'region' is new and has no default" in refused.out

    change(waiting, *MIGRATED)
    done = give("deploy", "check")
    assert (done.code, done.out.splitlines()[-1]) == (0, "0 continue, 2 migrate, 0 blocked")
    assert give("deploy", "check", "--strict").code == 3

    tried = give("deploy", "migrate", "flow", "--dry-run")
    assert (tried.code, tried.out.splitlines()[-1]) == (0, "2 would be migrated, 0 cannot be")
    assert 'region: (none) -> "EU"' in tried.out
    assert give("deploy", "migrate", "flow", "--dry-run", "--json").lines[0]["applied"] is False

    done = give("deploy", "migrate", "flow", "--as", "ada", "--reason", "regions")
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 migrated, 0 cannot be")
    assert give("deploy", "check").out.splitlines()[-1] == "2 continue, 0 migrate, 0 blocked"
    shown = give("runs", "show", "a", "--json").json
    assert (shown["context"]["region"], shown["history"][-1]["actor"]["subject"]) == ("EU", "ada")
    assert give("approvals", "approve", "a", "--field", "amount=3", "--as", "ada", "--role", "boss").code == 0


def test_a_migration_with_a_problem_writes_nothing_and_fails(give: Give, waiting: Path) -> None:
    change(waiting, *REQUIRED, *SECOND, (MIGRATED[0][0], MIGRATION.replace('"EU"', '1 / (old.context["n"] - 50)')))
    done = give("deploy", "migrate", "flow")
    assert (done.code, done.out.splitlines()[-1]) == (3, "0 migrated, 2 cannot be; nothing was written")
    assert "ZeroDivisionError" in done.out
    assert give("runs", "list", "--json").lines[1]["version"] == 1


def test_a_run_of_other_code_is_shown_as_it_is_stored(give: Give, waiting: Path) -> None:
    change(waiting, *REQUIRED, *SECOND)
    shown = give("runs", "show", "a")
    assert shown.code == 0
    assert shown.out.splitlines()[0] == "a is waiting in ask, as stored by flow v1"
    assert "field 'region' is new and has no default" in shown.out
    assert "n  50" in shown.out
    raw = give("runs", "show", "a@0", "--json").json
    assert (raw["state"], raw["revision"], raw["context"]) == ("look", 0, {"n": 50, "text": ""})
    assert len(give("runs", "show", "c", "--json").json["history"]) == 2


def test_the_definitions_are_listed_with_what_stands_under_them(give: Give, waiting: Path) -> None:
    change(waiting, *REQUIRED, *SECOND)
    listed = give("defs", "list", "flow", "--json").lines
    assert [(one["version"], one["at_hand"], one["first_seen"] is not None, one["runs"]) for one in listed] == [
        (1, False, True, 2),
        (2, True, False, 0),
    ]
    assert give("defs", "list").out.splitlines()[0].split()[:3] == ["WORKFLOW", "VERSION", "SHAPE"]


def test_a_definition_is_shown_without_its_code(give: Give, waiting: Path) -> None:
    before = give("defs", "show", "flow").out
    change(waiting, *NO_REJECT, *REQUIRED)
    assert give("defs", "show", "flow@stored").out == before
    now = give("defs", "show", "flow").out
    assert "    REJECT -> refused" in before
    assert "REJECT" not in now
    assert "  region: string, required" in now
    assert give("defs", "show", "flow", "--json").json["start"] == "look"


def test_a_difference_says_what_was_added_taken_away_and_changed(give: Give, waiting: Path) -> None:
    change(waiting, *NO_REJECT, *REQUIRED, *SECOND, ("case.n == 13", "case.n == 14"))
    lines = give("defs", "diff", "flow@1", "flow@2").out.splitlines()
    assert lines[0].strip().startswith("flow@1 (")
    for line in (
        "-     REJECT -> refused",
        "- ask  [a person] APPROVE=approve, REJECT=reject",
        "+ ask  [a person] APPROVE=approve",
        "+   region: string, required",
        "~     its code is another",
        "      [small] -> fine",
    ):
        assert line in lines, "\n".join(lines)
    assert give("defs", "diff", "flow", "--exit-code").code == 11
    assert give("defs", "diff", "flow@2", "flow@2", "--exit-code").code == 0
    found = give("defs", "diff", "flow", "--json").json
    assert {"mark": "-", "text": "REJECT -> refused"} in found["lines"]


def test_a_difference_is_drawn_with_its_colours(give: Give, waiting: Path) -> None:
    change(
        waiting,
        *NO_REJECT,
        ("fine, refused =", "@flow.step()\nasync def weigh(case: Case, run: Run) -> None: ...\n\n\nfine, refused ="),
        ("        look.to(ask),\n", "        look.to(weigh),\n        weigh.to(ask),\n"),
    )
    drawn = give("defs", "diff", "flow", "--mermaid").out
    assert drawn.startswith("flowchart TD\n")
    ids = {line.split("[")[0].strip(): line for line in drawn.splitlines() if line.strip().startswith("s")}
    weigh = next(name for name, line in ids.items() if "weigh" in line)
    assert f"    class {weigh} added" in drawn
    assert "classDef changed" in drawn
    assert "linkStyle" in drawn
    give("defs", "diff", "flow", "--mermaid", "-o", "flow.mmd")
    assert (waiting / "flow.mmd").read_text(encoding="utf-8") == drawn


@pytest.mark.parametrize(
    ("typed", "told"),
    [("floww", "did you mean 'flow'"), ("flow@7", "no such version; there are 1"), ("flow@zzzz", "no such version")],
)
def test_a_definition_that_there_is_not_is_said_to_be_so(give: Give, waiting: Path, typed: str, told: str) -> None:
    done = give("defs", "show", typed)
    assert (done.code, told in done.err) == (4, True), done.err


def test_a_shape_is_named_by_its_beginning(give: Give, waiting: Path) -> None:
    [stored] = give("defs", "list", "flow", "--json").lines
    shown = give("defs", "show", f"flow@{stored['shape'][:6]}")
    assert (shown.code, stored["shape"] in shown.out) == (0, True)


def test_a_version_of_a_workflow_is_started_by_its_number(give: Give, project: Path) -> None:
    change(project, *SECOND)
    assert give("run", "flow@2", "-c", "n=1", "--id", "a").code == 0
    assert give("run", "flow@1", "-c", "n=1", "--id", "b").code == 4
