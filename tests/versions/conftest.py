"""Stores for tests of versions: each is opened by one App after the other, as deploys do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from tests.scenarios.conftest import database, schema


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.proof)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store of each kind."""
    if request.param == "postgres":
        for address in schema():
            yield open_store(address)
    else:
        yield MemoryStore() if request.param == "memory" else open_store(database(tmp_path))
