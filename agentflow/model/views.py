"""What the verbs answer: a run after a transition, a line of its history, an open question, a reply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from agentflow.model.context import Context
from agentflow.model.states import End, Place
from agentflow.model.values import Actor, Failure

__all__ = ["Reply", "Revision", "Snapshot", "Status", "Wait", "Why"]

C = TypeVar("C", bound=Context)

Status: TypeAlias = Literal[
    "queued", "running", "waiting", "cancelling", "compensating", "completed", "failed", "cancelled"
]  # fmt: skip


@dataclass(frozen=True)
class Snapshot(Generic[C]):
    """A run after a transition."""

    id: str
    revision: int
    status: Status
    paused: bool
    blocked: str | None
    state: Place[C]
    end: End[C] | None
    context: C
    failure: Failure | None
    waits: "Sequence[Wait]"


@dataclass(frozen=True)
class Wait:
    """An open question to a person, a signal or the clock."""

    id: str
    run: str
    state: str
    question: str
    outcomes: Sequence[str]
    due: datetime | None
    evidence: Any = None
    """What the person is shown beside the question, as JSON values."""
    form: Mapping[str, Any] | None = None
    """JSON Schema of the data that an answer carries, None if it carries none."""
    suggest: Mapping[str, Any] | None = None
    roles: Sequence[str] = ()
    opened: datetime | None = None


@dataclass(frozen=True)
class Revision:
    """One line of a run's history: what happened, and why."""

    number: int
    at: datetime
    source: str
    outcome: str | None
    target: str
    guards: Mapping[str, bool]
    reason: str
    actor: Actor | None
    cost: Decimal | None
    event: str = ""
    """`start`, `done`, `on`, `failed` or `expired`."""
    visit: int = 1
    attempt: int = 1
    duration: float | None = None
    """Seconds that the body took, None where none ran."""
    difference: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`set`: new values by field; `add`: items added to Append fields."""
    answer: Mapping[str, Any] | None = None
    """What a model or a person answered, with everything recorded about it."""
    failure: Failure | None = None
    model: str | None = None
    tokens: int | None = None
    prompt: str | None = None
    """Digest of the prompt's template."""
    code: str | None = None
    """Digest of the code of the state that was left."""


@dataclass(frozen=True)
class Why:
    """What a run waits for, in words and as data."""

    text: str
    waker: Literal["session", "timer", "wait", "group"] | None


@dataclass(frozen=True)
class Reply:
    """What became of a command."""

    status: Literal["applied", "already", "refused"]
    why: str
