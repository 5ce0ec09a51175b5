"""What the store reads and writes, as plain data; instants are aware UTC, JSON is text.

The store knows no workflow and no context: it sees names, numbers, instants and JSON text. What is written
together is one `Commit`. Every layer may use this module.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from agentflow.record import record

RunStatus: TypeAlias = Literal[
    "queued", "running", "waiting", "cancelling", "compensating", "completed", "failed", "cancelled"
]  # fmt: skip
TERMINAL: frozenset[RunStatus] = frozenset({"completed", "failed", "cancelled"})
WaitStatus: TypeAlias = Literal["open", "decided", "expired", "closed"]
EffectStatus: TypeAlias = Literal["claimed", "done", "not_happened", "unclear"]


@record(kw_only=True)
class Standing:
    """Where a run stands: what a commit may change in its row. No context is in it."""

    status: RunStatus
    state: str
    visit: int  # the n-th time that the run is in this state
    attempt: int = 0  # attempts that failed within this visit
    end: str | None = None
    blocked: str | None = None
    failure: str | None = None  # JSON: what led into this state, or why the run failed
    memory: str = "{}"  # JSON: counters of the engine (visits per state, usage, an answer kept for a retry)
    due_at: datetime | None = None  # when a worker must look at it next; None: never by itself


@record(kw_only=True)
class RunRow:
    """A run as it is stored."""

    id: str
    workflow: str
    version: int
    shape: str  # hash of the definition's shape under which the run stands
    revision: int
    standing: Standing
    paused: bool
    session: str | None  # which worker session drives it
    token: str | None  # fresh at each claim; every write of that worker names it
    claims_without_progress: int  # since the last commit; above 1, workers died with the run in their hands
    control_seq: int  # raised by every command
    request: str | None  # JSON: what a command asks of the run, e.g. {"cancel": {...}}
    fingerprint: str  # digest of workflow and input: tells an idempotent start from a conflict
    batch: str | None
    parent: str | None
    root: str | None
    origin: str | None  # the run that it was forked from
    origin_revision: int | None
    holds_effects: bool  # whether effects that its origin did not record are held back
    group_state: str | None  # of a branch: where its parent waits for it
    group_visit: int | None
    position: int | None  # among the branches
    awaits: int  # of a branch: how many others must settle before it begins
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


@record(kw_only=True)
class HistoryRow:
    """One transition, and why it was taken. Revision 0 is the start of the run."""

    revision: int
    at: datetime
    event: str  # start, done, on:<member>, failed, expired, joined, or a command (skip, fork)
    source: str | None  # None at revision 0
    outcome: str | None
    target: str
    visit: int  # of the source
    attempt: int  # the attempt that answered, from 1
    duration_ms: float | None
    difference: str  # JSON of what changed in the context
    guards: str | None = None  # JSON: [[guard, result], ...] in the order of evaluation, None if there were none
    answer: str | None = None  # JSON: reason, data, confidence, wait, ... as the state answered
    failure: str | None = None  # JSON
    actor: str | None = None  # JSON
    model: str | None = None  # the model that answered
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: str | None = None  # decimal, in the currency of the price list
    prompt: str | None = None  # digest of the prompt's template
    code: str | None = None  # digest of the code of the source state


@record(kw_only=True)
class AttemptRow:
    """An attempt that did not lead to a transition; one that did has none, its number is in the history row."""

    revision: int  # of the run while it was tried
    state: str
    visit: int
    attempt: int
    at: datetime
    outcome: Literal["failed", "lost"]
    failure: str | None  # JSON
    duration_ms: float | None = None
    retry_at: datetime | None = None


@record(kw_only=True)
class WaitRow:
    """An open question, and later its answer and what the person was shown."""

    id: str
    run: str
    workflow: str
    revision: int
    state: str
    visit: int
    kind: Literal["human", "signal", "sleep"]
    question: str
    shown: str  # JSON: evidence, suggestion, form (JSON Schema)
    outcomes: tuple[str, ...]
    roles: tuple[str, ...] = ()
    due_at: datetime | None = None
    opened_at: datetime
    status: WaitStatus = "open"
    closed_at: datetime | None = None
    outcome: str | None = None
    data: str | None = None  # JSON
    actor: str | None = None  # JSON
    comment: str = ""
    request: str | None = None  # the id under which the decision was sent


@record
class Joined:
    """A statement of the author's that joins a commit."""

    statement: Any  # an Executable of SQLAlchemy Core
    parameters: Mapping[str, object] | None = None


