"""The floor: the same bytes for each transition, one `INSERT` and one `UPDATE`, with nothing around the database.

No comparison of a token, no reasons, no validation. One connection on the calling thread; or one writer thread that
commits together whatever has piled up.
"""

import asyncio
import json
import queue
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from benchmarks.harness import Meter, Peer, Variant, message, payload

TABLES = """
CREATE TABLE IF NOT EXISTS runs(id TEXT PRIMARY KEY, state TEXT, revision INT);
CREATE TABLE IF NOT EXISTS snapshots(run TEXT, revision INT, state TEXT, context BLOB, PRIMARY KEY(run, revision));
"""
ADD_RUN = "INSERT INTO runs VALUES(?, 'start', 0)"
ADD_SNAPSHOT = "INSERT INTO snapshots VALUES(?, ?, ?, ?)"
MOVE_RUN = "UPDATE runs SET state = ?, revision = ? WHERE id = ?"
LAST_CONTEXT = "SELECT context FROM snapshots WHERE run = ? ORDER BY revision DESC LIMIT 1"

Written: TypeAlias = tuple[str, int, str, str]  # of one transition: run, revision, state, context


def written(run: str, revision: int, **context: Any) -> Written:
    """What one transition of the two states `a` and `b` writes."""
    return run, revision, "ab"[revision & 1], json.dumps({"n": revision, **context})


class Single(Peer):
    """One connection on the calling thread, one commit for each transition."""

    keeps_all = True  # W3: the whole list in each snapshot, or the new item alone

    def open(self) -> None:
        self.connection = sqlite3.connect(self.meter.database, check_same_thread=False, isolation_level=None)
        self.connection.executescript(TABLES)

    def close(self) -> None:
        self.connection.close()

    def save(self, row: Written) -> None:
        run, revision, state, _ = row
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(ADD_SNAPSHOT, row)
        self.connection.execute(MOVE_RUN, (state, revision, run))
        self.connection.execute("COMMIT")

    def one_run(self) -> None:
        self.connection.execute(ADD_RUN, ("r",))
        revision = 0
        while not self.meter.is_enough(revision):
            self.meter.step()
            revision += 1
            self.save(written("r", revision, payload=payload(revision)))

    leave_run = one_run

    def growing_run(self) -> None:
        self.connection.execute(ADD_RUN, ("r",))
        messages: list[str] = []
        while not self.meter.is_enough(len(messages)):
            self.meter.step()
            messages.append(message(len(messages) + 1))
            self.save(written("r", len(messages), messages=messages if self.keeps_all else messages[-1:]))

    def resume_run(self) -> None:
        (context,) = self.connection.execute(LAST_CONTEXT, ("r",)).fetchone()
        revision = json.loads(context)["n"] + 1
        self.meter.step()
        self.save(written("r", revision, payload=payload(revision)))


def tell(futures: Iterable["asyncio.Future[None]"]) -> None:
    """Let the runs go on whose rows are committed; on their loop."""
    for future in futures:
        future.set_result(None)


class Differences(Single):
    """W3 without the history in each snapshot: no faster one is known."""

    keeps_all = False


class Group(Single):
    """All runs hand their rows to one writer thread, which commits whatever has piled up."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(meter)
        self.waiting: queue.SimpleQueue[tuple[Written, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self.commits = 0

    def open(self) -> None:
        super().open()
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self) -> None:
        is_last = False
        while not is_last:
            found = [self.waiting.get()]
            while not self.waiting.empty() and len(found) < 1000:
                found.append(self.waiting.get())
            is_last = found[-1] is None
            self.write_together([one for one in found if one is not None])

    def write_together(self, group: list[tuple[Written, "asyncio.Future[None]"]]) -> None:
        if not group:
            return
        rows = [row for row, _ in group]
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(ADD_SNAPSHOT, rows)
        self.connection.executemany(MOVE_RUN, [(state, revision, run) for run, revision, state, _ in rows])
        self.connection.execute("COMMIT")
        self.commits += 1
        futures = [future for _, future in group]
        futures[0].get_loop().call_soon_threadsafe(tell, futures)

    def close(self) -> None:
        self.waiting.put(None)
        self.thread.join()
        super().close()

    async def run_to_its_end(self, run: str) -> None:
        revision = 0
        while not self.meter.is_enough(revision):
            self.meter.step()
            revision += 1
            done = asyncio.get_running_loop().create_future()
            self.waiting.put((written(run, revision, payload=payload(revision)), done))
            await done

    def many_runs(self, runs: int) -> None:
        names = [f"r{number}" for number in range(runs)]
        self.connection.executemany(ADD_RUN, [(name,) for name in names])

        async def main() -> None:
            await asyncio.gather(*(self.run_to_its_end(name) for name in names))

        asyncio.run(main())

    def evidence(self) -> Mapping[str, Any]:
        return {"commits": self.commits}


VARIANTS = {
    "single": Variant(Single),
    "differences": Variant(Differences),
    "group": Variant(Group),
}
