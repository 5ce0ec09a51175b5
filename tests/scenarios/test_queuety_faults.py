"""Faults that were read in the source of other workflow engines and of the programs that people build by hand instead.

Most are of Queuety, a queue with workflows; each is the test that would have found it.
"""

import asyncio
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from agentflow import App, Context, Question, Retry, Run, SyncRun, Workflow
from agentflow.engine.events import RetryAt
from agentflow.errors import DefinitionError
from agentflow.failures import Retryable, TimedOut
from agentflow.runners.retries import verdict
from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from agentflow.store.rows import Committed, LateResult
from agentflow.testing import Clock
from tests.scenarios.desk import ADA
from tests.store.making import NOON, claimed, step
from tests.store.making import Clock as StoreClock

SOON = timedelta(seconds=20)


class Draft(Context):
    number: int = 0
    sent: list[int] = []


class Verdict(StrEnum):
    APPROVED = "approved"
    REJECTED = "rejected"


def drafting(sent: list[int]) -> Any:
    """Write, ask, and write again until somebody approves."""
    flow = Workflow("drafting", Draft)

    @flow.step(max_visits=5)
    async def write(case: Draft, run: Run) -> None:
        case.number += 1

    @flow.human(Verdict, expires=timedelta(days=1))
    def review(case: Draft) -> Question:
        return Question(f"Send draft {case.number}?")

    @flow.step()
    async def send(case: Draft, run: Run) -> None:
        sent.append(case.number)

    done, dropped = flow.end("done"), flow.end("dropped")
    rows = [write.to(review), review.on(Verdict.APPROVED).to(send), review.on(Verdict.REJECTED).to(write)]
    flow.build(start=write, transitions=[*rows, review.expired.to(dropped), send.to(done)])
    return flow


# --- "a wait takes the earliest answer that the run ever had" ----------------------------------------------------


async def test_an_answer_is_used_up_by_the_wait_that_it_was_given_to(store: str) -> None:
    sent: list[int] = []
    flow = drafting(sent)
    async with App([flow], store=store) as app:
        asked = await app.run(flow, Draft(), id="r", timeout=SOON)
        for _ in range(2):
            await app.decide(asked.waits[0].id, Verdict.REJECTED, actor=ADA)
            asked = await app.follow("r", flow, timeout=SOON)
        assert (asked.status, asked.context.number, [wait.question for wait in asked.waits]) == (
            "waiting", 3, ["Send draft 3?"],
        )  # fmt: skip


async def test_an_approval_of_an_old_draft_does_not_send_a_new_one(store: str) -> None:
    sent: list[int] = []
    flow = drafting(sent)
    async with App([flow], store=store) as app:
        first = (await app.run(flow, Draft(), id="r", timeout=SOON)).waits[0]
        await app.decide(first.id, Verdict.REJECTED, actor=ADA)
        second = await app.follow("r", flow, timeout=SOON)
        late = await app.decide(first.id, Verdict.APPROVED, actor=ADA)
        await app.settle()
        after = await app.get("r", flow)
    assert (late.status, "decided otherwise: REJECTED" in late.why) == ("refused", True)
    assert (after.status, after.waits, sent) == ("waiting", second.waits, [])


# --- "resume and retry read the status, then write without a condition" ------------------------------------------


async def test_of_many_who_retry_a_run_at_once_one_does_and_the_body_runs_once(store: str) -> None:
    bodies: list[int] = []
    flow = Workflow("failing", Draft)

    @flow.step()
    async def work(case: Draft, run: Run) -> None:
        bodies.append(run.attempt)
        if len(bodies) == 1:
            raise ValueError("no")

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(end)])
    async with App([flow], store=store) as app:
        await app.run(flow, Draft(), id="r", timeout=SOON)
        replies = await asyncio.gather(*(app.retry("r") for _ in range(8)))
        over = await app.result("r", flow, timeout=SOON)
    assert sorted(reply.status for reply in replies) == ["applied", *["refused"] * 7]
    assert (over.status, bodies) == ("completed", [1, 1])


async def test_a_run_that_is_resumed_while_its_body_is_at_work_does_not_run_it_again(store: str) -> None:
    begun, go, bodies = asyncio.Event(), asyncio.Event(), list[int]()
    flow = Workflow("slow", Draft)

    @flow.step()
    async def work(case: Draft, run: Run) -> None:
        bodies.append(run.attempt)
        begun.set()
        await go.wait()

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(end)])
    async with App([flow], store=store) as app:
        await app.start(flow, Draft(), id="r")
        await asyncio.wait_for(begun.wait(), 5)
        await app.pause("r")
        replies = await asyncio.gather(*(app.resume("r") for _ in range(4)))
        go.set()
        over = await app.result("r", flow, timeout=SOON)
    assert sorted(reply.status for reply in replies) == ["already", "already", "already", "applied"]
    assert (over.status, over.revision, bodies) == ("completed", 1, [1])


# --- "pause does nothing outside `running`, and logs that it did" ------------------------------------------------


