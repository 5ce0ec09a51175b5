"""Commands and questions about runs: start, cancel, retry, result, get, list, why, decide by role (B07)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from agentflow import Actor, Answer, App, Context, Model, Question, Run, Workflow
from agentflow.errors import Conflict, IncompatibleDefinition, InvalidInput, NotAllowed, NotFound, RunFailed
from agentflow.failures import Invalid
from agentflow.testing import Clock
from agentflow.testing.scripted import ScriptedModel, ScriptedReply, reply
from tests.scenarios.desk import ADA

SOON = timedelta(seconds=20)


class Case(Context):
    number: int = 0
    picked: str = ""


class Pick(StrEnum):
    GO = "go"
    STOP = "stop"


class World:
    """What bodies did, and whether they are well."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken = True
        self.begun, self.go = asyncio.Event(), asyncio.Event()


def chain(world: World) -> Workflow[Case, None]:
    """`a -> b -> ends`, where `b` fails as long as the world is broken; a branch is never taken."""
    flow = Workflow("chain", Case)

    @flow.step()
    async def a(case: Case, run: Run) -> None:
        world.done.append("a")
        case.number += 1

    @flow.step()
    async def b(case: Case, run: Run) -> None:
        async def act(key: str) -> str:
            world.done.append(f"act {key}")
            return "acted"

        case.picked = await run.effect("act", act)
        world.done.append("b")
        if world.broken:
            raise ValueError("b is broken")

    @flow.step()
    async def never(case: Case, run: Run) -> None:
        world.done.append("never")

    def unlikely(case: Case) -> bool:
        return case.number > 100

    end = flow.end("end")
    flow.build(start=a, transitions=[a.when(unlikely).to(never), a.to(b), never.to(end), b.to(end)])
    return flow


def standing(world: World, **options: Any) -> Workflow[Case, None]:
    """One body that stands until it is let go."""
    flow = Workflow("standing", Case)

    @flow.step(**options)
    async def stand(case: Case, run: Run) -> None:
        world.done.append(f"begun {run.attempt}")
        world.begun.set()
        try:
            await world.go.wait()
        except asyncio.CancelledError:
            world.done.append("stopped")
            raise

    end = flow.end("end")
    flow.build(start=stand, transitions=[stand.to(end)])
    return flow


# --- resume and retry (B07) --------------------------------------------------------------------------------------


async def test_b07_a_retried_run_ends_completed_and_repeats_no_effect(store: str) -> None:
    world = World()
    flow = chain(world)
    async with App([flow], store=store) as app:
        failed = await app.run(flow, Case(), id="r", timeout=SOON)
        assert (failed.status, str(failed.state)) == ("failed", "b")
        world.broken = False
        assert (await app.retry("r", actor=ADA, request="once")).status == "applied"
        over = await app.result("r", flow, timeout=SOON)
        attempts, commands = await app._store.attempts("r"), await app._store.commands("r")

    assert [(row.command, row.status, row.request) for row in commands] == [("retry", "applied", "once")]
    assert (over.status, over.failure, over.context.number) == ("completed", None, 1)
    assert world.done == ["a", "act r:b:1:act", "b", "b"]
    assert ["ValueError" in (row.failure or "") for row in attempts] == [True]


async def test_b07_a_finished_run_is_not_resumed_and_no_other_branch_begins(store: str) -> None:
    world = World()
    world.broken = False
    flow = chain(world)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        done = list(world.done)
        assert (await app.retry("r")).status == "refused"
        assert await app.run(flow, Case(), id="r", timeout=SOON) == over
        assert await app.result("r", flow, timeout=SOON) == over
    async with App([flow], store=store if store != "memory:" else app._store) as again:
        await again.settle()

    assert world.done == done


