"""What is in a SQLite file before it is used: nothing, our tables, newer ones, or somebody else's."""

import sqlite3
from pathlib import Path

from sqlalchemy.schema import CreateIndex, CreateTable

from agentflow.errors import NewerSchema, NotOurDatabase, OlderSchema, StoreUnavailable
from agentflow.store import statements as sql
from agentflow.store.prepared import SQLITE
from agentflow.store.sqlite_connection import Connection
from agentflow.store.tables import SCHEMA, metadata

OLDEST_SQLITE = (3, 35, 0)  # the first with RETURNING


def prepare_database(writer: Connection) -> None:
    """Check a database, and create the tables of a fresh one. A foreign one is left as it is."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailable(f"this Python has SQLite {sqlite3.sqlite_version}; agentflow needs 3.35 or newer")
    try:
        raw = writer.raw()
        is_fresh = writer.patiently(lambda: _is_fresh(raw, writer.path))
        mode = writer.patiently(lambda: raw.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    except sqlite3.Error as error:
        raise writer.ours(error) from error
    if mode != "wal":
        raise StoreUnavailable(
            f"database {writer.path}: its file system has no shared memory for a write-ahead log; use a local disk"
        )
    if is_fresh:
        _create_tables(writer)


def _is_fresh(raw: sqlite3.Connection, path: Path) -> bool:
    """Whether nothing is in it. Raises for what is not ours."""
    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return True
    schema = _schema(raw) if "meta" in tables else None
    if schema is None:
        raise NotOurDatabase(
            f"{path} is a database that agentflow did not write: it has a table {min(tables)!r}; name another file"
        )
    if schema < SCHEMA:
        raise OlderSchema(
            f"{path} has schema {schema} of an agentflow before its first release; this one knows {SCHEMA} and cannot "
            "bring it up: name another file, and keep this one for the agentflow that wrote it"
        )
    if schema > SCHEMA:
        raise NewerSchema(f"{path} has schema {schema}, this agentflow knows {SCHEMA}; upgrade agentflow")
    return False


def _schema(raw: sqlite3.Connection) -> int | None:
    try:
        found = dict(raw.execute("SELECT name, value FROM meta").fetchall())
    except sqlite3.OperationalError:
        return None  # a table of that name, but with other columns
    is_ours = found.get("product") == "agentflow" and str(found.get("schema")).isdecimal()
    return int(found["schema"]) if is_ours else None


def _create_tables(writer: Connection) -> None:
    """Of several processes that find a fresh file, one creates its tables."""
    with writer as writing:
        if not _is_fresh(writing.raw, writer.path):
            return
        for table in metadata.sorted_tables:
            writing.raw.execute(str(CreateTable(table).compile(dialect=SQLITE)))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                writing.raw.execute(str(CreateIndex(index).compile(dialect=SQLITE)))
        writing.change(sql.record_schema, {"name": "product", "value": "agentflow"})
        writing.change(sql.record_schema, {"name": "schema", "value": str(SCHEMA)})
