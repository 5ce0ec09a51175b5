"""Answers of the store that never arrive, and takeovers at awkward moments: no run is held by nobody."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tenacity import wait_fixed

from agentflow import App, Context, Retry, Run, Workflow
from agentflow.errors import StoreUnavailable
from agentflow.failures import Retryable
from agentflow.runners import local
from agentflow.runners.drive import Drive
from agentflow.store.memory import MemoryStore
from agentflow.store.rows import Commit, CommitReply, LateResult, RunRow
from tests.store.making import Clock

WITHIN = timedelta(seconds=20)


class Case(Context):
    n: int = 0


def counting(tries: int = 1) -> Workflow[Case, None]:
    flow = Workflow("counting", Case)

    @flow.step(retry=Retry(attempts=3, wait=wait_fixed(1)))
    async def count(case: Case, run: Run) -> None:
        case.n = run.attempt
        if run.attempt < tries:
            raise Retryable("again")

    flow.build(start=count, transitions=[count.to(flow.end("counted"))])
    return flow


class LosesAnswers(MemoryStore):
    """Does its work, and then loses the answer to the first call of one method."""

    def __init__(self, method: str, **options: Any) -> None:
        super().__init__(**options)
        self.lose: str | None = method

    def answered(self, method: str) -> None:
        if self.lose == method:
            self.lose = None
            raise StoreUnavailable("the answer was lost")

    async def claim_runs(self, session: str, **options: Any) -> Sequence[RunRow]:
        rows = await super().claim_runs(session, **options)
        if rows:
            self.answered("claim_runs")
        return rows

    async def commit(self, commit: Commit) -> CommitReply:
        reply = await super().commit(commit)
        self.answered("commit")
        return reply


async def ended(store: MemoryStore) -> tuple[str, int]:
    flow = counting()
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        while True:
            with contextlib.suppress(StoreUnavailable):  # verbs that wait tell of the trouble, the runner goes on
                found = await app.result("r", flow)
                return found.status, len(await app.history("r"))


async def test_a_run_whose_claim_was_not_answered_is_given_up_and_claimed_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(local, "TROUBLE", 0.01)
    assert await asyncio.wait_for(ended(LosesAnswers("claim_runs")), 20) == ("completed", 2)


async def test_a_run_whose_last_commit_was_not_answered_has_ended_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(local, "TROUBLE", 0.01)
    assert await asyncio.wait_for(ended(LosesAnswers("commit")), 20) == ("completed", 2)


class SaysLate(MemoryStore):
    """Tells the first commit that it came too late, although the claim stands."""

    said = False

    async def commit(self, commit: Commit) -> CommitReply:
        if not self.said:
            self.said = True
            return LateResult()
        return await super().commit(commit)


async def test_a_run_that_was_taken_for_lost_while_its_claim_stands_is_given_up() -> None:
    assert await asyncio.wait_for(ended(SaysLate()), 20) == ("completed", 2)


async def test_d10_a_successor_waits_for_the_instant_that_a_retry_has() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock.now)
    flow = counting(tries=2)
    async with App([flow], store=store) as app:
        runner = await app._runner()
        slept: list[float] = []
        await app.start(flow, Case(), id="r")
        while not await store.attempts("r"):
            await runner.until_changed("r")
        session = next(row.id for row in await store.sessions())
        await die(runner)
        await store.close_session(session)
        [other] = [await store.open_session("successor")]
        [row] = await store.claim_runs(other, limit=1)

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            clock.advance(seconds=seconds)

        drive = Drive(store=store, definition=flow.definition, resources=runner.resources, row=row, sleep=sleep)
        assert await drive.run() == "over"
    assert slept == [1.0]


async def die(runner: local.LocalRunner) -> None:
    """Stop everything of a runner, as its process would."""
    for held in list(runner._tasks.values()):
        held.task.cancel()
    await asyncio.gather(*(held.task for held in list(runner._tasks.values())), return_exceptions=True)
