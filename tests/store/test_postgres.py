"""What PostgreSQL alone has to keep: races between connections, one round trip, the server's clock, its own errors."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from agentflow.errors import (
    ConfigurationError,
    InvalidInput,
    NewerSchema,
    NotOurDatabase,
    OlderSchema,
    StoreUnavailable,
)
from agentflow.store.instants import to_number
from agentflow.store.opening import open_store
from agentflow.store.postgres import PostgresStore
from agentflow.store.postgres_clock import ServerClock
from agentflow.store.postgres_connection import Address, Using
from agentflow.store.rows import Committed, Created, EffectBegun, Joined, LateResult, Refused
from tests import postgres
from tests.store.making import attempt, claimed, commit, decision, effect, history, new_run, standing, step, wait_row

pytestmark = pytest.mark.skipif(postgres.server() is None, reason="no PostgreSQL: set AGENTFLOW_TEST_PG")
MANY = 20


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


# --- races -------------------------------------------------------------------------------------------------------


async def test_several_processes_may_open_a_fresh_database_at_once(address: str) -> None:
    stores = [PostgresStore(address) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    assert isinstance(await stores[0].create_run(new_run()), Created)
    await asyncio.gather(*(store.close() for store in stores))


async def test_claims_of_many_workers_are_disjoint_and_take_all(store: PostgresStore) -> None:
    for number in range(MANY):
        await store.create_run(new_run(f"r{number}", standing=due(store)))
    sessions = [await store.open_session(f"w{number}") for number in range(5)]
    found = await asyncio.gather(*(store.claim_runs(session, limit=7) for session in sessions))
    while sum(map(len, found)) < MANY and (more := await store.claim_runs(sessions[0], limit=MANY)):
        found.append(more)
    names = [row.id for rows in found for row in rows]
    assert (len(names), len(set(names))) == (MANY, MANY)


async def test_of_many_starts_of_one_id_one_creates(store: PostgresStore) -> None:
    replies = await asyncio.gather(*(store.create_run(new_run()) for _ in range(MANY)))
    assert sum(isinstance(reply, Created) for reply in replies) == 1
    assert len(await store.history("r")) == 1


async def test_b10_of_many_deciders_one_wins(store: PostgresStore) -> None:
    _, row = await claimed(store, standing=due(store))
    await store.commit(commit(row, standing("waiting"), opens=(wait_row(due_at=None),), release=True))
    replies = await asyncio.gather(
        *(store.decide(decision(outcome="YES" if number % 2 else "NO", actor=f'"{number}"')) for number in range(MANY))
    )
    assert sorted(reply.status for reply in replies) == ["applied", *["conflict"] * (MANY - 1)]
    assert len({reply.wait.actor for reply in replies if reply.wait is not None}) == 1


async def test_of_many_commits_of_one_claim_one_is_written(store: PostgresStore) -> None:
    _, row = await claimed(store, standing=due(store))
    replies = await asyncio.gather(*(store.commit(step(row)) for _ in range(MANY)))
    assert sorted(type(reply).__name__ for reply in replies) == ["Committed", *["LateResult"] * (MANY - 1)]
    assert [line.revision for line in await store.history("r")] == [0, 1]


async def test_once_per_is_begun_by_one_of_many_runs(store: PostgresStore) -> None:
    rows = [(await claimed(store, f"r{number}", standing=due(store)))[1] for number in range(MANY)]
    found = await asyncio.gather(
        *(store.begin_effect(effect(row, key=f"{row.id}:work:1:pay", once_per="order 7")) for row in rows)
    )
    assert sum(isinstance(reply, EffectBegun) for reply in found) == 1
    assert len({reply.row.run for reply in found if reply is not None}) == 1


async def test_a_decision_while_a_run_is_being_given_back_wakes_it(store: PostgresStore) -> None:
    for number in range(MANY):
        name = f"r{number}"
        _, row = await claimed(store, name, standing=due(store))
        await store.commit(commit(row, opens=(wait_row(name, due_at=None),)))
        waiting = standing("waiting")
        await asyncio.gather(
            store.commit(commit(row, waiting, release=True)), store.decide(decision(wait=f"{name}.work.1"))
        )
        left = await store.run(name)
        assert left is not None
        assert left.standing.due_at is not None, "the wake-up is lost"


# --- commits -----------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every query that reaches the server through the store's connections, BEGIN and COMMIT too."""
    seen: list[str] = []
    begin = Using.__init__

    def note(record: Any) -> None:
        seen.append(record.query)

    def watched(self: Using, raw: Any) -> None:
        begin(self, raw)
        raw.add_query_logger(note)

    monkeypatch.setattr(Using, "__init__", watched)
    return seen


