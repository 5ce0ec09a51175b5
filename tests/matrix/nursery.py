"""Lives of one run: a process that has loaded everything forks one child for each life that it is asked for.

`python -m tests.matrix.nursery` reads lines `STORE LOG POINT REPORT`. The child drives the run over that store and kills
itself at that point (0: never); a life that ends by itself writes what it saw into REPORT. One line answers each.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from agentflow import App
from agentflow.store.postgres import PostgresStore
from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore
from agentflow.store.sqlite_connection import Connection
from tests.matrix import flow
from tests.matrix.hooks import HookedStore

LEASE = timedelta(milliseconds=100)  # there is no quicker proof of a death between machines


class Countdown:
    """Kills this process at the point of that number."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points: list[str] = []
        self.within = "nothing"  # the store's method that is at work

    def reach(self, point: str) -> None:
        """Be at that point, and perhaps die there."""
        if point.startswith("before "):
            self.within = point.removeprefix("before ")
        self.points.append(point)
        if len(self.points) == self.at:
            flow.note("killed", point.replace(" ", "_"))
            os.kill(os.getpid(), signal.SIGKILL)


def store_of(address: str, countdown: Countdown) -> Store:
    """The store of a life; SQLite's own statements are points too. A kill loses nothing that was written: no `fsync`."""
    if not address.startswith("sqlite:"):
        return PostgresStore(address, lease=LEASE)
    made = SqliteStore(address, synchronous="NORMAL")
    connect = Connection._connect

    def traced(connection: Connection) -> Any:
        raw = connect(connection)
        if connection is made._writer:
            raw.set_trace_callback(lambda statement: countdown.reach(f"{countdown.within}: {statement.split()[0]}"))
        return raw

    Connection._connect = cast("Any", traced)  # type: ignore[method-assign]
    return made


async def live(address: str, at: int) -> dict[str, Any]:
    """One life: drive the run to its end, or die at that point."""
    countdown = Countdown(at)
    flow.reach = countdown.reach
    store: Any = HookedStore(store_of(address, countdown), countdown.reach)
    app = App([flow.flow], store=store)
    found = await flow.finish(app)
    seen = {
        "points": countdown.points,
        "status": found.status,
        "end": found.end.name if found.end is not None else None,
        "context": found.context.model_dump(mode="json"),
        "history": [
            [line.number, line.source, line.target, line.failure.kind if line.failure else None]
            for line in await app.history("r")
        ],
        "effects": [[row.key, row.status] for row in await store.effects(run="r")],
        "attempts": [[row.state, row.visit, row.attempt, row.outcome] for row in await store.attempts("r")],
    }
    await app.close()
    return seen


def main() -> None:
    """Fork a child for each line, and say how it ended."""
    for line in sys.stdin:
        address, log, at, report = line.split()
        child = os.fork()
        if child == 0:
            os.environ["MATRIX_LOG"] = log
            try:
                seen = asyncio.run(live(address, int(at)))
                Path(report).write_text(json.dumps(seen), encoding="utf-8")
            except Exception:  # noqa: BLE001  a child must not go on as its parent
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
