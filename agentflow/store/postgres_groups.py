"""Groups in PostgreSQL: opened and settled in the transaction of a commit, behind the lock of the run that waits.

Locks are taken upwards, a branch before the run that waits for it, a run before its group: so nobody waits in a circle.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentflow.store import group_statements as sql
from agentflow.store import postgres_statements as own
from agentflow.store import statements
from agentflow.store.mapping import columns_of, history_columns, new_run_columns, row_of, run_of
from agentflow.store.postgres_connection import Using
from agentflow.store.rows import Commit, GroupRow, RunRow, Settled

if TYPE_CHECKING:
    from agentflow.store.postgres_connection import Pools, Row
    from agentflow.store.prepared import Statement

STOP = '{"cancel":""}'


async def open_group(connection: Using, commit: Commit, stamp: int) -> None:
    """The group that a commit opens, with its branches."""
    if commit.group is None:
        return
    await connection.change(sql.open_group, columns_of(commit.group))
    if not commit.branches:
        return
    runs = [new_run_columns(new, stamp, is_over=False) for new in commit.branches]
    lines = [history_columns(new.id, new.history) for new in commit.branches]
    await connection.many(statements.create_branch, runs)
    await connection.many(statements.add_history, lines)


async def settle(connection: Using, settled: Settled | None, now: int | None) -> None:
    """What the end of a branch means to its group: it is counted, others begin, and its run is woken if it must look."""
    if settled is None:
        return
    place = {"run": settled.parent, "state": settled.state, "visit": settled.visit, "now": now}
    await connection.row(own.lock_run, {"id": settled.parent})
    before = await _group_at(connection, place)
    if before is None:
        return
    after = before.with_settled(**{settled.outcome: 1})
    await connection.change(sql.count_group, columns_of(after))
    for position in settled.frees:
        await connection.change(sql.free_branch, {**place, "position": position})
    if settled.slot:
        await connection.change(sql.fill_slot, place)
    if after.wakes(before):
        await connection.change(statements.wake_run, {"id": settled.parent, "now": now})


async def _group_at(connection: Using, place: Mapping[str, Any]) -> GroupRow | None:
    row = await connection.row(sql.one_group, place)
    return None if row is None else row_of(GroupRow, row)


class GroupsInPostgres:
    """The part of a `PostgresStore` that knows of groups."""

    if TYPE_CHECKING:
        _pools: Pools

        @property
        def _given_now(self) -> int | None: ...

        async def _query(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]: ...

    async def group(self, run: str, state: str, visit: int) -> GroupRow | None:
        """The group that a run opened in that visit of a state."""
        rows = await self._query(sql.one_group, {"run": run, "state": state, "visit": visit})
        return row_of(GroupRow, rows[0]) if rows else None

    async def branches(self, run: str, state: str, visit: int) -> Sequence[RunRow]:
        """Its branches, in their order."""
        rows = await self._query(sql.branches_of_group, {"run": run, "state": state, "visit": visit})
        return [run_of(row) for row in rows]

    async def branch_differences(self, run: str, state: str, visit: int) -> Mapping[str, Sequence[str]]:
        """What each of its branches changed by its own transitions, in order."""
        found: dict[str, list[str]] = defaultdict(list)
        place = {"run": run, "state": state, "visit": visit}
        for branch, difference in await self._query(sql.differences_of_branches, place):
            found[branch].append(difference)
        return found

    async def stop_branches(self, run: str, state: str, visit: int, *, token: str, expired: bool) -> GroupRow | None:
        """Stop the branches that have not settled; the group as it is then."""
        place = {"run": run, "state": state, "visit": visit, "now": self._given_now}

        async def stop(connection: Using) -> GroupRow | None:
            await connection.rows(sql.lock_branches, place)
            held = await connection.row(own.lock_run, {"id": run})
            before = await _group_at(connection, place)
            if before is None or held is None or held[0] != token:
                return None
            if before.is_over:
                return before
            stopped = [row[0] for row in await connection.rows(sql.stop_resting_branches, place)]
            for branch in stopped:
                await connection.change(statements.close_waits_of_run, {"run": branch, "now": self._given_now})
            await connection.rows(sql.ask_branches_to_stop, {**place, "word": STOP})
            after = before.with_settled(stopped=len(stopped)).told_to_stop(expired=expired)
            await connection.change(sql.count_group, columns_of(after))
            return after

        found: GroupRow | None = await self._pools.transaction(stop)
        return found

    async def begin_branches_again(
        self, run: str, state: str, visit: int, memories: Mapping[str, str], *, token: str, generation: int
    ) -> None:
        """Let the named branches begin again where they stood, each with its memory."""
        place = {"run": run, "state": state, "visit": visit, "now": self._given_now}

        async def begin(connection: Using) -> None:
            await connection.rows(sql.lock_branches, place)
            held = await connection.row(own.lock_run, {"id": run})
            before = await _group_at(connection, place)
            if before is None or held is None or held[0] != token:
                return
            for branch, memory in memories.items():
                values = {"id": branch, "memory": memory, "now": self._given_now}
                await connection.change(sql.begin_branch_again, values)
            await connection.change(sql.count_group, columns_of(before.begun_again(generation)))

        await self._pools.transaction(begin)
