"""The heart: apply one event to a run, and say what the world must do next. START HERE.

`advance` is pure. It reads no clock and draws no number: instants and answers arrive in the event. Author code that it
calls (guards) gets a copy of the context. The runner carries out the commands and comes back with the next event; what
lies between two events is one commit.
"""

from dataclasses import asdict, replace
from datetime import datetime
from typing import assert_never

from agentflow.engine.commands import Command, Perform, Stop, WaitUntil
from agentflow.engine.events import Answered, BodyFailed, Broken, Event, Expired, Facts, GiveUp, RetryAt
from agentflow.engine.head import NO_USAGE, Branch, Head, KeptAnswer, Usage
from agentflow.engine.lifecycle import TERMINAL, next_status
from agentflow.engine.limits import ENDS_WITH_ITS_FAILURE, beyond, too_often
from agentflow.engine.machine import Token, machine_of
from agentflow.errors import GuardFailed, InvalidContext
from agentflow.failures import OverLimit
from agentflow.model.context import NO_DIFFERENCE, Context, Difference, Kept
from agentflow.model.definition import Definition
from agentflow.model.values import Failure, failure_of
from agentflow.record import record


@record
class Move:
    """A transition that was taken, as history records it."""

    at: datetime
    event: str
    source: str
    outcome: str | None
    target: str
    visit: int  # of the source
    attempt: int  # the one that answered, from 1
    guards: tuple[tuple[str, bool], ...]
    difference: Difference
    failure: Failure | None
    facts: Facts


@record
class Advance:
    """What an event did to a run: `move` is None if it stays in its state."""

    head: Head
    move: Move | None
    commands: tuple[Command, ...]


STOP: tuple[Command, ...] = (Stop(),)


def begin(definition: Definition, run: str, kept: Kept, at: datetime) -> Advance:
    """A new run, at its first state."""
    head = Head(
        run=run,
        revision=0,
        status="queued",
        state=definition.start,
        visit=1,
        kept=kept,
        started_at=at,
        entered_at=at,
        visits={definition.start: 1},
    )
    return Advance(head, None, next_commands(definition, head))


def advance(definition: Definition, head: Head, event: Event, *, strict: bool = False) -> Advance:
    """Apply one event. With `strict`, a guard that changes its copy of the context is refused."""
    if (over := beyond(definition, head, event)) is not None:
        return _beyond(definition, head, event, over, strict)
    match event:
        case Answered():
            return _answered(definition, head, event, strict)
        case BodyFailed(verdict=RetryAt(instant)):
            after = replace(_with_usage(head, event.usage), attempt=head.attempt + 1)
            return Advance(after, None, (WaitUntil(instant),))
        case BodyFailed():
            return _failed(definition, head, event, strict)
        case Broken():
            return _end_failed(_with_usage(head, event.usage), event.failure)
        case Expired():
            return _expired(definition, head, event, strict)
        case _:
            assert_never(event)


def next_commands(definition: Definition, head: Head) -> tuple[Command, ...]:
    """What a run needs where it stands; also the way to go on with a stored run."""
    if head.status in TERMINAL:
        return STOP
    return too_often(definition, head) or (Perform(head.state),)


# --- one event ---------------------------------------------------------------------------------------------------


def _answered(definition: Definition, head: Head, event: Answered, strict: bool) -> Advance:
    used = _with_usage(head, event.usage)
    name = "joined" if event.joined else "done" if event.outcome is None else f"on:{event.outcome}"
    if head.branch is not None and not event.joined and not definition.states[head.state].leads_on:
        return _settle(used, head.branch, name, event)
    try:
        return _fire(definition, used, name, event, strict, kept=event.kept, difference=event.difference)
    except GuardFailed as error:
        return _end_failed(_with_answer(used, event), failure_of(error, head.state, attempts=head.number))


def _with_answer(head: Head, event: Event) -> Head:
    """The run with an answer that could not be acted upon: a retry goes on from it, without a new call."""
    if not isinstance(event, Answered):
        return head
    return replace(head, answer=KeptAnswer(event.outcome, event.difference.text(), asdict(event.facts)))


def _with_usage(head: Head, usage: Usage) -> Head:
    """The run with what an answer has used: most of the time nothing, and then it is the same."""
    return head if usage is NO_USAGE else replace(head, usage=head.usage.plus(usage))


def _beyond(definition: Definition, head: Head, event: Event, over: OverLimit, strict: bool) -> Advance:
    """An event beyond a limit: the failure of the state, which a row may take; else the run is blocked with it.

    An answer is kept for when the limit is raised, unless it is itself what is too large.
    """
    facts = event.facts if isinstance(event, Answered | BodyFailed) else Facts()
    usage = NO_USAGE if isinstance(event, Expired) else event.usage
    failed = BodyFailed(event.at, failure_of(over, head.state, attempts=head.number), GiveUp(), facts, usage)
    after = _failed(definition, head, failed, strict)
    limit = over.limit or ""
    if after.move is not None:
        return replace(after, head=_after_limit(after.head, limit))
    return replace(after, head=after.head if limit == "context_bytes" else _with_answer(after.head, event))


