"""Many processes with many threads on one database: each thread drives its own run, and all of them hit one (B61)."""

import asyncio
import json
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agentflow import App, Context, Run, Workflow
from agentflow.merge import Append
from agentflow.store.protocol import Store
from agentflow.store.rows import CommandRow, Commit, Committed, HistoryRow, NewRun, Requested, RunRow, Standing
from tests.crash.log import Log
from tests.crash.stores import open_store

SHARED = "shared"
ONE_BY_ONE = threading.Lock()
PAUSE = 0.001  # seconds before a thread looks again at a run that another one holds


@dataclass(frozen=True, slots=True)
class Load:
    """How much: processes, threads in each, steps of each thread's own run, commits of each to the shared run."""

    processes: int
    threads: int
    steps: int
    hits: int

    @property
    def workers(self) -> int:
        return self.processes * self.threads


class Again(StrEnum):
    MORE = "more"
    ENOUGH = "enough"


class Sum(Context):
    wanted: int
    total: int = 0
    terms: Append[int] = Append()


counting = Workflow("counting", Sum)


@counting.step(max_visits=10_000)
async def add(case: Sum, run: Run) -> Again:
    case.terms.append(run.visit)
    case.total += run.visit
    return Again.MORE if run.visit < case.wanted else Again.ENOUGH


counting.build(start=add, transitions=[add.on(Again.MORE).to(add), add.on(Again.ENOUGH).to(counting.end("done"))])


def contend(address: str, folder: Path, process: int, load: Load) -> None:
    """One of the processes: its threads share one App and one store, each with a loop of its own."""
    app = App([counting], store=open_store(address))
    log = Log(folder / "log", str(process))
    together = threading.Barrier(load.threads)
    troubles: list[str] = []

    def work(thread: int) -> None:
        try:
            asyncio.run(_work(app, f"p{process}t{thread}", load, log, together))
        except BaseException:  # noqa: BLE001  told below: a thread cannot raise it where it is waited for
            troubles.append(traceback.format_exc())
            together.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(load.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise AssertionError("\n".join(troubles))


async def _work(app: App, name: str, load: Load, log: Log, together: threading.Barrier) -> None:
    store = app._store
    await store.open()
    together.wait()
    session = await store.open_session(name)
    own = asyncio.create_task(app.run(counting, Sum(wanted=load.steps), id=name))
    await _hit(store, session, name, load.hits, log)
    over = await own
    log.note("total", f"{name} {over.context.total} {over.revision}")
    log.note("list", str(len(await app.list(limit=1_000))))
    await store.close_session(session)
    await asyncio.to_thread(together.wait)  # the last loop of an App that is closed takes the store along
    with ONE_BY_ONE:
        await app.close()


# --- the run that all of them hit ----------------------------------------------------------------------------------


async def create_shared(store: Store) -> None:
    """A run whose context counts its commits."""
    standing = Standing(status="queued", state="count", visit=1, due_at=store.now())
    first = _line(store, 0, "nobody")
    new = NewRun(
        id=SHARED, workflow=SHARED, version=1, shape="s", fingerprint="f", standing=standing, history=first
    )  # fmt: skip
    await store.create_run(new)


def _line(store: Store, revision: int, who: str) -> HistoryRow:
    return HistoryRow(
        revision=revision,
        at=store.now(),
        event="done" if revision else "start",
        source="count" if revision else None,
        outcome=None,
        target="count",
        visit=1,
        attempt=1,
        duration_ms=None,
        difference=json.dumps({"set": {"n": revision}}),
        actor=json.dumps(who),
    )


async def _hit(store: Store, session: str, who: str, times: int, log: Log) -> None:
    """Claim, read, add one, commit; and disturb whoever holds it by a command."""
    done = 0
    while done < times:
        rows = await store.claim_runs(session, limit=1, runs=[SHARED])
        if not rows:
            await asyncio.sleep(PAUSE)
            continue
        await asyncio.to_thread(store.renew_session, session)  # it has no heart
        await _add_one(store, rows[0], who)
        log.note("hit", who)
        done += 1
        note = CommandRow(
            run=SHARED, at=store.now(), command="note", actor=None, reason="", request=f"{who} {done}",
            status="applied", why="",
        )  # fmt: skip
        assert await store.request(note, word=json.dumps({"note": who}), wake=False)


async def _add_one(store: Store, row: RunRow, who: str) -> None:
    read = json.loads((await store.differences(SHARED, row.revision))[-1])["set"]["n"]
    while True:
        made = Commit(
            run=SHARED,
            expected_revision=row.revision,
            token=row.token or "",
            control_seq=row.control_seq,
            standing=Standing(status="queued", state="count", visit=1, due_at=store.now()),
            history=_line(store, read + 1, who),
            release=True,
        )
        reply = await store.commit(made)
        if isinstance(reply, Committed):
            return
        assert isinstance(reply, Requested), reply  # nobody else may commit to what is claimed
        row = reply.row


def tokens_of(said: Sequence[str]) -> list[tuple[str, int, int]]:
    """The lines `name total revision`."""
    return [(name, int(total), int(revision)) for name, total, revision in (line.split() for line in said)]