async def test_a_pause_holds_a_run_that_waits_and_of_one_that_is_over_it_is_refused_and_kept_so(store: str) -> None:
    flow = drafting([])
    async with App([flow], store=store) as app:
        asked = await app.run(flow, Draft(), id="r", timeout=SOON)
        assert (await app.pause("r")).status == "applied"
        await app.decide(asked.waits[0].id, Verdict.APPROVED, actor=ADA)
        await app.settle()
        assert (await app.get("r", flow)).revision == asked.revision
        await app.resume("r")
        assert (await app.result("r", flow, timeout=SOON)).status == "completed"
        refused = await app.pause("r")
        told = [(line["command"], line["status"]) for line in (await app.export("r"))["commands"]]
    assert refused.status == "refused"
    assert told == [("pause", "applied"), ("resume", "applied"), ("pause", "refused")]


# --- "a finished step is known by its row alone, so the first to commit wins" ------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_result_of_a_worker_that_lost_its_lease_is_not_taken(kind: str, tmp_path: Any) -> None:
    clock = StoreClock()
    store = MemoryStore() if kind == "memory" else open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    store.use_clock(clock.now)
    await store.open()
    _, old = await claimed(store)
    clock.advance(minutes=5)
    session = await store.open_session("another")
    [new] = await store.claim_runs(session, limit=1)
    assert isinstance(await store.commit(step(old)), LateResult)
    assert isinstance(await store.commit(step(new)), Committed)
    assert [row.revision for row in await store.history("r")] == [0, 1]
    await store.close()


# --- "the sweep of what expired does not compare, and races an approval" -----------------------------------------


async def test_an_approval_and_an_expiry_at_the_same_instant_have_one_outcome(store: str) -> None:
    flow = drafting([])
    async with App([flow], store=store) as app:
        clock = Clock(app)
        asked = await app.run(flow, Draft(), id="r", timeout=SOON)
        _, reply = await asyncio.gather(
            clock.advance(timedelta(days=1)), app.decide(asked.waits[0].id, Verdict.APPROVED, actor=ADA)
        )
        over = await app.follow("r", flow, timeout=SOON)
        lines = [line.event for line in await app.history("r") if line.source == "review"]
    assert over.end is not None
    assert (reply.status, over.end.name, lines) in [("applied", "done", ["on"]), ("refused", "dropped", ["expired"])]


async def test_a_question_that_was_asked_before_a_restart_expires_all_the_same(on_disk: str) -> None:
    flow = drafting([])
    async with App([flow], store=on_disk) as app:
        await app.run(flow, Draft(), id="r", timeout=SOON)
    async with App([flow], store=on_disk) as app:
        await Clock(app).advance(timedelta(days=2))
        over = await app.get("r", flow)
    assert over.end is not None
    assert over.end.name == "dropped"


# --- "the loser of a timeout keeps running, and refunds" ---------------------------------------------------------


async def test_a_body_that_took_too_long_acts_no_more(store: str) -> None:
    acted: list[str] = []
    flow = Workflow("late", Draft)

    @flow.step(timeout=timedelta(milliseconds=20))
    async def work(case: Draft, run: Run) -> None:
        try:
            await asyncio.Event().wait()
            acted.append("refunded")
        except asyncio.CancelledError:
            acted.append("stopped")
            raise

    end, late = flow.end("end"), flow.end("late", failed=True)
    flow.build(start=work, transitions=[work.to(end), work.failed(TimedOut).to(late)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Draft(), id="r", timeout=SOON)
    assert over.end is late
    assert acted == ["stopped"]


def test_what_cannot_be_stopped_takes_no_timeout() -> None:
    flow = Workflow("late", Draft)

    @flow.step(timeout=timedelta(seconds=1))
    def work(case: Draft, run: SyncRun) -> None: ...

    end = flow.end("end")
    with pytest.raises(DefinitionError, match="a thread cannot be stopped"):
        flow.build(start=work, transitions=[work.to(end)])


# --- "backoff without jitter or cap" -----------------------------------------------------------------------------


def test_waits_between_attempts_differ_and_stay_below_a_minute() -> None:
    policy = Retry(attempts=100)
    waits: list[timedelta] = []
    for attempt in range(1, 60):
        answer = verdict(policy, Retryable("again"), attempt=attempt, entered_at=NOON, now=NOON)
        assert isinstance(answer, RetryAt)
        waits.append(answer.instant - NOON)
    assert max(waits) <= timedelta(seconds=60)
    assert len(set(waits)) > 50


# --- "a guard reads a field that its input does not have, and the refund is automatic" ---------------------------


class Order(Context):
    amounts: list[Decimal]


async def test_a_guard_that_reads_what_is_not_there_does_not_choose_a_way(store: str) -> None:
    flow = Workflow("refunds", Order)

    @flow.step()
    async def check(case: Order, run: Run) -> None: ...

    @flow.step()
    async def refund(case: Order, run: Run) -> None:
        raise AssertionError("nothing may be paid")

    def risky(case: Order) -> bool:
        return bool(getattr(case.amounts, "high_risk"))  # noqa: B009  what a program without types would write

    end, held = flow.end("end"), flow.end("held")
    flow.build(start=check, transitions=[check.when(risky).to(held), check.to(refund), refund.to(end)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Order(amounts=[Decimal(900)]), id="r", timeout=SOON)
    assert over.failure is not None
    assert (over.status, over.state.name, over.failure.kind) == ("failed", "check", "GuardFailed")