@record(kw_only=True)
class GroupRow:
    """The branches that a run waits for, counted.

    The group is *over* when all have settled. It is *decided* earlier where the others cannot change the outcome any
    more: `needed` are done, or `fails` have failed. Its run is woken at both.
    """

    run: str
    state: str
    visit: int
    total: int
    needed: int  # that many done branches decide; 0: no number does
    fails: int  # that many failed ones do
    done: int = 0
    failed: int = 0
    stopped: int = 0
    decided: bool = False
    stopping: bool = False  # the others were told to stop
    expired: bool = False
    generation: int = 0  # how often an operator had retried the run when its branches were last begun
    opened_at: datetime

    @property
    def is_over(self) -> bool:
        return self.done + self.failed + self.stopped >= self.total

    def with_settled(self, *, done: int = 0, failed: int = 0, stopped: int = 0) -> "GroupRow":
        """The row after so many more have settled."""
        after = replace(self, done=self.done + done, failed=self.failed + failed, stopped=self.stopped + stopped)
        enough = 0 < after.needed <= after.done or after.failed >= after.fails
        return replace(after, decided=after.decided or enough or after.is_over)

    def told_to_stop(self, *, expired: bool) -> "GroupRow":
        """The row once the rest was told to stop."""
        return replace(self, decided=True, stopping=True, expired=self.expired or expired)

    def begun_again(self, generation: int) -> "GroupRow":
        """The row once the branches that failed or were stopped are at work again."""
        return replace(self, failed=0, stopped=0, decided=False, stopping=False, expired=False, generation=generation)

    def wakes(self, before: "GroupRow") -> bool:
        """Whether the run must look at it, where it need not have before."""
        return (self.decided and not before.decided) or (self.is_over and not before.is_over)


@record(kw_only=True)
class Settled:
    """A branch tells its group how it ended, and which others may begin now."""

    parent: str
    state: str
    visit: int
    outcome: Literal["done", "failed", "stopped"]
    frees: tuple[int, ...] = ()  # positions of branches that needed this one
    slot: bool = False  # whether it leaves a place for the next that waits for one


@record(kw_only=True)
class Commit:
    """All that one step of a run writes, in one transaction or not at all.

    The first statement compares run, `expected_revision`, `token` and `control_seq`. `revision` differs from
    `expected_revision` (by one) only for a transition, which then carries its `history` row.
    """

    run: str
    expected_revision: int
    token: str
    control_seq: int
    standing: Standing
    history: HistoryRow | None = None
    attempts: tuple[AttemptRow, ...] = ()
    opens: tuple[WaitRow, ...] = ()
    closes: tuple[str, ...] = ()  # ids of waits that are over: open ones become `closed`, others stay as they are
    settles: tuple[str, ...] = ()  # keys of effects begun under `token` that are done by this commit, without a result
    values: tuple[tuple[str, bytes], ...] = ()  # digests and the bytes to be stored under them, once
    joined: tuple[Joined, ...] = ()  # the author's statements, in order; they run last
    group: GroupRow | None = None  # a group that is opened
    branches: tuple["NewRun", ...] = ()  # and its branches
    settled: Settled | None = None  # of a branch that ends by this commit
    release: bool = False  # give the claim back: session and token become None
    goes_on: bool = False  # status, end, blocked and due_at are what this claim committed last: no need to write them
    clear_request: bool = False  # the request that was seen is carried out

    @property
    def revision(self) -> int:
        return self.expected_revision if self.history is None else self.history.revision


@record
class Committed:
    """It is durable."""


@record
class LateResult:
    """The run was taken over or moved on: nothing was written. Not an error."""


@record
class Requested:
    """A command came in between: nothing was written; look at the request and commit again."""

    row: RunRow


@record
class Refused:
    """The database refused one of the author's statements (`Commit.joined`): nothing was written."""

    number: int  # which one, from 0
    error: str


