"""The head of a run: all that is needed to move it on, as one immutable value."""

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pydantic_core
from pydantic import TypeAdapter

from agentflow.model.context import Kept
from agentflow.model.shapes import is_object
from agentflow.model.values import Failure, Limits
from agentflow.model.views import Status
from agentflow.record import record


@record
class Usage:
    """What a run has used of its limits."""

    llm_calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def plus(self, other: "Usage") -> "Usage":
        return Usage(self.llm_calls + other.llm_calls, self.tokens + other.tokens, self.cost + other.cost)


NO_USAGE = Usage()


@record
class KeptAnswer:
    """An answer whose guards raised: evaluated again after a retry, without a new call."""

    outcome: str | None
    difference: str
    facts: Mapping[str, Any]


@record
class Branch:
    """What makes a run a branch: whose it is, and which."""

    parent: str
    group: str  # the place of the parent where it meets the others
    visit: int  # of that place
    name: str  # of its head, or the key of its item
    position: int  # among the branches
    base: int  # the parent's revision with whose context it began
    item: str | None = None  # JSON of the item of an `each`


@record
class Head:
    """Where a run stands, what it knows, and what it has used."""

    run: str
    revision: int
    status: Status
    state: str
    visit: int
    kept: Kept
    started_at: datetime
    entered_at: datetime  # the instant of the transition that led into this state
    attempt: int = 0  # attempts that failed within this visit: those that a `Retry` counts
    lost: int = 0  # attempts within this visit that died with their process
    end: str | None = None
    cause: Failure | None = None  # the failure that led into this state
    failure: Failure | None = None  # why the run failed, if it did
    blocked: str | None = None
    visits: Mapping[str, int] = field(default_factory=dict[str, int])
    usage: Usage = NO_USAGE
    rescued: bool = False  # whether the workflow's own .failed row was taken
    generation: int = 0  # how often an operator has retried this visit
    answer: KeptAnswer | None = None
    limits: Limits | None = None  # what was raised for this run
    over: tuple[str, ...] = ()  # limits whose failure a row took: they no longer count
    branch: Branch | None = None

    @property
    def number(self) -> int:
        """The number of the attempt at hand, from 1: failed and lost ones came before it."""
        return self.attempt + self.lost + 1


def failure_to_json(failure: Failure | None) -> str | None:
    """The stored form of a failure."""
    return None if failure is None else writable_json(asdict(failure))


def failure_from_json(text: str | None) -> Failure | None:
    """A stored failure."""
    if text is None:
        return None
    return _failure(pydantic_core.from_json(text))


def _failure(raw: dict[str, Any]) -> Failure:
    fields: dict[str, Any] = {**raw, "bases": tuple(raw.get("bases", ()))}
    return Failure(**fields)


def _limits(raw: dict[str, Any]) -> Limits:
    return TypeAdapter(Limits).validate_python(raw, strict=False)


def writable_json(value: Any) -> str:
    """JSON of what came from outside: a message or a model's text may hold halves of characters, which are escaped."""
    try:
        return pydantic_core.to_json(value, inf_nan_mode="strings", bytes_mode="base64").decode()
    except pydantic_core.PydanticSerializationError:
        return pydantic_core.to_json(_writable(value), inf_nan_mode="strings", bytes_mode="base64").decode()


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if is_object(value):
        return {_writable(key): _writable(part) for key, part in value.items()}
    parts: Any = value
    if isinstance(value, list | tuple):
        return [_writable(part) for part in parts]
    return value


def memory_of(head: Head) -> str:
    """What the engine remembers of a run beside its columns, as JSON."""
    memory: dict[str, Any] = {"visits": head.visits, "entered": head.entered_at}
    if head.usage is not NO_USAGE and head.usage != NO_USAGE:
        memory["usage"] = [head.usage.llm_calls, head.usage.tokens, str(head.usage.cost)]
    if head.lost:
        memory["lost"] = head.lost
    if head.rescued:
        memory["rescued"] = True
    if head.generation:
        memory["generation"] = head.generation
    if head.limits is not None:
        memory["limits"] = {name: value for name, value in vars(head.limits).items() if value is not None}
    if head.over:
        memory["over"] = head.over
    if head.branch is not None:
        memory["branch"] = asdict(head.branch)
    if head.cause is not None:
        memory["cause"] = asdict(head.cause)
    if head.answer is not None:
        memory["answer"] = asdict(head.answer)
    return writable_json(memory)


def with_memory(head: Head, text: str) -> Head:
    """The head with what `memory_of` wrote."""
    memory = pydantic_core.from_json(text)
    usage = memory.get("usage")
    cause = memory.get("cause")
    answer = memory.get("answer")
    return replace(
        head,
        visits=memory.get("visits", {}),
        entered_at=datetime.fromisoformat(memory["entered"]) if "entered" in memory else head.started_at,
        usage=Usage(usage[0], usage[1], Decimal(usage[2])) if usage else NO_USAGE,
        lost=memory.get("lost", 0),
        rescued=memory.get("rescued", False),
        generation=memory.get("generation", 0),
        limits=_limits(memory["limits"]) if "limits" in memory else None,
        over=tuple(memory.get("over", ())),
        branch=Branch(**memory["branch"]) if "branch" in memory else None,
        cause=_failure(cause) if cause else None,
        answer=KeptAnswer(**answer) if answer else None,
    )
