"""Limits of a run: what meets one stands still with all that it has, and goes on once somebody raises it."""

import logging
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from agentflow import Actor, App, Context, Limits, Run, Workflow
from agentflow.errors import InvalidInput, RunFailed
from agentflow.failures import OverLimit

SOON = timedelta(seconds=20)
ADA = Actor("ada", source="test")


class Case(Context):
    turns: int = 0
    text: str = ""


class Turn(StrEnum):
    AGAIN = "again"
    ENOUGH = "enough"


class Calls:
    """How often the body ran, and the effect that it has."""

    def __init__(self) -> None:
        self.bodies = 0
        self.effects: list[str] = []

    async def act(self, key: str) -> str:
        self.effects.append(key)
        return "done"


def turning(calls: Calls, *, limits: Limits | None = None, turns: int = 4, size: int = 1, handled: bool = False) -> Any:
    """A loop of `turns` turns, each with an effect and `size` more characters."""
    flow = Workflow("turning", Case, limits=limits)

    @flow.step(max_visits=50)
    async def turn(case: Case, run: Run) -> Turn:
        calls.bodies += 1
        await run.effect("act", calls.act)
        case.turns += 1
        case.text += "x" * size
        return Turn.ENOUGH if case.turns >= turns else Turn.AGAIN

    @flow.step()
    async def tidy(case: Case, run: Run) -> None:
        case.text = ""

    ready, tidied = flow.end("ready"), flow.end("tidied", failed=True)
    kind = OverLimit if handled else ValueError
    rows = [turn.on(Turn.AGAIN).to(turn), turn.on(Turn.ENOUGH).to(ready), turn.failed(kind).to(tidy), tidy.to(tidied)]
    flow.build(start=turn, transitions=rows)
    return flow


async def test_a_run_that_meets_a_limit_is_blocked_and_keeps_everything(store: str) -> None:
    calls = Calls()
    flow = turning(calls, limits=Limits(transitions=2))
    async with App([flow], store=store) as app:
        met = await app.run(flow, Case(), id="r", timeout=SOON)
        why = await app.why("r")
        with pytest.raises(RunFailed, match="transitions is 2") as raised:
            await app.result("r", timeout=SOON)
    assert (met.status, met.revision, met.state.name, met.context.turns) == ("queued", 2, "turn", 2)
    assert met.blocked == "the run has made 2 transitions, transitions is 2"
    assert met.failure is not None
    assert met.failure.matches(OverLimit)
    assert raised.value.snapshot.blocked == met.blocked
    assert why.text == f"blocked in turn by a limit: {met.blocked}. `resume` goes on, with it raised"
    assert why.waker is None


async def test_a_raised_limit_lets_the_run_go_on_with_the_answer_that_met_it(store: str) -> None:
    calls = Calls()
    flow = turning(calls, limits=Limits(transitions=2))
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        reply = await app.resume("r", limits=Limits(transitions=10), actor=ADA, reason="it may")
        over = await app.result("r", flow, timeout=SOON)
        lines = await app.history("r")
    assert (reply.status, over.end and over.end.name, over.context.turns) == ("applied", "ready", 4)
    assert (calls.bodies, len(set(calls.effects)), len(calls.effects)) == (4, 4, 4)
    assert [line.number for line in lines] == [0, 1, 2, 3, 4]


async def test_the_raised_limit_holds_for_this_run_until_it_is_met_too(store: str) -> None:
    calls = Calls()
    flow = turning(calls, limits=Limits(transitions=1))
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        await app.resume("r", limits=Limits(transitions=3))
        again = await app.follow("r", flow, timeout=SOON)
        other = await app.run(flow, Case(), id="other", timeout=SOON)
    assert (again.blocked, again.revision) == ("the run has made 3 transitions, transitions is 3", 3)
    assert (other.blocked, other.revision) == ("the run has made 1 transitions, transitions is 1", 1)


async def test_looking_at_a_run_that_met_a_limit_changes_nothing(store: str) -> None:
    calls = Calls()
    flow = turning(calls, limits=Limits(visits=2))
    async with App([flow], store=store) as app:
        met = await app.run(flow, Case(), id="r", timeout=SOON)
        for _ in range(3):
            assert await app.follow("r", flow, timeout=SOON) == met
    assert (met.blocked, calls.bodies) == ("state 'turn' was entered 3 times, visits is 2", 2)


