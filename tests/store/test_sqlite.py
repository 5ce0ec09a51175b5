"""What is SQLite alone: the file, its troubles, other processes."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentflow.errors import NewerSchema, NotOurDatabase, OlderSchema, StoreBusy, StoreError, StoreUnavailable
from agentflow.store.opening import open_store
from agentflow.store.rows import Committed, LateResult
from agentflow.store.sqlite import SqliteStore
from tests.store.making import Clock, claimed, commit, decision, history, new_run, standing, step, wait_row

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def opened(path: Path, clock: Clock, **options: Any) -> SqliteStore:
    store = SqliteStore(path, clock=clock.now, **options)
    await store.open()
    return store


# --- the file ----------------------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def read(path: Path) -> bytes:
    return path.read_bytes()


async def test_what_was_written_is_there_for_another_store(path: Path, clock: Clock) -> None:
    first = await opened(path, clock)
    await first.create_run(new_run())
    await first.close()
    second = await opened(path, clock)
    assert await second.run("r") is not None
    await second.close()


async def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, clock: Clock) -> None:
    write(path, b"hello " * 1_000)
    with pytest.raises(NotOurDatabase, match=r"runs\.db is no SQLite database"):
        await opened(path, clock)
    assert read(path) == b"hello " * 1_000


async def test_a_database_of_somebody_else_is_left_as_it_is(path: Path, clock: Clock) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("create table customers (id)")
        other.commit()
    with pytest.raises(NotOurDatabase):
        await opened(path, clock)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("select name from sqlite_master").fetchall() == [("customers",)]
        assert other.execute("pragma journal_mode").fetchone() == ("delete",)


async def test_a_newer_schema_is_refused(path: Path, clock: Clock) -> None:
    await (await opened(path, clock)).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("update meta set value = '99' where name = 'schema'")
        other.commit()
    with pytest.raises(NewerSchema, match="upgrade agentflow"):
        await opened(path, clock)


async def test_an_older_schema_is_refused_and_kept(path: Path, clock: Clock) -> None:
    await (await opened(path, clock)).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("update meta set value = '1' where name = 'schema'")
        other.commit()
    with pytest.raises(OlderSchema, match="name another file"):
        await opened(path, clock)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("select value from meta where name = 'schema'").fetchone() == ("1",)


async def test_a_missing_folder_and_a_folder_in_place_of_the_file_are_told(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(StoreUnavailable, match="there is no folder"):
        await opened(tmp_path / "nowhere" / "runs.db", clock)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder"):
        await opened(tmp_path / "folder", clock)


async def test_a_full_database_loses_nothing_and_works_again_when_there_is_room(path: Path, clock: Clock) -> None:
    store = await opened(path, clock)
    _, row = await claimed(store)
    pages = limit_pages(store, 0)
    limit_pages(store, pages)
    big = history(1, difference=json.dumps({"set": {"text": "x" * 200_000}}))
    with pytest.raises(StoreUnavailable, match=r"runs\.db is full"):
        await store.commit(commit(row, history=big))
    assert await store.run("r") == row
    limit_pages(store, 1_000_000)
    assert await store.commit(commit(row, history=big)) == Committed()
    await store.close()


def limit_pages(store: SqliteStore, pages: int) -> int:
    """Let the file have no more pages than these; the number it has."""
    with store._writer._lock:
        raw = store._writer.raw()
        if pages:
            raw.execute(f"pragma max_page_count = {pages}").fetchone()
        count: int = raw.execute("pragma page_count").fetchone()[0]
        return count


async def test_a_read_only_database_is_told_and_works_again(path: Path, clock: Clock) -> None:
    store = await opened(path, clock)
    _, row = await claimed(store)
    with store._writer._lock:
        store._writer.raw().execute("pragma query_only = on")
    with pytest.raises(StoreUnavailable, match="is read-only"):
        await store.commit(step(row))
    with store._writer._lock:
        store._writer.raw().execute("pragma query_only = off")
    assert await store.commit(step(row)) == Committed()
    await store.close()


async def test_a_lock_that_is_held_too_long_is_told_and_nothing_is_written(path: Path, clock: Clock) -> None:
    store = await opened(path, clock, patience=0.05)
    _, row = await claimed(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreBusy, match="another process has held the write lock"):
            await store.commit(step(row))
        other.execute("rollback")
    assert await store.commit(step(row)) == Committed()
    await store.close()


async def test_a_lone_transition_takes_four_statements(path: Path, clock: Clock) -> None:
    store = await opened(path, clock)
    _, row = await claimed(store)
    seen: list[str] = []
    with store._writer._lock:
        store._writer.raw().set_trace_callback(seen.append)
    await store.commit(step(row))
    with store._writer._lock:
        store._writer.raw().set_trace_callback(None)
    assert [text.split()[0].upper() for text in seen] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    await store.close()


def test_a_store_is_opened_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative: Any = open_store("sqlite:///here.db")
    absolute: Any = open_store(f"sqlite:///{tmp_path / 'there.db'}")
    assert (relative.path, absolute.path) == (tmp_path / "here.db", tmp_path / "there.db")
    assert type(open_store("memory:")).__name__ == "MemoryStore"
    for url in ("mysql://x", "runs.db", ""):
        with pytest.raises(Exception, match="sqlite:///"):
            open_store(url)


# --- several processes -------------------------------------------------------------------------------------------


async def test_b62_a_worker_whose_lock_is_free_is_dead_at_once(path: Path, clock: Clock) -> None:
    dead, living = await opened(path, clock), await opened(path, clock)
    _, row = await claimed(dead)
    dead._locks.let_go()  # what the kernel does for a process that died
    session = await living.open_session("living")
    [taken] = await living.claim_runs(session, limit=1)
    assert (taken.claims_without_progress, taken.token != row.token) == (2, True)
    assert await dead.commit(step(row)) == LateResult()
    assert len(await living.history("r")) == 1
    await dead.close()
    await living.close()


async def test_a_living_worker_of_another_store_keeps_its_runs(path: Path, clock: Clock) -> None:
    one, other = await opened(path, clock), await opened(path, clock)
    await claimed(one)
    session = await other.open_session("other")
    assert list(await other.claim_runs(session, limit=1)) == []
    await one.close()
    await other.close()


async def test_b10_threads_of_two_stores_decide_and_one_wins(path: Path, clock: Clock) -> None:
    stores = [await opened(path, clock), await opened(path, clock)]
    _, row = await claimed(stores[0])
    await stores[0].commit(commit(row, standing("waiting"), opens=(wait_row(),), release=True))
    replies: list[Any] = []
    gate = threading.Barrier(8)

    def decide(number: int) -> None:
        gate.wait()
        mine = decision("YES" if number % 2 else "NO", actor=f'"{number}"')
        replies.append(finished(stores[number % 2].decide(mine)))

    together([lambda n=n: decide(n) for n in range(8)])  # type: ignore[misc]
    assert sorted(reply.status for reply in replies) == ["applied"] + ["conflict"] * 7
    assert len({reply.wait.outcome for reply in replies}) == 1
    for store in stores:
        await store.close()


def finished(work: Any) -> Any:
    """What a method of this store returns: it never suspends, so it needs no loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the method suspended")


