"""Follow a run, whoever drives it: its transitions as they are committed."""

import asyncio
from collections.abc import AsyncIterator

from agentflow.app.reading import revision_of
from agentflow.errors import NotFound
from agentflow.model.views import Revision
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL
from agentflow.store.texts import is_storable

POLL = 0.2  # how often the store is asked for what another process may have committed, in seconds
PAGE = 500


async def transitions_of(store: Store, run: str) -> AsyncIterator[Revision]:
    """Every line of a run's history, from its start on, until the run has ended. Raises `NotFound`."""
    await store.open()
    last = -1
    while True:
        row = (
            await store.run(run) if is_storable(run) else None
        )  # before its history: what ends the run is then surely in it
        if row is None:
            raise NotFound(f"there is no run {run!r}")
        while lines := await store.history(run, after=last, limit=PAGE):
            for line in lines:
                last = line.revision
                yield revision_of(line)
        if row.standing.status in TERMINAL:
            return
        await asyncio.sleep(POLL)
