"""Stores for scenarios."""

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store, of either kind."""
    return "memory:" if request.param == "memory" else database(tmp_path)


@pytest.fixture
def on_disk(tmp_path: Path) -> str:
    """The address of a fresh SQLite store, which several processes may open."""
    return database(tmp_path)


def database(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"
