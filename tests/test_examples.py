"""The examples are short, and they run."""

import runpy
from pathlib import Path

import pytest

from agentflow.testing.scripted import ScriptedModel, reply

HELLO = Path(__file__).parents[1] / "examples" / "hello.py"


def test_hello_has_at_most_15_lines_that_are_not_blank() -> None:
    assert len([line for line in HELLO.read_text(encoding="utf-8").splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("verdict", ["spam", "ok"])
def test_hello_prints_where_the_model_sends_the_message(
    verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with ScriptedModel([reply(verdict)]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        monkeypatch.setenv("OPENAI_MODEL", "scripted")
        runpy.run_path(str(HELLO), run_name="__main__")
    assert capsys.readouterr().out == f"{verdict}\n"
    assert (tmp_path / "agentflow.db").is_file()
