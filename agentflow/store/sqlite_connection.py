"""Connections to one SQLite file: how a write begins and ends, and what the driver's errors mean.

A write transaction takes the write lock when it begins (`BEGIN IMMEDIATE`): a read lock cannot be upgraded, so any
later moment fails at once under contention. SQLite's own wait for the lock is unfair, so it is switched off and
replaced by short, jittered tries.
"""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar

from agentflow.errors import InvalidInput, NotOurDatabase, StoreBusy, StoreError, StoreUnavailable
from agentflow.store.prepared import Statement

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

PATIENCE = 10.0  # seconds for the write lock
FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.02
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Connection:
    """One connection of the driver behind a lock, so that any thread may use it; opened anew after it broke."""

    def __init__(self, path: Path, synchronous: Synchronous, patience: float, *, only_reads: bool) -> None:
        self.path = path
        self._synchronous = synchronous
        self._patience = patience
        self._only_reads = only_reads
        self._lock = threading.Lock()
        self._raw: sqlite3.Connection | None = None
        self._is_open = False

    # --- lifetime ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Allow its use; it connects when it is needed."""
        self._is_open = True

    def connect(self) -> None:
        """Connect now, so that no first query pays for it."""
        with self._lock:
            self.raw()

    def close(self) -> None:
        """Let go of the file once whoever uses it has finished."""
        with self._lock:
            self._is_open = False
            self._drop()

    def raw(self) -> sqlite3.Connection:
        """The driver's connection. Call it with the lock held."""
        if self._raw is None:
            self._raw = self._connect()
        return self._raw

    def _connect(self) -> sqlite3.Connection:
        if not self._is_open:
            raise StoreUnavailable(f"database {self.path} is not open; call open() first")
        wait = self._patience if self._only_reads else 0
        raw = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=wait, cached_statements=256
        )
        try:
            pragma = "PRAGMA query_only = ON" if self._only_reads else f"PRAGMA synchronous = {self._synchronous}"
            self.patiently(lambda: raw.execute(pragma))  # it reads the file, which another process may be creating
        except BaseException:
            raw.close()
            raise
        return raw

    def _drop(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()

    # --- queries -----------------------------------------------------------------------------------------------

    def query(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        """The rows of a query, in a transaction of its own."""
        with self._lock:
            try:
                prepared = statement.sqlite
                return self.raw().execute(prepared.text, prepared.order(values)).fetchall()
            except sqlite3.Error as error:
                raise self.ours(error) from error

    # --- a write transaction -----------------------------------------------------------------------------------

    def __enter__(self) -> "Writing":
        """Begin a write: all of the block is written, or nothing of it."""
        self._lock.acquire()
        try:
            raw = self.raw()
            try:
                raw.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                self.patiently(lambda: raw.execute("BEGIN IMMEDIATE"))
            return Writing(raw)
        except BaseException as error:
            self._roll_back()
            self._lock.release()
            if isinstance(error, sqlite3.Error):
                raise self.ours(error) from error
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit()
            else:
                self._roll_back()
        finally:
            self._lock.release()
        if isinstance(error, Exception) and (ours := self.as_ours(error)) is not error:
            raise ours from error

    def _commit(self) -> None:
        try:
            self.raw().execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self.ours(error) from error

    def _roll_back(self) -> None:
        """Undo what was begun; a connection that cannot even do that is replaced."""
        try:
            if self._raw is not None and self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop()

    def patiently(self, act: Callable[[], T]) -> T:
        """Do it as soon as nobody else holds the lock that it needs; the driver's error after too long."""
        give_up_at = time.monotonic() + self._patience
        pause = FIRST_PAUSE
        while True:
            try:
                return act()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= give_up_at:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  jitter, no secret
            pause = min(pause * 2, LONGEST_PAUSE)

    # --- errors ------------------------------------------------------------------------------------------------

    def as_ours(self, error: Exception) -> Exception:
        """What the driver raised in our words; anything else as it is."""
        if isinstance(error, sqlite3.Error):
            return self.ours(error)
        if isinstance(error, OverflowError | UnicodeEncodeError):
            return InvalidInput(f"a value cannot be stored: {error}")
        return error

    def ours(self, error: sqlite3.Error) -> StoreError:
        """The driver's error in our words: which file, what, and how to mend it."""
        code = code_of(error)
        if code == sqlite3.SQLITE_NOTADB:
            return NotOurDatabase(f"{self.path} is no SQLite database; name another file")
        if code in BUSY:
            return StoreBusy(
                f"database {self.path}: another process has held the write lock for {self._patience:g} s and nothing "
                "was written; end what holds it (a backup, a database browser?) and try again"
            )
        if code == sqlite3.SQLITE_CANTOPEN and not self.path.parent.is_dir():
            return StoreUnavailable(f"database {self.path}: there is no folder {self.path.parent}; create it")
        if code in UNAVAILABLE:
            return StoreUnavailable(f"database {self.path} {UNAVAILABLE[code]}; nothing was written")
        return StoreError(f"database {self.path} refused a statement and nothing was written: {error}")


class Writing:
    """A write transaction that has begun."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw

    def change(self, statement: Statement, values: Mapping[str, Any]) -> int:
        """Run a statement; the number of rows that it changed."""
        prepared = statement.sqlite
        return self.raw.execute(prepared.text, prepared.order(values)).rowcount

    def rows(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        """Run a statement that returns rows."""
        prepared = statement.sqlite
        return self.raw.execute(prepared.text, prepared.order(values)).fetchall()

    def row(self, statement: Statement, values: Mapping[str, Any]) -> Row | None:
        """The one row of a statement, if it returns any."""
        rows = self.rows(statement, values)
        return rows[0] if rows else None


UNAVAILABLE: Mapping[int, str] = {
    sqlite3.SQLITE_FULL: "is full: make room on its disk",
    sqlite3.SQLITE_READONLY: "is read-only: give this process the right to write it and its folder",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: it must be a file in a folder where this process may write",
    sqlite3.SQLITE_IOERR: "cannot be read or written: check its disk",
    sqlite3.SQLITE_PERM: "may not be opened: give this process the right to",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a backup",
    sqlite3.SQLITE_NOMEM: "cannot be used for want of memory",
}


def code_of(error: sqlite3.Error) -> int:
    """The primary result code; 0 for what the driver itself finds."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds a lock."""
    return code_of(error) in BUSY
