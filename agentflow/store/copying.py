"""Move a database: copy everything into an empty one, of the same kind or another, in one transaction of the target.

Rows are copied in the order in which they were written. Sessions stay behind, so a run that was in the hands of a dead
worker arrives unclaimed and due; while a worker lives, copying is refused. In the end both sides are counted.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Table, func, select

from agentflow.errors import Conflict, RequestError, StoreError
from agentflow.store import statements as sql
from agentflow.store.instants import to_number
from agentflow.store.prepared import Statement, given
from agentflow.store.protocol import Store
from agentflow.store.tables import (
    attempts,
    commands,
    definitions,
    effects,
    history,
    kept_values,
    runs,
    segments,
    waits,
)

COPIED = (definitions, runs, history, segments, attempts, waits, effects, commands, kept_values)
PAGE = 500
Fill: TypeAlias = Callable[[Statement, Mapping[str, Any]], Awaitable[None]]


class Copyable(Protocol):
    """A store whose rows can be read and written as they are."""

    async def page(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of a statement."""
        ...

    def filling(self) -> AbstractAsyncContextManager[Fill]:
        """A transaction that rows are written in: all of the block, or nothing."""
        ...


async def copy_store(source: Store, target: Store) -> Mapping[str, int]:
    """Copy all rows; how many, by table.

    Raises `Conflict` if the target holds something, or if a worker of the source is alive; `RequestError` for a store
    that has no database. Nothing is written then.
    """
    for store in (source, target):
        if not hasattr(store, "filling"):
            raise RequestError("only databases can be copied: sqlite:///... or postgresql://...")
    await source.open()
    await target.open()
    reading: Any = source
    writing: Any = target
    await _check(source, reading, writing)
    copied = {table.name: 0 for table in COPIED}
    async with writing.filling() as fill:
        for table in COPIED:
            copied[table.name] = await _copy_table(table, reading, fill, to_number(source.now()))
    await _compare(reading, writing, copied)
    return copied


async def _check(source: Store, reading: Copyable, writing: Copyable) -> None:
    now = source.now()
    alive = [row.name for row in await source.sessions() if row.lease_until > now]
    if alive:
        raise Conflict(
            f"a worker is at work on the source ({', '.join(alive)}); stop it, or wait until its lease is over"
        )
    for table in COPIED:
        if (await writing.page(_count(table), {}))[0][0]:
            raise Conflict(f"the target has rows in {table.name!r} already; name an empty database")


async def _copy_table(table: Table, reading: Copyable, fill: Fill, now: int) -> int:
    names = [column.name for column in sql.columns_to_fill(table)]
    after, count = -1, 0
    while rows := await reading.page(_page(table), {"after": after, "limit": PAGE}):
        for seq, *values in rows:
            after = seq
            columns = dict(zip(names, values, strict=True))
            await fill(_fill(table), _unclaimed(columns, now) if table is runs else columns)
        count += len(rows)
    return count


def _unclaimed(columns: dict[str, Any], now: int) -> dict[str, Any]:
    """A run as it arrives: in nobody's hands, and due if it was in somebody's."""
    if columns["session"] is None:
        return columns
    status = "queued" if columns["status"] == "running" else columns["status"]
    return {**columns, "session": None, "token": None, "status": status, "due_at": now}


async def _compare(reading: Copyable, writing: Copyable, copied: Mapping[str, int]) -> None:
    """Raise `StoreError` if the two sides differ in the number of rows or in a run's last revision."""
    for table in COPIED:
        found = (await writing.page(_count(table), {}))[0][0]
        if found != copied[table.name]:
            raise StoreError(
                f"the copy has {found} rows in {table.name!r} instead of {copied[table.name]}; do not use it"
            )
    left, right = [(await side.page(_last_revisions(), {}))[0] for side in (reading, writing)]
    if tuple(left) != tuple(right):
        raise StoreError(f"the copy's histories end at {tuple(right)} instead of {tuple(left)}; do not use it")


# --- statements --------------------------------------------------------------------------------------------------


@lru_cache
def _page(table: Table) -> Statement:
    columns = [table.c.seq, *sql.columns_to_fill(table)]
    return Statement(
        lambda: select(*columns).where(table.c.seq > given("after")).order_by(table.c.seq).limit(given("limit"))
    )


@lru_cache
def _fill(table: Table) -> Statement:
    return Statement(lambda: sql.row_for(table))


@lru_cache
def _count(table: Table) -> Statement:
    return Statement(lambda: select(func.count()).select_from(table))


@lru_cache
def _last_revisions() -> Statement:
    """How many runs there are, and the sum of their revisions beside that of their histories."""
    steps = select(func.count()).select_from(history).where(history.c.revision > sql.ZERO).scalar_subquery()
    return Statement(lambda: select(func.count(), func.sum(runs.c.revision), steps).select_from(runs))
