"""Time: limits of a body, retries, expiries, and instants in several zones (B55)."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed, wait_none

from agentflow import App, Context, Question, Retry, Run, Workflow
from agentflow.errors import InvalidInput
from agentflow.failures import Business, Retryable, TimedOut
from agentflow.testing import Clock
from tests.scenarios.desk import ADA

SOON = timedelta(seconds=20)


class Case(Context):
    tries: int = 0
    told: str = ""
    at: datetime | None = None


class Answer(StrEnum):
    YES = "yes"


class Reject(Business):
    pass


def trying(body: Any, **options: Any) -> Workflow[Case, None]:
    """A workflow of one step, with `late` for what timed out."""
    flow = Workflow("trying", Case)

    @flow.step(**options)
    async def attempt(case: Case, run: Run) -> None:
        await body(case, run)

    done = flow.end("done")
    rows = [] if options.get("optional") else [attempt.failed(TimedOut).to(flow.end("late", failed=True))]
    flow.build(start=attempt, transitions=[*rows, attempt.to(done)])
    return flow


async def test_a_body_that_takes_too_long_is_stopped_and_fails_as_timed_out(store: str) -> None:
    stopped: list[int] = []

    async def body(case: Case, run: Run) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(run.attempt)

    flow = trying(body, timeout=timedelta(milliseconds=20), retry=Retry(attempts=2, wait=wait_none()))
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        attempts = await app._store.attempts("r")

    assert (str(over.end), stopped) == ("late", [1, 2])
    assert [(row.attempt, row.outcome) for row in attempts] == [(1, "failed"), (2, "failed")]
    assert all("TimedOut" in (row.failure or "") for row in attempts)


async def test_short_waits_are_slept_and_the_context_of_a_failed_attempt_is_discarded(store: str) -> None:
    async def body(case: Case, run: Run) -> None:
        case.tries += 1
        if run.attempt < 4:
            raise Retryable("not yet")

    flow = trying(body, retry=Retry(attempts=4, wait=wait_fixed(0.01)))
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        line = (await app.history("r"))[1]

    assert (over.status, over.context.tries, line.attempt) == ("completed", 1, 4)


@pytest.mark.parametrize(("error", "tried"), [(Reject("no"), 1), (ValueError("bug"), 1), (ConnectionResetError(), 3)])
async def test_only_what_another_attempt_may_cure_is_tried_again(store: str, error: Exception, tried: int) -> None:
    tries: list[int] = []

    async def body(case: Case, run: Run) -> None:
        tries.append(run.attempt)
        raise error

    flow = trying(body, retry=Retry(attempts=3, wait=wait_none()))
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)

    assert (over.status, tries) == ("failed", [*range(1, tried + 1)])
    assert over.failure is not None
    assert (over.failure.kind, over.failure.attempts) == (type(error).__name__, tried)


async def test_long_waits_are_timers_of_the_store(store: str) -> None:
    at: list[datetime] = []

    async def body(case: Case, run: Run) -> None:
        at.append(clock.now())
        if run.attempt < 3:
            raise Retryable("not yet")

    flow = trying(body, retry=Retry(attempts=3, wait=wait_fixed(600)))
    app = App([flow], store=store)
    clock = Clock(app)
    begun = clock.now()
    async with app:
        await app.start(flow, Case(), id="r")
        await clock.advance(timedelta(minutes=9, seconds=59))
        resting, why = await app.get("r"), await app.why("r")
        assert (resting.status, len(at), why.waker) == ("queued", 1, "timer")
        assert "tries attempt again" in why.text
        assert "Retryable: not yet" in why.text
        await clock.advance(timedelta(minutes=11))
        over = await app.get("r")

    assert over.status == "completed"
    assert at == [begun, begun + timedelta(minutes=10), begun + timedelta(minutes=20)]


async def test_a_clock_moves_on_over_what_is_due_but_not_this_apps_to_do(tmp_path: Path) -> None:
    async def body(case: Case, run: Run) -> None:
        raise Retryable("not yet")

    address = f"sqlite:///{tmp_path}/runs.db"
    flow = trying(body, retry=Retry(attempts=3, wait=wait_fixed(600)))
    async with App([flow], store=address) as others:
        await others.start(flow, Case(), id="r")
        await others.settle()

    other = asking()
    app = App([other], store=address)
    clock = Clock(app)
    begun = clock.now()
    async with app:
        await app.start(other, Case(), id="mine")
        await clock.advance(timedelta(hours=2))
        assert (await app.get("mine")).status == "completed"
        assert clock.now() == begun + timedelta(hours=2)


async def test_an_optional_step_that_fails_is_recorded_as_skipped(store: str) -> None:
    tries: list[int] = []

    async def body(case: Case, run: Run) -> None:
        tries.append(run.attempt)
        case.told = "half"
        raise Retryable("no mail today")

    flow = trying(body, optional=True, retry=Retry(attempts=2, wait=wait_none()))
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        line = (await app.history("r"))[1]

    assert (over.status, over.context.told, tries) == ("completed", "", [1, 2])
    assert (line.outcome, line.reason) == ("skipped", "Retryable: no mail today")


# --- expiry ------------------------------------------------------------------------------------------------------


def asking(**options: Any) -> Workflow[Case, None]:
    flow = Workflow("asking", Case)

    @flow.human(Answer, expires=timedelta(hours=1), **options)
    def ask(case: Case) -> Question:
        return Question("Yes?")

    yes, late = flow.end("yes"), flow.end("late")
    flow.build(start=ask, transitions=[ask.on(Answer.YES).to(yes), ask.expired.to(late)])
    return flow


async def test_a_wait_for_a_person_expires_when_it_is_due_and_not_before(store: str) -> None:
    flow = asking()
    app = App([flow], store=store)
    clock = Clock(app)
    async with app:
        waiting = await app.run(flow, Case(), id="r")
        wait = waiting.waits[0]
        assert wait.due == clock.now() + timedelta(hours=1)
        await clock.advance(timedelta(minutes=59, seconds=59))
        assert (await app.get("r")).status == "waiting"
        await clock.advance(timedelta(seconds=1))
        over = await app.get("r", flow)
        reply = await app.decide(wait.id, Answer.YES, actor=ADA)
        line = (await app.history("r"))[1]

    assert (str(over.end), line.event, line.outcome, line.actor) == ("late", "expired", None, None)
    assert (reply.status, "expired" in reply.why) == ("refused", True)


async def test_an_answer_after_the_due_time_is_refused_even_if_nobody_was_there_to_expire_it(store: str) -> None:
    flow = asking()
    app = App([flow], store=store)
    clock = Clock(app)
    wait = (await app.run(flow, Case(), id="r")).waits[0]
    clock._now += timedelta(hours=1, seconds=1)  # nobody drives anything meanwhile
    late = await app.decide(wait.id, Answer.YES, actor=ADA)
    over = await app.result("r", timeout=SOON)
    await app.close()

    assert (late.status, str(over.end)) == ("refused", "late")


async def test_a_day_that_passes_lets_waits_expire_in_the_order_in_which_they_are_due(store: str) -> None:
    flow = asking()
    app = App([flow], store=store)
    clock = Clock(app)
    async with app:
        for number in range(3):
            await app.run(flow, Case(), id=f"r{number}")
            await clock.advance(timedelta(minutes=1))
        await clock.advance(timedelta(days=1))
        ended = [(await app.history(f"r{number}"))[1].at for number in range(3)]

    assert [later - ended[0] for later in ended] == [timedelta(minutes=number) for number in range(3)]


# --- zones (B55) -------------------------------------------------------------------------------------------------

ZONES = [UTC, timezone(timedelta(hours=-8)), timezone(timedelta(hours=5, minutes=30))]


@pytest.mark.parametrize("zone", ZONES, ids=str)
async def test_b55_instants_are_the_same_whatever_zone_they_are_given_in(store: str, zone: timezone) -> None:
    given = datetime(2031, 3, 1, 13, 30, tzinfo=UTC).astimezone(zone)
    flow = asking()
    app = App([flow], store=store)
    app.stop_clock(lambda: given)
    waiting = await app.run(flow, Case(at=given), id="r")
    line = (await app.history("r"))[0]
    await app.close()

    assert waiting.context.at == given
    wait = waiting.waits[0]
    assert (wait.due, wait.opened, line.at) == (given + timedelta(hours=1), given, given)
    for instant in (wait.due, wait.opened, line.at):
        assert instant is not None
        assert instant.utcoffset() == timedelta(0)


async def test_b55_a_naive_instant_is_refused_at_the_border(store: str) -> None:
    flow = asking()
    app = App([flow], store=store)
    with pytest.raises(InvalidInput, match=r"at.*time zone"):
        await app.start(flow, Case(at=datetime(2031, 3, 1, 13, 30)), id="r")  # noqa: DTZ001
    assert await app.list() == []
    await app.close()


async def test_b55_what_is_due_first_goes_first_whatever_the_zone(store: str) -> None:
    order: list[str] = []

    async def body(case: Case, run: Run) -> None:
        if run.attempt == 1:
            raise Retryable("later")
        order.append(run.id)

    flow = trying(body, retry=Retry(attempts=2, wait=wait_fixed(3600)))
    app = App([flow], store=store)
    instants = {
        "second": datetime(2031, 1, 1, 9, 0, tzinfo=ZONES[1]),  # 17:00 UTC
        "third": datetime(2031, 1, 1, 18, 0, tzinfo=ZONES[0]),
        "first": datetime(2031, 1, 1, 21, 0, tzinfo=ZONES[2]),  # 15:30 UTC
    }
    now = instants["first"]
    app.stop_clock(lambda: now)
    for run in ("first", "second", "third"):
        now = instants[run]
        await app.start(flow, Case(), id=run)
        assert await app.settle() == instants["first"] + timedelta(hours=1) or run != "first"
    now = instants["third"] + timedelta(hours=2)
    await app.settle()
    await app.close()

    assert order == ["first", "second", "third"]
