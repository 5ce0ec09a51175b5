"""`advance` where something goes wrong: guards, limits, failures of failures; and what every step leaves as it was."""

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from agentflow import Context, Limits, Question, Run, Workflow
from agentflow.engine.advance import advance, begin, next_commands
from agentflow.engine.commands import FailState, Perform, Stop, WaitUntil
from agentflow.engine.events import Answered, BodyFailed, Broken, Event, Expired, Facts, GiveUp, RetryAt
from agentflow.engine.head import Head, Usage, memory_of, with_memory
from agentflow.errors import Conflict
from agentflow.failures import Business, OverLimit
from agentflow.merge import Append
from agentflow.model.values import failure_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


class Case(Context):
    n: int = 0
    text: str = ""
    log: Append[str] = Append()


def divides(case: Case) -> bool:
    return 10 // case.n > 100


def of_failure(case: Case) -> bool:
    return case.failure is not None and case.failure.kind == "Business"


def makes_invalid(case: Case) -> bool:
    wrong: Any = "x"
    case.n = wrong
    return True


def deletes(case: Case) -> bool:
    del case.n
    return True


def appends(case: Case) -> bool:
    case.log.append("seen")
    return True


def flow_of(*, guard: Any = None, on_failed: Any = None, on_expired: Any = None, limits: Limits | None = None) -> Any:
    """work -> ask -> (work | done | refused); failures of `work` with a guard go to `ask`; the rescue is for Business."""
    flow: Any = Workflow("flow", Case, limits=limits)

    @flow.step(max_visits=2)
    async def work(case: Case, run: Run) -> None: ...

    @flow.human(Verdict, expires=timedelta(days=1))
    def ask(case: Case) -> Question:
        return Question("?")

    done, refused, broken = flow.end("done"), flow.end("refused", failed=True), flow.end("broken", failed=True)
    rows = [
        *([work.when(guard).to(done)] if guard else []),
        work.to(ask),
        *([work.failed.when(on_failed).to(ask)] if on_failed else []),
        work.failed(OverLimit).to(broken),
        ask.on(Verdict.YES).when(of_failure).to(work),
        ask.on(Verdict.YES).to(done),
        ask.on(Verdict.NO).to(refused),
        *([ask.expired.when(on_expired).to(done)] if on_expired else []),
        ask.expired.to(work),
        flow.failed(Business).to(ask),
    ]
    flow.build(start=work, transitions=rows)
    return flow.definition


def standing(definition: Any, state: str = "work", **context: Any) -> Head:
    kept, _ = definition.context.start(Case(**context))
    begun = begin(definition, "r", kept, NOON).head
    return replace(begun, status="running", state=state, visits={**begun.visits, state: 1})


def answered(definition: Any, head: Head, outcome: str | None = None, /, **changes: Any) -> Answered:
    case = definition.context.copy(head.kept)
    for name, value in changes.items():
        setattr(case, name, value)
    kept, difference = definition.context.keep(head.kept, case)
    return Answered(LATER, outcome, kept, difference)


def failed(error: Exception, state: str = "work") -> BodyFailed:
    return BodyFailed(LATER, failure_of(error, state), GiveUp())


# --- guards that cannot be evaluated -----------------------------------------------------------------------------


def test_b71_an_answer_whose_guard_raised_is_kept_whole_and_moves_on_once_the_guard_is_mended() -> None:
    definition = flow_of(guard=divides)
    head = standing(definition, n=1)
    event = replace(answered(definition, head, n=0, text="paid"), facts=Facts(model="m", cost="0.1"))
    step = advance(definition, head, event)
    assert (step.head.status, step.head.state, step.head.revision, step.head.visit) == ("failed", "work", 0, 1)
    assert (step.head.kept, step.move, step.commands) == (head.kept, None, (Stop(),))
    kept = step.head.answer
    assert kept is not None
    assert (kept.outcome, kept.difference) == (None, '{"set":{"n":0,"text":"paid"}}')
    assert Facts(**kept.facts) == event.facts

    mended = flow_of()
    again = replace(step.head, status="running", failure=None)
    applied, difference = mended.context.apply(again.kept, kept.difference)
    moved = advance(mended, again, Answered(LATER, kept.outcome, applied, difference, Facts(**kept.facts)))
    assert (moved.head.state, moved.head.revision, moved.head.answer) == ("ask", 1, None)
    assert mended.context.copy(moved.head.kept) == Case(n=0, text="paid")