async def test_a_visit_too_many_is_worked_on_once_visits_are_raised(store: str) -> None:
    calls = Calls()
    flow = turning(calls, limits=Limits(visits=2))
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        await app.resume("r", limits=Limits(visits=4))
        over = await app.result("r", flow, timeout=SOON)
    assert (over.status, over.context.turns, calls.bodies) == ("completed", 4, 4)


async def test_a_context_that_grew_too_large_is_made_again_once_it_may_be_larger(store: str) -> None:
    calls = Calls()
    flow = turning(calls, limits=Limits(context_bytes=500), size=200)
    async with App([flow], store=store) as app:
        met = await app.run(flow, Case(), id="r", timeout=SOON)
        await app.resume("r", limits=Limits(context_bytes=5_000))
        over = await app.result("r", flow, timeout=SOON)
    assert (met.context.turns, len(met.context.text)) == (2, 400)
    assert "context_bytes is 500; the largest field is text" in str(met.blocked)
    assert (len(over.context.text), len(calls.effects)) == (800, 4)  # the body ran again, its effect did not


async def test_a_row_that_takes_the_failure_can_lead_to_an_end(store: str) -> None:
    calls = Calls()
    flow = turning(calls, limits=Limits(transitions=2), handled=True)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        lines = await app.history("r")
    assert (over.status, over.end and over.end.name, over.context.text) == ("failed", "tidied", "")
    assert [(line.source, line.target) for line in lines[1:]] == [
        ("turn", "turn"), ("turn", "turn"), ("turn", "tidy"), ("tidy", "tidied"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(transitions=2), "has used 2 of transitions by now, 2 would stop it again"),
        (Limits(transitions=1), "has used 2 of transitions by now, 1 would stop it again"),
        (Limits(wall_time=timedelta(microseconds=1)), "of wall_time by now, 0:00:00.000001 would stop it again"),
    ],
)
async def test_a_limit_that_would_be_met_at_once_is_refused(store: str, limits: Limits, why: str) -> None:
    flow = turning(Calls(), limits=Limits(transitions=2))
    async with App([flow], store=store) as app:
        met = await app.run(flow, Case(), id="r", timeout=SOON)
        reply = await app.resume("r", limits=limits)
        assert (reply.status, why in reply.why) == ("refused", True)
        assert await app.get("r", flow) == met


async def test_a_limit_of_nothing_is_no_limit(store: str) -> None:
    flow = turning(Calls(), limits=Limits(transitions=2))
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        with pytest.raises(InvalidInput, match=r"Limits\(cost=0\): a limit must be above 0"):
            await app.resume("r", limits=Limits(cost=Decimal(0)))


async def test_a_run_that_met_a_limit_can_be_cancelled_and_not_retried(store: str) -> None:
    flow = turning(Calls(), limits=Limits(transitions=2))
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        retried = await app.retry("r")
        cancelled = await app.cancel("r")
        over = await app.get("r", flow)
    assert (retried.status, cancelled.status, over.status, over.blocked) == ("refused", "applied", "cancelled", None)


async def test_the_audit_keeps_who_raised_what(store: str) -> None:
    flow = turning(Calls(), limits=Limits(transitions=2))
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        await app.resume("r", limits=Limits(transitions=9), actor=ADA, reason="it may", request="q1")
        repeated = await app.resume("r", limits=Limits(transitions=9), actor=ADA, request="q1")
        await app.result("r", timeout=SOON)
        [command] = [line for line in (await app.export("r"))["commands"] if line["command"] == "resume"]
    assert repeated.status == "already"
    assert (command["actor"]["subject"], command["reason"], command["why"]) == ("ada", "it may", "transitions=9")


async def test_half_of_the_context_that_is_allowed_is_told_once(store: str, caplog: pytest.LogCaptureFixture) -> None:
    flow = turning(Calls(), limits=Limits(context_bytes=1_000), size=200)
    with caplog.at_level(logging.WARNING, logger="agentflow.runner"):
        async with App([flow], store=store) as app:
            await app.run(flow, Case(), id="r", timeout=SOON)
    [record] = [record for record in caplog.records if "context_bytes" in record.getMessage()]
    assert "run r: its context has 6" in record.getMessage()
    assert "more than half of context_bytes=1,000" in record.getMessage()
