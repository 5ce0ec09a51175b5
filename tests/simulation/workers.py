"""Virtual workers: real `LocalRunner`s on the virtual loop, and the cluster that loses and replaces them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from agentflow.engine.head import Head
from agentflow.errors import StoreError
from agentflow.model.definition import Definition
from agentflow.runners.local import LocalRunner, Settings
from agentflow.runners.resources import Resources
from agentflow.store.protocol import Store
from tests.simulation.faults import FaultyStore, Weather
from tests.simulation.loop import Lane, VirtualLoop
from tests.simulation.records import Records
from tests.simulation.world import Desk, World


class VirtualHeart:
    """Renews a session's lease from a task of the worker: it stops when the worker is frozen or dead."""

    def __init__(self, store: Store, session: str, interval: float, on_loss: Callable[[], None]) -> None:
        self._store = store
        self._session = session
        self._interval = interval
        self._on_loss = on_loss
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._beat(), name="heart")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                alive = self._store.renew_session(self._session)
            except StoreError:
                continue
            if not alive:
                self._on_loss()
                return

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


@dataclass(slots=True)
class Worker:
    """One process that drives everything that is due."""

    name: str
    loop: VirtualLoop
    records: Records
    network: Lane
    lane: Lane
    is_mortal: bool = True
    stopping: bool = False
    runner: LocalRunner | None = None

    def die(self, why: str) -> None:
        """It is gone, between two instructions."""
        if not self.lane.dead:
            self.records.excuse(self.name, "dies", why)
            self.loop.kill(self.lane)

    def freeze(self, seconds: float, why: str) -> None:
        """It stands still for a while, and does not know."""
        if self.lane.dead or self.lane.frozen:
            return
        self.records.excuse(self.name, "freezes", f"{seconds:.2f} s", why)
        self.lane.frozen = True
        self.loop.call_later(seconds, self._thaw, context=self.network.context())

    def _thaw(self) -> None:
        if not self.lane.dead:
            self.records.excuse(self.name, "thaws")
            self.lane.frozen = False

    @property
    def is_alive(self) -> bool:
        return not self.lane.dead


@dataclass(slots=True)
class Cluster:
    """The workers of one simulation, and what happens to them."""

    make_store: Callable[[Worker], FaultyStore]
    definitions: Mapping[tuple[str, int], Definition]
    world: World
    weather: Weather
    records: Records
    loop: VirtualLoop
    network: Lane
    size: int
    heartbeat: float
    short_wait: timedelta
    workers: list[Worker] = field(default_factory=list)

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_alive]

    def add(self) -> None:
        """A fresh worker."""
        name = f"w{len(self.workers) + 1}"
        worker = Worker(name, self.loop, self.records, self.network, Lane(name))
        self.workers.append(worker)
        self.records.tell(name, "comes")
        self.loop.spawn(self._work(worker), worker.lane.context())

    async def keep(self) -> None:
        """Replace the dead, and end, freeze or stop some of the living, as the seed says."""
        while True:
            await asyncio.sleep(self.weather.between(0.2, 0.6))
            if len(self.alive) < self.size:
                self.add()
            if self.weather.happens(self.weather.rates.moves * 0.4):
                self._move()

    def _move(self) -> None:
        standing = [worker for worker in self.alive if not worker.lane.frozen]
        if not standing:
            return
        worker = standing[int(self.weather.rng.random() * len(standing))]
        drawn = self.weather.rng.random()
        if drawn < 0.4:
            worker.die("killed")
        elif drawn < 0.8:
            worker.freeze(self.weather.between(0.1, self.weather.rates.frozen), "stopped by a signal")
        elif not worker.stopping:
            worker.stopping = True
            self.records.excuse(worker.name, "stops")
            self.loop.spawn(self._stop(worker), worker.lane.context())

    # --- inside of a worker --------------------------------------------------------------------------------------

    async def _work(self, worker: Worker) -> None:
        store = cast("Store", self.make_store(worker))
        worker.runner = runner = LocalRunner(
            store=store,
            definitions=self.definitions,
            resources=Resources({Desk: self._factory(worker)}, {}),
            settings=self._settings(worker),
        )
        while not worker.stopping:
            with contextlib.suppress(StoreError):
                await runner.start()
                return
            await asyncio.sleep(0.3)

    def _factory(self, worker: Worker) -> Any:
        @asynccontextmanager
        async def enter() -> AsyncGenerator[Desk, None]:
            yield Desk(self.world, worker)

        return enter

    def _settings(self, worker: Worker) -> Settings:
        def committed(head: Head) -> None:
            self.records.shown.append((head.run, head.revision, dict(head.kept.texts)))

        def heart(store: Store, session: str, interval: float, on_loss: Callable[[], None]) -> VirtualHeart:
            return VirtualHeart(store, session, interval, lambda: self._lose(worker, on_loss))

        return Settings(
            everything=True,
            concurrency=4,
            drain=timedelta(seconds=1),
            heartbeat=self.heartbeat,
            short_wait=self.short_wait,
            on_commit=committed,
            make_heart=heart,
        )

    def _lose(self, worker: Worker, on_loss: Callable[[], None]) -> None:
        self.records.excuse(worker.name, "loses its lease")
        on_loss()

    async def _stop(self, worker: Worker) -> None:
        """A graceful stop; a process that cannot say good-bye ends all the same."""
        with contextlib.suppress(StoreError):
            if worker.runner is not None:
                await worker.runner.stop()
        worker.die("has stopped")
