"""Whatever is wrong, a command says so in one line, with the exit code of the table, and nothing is lost."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import FLOWS, Give


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("run", "flwo", "-c", "n=1"), 4, "there is no workflow 'flwo'; did you mean 'flow'?"),
        (("run", "flow", "--context", "{bad"), 2, "--context: no JSON"),
        (("run", "flow", "--context", "@nowhere.json"), 2, "No such file"),
        (("run", "flow", "-c", "n=x"), 2, "Case: n:"),
        (("run", "flow", "-c", "n=1", "-c", "m=1"), 2, "-c m: Case has no such field"),
        (("run", "flow", "-c", "n"), 2, "write NAME=VALUE"),
        (("run", "flow", "-c", "n=1", "--id", "a b"), 2, "run id 'a b'"),
        (("runs", "why", "nowhere"), 4, "there is no run 'nowhere'"),
        (("graph", "nowhere"), 4, "no run 'nowhere'"),
        (("--app", "nowhere:app", "check"), 2, "there is no module 'nowhere'"),
        (("--app", "flows:ap", "check"), 2, "did you mean 'app'?"),
        (("--app", "flows", "check"), 2, "write MODULE:OBJECT"),
        (("--db", "mysql://x", "runs", "list"), 2, "mysql://x"),
        (("--db", "sqlite:////nowhere/x.db", "runs", "list"), 9, "there is no folder /nowhere"),
    ],
)
def test_one_line_and_the_right_exit_code(give: Give, words: tuple[str, ...], code: int, message: str) -> None:
    done = give(*words)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert done.err.startswith("agentflow: error: ")
    assert message in done.err


def test_with_json_an_error_is_an_object(give: Give) -> None:
    done = give("runs", "why", "nowhere", "--json")
    assert (done.code, json.loads(done.err)["error"]["code"]) == (4, "not_found")


def test_a_context_over_the_limit_is_refused_with_its_size(give: Give, project: Path) -> None:
    (project / "big.json").write_text(json.dumps({"n": 1, "text": "x" * 1_100_000}), encoding="utf-8")
    done = give("run", "flow", "--context", "@big.json", "--id", "big")
    assert (done.code, "context_bytes is 1,048,576; the largest field is text" in done.err) == (2, True)
    assert give("runs", "list", "--json").out == ""


def test_all_problems_of_a_definition_come_at_once(give: Give, project: Path) -> None:
    broken = FLOWS.replace("look.when(small).to(fine),", "").replace("ask.on(Verdict.REJECT).to(refused),", "")
    (project / "flows.py").write_text(broken, encoding="utf-8")
    done = give("check")
    assert done.code == 3
    assert "flows.py:" in done.err
    assert "Verdict.REJECT leads nowhere" in done.err


def test_a_missing_prompt_file_is_a_problem_of_the_definition(give: Give, project: Path) -> None:
    (project / "prompts").mkdir()
    (project / "prompts" / "judge.md").write_text("{{ n }}", encoding="utf-8")
    asking = FLOWS.replace(
        "fine, refused = ",
        '@flow.llm(Verdict, prompt=Path("jugde.md"))\ndef judge(case: Case) -> Case:\n    return case\n\n\nfine, refused = ',
    ).replace("from enum", "from pathlib import Path\nfrom enum")
    (project / "flows.py").write_text(asking, encoding="utf-8")
    done = give("check")
    assert (done.code, "did you mean 'judge.md'?" in done.err) == (3, True)


def test_without_a_key_a_run_is_not_lost(give: Give, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_MODEL", "m")
    (project / "flows.py").write_text(
        "from agentflow import App, Context, Workflow\n"
        "class Case(Context):\n    n: int\n"
        'flow = Workflow("flow", Case)\n'
        '@flow.llm(prompt="Say {{ n }}")\n'
        "def say(case: Case) -> Case:\n    return case\n"
        'done = flow.end("done")\n'
        "flow.build(start=say, transitions=[say.to(done)])\n"
        "app = App([flow])\n",
        encoding="utf-8",
    )
    done = give("run", "flow", "-c", "n=1", "--id", "a")
    assert (done.code, "OPENAI_API_KEY" in done.err, "Traceback" in done.err) == (2, True, False)
    [row] = give("runs", "list", "--json").lines
    assert (row["id"], row["status"], "OPENAI_API_KEY" in row["blocked"]) == ("a", "queued", True)


def test_a_file_that_is_no_database_is_left_alone(give: Give, project: Path) -> None:
    (project / "junk.db").write_text("hello\n" * 500, encoding="utf-8")
    done = give("--db", "sqlite:///junk.db", "runs", "list")
    assert (done.code, "is no SQLite database" in done.err) == (9, True)
    assert (project / "junk.db").read_text(encoding="utf-8") == "hello\n" * 500


def test_a_database_of_somebody_else_is_left_alone(give: Give, project: Path) -> None:
    with closing(sqlite3.connect(project / "other.db")) as connection:
        connection.execute("create table customers (id)")
        connection.commit()
    done = give("run", "flow", "-c", "n=1", "--db", "sqlite:///other.db")
    assert (done.code, "other.db" in done.err) == (9, True)
    with closing(sqlite3.connect(project / "other.db")) as connection:
        tables = connection.execute("select name from sqlite_master").fetchall()
    assert tables == [("customers",)]


def test_a_database_of_a_newer_version_is_refused(give: Give, project: Path) -> None:
    give("run", "flow", "-c", "n=1", "--id", "a")
    with closing(sqlite3.connect(project / "agentflow.db")) as connection:
        connection.execute("update meta set value = '99' where name = 'schema'")
        connection.commit()
    done = give("runs", "list")
    assert (done.code, "newer" in done.err) == (9, True)


def test_python_m_agentflow_is_the_same_program(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentflow", "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, "approvals" in done.stdout) == (0, True)
