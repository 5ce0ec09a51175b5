"""The two statements of the floor and a commit on PostgreSQL, with psycopg."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import psycopg

from benchmarks.harness import Peer, Variant, payload

TABLES = """
DROP TABLE IF EXISTS bench_runs, bench_snapshots;
CREATE TABLE bench_runs(id text PRIMARY KEY, state text, revision int);
CREATE TABLE bench_snapshots(run text, revision int, state text, context text, PRIMARY KEY(run, revision));
"""
ADD_RUN = "INSERT INTO bench_runs VALUES(%s, 'start', 0)"
ADD_SNAPSHOT = "INSERT INTO bench_snapshots VALUES(%s, %s, %s, %s)"
MOVE_RUN = "UPDATE bench_runs SET state = %s, revision = %s WHERE id = %s"
CONNECTIONS = 16


class Pool(Peer):
    """All runs share 16 connections; each transition is a commit of its own on one of them."""

    def open(self) -> None:
        assert self.meter.postgres is not None  # the worker made sure
        self.address = self.meter.postgres
        with psycopg.connect(self.address) as connection:
            connection.execute(TABLES)

    def many_runs(self, runs: int) -> None:
        names = [f"r{number}" for number in range(runs)]
        with psycopg.connect(self.address) as connection, connection.cursor() as cursor:
            cursor.executemany(ADD_RUN, [(name,) for name in names])
        asyncio.run(self.drive(names))

    async def drive(self, names: list[str]) -> None:
        free: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()
        for _ in range(CONNECTIONS):
            free.put_nowait(await psycopg.AsyncConnection.connect(self.address))
        await asyncio.gather(*(self.run_to_its_end(name, free) for name in names))
        while not free.empty():
            await free.get_nowait().close()

    async def run_to_its_end(self, run: str, free: "asyncio.Queue[psycopg.AsyncConnection[Any]]") -> None:
        revision = 0
        while not self.meter.is_enough(revision):
            self.meter.step()
            revision += 1
            state = "ab"[revision & 1]
            text = json.dumps({"n": revision, "payload": payload(revision)})
            connection = await free.get()
            await connection.execute(ADD_SNAPSHOT, (run, revision, state, text))
            await connection.execute(MOVE_RUN, (state, revision, run))
            await connection.commit()
            free.put_nowait(connection)

    def evidence(self) -> Mapping[str, Any]:
        with psycopg.connect(self.address) as connection:
            found = {
                name: connection.execute(f"SHOW {name}").fetchone()[0]
                for name in ("fsync", "synchronous_commit", "full_page_writes")
            }
            rows = connection.execute("SELECT count(*) FROM bench_snapshots").fetchone()
            return {**found, "rows": {"snapshots": rows[0] if rows else 0}}


VARIANTS = {"pool": Variant(Pool, store="postgres")}