CommitReply: TypeAlias = Committed | LateResult | Requested | Refused


@record(kw_only=True)
class NewRun:
    """A run to be created, with its revision 0."""

    id: str
    workflow: str
    version: int
    shape: str
    fingerprint: str
    standing: Standing
    history: HistoryRow
    batch: str | None = None
    parent: str | None = None
    root: str | None = None
    origin: str | None = None
    origin_revision: int | None = None
    holds_effects: bool = False
    group_state: str | None = None
    group_visit: int | None = None
    position: int | None = None
    awaits: int = 0
    values: tuple[tuple[str, bytes], ...] = ()  # as in `Commit`


@record
class Created:
    """The run exists now."""

    row: RunRow


@record
class Existing:
    """A run of that id was there before; nothing was written."""

    row: RunRow


@record(kw_only=True)
class Decision:
    """An answer to an open wait."""

    wait: str
    outcome: str
    data: str | None  # JSON
    actor: str  # JSON
    comment: str = ""
    request: str | None = None


@record
class DecisionReply:
    """What became of it: `wait` is the row as it is now, None if there is no such wait.

    `applied`: this call decided. `already`: the same request, or the same outcome and data, had decided before.
    `conflict`: another decision stands. `late`: the wait was due, expired or closed.
    """

    status: Literal["applied", "already", "conflict", "late", "unknown"]
    wait: WaitRow | None


@record(kw_only=True)
class CommandRow:
    """A command to a run, as it is kept for the audit."""

    run: str
    at: datetime
    command: str
    actor: str | None  # JSON
    reason: str
    request: str | None
    status: Literal["applied", "already", "refused"]
    why: str


@record(kw_only=True)
class EffectClaim:
    """The intention to act on the world, recorded before the call."""

    run: str
    token: str
    key: str
    name: str
    state: str
    visit: int
    item: str | None = None
    generation: int = 0
    workflow: str
    once_per: str | None = None


@record(kw_only=True)
class EffectRow:
    """An effect in the ledger."""

    key: str
    run: str
    name: str
    state: str
    visit: int
    item: str | None
    generation: int  # how often an operator had retried the visit when it was begun
    workflow: str
    once_per: str | None
    status: EffectStatus
    token: str  # of the claim that began it
    session: str | None  # of that claim; tells a live holder from a dead one
    result: str | None  # JSON
    error: str | None
    claimed_at: datetime
    settled_at: datetime | None


@record
class EffectBegun:
    """The claim is recorded: call now."""

    row: EffectRow


@record
class EffectFound:
    """Somebody recorded it before: `row` says how far it got; `holder_alive` whether its claimer still lives."""

    row: EffectRow
    holder_alive: bool


@record(kw_only=True)
class RunFilter:
    """Which runs to list, newest first."""

    workflow: str | None = None
    status: RunStatus | None = None
    batch: str | None = None
    parent: str | None = None  # branches of that run; None: runs that are no branches
    after: str | None = None  # id of the last run of the page before
    limit: int = 50


@record(kw_only=True)
class DefinitionRow:
    """What a workflow was when a run first stood under this shape of it."""

    workflow: str
    version: int
    shape: str
    outline: str  # JSON
    first_seen: datetime


@record(kw_only=True)
class Relocation:
    """An unclaimed run put under another version or shape of its workflow, in one transaction or not at all.

    It is not over, or it failed without an end, and stays so until it is retried. It is compared with the run's `control_seq` and revision, and each wait with its status: whatever comes in between
    wins, and the caller looks again.
    """

    command: CommandRow
    expected_control_seq: int
    version: int
    shape: str
    standing: Standing
    history: HistoryRow  # its revision is the next one of the run
    closes: tuple[str, ...] = ()  # ids of waits that are open until now
    moves: tuple[tuple[str, WaitRow], ...] = ()  # waits under their old ids, and as they are from now on
    values: tuple[tuple[str, bytes], ...] = ()  # as in `Commit`


@record(kw_only=True)
class SessionRow:
    """A worker session: one process that drives runs."""

    id: str
    name: str
    started_at: datetime
    lease_until: datetime
    stopped_at: datetime | None = None
    runs: tuple[str, ...] = field(default=())
