"""Definitions in PostgreSQL, and runs that come under another version or shape of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.store import ledger_statements as ledger
from agentflow.store import postgres_statements
from agentflow.store import statements as sql
from agentflow.store import version_statements as own
from agentflow.store.mapping import columns_of, row_of
from agentflow.store.postgres_connection import Pools, Row, Using
from agentflow.store.prepared import Statement
from agentflow.store.relocating import expected_waits, moved_columns, relocation_columns, relocation_history
from agentflow.store.rows import DefinitionRow, Relocation, WaitRow


class VersionsInPostgres:
    """The part of a `PostgresStore` that knows definitions."""

    _pools: Pools

    def _now(self) -> int:
        raise AssertionError("the store has the clock")

    @property
    def _given_now(self) -> int | None:
        raise AssertionError("the store has the clock")

    async def _query(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        raise AssertionError("the store reads")

    async def record_definition(self, row: DefinitionRow) -> None:
        """Keep what a workflow is, unless its workflow, version and shape are known."""
        async with self._pools.using() as connection:
            await connection.change(own.record_definition, columns_of(row))

    async def definitions(self, workflow: str | None = None) -> Sequence[DefinitionRow]:
        """What is known of workflows, in the order in which it was first seen."""
        rows = await self._query(own.list_definitions(of_workflow=workflow is not None), {"workflow": workflow})
        return [row_of(DefinitionRow, row) for row in rows]

    async def adopt(self, run: str, token: str, shape: str) -> bool:
        """Let a claimed run stand under another shape of its definition; False if the claim is lost."""
        values = {"id": run, "token": token, "shape": shape, "now": self._given_now}
        async with self._pools.using() as connection:
            return await connection.change(own.adopt_run, values) == 1

    async def relocate(self, change: Relocation) -> bool:
        """Put an unclaimed run under another version or shape; False, and nothing is written, if it changed."""
        now = self._given_now
        columns = relocation_columns(change, self._now()) | {"now": now}

        async def put(connection: Using) -> bool:
            await connection.row(postgres_statements.lock_run, columns)  # whoever answers a wait of it takes it, too
            known = {"run": change.command.run, "request": change.command.request}
            if change.command.request is not None and await connection.row(sql.command_of_request, known) is not None:
                return False
            if not await _waits_are_as_expected(connection, change):
                return False
            if await connection.change(own.relocate_run, columns) == 0:
                return False
            await _add_rows(connection, change, now)
            return True

        return await self._pools.transaction(put)


async def _waits_are_as_expected(connection: Using, change: Relocation) -> bool:
    for wait, status in expected_waits(change).items():
        row = await connection.row(sql.one_wait, {"id": wait})
        if row is None or row_of(WaitRow, row).status != status:
            return False
    return True


async def _add_rows(connection: Using, change: Relocation, now: int | None) -> None:
    run = change.command.run
    await connection.change(sql.add_history, relocation_history(change))
    for closed in change.closes:
        await connection.change(sql.close_wait, {"id": closed, "run": run, "now": now})
    for old, wait in change.moves:
        await connection.change(own.move_wait, moved_columns(old, wait))
    for digest, content in sorted(change.values):
        await connection.change(ledger.keep_value, {"digest": digest, "content": content})
    await connection.change(sql.record_command, columns_of(change.command))
