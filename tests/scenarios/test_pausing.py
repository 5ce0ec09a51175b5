"""Pause and resume: a run stands still with all that it has, whoever drives it, and nothing is lost meanwhile."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tenacity import wait_fixed

from agentflow import App, Question, Retry, Run, Workflow
from agentflow.failures import Retryable
from agentflow.testing import Clock
from tests.scenarios.desk import ADA
from tests.scenarios.test_commands import SOON, Case, Pick, World, standing


def asking(world: World) -> Any:
    flow = Workflow("asking", Case)

    @flow.human(Pick, expires=timedelta(days=1))
    def ask(case: Case) -> Question:
        return Question("Go?")

    @flow.step()
    async def act(case: Case, run: Run) -> None:
        world.done.append("act")

    go, stop = flow.end("go"), flow.end("stop")
    rows = [ask.on(Pick.GO).to(act), ask.on(Pick.STOP).to(stop), ask.expired.to(stop), act.to(go)]
    flow.build(start=ask, transitions=rows)
    return flow


def two_steps(world: World) -> Any:
    flow = Workflow("two", Case)

    @flow.step()
    async def first(case: Case, run: Run) -> None:
        world.done.append("first")
        world.begun.set()
        await world.go.wait()
        case.number = 1

    @flow.step()
    async def second(case: Case, run: Run) -> None:
        world.done.append("second")

    end = flow.end("end")
    flow.build(start=first, transitions=[first.to(second), second.to(end)])
    return flow


async def test_a_paused_run_finishes_its_body_keeps_the_work_and_goes_no_further(store: str) -> None:
    world = World()
    flow = two_steps(world)
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(world.begun.wait(), 5)
        reply = await app.pause("r", actor=ADA, reason="the shop is down")
        at_work = await app.why("r")
        world.go.set()
        rests = await app.follow("r", flow, timeout=SOON)
        why = await app.why("r")
        assert world.done == ["first"]
        resumed = await app.resume("r", actor=ADA)
        over = await app.result("r", flow, timeout=SOON)
    assert (reply.status, reply.why) == ("applied", "run 'r' stands still once the body at work is done")
    assert at_work.text.startswith("paused is at work in first until its body is done by ada@shop.example")
    assert (rests.paused, rests.status, rests.revision, rests.context.number) == (True, "queued", 1, 1)
    assert why.text == "paused in second by ada@shop.example: the shop is down. `resume` goes on"
    assert (resumed.status, over.status, over.paused, world.done) == (
        "applied",
        "completed",
        False,
        ["first", "second"],
    )


async def test_a_pause_that_is_lifted_while_the_body_is_at_work_changes_nothing(store: str) -> None:
    world = World()
    flow = two_steps(world)
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(world.begun.wait(), 5)
        await app.pause("r")
        await app.resume("r")
        world.go.set()
        over = await app.result("r", flow, timeout=SOON)
    assert (over.status, world.done) == ("completed", ["first", "second"])


async def test_a_paused_run_takes_an_answer_and_acts_on_it_when_it_is_resumed(store: str) -> None:
    world = World()
    flow = asking(world)
    async with App([flow], store=store) as app:
        waits = await app.run(flow, Case(), id="r", timeout=SOON)
        await app.pause("r")
        decided = await app.decide(waits.waits[0].id, Pick.GO, actor=ADA)
        await app.settle()
        rests = await app.get("r", flow)
        assert (decided.status, rests.paused, rests.revision, world.done) == ("applied", True, 0, [])
        await app.resume("r")
        over = await app.result("r", flow, timeout=SOON)
    assert (over.end and over.end.name, world.done) == ("go", ["act"])


async def test_no_worker_takes_a_paused_run_also_after_a_restart(on_disk: str) -> None:
    world = World()
    flow = asking(world)
    async with App([flow], store=on_disk) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        await app.pause("r")
    async with App([flow], store=on_disk) as app:
        await Clock(app).advance(timedelta(hours=1))
        found = await app.get("r", flow)
    assert (found.paused, found.status, len(found.waits)) == (True, "waiting", 1)


async def test_a_retry_that_is_due_waits_for_the_resumption(store: str) -> None:
    world = World()
    flow = Workflow("failing", Case)

    @flow.step(retry=Retry(attempts=3, wait=wait_fixed(0)))
    async def work(case: Case, run: Run) -> None:
        world.done.append(f"attempt {run.attempt}")
        world.begun.set()
        await world.go.wait()
        if run.attempt < 3:
            raise Retryable("again")

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(end)])
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(world.begun.wait(), 5)
        await app.pause("r")
        world.go.set()
        rests = await app.follow("r", flow, timeout=SOON)
        assert (rests.paused, world.done) == (True, ["attempt 1"])
        await app.resume("r")
        over = await app.result("r", flow, timeout=SOON)
    assert (over.status, world.done) == ("completed", ["attempt 1", "attempt 2", "attempt 3"])


@pytest.mark.parametrize("before", ["nothing", "pause"])
async def test_a_cancel_reaches_a_paused_run_at_rest_and_at_work(store: str, before: str) -> None:
    world = World()
    flow = standing(world)
    async with App([flow, asking(world)], store=store) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(world.begun.wait(), 5)
        if before == "pause":
            await app.pause("r")
        assert (await app.cancel("r")).status == "applied"
        over = await app.follow("r", flow, timeout=SOON)
        paused = await app.pause("r")
    assert (over.status, over.paused, paused.status) == ("cancelled", False, "refused")
    assert paused.why == "run 'r' is cancelled; it cannot be paused"


async def test_a_repeated_command_is_told_so_and_one_without_an_object_too(store: str) -> None:
    flow = asking(World())
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        replies = [
            await app.resume("r"),
            await app.pause("r", request="q"),
            await app.pause("r"),
            await app.resume("r"),
            await app.pause("r", request="q"),
            await app.resume("r"),
        ]
        found = await app.get("r", flow)
    assert [reply.status for reply in replies] == ["already", "applied", "already", "applied", "already", "already"]
    assert not found.paused
