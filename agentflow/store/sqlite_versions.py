"""Definitions in SQLite, and runs that come under another version or shape of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.store import statements as sql
from agentflow.store import version_statements as own
from agentflow.store.mapping import columns_of, row_of
from agentflow.store.prepared import Statement
from agentflow.store.relocating import expected_waits, moved_columns, relocation_columns, relocation_history
from agentflow.store.rows import DefinitionRow, Relocation, WaitRow
from agentflow.store.sqlite_commits import keep_values
from agentflow.store.sqlite_connection import Connection, Row, Writing


class VersionsInSqlite:
    """The part of a `SqliteStore` that knows definitions."""

    _writer: Connection

    def _now(self) -> int:
        raise AssertionError("the store has the clock")

    def _query(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        raise AssertionError("the store reads")

    async def record_definition(self, row: DefinitionRow) -> None:
        """Keep what a workflow is, unless its workflow, version and shape are known."""
        with self._writer as writing:
            writing.change(own.record_definition, columns_of(row))

    async def definitions(self, workflow: str | None = None) -> Sequence[DefinitionRow]:
        """What is known of workflows, in the order in which it was first seen."""
        rows = self._query(own.list_definitions(of_workflow=workflow is not None), {"workflow": workflow})
        return [row_of(DefinitionRow, row) for row in rows]

    async def adopt(self, run: str, token: str, shape: str) -> bool:
        """Let a claimed run stand under another shape of its definition; False if the claim is lost."""
        values = {"id": run, "token": token, "shape": shape, "now": self._now()}
        with self._writer as writing:
            return writing.change(own.adopt_run, values) == 1

    async def relocate(self, change: Relocation) -> bool:
        """Put an unclaimed run under another version or shape; False, and nothing is written, if it changed."""
        now = self._now()
        columns = relocation_columns(change, now) | {"now": now}
        known = {"run": change.command.run, "request": change.command.request}
        with self._writer as writing:
            if change.command.request is not None and writing.row(sql.command_of_request, known) is not None:
                return False
            if not _waits_are_as_expected(writing, change) or writing.change(own.relocate_run, columns) == 0:
                return False
            _add_rows(writing, change, now)
        return True


def _waits_are_as_expected(writing: Writing, change: Relocation) -> bool:
    for wait, status in expected_waits(change).items():
        row = writing.row(sql.one_wait, {"id": wait})
        if row is None or row_of(WaitRow, row).status != status:
            return False
    return True


def _add_rows(writing: Writing, change: Relocation, now: int) -> None:
    run = change.command.run
    writing.change(sql.add_history, relocation_history(change))
    for closed in change.closes:
        writing.change(sql.close_wait, {"id": closed, "run": run, "now": now})
    for old, wait in change.moves:
        writing.change(own.move_wait, moved_columns(old, wait))
    keep_values(writing, change.values)
    writing.change(sql.record_command, columns_of(change.command))
