"""`advance`: one event, one step, and what the world must do next."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentflow import Context, Limits, Run, Workflow
from agentflow.engine.advance import Advance, advance, begin, next_commands
from agentflow.engine.commands import FailState, Perform, Stop, WaitUntil
from agentflow.engine.events import Answered, BodyFailed, Broken, GiveUp, RetryAt
from agentflow.engine.head import Head, Usage, memory_of, with_memory
from agentflow.engine.limits import check_size
from agentflow.failures import Business, OverLimit
from agentflow.merge import Append
from agentflow.model.values import failure_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


class Case(Context):
    n: int = 0
    text: str = ""
    log: Append[str] = Append()


def divides(case: Case) -> bool:
    return 10 // case.n > 1


def meddles(case: Case) -> bool:
    case.n = 99
    case.log.append("seen")
    return True


def loop(guard: Any = None, limits: Limits | None = None) -> Any:
    flow: Any = Workflow("loop", Case, limits=limits)

    @flow.step(max_visits=2)
    async def work(case: Case, run: Run) -> None: ...

    end, refused, broken = flow.end("end"), flow.end("refused"), flow.end("broken", failed=True)
    first = [work.when(guard).to(work)] if guard is not None else []
    flow.build(
        start=work,
        transitions=[*first, work.to(end), work.failed(OverLimit).to(broken), work.failed(Business).to(refused)],
    )
    return flow.definition


def running(definition: Any, **context: Any) -> Head:
    kept, _ = definition.context.start(Case(**context))
    return replace(begin(definition, "r", kept, NOON).head, status="running")


def answered(definition: Any, head: Head, at: datetime = LATER, **changes: Any) -> Answered:
    copy = definition.context.copy(head.kept)
    for name, value in changes.items():
        setattr(copy, name, value)
    kept, difference = definition.context.keep(head.kept, copy)
    return Answered(at, None, kept, difference)


def test_a_run_begins_at_the_start_with_its_first_visit() -> None:
    definition = loop()
    kept, _ = definition.context.start(Case())
    begun = begin(definition, "r", kept, NOON)
    assert (begun.head.state, begun.head.visit, begun.head.revision, begun.head.status) == ("work", 1, 0, "queued")
    assert begun.commands == (Perform("work"),)


def test_an_answer_moves_the_run_and_records_what_changed() -> None:
    definition = loop()
    head = running(definition)
    step = advance(definition, head, answered(definition, head, n=5))
    assert (step.head.revision, step.head.status, step.head.end) == (1, "completed", "end")
    assert step.commands == (Stop(),)
    assert step.move is not None
    assert (step.move.source, step.move.target, step.move.difference.text()) == ("work", "end", '{"set":{"n":5}}')


def test_advance_is_a_function_and_leaves_its_input_alone() -> None:
    definition = loop(divides)
    head = running(definition, n=1)
    event = answered(definition, head, n=2)
    before = repr(head)
    assert advance(definition, head, event) == advance(definition, head, event)
    assert repr(head) == before


def test_visits_are_counted_and_the_one_too_many_is_a_failure_of_the_state() -> None:
    definition = loop(divides)
    step = Advance(running(definition, n=1), None, ())
    for _ in range(2):
        step = advance(definition, step.head, answered(definition, step.head))
    assert step.head.visit == 3
    [command] = step.commands
    assert isinstance(command, FailState)
    assert (command.failure.kind, command.failure.matches(OverLimit)) == ("OverLimit", True)
    failed = advance(definition, step.head, BodyFailed(LATER, command.failure, GiveUp()))
    assert (failed.head.end, failed.head.status) == ("broken", "failed")


def test_a_failure_takes_its_row_and_is_the_cause_of_the_next_state() -> None:
    definition = loop()
    head = running(definition)
    failure = failure_of(Business("closed"), "work")
    step = advance(definition, head, BodyFailed(LATER, failure, GiveUp()))
    assert (step.head.end, step.head.status, step.head.cause) == ("refused", "completed", failure)


def test_a_failure_without_a_row_ends_the_run_where_it_stands() -> None:
    definition = loop()
    failure = failure_of(ValueError("x"), "work")
    step = advance(definition, running(definition), BodyFailed(LATER, failure, GiveUp()))
    assert (step.head.status, step.head.state, step.head.revision, step.move) == ("failed", "work", 0, None)
    assert step.head.failure == failure


def test_a_failure_that_is_tried_again_counts_the_attempt_and_waits() -> None:
    definition = loop()
    failure = failure_of(ValueError("x"), "work")
    event = BodyFailed(LATER, failure, RetryAt(LATER + timedelta(seconds=5)), usage=Usage(llm_calls=1))
    step = advance(definition, running(definition), event)
    assert (step.head.attempt, step.head.revision, step.head.usage.llm_calls) == (1, 0, 1)
    assert step.commands == (WaitUntil(LATER + timedelta(seconds=5)),)


def test_b71_a_guard_that_raises_fails_the_run_and_keeps_its_answer() -> None:
    definition = loop(divides)
    head = running(definition, n=1)
    step = advance(definition, head, answered(definition, head, n=0))
    assert (step.head.status, step.head.revision, step.head.kept, step.move) == ("failed", 0, head.kept, None)
    assert step.head.failure is not None
    assert step.head.failure.message.startswith("guard 'divides' raised ZeroDivisionError")
    assert step.head.answer is not None
    assert step.head.answer.difference == '{"set":{"n":0}}'


def test_b71_what_a_guard_changes_is_discarded_and_in_strict_mode_refused() -> None:
    definition = loop(meddles)
    head = running(definition)
    step = advance(definition, head, answered(definition, head))
    assert definition.context.copy(step.head.kept) == Case()
    strict = advance(definition, head, answered(definition, head), strict=True)
    assert strict.head.status == "failed"
    assert strict.head.failure is not None
    assert "changed the context; a guard only looks" in strict.head.failure.message


def test_guards_are_recorded_in_the_order_in_which_they_were_looked_at() -> None:
    definition = loop(divides)
    head = running(definition)
    taken = advance(definition, head, answered(definition, head, n=2)).move
    passed = advance(definition, head, answered(definition, head, n=9)).move
    assert taken is not None
    assert passed is not None
    assert (taken.guards, taken.target) == ((("divides", True),), "work")
    assert (passed.guards, passed.target) == ((("divides", False),), "end")


def test_a_context_over_its_limit_is_a_failure_that_names_the_field() -> None:
    definition = loop(limits=Limits(context_bytes=100))
    head = running(definition)
    step = advance(definition, head, answered(definition, head, text="x" * 200))
    assert (step.head.end, step.head.cause is not None and "the largest field is text" in step.head.cause.message) == (
        "broken",
        True,
    )
    assert definition.context.copy(step.head.kept).text == ""
    assert check_size(definition.limits, head.kept) is None


def test_a_run_makes_no_more_transitions_than_its_limit_unless_a_row_takes_that_failure() -> None:
    definition = loop(divides, Limits(transitions=1))
    head = running(definition, n=1)
    first = advance(definition, head, answered(definition, head))
    second = advance(definition, first.head, answered(definition, first.head))
    assert (first.head.revision, second.head.end, second.head.revision) == (1, "broken", 2)
    assert second.head.failure is not None
    assert (second.head.failure.kind, second.head.over) == ("OverLimit", ("transitions",))


def test_a_broken_store_function_takes_no_row() -> None:
    definition = loop()
    failure = failure_of(Business("not by a row"), "work")
    step = advance(definition, running(definition), Broken(LATER, failure))
    assert (step.head.status, step.head.end, step.head.failure) == ("failed", None, failure)


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_an_ended_run_needs_nothing(status: Any) -> None:
    definition = loop()
    assert next_commands(definition, replace(running(definition), status=status)) == (Stop(),)


def test_what_the_engine_remembers_comes_back_as_it_was() -> None:
    definition = loop(divides)
    head = running(definition, n=1)
    failed = advance(definition, head, answered(definition, head, n=0)).head
    full = replace(
        failed,
        visits={"work": 3},
        usage=Usage(2, 300, 0),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        rescued=True,
        generation=4,
        cause=failure_of(Business("x"), "work"),
        entered_at=LATER,
    )
    back = with_memory(replace(head, visits={}), memory_of(full))
    for name in ("visits", "usage", "rescued", "generation", "cause", "answer", "entered_at"):
        assert getattr(back, name) == getattr(full, name), name
