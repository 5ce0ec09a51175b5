"""The store's clock jumps by an hour between any two steps of a run: nothing is lost, and nothing fires early."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path

import pytest
from tenacity import wait_fixed

from agentflow import Context, Question, Retry, Run, Workflow
from agentflow.app.starting import new_run
from agentflow.failures import Retryable
from agentflow.runners.local import LocalRunner, Settings
from agentflow.runners.resources import Resources
from agentflow.store.memory import MemoryStore
from agentflow.store.protocol import Store
from agentflow.store.rows import RunRow
from agentflow.store.sqlite import SqliteStore
from tests.crash.hooked import hooked
from tests.crash.in_turn import at_each_call
from tests.store.making import Clock

HOUR = timedelta(hours=1)
PAUSE, PATIENCE = timedelta(minutes=10), timedelta(minutes=30)
MANY = 2_000  # looks at a run: then it is stuck


class Case(Context):
    receipt: str = ""
    failed: str = ""
    trail: list[str] = []


class Verdict(StrEnum):
    YES = "yes"


@dataclass
class World:
    """What happened, and when by the store's clock."""

    clock: Clock
    begun: list[tuple[str, int, datetime]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    async def act(self, key: str) -> str:
        self.calls.append(key)
        await asyncio.sleep(0)
        return "paid"


patient = Workflow("patient", Case, services=World)
Running = Run[World]


async def begin(case: Case, run: Running, state: str) -> None:
    run.services.begun.append((state, run.attempt, run.services.clock.now()))
    await asyncio.sleep(0)  # the other worker may look
    case.trail.append(state)


@patient.step()
async def pay(case: Case, run: Running) -> None:
    await begin(case, run, "pay")
    case.receipt = await run.effect("pay", run.services.act, unclear="retry")


@patient.step(retry=Retry(attempts=9, wait=wait_fixed(PAUSE)))
async def shaky(case: Case, run: Running) -> None:
    await begin(case, run, "shaky")
    if len([state for state, _, _ in run.services.begun if state == "shaky"]) < 3:
        raise Retryable("not yet")


@patient.human(Verdict, expires=PATIENCE)
def ask(case: Case) -> Question:
    return Question("Well?")


@patient.step()
async def close(case: Case, run: Running) -> None:
    await begin(case, run, "close")
    case.failed = "nobody answered"


patient.build(
    start=pay,
    transitions=[
        pay.to(shaky),
        shaky.to(ask),
        ask.on(Verdict.YES).to(patient.end("answered")),
        ask.expired.to(close),
        close.to(patient.end("closed")),
    ],
)


@dataclass
class ByHand:
    """A heart that beats when it is told."""

    store: Store
    session: str
    on_loss: Callable[[], None]
    beats: bool = False

    def start(self) -> None:
        self.beats = True

    def stop(self) -> None:
        self.beats = False

    def beat(self) -> None:
        if self.beats and not self.store.renew_session(self.session):
            self.beats = False
            self.on_loss()


@dataclass
class Worker:
    """A runner that takes whatever is due."""

    runner: LocalRunner
    hearts: list[ByHand]

    def beat(self) -> None:
        for heart in list(self.hearts):
            heart.beat()


def worker_over(store: Store, world: World) -> Worker:
    hearts: list[ByHand] = []

    def make_heart(store: Store, session: str, _: float, on_loss: Callable[[], None]) -> ByHand:
        hearts.append(ByHand(store, session, on_loss))
        return hearts[-1]

    @asynccontextmanager
    async def enter() -> AsyncGenerator[World, None]:
        yield world

    definition = patient.definition
    settings = Settings(everything=True, short_wait=timedelta(0), make_heart=make_heart)
    return Worker(
        LocalRunner(
            store=store,
            definitions={(definition.name, definition.version): definition},
            resources=Resources({World: enter}, {}),
            settings=settings,
        ),
        hearts,
    )


@dataclass
class Jump:
    """The hook of the stores: at the `at`-th call, the clock jumps."""

    clock: Clock
    at: int
    by: timedelta
    met: int = 0
    where: str | None = None

    def __call__(self, point: str) -> None:
        self.met += 1
        if self.met == self.at:
            self.where = point
            self.clock.instant += self.by


def stores_of(kind: str, folder: Path, clock: Clock) -> tuple[Store, Store]:
    """A store as two processes see it."""
    if kind == "memory":
        shared = MemoryStore(clock=clock.now)
        return shared, shared
    database = folder / "runs.db"
    return SqliteStore(database, clock=clock.now), SqliteStore(database, clock=clock.now)


async def lived_with(kind: str, by: timedelta, folder: Path, at: int) -> tuple[str | None, list[str]]:
    """A run driven by two workers whose clock jumps once; where, and all that is wrong afterwards."""
    clock = Clock()
    world, jump = World(clock), Jump(clock, at, by)
    plain = stores_of(kind, folder, clock)
    await plain[0].open()
    await plain[0].create_run(new_run(patient.definition, Case(), run="r", now=clock.now(), batch=None))
    workers = [worker_over(hooked(store, jump), world) for store in plain]
    for worker in workers:
        await worker.runner.start()
    over = await until_over(plain[0], workers, clock)
    found = [*wrong_with(over, world), *await wrong_in(plain[0], world)]
    for worker in workers:
        await worker.runner.stop()
        await worker.runner.resources.close()
    for store in plain:
        await store.close()
    return jump.where, found


async def until_over(store: Store, workers: list[Worker], clock: Clock) -> RunRow:
    """Let the workers work; where nothing is at work, let time pass until something is due."""
    for _ in range(MANY):
        for worker in workers:
            worker.beat()
            await worker.runner.until_changed("r")
        row = await store.run("r")
        assert row is not None  # it was created
        if row.standing.status in {"completed", "failed", "cancelled"}:
            return row
        due = await store.next_due()
        if row.session is None and due is not None:
            clock.instant = max(clock.instant, due)
    raise AssertionError(f"it is stuck: {await store.run('r')}")


def wrong_with(over: RunRow, world: World) -> list[str]:
    ended = (over.standing.status, over.standing.end, over.revision)
    found = [] if ended == ("completed", "closed", 4) else [f"it ended as {ended}"]
    if set(world.calls) != {"r:pay:1:pay"} or len(world.calls) > 2:
        found.append(f"calls: {world.calls}")
    return found


async def wrong_in(store: Store, world: World) -> list[str]:
    """What fired before it was due, by the store's clock, or is not as it must be in the books."""
    history = await store.history("r")
    [wait] = await store.waits(run="r", status=None)
    [effect] = await store.effects(run="r")
    path = [(line.revision, line.source) for line in history[1:]]
    found = [] if path == [(1, "pay"), (2, "shaky"), (3, "ask"), (4, "close")] else [f"path {path}"]
    if wait.status != "expired" or wait.due_at is None or wait.closed_at is None or wait.closed_at < wait.due_at:
        found.append(f"wait {wait}")
    if effect.status != "done":
        found.append(f"effect {effect}")
    for failed in await store.attempts("r"):
        after = [at for state, number, at in world.begun if state == failed.state and number == failed.attempt + 1]
        if failed.retry_at is not None and after and min(after) < failed.retry_at:
            found.append(f"attempt {failed.attempt + 1} at {min(after)}, due at {failed.retry_at}")
    if await store.stranded(limit=10):
        found.append("stranded")
    return found


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("by", [-HOUR, HOUR], ids=["back", "ahead"])
async def test_a_clock_that_jumps_between_two_steps_loses_nothing_and_fires_nothing_early(
    kind: str, by: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentflow.runners.local.POLL", 0.001)
    tried = await at_each_call(partial(lived_with, kind, by))

    assert not tried.wrong, tried.told()
    assert tried.calls > 60
