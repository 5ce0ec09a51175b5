"""What is in a PostgreSQL database before it is used: nothing, our tables, newer ones, or somebody else's."""

from typing import Any

from sqlalchemy.schema import CreateIndex, CreateTable

from agentflow.errors import NewerSchema, NotOurDatabase, OlderSchema
from agentflow.store import statements as sql
from agentflow.store.postgres_connection import Address, Using
from agentflow.store.prepared import postgres_dialect
from agentflow.store.tables import SCHEMA, metadata

LOCK = 7_305_808_869_231_650_163  # of this program: whoever creates the tables holds it


async def prepare_database(connection: Using, address: Address) -> None:
    """Check a database, and create the tables of a fresh one. A foreign one is left as it is.

    Call it in a transaction: of several processes that find a fresh database, one creates its tables.
    """
    raw = connection.raw
    await raw.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
    if address.schema is not None and not await _is_there(raw, address.schema):
        await raw.execute(f'CREATE SCHEMA "{address.schema}"')
    if not await _is_fresh(raw, address):
        return
    dialect = postgres_dialect()
    for table in metadata.sorted_tables:
        await raw.execute(str(CreateTable(table).compile(dialect=dialect)))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            await raw.execute(str(CreateIndex(index).compile(dialect=dialect)))
    await connection.change(sql.record_schema, {"name": "product", "value": "agentflow"})
    await connection.change(sql.record_schema, {"name": "schema", "value": str(SCHEMA)})


async def _is_there(raw: Any, schema: str) -> bool:
    """Whether the schema exists: who may use it need not have the right to create one."""
    return await raw.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema) is not None


async def _is_fresh(raw: Any, address: Address) -> bool:
    """Whether none of our tables is there. Raises for what is not ours; others may share the database."""
    ours = [table.name for table in metadata.sorted_tables]
    found = await raw.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = ANY($1)",
        ours,
    )
    names = {row[0] for row in found}
    if not names:
        return True
    schema = await _schema(raw) if "meta" in names else None
    if schema is None:
        raise NotOurDatabase(
            f"{address.shown} has a table {min(names)!r} that agentflow did not write; name another database, or a schema "
            "of its own with ?schema=agentflow"
        )
    if schema < SCHEMA:
        raise OlderSchema(
            f"{address.shown} has schema {schema} of an agentflow before its first release; this one knows {SCHEMA} and "
            "cannot bring it up: name another database"
        )
    if schema > SCHEMA:
        raise NewerSchema(f"{address.shown} has schema {schema}, this agentflow knows {SCHEMA}; upgrade agentflow")
    return False


async def _schema(raw: Any) -> int | None:
    columns = await raw.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'meta'"
    )
    if {row[0] for row in columns} != {"name", "value"}:
        return None
    found = {row[0]: row[1] for row in await raw.fetch("SELECT name, value FROM meta")}
    is_ours = found.get("product") == "agentflow" and str(found.get("schema")).isdecimal()
    return int(found["schema"]) if is_ours else None
