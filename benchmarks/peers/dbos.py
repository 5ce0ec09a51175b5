"""DBOS: a workflow function whose every state is a step; the step's output is stored."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from harness import Meter, Peer, Variant, message, payload

DISTS = ["dbos"]
VENV = "main"
M: Meter = None  # type: ignore[assignment]


@DBOS.step()
def a(i: int) -> dict:
    M.step()
    return {"n": i, "payload": payload(i)}


@DBOS.step()
async def aa(i: int) -> dict:
    M.step()
    return {"n": i, "payload": payload(i)}


@DBOS.step()
def hist(i: int) -> str:
    M.step()
    return message(i)


@DBOS.step()
async def branch(k: int) -> int:
    M.step()
    return k


@DBOS.workflow()
def wf() -> int:
    i = 0
    while not M.over(i):
        i = a(i + 1)["n"]
    return i


@DBOS.workflow()
async def awf() -> int:
    i = 0
    while not M.over(i):
        i = (await aa(i + 1))["n"]
    return i


@DBOS.workflow()
def histwf() -> int:
    i, msgs = 0, []
    while not M.over(i):
        i += 1
        msgs.append(hist(i))
    return len(msgs)


@DBOS.workflow()
async def fan(width: int) -> int:
    return sum(await asyncio.gather(*(branch(k) for k in range(width))))


@DBOS.workflow()
async def child(k: int) -> int:
    M.step()
    return k


@DBOS.workflow()
async def fan_children(width: int) -> int:
    hs = [await DBOS.start_workflow_async(child, k) for k in range(width)]
    return sum([await h.get_result() for h in hs])


@DBOS.workflow()
def crashwf(limit: int) -> int:
    i = 0
    while i < limit:
        i = a(i + 1)["n"]
    os.environ["BENCH_DONE"] = "1"
    return i


class Sqlite(Peer):
    def url(self) -> str:
        return f"sqlite:///{self.m.db}"

    def open(self) -> None:
        global M  # noqa: PLW0603  its workflows are functions of a module
        M = self.m
        logging.getLogger("dbos").setLevel(logging.ERROR)
        cfg: DBOSConfig = {
            "name": "bench",
            "system_database_url": self.url(),
            "log_level": "ERROR",
            "application_version": "v1",
            "executor_id": "e1",
        }
        DBOS(config=cfg)
        DBOS.launch()

    def close(self) -> None:
        DBOS.destroy()

    def w1(self) -> None:
        wf()

    def w3(self) -> None:
        histwf()

    def w2(self, runs: int) -> None:
        async def main() -> None:
            hs = await asyncio.gather(*(DBOS.start_workflow_async(awf) for _ in range(runs)))
            await asyncio.gather(*(h.get_result() for h in hs))

        asyncio.run(main())

    def w4(self, width: int) -> int:
        return asyncio.run(fan(width))

    def build(self) -> None:
        # die in the middle: the process ends while step n+1 is running, so the run is PENDING
        stop_at = self.m.n

        def crash() -> None:
            if self.m.done > stop_at:
                os.write(1, b'@@{"peer":"dbos_peer","workload":"w5b","n":%d}\n' % stop_at)
                os._exit(0)

        self.m.on_step = crash
        with SetWorkflowID("r"):
            crashwf(stop_at + 1)

    def resume(self) -> None:
        # launch() recovers the pending run by itself: the first new step is the resumed one
        import time

        while not os.environ.get("BENCH_DONE"):
            time.sleep(0.001)


class SqliteAsync(Sqlite):
    def w1(self) -> None:
        asyncio.run(awf())


class Children(Sqlite):
    def w4(self, width: int) -> int:
        return asyncio.run(fan_children(width))


class Pg(Sqlite):
    def open(self) -> None:
        import psycopg

        with psycopg.connect(self.m.pg_url, autocommit=True) as c:
            c.execute("DROP DATABASE IF EXISTS dbosbench WITH (FORCE)")
            c.execute("CREATE DATABASE dbosbench")
        super().open()

    def url(self) -> str:
        assert self.m.pg_url
        return self.m.pg_url.replace("/postgres?", "/dbosbench?").replace("postgresql://", "postgresql+psycopg://")

    def close(self) -> None:
        import psycopg

        with psycopg.connect(self.m.pg_url.replace("/postgres?", "/dbosbench?"), autocommit=True) as c:
            self.ev = {
                "rows": {
                    t: c.execute(f"SELECT count(*) FROM dbos.{t}").fetchone()[0]
                    for t in ("workflow_status", "operation_outputs")
                },
                "bytes": c.execute("SELECT pg_database_size('dbosbench')").fetchone()[0],
                "synchronous_commit": c.execute("SHOW synchronous_commit").fetchone()[0],
            }
        super().close()

    def evidence(self) -> dict[str, Any]:
        return self.ev


BOTH = ("FULL", "NORMAL")
VARIANTS = {
    "sqlite": Variant(
        Sqlite,
        "w1 w2 w3 w4 w5",
        sync=BOTH,
        w2_runs=100,
        note="W3: stores each step's output (the message), never the whole history",
    ),
    "sqlite-asis": Variant(Sqlite, "w1", journal="asis", sync=("asis",), note="the journal DBOS itself chose"),
    "sqlite-asyncio": Variant(SqliteAsync, "w1"),
    "sqlite-children": Variant(Children, "w4", reps={"w4": 1}, note="1,000 child workflows instead of 1,000 steps"),
    "postgres": Variant(Pg, "w1 w2", w2_runs=100, store="postgres"),
}