async def test_a_start_a_claim_an_effect_and_every_commit_is_one_round_trip(
    store: PostgresStore, asked: list[str]
) -> None:
    session = await store.open_session("test")
    await counted_life(store, session, asked, "first")  # which also asks for the numbers of types, once a connection
    counts = await counted_life(store, session, asked, "r")
    assert counts == {"create": 1, "claim": 2, "commits": [1] * 5}  # a claim asks first whether there is work at all
    assert [line.revision for line in await store.history("r")] == [0, 1, 2, 3, 4]
    assert [line.attempt for line in await store.attempts("r")] == [1, 2]
    assert [line.status for line in await store.waits(run="r", status=None)] == ["open", "closed"]
    assert (store.value("r one"), store.value("r two")) == (b"content", b"bytes")


async def counted_life(store: PostgresStore, session: str, asked: list[str], name: str) -> dict[str, object]:
    """How many queries each part of a life took."""
    counts: dict[str, object] = {}
    asked.clear()
    await store.create_run(new_run(name, standing=due(store), values=((f"{name} one", b"content"),)))
    counts["create"] = len(asked)
    asked.clear()
    [row] = await store.claim_runs(session, limit=1)
    counts["claim"] = len(asked)
    one, other = wait_row(name), wait_row(name, id=f"{name}.other")
    commits: list[int] = []
    for now in (
        step(row),
        step(replace(row, revision=1), attempts=(attempt(1), attempt(2))),
        step(replace(row, revision=2), opens=(one, other), values=((f"{name} two", b"bytes"),)),
        step(replace(row, revision=3), closes=(other.id,), settles=("no such key",)),
        commit(replace(row, revision=4), standing("waiting"), release=True),
    ):
        asked.clear()
        assert await store.commit(now) == Committed()
        commits.append(len(asked))
    return counts | {"commits": commits}


async def test_an_effect_is_begun_and_settled_in_one_round_trip_each(store: PostgresStore, asked: list[str]) -> None:
    _, row = await claimed(store, standing=due(store))
    asked.clear()
    begun = await store.begin_effect(effect(row))
    assert isinstance(begun, EffectBegun)
    assert begun.row.session == row.session
    assert await store.settle_effect("r", row.token or "", begun.row.key, "done")
    assert len(asked) == 2


