"""Copies of the database as a power cut may leave it: each opens, is whole, and holds what was answered (T2)."""

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentflow.store.rows import Commit, Committed
from agentflow.store.sqlite import SqliteStore
from agentflow.store.sqlite_connection import Synchronous
from tests.crash import copies
from tests.crash.copies import Copier, Copy
from tests.crash.journey import app_over, travel
from tests.crash.log import Log
from tests.crash.matrix import show
from tests.crash.stores import quick_folder

RUNS = ("r1", "r2", "r3")  # at the same time, so that they are committed in groups, too
TAIL = 16 * 1024  # bytes at the end of the log where it is cut


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


class CopiedStore(SqliteStore):
    """A store that is copied after each write, once it is answered."""

    copier: Copier

    async def commit(self, commit: Commit) -> Any:
        reply = await super().commit(commit)
        if isinstance(reply, Committed):
            self.copier.acknowledge("commit", commit.run, commit.revision)
        return reply

    async def create_run(self, new: Any) -> Any:
        reply = await super().create_run(new)
        self.copier.acknowledge("create_run", new.id)
        return reply

    async def settle_effect(self, run: str, token: str, key: str, status: Any, **options: Any) -> bool:
        settled = await super().settle_effect(run, token, key, status, **options)
        self.copier.acknowledge("settle_effect", *([key] if settled else []))
        return settled

    async def begin_effect(self, claim: Any) -> Any:
        begun = await super().begin_effect(claim)
        self.copier.acknowledge("begin_effect")
        return begun

    async def decide(self, decision: Any) -> Any:
        reply = await super().decide(decision)
        self.copier.acknowledge("decide", decision.wait)
        return reply


async def copied(folder: Path, synchronous: Synchronous = "FULL") -> list[Copy]:
    """Let runs go to their end, and copy their database after each write; now and then the log is emptied."""
    target = folder / "copies"
    target.mkdir()
    store = CopiedStore(folder / "runs.db", synchronous=synchronous)
    store.copier = copier = Copier(folder / "runs.db", target)
    log = Log(folder / "log", "only")

    def sometimes(point: str) -> None:
        if point.startswith(("body shipped", "body stamp", "body bill")):
            copier.checkpoint()

    app = app_over(store, log, sometimes)
    await asyncio.gather(*(travel(app, run) for run in RUNS))
    await app.close()
    log.close()
    return copier.copies


async def test_every_copy_holds_each_answered_write_and_is_whole(folder: Path) -> None:
    taken = await copied(folder)
    wrong: dict[str, list[str]] = {}
    for copy in taken:
        with copy.opened() as database:
            if found := [*copies.broken(database), *copies.missing(copy, database)]:
                wrong[copy.folder.name] = found

    assert wrong == {}
    assert len(taken) > 100
    sizes = [copy.log.stat().st_size for copy in taken]
    assert min(sizes[20:]) < max(sizes[:20])  # the log was emptied in between


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_a_log_that_was_cut_anywhere_opens_and_every_run_in_it_is_whole(
    folder: Path, synchronous: Synchronous
) -> None:
    counts = check_cuts(await copied(folder, synchronous), every=6, times=3)

    assert counts["wrong"] == {}
    assert counts["cut"] > 40
    assert counts["lacks something"] > 0  # or the cuts have cut nothing


async def test_a_copy_that_was_cut_goes_on_from_where_it_is(folder: Path) -> None:
    taken = await copied(folder)
    rng = random.Random(5)
    for copy in rng.sample(taken[len(RUNS) :], 8):
        for _, database in copies.cut(copy, rng, times=1, newest=TAIL):
            log = Log(folder / f"log of {copy.folder.name}", "second")
            store = SqliteStore(database, clock=lambda: datetime.now(UTC) + timedelta(hours=1))  # past the old leases
            app = app_over(store, log, lambda _: None)
            ends = [await travel(app, run) for run in RUNS]
            await app.close()
            log.close()
            assert [(over.revision, str(over.end)) for over in ends] == [(20, "arrived")] * len(RUNS)


@pytest.mark.proof
@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_a_log_that_was_cut_at_many_bytes(folder: Path, synchronous: Synchronous) -> None:
    counts = check_cuts(await copied(folder, synchronous), every=1, times=20)

    show(f"cut logs, synchronous={synchronous}", list(counts.items()))
    assert counts["wrong"] == {}


def check_cuts(taken: list[Copy], *, every: int, times: int) -> dict[str, Any]:
    """Cut copies at random bytes; how many, what is wrong with them, and how many lack an answered write."""
    rng = random.Random(1)
    counts: dict[str, Any] = {"copies": len(taken), "cut": 0, "lacks something": 0, "wrong": {}}
    for copy in taken[::every]:
        for at, database in copies.cut(copy, rng, times=times, newest=TAIL):
            counts["cut"] += 1
            if found := copies.broken(database):
                counts["wrong"][f"{copy.folder.name} at {at}"] = found
            counts["lacks something"] += bool(copies.lacking(copy, database))
    return counts