async def test_b07_a_run_whose_state_is_gone_is_refused_as_incompatible_and_is_not_completed(on_disk: str) -> None:
    world = World()
    flow = chain(world)
    app = App([flow], store=on_disk)
    await app.run(flow, Case(), id="r", timeout=SOON)
    await app.run(flow, Case(), id="other", timeout=SOON)
    await app.close()
    smaller = Workflow("chain", Case)

    @smaller.step()
    async def a(case: Case, run: Run) -> None:
        world.done.append("a")

    end = smaller.end("end")
    smaller.build(start=a, transitions=[a.to(end)])
    async with App([smaller], store=on_disk) as other:
        fresh = await other.run(smaller, Case(), id="fresh", timeout=SOON)
        for verb in (other.get, other.result, other.retry):
            with pytest.raises(IncompatibleDefinition, match=r"'b'"):
                await asyncio.wait_for(verb("r"), 5)
        row = await other._store.run("r")
        listed = await other.list()
        why = await other.why("r")

    assert row is not None
    assert (row.standing.status, row.standing.state) == ("failed", "b")
    assert fresh.end is end
    assert [run.id for run in listed] == ["fresh"]
    assert "b is broken" in why.text


# --- retry and what models answered ------------------------------------------------------------------------------


def picking(*, guard_fails: Sequence[bool]) -> Workflow[Case, None]:
    """A model picks; a guard raises as long as it is told to."""
    flow = Workflow("picking", Case)
    fails = list(guard_fails)

    @flow.llm(Pick, prompt="Go or stop?")
    def pick(case: Case) -> Case:
        return case

    @pick.store
    def keep(case: Case, answer: Answer[Pick, None]) -> None:
        case.picked = answer.reason

    def sound(case: Case) -> bool:
        if fails.pop(0):
            raise ZeroDivisionError("guard")
        return True

    went, stopped = flow.end("went"), flow.end("stopped")
    flow.build(
        start=pick,
        transitions=[
            pick.on(Pick.GO).when(sound).to(went),
            pick.on(Pick.GO).to(stopped),
            pick.on(Pick.STOP).to(stopped),
        ],
    )
    return flow


def asking(flow: Workflow[Case, None], store: str, model: ScriptedModel) -> App:
    return App([flow], store=store, models={"default": Model("m", base_url=model.base_url, api_key="test")})


async def test_a_retry_asks_anew_after_a_failed_answer(store: str) -> None:
    flow = picking(guard_fails=[False])
    answers: list[ScriptedReply] = [reply(text="hm"), reply(text="hm"), reply(Pick.GO, reason="sure")]
    with ScriptedModel(answers) as model:
        async with asking(flow, store, model) as app:
            failed = await app.run(flow, Case(), id="r", timeout=SOON)
            assert failed.failure is not None
            assert failed.failure.matches(Invalid)
            await app.retry("r")
            over = await app.result("r", flow, timeout=SOON)

    assert (str(over.end), over.context.picked, len(model.requests)) == ("went", "sure", 3)


async def test_a_retry_after_a_guard_that_raised_does_not_ask_again(store: str) -> None:
    flow = picking(guard_fails=[True, True, False])
    with ScriptedModel([reply(Pick.GO, reason="sure")]) as model:
        async with asking(flow, store, model) as app:
            for _ in range(2):
                failed = await app.run(flow, Case(), id="r", timeout=SOON)
                assert failed.failure is not None
                assert (failed.failure.kind, failed.context.picked) == ("GuardFailed", "")
                await app.retry("r")
            over = await app.result("r", flow, timeout=SOON)

    assert (str(over.end), over.context.picked, len(model.requests)) == ("went", "sure", 1)


# --- looking -----------------------------------------------------------------------------------------------------