async def test_a_commit_whose_answer_was_lost_is_looked_up(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, row = await claimed(store, standing=due(store))
    losing_answers(monkeypatch, 1)
    assert await store.commit(step(row)) == Committed()


async def test_a_commit_of_which_nothing_can_be_learned_is_a_failure(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, row = await claimed(store, standing=due(store))
    losing_answers(monkeypatch, 2)
    with pytest.raises(StoreUnavailable):
        await store.commit(step(row))
    assert await store.commit(step(row)) == LateResult()  # it had been written, and is not written twice
    assert [line.revision for line in await store.history("r")] == [0, 1]


def losing_answers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The next statements are carried out, but their answers are lost."""
    rows, left = Using.rows, [count]

    async def lost(self: Using, statement: Any, values: Any) -> Any:
        found = await rows(self, statement, values)
        if left[0]:
            left[0] -= 1
            raise ConnectionResetError("the answer was lost")
        return found

    monkeypatch.setattr(Using, "rows", lost)


async def test_a_refused_statement_of_an_author_takes_everything_back(store: PostgresStore) -> None:
    _, row = await claimed(store, standing=due(store))
    bad = (Joined(text("select 1")), Joined(text("insert into nowhere values (:n)"), {"n": 1}))
    reply = await store.commit(step(row, joined=bad))
    assert isinstance(reply, Refused)
    assert (reply.number, "nowhere" in reply.error) == (1, True)
    assert [line.revision for line in await store.history("r")] == [0]


async def test_a_cancel_that_comes_while_a_commit_is_under_way_is_delivered_after_it(store: PostgresStore) -> None:
    _, row = await claimed(store, standing=due(store))
    replies: list[object] = []

    async def drive() -> None:
        replies.append(await store.commit(step(row)))
        await asyncio.Event().wait()

    task = asyncio.create_task(drive())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert replies == [Committed()]


# --- the clock ---------------------------------------------------------------------------------------------------


async def test_the_servers_clock_rules_however_wrong_ours_is(store: PostgresStore) -> None:
    session = await store.open_session("test")
    await store.create_run(new_run("later", standing=standing("queued", due_at=store.now() + timedelta(minutes=1))))
    await store.create_run(new_run("now", standing=due(store)))
    store._server_clock.now = lambda: datetime.now(UTC) + timedelta(hours=1)  # type: ignore[method-assign]
    assert [row.id for row in await store.claim_runs(session, limit=9)] == ["now"]


async def test_now_is_the_servers_time(store: PostgresStore) -> None:
    async with store._pools.using() as connection:
        server: datetime = await connection.raw.fetchval("select clock_timestamp()")
    assert abs(server - store.now()) < timedelta(seconds=1)
    assert store.now().tzinfo is UTC


class Ticks:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Server:
    """A server whose clock may be set, and a way to it that takes some time."""

    clock: ServerClock
    ticks: Ticks
    ahead: float = 0.0  # of the ticks, in seconds

    def now(self) -> float:
        return self.ticks.seconds + self.ahead

    def answers(self, there: float, back: float) -> None:
        asked = self.clock.asks()
        self.ticks.seconds += there
        answer = round(self.now() * 1_000_000)
        self.ticks.seconds += back
        self.clock.learn(asked, answer)

    def behind(self) -> float:
        """How far the clock is behind the server's."""
        return self.now() - to_number(self.clock.now()) / 1_000_000


@pytest.fixture
def server() -> Server:
    ticks = Ticks()
    return Server(ServerClock(ticks), ticks, ahead=1e9)


def test_the_clock_is_behind_the_server_by_the_way_back_and_never_ahead(server: Server) -> None:
    server.answers(there=0.25, back=0.5)
    assert server.behind() == pytest.approx(0.5, abs=1e-5)
    server.ticks.seconds += 60
    assert server.behind() == pytest.approx(0.5, abs=1e-5)


def test_a_quick_answer_is_better_than_a_slow_one_whichever_comes_last(server: Server) -> None:
    server.answers(there=0.001, back=0.001)
    server.answers(there=0.5, back=0.5)
    assert server.behind() == pytest.approx(0.001, abs=1e-5)


def test_an_exact_answer_gets_old(server: Server) -> None:
    server.answers(there=0.0, back=0.001)
    server.ticks.seconds += 3600
    server.answers(there=0.0, back=0.5)
    assert server.behind() == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("seconds", [-30.0, 30.0])
def test_a_server_whose_clock_was_set_is_followed_at_once(server: Server, seconds: float) -> None:
    server.answers(there=0.001, back=0.001)
    server.ahead += seconds
    server.answers(there=0.01, back=0.01)
    assert server.behind() == pytest.approx(0.01, abs=1e-5)


async def test_a_lease_is_renewed_from_a_thread_and_a_lost_one_is_final(address: str) -> None:
    store = PostgresStore(address, lease=timedelta(milliseconds=1))
    await store.open()
    session = await store.open_session("short")
    async with store._pools.using() as connection:
        await connection.raw.execute("select pg_sleep(0.01)")  # on the server: its clock rules
    assert await asyncio.to_thread(store.renew_session, session) is False
    alive = PostgresStore(address)
    await alive.open()
    other = await alive.open_session("alive")
    assert await asyncio.to_thread(alive.renew_session, other) is True
    await alive.close()
    await store.close()


# --- what is refused ---------------------------------------------------------------------------------------------


async def test_b57_a_nul_character_is_refused_and_nothing_is_written(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        await store.create_run(new_run(history=history(0, difference='{"set":{"text":"\x00"}}')))
    assert await store.run("r") is None


async def test_a_number_that_does_not_fit_is_refused(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput):
        await store.create_run(new_run(version=2**70))


async def test_a_server_that_is_away_is_told_without_its_password() -> None:
    store = PostgresStore("postgresql://ada:hush@/flows?host=/nowhere")
    with pytest.raises(StoreUnavailable, match="PostgreSQL flows at /nowhere") as caught:
        await store.open()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("schema", "error"), [("99", NewerSchema), ("1", OlderSchema)])
async def test_a_schema_of_another_version_is_refused(address: str, schema: str, error: type[Exception]) -> None:
    store = PostgresStore(address)
    await store.open()
    async with store._pools.using() as connection:
        await connection.raw.execute("update meta set value = $1 where name = 'schema'", schema)
    await store.close()
    with pytest.raises(error):
        await PostgresStore(address).open()


async def test_a_table_that_is_not_ours_is_left_alone(address: str) -> None:
    name = address.rpartition("schema=")[2]
    connection = await asyncpg.connect(postgres.server())
    await connection.execute(f'create schema "{name}"; create table "{name}".runs (id int)')
    await connection.close()
    with pytest.raises(NotOurDatabase, match="schema=agentflow"):
        await PostgresStore(address).open()


def test_an_address_is_opened_whatever_its_scheme_and_a_strange_schema_refused() -> None:
    for scheme in ("postgres", "postgresql", "postgresql+asyncpg"):
        assert isinstance(open_store(f"{scheme}://ada@db.example/flows"), PostgresStore)
    assert Address("postgresql://ada:hush@db.example:5433/flows").shown == "PostgreSQL flows at db.example:5433"
    with pytest.raises(ConfigurationError, match="schema"):
        open_store("postgresql://ada@db.example/flows?schema=a;b")


# --- takeover ----------------------------------------------------------------------------------------------------


async def test_b62_a_thawed_worker_writes_nothing(address: str) -> None:
    frozen = PostgresStore(address, lease=timedelta(milliseconds=500))
    await frozen.open()
    _, row = await claimed(frozen, standing=due(frozen))
    other = PostgresStore(address)
    await other.open()
    async with other._pools.using() as connection:
        await connection.raw.execute("select pg_sleep(0.6)")
    session = await other.open_session("other")
    [taken] = await other.claim_runs(session, limit=1)
    assert await other.commit(step(taken)) == Committed()
    assert await frozen.commit(step(row)) == LateResult()
    assert await frozen.commit(step(replace(row, revision=1))) == LateResult()
    assert await frozen.begin_effect(effect(row)) is None
    await other.close()
    await frozen.close()
