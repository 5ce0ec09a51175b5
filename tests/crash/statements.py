"""Points within the work of a database: each statement of a write transaction, on SQLite its beginning and end too."""

import functools
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from agentflow.store.prepared import Statement
from tests.crash.points import Hook

real_connect = sqlite3.connect


class HookedConnection(sqlite3.Connection):
    """A connection of the driver that announces what it is told to write."""

    hook: Hook

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        begins = sql.startswith(("BEGIN", "PRAGMA journal_mode"))
        if not begins and not self.in_transaction:
            return super().execute(sql, parameters)
        told = " ".join(sql.split()[:3])
        if told == "COMMIT":
            self.hook(f"{told}:before")
        answer = super().execute(sql, parameters)
        try:
            self.hook(f"{told}:after")
        except sqlite3.Error:
            answer.close()  # a statement that fails in the driver is over
            raise
        return answer


@contextmanager
def hooked(address: str, hook: Hook) -> Iterator[None]:
    """Connections that are opened within the block announce their statements."""
    with _on_sqlite(hook) if address.startswith("sqlite:") else _on_postgres(hook):
        yield


@contextmanager
def _on_sqlite(hook: Hook) -> Iterator[None]:
    made = type("Hooked", (HookedConnection,), {"hook": staticmethod(hook)})
    with mock.patch.object(sqlite3, "connect", functools.partial(real_connect, factory=made)):
        yield


@contextmanager
def _on_postgres(hook: Hook) -> Iterator[None]:
    from agentflow.store.postgres_connection import Using  # noqa: PLC0415  its driver may be missing

    def announced(method: Any) -> Any:
        @functools.wraps(method)
        async def call(using: Using, statement: Statement, values: Mapping[str, Any]) -> Any:
            answer = await method(using, statement, values)
            if using.raw.is_in_transaction():
                hook(f"{' '.join(statement.postgres.text.split()[:3])}:after")
            return answer

        return call

    with (
        mock.patch.object(Using, "rows", announced(Using.rows)),
        mock.patch.object(Using, "change", announced(Using.change)),
    ):
        yield
