"""A store that fails before or after it did its work, at each call of each method: nothing lost, nothing doubled."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import App
from agentflow.errors import StoreError, StoreUnavailable
from agentflow.runners import local
from agentflow.store.memory import MemoryStore
from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore
from tests.matrix import flow
from tests.matrix.hooks import HookedStore
from tests.matrix.lives import Lives, problems

WITHIN = 30.0

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "runs.db", synchronous="NORMAL"),
}


class Fails:
    """Raises at the point of that number, once; `open` and `close` are not counted: nothing has begun or all is over."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points: list[str] = []
        self.failed: str | None = None

    def reach(self, point: str) -> None:
        if point.endswith((" open", " close")):
            return
        self.points.append(point)
        if len(self.points) == self.at:
            self.failed = point
            raise StoreUnavailable(f"planted {point}")


async def insistently(verb: Callable[[], Any]) -> Any:
    """Repeat a verb for as long as the store is in trouble."""
    while True:
        try:
            return await verb()
        except StoreError:
            await asyncio.sleep(0)


async def life(store: Store, fails: Fails, log: Path) -> Lives:
    hooked: Any = HookedStore(store, fails.reach)
    app = App([flow.flow], store=hooked)
    async with asyncio.timeout(WITHIN):
        found = await insistently(lambda: flow.finish(app))
        history = await insistently(lambda: app.history("r"))
        with contextlib.suppress(StoreError):
            await app.close()
    await store.open()
    seen = {
        "status": found.status,
        "end": found.end.name if found.end is not None else None,
        "context": found.context.model_dump(mode="json"),
        "history": [[row.number, row.source, row.target, row.failure.kind if row.failure else None] for row in history],
        "effects": [],
        "attempts": [[row.state, row.visit, row.attempt, row.outcome] for row in await store.attempts("r")],
    }
    await store.close()
    killed = None if fails.failed is None else fails.failed.replace(" ", "_")
    return Lives(fails.at, killed, lines_of(log), seen)


def lines_of(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "TROUBLE", 0.001)
    monkeypatch.setattr(local, "POLL", 0.005)


@pytest.mark.parametrize("kind", STORES)
async def test_a_store_that_fails_once_at_any_call_harms_no_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pauses: None
) -> None:
    async def at(number: int) -> tuple[Lives, Fails]:
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.setenv("MATRIX_LOG", str(folder / "log"))
        (folder / "log").touch()
        fails = Fails(number)
        return await life(STORES[kind](folder), fails, folder / "log"), fails

    whole, counted = await at(0)
    assert problems(whole, whole.seen) == []
    names = {point.partition(" ")[2] for point in counted.points}
    assert {"create_run", "claim_runs", "commit", "begin_effect", "settle_effect", "decide", "wait", "run"} <= names
    found: list[str] = []
    for number in range(1, len(counted.points) + 1):
        lives, _ = await at(number)
        found += problems(lives, whole.seen)
    assert found == []
