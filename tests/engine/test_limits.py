"""What a run may use: which limit an event goes beyond, what a row may do about it, and what raising one changes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from agentflow import Context, Limits, Run, Workflow
from agentflow.engine.advance import advance, begin, next_commands
from agentflow.engine.commands import FailState, Perform, Stop
from agentflow.engine.events import Answered, BodyFailed, Broken, Event, GiveUp, RetryAt
from agentflow.engine.head import Head, memory_of, with_memory
from agentflow.engine.limits import limits_of
from agentflow.failures import Business, OverLimit
from agentflow.model.values import failure_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=2)
RAISED = Limits(transitions=9, wall_time=timedelta(days=1), context_bytes=10_000, visits=9, cost=Decimal("0.50"))


class Case(Context):
    text: str = ""


class Step(StrEnum):
    AGAIN = "again"
    READY = "ready"


def flow_of(limits: Limits | None = None, *, handled: bool = False, max_visits: int = 3) -> Any:
    """work loops or leads to tidy, which ends; `handled` sends what is over its limit to tidy, too."""
    flow = Workflow("flow", Case, limits=limits)

    @flow.step(max_visits=max_visits)
    async def work(case: Case, run: Run) -> Step:
        return Step.AGAIN

    @flow.step()
    async def tidy(case: Case, run: Run) -> None: ...

    ready = flow.end("ready")
    rows = [work.on(Step.AGAIN).to(work), work.on(Step.READY).to(tidy), tidy.to(ready)]
    flow.build(start=work, transitions=[*rows, work.failed(OverLimit).to(tidy)] if handled else rows)
    return flow.definition


def running(definition: Any, **changes: Any) -> Head:
    kept, _ = definition.context.start(Case())
    return replace(begin(definition, "r", kept, NOON).head, status="running", **changes)


def answered(definition: Any, head: Head, outcome: str | None = "AGAIN", *, at: datetime = NOON, text: str = "") -> Any:
    copy = definition.context.copy(head.kept)
    copy.text = text
    kept, difference = definition.context.keep(head.kept, copy)
    return Answered(at, outcome, kept, difference)


def over(limit: str) -> tuple[Limits, dict[str, Any], dict[str, Any]]:
    """A limit, a head that stands at it, and an answer beyond it."""
    table: dict[str, tuple[Limits, dict[str, Any], dict[str, Any]]] = {
        "transitions": (Limits(transitions=1), {"revision": 1}, {}),
        "wall_time": (Limits(wall_time=timedelta(hours=1)), {}, {"at": LATER}),
        "context_bytes": (Limits(context_bytes=100), {}, {"text": "x" * 200}),
    }
    return table[limit]


LIMITS = ["transitions", "wall_time", "context_bytes"]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_run_beyond_a_limit_is_blocked_where_it_stands(limit: str) -> None:
    limits, at, beyond = over(limit)
    definition = flow_of(limits)
    head = running(definition, **at)
    step = advance(definition, head, answered(definition, head, **beyond))
    assert (step.move, step.commands) == (None, (Stop(),))
    assert (step.head.state, step.head.visit, step.head.revision) == ("work", 1, head.revision)
    assert step.head.kept is head.kept
    assert step.head.failure is not None
    assert (step.head.failure.kind, step.head.blocked) == ("OverLimit", step.head.failure.message)
    assert limit in step.head.failure.message


@pytest.mark.parametrize(("limit", "kept"), [("transitions", True), ("wall_time", True), ("context_bytes", False)])
def test_an_answer_is_kept_for_when_the_limit_is_raised_unless_it_is_what_is_too_large(limit: str, kept: bool) -> None:
    limits, at, beyond = over(limit)
    definition = flow_of(limits)
    head = running(definition, **at)
    step = advance(definition, head, answered(definition, head, **beyond))
    assert (step.head.answer is not None) is kept


@pytest.mark.parametrize("limit", LIMITS)
def test_a_row_may_take_the_failure_and_the_way_out_can_then_be_gone_to_its_end(limit: str) -> None:
    limits, at, beyond = over(limit)
    definition = flow_of(limits, handled=True)
    head = running(definition, **at)
    step = advance(definition, head, answered(definition, head, **beyond))
    assert (step.head.state, step.head.revision) == ("tidy", head.revision + 1)
    out = advance(definition, step.head, answered(definition, step.head, None, at=beyond.get("at", NOON)))
    assert (out.head.status, out.head.end) == ("completed", "ready")


@pytest.mark.parametrize("limit", LIMITS)
def test_a_raised_limit_lets_the_same_answer_pass(limit: str) -> None:
    limits, at, beyond = over(limit)
    definition = flow_of(limits)
    head = running(definition, limits=RAISED, **at)
    step = advance(definition, head, answered(definition, head, **beyond))
    assert (step.head.state, step.head.revision, step.head.blocked) == ("work", head.revision + 1, None)
    assert step.head.limits == RAISED


def test_a_failure_beyond_the_transitions_is_no_way_round_them() -> None:
    definition = flow_of(Limits(transitions=1))
    head = running(definition, revision=1)
    step = advance(definition, head, BodyFailed(NOON, failure_of(Business("no"), "work"), GiveUp()))
    assert (step.head.blocked, step.head.status) == ("the run has made 1 transitions, transitions is 1", "queued")


def test_another_attempt_is_no_transition_but_takes_time() -> None:
    again = BodyFailed(LATER, failure_of(ValueError("x"), "work"), RetryAt(LATER))
    counted = flow_of(Limits(transitions=1))
    assert advance(counted, running(counted, revision=1), again).head.blocked is None
    timed = flow_of(Limits(wall_time=timedelta(hours=1)))
    assert advance(timed, running(timed), again).head.blocked == "the run has taken longer than wall_time=1:00:00"


def test_broken_author_code_fails_the_run_whatever_its_limits() -> None:
    definition = flow_of(Limits(wall_time=timedelta(hours=1)), handled=True)
    event: Event = Broken(LATER, failure_of(Business("of .store"), "work"))
    assert advance(definition, running(definition), event).head.status == "failed"


@pytest.mark.parametrize(
    ("limits", "raised", "visit", "worked_on"),
    [
        (None, None, 3, True),
        (None, None, 4, False),
        (None, Limits(visits=5), 5, True),
        (None, Limits(visits=5), 6, False),
        (Limits(visits=2), None, 3, False),
        (Limits(visits=2), Limits(cost=Decimal(1)), 3, False),
        (Limits(visits=2), Limits(visits=4), 4, True),
    ],
)
def test_visits_are_bounded_by_the_state_and_by_the_workflow_and_raised_for_both(
    limits: Limits | None, raised: Limits | None, visit: int, worked_on: bool
) -> None:
    definition = flow_of(limits)
    head = running(definition, visit=visit, visits={"work": visit}, limits=raised)
    [command] = next_commands(definition, head)
    assert isinstance(command, Perform if worked_on else FailState)


def test_a_raised_limit_stands_in_place_of_the_same_one_alone() -> None:
    limits = Limits(transitions=5, tokens=100)
    definition = flow_of(limits)
    head = running(definition, limits=Limits(tokens=200, visits=7))
    assert limits_of(definition, head) == Limits(transitions=5, tokens=200, visits=7)
    assert limits_of(definition, running(definition)) is limits


def test_raised_limits_and_those_that_a_row_took_come_back_from_the_store() -> None:
    definition = flow_of()
    head = running(definition, limits=RAISED, over=("wall_time",))
    back = with_memory(running(definition), memory_of(head))
    assert (back.limits, back.over) == (RAISED, ("wall_time",))
