"""`once=True`: a body that must not be repeated at all, whatever happens to its worker or to itself."""

from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from agentflow import App, Context, Run, Snapshot, SyncRun, Workflow
from agentflow.failures import Unclear
from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from agentflow.store.rows import CommandRow, EffectClaim, EffectStatus
from tests.store.making import Clock

WITHIN = timedelta(seconds=20)


class Letter(Context):
    text: str = ""


class Carrier(StrEnum):
    POST = "post"
    COURIER = "courier"


class Bodies:
    """Counts what began, and raises in turn."""

    def __init__(self, *turns: Exception | None) -> None:
        self.turns = list(turns)
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1
        turn = self.turns.pop(0) if self.turns else None
        if turn is not None:
            raise turn


def posting(bodies: Bodies) -> Workflow[Letter, None]:
    flow = Workflow("posting", Letter)

    @flow.step(once=True)
    async def send(case: Letter, run: Run) -> None:
        bodies.begin()
        case.text = "sent"

    sent, doubtful = flow.end("sent"), flow.end("doubtful", failed=True)
    flow.build(start=send, transitions=[send.failed(Unclear).to(doubtful), send.to(sent)])
    return flow


def choosing(bodies: Bodies) -> Workflow[Letter, None]:
    flow = Workflow("choosing", Letter)

    @flow.step(once=True)
    def send(case: Letter, run: SyncRun) -> Carrier:
        bodies.begin()
        return Carrier.POST

    post, courier = flow.end("post"), flow.end("courier")
    flow.build(start=send, transitions=[send.on(Carrier.POST).to(post), send.on(Carrier.COURIER).to(courier)])
    return flow


async def run(flow: Workflow[Letter, None], store: str | Store) -> Snapshot[Letter]:
    async with App([flow], store=store) as app:
        return await app.run(flow, Letter(), id="r", timeout=WITHIN)


async def ledger(store: Store) -> list[tuple[str, str, EffectStatus]]:
    await store.open()
    rows: list[tuple[str, str, EffectStatus]] = [
        (row.key, row.name, row.status) for row in await store.effects(run="r")
    ]
    await store.close()
    return rows


def order(happened: str) -> CommandRow:
    return CommandRow(
        run="r",
        at=Clock().now(),
        command=f"resolve {happened}",
        actor=None,
        reason="asked the carrier",
        request=None,
        status="applied",
        why="",
    )


@pytest.mark.parametrize("make", [posting, choosing])
async def test_a_body_that_answers_runs_once_and_its_row_is_settled_with_the_transition(make: Any, store: str) -> None:
    bodies, kept = Bodies(), open_store(store)
    found = await run(make(bodies), kept)
    assert (found.status, bodies.begun) == ("completed", 1)
    assert await ledger(kept) == [("r:send:1:body", "body", "done")]


async def test_a_body_that_raises_leaves_its_row_unclear_and_fails_with_its_own_exception(store: str) -> None:
    bodies, kept = Bodies(ValueError("no ink")), open_store(store)
    found = await run(posting(bodies), kept)
    assert found.failure is not None
    assert (found.status, found.failure.kind, bodies.begun) == ("failed", "ValueError", 1)
    assert await ledger(kept) == [("r:send:1:body", "body", "unclear")]


async def test_an_operators_retry_does_not_repeat_it_until_somebody_says_that_it_did_not_happen(store: str) -> None:
    bodies, kept = Bodies(ValueError("no ink")), open_store(store)
    flow = posting(bodies)
    async with App([flow], store=kept) as app:
        await app.run(flow, Letter(), id="r", timeout=WITHIN)
        await app.retry("r")
        again = await app.follow("r", flow, timeout=WITHIN)
        assert (again.end, bodies.begun) == (flow.definition.ends["doubtful"], 1)
        assert again.failure is not None
        assert "agentflow effects resolve r:send:1:body" in again.failure.message


@pytest.mark.parametrize(("status", "begun"), [("not_happened", 2), ("done", 1)])
async def test_what_was_found_out_decides_whether_it_runs(store: str, status: EffectStatus, begun: int) -> None:
    bodies, kept = Bodies(ValueError("no ink")), open_store(store)
    flow = posting(bodies)
    async with App([flow], store=kept) as app:
        await app.run(flow, Letter(), id="r", timeout=WITHIN)
        assert await kept.resolve_effect(order(status), "r:send:1:body", status)
        await app.retry("r")
        again = await app.follow("r", flow, timeout=WITHIN)
    assert (again.status, bodies.begun) == ("completed", begun)


async def test_an_outcome_that_was_found_out_routes_the_run(store: str) -> None:
    bodies, kept = Bodies(ValueError("no ink")), open_store(store)
    flow = choosing(bodies)
    async with App([flow], store=kept) as app:
        await app.run(flow, Letter(), id="r", timeout=WITHIN)
        await kept.resolve_effect(order("done"), "r:send:1:body", "done", result='"COURIER"')
        await app.retry("r")
        again = await app.follow("r", flow, timeout=WITHIN)
    assert (again.end, bodies.begun) == (flow.definition.ends["courier"], 1)


async def test_a_body_whose_worker_died_is_not_begun_again() -> None:
    clock, bodies = Clock(), Bodies()
    kept = MemoryStore(clock=clock.now)
    flow = posting(bodies)
    async with App([flow], store=kept) as app:
        app.leave_to_workers()
        await app.start(flow, Letter(), id="r")
    await begin_and_die(kept)
    clock.advance(minutes=1)
    async with App([flow], store=kept) as app:
        found = await app.follow("r", flow, timeout=WITHIN)
    assert (found.end, bodies.begun) == (flow.definition.ends["doubtful"], 0)
    assert await ledger(kept) == [("r:send:1:body", "body", "unclear")]


async def begin_and_die(store: Store) -> None:
    """What a worker writes before such a body, and then no more."""
    session = await store.open_session("dies")
    [row] = await store.claim_runs(session, limit=1)
    assert row.token is not None
    await store.begin_effect(
        EffectClaim(
            run="r", token=row.token, key="r:send:1:body", name="body", state="send", visit=1, workflow="posting"
        )
    )
