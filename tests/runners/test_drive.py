"""A run in the hands of a runner: what an interruption between two steps leaves behind."""

from datetime import timedelta
from enum import StrEnum

import pytest
from tenacity import wait_fixed

from agentflow import App, Context, Retry, Run, Workflow
from agentflow.engine.head import Head
from agentflow.failures import Retryable
from agentflow.runners.drive import FAIR_TRANSITIONS

WITHIN = timedelta(seconds=20)


class Go(StrEnum):
    ON = "on"
    ENOUGH = "enough"


class Case(Context):
    n: int = 0


def swinging() -> Workflow[Case, None]:
    """`left -> right -> left ...`, for ever."""
    flow = Workflow("swinging", Case)

    @flow.step(max_visits=10_000)
    async def left(case: Case, run: Run) -> None:
        case.n += 1

    @flow.step()
    async def right(case: Case, run: Run) -> Go:
        case.n += 1
        return Go.ON

    done = flow.end("done")
    rows = [left.to(right), right.on(Go.ON).to(left), right.on(Go.ENOUGH).to(done)]
    flow.build(start=left, transitions=rows)
    return flow


@pytest.mark.parametrize("after", range(FAIR_TRANSITIONS - 2, FAIR_TRANSITIONS + 3))
async def test_a_cancel_between_two_steps_leaves_the_run_where_its_history_says(store: str, after: int) -> None:
    flow = swinging()
    async with App([flow], store=store) as app:
        runner = await app._runner()

        def committed(head: Head) -> None:
            if head.revision == after:
                runner.cancel_body("r")

        app._settings.on_commit = runner.settings.on_commit = committed
        await app.start(flow, Case(), id="r")
        found = await app.follow("r", flow, timeout=WITHIN)
        history = await app.history("r")
    assert found.status == "cancelled"
    assert found.revision == history[-1].number == found.context.n >= after
    assert found.state.name == history[-1].target


async def test_a_cancel_while_a_short_wait_is_slept_keeps_the_failed_attempt(store: str) -> None:
    flow = Workflow("failing", Case)

    @flow.step(retry=Retry(attempts=3, wait=wait_fixed(1.5)))
    async def fail(case: Case, run: Run) -> None:
        raise Retryable("not yet")

    flow.build(start=fail, transitions=[fail.to(flow.end("done"))])
    async with App([flow], store=store) as app:
        runner = await app._runner()
        await app.start(flow, Case(), id="r")
        while not await app._store.attempts("r"):
            await runner.until_changed("r")
        await app.cancel("r")
        found = await app.follow("r", flow, timeout=WITHIN)
        row = await app._store.run("r")
    assert row is not None
    assert (found.status, row.standing.attempt) == ("cancelled", 1)
