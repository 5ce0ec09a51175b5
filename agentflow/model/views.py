"""What the verbs answer: a run after a transition, a line of its history, an open question, an effect, a reply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from agentflow.model.context import Context
from agentflow.model.states import End, Place
from agentflow.model.values import Actor, Failure

__all__ = [
    "Compared", "DeployCheck", "Effect", "FieldDifference", "Judged", "MigratedRun", "Prospect", "Replayed", "Reply",
    "Revision", "Snapshot", "Spent", "Status", "Version", "Wait", "Why", "Worker",
]  # fmt: skip

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
    """`start`, `fork`, `done`, `on`, `failed`, `expired`, or by another definition `rename`, `adopt` or `migrate`."""
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


@dataclass(frozen=True)
class Effect:
    """A side effect as the ledger has it: how far it got, and what it gave."""

    key: str
    run: str
    state: str
    visit: int
    name: str
    item: str | None
    status: Literal["claimed", "done", "not_happened", "unclear"]
    at_work: bool
    """Whether the claim that began it still stands: its worker may be in the middle of it."""
    result: Any
    """JSON values; None also where no result was recorded."""
    error: str | None
    once_per: str | None
    begun: datetime
    settled: datetime | None


@dataclass(frozen=True)
class Worker:
    """A worker session: a process that drives runs."""

    id: str
    name: str
    since: datetime
    alive: bool
    """Whether its lease still runs. One that lost it keeps nothing: others take its runs over."""
    lease: timedelta
    """What is left of its lease, zero if it was lost."""
    runs: Sequence[str]


@dataclass(frozen=True)
class Judged:
    """A recorded transition, and what the code at hand makes of the same answer."""

    then: Revision
    target: str | None
    """Where it leads now, None if nowhere."""
    guards: Mapping[str, bool]
    """The guards that were evaluated now, in order."""
    why: str
    """Why it leads elsewhere or nowhere, in words."""


@dataclass(frozen=True)
class Replayed:
    """What the code at hand makes of a recorded run."""

    run: str
    version: int
    """Of the workflow that judged."""
    same: bool
    """Whether every recorded transition leads where it led then."""
    checked: int
    """How many do, from the first on."""
    difference: Judged | None
    """The first that does not."""
    guards: Sequence[Judged]
    """Transitions that lead to the same place, but past guards that answer otherwise."""
    gone: Sequence[str]
    """States, ends and members that the run knew and the workflow no longer has."""
    changed: Sequence[str]
    """States whose code is another than the one that was recorded."""


@dataclass(frozen=True)
class FieldDifference:
    """A field that differs between two contexts; each side is JSON text, None where it is missing."""

    path: str
    one: str | None
    other: str | None


@dataclass(frozen=True)
class Spent:
    """What a path has used, as far as its transitions tell: attempts that failed are not in it."""

    transitions: int
    model_calls: int
    tokens: int
    cost: Decimal


@dataclass(frozen=True)
class Compared:
    """Two runs side by side, each from its very start: a fork begins with what its origin did before it."""

    one: str
    other: str
    shared: int
    """How many transitions their paths share, from the first on."""
    parts: tuple[Revision | None, Revision | None]
    """The first transition of each that differs, None for a path that is over by then."""
    fields: Sequence[FieldDifference]
    """Fields of the two contexts that differ."""
    spent: tuple[Spent, Spent]

    @property
    def equal(self) -> bool:
        """Whether path and context are the same."""
        return self.parts == (None, None) and not self.fields


@dataclass(frozen=True)
class Prospect:
    """What the code at hand makes of runs that stand in one state under one stored definition."""

    workflow: str
    version: int
    shape: str
    state: str
    fate: Literal["continue", "migrate", "blocked"]
    """`migrate`: a migration leads them on, and was tried with the data of each."""
    runs: int
    failed: bool
    """Whether they are failed runs, which only a retry takes on; else they are runs that are not over."""
    to: int | None
    """The version under which they go on, None for blocked ones."""
    target: str | None
    """The state in which they go on; of `migrate`, what the migration says, None where it differs from run to run."""
    reason: str
    """Why they are blocked and what mends it, or what a migration is for; empty for those that continue."""
    examples: Sequence[str]
    """Ids of some of them."""


@dataclass(frozen=True)
class DeployCheck:
    """What the code at hand makes of all stored runs that are not over, or that failed and may be retried."""

    prospects: Sequence[Prospect]

    def count(self, fate: Literal["continue", "migrate", "blocked"]) -> int:
        """How many runs that are not over have that fate."""
        return sum(one.runs for one in self.prospects if one.fate == fate and not one.failed)

    @property
    def ok(self) -> bool:
        """Whether every run that is not over goes on, as it is or by a migration."""
        return self.count("blocked") == 0


@dataclass(frozen=True)
class MigratedRun:
    """A run that a migration was tried with or applied to."""

    run: str
    version: int
    """That it had."""
    to: int
    state: str
    """In which it stood."""
    target: str | None
    """The state or end that it is put into, None if it cannot be migrated."""
    asks_anew: bool
    """Whether a question that was open is closed, and asked again if the run is put into a state that asks."""
    changes: Sequence[FieldDifference]
    """Fields of the context that change."""
    problem: str | None
    """Why it cannot be migrated."""
    applied: bool


@dataclass(frozen=True)
class Version:
    """A definition that this App has, or under which runs of the store stand."""

    workflow: str
    version: int
    shape: str
    at_hand: bool
    """Whether it is the code of this App."""
    first_seen: datetime | None
    """When the store came to know it, None if it does not yet."""
    runs: int
    """Runs that stand under it and are not over."""
