"""Stores for tests of versions: each is opened by one App after the other, as deploys do, or by several at once."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from tests.scenarios.conftest import database, schema

OpenStore: TypeAlias = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.proof)])
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens one more store on the same database: what each process of a deploy does."""
    if request.param == "postgres":
        for address in schema():
            yield partial(open_store, address)
    elif request.param == "memory":
        store = MemoryStore()
        yield lambda: store
    else:
        yield partial(open_store, database(tmp_path))


@pytest.fixture
async def store(another: OpenStore) -> AsyncIterator[Store]:
    """A fresh store of each kind, open for a look at what is in it."""
    found = another()
    await found.open()
    yield found
    await found.close()
