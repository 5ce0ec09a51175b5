"""Runs that may still go on: those that are not over, and those that failed and may be retried."""

from collections.abc import AsyncIterator

from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter, RunRow, RunStatus

OPEN: tuple[RunStatus, ...] = ("queued", "running", "waiting", "cancelling", "compensating")
PAGE = 500


async def open_runs(store: Store, workflow: str | None = None, *, failed: bool) -> AsyncIterator[RunRow]:
    """Their rows; with `failed` those that failed without reaching an end, too. One that moves on may come twice."""
    for status in (*OPEN, "failed") if failed else OPEN:
        after: str | None = None
        while True:
            rows = await store.runs(RunFilter(workflow=workflow, status=status, after=after, limit=PAGE))
            for row in rows:
                if row.standing.end is None:
                    yield row
            if len(rows) < PAGE:
                break
            after = rows[-1].id