async def test_result_raises_what_a_run_failed_of_and_get_shows_every_revision(store: str) -> None:
    world = World()
    flow = chain(world)
    async with App([flow], store=store) as app:
        await app.start(flow, Case(number=5), id="r")
        with pytest.raises(RunFailed, match=r"failed in b: ValueError: b is broken. `retry` goes on") as raised:
            await app.result("r", flow, timeout=SOON)
        first, second = await app.get("r", flow, revision=0), await app.get("r", flow, revision=1)
        with pytest.raises(NotFound, match="0 to 1"):
            await app.get("r", revision=2)
        with pytest.raises(NotFound):
            await app.get("r", revision=-1)
        with pytest.raises(InvalidInput, match="workflow"):
            await app.get("r", picking(guard_fails=[]))
        with pytest.raises(NotFound, match="nobody"):
            await app.get("nobody")

    assert raised.value.snapshot.status == "failed"
    assert [(one.context.number, str(one.state)) for one in (first, second)] == [(5, "a"), (6, "b")]


async def test_lists_are_newest_first_in_pages_and_by_status(store: str) -> None:
    world = World()
    flow, other = chain(world), standing(world)
    world.broken = False
    async with App([flow, other], store=store) as app:
        for number in range(5):
            await app.run(flow, Case(), id=f"r{number}", timeout=SOON)
        await app.start(other, Case(), id="standing")
        await asyncio.wait_for(world.begun.wait(), 5)
        page = await app.list(flow, limit=2)
        rest = await app.list(flow, limit=10, after=page[-1].id)
        running = await app.list(status="running")
        world.go.set()

    assert [run.id for run in [*page, *rest]] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run.id for run in running] == ["standing"]


async def test_why_says_what_a_run_waits_for_whatever_its_status(store: str) -> None:
    world = World()
    flow = standing(world)
    human = Workflow("human", Case)

    @human.human(Pick, roles=["boss", "chief"], expires=timedelta(days=1))
    def ask(case: Case) -> Question:
        return Question("Go?")

    go, stop = human.end("go"), human.end("stop")
    human.build(start=ask, transitions=[ask.on(Pick.GO).to(go), ask.on(Pick.STOP).to(stop), ask.expired.to(stop)])
    app = App([flow, human], store=store)
    clock = Clock(app)
    async with app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(world.begun.wait(), 5)
        running = await app.why("r")
        world.go.set()
        await app.result("r", timeout=SOON)
        ended = await app.why("r")
        await app.run(human, Case(), id="h", timeout=SOON)
        waiting = await app.why("h")
        with pytest.raises(NotAllowed, match=r"boss or chief; ada@shop.example has none"):
            await app.decide("h.ask.1", Pick.GO, actor=ADA)
        assert (await app.get("h")).status == "waiting"
        boss = Actor("eve@shop.example", roles=["boss"])
        assert (await app.decide("h.ask.1", Pick.GO, actor=boss, comment="fine")).status == "applied"
        await app.result("h", timeout=SOON)
        decided = await app.why("h")

    assert (running.text, running.waker) == ("a worker is at work in stand (visit 1)", "session")
    assert ("ended at end" in ended.text, "stand" in ended.text, ended.waker) == (True, True, None)
    due = clock.now() + timedelta(days=1)
    assert "waits in ask for a person with role boss or chief to answer GO or STOP" in waiting.text
    assert f"{due:%Y-%m-%d %H:%M:%S} UTC" in waiting.text
    assert "h.ask.1" in waiting.text
    assert waiting.waker == "wait"
    for word in ("ended at go", "ask answered GO by eve@shop.example", "fine"):
        assert word in decided.text


async def test_a_start_is_committed_when_it_returns_and_another_workflow_under_its_id_is_a_conflict(store: str) -> None:
    world = World()
    flow, other = chain(world), standing(world)
    app = App([flow, other], store=store)
    started = await app.start(flow, Case(), id="r")
    row = await app._store.run("r")
    with pytest.raises(Conflict, match="'chain'"):
        await app.start(other, Case(), id="r")
    await app.close()

    assert row is not None
    assert (row.id, started.revision, started.status) == ("r", 0, "queued")
