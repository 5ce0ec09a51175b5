"""The same SQLite, and the same durability, for everybody in this process, whichever library opens the database."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pysqlite3
import pysqlite3.dbapi2

LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
_opened_with: set[str] = set()


def replace_sqlite() -> str:
    """Let whoever imports `sqlite3` from now on get one recent SQLite, however the interpreter was built; its version."""
    assert "sqlite3" not in sys.modules, "somebody has the interpreter's own already"
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
    version: str = pysqlite3.sqlite_version
    return version


def pin_synchronous(level: str) -> None:
    """Let every connection that is opened from now on begin with this `PRAGMA synchronous`."""
    connect = pysqlite3.connect

    def connect_pinned(*args: Any, **options: Any) -> Any:
        connection = connect(*args, **options)
        connection.execute(f"PRAGMA synchronous={level}")
        _opened_with.add(LEVELS[connection.execute("PRAGMA synchronous").fetchone()[0]])
        return connection

    pysqlite3.connect = connect_pinned  # for Burr, LangGraph, aiosqlite and agentflow
    pysqlite3.dbapi2.connect = connect_pinned  # for SQLAlchemy, and DBOS through it


def prepare_file(path: Path) -> None:
    """A database in WAL mode, which whoever opens it later inherits."""
    connection = pysqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def file_evidence(path: Path) -> Mapping[str, Any]:
    """How a database was written, how many rows each table has, and how many bytes it takes."""
    connection = pysqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    files = [f"{path}{suffix}" for suffix in ("", "-wal")]
    return {
        "journal": journal,
        "synchronous": sorted(_opened_with),
        "rows": {name: count for name, count in rows.items() if count},
        "kept": max(rows.values()),  # at least one row for each transition
        "bytes": sum(os.path.getsize(file) for file in files if os.path.exists(file)),
    }


def what_differs(evidence: Mapping[str, Any], level: str) -> str | None:
    """How a database was written with another durability than everybody else's; None if it was not."""
    if evidence["journal"] == "wal" and evidence["synchronous"] == [level]:
        return None
    return f"not as durable as the others: {evidence['journal']}, {evidence['synchronous']}"
