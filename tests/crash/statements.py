"""Points within the work of a SQLite store: each statement of a write transaction, its beginning and its end."""

import functools
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

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
def hooked(hook: Hook) -> Iterator[None]:
    """Connections that are opened within the block announce their statements."""
    made = type("Hooked", (HookedConnection,), {"hook": staticmethod(hook)})
    with mock.patch.object(sqlite3, "connect", functools.partial(real_connect, factory=made)):
        yield
