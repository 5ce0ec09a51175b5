"""A sound workflow to break, and how the tests name the line on which they broke it.

A line of a test that plants a fault carries a mark, `# fault`, or `# fault: name` where there are several; `told` builds
and returns what the author is told, and `line_of` says where the mark stands, so a test compares the whole message.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentflow import Context, DefinitionError, Question, Run, Workflow


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


class Case(Context):
    n: int = 0


def positive(case: Case) -> bool:
    return case.n > 0


def even(case: Case) -> bool:
    return case.n % 2 == 0


class Parts(NamedTuple):
    """A sound workflow: work -> judge -> ask, with two ends and a rescue."""

    flow: Any
    work: Any
    judge: Any
    ask: Any
    end: Any
    bad: Any

    def rows(self) -> list[Any]:
        """The sound table: 0 work, 1 yes, 2 no, 3 both answers of a person, 4 expiry, 5 rescue."""
        return [
            self.work.to(self.judge),
            self.judge.on(Verdict.YES).to(self.end),
            self.judge.on(Verdict.NO).to(self.ask),
            self.ask.on(Verdict.YES, Verdict.NO).to(self.end),
            self.ask.expired.to(self.end),
            self.flow.failed.to(self.bad),
        ]

    def rows_without(self, number: int) -> list[Any]:
        """The table without one row, which was never made."""
        rows = self.rows()
        self.flow.made.remove(rows[number])
        return [row for row in rows if row is not rows[number]]

    def build(self, rows: list[Any] | None = None, start: Any = None) -> None:
        self.flow.build(start=start or self.work, transitions=self.rows() if rows is None else rows)


def parts(context: type[Context] = Case, **options: Any) -> Parts:
    flow: Any = Workflow("flow", context, **options)

    @flow.step()
    async def work(case: Any, run: Run) -> None:
        case.n = 1

    @flow.llm(Verdict, prompt="yes or no?")
    def judge(case: Any) -> dict[str, object]:
        return {}

    @flow.human(Verdict, expires=timedelta(days=1))
    def ask(case: Any) -> Question:
        return Question("yes?")

    return Parts(flow, work, judge, ask, flow.end("end"), flow.end("bad", failed=True))


def problems(build: Callable[[], None]) -> list[str]:
    """What `build` raises, problem by problem."""
    with pytest.raises(DefinitionError) as caught:
        build()
    return list(caught.value.problems)


def told(build: Callable[[], None]) -> str:
    """The one problem that `build` raises."""
    [problem] = problems(build)
    return problem


def built(state: Any, end: Any) -> None:
    """Build a workflow of one state."""
    outcome = state.spec.outcome
    exit = state.on(*outcome) if outcome is not None else state
    rows = [exit.to(end)] + ([state.expired.to(end)] if state.spec.expires is not None else [])
    state.owner.build(start=state, transitions=rows)


def line_of(name: str = "") -> str:
    """`file:line` of the mark in the test that calls."""
    frame = sys._getframe(1)
    path, first = Path(frame.f_code.co_filename), frame.f_code.co_firstlineno
    mark = f"# fault: {name}" if name else "# fault"
    lines = path.read_text(encoding="utf-8").splitlines()
    number = next(number for number, text in enumerate(lines, 1) if number >= first and text.rstrip().endswith(mark))
    return f"{path.name}:{number}"
