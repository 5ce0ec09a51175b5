"""Checking, drawing, beginning: what can be done without a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentflow.cli import main
from tests.cli.conftest import Give

ROOT = Path(__file__).parents[2]


def test_check_counts_what_it_looked_at(give: Give) -> None:
    done = give("check")
    assert (done.code, done.out) == (
        0,
        "flow v1: 2 states, 5 rows, no problems\nnarrow v1: 1 state, 2 rows, no problems\n",
    )
    assert give("check", "flow", "--json").json["workflows"][0]["warnings"] == []


def test_check_strict_fails_on_a_warning(give: Give, project: Path) -> None:
    code = project / "flows.py"
    text = code.read_text(encoding="utf-8").replace("expires=timedelta(days=1), ", "")
    code.write_text(text.replace("        ask.expired.to(refused),\n", ""), encoding="utf-8")
    assert give("check").code == 0
    strict = give("check", "--strict")
    assert (strict.code, "may wait for ever" in strict.out) == (3, True)


def test_the_shipped_workflows_have_no_problems() -> None:
    done = CliRunner().invoke(main, ["--app", "definitions.app:app", "check", "--strict"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "refund v1: 6 states" in done.stdout


def test_a_graph_shows_states_ways_and_where_a_run_is(give: Give, project: Path) -> None:
    give("run", "flow", "-c", "n=50", "--id", "a")
    drawn = give("graph", "a").out
    assert "* look  [start, code]" in drawn
    assert "> ask  [a person, expires after 1 day]" in drawn
    assert "      [small] -> fine" in drawn
    assert give("graph", "flow").out.count(">") == drawn.count(">") - 1


def test_a_graph_is_written_into_a_file_and_is_the_same_each_time(give: Give, project: Path) -> None:
    give("graph", "flow", "-f", "mermaid", "-o", "one.mmd")
    give("graph", "flow", "-f", "mermaid", "-o", "two.mmd")
    text = (project / "one.mmd").read_text(encoding="utf-8")
    assert text == (project / "two.mmd").read_text(encoding="utf-8")
    assert text.startswith("flowchart TD\n")


def test_doctor_shows_no_key(give: Give, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-123")
    done = give("doctor")
    assert (done.code, "sk-canary" in done.out, "flow v1" in done.out) == (0, False, True)


@pytest.mark.parametrize("template", ["minimal", "refund", "review"])
def test_a_new_project_passes_its_own_check_and_tests(template: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert CliRunner().invoke(main, ["new", str(folder), "--template", template]).exit_code == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | {"AGENTFLOW_ORDERS": str(folder / "examples/inputs/shop")}
    for words in (["-m", "agentflow", "check"], ["-m", "pytest", "-q", "-p", "no:cacheprovider"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_with_files_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    done = CliRunner().invoke(main, ["new", str(tmp_path)])
    assert (done.exit_code, "is not empty" in done.stderr) == (5, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("which", "role"), [("refund", "refunds"), ("review", "moderators")])
def test_the_demo_decides_one_run_and_leaves_the_others_to_the_reader(which: str, role: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "agentflow"]
    done = subprocess.run(
        [*words, "demo", which, "--folder", str(tmp_path / "demo")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Why: ended at " in done.stdout
    exported = [line.removeprefix("  export ") for line in done.stdout.splitlines() if line.startswith("  export ")]
    variables = dict(word.split("=", 1) for word in exported)
    listed = subprocess.run(
        [*words, "--app", "definitions.app:app", "approvals", "list"],
        cwd=tmp_path,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    assert role in listed.stdout
