"""agentflow: two steps that hand over to each other, through `App` and its stores, as a program would use them."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from agentflow import App, Context, Limits, Run, Workflow
from agentflow.merge import Append
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore
from benchmarks.harness import Meter, Peer, Variant, large_constant, message, payload

ENOUGH = 10**9  # for limits that must not end a measurement
SWITCH_INTERVAL = 0.0005  # seconds; as `agentflow worker` sets it
SCHEMA = "agentflow_bench"


class Way(StrEnum):
    ON = "on"
    OUT = "out"


class Flat(Context):
    n: int = 0
    payload: str = ""


class Growing(Context):
    n: int = 0
    messages: Append[str] = Append()


class Heavy(Context):
    n: int = 0
    tail: str = ""
    constant: list[dict[str, dict[str, str]]]


Body: TypeAlias = Callable[[Any, Any], Coroutine[Any, Any, Way]]
Change: TypeAlias = Callable[[Any], None]


def replace_payload(case: Flat) -> None:
    case.payload = payload(case.n)


def append_message(case: Growing) -> None:
    case.messages.append(message(case.n))


def replace_tail(case: Heavy) -> None:
    case.tail = f"{case.n:0100d}"


CHANGES: dict[type[Context], Change] = {Flat: replace_payload, Growing: append_message, Heavy: replace_tail}


def working(meter: Meter, change: Change) -> Body:
    """A body that does its work until the meter has enough."""

    async def body(case: Any, run: Any) -> Way:
        meter.step()
        case.n += 1
        change(case)
        return Way.OUT if meter.is_enough(case.n) else Way.ON

    return body


def stopping_short(meter: Meter, change: Change, reached: asyncio.Event) -> Body:
    """A body that works until the meter has enough, and hangs in the state after that one."""

    async def body(case: Any, run: Any) -> Way:
        meter.step()
        if meter.done > meter.steps:
            reached.set()
            await asyncio.Event().wait()
        case.n += 1
        change(case)
        return Way.ON

    return body


def back_and_forth(kind: type[Context], make: Callable[[], Body]) -> Workflow[Any, Any]:
    """`there -> back -> there ...` until a body says `OUT`."""
    flow: Workflow[Any, Any] = Workflow(
        kind.__name__.lower(), kind, limits=Limits(transitions=ENOUGH, context_bytes=ENOUGH)
    )

    def state(name: str) -> Any:
        body = make()
        body.__name__, body.__annotations__ = name, {"case": kind, "run": Run, "return": Way}
        return flow.step(max_visits=ENOUGH)(body)

    there, back, end = state("there"), state("back"), flow.end("end")
    rows = [there.on(Way.ON).to(back), there.on(Way.OUT).to(end), back.on(Way.ON).to(there), back.on(Way.OUT).to(end)]
    flow.build(start=there, transitions=rows)
    return flow


class Sqlite(Peer):
    """A file, as durable as the cell says."""

    kind: type[Context] = Flat  # of the run that W5 leaves behind

    def store(self) -> Store:
        assert self.meter.synchronous in {"FULL", "NORMAL"}
        return SqliteStore(self.meter.database, synchronous="FULL" if self.meter.synchronous == "FULL" else "NORMAL")

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.flows = {kind: self.flow(kind) for kind in CHANGES}
        self.app = self.fresh_app(list(self.flows.values()))
        self.loop.run_until_complete(self.app.ping())  # it opens the store

    def flow(self, kind: type[Context]) -> Workflow[Any, Any]:
        return back_and_forth(kind, lambda: working(self.meter, CHANGES[kind]))

    def fresh_app(self, flows: list[Workflow[Any, Any]]) -> App:
        app = App(flows, store=self.store())
        app.work_as(concurrency=1000, drain=timedelta(0))
        return app

    def close(self) -> None:
        self.loop.run_until_complete(self.app.close())
        self.loop.close()

    def drive(self, context: Context) -> None:
        self.loop.run_until_complete(self.app.run(self.flows[type(context)], context, id="r"))

    def one_run(self) -> None:
        self.drive(Flat())

    def growing_run(self) -> None:
        self.drive(Growing())

    def heavy_run(self) -> None:
        self.drive(Heavy(constant=large_constant()))

    def many_runs(self, runs: int) -> None:
        async def main() -> None:
            flow = self.flows[Flat]
            await asyncio.gather(*(self.app.run(flow, Flat(), id=f"r{number}") for number in range(runs)))

        self.loop.run_until_complete(main())

    def leave_run(self) -> None:
        reached = asyncio.Event()
        flow = back_and_forth(self.kind, lambda: stopping_short(self.meter, CHANGES[self.kind], reached))
        self.app = self.fresh_app([flow])

        async def main() -> None:
            await self.app.start(flow, self.kind(), id="r")
            await reached.wait()

        self.loop.run_until_complete(main())

    def resume_run(self) -> None:
        self.loop.run_until_complete(self.app.follow("r", self.flows[self.kind]))


class ListInSqlite(Sqlite):
    """W5 with a run whose context is a list of as many items as it has revisions."""

    kind = Growing


class BesideBusyThread(Sqlite):
    """A worker in which a thread of the author computes without a pause."""

    def many_runs(self, runs: int) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        enough = threading.Event()

        def compute() -> None:
            number = 0
            while not enough.is_set():
                number += 1

        thread = threading.Thread(target=compute, daemon=True)
        thread.start()
        super().many_runs(runs)
        enough.set()
        thread.join()


class InMemory(Sqlite):
    """A store that keeps nothing, and is compared in nothing: what the engine costs without a database."""

    def store(self) -> Store:
        return open_store("memory:")


class Postgres(Sqlite):
    """A schema of its own, fresh for each measurement."""

    def store(self) -> Store:
        assert self.meter.postgres is not None  # the worker made sure
        joint = "&" if "?" in self.meter.postgres else "?"
        return open_store(f"{self.meter.postgres}{joint}schema={SCHEMA}")

    def open(self) -> None:
        import psycopg

        assert self.meter.postgres is not None  # the worker made sure
        with psycopg.connect(self.meter.postgres) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        super().open()


VARIANTS = {
    "sqlite": Variant(Sqlite),
    "sqlite-list": Variant(ListInSqlite),
    "busy-thread": Variant(BesideBusyThread),
    "postgres": Variant(Postgres, store="postgres"),
    "memory": Variant(InMemory, store="none"),
}
