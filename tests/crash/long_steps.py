"""Bodies that last until the test lets them go, and the workers around them (B64).

A body waits on a named pipe that the test opens: in a coroutine, in a thread, or in a coroutine that holds up its loop.
"""

import asyncio
import os
import select
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from agentflow import App, Context, Run, SyncRun, Workflow
from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter
from tests.crash.forks import WITHIN
from tests.crash.log import Log
from tests.crash.stores import open_store

LEASE = timedelta(seconds=2)
BEAT = 0.2  # seconds


class Case(Context):
    told: str = ""


class Gate:
    """Where bodies wait: a named pipe for each run, and one that says who has come."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.folder = folder
        self.log = log

    def wait(self, run: str) -> str:
        """Say that the body of this run has come, and wait until it may go."""
        self.log.act("begun", run)
        with (self.folder / "arrivals").open("w", encoding="utf-8") as arrivals:
            arrivals.write(f"{run}\n")
        with (self.folder / run).open(encoding="utf-8") as pipe:  # opens once the test has opened the other end
            said = pipe.readline()
        self.log.act("returned", run)
        return said


class Keeper:
    """The test's side of a gate. It never blocks without a limit."""

    def __init__(self, folder: Path, runs: Sequence[str]) -> None:
        for name in ("arrivals", *runs):
            os.mkfifo(folder / name)
        self._folder = folder
        self._ends = [os.open(folder / "arrivals", os.O_RDWR)]

    def await_arrival(self) -> str:
        """The next body that has come."""
        ready, _, _ = select.select([self._ends[0]], [], [], WITHIN)
        assert ready, "nobody came"
        said = b""
        while not said.endswith(b"\n"):
            said += os.read(self._ends[0], 1)
        return said.decode().strip()

    def open(self, run: str) -> None:
        """Let the body of that run go, whether it waits already or comes later."""
        end = os.open(self._folder / run, os.O_RDWR)
        self._ends.append(end)
        os.write(end, b"go\n")

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


Running = Run[Gate]
KINDS = ("waits", "threads", "blocks")


def flow_of(kind: str) -> Workflow[Case, Gate]:
    """A workflow of one long step, and a short one."""
    flow = Workflow(kind, Case, services=Gate)

    async def waits(case: Case, run: Running) -> None:
        case.told = await asyncio.to_thread(run.services.wait, run.id)

    def threads(case: Case, run: SyncRun[Gate]) -> None:
        case.told = run.services.wait(run.id)

    async def blocks(case: Case, run: Running) -> None:
        case.told = run.services.wait(run.id)  # as it must not be written: nothing else runs meanwhile

    bodies: dict[str, Any] = {"waits": waits, "threads": threads, "blocks": blocks}
    long: Any = flow.step()(bodies[kind])

    @flow.step()
    async def after(case: Case, run: Running) -> None:
        run.services.log.note("after", run.id)

    flow.build(start=long, transitions=[long.to(after), after.to(flow.end("done"))])
    return flow


FLOWS = {kind: flow_of(kind) for kind in KINDS}


def app_over(store: Store, folder: Path, log: Log) -> App:
    """An App whose sessions beat often enough for a short lease."""

    @asynccontextmanager
    async def gate() -> AsyncGenerator[Gate, None]:
        yield Gate(folder, log)

    app = App(list(FLOWS.values()), store=store, services=[gate])
    app._settings.heartbeat = BEAT
    return app


def work(address: str, folder: Path, kinds: tuple[str, ...]) -> None:
    """A worker that starts a run of each kind and stays until they have ended."""
    asyncio.run(_work(address, folder, kinds))


async def _work(address: str, folder: Path, kinds: tuple[str, ...]) -> None:
    app = app_over(open_store(address, lease=LEASE), folder, Log(folder / "log", "worker"))
    for kind in kinds:
        await app.start(FLOWS[kind], Case(), id=kind)
    for kind in kinds:
        await app.result(kind)
    await app.close()


def wait_in_ambush(address: str, folder: Path, leases: float) -> None:
    """A worker that takes whatever can be taken, for that many leases by the store's clock; then it says so."""
    asyncio.run(_ambush(address, folder, leases))


async def _ambush(address: str, folder: Path, leases: float) -> None:
    store, log = open_store(address, lease=LEASE), Log(folder / "log", "ambush")
    app = app_over(store, folder, log)
    async with app:
        runner, until = await app._runner(), store.now() + leases * LEASE
        while store.now() < until:
            await runner.until_changed("none of ours")
            log.note("sessions", " ".join(str(row.lease_until) for row in await store.sessions()))


def take_over(address: str, folder: Path) -> None:
    """A worker that drives whatever there is, until nothing is left to do; it says when it had claimed each."""
    asyncio.run(_take_over(address, folder))


async def _take_over(address: str, folder: Path) -> None:
    store, log = open_store(address, lease=LEASE), Log(folder / "log", "successor")
    await store.open()
    dead = {row.id: row.lease_until for row in await store.sessions()}
    app = app_over(store, folder, log)
    async with app:
        for row in await store.runs(RunFilter()):
            log.note("lease until", str(dead[row.session or ""]))
            await app.result(row.id)
