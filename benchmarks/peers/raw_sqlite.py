"""The limit: the same bytes per transition with nothing around the database.

INSERT one snapshot row + UPDATE the run row + COMMIT.  Variants: one connection on
the calling thread; one writer thread with group commit; aiosqlite."""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading

from harness import Peer, Variant, message, payload

DISTS = ["aiosqlite"]
VENV = "main"
DDL = """
CREATE TABLE IF NOT EXISTS runs(id TEXT PRIMARY KEY, state TEXT, seq INT);
CREATE TABLE IF NOT EXISTS snapshots(run_id TEXT, seq INT, state TEXT, context BLOB, PRIMARY KEY(run_id, seq));
"""
INS = "INSERT INTO snapshots VALUES(?,?,?,?)"
UPD = "UPDATE runs SET state=?, seq=? WHERE id=?"


class Single(Peer):
    delta = False

    def open(self) -> None:
        self.c = sqlite3.connect(self.m.db, check_same_thread=False, isolation_level=None)
        self.c.executescript(DDL)

    def close(self) -> None:
        self.c.close()

    def _save(self, run: str, i: int, blob: str) -> None:
        c = self.c
        st = "ab"[i & 1]
        c.execute("BEGIN IMMEDIATE")
        c.execute(INS, (run, i, st, blob))
        c.execute(UPD, (st, i, run))
        c.execute("COMMIT")

    def _new(self, run: str) -> None:
        self.c.execute("INSERT OR IGNORE INTO runs VALUES(?,?,?)", (run, "start", 0))

    def w1(self) -> None:
        m = self.m
        self._new("r")
        i = 0
        while not m.over(i):
            m.step()
            i += 1
            self._save("r", i, json.dumps({"n": i, "payload": payload(i)}))

    build = w1

    def w2(self, runs: int) -> None:
        async def run(r: str) -> None:
            self._new(r)
            i = 0
            while not self.m.over(i):
                self.m.step()
                i += 1
                self._save(r, i, json.dumps({"n": i, "payload": payload(i)}))
                await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(*(run(f"r{k}") for k in range(runs)))

        asyncio.run(main())

    def w3(self) -> None:
        m, i, msgs = self.m, 0, []
        self._new("r")
        while not m.over(i):
            m.step()
            i += 1
            msgs.append(message(i))
            self._save("r", i, json.dumps({"n": i, "messages": msgs[-1:] if self.delta else msgs}))

    def w4(self, width: int) -> int:
        self._new("r")
        got = 0
        for k in range(width):
            self.m.step()
            self._save("r", k + 1, json.dumps({"k": k}))
            got += k
        self._save("r", width + 1, json.dumps({"sum": got}))
        return got

    def resume(self) -> None:
        (ctx,) = self.c.execute("SELECT context FROM snapshots WHERE run_id='r' ORDER BY seq DESC LIMIT 1").fetchone()
        i = json.loads(ctx)["n"]
        self.m.step()
        self._save("r", i + 1, json.dumps({"n": i + 1, "payload": payload(i + 1)}))


class Delta(Single):
    delta = True


class Group(Single):
    """All runs hand their rows to one writer thread; it commits whatever has piled up."""

    def open(self) -> None:
        super().open()
        self.q: queue.SimpleQueue = queue.SimpleQueue()
        self.commits = 0
        self.t = threading.Thread(target=self._writer, daemon=True)
        self.t.start()

    def _writer(self) -> None:
        c, q = self.c, self.q
        while True:
            batch = [q.get()]
            while not q.empty() and len(batch) < 1000:
                batch.append(q.get())
            stop = batch[-1] is None
            batch = [b for b in batch if b is not None]
            if batch:
                c.execute("BEGIN IMMEDIATE")
                c.executemany(INS, [b[0] for b in batch])
                c.executemany(UPD, [b[1] for b in batch])
                c.execute("COMMIT")
                self.commits += 1
                futs = [b[2] for b in batch]
                batch[0][3].call_soon_threadsafe(lambda fs=futs: [f.set_result(None) for f in fs])
            if stop:
                return

    def close(self) -> None:
        self.q.put(None)
        self.t.join()
        super().close()

    async def _asave(self, run: str, i: int, blob: str) -> None:
        loop = asyncio.get_running_loop()
        f = loop.create_future()
        st = "ab"[i & 1]
        self.q.put(((run, i, st, blob), (st, i, run), f, loop))
        await f

    async def _run(self, r: str) -> None:
        i = 0
        while not self.m.over(i):
            self.m.step()
            i += 1
            await self._asave(r, i, json.dumps({"n": i, "payload": payload(i)}))

    def w1(self) -> None:
        self._new("r")
        asyncio.run(self._run("r"))

    def w2(self, runs: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(self._run(f"r{k}") for k in range(runs)))

        self.c.executemany("INSERT INTO runs VALUES(?,?,?)", [(f"r{k}", "start", 0) for k in range(runs)])
        asyncio.run(main())

    def w4(self, width: int) -> int:
        async def branch(k: int) -> int:
            self.m.step()
            await self._asave("r", k + 1, json.dumps({"k": k}))
            return k

        async def main() -> int:
            s = sum(await asyncio.gather(*(branch(k) for k in range(width))))
            await self._asave("r", width + 1, json.dumps({"sum": s}))
            return s

        self._new("r")
        return asyncio.run(main())

    def evidence(self) -> dict:
        return {"commits": self.commits}


class Aio(Peer):
    def open(self) -> None:
        import aiosqlite

        self.loop = asyncio.new_event_loop()

        async def go() -> None:
            self.c = await aiosqlite.connect(self.m.db, isolation_level=None)
            await self.c.executescript(DDL)
            self.lock = asyncio.Lock()

        self.loop.run_until_complete(go())

    def close(self) -> None:
        self.loop.run_until_complete(self.c.close())

    async def _run(self, r: str) -> None:
        i, c = 0, self.c
        await c.execute("INSERT INTO runs VALUES(?,?,?)", (r, "start", 0))
        while not self.m.over(i):
            self.m.step()
            i += 1
            blob, st = json.dumps({"n": i, "payload": payload(i)}), "ab"[i & 1]
            async with self.lock:
                await c.execute("BEGIN IMMEDIATE")
                await c.execute(INS, (r, i, st, blob))
                await c.execute(UPD, (st, i, r))
                await c.execute("COMMIT")

    def w1(self) -> None:
        self.loop.run_until_complete(self._run("r"))

    def w2(self, runs: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(self._run(f"r{k}") for k in range(runs)))

        self.loop.run_until_complete(main())


BOTH = ("FULL", "NORMAL")
VARIANTS = {
    "single": Variant(Single, "w1 w2 w3 w4 w5", sync=BOTH),
    "delta": Variant(Delta, "w3", note="stores only the appended message"),
    "group": Variant(Group, "w1 w2 w4", sync=BOTH, note="one writer thread, group commit"),
    "aiosqlite": Variant(Aio, "w1 w2", sync=BOTH),
}
