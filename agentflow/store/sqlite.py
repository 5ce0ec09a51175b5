"""Runs in one SQLite file, which several processes may share.

Every method works inline on the caller's thread and never suspends: a transition is one short write transaction, and a
hop to another thread would cost more than its statements. Writes go through one connection behind a lock, which the
heartbeat's thread uses too; queries through another.
"""

import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentflow.errors import ConfigurationError, NotFound, SessionOver, StoreUnavailable
from agentflow.store import ledger_statements as ledger
from agentflow.store import statements as sql
from agentflow.store.instants import from_number_or_none, in_utc, to_number
from agentflow.store.joining import StatementRefused, joined
from agentflow.store.mapping import (
    RUN_NAMES,
    columns_of,
    filters_of,
    history_columns,
    new_run_columns,
    row_of,
    run_of,
    standing_columns,
)
from agentflow.store.opening import sqlite_path
from agentflow.store.prepared import SQLITE, Statement
from agentflow.store.rows import (
    TERMINAL,
    AttemptRow,
    CommandRow,
    Commit,
    CommitReply,
    Created,
    Decision,
    DecisionReply,
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
    Refused,
    RunFilter,
    RunRow,
    SessionRow,
    Settled,
    Standing,
    WaitRow,
    WaitStatus,
)
from agentflow.store.segments import LENGTH, fold, whole_segments
from agentflow.store.session_locks import SessionLocks
from agentflow.store.settling import LEASE, begun_row, refusal
from agentflow.store.sqlite_commits import keep_values
from agentflow.store.sqlite_connection import PATIENCE, Connection, Row, Synchronous, Writing
from agentflow.store.sqlite_groups import GroupsInSqlite, settle
from agentflow.store.sqlite_schema import prepare_database
from agentflow.store.sqlite_versions import VersionsInSqlite
from agentflow.store.sqlite_writes import Writes

OFTEN = (  # what every run takes
    sql.begin_session,
    sql.create_run,
    sql.add_history,
    sql.claim_due(listed_only=False, known_only=True),
    sql.claim_due(listed_only=True, known_only=True),
    sql.other_holders,
    sql.next_due,
    sql.requests_of_session,
    sql.one_run,
    sql.segments_before,
    sql.differences_between,
    sql.advance_run,
    sql.advance_and_release_run,
    sql.list_waits(frozenset({"run", "status"})),
    sql.stranded_runs,
)
NO_LIMIT = -1  # in SQLite's own language


