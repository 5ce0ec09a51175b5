"""The stores that proofs run over."""

from collections.abc import Iterator

import pytest

from tests import postgres
from tests.crash.stores import NO_POSTGRES, Kind, kind_of


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """A store for each of many runs, and a folder for what happened in them."""
    if request.param == "postgres" and postgres.server() is None:
        pytest.skip(NO_POSTGRES)
    with kind_of(request.param) as made:
        yield made


@pytest.fixture
def on_disk() -> Iterator[Kind]:
    """The same for what SQLite alone has: statements under a write lock, and lock files."""
    with kind_of("sqlite") as made:
        yield made