def test_b71_a_guard_of_a_failed_row_that_raises_ends_the_run_where_it_stands() -> None:
    definition = flow_of(on_failed=divides)
    head = standing(definition)
    step = advance(definition, head, failed(ValueError("x")))
    assert (step.head.status, step.head.state, step.head.revision, step.move) == ("failed", "work", 0, None)
    assert step.head.failure is not None
    assert (step.head.failure.kind, step.head.failure.state) == ("GuardFailed", "work")


def test_b71_a_guard_of_an_expiry_that_raises_ends_the_run_where_it_stands() -> None:
    definition = flow_of(on_expired=divides)
    step = advance(definition, standing(definition, "ask"), Expired(LATER))
    assert (step.head.status, step.head.state, step.head.revision, step.move) == ("failed", "ask", 0, None)
    assert step.head.failure is not None
    assert step.head.failure.message == "guard 'divides' raised ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize("guard", [makes_invalid, deletes, appends])
def test_b71_whatever_a_guard_does_to_its_copy_is_gone_and_in_strict_mode_refused(guard: Any) -> None:
    definition = flow_of(guard=guard)
    head = standing(definition, n=3)
    loose = advance(definition, head, answered(definition, head))
    assert loose.head.end == "done"
    assert definition.context.copy(loose.head.kept) == Case(n=3)
    strict = advance(definition, head, answered(definition, head), strict=True)
    assert (strict.head.status, strict.head.revision, strict.head.kept) == ("failed", 0, head.kept)
    assert strict.head.failure is not None
    assert strict.head.failure.message == (f"guard {guard.__name__!r} changed the context; a guard only looks")


def test_an_answer_that_no_row_takes_any_more_is_kept() -> None:
    definition = flow_of()
    head = standing(definition, "ask")
    step = advance(definition, head, answered(definition, head, "MAYBE", text="x"))
    assert (step.head.status, step.head.revision) == ("failed", 0)
    assert step.head.failure is not None
    assert "state 'ask': no row takes 'on:MAYBE'" in step.head.failure.message
    assert step.head.answer is not None
    assert step.head.answer.outcome == "MAYBE"


# --- outcomes, failures and what led here ------------------------------------------------------------------------


def test_an_outcome_and_the_failure_that_led_here_choose_the_row() -> None:
    definition = flow_of()
    rescued = advance(definition, standing(definition), failed(Business("closed")))
    assert (rescued.head.state, rescued.head.rescued) == ("ask", True)
    assert rescued.head.cause is not None
    back = advance(definition, rescued.head, answered(definition, rescued.head, "YES"))
    assert back.move is not None
    assert (back.move.event, back.move.outcome, back.move.guards) == ("on:YES", "YES", (("of_failure", True),))
    assert (back.head.state, back.head.cause, back.head.visits) == ("work", None, {"work": 2, "ask": 1})
    plain = standing(definition, "ask")
    straight = advance(definition, plain, answered(definition, plain, "YES"))
    assert (straight.head.end, straight.head.cause) == ("done", None)


def test_a_rescue_is_taken_once_and_a_second_failure_ends_the_run() -> None:
    definition = flow_of()
    head = advance(definition, standing(definition), failed(Business("one"))).head
    step = advance(definition, head, failed(Business("two"), "ask"))
    assert (step.head.status, step.head.state, step.move) == ("failed", "ask", None)
    assert step.head.failure is not None
    assert step.head.failure.message == "two"


