"""Beside driving: long histories are folded, and runs that nothing would wake are named."""

import logging
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from agentflow import App, Context, Run, Workflow
from agentflow.merge import Append
from agentflow.runners.upkeep import SWEEP, Upkeep
from agentflow.store.memory import MemoryStore
from agentflow.store.sqlite import SqliteStore
from tests.store.making import Clock, claimed, commit, new_run, standing, wait_row

WITHIN = timedelta(seconds=60)


class Go(StrEnum):
    ON = "on"
    ENOUGH = "enough"


class Counted(Context):
    n: int = 0
    log: Append[int] = Append()


def counting(to: int) -> Workflow[Counted, None]:
    flow = Workflow("counting", Counted)

    @flow.step(max_visits=10_000)
    async def count(case: Counted, run: Run) -> Go:
        case.n += 1
        case.log.append(case.n)
        return Go.ENOUGH if case.n == to else Go.ON

    done = flow.end("done")
    flow.build(start=count, transitions=[count.on(Go.ON).to(count), count.on(Go.ENOUGH).to(done)])
    return flow


async def test_d12_a_long_run_is_folded_while_it_runs_and_every_revision_still_loads(tmp_path: Path) -> None:
    flow, store = counting(600), SqliteStore(tmp_path / "runs.db")
    async with App([flow], store=store) as app:
        await app.run(flow, Counted(), id="r", timeout=WITHIN)
    await store.open()
    assert await store.condense("r") == 0
    assert len(await store.differences("r", 600)) == 2 + 600 - 511
    async with App([flow], store=store) as app:
        for revision in (0, 1, 255, 256, 300, 511, 512, 600):
            then = await app.get("r", flow, revision=revision)
            assert (then.context.n, list(then.context.log)) == (revision, list(range(1, revision + 1)))


async def test_a_run_that_nothing_would_wake_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock.now)
    _, row = await claimed(store, "lost")
    await store.commit(commit(row, standing("waiting"), release=True))  # and no wait is open
    upkeep = Upkeep(store)
    with caplog.at_level(logging.ERROR):
        await upkeep.look(0.0)
        await upkeep.look(SWEEP)
    [record] = caplog.records
    assert "nothing will ever wake lost" in record.getMessage()


async def test_runs_that_wait_rest_or_are_over_are_not_stranded() -> None:
    store = MemoryStore(clock=Clock().now)
    ways: dict[str, dict[str, Any]] = {
        "waits": {"to": standing("waiting"), "opens": (wait_row("waits"),)},
        "due": {"to": standing("queued", due_at=Clock().now() + timedelta(days=1))},
        "blocked": {"to": standing("queued", blocked="no such state")},
        "over": {"to": standing("completed", end="done")},
    }
    session = await store.open_session("test")
    for run in ways:
        await store.create_run(new_run(run))
    rows = {row.id: row for row in await store.claim_runs(session, limit=9)}
    for run, way in ways.items():
        await store.commit(commit(rows[run], way.pop("to"), release=True, **way))
    await store.create_run(new_run("held"))
    await store.claim_runs(session, limit=9)
    assert list(await store.stranded(limit=9)) == []


async def test_the_sweep_waits_its_time(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(clock=Clock().now)
    upkeep = Upkeep(store)
    await upkeep.look(0.0)
    _, row = await claimed(store, "lost")
    await store.commit(replace(commit(row, standing("waiting")), release=True))
    with caplog.at_level(logging.ERROR):
        await upkeep.look(SWEEP - 1)
        assert caplog.records == []
        await upkeep.look(SWEEP)
    assert len(caplog.records) == 1
