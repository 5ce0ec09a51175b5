"""Group commit of the SQLite store: one transaction for many, and no member harms another."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from agentflow.errors import StoreError, StoreUnavailable
from agentflow.store.rows import (
    Commit,
    CommitReply,
    Committed,
    EffectBegun,
    EffectClaim,
    Joined,
    LateResult,
    Refused,
    Requested,
    RunRow,
)
from agentflow.store.sqlite import SqliteStore
from agentflow.store.sqlite_commits import CHUNKS, WHOLE
from tests.store.making import Clock, command, commit, history, new_run, standing, step, wait_row

MANY = 300


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncGenerator[SqliteStore, None]:
    made = SqliteStore(tmp_path / "runs.db", clock=clock.now)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def held(store: SqliteStore, count: int) -> Sequence[RunRow]:
    """Runs in the hands of one session, each with one commit behind it, so that the next only go on."""
    for number in range(count):
        await store.create_run(new_run(f"r{number}"))
    session = await store.open_session("test")
    rows = await store.claim_runs(session, limit=count)
    assert await together(store, [step(row) for row in rows]) == [Committed()] * count
    return [replace(row, revision=1) for row in rows]


async def together(store: SqliteStore, commits: Sequence[Commit]) -> list[CommitReply]:
    return await asyncio.gather(*(store.commit(one) for one in commits))


def on(row: RunRow, **changes: Any) -> Commit:
    return step(row, goes_on=True, **changes)


def statements(store: SqliteStore) -> list[str]:
    """Every statement that the writer begins from now on."""
    seen: list[str] = []
    store._writer.raw().set_trace_callback(seen.append)
    return seen


async def revisions(store: SqliteStore, count: int) -> list[int]:
    found = [await store.run(f"r{number}") for number in range(count)]
    return [row.revision for row in found if row is not None]


# --- what it costs -----------------------------------------------------------------------------------------------


async def test_a_lone_run_commits_inline_in_four_statements_without_a_hop(store: SqliteStore) -> None:
    [row] = await held(store, 1)
    seen = statements(store)
    waiting = store.commit(on(row)).__await__()
    with pytest.raises(StopIteration) as done:  # it ends at the first step: nothing was waited for
        next(waiting)
    assert done.value.value == Committed()
    assert [statement.split()[0] for statement in seen] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]


async def test_many_runs_commit_in_one_transaction_with_few_statements(store: SqliteStore) -> None:
    rows = await held(store, MANY)
    seen = statements(store)
    assert await together(store, [on(row) for row in rows]) == [Committed()] * MANY
    words = [statement.split()[0] for statement in seen]
    assert (words.count("BEGIN"), words.count("COMMIT")) == (1, 1)
    assert len(seen) < 25
    assert await revisions(store, MANY) == [2] * MANY


async def test_what_one_tick_wants_written_goes_together_whatever_it_is(store: SqliteStore) -> None:
    rows = await held(store, 4)
    seen = statements(store)
    claims = [effect(row) for row in rows]
    replies = await asyncio.gather(
        *(store.begin_effect(claim) for claim in claims),
        store.commit(on(rows[0])),
        store.commit(step(rows[1], opens=(wait_row("r1"),), release=True)),
        store.create_run(new_run("new")),
    )
    assert [isinstance(reply, EffectBegun) for reply in replies[:4]] == [True] * 4
    assert list(replies[4:6]) == [Committed()] * 2
    assert [statement.split()[0] for statement in seen].count("COMMIT") == 1
    assert await store.run("new") is not None
    assert [wait.id for wait in await store.waits(run="r1")] == ["r1.work.1"]


def effect(row: RunRow) -> EffectClaim:
    assert row.token is not None
    return EffectClaim(
        run=row.id, token=row.token, key=f"{row.id}:work:1:pay", name="pay", state="work", visit=1, workflow="flow"
    )


# --- no member harms another -------------------------------------------------------------------------------------


@pytest.mark.parametrize("losers", [(0,), (1, 7, 40), tuple(range(50))])
async def test_who_lost_its_claim_is_told_and_the_others_are_written(
    store: SqliteStore, losers: tuple[int, ...]
) -> None:
    rows = await held(store, 50)
    commits = [on(replace(row, token="of somebody else") if at in losers else row) for at, row in enumerate(rows)]
    replies = await together(store, commits)
    assert replies == [LateResult() if at in losers else Committed() for at in range(50)]
    assert await revisions(store, 50) == [1 if at in losers else 2 for at in range(50)]


async def test_a_command_in_between_is_told_to_its_run_alone(store: SqliteStore) -> None:
    rows = await held(store, 5)
    await store.request(command("cancel", run="r2"), word="{}", wake=True)
    replies = await together(store, [on(row) for row in rows])
    assert [type(reply) for reply in replies] == [Committed, Committed, Requested, Committed, Committed]


async def test_a_member_that_the_database_refuses_keeps_its_error_to_itself(store: SqliteStore) -> None:
    rows = await held(store, 5)
    commits = [on(row) for row in rows]
    commits[3] = commit(rows[3], history=history(1), goes_on=True)  # revision 1 is there already
    results = await asyncio.gather(*(store.commit(one) for one in commits), return_exceptions=True)
    assert isinstance(results[3], StoreError)
    assert [result for at, result in enumerate(results) if at != 3] == [Committed()] * 4
    assert await revisions(store, 5) == [2, 2, 2, 1, 2]
    assert [line.revision for line in await store.history("r3")] == [0, 1]


async def test_a_refused_statement_of_an_author_takes_back_its_own_commit_only(store: SqliteStore) -> None:
    rows = await held(store, 3)
    bad = on(rows[1], joined=(Joined(text("select 1")), Joined(text("insert into nowhere values (1)"))))
    replies = await together(store, [on(rows[0]), bad, on(rows[2])])
    assert replies[0] == replies[2] == Committed()
    assert isinstance(replies[1], Refused)
    assert (replies[1].number, "nowhere" in replies[1].error) == (1, True)
    assert await revisions(store, 3) == [2, 1, 2]


async def test_an_error_of_the_whole_transaction_reaches_every_member(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = await held(store, 3)
    monkeypatch.setattr(type(store._writer), "_commit", refuse)
    results = await asyncio.gather(*(store.commit(on(row)) for row in rows), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert await revisions(store, 3) == [1] * 3


def refuse(connection: Any) -> None:
    connection._roll_back()
    raise StoreUnavailable("the disk is full")


@pytest.mark.parametrize("count", [1, 3])
async def test_a_commit_whose_answer_was_lost_is_looked_up_and_not_guessed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    rows = await held(store, count)
    monkeypatch.setattr(type(store._writer), "_commit", commit_and_lose_the_answer)
    assert await together(store, [on(row) for row in rows]) == [Committed()] * count


def commit_and_lose_the_answer(connection: Any) -> None:
    connection.raw().execute("COMMIT")
    raise StoreUnavailable("the answer was lost")


# --- cancelled while it waits ------------------------------------------------------------------------------------


async def test_a_cancel_that_comes_while_a_commit_waits_is_delivered_after_it(store: SqliteStore) -> None:
    rows = await held(store, 2)
    replies: list[CommitReply] = []

    async def drive() -> None:
        replies.append(await store.commit(on(rows[0])))
        await asyncio.Event().wait()

    task = asyncio.create_task(drive())
    await asyncio.sleep(0)  # it waits for its group now
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert replies == [Committed()]
    assert (await revisions(store, 2))[0] == 2


async def test_a_cancel_between_an_effects_claim_and_its_call_leaves_the_claim_and_makes_no_call(
    store: SqliteStore,
) -> None:
    rows = await held(store, 2)
    called: list[str] = []

    async def act() -> None:
        await store.begin_effect(effect(rows[0]))
        called.append("called")

    task = asyncio.create_task(act())
    await asyncio.sleep(0)  # it waits for its group now
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await store.effect("r0:work:1:pay")
    assert found is not None
    assert (found.status, called) == ("claimed", [])


async def test_the_other_members_of_a_group_do_not_notice_a_cancel(store: SqliteStore) -> None:
    rows = await held(store, 3)
    tasks = [asyncio.create_task(store.commit(on(row))) for row in rows]
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] == results[2] == Committed()
    assert await revisions(store, 3) == [2] * 3


# --- alone and with company --------------------------------------------------------------------------------------


async def test_a_run_that_was_given_back_is_no_company_any_more(store: SqliteStore) -> None:
    rows = await held(store, 2)
    assert await store.commit(step(rows[1], standing("queued"), release=True)) == Committed()
    waiting = store.commit(on(rows[0])).__await__()
    with pytest.raises(StopIteration):
        next(waiting)


async def test_a_session_that_ends_is_no_company_any_more(store: SqliteStore) -> None:
    rows = await held(store, 3)
    other = await store.open_session("other")
    await store.create_run(new_run("mine"))
    [mine] = await store.claim_runs(other, limit=9)
    assert rows[0].session is not None
    await store.close_session(rows[0].session)
    waiting = store.commit(step(mine)).__await__()
    with pytest.raises(StopIteration):
        next(waiting)


async def test_a_thread_without_a_loop_writes_inline(store: SqliteStore) -> None:
    rows = await held(store, 2)

    def write() -> None:
        work = store.commit(commit(rows[0], history=history(2)))
        with pytest.raises(StopIteration):
            work.send(None)

    await asyncio.to_thread(write)
    assert (await revisions(store, 2))[0] == 2


def test_the_sqlite_at_hand_takes_as_many_parameters_as_a_full_chunk_has() -> None:
    connection = sqlite3.connect(":memory:")
    limit = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    connection.close()
    assert CHUNKS[0] * (1 + len(WHOLE)) <= limit
