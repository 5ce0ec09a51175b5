"""The console blocks of the guide for operators are what a terminal shows, command after command, in one folder."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentflow.cli import main

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
VOLATILE = [(r"\d+ s ago *", "SOME TIME AGO "), (r"\d\d:\d\d:\d\d", "THE TIME"), (r"process \d+", "process NUMBER")]


@dataclass(frozen=True)
class Command:
    """A command of the guide and what it prints."""

    line: str
    printed: str


def commands() -> Iterator[Command]:
    for block in re.findall(r"^```console\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            yield Command(line, printed)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files that the guide begins with."""
    [source, *_] = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    (tmp_path / "payouts.py").write_text(source, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.agentflow]\napp = "payouts:app"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("AGENTFLOW_DB", raising=False)
    yield tmp_path
    sys.modules.pop("payouts", None)


def carried_out(line: str) -> str:
    """What a terminal shows for a line: `agentflow ...`, maybe `> FILE`, maybe `; echo $?`."""
    typed, _, asks = line.partition("; echo $?")
    typed, into, _ = typed.partition(" > ")
    program, *words = shlex.split(typed)
    assert program == "agentflow"
    shown, code = in_a_process(words) if words[0] == "worker" else in_this_process(words)
    return ("" if into else shown) + (f"{code}\n" if line.endswith("; echo $?") and not asks else "")


def in_this_process(words: list[str]) -> tuple[str, int]:
    sys.modules.pop("payouts", None)
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    return done.output, done.exit_code


def in_a_process(words: list[str]) -> tuple[str, int]:
    """A worker ends its process."""
    command = [sys.executable, "-m", "agentflow", *words]
    found = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=found, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout, done.returncode


def steady(text: str) -> str:
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text)
    return text


def test_every_command_of_the_guide_prints_what_the_guide_shows(folder: Path) -> None:
    found = list(commands())
    assert len(found) >= 10
    for command in found:
        assert steady(carried_out(command.line)) == steady(command.printed), command.line