def together(calls: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


WORKER = """
import sys
from dataclasses import replace
from agentflow.errors import StoreError
from agentflow.store.rows import Requested, LateResult
from agentflow.store.sqlite import SqliteStore
from tests.store.making import claimed, history, new_run, standing, commit
from tests.store.test_sqlite import finished

store = SqliteStore(sys.argv[1])
finished(store.open())
session = finished(store.open_session("w"))
mine = sys.argv[2]
finished(store.create_run(new_run(mine, standing=standing("queued", due_at=store.now()))))
[row] = finished(store.claim_runs(session, limit=1, runs=[mine]))
shared = 0
for number in range(1, 51):
    finished(store.commit(commit(row, history=history(number))))
    row = replace(row, revision=number)
    while True:  # one shared run: claim it, raise its revision, give it back
        rows = finished(store.claim_runs(session, limit=1, runs=["shared"]))
        if rows:
            next_one = history(rows[0].revision + 1)
            finished(store.commit(commit(rows[0], standing("queued", due_at=store.now()), history=next_one, release=True)))
            break
print("done", number)
"""


def test_b61_four_processes_on_one_file_meet_no_lock_error_and_lose_nothing(path: Path) -> None:
    store = SqliteStore(path)
    finished(store.open())
    finished(store.create_run(new_run("shared", standing=standing("queued", due_at=store.now()))))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), f"own{number}"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    done = [worker.communicate(timeout=120) for worker in workers]
    assert [(out, error) for out, error in done] == [("done 50\n", "")] * 4
    shared = finished(store.run("shared"))
    assert shared is not None
    assert shared.revision == 200
    assert [line.revision for line in finished(store.history("shared"))] == list(range(201))
    for number in range(4):
        own = finished(store.run(f"own{number}"))
        assert own is not None
        assert own.revision == 50
    finished(store.close())
