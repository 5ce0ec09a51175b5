"""A store whose calls take several turns of the loop: what others do meanwhile loses no command and no result."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from agentflow import Actor, App, Question, Run, Workflow
from agentflow.runners.local import LocalRunner
from agentflow.store.memory import MemoryStore
from agentflow.store.rows import Commit, CommitReply, GroupRow, RunRow, WaitRow
from tests.runners.test_lost_answers import Case
from tests.versions.orders import OrderV1, OrderV2, Verdict, ordering, to_cents

ADA = Actor("ada", source="test")
SOON = timedelta(seconds=20)


class Slow(MemoryStore):
    """Answers each call to `method` only when `meanwhile` has come to its end."""

    def __init__(self, method: str = "") -> None:
        super().__init__()
        self.method = method
        self.runner: LocalRunner | None = None
        self.met = 0

    async def meanwhile(self, method: str) -> None:
        if method == self.method and self.runner is not None:
            self.met += 1
            await self.runner._look_at_requests()
            await asyncio.sleep(0)  # what was told to stop would stop here

    async def stop_branches(self, run: str, state: str, visit: int, *, token: str, expired: bool) -> GroupRow | None:
        await self.meanwhile("stop_branches")
        return await super().stop_branches(run, state, visit, token=token, expired=expired)

    async def waits(self, **options: Any) -> Sequence[WaitRow]:
        await self.meanwhile("waits")
        return await super().waits(**options)

    async def commit(self, commit: Commit) -> CommitReply:
        await self.meanwhile("commit")
        return await super().commit(commit)


def standing_in_two_branches(begun: Sequence[asyncio.Event]) -> Workflow[Case, None]:
    flow = Workflow("two", Case)

    @flow.step()
    async def left(case: Case, run: Run) -> None:
        begun[0].set()
        await asyncio.Event().wait()

    @flow.step()
    async def right(case: Case, run: Run) -> None:
        begun[1].set()
        await asyncio.Event().wait()

    @flow.step()
    async def after(case: Case, run: Run) -> None:
        """Nothing to do."""

    group = flow.fork(left, right)
    flow.build(start=group, transitions=[group.join(after), after.to(flow.end("over"))])
    return flow


@pytest.mark.parametrize("method", ["stop_branches", "waits", "commit"])
async def test_a_cancel_of_a_group_is_not_stopped_by_the_request_that_it_carries_out(method: str) -> None:
    store = Slow(method)
    begun = asyncio.Event(), asyncio.Event()
    flow = standing_in_two_branches(begun)
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        async with asyncio.timeout(20):
            for event in begun:
                await event.wait()
        store.runner = await app._runner()
        await app.cancel("r", actor=ADA)
        over = await app.follow("r", flow, timeout=SOON)
        branches = [(await app.get(f"r:fork:1:{name}", flow)).status for name in ("left", "right")]
    assert store.met
    assert (over.status, branches) == ("cancelled", ["cancelled"] * 2)


@pytest.mark.parametrize("method", ["waits", "commit"])
async def test_a_cancel_of_a_body_at_work_is_carried_out_once(method: str) -> None:
    store = Slow(method)
    begun = asyncio.Event()
    flow = Workflow("stands", Case)

    @flow.step()
    async def stand(case: Case, run: Run) -> None:
        begun.set()
        await asyncio.Event().wait()

    flow.build(start=stand, transitions=[stand.to(flow.end("over"))])
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await asyncio.wait_for(begun.wait(), 20)
        store.runner = await app._runner()
        await app.cancel("r", actor=ADA)
        over = await app.follow("r", flow, timeout=SOON)
        why = await app.why("r")
    assert store.met
    assert over.status == "cancelled"
    assert "ada" in why.text


class ClaimsLate(MemoryStore):
    """Gives what it has claimed a while later: other tasks of the process go on meanwhile."""

    claims_at_once = 0
    most_at_once = 0
    claimed: asyncio.Event | None = None
    given: asyncio.Event | None = None

    async def claim_runs(self, session: str, **options: Any) -> Sequence[RunRow]:
        self.claims_at_once += 1
        self.most_at_once = max(self.most_at_once, self.claims_at_once)
        rows = await super().claim_runs(session, **options)
        for _ in range(5):
            await asyncio.sleep(0)
        if rows and self.claimed is not None and self.given is not None:
            self.claimed.set()
            await self.given.wait()
        self.claims_at_once -= 1
        return rows


async def test_settle_waits_for_a_run_that_another_task_is_being_given() -> None:
    store = ClaimsLate()
    flow = Workflow("asks", Case)

    @flow.human(Verdict)
    def ask(case: Case) -> Question:
        return Question("Well?")

    end = flow.end("over")
    flow.build(start=ask, transitions=[ask.on(Verdict.APPROVE, Verdict.REJECT).to(end)])
    async with App([flow], store=store) as app:
        runner = await app._runner()
        row = await app._started(flow, Case(), "r", None)
        assert row.standing.status == "queued"
        claiming = asyncio.create_task(runner._claim_due())
        await asyncio.sleep(0)  # it is at it
        await app.settle()
        waits = await app.waits("r")
        await claiming
    assert [wait.run for wait in waits] == ["r"]
    assert store.most_at_once == 1


async def test_a_refusal_of_before_a_migration_is_not_told_after_it() -> None:
    store = ClaimsLate()
    first = ordering(OrderV1, 1)
    async with App([first], store=store) as app:
        [wait] = (await app.run(first, OrderV1(order="a", amount=7), id="a", timeout=SOON)).waits
    old = App([ordering(OrderV1, 1)], store=store)
    old.leave_to_workers()
    await old.decide(wait.id, Verdict.APPROVE, actor=ADA)
    await old.close()
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        await app.settle()
        refused = dict((await app._runner())._refused)
        store.claimed, store.given = asyncio.Event(), asyncio.Event()
        await app.migrate(flow)
        await asyncio.wait_for(store.claimed.wait(), 20)
        result = asyncio.create_task(app.result("a", flow, timeout=SOON))
        for _ in range(20):
            await asyncio.sleep(0)  # it waits
        store.given.set()
        over = await result
    assert list(refused) == ["a"]
    assert over.status == "completed"


async def test_a_run_that_was_taken_away_while_it_was_refused_is_refused_by_nobody() -> None:
    class TakenAway(MemoryStore):
        async def commit(self, commit: Commit) -> CommitReply:
            if commit.standing.blocked is not None:  # its session is taken for dead at that very moment
                row = await self.run("a")
                assert row is not None
                await self.release_run("a", row.token or "")
            return await super().commit(commit)

    store = TakenAway()
    first = ordering(OrderV1, 1)
    await App([first], store=store)._started(first, OrderV1(order="a", amount=7), "a", None)
    second = ordering(OrderV2, 2, to_cents)
    app = App([second], store=store)
    runner = await app._runner()
    runner.settings.everything = True
    await runner._claim_due()
    await asyncio.gather(*(held.task for held in list(runner._tasks.values())))
    assert runner._refused == {}
    await app.close()
