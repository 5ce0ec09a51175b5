"""Many writers on one database: no lock error, no lost update, every commit accounted for (B61)."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest

from agentflow import App
from agentflow.store.memory import MemoryStore
from agentflow.store.rows import SessionRow
from tests.crash.contention import SHARED, Load, Sum, contend, counting, create_shared, tokens_of
from tests.crash.forks import WITHIN, child
from tests.crash.log import read_log
from tests.crash.matrix import show
from tests.crash.stores import Kind, Place, open_store


@pytest.fixture
def place(kind: Kind) -> Place:
    return kind.place("load")


def run_load(place: Place, load: Load) -> dict[str, Any]:
    """Let all processes work, and count what they left."""
    asyncio.run(prepare(place))
    folder = place.log.parent
    with ExitStack() as all_end:
        works = [
            all_end.enter_context(child(contend, place.address, folder, number, load))
            for number in range(load.processes)
        ]
        for work in works:
            assert work.end(120) == 0
    return asyncio.run(count(place))


async def prepare(place: Place) -> None:
    store = open_store(place.address)
    await store.open()
    await create_shared(store)
    await store.close()


async def count(place: Place) -> dict[str, Any]:
    log, store = read_log(place.log), open_store(place.address)
    await store.open()
    row = await store.run(SHARED)
    history = await store.history(SHARED)
    commands = await store.commands(SHARED)
    stranded = await store.stranded(limit=10)
    await store.close()
    assert row is not None
    return {
        "revision": row.revision,
        "sums": [json.loads(line.difference)["set"]["n"] for line in history],
        "by": Counter(json.loads(line.actor or "") for line in history[1:]),
        "hits": log.count("hit"),
        "totals": tokens_of(log.said("total")),
        "lists": [int(length) for length in log.said("list")],
        "commands": len(commands),
        "stranded": stranded,
    }


def check(found: dict[str, Any], load: Load) -> None:
    names = {f"p{process}t{thread}" for process in range(load.processes) for thread in range(load.threads)}
    commits = load.workers * load.hits
    assert found["revision"] == commits
    assert found["sums"] == list(range(commits + 1))  # each read what the one before it had written
    assert found["by"] == found["hits"] == Counter(dict.fromkeys(names, load.hits))
    assert found["commands"] == commits
    total = load.steps * (load.steps + 1) // 2
    assert sorted(found["totals"]) == sorted((name, total, load.steps) for name in names)
    assert all(1 <= length <= load.workers for length in found["lists"])
    assert found["stranded"] == []


def test_b61_processes_and_threads_on_one_database_lose_nothing(place: Place) -> None:
    load = Load(processes=4, threads=4, steps=20, hits=4)
    check(run_load(place, load), load)


def test_loops_that_let_go_of_one_app_at_the_same_time_all_end_their_sessions(place: Place) -> None:
    app, all_run = App([counting], store=open_store(place.address)), threading.Barrier(2)
    all_stop, first_is_closed = threading.Barrier(2), threading.Event()
    close_session = app._store.close_session

    async def close_in_turn(session: str) -> None:
        if all_stop.wait(WITHIN) == 0:  # both loops are in the middle of their close
            first_is_closed.wait(WITHIN)
        await close_session(session)

    async def serve() -> None:
        await app.run(counting, Sum(wanted=1), id=threading.current_thread().name)
        all_run.wait(WITHIN)
        try:
            await app.close()
        finally:
            first_is_closed.set()

    with mock.patch.object(app._store, "close_session", close_in_turn), ThreadPoolExecutor(2) as loops:
        ends = [loops.submit(asyncio.run, serve()) for _ in range(2)]
        assert [end.exception() for end in ends] == [None, None]
    assert asyncio.run(sessions_left(place)) == []


async def sessions_left(place: Place) -> Sequence[SessionRow]:
    store = open_store(place.address)
    await store.open()
    left = await store.sessions()
    await store.close()
    return left


LARGE = {
    "sqlite": Load(processes=4, threads=4, steps=2_000, hits=300),
    "postgres": Load(processes=4, threads=4, steps=200, hits=40),
}


@pytest.mark.proof
def test_b61_under_a_larger_load(kind: Kind) -> None:
    load = LARGE[kind.name]
    found = run_load(kind.place("load"), load)

    show(
        f"4 processes x 4 threads on {kind.name}",
        [
            ("commits to the shared run", found["revision"]),
            ("commits of 16 own runs", sum(revision for _, _, revision in found["totals"])),
            ("commands", found["commands"]),
            ("lock errors", 0),
        ],
    )
    check(found, load)


async def test_verbs_that_come_at_the_same_time_begin_one_session_and_close_ends_it() -> None:
    store = MemoryStore()
    open_at_once = store.open

    async def open_slowly() -> None:
        await asyncio.sleep(0)  # as a store does that lives on a server
        await open_at_once()

    app = App([counting], store=store)
    with mock.patch.object(store, "open", open_slowly):
        await asyncio.gather(*(app.run(counting, Sum(wanted=2), id=f"r{number}") for number in range(3)))
        begun = await store.sessions()
        await app.close()

    assert len(begun) == 1
    assert await store.sessions() == []
    assert [thread.name for thread in threading.enumerate() if thread.name == "agentflow-heart"] == []
