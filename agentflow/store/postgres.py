"""Runs in a PostgreSQL database, which many processes on many machines may share.

The server's clock rules: what is due, leased or expired is compared with it in SQL. A start, a commit and an effect are
one round trip each. Whatever could race with a worker's commit takes the lock of the run's row first. A process that dies
is noticed when its lease is over; there is no quicker proof between machines.

A connection may break after a statement was sent: a commit is then looked up, and everything else may be repeated.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

from agentflow.errors import NotFound, SessionOver, StoreError, StoreUnavailable
from agentflow.store import ledger_statements as ledger
from agentflow.store import postgres_statements as own
from agentflow.store import statements as sql
from agentflow.store.instants import MICROSECOND, from_number_or_none, in_utc, to_number, with_instants_in_utc
from agentflow.store.joining import StatementRefused, joined
from agentflow.store.mapping import (
    columns_of,
    filters_of,
    new_run_columns,
    row_of,
    run_of,
    standing_columns,
)
from agentflow.store.postgres_clock import ServerClock
from agentflow.store.postgres_commits import (
    history_given,
    is_one_statement,
    values_given,
    write_commit,
    write_joined_commit,
)
from agentflow.store.postgres_connection import PATIENCE, Address, Pools, Row, Using
from agentflow.store.postgres_groups import GroupsInPostgres, settle
from agentflow.store.postgres_schema import prepare_database
from agentflow.store.postgres_versions import VersionsInPostgres
from agentflow.store.prepared import Statement, postgres_dialect
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
    EffectBegun,
    EffectClaim,
    EffectFound,
    EffectRow,
    EffectStatus,
    Existing,
    HistoryRow,
    Joined,
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
from agentflow.store.settling import LEASE, begun_row, refusal
from agentflow.store.uninterrupted import uninterrupted

T = TypeVar("T")

ALL = 2**62  # more rows than there are


class PostgresStore(VersionsInPostgres, GroupsInPostgres):
    """A store in one database, or in one schema of it: `postgresql://user@host/database?schema=agentflow`.

    `lease` is how long a session lives without a heartbeat. `clock` replaces the server's, for tests. `patience` is how
    many seconds a write waits for a lock of others before it raises `StoreBusy`. What is answered is as durable as the
    server's own settings make it (`synchronous_commit`).
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], datetime] | None = None,
        lease: timedelta = LEASE,
        patience: float = PATIENCE,
    ) -> None:
        self._pools = Pools(Address(url), patience)
        self._clock = clock
        self._lease = lease
        self._server_clock = ServerClock()
        self._is_prepared = False

    @property
    def path(self) -> str:
        """Where it is, without a password."""
        return self._pools.address.shown

    # --- lifetime ----------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The injected clock, or the server's: never ahead of it, and behind it by no more than a quick round trip."""
        return self._server_clock.now() if self._clock is None else in_utc(self._clock())

    def use_clock(self, clock: Callable[[], datetime]) -> None:
        """Let this clock rule instead."""
        self._clock = clock

    async def open(self) -> None:
        """Connect, create the tables of a fresh database, check the schema of another. Repeating it is harmless."""
        if self._pools.is_open and self._is_prepared:
            return
        self._pools.is_open = True
        try:
            await self._pools.transaction(lambda connection: prepare_database(connection, self._pools.address))
            await self._measure_clock()
        except BaseException:
            await self._pools.close()
            raise
        self._is_prepared = True

    async def _measure_clock(self) -> None:
        async with self._pools.using() as connection:
            asked = self._server_clock.asks()
            [(answer,)] = await connection.rows(own.server_now, {})
            self._server_clock.learn(asked, answer)

    async def close(self) -> None:
        """Let go of the connections of this loop. Repeating it is harmless."""
        await self._pools.close()
        self._is_prepared = self._is_prepared and self._pools.is_open

    def _now(self) -> int:
        return to_number(self.now())

    @property
    def _given_now(self) -> int | None:
        """The injected clock for SQL; None lets the server take its own."""
        return None if self._clock is None else self._now()

    async def _query(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        async with self._pools.using() as connection:
            return await connection.rows(statement, {"now": self._given_now, **values})

    # --- sessions ----------------------------------------------------------------------------------------------

    async def open_session(self, name: str) -> str:
        """Begin a worker session with a fresh lease; return its id, which is never used again."""
        session, now = uuid4().hex, self.now()
        row = SessionRow(id=session, name=name, started_at=now, lease_until=now + self._lease)
        async with self._pools.using() as connection:
            await connection.change(sql.begin_session, columns_of(row))
        return session

    def renew_session(self, session: str) -> bool:
        """Renew the lease; False if it was lost, which is final. Called from the heartbeat's thread."""
        lease = self._lease // MICROSECOND
        values = {"id": session, "now": self._given_now, "lease": lease}

        async def renew() -> bool:
            async with self._pools.using() as connection:
                asked = self._server_clock.asks()
                renewed = await connection.row(own.renew_lease, values)
                if renewed is not None:
                    self._server_clock.learn(asked, renewed[0])
                return renewed is not None

        return self._pools.wait_for(renew, "heartbeat", within=max(1.0, self._lease.total_seconds() / 3))

    async def close_session(self, session: str) -> None:
        """End the session: its runs are free to be claimed at once."""
        await self._pools.transaction(lambda connection: self._end_session(connection, session, is_dead=False))

    async def _end_session(self, connection: Using, session: str, *, is_dead: bool) -> None:
        values = {"id": session, "session": session, "now": self._given_now}
        if await connection.change(sql.stop_session, values):  # of several that find it dead, one ends it
            await connection.change(sql.free_runs_of_session(is_dead=is_dead), values)

    async def sessions(self) -> Sequence[SessionRow]:
        """All sessions that have not been stopped, with the runs they hold."""
        found: dict[str, SessionRow] = {}
        held: dict[str, list[str]] = {}
        for *columns, run in await self._query(sql.sessions_with_runs, {}):
            row = row_of(SessionRow, columns)
            found[row.id] = row
            held.setdefault(row.id, []).extend([] if run is None else [run])
        return [
            SessionRow(
                id=row.id,
                name=row.name,
                started_at=row.started_at,
                lease_until=row.lease_until,
                stopped_at=row.stopped_at,
                runs=tuple(held[row.id]),
            )
            for row in found.values()
        ]

    # --- runs --------------------------------------------------------------------------------------------------

    async def create_run(self, new: NewRun) -> Created | Existing:
        """Create a run with its revision 0, or find the one of that id."""
        given = {
            **new_run_columns(new, self._now(), is_over=new.standing.status in TERMINAL),
            **history_given(new.id, new.history),
            **values_given(new.values),
        }
        create = own.create_run(values=bool(new.values))
        async with self._pools.using() as connection:
            created = await connection.row(create, given)
            if created is not None:
                return Created(run_of(created))
            return Existing(run_of((await connection.rows(sql.one_run, {"id": new.id}))[0]))

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
        is_due, dead = await self._look_for_work(session)
        if not is_due and not dead:
            return ()
        values = {
            "session": session,
            "token": f"{uuid4().hex}.",
            "now": self._given_now,
            "limit": max(limit, 0),
            "runs": None if runs is None else list(runs),
            **own.places_given(workflows or (), refused),
        }
        claim = own.claim_due(listed_only=runs is not None, known_only=workflows is not None, refuses=bool(refused))

        async def take(connection: Using) -> list[Row]:
            for holder in dead:
                await self._end_session(connection, holder, is_dead=True)
            claimed = await connection.rows(claim, values)
            if not claimed and not await connection.rows(sql.live_session, {"id": session, "now": self._given_now}):
                raise SessionOver(session)
            return claimed

        claimed = await self._pools.transaction(take) if dead else await self._at_once(take)
        return [run_of(row) for row in sorted(claimed, key=own.urgency)]

    async def _look_for_work(self, session: str) -> tuple[bool, Sequence[str]]:
        """Whether a run is due, and which other sessions hold runs although they are dead; most of the time neither."""
        async with self._pools.using() as connection:
            asked = self._server_clock.asks()
            [(answer, is_due, dead)] = await connection.rows(own.look_for_work, {"id": session, "now": self._given_now})
            self._server_clock.learn(asked, answer)
        return is_due, dead

    async def _at_once(self, act: Callable[[Using], Awaitable[T]]) -> T:
        async with self._pools.using() as connection:
            return await act(connection)

    async def commit(self, commit: Commit) -> CommitReply:
        """Write all of it in one transaction, or nothing. A cancel that comes meanwhile is delivered after it."""
        return await uninterrupted(self._commit(commit))

    async def _commit(self, commit: Commit) -> CommitReply:
        stamp, now = self._now(), self._given_now
        try:
            if commit.joined:
                return await self._pools.with_core(lambda guest: write_joined_commit(guest, commit, stamp, now))
            at_once = self._at_once if is_one_statement(commit) else self._pools.transaction
            return await at_once(lambda connection: write_commit(connection, commit, stamp, now))
        except StatementRefused as refused:
            return Refused(refused.number, str(refused))
        except StoreUnavailable as error:
            return await self._unless_written(error, commit)

    async def _unless_written(self, error: StoreError, commit: Commit) -> CommitReply:
        """Raise the error, unless the transition is there: an answer that was lost is looked up and not guessed."""
        if commit.history is None:
            raise error
        try:
            lines = await self.history(commit.run, after=commit.revision - 1, limit=1)
        except StoreError:
            raise error from None
        if list(lines) != [with_instants_in_utc(commit.history, "at")]:
            raise error
        return Committed()

    def suspends(self) -> bool:
        """A commit waits for the server, so other tasks get their turn."""
        return True

    async def release_run(self, run: str, token: str) -> None:
        """Give a claim back without a change: the run is due at once. No error if the claim is lost."""
        async with self._pools.using() as connection:
            await connection.change(sql.release_run, {"id": run, "token": token, "now": self._given_now})

    async def run(self, run: str) -> RunRow | None:
        """The run's row."""
        rows = await self._query(sql.one_run, {"id": run})
        return run_of(rows[0]) if rows else None

    async def runs(self, wanted: RunFilter) -> Sequence[RunRow]:
        """Rows of runs, newest first."""
        values, filters = filters_of(wanted)
        rows = await self._query(sql.list_runs(filters), values | {"limit": max(wanted.limit, 0)})
        return [run_of(row) for row in rows]

    async def count_runs(self, wanted: RunFilter) -> int:
        """How many runs fit, whatever the filter's page."""
        values, filters = filters_of(wanted)
        count: int = (await self._query(sql.count_runs(filters - {"after"}), values))[0][0]
        return count

    async def history(self, run: str, *, after: int = -1, limit: int | None = None) -> Sequence[HistoryRow]:
        """History rows with a revision above `after`, in order."""
        values = {"run": run, "after": after, "limit": ALL if limit is None else max(limit, 0)}
        return [row_of(HistoryRow, row) for row in await self._query(sql.history_after, values)]

    async def differences(self, run: str, revision: int) -> Sequence[str]:
        """Differences whose fold, in order, is the context at that revision."""
        async with self._pools.using() as connection:
            whole = whole_segments(revision)
            folded = await connection.rows(sql.segments_before, {"run": run, "number": whole}) if whole else []
            rest = {"run": run, "first": LENGTH * len(folded), "last": revision}
            return [row[0] for row in (*folded, *await connection.rows(sql.differences_between, rest))]

    async def condense(self, run: str) -> int:
        """Fold each whole segment that is not folded yet into one row; the number of segments written."""
        row = await self.run(run)
        first: int = (await self._query(sql.count_segments, {"run": run}))[0][0]
        last = whole_segments(-1 if row is None else row.revision)
        for number in range(first, last):
            span = {"run": run, "first": LENGTH * number, "last": LENGTH * (number + 1) - 1}
            async with self._pools.using() as connection:
                difference = fold(row[0] for row in await connection.rows(sql.differences_between, span))
                await connection.change(sql.add_segment, {"run": run, "number": number, "difference": difference})
        return max(0, last - first)

    async def attempts(self, run: str) -> Sequence[AttemptRow]:
        """Attempts that failed or were lost, in order."""
        return [row_of(AttemptRow, row) for row in await self._query(sql.attempts_of_run, {"run": run})]

    async def stranded(self, *, limit: int) -> Sequence[str]:
        """Runs that are not over and that nothing would ever wake."""
        return [row[0] for row in await self._query(sql.stranded_runs, {"limit": max(limit, 0)})]

    async def next_due(self) -> datetime | None:
        """The earliest instant at which an unclaimed run becomes due."""
        rows = await self._query(sql.next_due, {})
        return from_number_or_none(rows[0][0]) if rows else None

    # --- commands ----------------------------------------------------------------------------------------------

    async def request(self, command: CommandRow, *, word: str | None, wake: bool) -> bool:
        """Record a command; with `word`, set the run's request, lift a pause, and make it due."""
        values = {"id": command.run, "word": word, "now": self._given_now}
        note = columns_of(command)

        async def ask(connection: Using) -> bool:
            if await connection.row(own.lock_run, values) is None:
                raise NotFound(f"there is no run {command.run!r}")
            if await connection.change(sql.record_command, note) == 0:
                return False
            if word is not None:
                await connection.change(sql.ask_of_run, values)
            if wake:
                await connection.change(sql.wake_run, values)
            return True

        return await self._pools.transaction(ask)

    async def reopen(
        self, command: CommandRow, *, standing: Standing, expected_control_seq: int, settled: Settled | None = None
    ) -> bool:
        """Record a command that changes an unclaimed run's standing; where that ends it, its open waits are closed."""
        is_over = standing.status in TERMINAL
        columns = standing_columns(standing) | {
            "id": command.run,
            "expected_control_seq": expected_control_seq,
            "now": self._given_now,
            "ended_at": self._now() if is_over else None,
        }
        note = columns_of(command)

        async def change(connection: Using) -> bool:
            await connection.row(own.lock_run, columns)
            known = {"run": command.run, "request": command.request}
            if command.request is not None and await connection.row(sql.command_of_request, known) is not None:
                return False
            if await connection.change(sql.reopen_run, columns) == 0:
                return False
            await connection.change(sql.record_command, note)
            if is_over:
                await connection.change(sql.close_waits_of_run, {"run": command.run, "now": self._given_now})
            await settle(connection, settled, self._given_now)
            return True

        return await self._pools.transaction(change)

    async def pause(self, command: CommandRow, *, paused: bool) -> bool:
        """Record a command that pauses a run or lifts its pause, whoever drives it; raises `control_seq`."""
        wanted = {"id": command.run, "paused": int(paused), "now": self._given_now}
        note = columns_of(command)

        async def change(connection: Using) -> bool:
            await connection.row(own.lock_run, wanted)
            known = {"run": command.run, "request": command.request}
            if command.request is not None and await connection.row(sql.command_of_request, known) is not None:
                return False
            if await connection.change(sql.pause_run, wanted) == 0:
                return False
            await connection.change(sql.record_command, note)
            return True

        return await self._pools.transaction(change)

    async def requests(self, session: str) -> Sequence[tuple[str, str]]:
        """Runs that the session holds and of which a command asks something, with the request's JSON."""
        return [(row[0], row[1]) for row in await self._query(sql.requests_of_session, {"session": session})]

    async def commands(self, run: str) -> Sequence[CommandRow]:
        """Commands to a run, in order."""
        return [row_of(CommandRow, row) for row in await self._query(sql.commands_of_run, {"run": run})]

    # --- waits -------------------------------------------------------------------------------------------------

    async def wait(self, wait: str) -> WaitRow | None:
        """One wait."""
        rows = await self._query(sql.one_wait, {"id": wait})
        return row_of(WaitRow, rows[0]) if rows else None

    async def waits(
        self, *, run: str | None = None, status: WaitStatus | None = "open", limit: int = 50
    ) -> Sequence[WaitRow]:
        """Waits, oldest first."""
        wanted = {name: value for name, value in (("run", run), ("status", status)) if value is not None}
        rows = await self._query(sql.list_waits(frozenset(wanted)), {**wanted, "limit": max(limit, 0)})
        return [row_of(WaitRow, row) for row in rows]

    async def decide(self, decision: Decision) -> DecisionReply:
        """Answer a wait where it is open and not yet due, in one statement; its run becomes due at once."""
        answer = {**columns_of(decision), "id": decision.wait, "now": self._given_now}

        async def decide(connection: Using) -> DecisionReply:
            await connection.row(own.lock_run_of_wait, answer)
            decided = await connection.row(sql.decide_wait, answer)
            row = decided or await connection.row(sql.one_wait, answer)
            if row is None:
                return DecisionReply("unknown", None)
            wait = row_of(WaitRow, row)
            if decided or wait.status == "open":  # an open one that took no answer is due: its run will expire it
                await connection.change(sql.wake_run, {"id": wait.run, "now": self._given_now})
            return DecisionReply("applied" if decided else refusal(wait, decision), wait)

        return await self._pools.transaction(decide)

    async def expire(self, wait: str) -> WaitRow | None:
        """Close a wait where it is open and due, in one statement; the row as it is now."""
        values = {"id": wait, "now": self._given_now}

        async def close(connection: Using) -> WaitRow | None:
            await connection.row(own.lock_run_of_wait, values)
            expired = await connection.row(sql.expire_wait, values)
            row = expired or await connection.row(sql.one_wait, values)
            if row is None:
                return None
            found = row_of(WaitRow, row)
            if expired:
                await connection.change(sql.wake_run, {"id": found.run, "now": self._given_now})
            return found

        return await self._pools.transaction(close)

    # --- effects -----------------------------------------------------------------------------------------------

    async def begin_effect(self, claim: EffectClaim) -> EffectBegun | EffectFound | None:
        """Record the intention, or find what was recorded under that key or `once_per`; None if the lease is lost."""
        mine = begun_row(claim, None, self.now())  # its session is that of the claim, as the database knows it
        begun = await self._query(own.begin_effect, columns_of(mine))
        if begun:
            return EffectBegun(row_of(EffectRow, begun[0]))
        return await self._pools.transaction(lambda connection: self._found_effect(connection, claim))

    async def _found_effect(self, connection: Using, claim: EffectClaim) -> EffectBegun | EffectFound | None:
        """Why an effect was not begun; or begin it again, after one that did not happen."""
        held = await connection.row(own.lock_run, {"id": claim.run})
        if held is None or held[0] != claim.token:
            return None
        mine = columns_of(begun_row(claim, held[1], self.now()))
        row = await connection.row(ledger.effect_of_key, mine)
        if row is None or row_of(EffectRow, row).status == "not_happened":
            again = ledger.begin_effect if row is None else ledger.begin_effect_again
            row = await connection.row(ledger.effect_once_per, mine)
            if row is None:  # whoever is beaten to the business key at this moment looks again
                return EffectBegun(row_of(EffectRow, (await connection.rows(again, mine))[0]))
        found = row_of(EffectRow, row)
        return EffectFound(found, await self._is_alive(connection, found))

    async def _is_alive(self, connection: Using, effect: EffectRow) -> bool:
        """Whether the claim that began an effect still stands, and its session lives."""
        held = await connection.row(sql.claim_of_run, {"id": effect.run})
        if held is None or held[0] != effect.token or effect.session is None:
            return False
        values = {"id": effect.session, "now": self._given_now}
        return await connection.row(sql.live_session, values) is not None

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
            "now": self._given_now,
        }
        async with self._pools.using() as connection:
            return await connection.change(own.settle_effect, values) == 1

    async def effect(self, key: str) -> EffectRow | None:
        """One effect."""
        rows = await self._query(ledger.effect_of_key, {"key": key})
        return row_of(EffectRow, rows[0]) if rows else None

    async def effects(
        self, *, run: str | None = None, status: EffectStatus | None = None, limit: int | None = None
    ) -> Sequence[EffectRow]:
        """The ledger, in the order in which effects were begun."""
        wanted = {name: value for name, value in (("run", run), ("status", status)) if value is not None}
        most = ALL if limit is None else max(limit, 0)
        rows = await self._query(ledger.list_effects(frozenset(wanted)), {**wanted, "limit": most})
        return [row_of(EffectRow, row) for row in rows]

    async def resolve_effect(
        self, command: CommandRow, key: str, status: EffectStatus, *, result: str | None = None
    ) -> bool:
        """Settle an effect by hand; False, and nothing is written, if it is settled, at work, or not of that run."""
        values = {"key": key, "run": command.run, "status": status, "result": result, "now": self._given_now}
        note = columns_of(command)

        async def settle(connection: Using) -> bool:
            await connection.row(own.lock_run, {"id": command.run})
            known = {"run": command.run, "request": command.request}
            if command.request is not None and await connection.row(sql.command_of_request, known) is not None:
                return False
            if await connection.change(ledger.resolve_effect, values) == 0:
                return False
            await connection.change(sql.record_command, note)
            return True

        return await self._pools.transaction(settle)

    # --- statements of authors, values ---------------------------------------------------------------------------

    def join(self, statement: Any, parameters: Mapping[str, object] | None) -> Joined:
        """Take a statement for `Commit.joined`. Raises `InvalidInput` for what PostgreSQL cannot express."""
        return joined(statement, parameters, postgres_dialect())

    def value(self, digest: str) -> bytes | None:
        """The bytes of that digest."""
        rows = self._pools.wait_for(lambda: self._query(ledger.value_of_digest, {"digest": digest}), "reads")
        return None if not rows else bytes(rows[0][0])

    # --- copies --------------------------------------------------------------------------------------------------

    async def page(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows of a statement."""
        return await self._query(statement, values)

    @asynccontextmanager
    async def filling(self) -> AsyncGenerator[Callable[[Statement, Mapping[str, Any]], Awaitable[None]], None]:
        """A transaction that rows are written in: all of the block, or nothing."""
        async with self._pools.using() as connection, connection.raw.transaction():

            async def fill(statement: Statement, values: Mapping[str, Any]) -> None:
                await connection.change(statement, values)

            yield fill
