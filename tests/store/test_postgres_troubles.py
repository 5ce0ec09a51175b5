"""PostgreSQL in trouble: locks held too long, servers that restart, sessions that end in the middle, settings of others."""

import asyncio
import decimal
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from sqlalchemy import JSON, Column, DateTime, Enum, MetaData, Numeric, Table, Text, Uuid, func, insert, select, update

from agentflow.errors import StoreBusy, StoreError, StoreUnavailable
from agentflow.store.postgres import PostgresStore
from agentflow.store.rows import Committed, EffectBegun, LateResult, Refused, RunFilter
from tests import postgres
from tests.store.making import claimed, commit, decision, effect, new_run, standing, step, wait_row

pytestmark = pytest.mark.skipif(postgres.server() is None, reason="no PostgreSQL: set AGENTFLOW_TEST_PG")
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
READERS = 20  # more than there are connections for them


@pytest.fixture
async def address() -> AsyncGenerator[str, None]:
    made = postgres.fresh_address()
    yield made
    await postgres.drop(made)


@pytest.fixture
async def store(address: str) -> AsyncGenerator[PostgresStore, None]:
    made = PostgresStore(address)
    await made.open()
    yield made
    await made.close()


def due(store: PostgresStore) -> Any:
    return standing("queued", due_at=store.now())


def schema_of(address: str) -> str:
    return address.rpartition("schema=")[2]


