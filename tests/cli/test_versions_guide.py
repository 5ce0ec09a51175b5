"""The guide about versions is what a terminal shows: its files are written as they come, its commands print what stands there."""

import linecache
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentflow.cli import main
from tests.cli.test_operating_guide import VOLATILE

GUIDE = Path(__file__).parents[2] / "docs" / "versions.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = [*VOLATILE, (r"\b[0-9a-f]{8,24}\b", "DIGEST"), (r"\d{4}-\d\d-\d\d", "THE DAY")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "pyproject.toml").write_text('[tool.agentflow]\napp = "refunds:app"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("AGENTFLOW_DB", raising=False)
    yield tmp_path
    sys.modules.pop("refunds", None)


def printed_by(block: str) -> str:
    """What a terminal shows for the commands of a block."""
    shown = ""
    for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        sys.modules.pop("refunds", None)
        linecache.clearcache()
        program, *words = shlex.split(line)
        assert program == "agentflow"
        shown += f"$ {line}\n" + CliRunner().invoke(main, words, catch_exceptions=False).output
    return shown


def steady(text: str) -> str:
    for pattern, word in SHOWN:
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_every_command_of_the_guide_prints_what_the_guide_shows(folder: Path) -> None:
    seen = 0
    for language, block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if language == "console":
            assert steady(printed_by(block)) == steady(block)
            seen += 1
        elif block.startswith("# refunds.py\n"):
            (folder / "refunds.py").write_text(block, encoding="utf-8")
    assert seen >= 3
