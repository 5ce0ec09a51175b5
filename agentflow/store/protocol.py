"""What every store can do: the one protocol, kept true by one contract suite.

A method returns once its work is durable. A method that cannot do its work raises a `StoreError` and has written
nothing. The store owns the clock: due times, leases and expiries are compared with its `now()`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from agentflow.store.rows import (
    AttemptRow,
    CommandRow,
    Commit,
    CommitReply,
    Created,
    Decision,
    DecisionReply,
    DefinitionRow,
    EffectBegun,
    EffectClaim,
    EffectFound,
    EffectRow,
    EffectStatus,
    Existing,
    GroupRow,
    HistoryRow,
    Joined,
    NewRun,
    Relocation,
    RunFilter,
    RunRow,
    SessionRow,
    Settled,
    Standing,
    WaitRow,
    WaitStatus,
)


class Store(Protocol):
    """Where runs live."""

    def now(self) -> datetime:
        """The store's clock, aware UTC."""
        ...

    def use_clock(self, clock: Callable[[], datetime]) -> None:
        """Let this clock rule instead: for tests that stop the time."""
        ...

    async def open(self) -> None:
        """Connect, create the tables of a fresh database, check the schema of another. Repeating it is harmless."""
        ...

    async def close(self) -> None:
        """Let go of all connections. Repeating it is harmless."""
        ...

    # Sessions: a process's right to drive runs

    async def open_session(self, name: str) -> str:
        """Begin a worker session with a fresh lease; return its id, which is never used again."""
        ...

    def renew_session(self, session: str) -> bool:
        """Renew the lease; False if it was lost, which is final. Called from the heartbeat's thread."""
        ...

    async def close_session(self, session: str) -> None:
        """End the session: its runs are free to be claimed at once."""
        ...

    async def sessions(self) -> Sequence[SessionRow]:
        """All sessions that have not been stopped, with the runs they hold."""
        ...

    # Runs

    async def create_run(self, new: NewRun) -> Created | Existing:
        """Create a run with its revision 0, or find the one of that id."""
        ...

    async def claim_runs(
        self,
        session: str,
        *,
        limit: int,
        runs: Sequence[str] | None = None,
        workflows: Sequence[tuple[str, int]] | None = None,
        refused: Sequence[tuple[str, int, str, str]] = (),
    ) -> Sequence[RunRow]:
        """Take runs that are due and unclaimed, or whose holder is dead; each gets a fresh token.

        Sets status `running` for queued and waiting runs; `cancelling` and `compensating` stay. A run that is
        paused is not taken, and a terminal run never. Raises `claims_without_progress` by one. With `runs`, only
        those ids. `workflows` names what the caller knows, each with its newest version: runs of newer ones are
        not taken. Blocked runs in one of the (name, version, shape, state) that the caller `refused` are left to
        others. Raises `SessionOver` if something is due and the session's lease is over: others would take the runs
        at once, so it must begin another.
        """
        ...

    async def commit(self, commit: Commit) -> CommitReply:
        """Write all of it in one transaction, or nothing. Every commit resets `claims_without_progress`, to 0 with
        `release`, else to 1, for the claim that goes on.

        With `release`, a standing that was decided upon meanwhile (a wait of it is no longer open) becomes due at
        once, so that no wake-up is lost.
        """
        ...

    def suspends(self) -> bool:
        """Whether a commit lets other tasks of the loop run before it returns; else a long run must yield by itself."""
        ...

    async def release_run(self, run: str, token: str) -> None:
        """Give a claim back without a change: the run is due at once, and the claim does not count as one without
        progress. No error if the claim is lost.
        """
        ...

    async def adopt(self, run: str, token: str, shape: str) -> bool:
        """Let a claimed run stand under another shape of its definition; False if the claim is lost."""
        ...

    async def relocate(self, change: Relocation) -> bool:
        """Put an unclaimed run under another version or shape, with its transition and its waits.

        A run that is over is not touched, but for one that failed without an end, which `retry` may go on with.

        False, and nothing is written, if anything of it changed meanwhile, a worker has claimed it, or a command of
        that `request` id was recorded before.
        """
        ...

    async def run(self, run: str) -> RunRow | None:
        """The run's row."""
        ...

    async def runs(self, wanted: RunFilter) -> Sequence[RunRow]:
        """Rows of runs, newest first."""
        ...

    async def count_runs(self, wanted: RunFilter) -> int:
        """How many runs fit, whatever the filter's page."""
        ...

    async def history(self, run: str, *, after: int = -1, limit: int | None = None) -> Sequence[HistoryRow]:
        """History rows with a revision above `after`, in order."""
        ...

    async def differences(self, run: str, revision: int) -> Sequence[str]:
        """Differences whose fold, in order, is the context at that revision."""
        ...

    async def condense(self, run: str) -> int:
        """Fold each whole segment of 256 revisions (0 to 255, 256 to 511, ...) that is not folded yet into one row.

        Loading gets cheaper by it and nothing else changes; the number of segments written.
        """
        ...

    async def attempts(self, run: str) -> Sequence[AttemptRow]:
        """Attempts that failed or were lost, in order."""
        ...

    async def stranded(self, *, limit: int) -> Sequence[str]:
        """Runs that are not over and that nothing would ever wake: unclaimed, not due at any time, without an open
        wait, and neither paused nor blocked. There are none unless something is wrong.
        """
        ...

    async def next_due(self) -> datetime | None:
        """The earliest instant at which an unclaimed run becomes due."""
        ...

    # Definitions

    async def record_definition(self, row: DefinitionRow) -> None:
        """Keep what a workflow is, unless its workflow, version and shape are known."""
        ...

    async def definitions(self, workflow: str | None = None) -> Sequence[DefinitionRow]:
        """What is known of workflows under which runs stood, in the order in which it was first seen."""
        ...

    # Commands

    async def request(self, command: CommandRow, *, word: str | None, wake: bool) -> bool:
        """Record a command; with `word` (JSON), set the run's request, raise `control_seq`, lift a pause, and make it due.

        False, and nothing is written, if a command with the same `request` id was recorded before.
        """
        ...

    async def reopen(
        self, command: CommandRow, *, standing: Standing, expected_control_seq: int, settled: Settled | None = None
    ) -> bool:
        """Record a command that changes an unclaimed run's standing (retry, resume, cancel at rest); raises
        `control_seq`, and lifts a pause.

        `settled` is what it means to the group of a branch that it ends. False, and nothing is written, if
        `control_seq` changed meanwhile, or a worker has claimed the run.
        """
        ...

    async def pause(self, command: CommandRow, *, paused: bool) -> bool:
        """Record a command that pauses a run or lifts its pause, whoever drives it; raises `control_seq`.

        False, and nothing is written, if the run is over, is being cancelled, or is so already, or if a command with
        the same `request` id was recorded before.
        """
        ...

    async def requests(self, session: str) -> Sequence[tuple[str, str]]:
        """Runs that the session holds and of which a command asks something, with the request's JSON."""
        ...

    async def commands(self, run: str) -> Sequence[CommandRow]:
        """Commands to a run, in order."""
        ...

    # Waits

    async def wait(self, wait: str) -> WaitRow | None:
        """One wait."""
        ...

    async def waits(
        self, *, run: str | None = None, status: WaitStatus | None = "open", limit: int = 50
    ) -> Sequence[WaitRow]:
        """Waits, oldest first."""
        ...

    async def decide(self, decision: Decision) -> DecisionReply:
        """Answer a wait where it is open and not yet due, in one statement; its run becomes due at once."""
        ...

    async def expire(self, wait: str) -> WaitRow | None:
        """Close a wait where it is open and due, in one statement; the row as it is now."""
        ...

    # Groups of branches, which commits open and settle

    async def group(self, run: str, state: str, visit: int) -> GroupRow | None:
        """The group that a run opened in that visit of a state."""
        ...

    async def branches(self, run: str, state: str, visit: int) -> Sequence[RunRow]:
        """Its branches, in their order."""
        ...

    async def branch_differences(self, run: str, state: str, visit: int) -> Mapping[str, Sequence[str]]:
        """What each of its branches changed by its own transitions, in order; branches without any are left out."""
        ...

    async def stop_branches(self, run: str, state: str, visit: int, *, token: str, expired: bool) -> GroupRow | None:
        """Stop the branches that have not settled: those at rest at once, others at their next commit.

        The group as it is then, None if there is none or `token` is no longer that of the run; a group that is over is
        left as it is.
        """
        ...

    async def begin_branches_again(
        self, run: str, state: str, visit: int, memories: Mapping[str, str], *, token: str, generation: int
    ) -> None:
        """Let the named branches, which failed or were stopped, begin again where they stood, each with its memory.

        Nothing is written if `token` is no longer that of the run.
        """
        ...

    # Effects

    async def begin_effect(self, claim: EffectClaim) -> EffectBegun | EffectFound | None:
        """Record the intention, or find what was recorded under that key or `once_per`; None if the lease is lost.

        A row found as `not_happened` is begun again under the same key. `once_per` is unique per workflow and name
        among the effects that are not `not_happened`.
        """
        ...

    async def settle_effect(
        self,
        run: str,
        token: str,
        key: str,
        status: EffectStatus,
        *,
        begun_by: str | None = None,
        result: str | None = None,
        error: str | None = None,
    ) -> bool:
        """Record how it went. False, and nothing is written, if `token` is no longer that of `run`, or the effect was
        begun by another claim than `begun_by` (by default `token`): a successor settles what a dead claim began.
        """
        ...

    async def effect(self, key: str) -> EffectRow | None:
        """One effect."""
        ...

    async def effects(
        self, *, run: str | None = None, status: EffectStatus | None = None, limit: int | None = None
    ) -> Sequence[EffectRow]:
        """The ledger, in the order in which effects were begun."""
        ...

    async def resolve_effect(
        self, command: CommandRow, key: str, status: EffectStatus, *, result: str | None = None
    ) -> bool:
        """Settle by hand an effect that is `unclear`, or `claimed` by a claim that no longer stands; its run is
        `command.run`, and the command is recorded with it.

        False, and nothing is written, if it is settled, at work, not of that run, or the command's `request` id is
        known.
        """
        ...

    # Statements of authors

    def join(self, statement: Any, parameters: Mapping[str, object] | None) -> Joined:
        """Take a SQLAlchemy Core statement for `Commit.joined`. Raises `RequestError` where there is no database to
        join, and `InvalidInput` for what its dialect cannot express.
        """
        ...

    # Values that are stored once, under their digest: by `create_run` and `commit`

    def value(self, digest: str) -> bytes | None:
        """The bytes of that digest. Called from any thread; it may block as long as a query takes."""
        ...