def test_a_failed_row_of_the_state_is_tried_before_the_rescue() -> None:
    definition = flow_of(on_failed=of_failure)
    step = advance(definition, standing(definition), failed(Business("x")))
    assert (step.head.state, step.head.rescued) == ("ask", False)
    assert step.move is not None
    assert step.move.guards == (("of_failure", True),)


def test_an_end_that_is_failed_fails_the_run_also_without_a_failure() -> None:
    definition = flow_of()
    head = standing(definition, "ask")
    step = advance(definition, head, answered(definition, head, "NO"))
    assert (step.head.status, step.head.end, step.head.failure, step.commands) == ("failed", "refused", None, (Stop(),))


def test_a_failure_that_ends_a_run_is_its_failure() -> None:
    definition = flow_of()
    over = failure_of(OverLimit("x"), "work")
    step = advance(definition, standing(definition), BodyFailed(LATER, over, GiveUp()))
    assert (step.head.end, step.head.status, step.head.failure, step.head.cause) == ("broken", "failed", over, over)


def test_a_step_that_was_passed_over_says_so() -> None:
    definition = flow_of()
    head = standing(definition)
    step = advance(definition, head, replace(answered(definition, head), skipped=True))
    assert step.move is not None
    assert (step.move.event, step.move.outcome, step.move.target) == ("done", "skipped", "ask")


# --- attempts and visits -----------------------------------------------------------------------------------------


def test_attempts_are_counted_within_a_visit_and_start_anew_in_the_next_state() -> None:
    definition = flow_of()
    head = standing(definition)
    for number in (1, 2):
        at = LATER + timedelta(seconds=number)
        step = advance(definition, head, BodyFailed(LATER, failure_of(ValueError("x"), "work"), RetryAt(at)))
        assert (step.head, step.move, step.commands) == (replace(head, attempt=number), None, (WaitUntil(at),))
        head = step.head
    moved = advance(definition, head, answered(definition, head))
    assert moved.move is not None
    assert (moved.move.attempt, moved.move.visit, moved.head.attempt) == (3, 1, 0)
    assert (moved.head.entered_at, moved.move.at) == (LATER, LATER)


@pytest.mark.parametrize(
    ("limits", "limit"), [(None, "max_visits"), (Limits(visits=1), "visits"), (Limits(visits=9), "max_visits")]
)
def test_a_visit_beyond_the_bound_is_entered_but_not_worked_on(limits: Limits | None, limit: str) -> None:
    definition = flow_of(limits=limits)
    bound = 1 if limit == "visits" else 2
    head = replace(standing(definition, "ask"), visits={"work": bound, "ask": 1})
    step = advance(definition, head, Expired(LATER))
    assert (step.head.state, step.head.visit, step.head.revision, step.head.status) == ("work", bound + 1, 1, "running")
    [command] = step.commands
    assert isinstance(command, FailState)
    assert (command.state, command.failure.kind) == ("work", "OverLimit")
    assert command.failure.message == f"state 'work' was entered {bound + 1} times, {limit} is {bound}"
    over = advance(definition, step.head, BodyFailed(LATER, command.failure, GiveUp()))
    assert (over.head.end, over.head.revision) == ("broken", 2)


def test_the_last_visit_within_the_bound_is_worked_on() -> None:
    definition = flow_of()
    head = replace(standing(definition), visit=2, visits={"work": 2})
    assert next_commands(definition, head) == (Perform("work"),)


# --- limits ------------------------------------------------------------------------------------------------------


def test_a_context_over_its_limit_takes_the_failed_row_and_leaves_the_context_as_it_was() -> None:
    definition = flow_of(limits=Limits(context_bytes=50))
    head = standing(definition)
    event = replace(answered(definition, head, text="x" * 50), usage=Usage(1, 10, Decimal("0.1")))
    step = advance(definition, head, event)
    assert (step.head.end, step.head.kept, step.head.usage) == ("broken", head.kept, event.usage)
    assert step.move is not None
    assert step.move.difference.text() == "{}"
    assert step.move.failure is not None
    assert step.move.failure.message.endswith("context_bytes is 50; the largest field is text")
    assert (step.move.facts, step.move.outcome) == (event.facts, None)


