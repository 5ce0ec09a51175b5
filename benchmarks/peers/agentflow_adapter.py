"""agentflow: two steps that hand over to each other, through the whole public path over its SQLite or PostgreSQL store."""

import asyncio
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness import Meter, Peer, Variant, message, payload

from agentflow import App, Context, Limits, Run, Workflow
from agentflow.merge import Append
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore

DISTS: list[str] = []
MANY = 10**9


class Go(StrEnum):
    ON = "on"
    STOP = "stop"


class Flat(Context):
    n: int = 0
    payload: str = ""


class Growing(Context):
    n: int = 0
    messages: Append[str] = Append()


class Heavy(Context):
    """200 KB that nobody touches, beside 100 new bytes."""

    n: int = 0
    tail: str = ""
    constant: list[dict[str, str]]


def flat(case: Flat) -> None:
    case.payload = payload(case.n)


def growing(case: Growing) -> None:
    case.messages.append(message(case.n))


def heavy(case: Heavy) -> None:
    case.tail = f"{case.n:0100d}"


def back_and_forth(meter: Meter, name: str, kind: Any, change: Callable[[Any], None]) -> Workflow[Any, None]:
    """`there -> back -> there ...` until the meter has enough."""
    flow = Workflow(name, kind, limits=Limits(transitions=MANY, context_bytes=MANY))

    def step(case: Any) -> Go:
        meter.step()
        case.n += 1
        change(case)
        return Go.STOP if meter.over(case.n) else Go.ON

    async def there(case: Any, run: Run) -> Go:
        return step(case)

    async def back(case: Any, run: Run) -> Go:
        return step(case)

    for body in (there, back):
        body.__annotations__ = {"case": kind, "run": Run, "return": Go}
    first, second = flow.step(max_visits=MANY)(there), flow.step(max_visits=MANY)(back)
    end = flow.end("end")
    rows = [
        first.on(Go.ON).to(second),
        first.on(Go.STOP).to(end),
        second.on(Go.ON).to(first),
        second.on(Go.STOP).to(end),
    ]
    flow.build(start=first, transitions=rows)
    return flow


class Sqlite(Peer):
    def store(self) -> Store:
        return SqliteStore(self.path, synchronous=self.m.sync)

    @property
    def path(self) -> str:
        return self.m.db.replace("bench.db", "agentflow.db")  # the harness has put a table of its own into the other

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        kinds = {"flat": (Flat, flat), "growing": (Growing, growing), "heavy": (Heavy, heavy)}
        self.flows = {name: back_and_forth(self.m, name, *made) for name, made in kinds.items()}
        self.app = App(list(self.flows.values()), store=self.store())
        self.loop.run_until_complete(self.app.ping())

    def close(self) -> None:
        self.loop.run_until_complete(self.app.close())

    def one(self, name: str, context: Context) -> None:
        self.loop.run_until_complete(self.app.run(self.flows[name], context, id="r"))

    def w1(self) -> None:
        self.one("flat", Flat())

    def w3(self) -> None:
        self.one("growing", Growing())

    def b76(self) -> None:
        self.one("heavy", Heavy(constant=[{"text": "c" * 90} for _ in range(2000)]))

    def w2(self, runs: int) -> None:
        self.app._settings.concurrency = runs

        async def main() -> None:
            await asyncio.gather(*(self.app.run(self.flows["flat"], Flat(), id=f"r{number}") for number in range(runs)))

        self.loop.run_until_complete(main())

    def evidence(self) -> dict[str, Any]:
        files = [Path(self.path + suffix) for suffix in ("", "-wal")]
        return {"bytes": sum(file.stat().st_size for file in files if file.exists())}


class BesideBusyThread(Sqlite):
    """A worker with an author's thread that computes without a pause."""

    def w2(self, runs: int) -> None:
        sys.setswitchinterval(0.0005)  # as `agentflow worker` does
        enough = threading.Event()

        def compute() -> None:
            number = 0
            while not enough.is_set():
                number += 1

        threading.Thread(target=compute, daemon=True).start()
        super().w2(runs)
        enough.set()


class Postgres(Sqlite):
    def store(self) -> Store:
        assert self.m.pg_url is not None
        return open_store(self.m.pg_url)

    def evidence(self) -> dict[str, Any]:
        return {}


BOTH = ("FULL", "NORMAL")
VARIANTS = {
    "sqlite": Variant(Sqlite, "w1 w2 w3 b76", sync=BOTH),
    "busy-thread": Variant(BesideBusyThread, "w2"),
    "postgres": Variant(Postgres, "w2", store="postgres"),
}