@asynccontextmanager
async def somebody(address: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection to the tables that is none of the store's."""
    connection = await asyncpg.connect(postgres.server(), server_settings={"search_path": schema_of(address)})
    try:
        yield connection
    finally:
        await connection.close()


async def until_blocked(watcher: "asyncpg.Connection[Any]", task: "asyncio.Task[Any] | None") -> bool:
    """Whether somebody waits for a lock; the task may be over instead. The watcher has no transaction open, in which it
    would see for ever what it saw first.
    """
    async with asyncio.timeout(30):
        while task is None or not task.done():
            if await watcher.fetchval(WAITING):
                return True
    return False


# --- locks -------------------------------------------------------------------------------------------------------


async def test_a_lock_that_is_held_too_long_is_told_and_nothing_is_written(address: str) -> None:
    store = PostgresStore(address, patience=0.05)
    await store.open()
    _, row = await claimed(store, standing=due(store))
    async with somebody(address) as other:
        begun = other.transaction()
        await begun.start()
        await other.execute("select 1 from runs for update")
        with pytest.raises(StoreBusy, match="lock"):
            await store.commit(step(row))
        await begun.rollback()
    assert await store.run("r") == row
    assert await store.commit(step(row)) == Committed()
    await store.close()


async def test_a_claim_that_its_sessions_end_overtakes_leaves_no_run_in_dead_hands(
    store: PostgresStore, address: str
) -> None:
    await store.create_run(new_run(standing=due(store)))
    session = await store.open_session("test")
    async with somebody(address) as watcher:
        async with claiming(store, session):
            ending = asyncio.create_task(store.close_session(session))
            await until_blocked(watcher, ending)
        await ending
    left = await store.run("r")
    assert left is not None
    assert left.session is None


@asynccontextmanager
async def claiming(store: PostgresStore, session: str) -> AsyncIterator[None]:
    """A claim that takes place at the beginning of the block, and is committed at its end."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(act: Any) -> Any:
        async def held(connection: Any) -> Any:
            found = await act(connection)
            begun.set()
            await go_on.wait()
            return found

        return await store._pools.transaction(held)

    store._at_once = slowly  # type: ignore[method-assign]
    task = asyncio.create_task(store.claim_runs(session, limit=9))
    await begun.wait()
    yield
    go_on.set()
    assert [row.id for row in await task] == ["r"]


async def test_workers_that_find_each_others_sessions_dead_end_each_once(address: str) -> None:
    store = PostgresStore(address)
    await store.open()
    for number in range(20):
        await claimed(store, f"r{number}", standing=due(store))
    async with somebody(address) as other:
        await other.execute("update sessions set lease_until = 0")
    workers = [await store.open_session(f"w{number}") for number in range(5)]
    found = await asyncio.gather(*(store.claim_runs(worker, limit=20) for worker in workers))
    for worker in workers:  # what was being taken while they looked
        found.append(await store.claim_runs(worker, limit=20))
    rows = [row for rows in found for row in rows]
    assert sorted(row.id for row in rows) == sorted(f"r{number}" for number in range(20))
    assert {row.claims_without_progress for row in rows} == {2}
    await store.close()


async def test_a_decision_that_is_committed_while_a_release_waits_for_the_run_wakes_it(
    store: PostgresStore, address: str
) -> None:
    _, row = await claimed(store, standing=due(store))
    await store.commit(commit(row, opens=(wait_row(),)))
    async with somebody(address) as decider, somebody(address) as watcher:
        begun = decider.transaction()
        await begun.start()
        await decider.execute("select 1 from runs where id = 'r' for update")
        await decider.execute("update waits set status = 'decided' where id = 'r.work.1'")
        releasing = asyncio.create_task(store.commit(commit(row, standing("waiting"), release=True)))
        assert await until_blocked(watcher, releasing)  # it has begun, so it looks at what was there before
        await begun.commit()
        assert await releasing == Committed()
    left = await store.run("r")
    assert left is not None
    assert left.standing.due_at is not None, "the wake-up is lost"


async def test_b62_what_a_takeover_overtakes_neither_begins_nor_settles_an_effect(
    store: PostgresStore, address: str
) -> None:
    _, row = await claimed(store, standing=due(store))
    begun = await store.begin_effect(effect(row))
    assert isinstance(begun, EffectBegun)
    async with somebody(address) as other, somebody(address) as watcher:
        takeover = other.transaction()
        await takeover.start()
        await other.execute("update runs set token = 'of somebody else' where id = 'r'")
        works: list[Any] = [
            asyncio.create_task(store.settle_effect("r", row.token or "", begun.row.key, "done")),
            asyncio.create_task(store.begin_effect(effect(row, key="r:work:1:mail"))),
            asyncio.create_task(store.commit(step(row))),
        ]
        for work in works:
            assert await until_blocked(watcher, work)
        await takeover.commit()
        assert await asyncio.gather(*works) == [False, None, LateResult()]
    assert [(line.key, line.status) for line in await store.effects(run="r")] == [(begun.row.key, "claimed")]


# --- settings of others ------------------------------------------------------------------------------------------


async def test_a_strict_isolation_by_default_loses_no_wake_up(address: str) -> None:
    store = PostgresStore(address + "&default_transaction_isolation=serializable")
    await store.open()
    for number in range(10):
        name = f"r{number}"
        _, row = await claimed(store, name, standing=due(store))
        await store.commit(commit(row, opens=(wait_row(name),)))
        replies = await asyncio.gather(
            store.commit(commit(row, standing("waiting"), release=True)),
            store.decide(decision(wait=f"{name}.work.1")),
        )
        left = await store.run(name)
        assert (replies[0], replies[1].status) == (Committed(), "applied")
        assert left is not None
        assert left.standing.due_at is not None
    await store.close()


@pytest.mark.parametrize("schema", ["Mixed", "select"])
async def test_a_schema_may_have_any_name(schema: str) -> None:
    base = postgres.fresh_address().rpartition("schema=")[0]
    name = f"{schema}_{uuid4().hex}" if schema == "Mixed" else schema
    store = PostgresStore(f"{base}schema={name}")
    await store.open()
    await store.create_run(new_run())
    assert [row.id for row in await store.runs(RunFilter())] == ["r"]
    await store.close()
    await postgres.drop(f"schema={name}")


async def test_a_user_without_the_right_to_create_opens_what_is_there(store: PostgresStore, address: str) -> None:
    name = schema_of(address)
    user = f"u{uuid4().hex}"
    async with somebody(address) as owner:
        await owner.execute(
            f'create role "{user}" login; grant usage on schema "{name}" to "{user}";'
            f'grant all on all tables in schema "{name}" to "{user}"; grant all on all sequences in schema "{name}" to "{user}"'
        )
        limited = PostgresStore(address.replace("postgres:@", f"{user}:@"))
        await limited.open()
        await limited.create_run(new_run())
        assert await store.run("r") is not None
        await limited.close()
        await owner.execute(f'drop owned by "{user}"; drop role "{user}"')


async def test_a_user_who_may_not_create_tables_is_told_what_to_grant(address: str) -> None:
    user = f"u{uuid4().hex}"
    async with somebody(address) as owner:
        await owner.execute(f'create role "{user}" login')
        with pytest.raises(StoreUnavailable, match="may not"):
            await PostgresStore(address.replace("postgres:@", f"{user}:@")).open()
        await owner.execute(f'drop role "{user}"')


async def test_a_database_that_is_not_there_is_told(address: str) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await PostgresStore(address.replace("@/postgres", "@/nowhere")).open()


# --- outages -----------------------------------------------------------------------------------------------------


async def cut_off(address: str) -> None:
    """End every connection of others to the database."""
    async with somebody(address) as other:
        await other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> "
            "pg_backend_pid() and backend_type = 'client backend'"
        )


async def test_a_store_whose_connections_were_cut_off_works_on(store: PostgresStore, address: str) -> None:
    session, row = await claimed(store, standing=due(store))
    assert await asyncio.to_thread(store.renew_session, session)
    await cut_off(address)
    assert await told_or_done(asyncio.to_thread(store.renew_session, session))
    assert await told_or_done(store.commit(step(row)))
    assert await asyncio.to_thread(store.renew_session, session)
    left = await store.run("r")
    assert left is not None
    assert left.revision in {0, 1}


async def told_or_done(work: Coroutine[Any, Any, object]) -> bool:
    """Whether it was done, or the failure was told in our words; nothing else may come out."""
    try:
        return bool(await work)
    except StoreUnavailable:
        return True


async def test_a_server_that_is_stopped_is_told_and_after_its_start_all_goes_on(
    store: PostgresStore, address: str
) -> None:
    if not postgres.is_own():
        pytest.skip("the server of AGENTFLOW_TEST_PG is not ours to stop")
    session, row = await claimed(store, standing=due(store))
    assert await asyncio.to_thread(store.renew_session, session)
    await asyncio.to_thread(postgres.stop)
    try:
        for work in (store.commit(step(row)), store.run("r"), asyncio.to_thread(store.renew_session, session)):
            with pytest.raises(StoreUnavailable):
                await work
    finally:
        await asyncio.to_thread(postgres.start)
    assert await asyncio.to_thread(store.renew_session, session)
    assert await store.commit(step(row)) == Committed()


async def test_the_heartbeat_does_not_wait_for_reads_that_hang(store: PostgresStore, address: str) -> None:
    session = await store.open_session("test")
    async with somebody(address) as other, somebody(address) as watcher:
        begun = other.transaction()
        await begun.start()
        await other.execute("lock table kept_values in access exclusive mode")
        with ThreadPoolExecutor(READERS) as threads:
            reads = [threads.submit(store.value, "x") for _ in range(READERS)]
            assert await until_blocked(watcher, None)
            assert await asyncio.to_thread(store.renew_session, session)
            await begun.rollback()
            assert [read.result() for read in reads] == [None] * READERS


def test_a_store_serves_one_loop_after_the_other(address: str) -> None:
    store = PostgresStore(address)

    async def act(number: int) -> int:
        await store.open()
        await store.create_run(new_run(f"r{number}", standing=due(store)))
        return len(await store.runs(RunFilter()))

    assert [asyncio.run(act(number)) for number in range(3)] == [1, 2, 3]
    asyncio.run(store.close())


# Python itself warns of what such a loop has left open, in its development mode.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_closed_by_hand_is_forgotten_and_the_store_goes_on(address: str) -> None:
    store = PostgresStore(address)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(store.open())
    loop.close()

    async def look() -> object:
        await store.open()
        found = await store.run("nowhere")
        await store.close()
        return found

    assert asyncio.run(look()) is None
    gc.collect()  # what Python says of it is said here


# --- statements of authors ---------------------------------------------------------------------------------------

own_tables = MetaData()
orders = Table(
    "orders",
    own_tables,
    Column("id", Uuid, primary_key=True, default=lambda: UUID(int=7)),
    Column("name", Text),
    Column("status", Enum("open", "paid", name="order_status", native_enum=False)),
    Column("total", Numeric(10, 2)),
    Column("at", DateTime(timezone=True)),
    Column("lines", JSON),
)
CREATE = "create table orders (id uuid primary key, name text, status varchar(4), total numeric(10,2), at timestamptz, lines json)"


async def test_statements_of_authors_run_with_all_types_and_defaults_of_sqlalchemy(
    store: PostgresStore, address: str
) -> None:
    _, row = await claimed(store, standing=due(store))
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    values = {
        "name": "a", "status": "open", "total": decimal.Decimal("1.10"), "at": noon, "lines": [{"n": 1}],
    }  # fmt: skip
    first = store.join(insert(orders), values)
    paid = store.join(
        update(orders).where(orders.c.name.in_(["a", "b"]), orders.c.total > 1).values(status="paid"), None
    )
    async with somebody(address) as other:
        await other.execute(CREATE)
        assert await store.commit(step(row, joined=(first, paid, store.join(select(orders), None)))) == Committed()
        [found] = await other.fetch("select * from orders")
    assert dict(found) == {
        "id": UUID(int=7), "name": "a", "status": "paid", "total": decimal.Decimal("1.10"), "at": noon,
        "lines": '[{"n": 1}]',
    }  # fmt: skip


async def test_a_statement_that_the_database_refuses_takes_the_ones_before_it_back(
    store: PostgresStore, address: str
) -> None:
    _, row = await claimed(store, standing=due(store))
    one = store.join(insert(orders), {"name": "a"})
    async with somebody(address) as other:
        await other.execute(CREATE)
        reply = await store.commit(step(row, joined=(one, one)))
        assert await other.fetchval("select count(*) from orders") == 0
    assert isinstance(reply, Refused)
    assert (reply.number, "orders_pkey" in reply.error) == (1, True)
    assert await store.run("r") == row


async def test_a_connection_that_breaks_in_an_authors_statement_is_no_refusal(
    store: PostgresStore, address: str
) -> None:
    _, row = await claimed(store, standing=due(store))
    ends = store.join(select(own_end()), None)
    with pytest.raises(StoreError):
        await store.commit(step(row, joined=(ends,)))
    assert await store.commit(step(row)) == Committed()


def own_end() -> Any:
    return func.pg_terminate_backend(func.pg_backend_pid())