def test_a_context_of_exactly_the_limit_is_kept() -> None:
    definition = flow_of()
    head = standing(definition)
    event = answered(definition, head, text="x" * 50)
    exact = flow_of(limits=Limits(context_bytes=event.kept.size))
    assert advance(exact, head, event).head.state == "ask"
    tight = flow_of(limits=Limits(context_bytes=event.kept.size - 1))
    assert advance(tight, head, event).head.end == "broken"


def test_the_answer_of_a_transition_too_many_is_kept_for_when_the_limit_is_raised() -> None:
    definition = flow_of(limits=Limits(transitions=1))
    head = replace(standing(definition, "ask"), revision=1)
    step = advance(definition, head, answered(definition, head, "NO", text="dear"))
    assert (step.head.status, step.head.revision, step.head.state, step.commands) == ("queued", 1, "ask", (Stop(),))
    assert step.head.failure is not None
    assert step.head.blocked == step.head.failure.message == "the run has made 1 transitions, transitions is 1"
    assert step.head.answer is not None
    assert (step.head.answer.outcome, step.head.answer.difference) == ("NO", '{"set":{"text":"dear"}}')


def test_usage_adds_up_over_every_kind_of_event() -> None:
    definition = flow_of()
    used = Usage(1, 10, Decimal("0.10"))
    failure = failure_of(ValueError("x"), "work")
    head = standing(definition)
    events: list[Event] = [
        BodyFailed(LATER, failure, RetryAt(LATER), usage=used),
        replace(answered(definition, head), usage=used),
        BodyFailed(LATER, failure, GiveUp(), usage=used),
        Broken(LATER, failure, used),
    ]
    for event in events:
        before = replace(head, usage=used)
        assert advance(definition, before, event).head.usage == Usage(2, 20, Decimal("0.20")), event


# --- pure --------------------------------------------------------------------------------------------------------


def test_no_event_is_applied_to_a_run_that_ended_or_has_not_begun() -> None:
    definition = flow_of()
    head = standing(definition, "ask")
    for status in ("queued", "completed", "failed", "cancelled"):
        stopped = replace(head, status=status)
        with pytest.raises(Conflict, match=f"a run that is {status} cannot complete"):
            advance(definition, stopped, answered(definition, stopped, "YES"))


def test_a_run_that_reaches_an_end_while_it_is_being_cancelled_has_ended_there() -> None:
    definition = flow_of()
    head = replace(standing(definition, "ask"), status="cancelling")
    assert advance(definition, head, answered(definition, head, "YES")).head.status == "completed"


def test_the_same_event_gives_the_same_step_and_changes_nothing_that_it_was_given() -> None:
    definition = flow_of(on_failed=makes_invalid)
    head = standing(definition, log=Append(["a"]))
    waiting = replace(head, state="ask")
    cases: list[tuple[Head, Event]] = [
        (head, answered(definition, head, text="x")),
        (head, failed(ValueError("x"))),
        (head, BodyFailed(LATER, failure_of(ValueError("x"), "work"), RetryAt(LATER))),
        (head, Broken(LATER, failure_of(ValueError("x"), "work"))),
        (waiting, answered(definition, waiting, "NO")),
        (waiting, Expired(LATER)),
    ]
    for before, event in cases:
        seen = copy.deepcopy((before, event))
        one, other = advance(definition, before, event), advance(definition, before, event)
        assert one == other
        assert (before, event) == seen
        assert list(definition.context.copy(before.kept).log) == ["a"]


def test_a_run_read_back_from_what_it_remembers_goes_on_the_same_way() -> None:
    definition = flow_of()
    first = advance(definition, standing(definition), failed(Business("closed"))).head
    blank = replace(first, visits={}, usage=Usage(), rescued=False, generation=0, cause=None, entered_at=NOON)
    read = with_memory(blank, memory_of(first))
    assert read == first
    event = answered(definition, first, "YES")
    assert advance(definition, read, event) == advance(definition, first, event)
