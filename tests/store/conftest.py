"""The stores that keep the contract, each over a clock that is moved by hand."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from agentflow.store.memory import MemoryStore
from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore
from tests.store.making import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncGenerator[Store, None]:
    made: Store = (
        MemoryStore(clock=clock.now)
        if request.param == "memory"
        else SqliteStore(tmp_path / "runs.db", clock=clock.now)
    )
    await made.open()
    yield made
    await made.close()
