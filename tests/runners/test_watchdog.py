"""A body that blocks the loop is named, with the place where it stands."""

import asyncio
import logging
import threading
from datetime import timedelta

import pytest

from agentflow import App, Context, Run, Workflow
from agentflow.runners.watchdog import Watchdog

WITHIN = timedelta(seconds=30)


class Case(Context):
    n: int = 0


class Told(logging.Handler):
    """Sets an event at the first warning, so that who blocks the loop can stop."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.event = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.event.set()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture(autouse=True)
def listening(told: Told) -> object:
    log = logging.getLogger("agentflow.runner")
    log.addHandler(told)
    yield
    log.removeHandler(told)


async def test_a_body_that_blocks_the_loop_is_named_once_with_its_place(told: Told) -> None:
    flow = Workflow("blocking", Case)

    @flow.step()
    async def compute(case: Case, run: Run) -> None:
        assert told.event.wait(WITHIN.total_seconds())  # a body that does not await

    done = flow.end("done")
    flow.build(start=compute, transitions=[compute.to(done)])
    app = App([flow], store="memory:")
    app._settings.watchdog = 0.02
    async with app:
        found = await app.run(flow, Case(), id="r7", timeout=WITHIN)
    assert found.status == "completed"
    [line] = told.lines
    assert "state 'compute' of run 'r7' blocks the event loop" in line
    assert "plain `def`" in line
    assert "in compute" in line


async def test_what_blocks_the_loop_beside_the_runs_is_told_too(told: Told) -> None:
    watchdog = Watchdog(lambda task: None, 0.02)
    watchdog.start()
    assert told.event.wait(WITHIN.total_seconds())
    watchdog.stop()
    await asyncio.sleep(0)  # it gets its answer
    watchdog.join()
    assert told.lines[0].startswith("something beside the runs blocks the event loop")


async def test_a_loop_that_answers_is_not_complained_about(told: Told) -> None:
    watchdog = Watchdog(lambda task: None, 0.01)
    watchdog.start()
    for _ in range(50):
        await asyncio.to_thread(lambda: None)
    watchdog.stop()
    await asyncio.to_thread(watchdog.join)
    assert told.lines == []