class SqliteStore(VersionsInSqlite, GroupsInSqlite):
    """A store in one file. Every answer is durable: with `synchronous="NORMAL"` it may be lost in a power cut only.

    `lease` is how long a session lives without a heartbeat; a process that dies on this machine is noticed at once.
    `patience` is how many seconds a write waits for other processes before it raises `StoreBusy`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], datetime] | None = None,
        synchronous: Synchronous = "FULL",
        lease: timedelta = LEASE,
        patience: float = PATIENCE,
    ) -> None:
        if synchronous not in {"FULL", "NORMAL"}:
            raise ConfigurationError(f"synchronous is FULL or NORMAL, not {synchronous!r}")
        self.path = sqlite_path(path) if isinstance(path, str) and path.startswith("sqlite:") else Path(path).absolute()
        self._clock = clock or _utc_now
        self._lease = lease
        self._locks = SessionLocks(self.path)
        self._writer = Connection(self.path, synchronous, patience, only_reads=False)
        self._reader = Connection(self.path, synchronous, patience, only_reads=True)
        self._writes = Writes(self._writer, self._now)
        self._is_open = False
        self._opening = threading.Lock()

    # --- lifetime ----------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The injected clock, or that of the machine."""
        return in_utc(self._clock())

    def use_clock(self, clock: Callable[[], datetime]) -> None:
        """Let this clock rule instead."""
        self._clock = clock

    async def open(self) -> None:
        """Connect, create the tables of a fresh file, check the schema of another. Repeating it is harmless."""
        with self._opening:
            if self._is_open:
                return
            self._writer.open()
            try:
                prepare_database(self._writer)
            except BaseException:
                self._writer.close()
                raise
            self._reader.open()
            self._reader.connect()
            for statement in OFTEN:
                _ = statement.sqlite  # compiled now, so that no first run pays for it
            self._is_open = True

    async def close(self) -> None:
        """Let go of all connections, and of sessions that were not closed. Repeating it is harmless."""
        with self._opening:
            self._is_open = False
            self._reader.close()
            self._writer.close()
            self._locks.let_go()

    def _now(self) -> int:
        return to_number(self._clock())

    # --- sessions ----------------------------------------------------------------------------------------------

    async def open_session(self, name: str) -> str:
        """Begin a worker session with a fresh lease; return its id, which is never used again."""
        session, now = uuid4().hex, self.now()
        row = SessionRow(id=session, name=name, started_at=now, lease_until=now + self._lease)
        with self._writer as writing:  # locked before others can see it, so that nobody takes it for dead
            try:
                self._locks.take(session)
            except OSError as error:
                raise StoreUnavailable(f"folder {self._locks.folder} cannot be used for locks: {error}") from error
            try:
                writing.change(sql.begin_session, columns_of(row))
            except BaseException:
                self._locks.give(session)
                raise
        return session

    def renew_session(self, session: str) -> bool:
        """Renew the lease; False if it was lost, which is final. Called from the heartbeat's thread."""
        now = self.now()
        values = {"id": session, "now": to_number(now), "lease_until": to_number(now + self._lease)}
        with self._writer as writing:
            return writing.change(sql.renew_lease, values) == 1

    async def close_session(self, session: str) -> None:
        """End the session: its runs are free to be claimed at once."""
        with self._writer as writing:
            _end_session(writing, session, self._now(), is_dead=False)
        self._locks.give(session)
        for run in [run for run, holder in self._writes.held.items() if holder == session]:
            del self._writes.held[run]

    async def sessions(self) -> Sequence[SessionRow]:
        """All sessions that have not been stopped, with the runs they hold."""
        found: dict[str, SessionRow] = {}
        held: dict[str, list[str]] = {}
        for *columns, run in self._query(sql.sessions_with_runs, {}):
            row = row_of(SessionRow, columns)
            found[row.id] = row
            held.setdefault(row.id, []).extend([] if run is None else [run])
        return [_holding(row, held[row.id]) for row in found.values()]

    def _dead_holders(self, session: str, now: int) -> list[str]:
        """Sessions of others that hold runs and are dead: nobody else is looked at."""
        holders = self._query(sql.other_holders, {"id": session})
        return [holder for holder, lease_until in holders if lease_until <= now or self._locks.is_provably_dead(holder)]

    # --- runs --------------------------------------------------------------------------------------------------

    async def create_run(self, new: NewRun) -> Created | Existing:
        """Create a run with its revision 0, or find the one of that id."""
        columns = new_run_columns(new, self._now(), is_over=new.standing.status in TERMINAL)
        first = history_columns(new.id, new.history)

        def create(writing: Writing) -> Created | Existing:
            created = writing.row(sql.create_run, columns)
            if created is None:
                return Existing(run_of(writing.rows(sql.one_run, {"id": new.id})[0]))
            writing.change(sql.add_history, first)
            keep_values(writing, new.values)
            return Created(run_of(created))

        return await self._writes.do(create)

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
        now = self._now()
        dead = self._dead_holders(session, now)
        if not dead and not self._is_anything_due(now):
            return ()  # most of the time; found out without the write lock
        values = {
            "session": session,
            "token": f"{uuid4().hex}.",
            "now": now,
            "limit": max(limit, 0),
            "runs": json.dumps(runs),
            "workflows": json.dumps(workflows),
            "refused": json.dumps(refused),
        }
        claim = sql.claim_due(listed_only=runs is not None, known_only=workflows is not None, refuses=bool(refused))
        with self._writer as writing:
            for holder in dead:
                _end_session(writing, holder, now, is_dead=True)
            claimed = writing.rows(claim, values)
            if not claimed and not writing.rows(sql.live_session, {"id": session, "now": now}):
                raise SessionOver(session)
        for holder in dead:
            self._locks.forget(holder)
        found = [run_of(row) for row in sorted(claimed, key=_urgency)]
        self._writes.held.update((row.id, session) for row in found)
        return found

    def _is_anything_due(self, now: int) -> bool:
        due = self._query(sql.next_due, {})
        return bool(due) and due[0][0] <= now

    async def commit(self, commit: Commit) -> CommitReply:
        """Write all of it in one transaction, or nothing."""
        try:
            reply = await self._writes.commit(commit)
        except StatementRefused as refused:
            return Refused(refused.number, str(refused))
        if commit.release or isinstance(reply, LateResult):
            self._writes.held.pop(commit.run, None)
        return reply

    def suspends(self) -> bool:
        """Whether a commit lets other tasks of the loop run before it returns."""
        return self._writes.has_company

    async def release_run(self, run: str, token: str) -> None:
        """Give a claim back without a change: the run is due at once. No error if the claim is lost."""
        self._writes.held.pop(run, None)
        with self._writer as writing:
            writing.change(sql.release_run, {"id": run, "token": token, "now": self._now()})

    async def run(self, run: str) -> RunRow | None:
        """The run's row."""
        rows = self._query(sql.one_run, {"id": run})
        return run_of(rows[0]) if rows else None

    async def runs(self, wanted: RunFilter) -> Sequence[RunRow]:
        """Rows of runs, newest first."""
        values, filters = filters_of(wanted)
        return [run_of(row) for row in self._query(sql.list_runs(filters), values | {"limit": max(wanted.limit, 0)})]

    async def count_runs(self, wanted: RunFilter) -> int:
        """How many runs fit, whatever the filter's page."""
        values, filters = filters_of(wanted)
        count: int = self._query(sql.count_runs(filters - {"after"}), values)[0][0]
        return count

    async def history(self, run: str, *, after: int = -1, limit: int | None = None) -> Sequence[HistoryRow]:
        """History rows with a revision above `after`, in order."""
        values = {"run": run, "after": after, "limit": NO_LIMIT if limit is None else max(limit, 0)}
        return [row_of(HistoryRow, row) for row in self._query(sql.history_after, values)]

    async def differences(self, run: str, revision: int) -> Sequence[str]:
        """Differences whose fold, in order, is the context at that revision."""
        whole = whole_segments(revision)
        folded = self._query(sql.segments_before, {"run": run, "number": whole}) if whole else []
        rest = {"run": run, "first": LENGTH * len(folded), "last": revision}
        return [row[0] for row in (*folded, *self._query(sql.differences_between, rest))]

    async def condense(self, run: str) -> int:
        """Fold each whole segment that is not folded yet into one row; the number of segments written."""
        rows = self._query(sql.one_run, {"id": run})
        revision = run_of(rows[0]).revision if rows else -1
        first: int = self._query(sql.count_segments, {"run": run})[0][0]
        for number in range(first, whole_segments(revision)):
            span = {"run": run, "first": LENGTH * number, "last": LENGTH * (number + 1) - 1}
            difference = fold(row[0] for row in self._query(sql.differences_between, span))
            with self._writer as writing:
                writing.change(sql.add_segment, {"run": run, "number": number, "difference": difference})
        return max(0, whole_segments(revision) - first)

    async def attempts(self, run: str) -> Sequence[AttemptRow]:
        """Attempts that failed or were lost, in order."""
        return [row_of(AttemptRow, row) for row in self._query(sql.attempts_of_run, {"run": run})]

    async def stranded(self, *, limit: int) -> Sequence[str]:
        """Runs that are not over and that nothing would ever wake."""
        return [run for (run,) in self._query(sql.stranded_runs, {"limit": max(limit, 0)})]

    async def next_due(self) -> datetime | None:
        """The earliest instant at which an unclaimed run becomes due."""
        rows = self._query(sql.next_due, {})
        return from_number_or_none(rows[0][0]) if rows else None

    # --- commands ----------------------------------------------------------------------------------------------

    async def request(self, command: CommandRow, *, word: str | None, wake: bool) -> bool:
        """Record a command; with `word`, set the run's request, lift a pause, and make it due."""
        now = self._now()
        with self._writer as writing:
            if writing.row(sql.one_run, {"id": command.run}) is None:
                raise NotFound(f"there is no run {command.run!r}")
            if writing.change(sql.record_command, columns_of(command)) == 0:
                return False
            if word is not None:
                writing.change(sql.ask_of_run, {"id": command.run, "word": word, "now": now})
            if wake:
                writing.change(sql.wake_run, {"id": command.run, "now": now})
        return True

    async def reopen(
        self, command: CommandRow, *, standing: Standing, expected_control_seq: int, settled: Settled | None = None
    ) -> bool:
        """Record a command that changes an unclaimed run's standing; where that ends it, its open waits are closed."""
        now, is_over = self._now(), standing.status in TERMINAL
        columns = standing_columns(standing) | {
            "id": command.run,
            "expected_control_seq": expected_control_seq,
            "now": now,
            "ended_at": now if is_over else None,
        }
        note = columns_of(command)
        with self._writer as writing:
            known = {"run": command.run, "request": command.request}
            if command.request is not None and writing.row(sql.command_of_request, known) is not None:
                return False
            if writing.change(sql.reopen_run, columns) == 0:
                return False
            writing.change(sql.record_command, note)
            if is_over:
                writing.change(sql.close_waits_of_run, {"run": command.run, "now": now})
            settle(writing, settled, now)
        return True

    async def pause(self, command: CommandRow, *, paused: bool) -> bool:
        """Record a command that pauses a run or lifts its pause, whoever drives it; raises `control_seq`."""
        with self._writer as writing:
            known = {"run": command.run, "request": command.request}
            if command.request is not None and writing.row(sql.command_of_request, known) is not None:
                return False
            wanted = {"id": command.run, "paused": int(paused), "now": self._now()}
            if writing.change(sql.pause_run, wanted) == 0:
                return False
            writing.change(sql.record_command, columns_of(command))
        return True

    async def requests(self, session: str) -> Sequence[tuple[str, str]]:
        """Runs that the session holds and of which a command asks something, with the request's JSON."""
        return [(run, request) for run, request in self._query(sql.requests_of_session, {"session": session})]

    async def commands(self, run: str) -> Sequence[CommandRow]:
        """Commands to a run, in order."""
        return [row_of(CommandRow, row) for row in self._query(sql.commands_of_run, {"run": run})]

    # --- waits -------------------------------------------------------------------------------------------------

    async def wait(self, wait: str) -> WaitRow | None:
        """One wait."""
        rows = self._query(sql.one_wait, {"id": wait})
        return row_of(WaitRow, rows[0]) if rows else None

    async def waits(
        self, *, run: str | None = None, status: WaitStatus | None = "open", limit: int = 50
    ) -> Sequence[WaitRow]:
        """Waits, oldest first."""
        wanted = {name: value for name, value in (("run", run), ("status", status)) if value is not None}
        rows = self._query(sql.list_waits(frozenset(wanted)), {**wanted, "limit": max(limit, 0)})
        return [row_of(WaitRow, row) for row in rows]

    async def decide(self, decision: Decision) -> DecisionReply:
        """Answer a wait where it is open and not yet due, in one statement; its run becomes due at once."""
        now = self._now()
        answer = {**columns_of(decision), "id": decision.wait, "now": now}
        with self._writer as writing:
            decided = writing.row(sql.decide_wait, answer)
            row = decided or writing.row(sql.one_wait, {"id": decision.wait})
            if row is None:
                return DecisionReply("unknown", None)
            wait = row_of(WaitRow, row)
            if decided or wait.status == "open":  # an open one that took no answer is due: its run will expire it
                writing.change(sql.wake_run, {"id": wait.run, "now": now})
        return DecisionReply("applied" if decided else refusal(wait, decision), wait)

    async def expire(self, wait: str) -> WaitRow | None:
        """Close a wait where it is open and due, in one statement; the row as it is now."""
        now = self._now()
        with self._writer as writing:
            expired = writing.row(sql.expire_wait, {"id": wait, "now": now})
            row = expired or writing.row(sql.one_wait, {"id": wait})
            if row is None:
                return None
            found = row_of(WaitRow, row)
            if expired:
                writing.change(sql.wake_run, {"id": found.run, "now": now})
        return found

    # --- effects -----------------------------------------------------------------------------------------------

    async def begin_effect(self, claim: EffectClaim) -> EffectBegun | EffectFound | None:
        """Record the intention, or find what was recorded under that key or `once_per`; None if the lease is lost."""
        now = self.now()

        def begin(writing: Writing) -> EffectBegun | EffectFound | None:
            held = writing.row(sql.claim_of_run, {"id": claim.run})
            if held is None or held[0] != claim.token:
                return None
            begun = columns_of(begun_row(claim, held[1], now))
            row = writing.row(ledger.effect_of_key, begun)
            own = None if row is None else row_of(EffectRow, row)
            if own is not None and own.status != "not_happened":
                return EffectFound(own, self._is_alive(writing, own, to_number(now)))
            taken = writing.row(ledger.effect_once_per, begun)
            if taken is not None:
                other = row_of(EffectRow, taken)
                return EffectFound(other, self._is_alive(writing, other, to_number(now)))
            again = ledger.begin_effect if own is None else ledger.begin_effect_again
            return EffectBegun(row_of(EffectRow, writing.rows(again, begun)[0]))

        return await self._writes.do(begin)

    def _is_alive(self, writing: Writing, effect: EffectRow, now: int) -> bool:
        """Whether the claim that began an effect still stands, and its session lives."""
        held = writing.row(sql.claim_of_run, {"id": effect.run})
        if held is None or held[0] != effect.token or effect.session is None:
            return False
        is_live = writing.row(sql.live_session, {"id": effect.session, "now": now}) is not None
        return is_live and not self._locks.is_provably_dead(effect.session)

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
        values = {
            "run": run,
            "token": token,
            "key": key,
            "status": status,
            "begun_by": token if begun_by is None else begun_by,
            "result": result,
            "error": error,
            "now": self._now(),
        }
        return await self._writes.do(lambda writing: writing.change(ledger.settle_effect, values) == 1)

    async def effect(self, key: str) -> EffectRow | None:
        """One effect."""
        rows = self._query(ledger.effect_of_key, {"key": key})
        return row_of(EffectRow, rows[0]) if rows else None

    async def effects(
        self, *, run: str | None = None, status: EffectStatus | None = None, limit: int | None = None
    ) -> Sequence[EffectRow]:
        """The ledger, in the order in which effects were begun."""
        wanted = {name: value for name, value in (("run", run), ("status", status)) if value is not None}
        most = NO_LIMIT if limit is None else max(limit, 0)
        rows = self._query(ledger.list_effects(frozenset(wanted)), {**wanted, "limit": most})
        return [row_of(EffectRow, row) for row in rows]

    async def resolve_effect(
        self, command: CommandRow, key: str, status: EffectStatus, *, result: str | None = None
    ) -> bool:
        """Settle an effect by hand; False, and nothing is written, if it is settled, at work, or not of that run."""
        values = {"key": key, "run": command.run, "status": status, "result": result, "now": self._now()}
        with self._writer as writing:
            known = {"run": command.run, "request": command.request}
            if command.request is not None and writing.row(sql.command_of_request, known) is not None:
                return False
            if writing.change(ledger.resolve_effect, values) == 0:
                return False
            writing.change(sql.record_command, columns_of(command))
        return True

    # --- statements of authors -----------------------------------------------------------------------------------

    def join(self, statement: Any, parameters: Mapping[str, object] | None) -> Joined:
        """Take a statement for `Commit.joined`. Raises `InvalidInput` for what SQLite cannot express."""
        return joined(statement, parameters, SQLITE)

    # --- values ------------------------------------------------------------------------------------------------

    def value(self, digest: str) -> bytes | None:
        """The bytes of that digest."""
        rows = self._query(ledger.value_of_digest, {"digest": digest})
        return None if not rows else bytes(rows[0][0])

    # --- copies --------------------------------------------------------------------------------------------------

    async def page(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows of a statement."""
        return self._query(statement, values)

    @asynccontextmanager
    async def filling(self) -> AsyncGenerator[Callable[[Statement, Mapping[str, Any]], Awaitable[None]], None]:
        """A transaction that rows are written in: all of the block, or nothing."""
        with self._writer as writing:

            async def fill(statement: Statement, values: Mapping[str, Any]) -> None:
                writing.change(statement, values)

            yield fill

    def _query(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        return self._reader.query(statement, values)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _end_session(writing: Writing, session: str, now: int, *, is_dead: bool) -> None:
    writing.change(sql.stop_session, {"id": session, "now": now})
    writing.change(sql.free_runs_of_session(is_dead=is_dead), {"session": session, "now": now})


def _holding(row: SessionRow, runs: Sequence[str]) -> SessionRow:
    return SessionRow(
        id=row.id,
        name=row.name,
        started_at=row.started_at,
        lease_until=row.lease_until,
        stopped_at=row.stopped_at,
        runs=tuple(runs),
    )


def _urgency(claimed: Row) -> tuple[int, int, int]:
    """As the claim ordered them, which what it returns does not show."""
    priority, seq = claimed[len(RUN_NAMES) :]
    return -priority, claimed[RUN_NAMES.index("due_at")], seq