def _after_limit(head: Head, limit: str) -> Head:
    return replace(head, over=(*head.over, limit)) if limit in ENDS_WITH_ITS_FAILURE else head


def _failed(definition: Definition, head: Head, event: BodyFailed, strict: bool) -> Advance:
    used = _with_usage(head, event.usage)
    try:
        return _fire(definition, used, "failed", event, strict, failure=event.failure)
    except GuardFailed as error:
        return _end_failed(used, failure_of(error, head.state, attempts=head.number))


def _expired(definition: Definition, head: Head, event: Expired, strict: bool) -> Advance:
    try:
        return _fire(definition, head, "expired", event, strict)
    except GuardFailed as error:
        return _end_failed(head, failure_of(error, head.state))


def _fire(
    definition: Definition,
    head: Head,
    name: str,
    event: Answered | BodyFailed | Expired,
    strict: bool,
    *,
    kept: Kept | None = None,
    difference: Difference = NO_DIFFERENCE,
    failure: Failure | None = None,
) -> Advance:
    """Let the machine choose a row, and go where it leads."""
    here = head.kept if kept is None else kept
    token = _token(definition, head, here, failure, strict)
    fired = machine_of(definition).fire(name, token)
    if fired is None:
        if failure is not None and failure.matches(OverLimit):
            return _block(head, failure)
        return _end_failed(_with_answer(head, event), failure or _no_way(head, name))
    rescued = head.rescued or fired.row.exit.place is None
    after = _enter(definition, head, fired.target, kept=here, rescued=rescued, at=event.at, cause=failure)
    move = _move(head, name, event, fired.target, fired.guards, difference, failure)
    return Advance(after, move, next_commands(definition, after))


def _token(definition: Definition, head: Head, kept: Kept, failure: Failure | None, strict: bool) -> Token:
    plan = definition.context

    def copy() -> Context:
        context: Context = plan.copy(kept, failure or head.cause)
        return context

    def unchanged(context: Context) -> bool:
        try:
            return plan.keep(kept, context)[0] is kept
        except InvalidContext:
            return False

    return Token(head.state, copy, failure, head.rescued, unchanged if strict else None)


def _settle(head: Head, branch: Branch, name: str, event: Answered) -> Advance:
    """A branch has done all that it can: it stands where it meets the others."""
    after = replace(
        head,
        revision=head.revision + 1,
        status=next_status(head.status, "complete"),
        state=branch.group,
        visit=branch.visit,
        kept=event.kept,
        entered_at=event.at,
        attempt=0,
        lost=0,
        generation=0,
        answer=None,
        cause=None,
    )
    return Advance(after, _move(head, name, event, branch.group, (), event.difference, None), STOP)


def _move(
    head: Head,
    name: str,
    event: Answered | BodyFailed | Expired,
    target: str,
    guards: tuple[tuple[str, bool], ...],
    difference: Difference,
    failure: Failure | None,
) -> Move:
    facts = Facts() if isinstance(event, Expired) else event.facts
    outcome = event.outcome if isinstance(event, Answered) else None
    skipped = isinstance(event, Answered) and event.skipped
    return Move(  # by position: keywords would cost more than the object, and each transition comes through here
        event.at,
        name,
        head.state,
        "skipped" if skipped else outcome,
        target,
        head.visit,
        head.number,
        guards,
        difference,
        failure,
        facts,
    )


def _enter(
    definition: Definition,
    head: Head,
    target: str,
    *,
    kept: Kept,
    rescued: bool,
    at: datetime,
    cause: Failure | None,
) -> Head:
    """The run one revision later, at its new place; what belongs to a visit begins anew."""
    end = definition.ends.get(target)
    visits = head.visits if end is not None else {**head.visits, target: head.visits.get(target, 0) + 1}
    return Head(
        run=head.run,
        revision=head.revision + 1,
        status=head.status if end is None else next_status(head.status, "fail" if end.failed else "complete"),
        state=target,
        visit=1 if end is not None else visits[target],
        kept=kept,
        started_at=head.started_at,
        entered_at=at,
        end=None if end is None else target,
        cause=cause,
        failure=cause if end is not None and end.failed else None,
        blocked=head.blocked,
        visits=visits,
        usage=head.usage,
        rescued=rescued,
        limits=head.limits,
        over=head.over,
        branch=head.branch,
    )


def _no_way(head: Head, name: str) -> Failure:
    error = GuardFailed(f"state {head.state!r}: no row takes {name!r}")
    return failure_of(error, head.state)


def _block(head: Head, failure: Failure) -> Advance:
    """The run stands still where it is, with all that it has; `resume` goes on, with a raised limit."""
    blocked = replace(head, status=next_status(head.status, "block"), failure=failure, blocked=failure.message)
    return Advance(blocked, None, STOP)


def _end_failed(head: Head, failure: Failure) -> Advance:
    """The run ends failed where it stands; a retry goes on from there."""
    return Advance(replace(head, status=next_status(head.status, "fail"), failure=failure), None, (Stop(),))
