"""What a run may use: the definition's limits, raised for the one run, and which of them an event goes beyond.

A limit that is reached is a failure of the state, `OverLimit`, that a row may take; without a row the run is blocked
where it stands, until somebody raises the limit. Once a row took it, limits of transitions and of time no longer stop
the run, so that the way out can be gone to its end; what it leads through is bounded by `max_visits`.
"""

from agentflow.engine.commands import Command, FailState
from agentflow.engine.events import Answered, BodyFailed, Broken, Event, Expired, RetryAt
from agentflow.engine.head import Head
from agentflow.failures import OverLimit
from agentflow.model.context import Kept
from agentflow.model.definition import Definition, context_limit, transition_limit
from agentflow.model.values import Limits, failure_of

ENDS_WITH_ITS_FAILURE = frozenset({"transitions", "wall_time"})  # limits that count until a row took their failure


def limits_of(definition: Definition, head: Head) -> Limits:
    """What the run may use."""
    return definition.limits if head.limits is None else definition.limits.raised(head.limits)


def beyond(definition: Definition, head: Head, event: Event) -> OverLimit | None:
    """The limit that the run would go beyond with that event, None if it stays within all."""
    if isinstance(event, Broken):
        return None
    limits = limits_of(definition, head)
    if limits.wall_time is not None and "wall_time" not in head.over and event.at - head.started_at > limits.wall_time:
        return OverLimit(f"the run has taken longer than wall_time={limits.wall_time}", limit="wall_time")
    if isinstance(event, Answered) and event.kept.size > (most := context_limit(limits)):
        return OverLimit(size_message(event.kept, most), limit="context_bytes")
    if head.revision >= (most := transition_limit(limits)) and "transitions" not in head.over and _moves(event):
        return OverLimit(f"the run has made {head.revision} transitions, transitions is {most}", limit="transitions")
    return None


def _moves(event: Event) -> bool:
    """Whether the event leads to a transition, if a row takes it."""
    return isinstance(event, Answered | Expired) or (
        isinstance(event, BodyFailed) and not isinstance(event.verdict, RetryAt)
    )


def too_often(definition: Definition, head: Head) -> tuple[Command, ...] | None:
    """The failure of a state that was entered more often than it may be, None if it was not."""
    limits = limits_of(definition, head)
    allowed, everywhere = definition.states[head.state].spec.max_visits, limits.visits
    if allowed is not None and head.limits is not None and head.limits.visits is not None:
        allowed = max(allowed, head.limits.visits)  # raised by hand for this run
    for name, limit in (("max_visits", allowed), ("visits", everywhere)):
        if limit is not None and head.visit > limit:
            told = f"state {head.state!r} was entered {head.visit} times, {name} is {limit}"
            return (FailState(head.state, failure_of(OverLimit(told, limit=name), head.state)),)
    return None


def size_message(kept: Kept, limit: int) -> str:
    """Why a context is too large, and which field is to blame."""
    largest = max(kept.texts, key=lambda name: len(kept.texts[name]), default="an Append field")
    return f"the context would have {kept.size:,} bytes, context_bytes is {limit:,}; the largest field is {largest}"


def check_size(limits: Limits, kept: Kept) -> str | None:
    """Why a context is too large to start with, None if it is not."""
    most = context_limit(limits)
    return size_message(kept, most) if kept.size > most else None
