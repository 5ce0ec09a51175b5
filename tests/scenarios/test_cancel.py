"""Cancel: it stops what is at work within a moment, and nothing begins after it."""

import asyncio
import threading
from datetime import timedelta

import pytest
from tenacity import wait_fixed

from agentflow import App, Question, Retry, Run, SyncRun, Workflow
from agentflow.errors import LeaseLost, NotFound, RunFailed
from agentflow.failures import Retryable
from agentflow.testing import Clock
from tests.scenarios.desk import ADA
from tests.scenarios.test_commands import SOON, Case, Pick, World, chain, standing


async def test_a_cancel_stops_a_body_at_work_and_begins_no_other_attempt(store: str) -> None:
    world = World()
    flow = standing(world, retry=Retry(attempts=5, wait=wait_fixed(0), on=[Exception]))
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(world.begun.wait(), 5)
        reply = await app.cancel("r", actor=ADA, reason="a mistake")
        async with asyncio.timeout(1):
            with pytest.raises(RunFailed, match=r"cancelled in stand by ada@shop.example: a mistake"):
                await app.result("r")
        over = await app.get("r")
        assert (await app.cancel("r")).status == "already"
        attempts = await app._store.attempts("r")

    assert (reply.status, over.status, over.end, over.failure) == ("applied", "cancelled", None, None)
    assert world.done == ["begun 1", "stopped"]
    assert attempts == []


async def test_a_cancel_by_another_app_stops_a_body_at_work(on_disk: str) -> None:
    world = World()
    flow = standing(world)
    async with App([flow], store=on_disk) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(world.begun.wait(), 5)
        other = App([flow], store=on_disk)
        assert (await other.cancel("r", actor=ADA)).status == "applied"
        with pytest.raises(RunFailed, match="cancelled"):
            await app.result("r", timeout=timedelta(seconds=2))
        await other.close()

    assert world.done == ["begun 1", "stopped"]


async def test_a_cancel_of_a_run_that_waits_closes_its_question(store: str) -> None:
    flow = Workflow("asking", Case)

    @flow.human(Pick)
    def ask(case: Case) -> Question:
        return Question("Go?")

    go, stop = flow.end("go"), flow.end("stop")
    flow.build(start=ask, transitions=[ask.on(Pick.GO).to(go), ask.on(Pick.STOP).to(stop)])
    async with App([flow], store=store) as app:
        wait = (await app.run(flow, Case(), id="r", timeout=SOON)).waits[0]
        assert (await app.cancel("r", request="c1")).status == "applied"
        assert (await app.cancel("r", request="c1")).status == "already"
        reply = await app.decide(wait.id, Pick.GO, actor=ADA)
        over = await app.get("r", flow)

    assert (over.status, over.waits) == ("cancelled", ())
    assert (reply.status, "closed" in reply.why) == ("refused", True)


async def test_a_cancel_of_a_queued_run_is_done_at_once_and_of_a_finished_one_refused(store: str) -> None:
    world = World()

    async def later(case: Case, run: Run) -> None:
        world.done.append(f"try {run.attempt}")
        raise Retryable("later")

    flow = Workflow("later", Case)
    step = flow.step(retry=Retry(attempts=3, wait=wait_fixed(3600)))(later)
    end = flow.end("end")
    flow.build(start=step, transitions=[step.to(end)])
    finished = chain(world)
    world.broken = False
    app = App([flow, finished], store=store)
    clock = Clock(app)
    async with app:
        await app.start(flow, Case(), id="r")
        await app.settle()
        assert (await app.get("r")).status == "queued"
        assert (await app.cancel("r")).status == "applied"
        assert (await app.get("r")).status == "cancelled"
        await clock.advance(timedelta(days=1))
        await app.run(finished, Case(), id="f", timeout=SOON)
        refused = await app.cancel("f")
        with pytest.raises(NotFound):
            await app.cancel("unknown")

    assert (refused.status, "completed" in refused.why) == ("refused", True)
    assert world.done.count("try 1") == 1
    assert "try 2" not in world.done


async def test_a_cancel_that_comes_before_the_body_has_begun_is_carried_out_too(store: str) -> None:
    world = World()
    flow = standing(world)
    app = App([flow], store=store)
    runner = await app._runner()
    await app.start(flow, Case(), id="r")
    await runner._claim_due()  # its task exists, and has not run yet
    reply = await app.cancel("r")
    with pytest.raises(RunFailed, match="cancelled"):
        await app.result("r", timeout=timedelta(seconds=2))
    assert runner._tasks == {}
    await app.close()

    assert reply.status == "applied"


async def test_a_thread_whose_run_was_cancelled_acts_no_more(store: str) -> None:
    flow = Workflow("threaded", Case)
    begun, go, over = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    acted: list[str] = []
    lost: list[BaseException] = []

    @flow.step()
    def work(case: Case, run: SyncRun) -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(10)
        try:
            run.effect("act", acted.append)
        except BaseException as error:
            lost.append(error)
            raise
        finally:
            over.set()

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(end)])
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(begun.wait(), 5)
        await app.cancel("r")
        with pytest.raises(RunFailed, match="cancelled"):
            await app.result("r", timeout=timedelta(seconds=1))
        go.set()
        assert await asyncio.to_thread(over.wait, 5)
        status = (await app.get("r")).status

    assert (status, acted, [type(error) for error in lost]) == ("cancelled", [], [LeaseLost])


def test_a_thread_that_outlives_its_app_is_let_go_and_acts_no_more(store: str) -> None:
    flow = Workflow("outliving", Case)
    begun, go = threading.Event(), threading.Event()
    said: list[str] = []
    threads: list[threading.Thread] = []

    @flow.step()
    def work(case: Case, run: SyncRun) -> None:
        threads.append(threading.current_thread())

        def call(key: str) -> None:
            said.append("called")
            begun.set()
            go.wait(10)

        try:
            run.effect("slow", call)
        except LeaseLost:
            said.append("lost")
            try:
                run.effect("other", call)
            except LeaseLost:
                said.append("lost again")

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(end)])
    app = App([flow], store=store)
    app._settings.drain = timedelta(milliseconds=10)
    app.start_sync(flow, Case(), id="r")
    assert begun.wait(5)
    app.close_sync()
    go.set()
    threads[0].join(5)

    assert not threads[0].is_alive()
    assert said == ["called", "lost", "lost again"]
