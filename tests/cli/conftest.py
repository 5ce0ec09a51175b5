"""A small project in a folder of its own, and a way to give it commands."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentflow.cli import main

FLOWS = """
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel

from agentflow import App, Context, Question, Run, Workflow


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class Form(BaseModel):
    amount: Decimal


class Case(Context):
    n: int
    text: str = ""


flow = Workflow("flow", Case)


@flow.step()
async def look(case: Case, run: Run) -> None:
    if case.n == 13:
        raise ValueError("thirteen is refused")


def small(case: Case) -> bool:
    return case.n < 10


@flow.human(Verdict, answer=Form, expires=timedelta(days=1), roles=["boss"])
def ask(case: Case) -> Question:
    return Question(f"Is {case.n} fine?", evidence={"n": case.n}, suggest=Form(amount=Decimal(3)))


fine, refused = flow.end("fine"), flow.end("refused")
flow.build(
    start=look,
    transitions=[
        look.when(small).to(fine),
        look.to(ask),
        ask.on(Verdict.APPROVE).to(fine),
        ask.on(Verdict.REJECT).to(refused),
        ask.expired.to(refused),
    ],
)

class Pace(StrEnum):
    ON = "on"
    OVER = "over"


class Count(Context):
    n: int = 0


narrow = Workflow("narrow", Count)


@narrow.step(max_visits=2)
async def again(count: Count, run: Run) -> Pace:
    count.n += 1
    return Pace.ON if count.n < 4 else Pace.OVER


there = narrow.end("fine")
narrow.build(start=again, transitions=[again.on(Pace.ON).to(again), again.on(Pace.OVER).to(there)])
app = App([flow, narrow])
"""


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Give = Callable[..., Done]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a project whose App has one workflow."""
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.agentflow]\napp = "flows:app"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a changed file of the same size and second would be missed
    monkeypatch.delenv("AGENTFLOW_DB", raising=False)
    yield tmp_path
    sys.modules.pop("flows", None)


@pytest.fixture
def give(project: Path) -> Give:
    """Give a command in the project."""

    def run(*words: str, fresh: bool = True) -> Done:
        if fresh:  # each command is a process of its own outside of tests
            sys.modules.pop("flows", None)
        done = CliRunner().invoke(main, list(words), catch_exceptions=False)
        return Done(done.exit_code, done.stdout, done.stderr)

    return run
