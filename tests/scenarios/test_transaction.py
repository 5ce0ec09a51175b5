"""`run.transaction`: statements of the author's that are committed with the transition, or not at all."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table, insert, text, update

from agentflow import App, Context, Retry, Run, Snapshot, SyncRun, Workflow
from agentflow.failures import Retryable, StatementRefused
from agentflow.merge import Append

WITHIN = timedelta(seconds=20)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

orders = Table(
    "orders",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("name", String, unique=True),
    Column("at", DateTime),
)


class Order(Context):
    log: Append[str] = Append()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def flow_of(body: Any, **options: Any) -> Workflow[Order, None]:
    flow = Workflow("ordering", Order)
    save = flow.step(**options)(body)
    saved, refused = flow.end("saved"), flow.end("refused", failed=True)
    flow.build(start=save, transitions=[save.failed(StatementRefused).to(refused), save.to(saved)])
    return flow


async def run(flow: Workflow[Order, None], path: Path) -> Snapshot[Order]:
    app = App([flow], store=f"sqlite:///{path}")
    await app.ping()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (id integer primary key, name text unique, at text)")
    async with app:
        return await app.run(flow, Order(), id="r", timeout=WITHIN)


def rows(path: Path, query: str = "select id, name, at from orders order by id") -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


async def test_statements_are_committed_with_the_transition_in_their_order_and_with_all_types(database: Path) -> None:
    async def save(case: Order, run: Run) -> None:
        run.transaction.execute(insert(orders).values(id=1, name="a", at=NOON.replace(tzinfo=None)))
        run.transaction.execute(update(orders).where(orders.c.id == 1).values(name="b"))
        run.transaction.execute(insert(orders), {"id": 2, "name": "c", "at": None})
        run.transaction.execute(text("insert into orders (id, name) values (:id, 'd')"), {"id": 3})
        case.log.append("saved")

    found = await run(flow_of(save), database)
    assert found.status == "completed"
    assert rows(database) == [(1, "b", "2030-01-01 12:00:00.000000"), (2, "c", None), (3, "d", None)]


async def test_a_synchronous_body_has_a_transaction_too(database: Path) -> None:
    def save(case: Order, run: SyncRun) -> None:
        run.transaction.execute(insert(orders).values(id=1, name="a"))

    assert (await run(flow_of(save), database)).status == "completed"
    assert rows(database) == [(1, "a", None)]


async def test_a_refused_statement_takes_all_of_the_step_back_and_is_a_failure_that_can_be_routed(
    database: Path,
) -> None:
    async def save(case: Order, run: Run) -> None:
        case.log.append("saved")
        run.transaction.execute(insert(orders).values(id=1, name="a"))
        run.transaction.execute(insert(orders).values(id=2, name="a"))

    found = await run(flow_of(save), database)
    assert (found.end is not None and found.end.name, list(found.context.log)) == ("refused", [])
    assert found.failure is not None
    assert "statement 2 of run.transaction was refused: UNIQUE constraint failed" in found.failure.message
    assert rows(database) == []
    assert rows(database, "select event, target from history order by revision") == [
        ("start", "save"),
        ("failed", "refused"),
    ]


async def test_statements_of_an_attempt_that_failed_are_dropped(database: Path) -> None:
    async def save(case: Order, run: Run) -> None:
        run.transaction.execute(insert(orders).values(id=run.attempt, name=f"attempt {run.attempt}"))
        if run.attempt == 1:
            raise Retryable("again")

    found = await run(flow_of(save, retry=Retry(attempts=2)), database)
    assert found.status == "completed"
    assert rows(database) == [(2, "attempt 2", None)]


async def test_what_is_no_statement_is_told_at_the_line_that_passes_it(database: Path) -> None:
    async def save(case: Order, run: Run) -> None:
        statement: Any = "insert into orders (id) values (1)"
        run.transaction.execute(statement)

    found = await run(flow_of(save), database)
    assert found.failure is not None
    assert (found.failure.kind, "SQLAlchemy Core" in found.failure.message) == ("InvalidInput", True)


async def test_a_store_without_a_database_says_so() -> None:
    async def save(case: Order, run: Run) -> None:
        run.transaction.execute(insert(orders).values(id=1, name="a"))

    flow = flow_of(save)
    async with App([flow], store="memory:") as app:
        found = await app.run(flow, Order(), timeout=WITHIN)
    assert found.failure is not None
    assert "memory: has no database" in found.failure.message
