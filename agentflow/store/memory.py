"""Runs in this process's memory: for tests and for workflows that may be forgotten. Any thread may use it.

Each method first finds out whether it can do all of its work, and only then changes anything.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from agentflow.errors import NotFound, RequestError, SessionOver, StoreError
from agentflow.store.instants import in_utc, with_instants_in_utc
from agentflow.store.memory_groups import GroupBook, GroupsInMemory, open_group, settle
from agentflow.store.memory_rows import (
    begun_again,
    commit_in_utc,
    fits,
    freed,
    given_back,
    is_asleep,
    is_known,
    is_past,
    is_refused,
    new_row,
    standing_in,
)
from agentflow.store.memory_versions import Kept, VersionsInMemory
from agentflow.store.rows import (
    TERMINAL,
    AttemptRow,
    CommandRow,
    Commit,
    CommitReply,
    Committed,
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
    HistoryRow,
    Joined,
    LateResult,
    NewRun,
    Requested,
    RunFilter,
    RunRow,
    SessionRow,
    Settled,
    Standing,
    WaitRow,
    WaitStatus,
)
from agentflow.store.settling import LEASE, begun_row, refusal

NO_DATABASE = "run.transaction: the store memory: has no database that your statements could join; use sqlite:///..."


class MemoryStore(VersionsInMemory, GroupsInMemory):
    """A store that is gone with the process. `lease` is how long a session lives without a heartbeat."""

    def __init__(self, *, clock: Callable[[], datetime] | None = None, lease: timedelta = LEASE) -> None:
        self._clock = clock or _utc_now
        self._lease = lease
        self._lock = threading.RLock()
        self._runs: dict[str, Kept] = {}
        self._due: dict[str, datetime] = {}  # of the runs that may be claimed: unclaimed, unpaused, not over
        self._held: dict[str, dict[str, None]] = {}  # by session, in the order of the claims
        self._sessions: dict[str, SessionRow] = {}
        self._waits: dict[str, WaitRow] = {}
        self._effects: dict[str, EffectRow] = {}
        self._once_per: dict[tuple[str, str, str], str] = {}
        self._values: dict[str, bytes] = {}
        self._definitions: dict[tuple[str, int, str], DefinitionRow] = {}
        self._groups = GroupBook()

    # --- lifetime ----------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The injected clock, or that of the machine."""
        return in_utc(self._clock())

    def use_clock(self, clock: Callable[[], datetime]) -> None:
        """Let this clock rule instead."""
        self._clock = clock

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to let go of: the runs stay for as long as the store itself."""

    # --- sessions ----------------------------------------------------------------------------------------------

    async def open_session(self, name: str) -> str:
        """Begin a worker session with a fresh lease; return its id, which is never used again."""
        session, now = uuid4().hex, self.now()
        with self._lock:
            row = SessionRow(id=session, name=name, started_at=now, lease_until=now + self._lease)
            self._sessions[session] = row
        return session

    def renew_session(self, session: str) -> bool:
        """Renew the lease; False if it was lost, which is final. Called from the heartbeat's thread."""
        now = self.now()
        with self._lock:
            if not self._is_live(session, now):
                return False
            self._sessions[session] = replace(self._sessions[session], lease_until=now + self._lease)
            return True

    async def close_session(self, session: str) -> None:
        """End the session: its runs are free to be claimed at once."""
        now = self.now()
        with self._lock:
            self._end_session(session, now, is_dead=False)

    async def sessions(self) -> Sequence[SessionRow]:
        """All sessions that have not been stopped, with the runs they hold."""
        with self._lock:
            return [
                replace(row, runs=tuple(sorted(self._held.get(row.id, ()), key=self._seq)))
                for row in self._sessions.values()
                if row.stopped_at is None
            ]

    def _is_live(self, session: str | None, now: datetime) -> bool:
        row = None if session is None else self._sessions.get(session)
        return row is not None and row.stopped_at is None and row.lease_until > now

    def _end_session(self, session: str, now: datetime, *, is_dead: bool) -> None:
        row = self._sessions.get(session)
        if row is None or row.stopped_at is not None:
            return
        self._sessions[session] = replace(row, stopped_at=now)
        for run in list(self._held.get(session, ())):
            held = self._runs[run].row
            self._put(freed(held if is_dead else given_back(held), now))

    # --- runs --------------------------------------------------------------------------------------------------

    async def create_run(self, new: NewRun) -> Created | Existing:
        """Create a run with its revision 0, or find the one of that id."""
        now = self.now()
        row = new_row(new, now)
        with_instants_in_utc(new.history, "at")  # a naive instant is refused before anything is written
        with self._lock:
            if new.id in self._runs:
                return Existing(self._runs[new.id].row)
            self._add_run(new, row)
        return Created(row)

    def _add_run(self, new: NewRun, row: RunRow) -> None:
        self._runs[new.id] = Kept(row, len(self._runs), [with_instants_in_utc(new.history, "at")])
        self._put(row)
        self._values.update(new.values)

    async def claim_runs(
        self,
        session: str,
        *,
        limit: int,
        runs: Sequence[str] | None = None,
        workflows: Sequence[tuple[str, int]] | None = None,
        refused: Sequence[tuple[str, int, str, str]] = (),
    ) -> Sequence[RunRow]:
        """Take runs that are due and unclaimed, or whose holder is dead; each gets a fresh token."""
        now = self.now()
        known = None if workflows is None else dict(workflows)
        listed = None if runs is None else frozenset(runs)
        with self._lock:
            self._free_runs_of_the_dead(session, now)
            due = [
                self._runs[name] for name, at in self._due.items() if at <= now and (listed is None or name in listed)
            ]
            if due and not self._is_live(session, now):
                raise SessionOver(session)
            fit = [kept for kept in due if known is None or kept.row.version <= known.get(kept.row.workflow, 0)]
            fit = [kept for kept in fit if not is_refused(kept.row, refused)] if refused else fit
            fit.sort(key=lambda kept: (self._due[kept.row.id], kept.seq))
            return [self._claim(kept.row, session, now) for kept in fit[: max(limit, 0)]]

    def _free_runs_of_the_dead(self, session: str, now: datetime) -> None:
        for holder in [name for name, held in self._held.items() if held and name != session]:
            if not self._is_live(holder, now):
                self._end_session(holder, now, is_dead=True)

    def _claim(self, row: RunRow, session: str, now: datetime) -> RunRow:
        standing = row.standing
        if standing.status in {"queued", "waiting"}:
            standing = replace(standing, status="running")
        claimed = replace(
            row,
            standing=standing,
            session=session,
            token=uuid4().hex,
            claims_without_progress=row.claims_without_progress + 1,
            control_seq=row.control_seq + 1,  # a command that was thought of before the claim thinks again
            updated_at=now,
        )
        return self._put(claimed)

    async def commit(self, commit: Commit) -> CommitReply:
        """Write all of it in one transaction, or nothing."""
        if commit.joined:
            raise RequestError(NO_DATABASE)
        now = self.now()
        commit = commit_in_utc(commit)
        with self._lock:
            kept = self._runs.get(commit.run)
            if kept is None or (kept.row.revision, kept.row.token) != (commit.expected_revision, commit.token):
                return LateResult()
            if kept.row.control_seq != commit.control_seq:
                return Requested(kept.row)
            self._check_rows(kept, commit)
            self._put(self._advanced(kept, commit, now))
            self._add_rows(kept, commit, now)
        return Committed()

    def _check_rows(self, kept: Kept, commit: Commit) -> None:
        if commit.history is not None and any(past.revision == commit.revision for past in kept.history[-1:]):
            raise StoreError(f"run {commit.run!r} has a revision {commit.revision} already; nothing was written")
        opened = [wait.id for wait in commit.opens]
        twice = next((name for name in opened if name in self._waits or opened.count(name) > 1), None)
        if twice is not None:
            raise StoreError(f"there is a wait {twice!r} already; nothing was written")

    def _advanced(self, kept: Kept, commit: Commit, now: datetime) -> RunRow:
        row, standing = kept.row, commit.standing
        if commit.release and self._is_answered(kept, standing):
            standing = replace(standing, due_at=now)
        return replace(
            standing_in(row, standing, now),
            revision=commit.revision,
            claims_without_progress=0 if commit.release else 1,
            session=None if commit.release else row.session,
            token=None if commit.release else row.token,
            request=None if commit.clear_request else row.request,
        )

    def _is_answered(self, kept: Kept, standing: Standing) -> bool:
        """Whether a wait of this standing was settled while its run was held."""
        if standing.status in TERMINAL or standing.blocked is not None:
            return False
        if self._groups.wakes(kept.row.id, standing.state, standing.visit):
            return True
        waits = (self._waits[name] for name in kept.waits)
        return any(
            (wait.state, wait.visit) == (standing.state, standing.visit) and wait.status in {"decided", "expired"}
            for wait in waits
        )

    def _add_rows(self, kept: Kept, commit: Commit, now: datetime) -> None:
        if commit.history is not None:
            kept.history.append(commit.history)
        kept.attempts.extend(commit.attempts)
        self._close_waits((name for name in commit.closes if name in kept.waits), now)
        for wait in commit.opens:
            self._waits[wait.id] = wait
            self._runs[wait.run].waits.append(wait.id)
        self._values.update(commit.values)
        open_group(self, commit, now)
        settle(self, commit.settled, now)
        for key in commit.settles:
            effect = self._effects.get(key)
            if effect is not None and (effect.token, effect.status) == (commit.token, "claimed"):
                self._effects[key] = replace(effect, status="done", settled_at=now)

    def _close_waits(self, names: Iterable[str], now: datetime) -> None:
        for name in names:
            if self._waits[name].status == "open":
                self._waits[name] = replace(self._waits[name], status="closed", closed_at=now)

    def suspends(self) -> bool:
        """A commit never waits for anything."""
        return False

    async def release_run(self, run: str, token: str) -> None:
        """Give a claim back without a change: the run is due at once. No error if the claim is lost."""
        now = self.now()
        with self._lock:
            kept = self._runs.get(run)
            if kept is None or kept.row.token is None or kept.row.token != token:
                return
            self._put(freed(given_back(kept.row), now))

    async def run(self, run: str) -> RunRow | None:
        """The run's row."""
        with self._lock:
            return self._runs[run].row if run in self._runs else None

    async def runs(self, wanted: RunFilter) -> Sequence[RunRow]:
        """Rows of runs, newest first."""
        with self._lock:
            fit = [kept for kept in reversed(self._runs.values()) if fits(kept.row, wanted)]
            if wanted.after is not None:
                last = self._seq(wanted.after) if wanted.after in self._runs else 0
                fit = [kept for kept in fit if kept.seq < last]
            return [kept.row for kept in fit[: max(wanted.limit, 0)]]

    async def count_runs(self, wanted: RunFilter) -> int:
        """How many runs fit, whatever the filter's page."""
        with self._lock:
            return sum(fits(kept.row, wanted) for kept in self._runs.values())

    async def history(self, run: str, *, after: int = -1, limit: int | None = None) -> Sequence[HistoryRow]:
        """History rows with a revision above `after`, in order."""
        with self._lock:
            rows = [row for row in self._runs[run].history if row.revision > after] if run in self._runs else []
        return rows if limit is None else rows[: max(limit, 0)]

    async def differences(self, run: str, revision: int) -> Sequence[str]:
        """Differences whose fold, in order, is the context at that revision."""
        with self._lock:
            rows = self._runs[run].history[: revision + 1] if run in self._runs else []
        return [row.difference for row in rows]

    async def condense(self, run: str) -> int:
        """Nothing to fold: all of it is in memory."""
        return 0

    async def attempts(self, run: str) -> Sequence[AttemptRow]:
        """Attempts that failed or were lost, in order."""
        with self._lock:
            return list(self._runs[run].attempts) if run in self._runs else []

    async def stranded(self, *, limit: int) -> Sequence[str]:
        """Runs that are not over and that nothing would ever wake."""
        with self._lock:
            found = [kept.row.id for kept in self._runs.values() if is_asleep(kept.row) and not self._is_open(kept)]
        return found[: max(limit, 0)]

    def _is_open(self, kept: Kept) -> bool:
        return any(self._waits[name].status == "open" for name in kept.waits) or self._groups.is_open(kept.row)

    async def next_due(self) -> datetime | None:
        """The earliest instant at which an unclaimed run becomes due."""
        with self._lock:
            return min(self._due.values(), default=None)

    def _seq(self, run: str) -> int:
        return self._runs[run].seq

    def _put(self, row: RunRow) -> RunRow:
        """Replace a run's row, and keep the two indexes true."""
        kept = self._runs[row.id]
        if kept.row.session is not None:
            self._held[kept.row.session].pop(row.id, None)
        if row.session is not None:
            self._held.setdefault(row.session, {})[row.id] = None
        due = row.standing.due_at
        if due is None or row.session is not None or row.paused or row.standing.status in TERMINAL:
            self._due.pop(row.id, None)
        else:
            self._due[row.id] = due
        kept.row = row
        return row

    # --- commands ----------------------------------------------------------------------------------------------

    async def request(self, command: CommandRow, *, word: str | None, wake: bool) -> bool:
        """Record a command; with `word`, set the run's request, lift a pause, and make it due."""
        now = self.now()
        command = with_instants_in_utc(command, "at")
        with self._lock:
            kept = self._runs.get(command.run)
            if kept is None:
                raise NotFound(f"there is no run {command.run!r}")
            if is_known(kept.commands, command):
                return False
            kept.commands.append(command)
            if word is not None:
                row = kept.row
                self._put(replace(row, request=word, paused=False, control_seq=row.control_seq + 1, updated_at=now))
            if wake:
                self._wake(command.run, now)
        return True

    async def reopen(
        self, command: CommandRow, *, standing: Standing, expected_control_seq: int, settled: Settled | None = None
    ) -> bool:
        """Record a command that changes an unclaimed run's standing; where that ends it, its open waits are closed."""
        now = self.now()
        command, standing = with_instants_in_utc(command, "at"), with_instants_in_utc(standing, "due_at")
        with self._lock:
            kept = self._runs.get(command.run)
            if kept is None or is_known(kept.commands, command):
                return False
            if kept.row.session is not None or kept.row.control_seq != expected_control_seq:
                return False
            kept.commands.append(command)
            changed = standing_in(kept.row, standing, now)
            self._put(replace(changed, paused=False, control_seq=expected_control_seq + 1))
            if standing.status in TERMINAL:
                self._close_waits(kept.waits, now)
            settle(self, settled, now)
        return True

    async def pause(self, command: CommandRow, *, paused: bool) -> bool:
        """Record a command that pauses a run or lifts its pause, whoever drives it; raises `control_seq`."""
        now = self.now()
        command = with_instants_in_utc(command, "at")
        with self._lock:
            kept = self._runs.get(command.run)
            if kept is None or is_known(kept.commands, command):
                return False
            row = kept.row
            if row.standing.status in TERMINAL or row.request is not None or row.paused is paused:
                return False
            kept.commands.append(command)
            self._put(replace(row, paused=paused, control_seq=row.control_seq + 1, updated_at=now))
        return True

    async def requests(self, session: str) -> Sequence[tuple[str, str]]:
        """Runs that the session holds and of which a command asks something, with the request's JSON."""
        with self._lock:
            rows = [self._runs[run].row for run in self._held.get(session, ())]
        return [(row.id, row.request) for row in rows if row.request is not None]

    async def commands(self, run: str) -> Sequence[CommandRow]:
        """Commands to a run, in order."""
        with self._lock:
            return list(self._runs[run].commands) if run in self._runs else []

    def _wake(self, run: str, now: datetime) -> None:
        """Make a run due now, unless somebody drives it, it has ended, or it is due anyway."""
        row = self._runs[run].row
        due = row.standing.due_at
        if row.session is None and row.standing.status not in TERMINAL and (due is None or due > now):
            self._put(replace(row, standing=replace(row.standing, due_at=now), updated_at=now))

    # --- waits -------------------------------------------------------------------------------------------------

    async def wait(self, wait: str) -> WaitRow | None:
        """One wait."""
        with self._lock:
            return self._waits.get(wait)

    async def waits(
        self, *, run: str | None = None, status: WaitStatus | None = "open", limit: int = 50
    ) -> Sequence[WaitRow]:
        """Waits, oldest first."""
        with self._lock:
            fit = [row for row in self._waits.values() if run in {None, row.run} and status in {None, row.status}]
        return sorted(fit, key=lambda row: row.opened_at)[: max(limit, 0)]

    async def decide(self, decision: Decision) -> DecisionReply:
        """Answer a wait where it is open and not yet due, in one statement; its run becomes due at once."""
        now = self.now()
        with self._lock:
            wait = self._waits.get(decision.wait)
            if wait is None:
                return DecisionReply("unknown", None)
            if wait.status != "open":
                return DecisionReply(refusal(wait, decision), wait)
            self._wake(wait.run, now)
            if is_past(wait, now):
                return DecisionReply("late", wait)
            decided = replace(
                wait,
                status="decided",
                closed_at=now,
                outcome=decision.outcome,
                data=decision.data,
                actor=decision.actor,
                comment=decision.comment,
                request=decision.request,
            )
            self._waits[wait.id] = decided
        return DecisionReply("applied", decided)

    async def expire(self, wait: str) -> WaitRow | None:
        """Close a wait where it is open and due, in one statement; the row as it is now."""
        now = self.now()
        with self._lock:
            row = self._waits.get(wait)
            if row is None or row.status != "open" or not is_past(row, now):
                return row
            self._wake(row.run, now)
            self._waits[wait] = expired = replace(row, status="expired", closed_at=now)
        return expired

    # --- effects -----------------------------------------------------------------------------------------------

    async def begin_effect(self, claim: EffectClaim) -> EffectBegun | EffectFound | None:
        """Record the intention, or find what was recorded under that key or `once_per`; None if the lease is lost."""
        now = self.now()
        with self._lock:
            kept = self._runs.get(claim.run)
            if kept is None or kept.row.token != claim.token:
                return None
            own = self._effects.get(claim.key)
            if own is not None and own.status != "not_happened":
                return EffectFound(own, self._holds(own, now))
            business = None if claim.once_per is None else (claim.workflow, claim.name, claim.once_per)
            if business in self._once_per:
                other = self._effects[self._once_per[business]]
                return EffectFound(other, self._holds(other, now))
            row = begun_row(claim, kept.row.session, now)
            if own is not None:
                row = replace(own, **begun_again(row))
            self._effects[row.key] = row
            if business is not None:
                self._once_per[business] = row.key
        return EffectBegun(row)

    def _holds(self, effect: EffectRow, now: datetime) -> bool:
        """Whether the claim that began an effect still stands, and its session lives."""
        return self._runs[effect.run].row.token == effect.token and self._is_live(effect.session, now)

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
        """Record how it went; False, and nothing is written, if the caller may not."""
        now = self.now()
        with self._lock:
            kept, row = self._runs.get(run), self._effects.get(key)
            if kept is None or kept.row.token != token or row is None:
                return False
            if row.token != (token if begun_by is None else begun_by):
                return False
            if row.status in {"done", "not_happened"}:
                return row.status == status  # what is settled stays so: a repetition changes nothing
            self._effects[key] = replace(row, status=status, result=result, error=error, settled_at=now)
            if status == "not_happened" and row.once_per is not None:
                self._once_per.pop((row.workflow, row.name, row.once_per), None)
        return True

    async def effect(self, key: str) -> EffectRow | None:
        """One effect."""
        with self._lock:
            return self._effects.get(key)

    async def effects(
        self, *, run: str | None = None, status: EffectStatus | None = None, limit: int | None = None
    ) -> Sequence[EffectRow]:
        """The ledger, in the order in which effects were begun."""
        with self._lock:
            rows = [row for row in self._effects.values() if run in {None, row.run} and status in {None, row.status}]
        return rows if limit is None else rows[: max(limit, 0)]

    async def resolve_effect(
        self, command: CommandRow, key: str, status: EffectStatus, *, result: str | None = None
    ) -> bool:
        """Settle an effect by hand; False, and nothing is written, if it is settled, at work, or not of that run."""
        now = self.now()
        command = with_instants_in_utc(command, "at")
        with self._lock:
            row, kept = self._effects.get(key), self._runs.get(command.run)
            if row is None or kept is None or row.run != command.run or is_known(kept.commands, command):
                return False
            is_open = row.status == "unclear" or (row.status == "claimed" and kept.row.token != row.token)
            if not is_open:
                return False
            self._effects[key] = replace(row, status=status, result=result, settled_at=now)
            if status == "not_happened" and row.once_per is not None:
                self._once_per.pop((row.workflow, row.name, row.once_per), None)
            kept.commands.append(command)
        return True

    # --- statements of authors -----------------------------------------------------------------------------------

    def join(self, statement: Any, parameters: Mapping[str, object] | None) -> Joined:
        """Refuse it: there is no database to join. Raises `RequestError`."""
        raise RequestError(NO_DATABASE)

    # --- values ------------------------------------------------------------------------------------------------

    def value(self, digest: str) -> bytes | None:
        """The bytes of that digest."""
        with self._lock:
            return self._values.get(digest)


def _utc_now() -> datetime:
    return datetime.now(UTC)
