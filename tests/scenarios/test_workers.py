"""`agentflow worker` as real processes: it drives what is due, stops without losing or repeating work, and is seen (D5, D7)."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum

import pytest

from agentflow import App, Run, Workflow
from agentflow.cli.worker import SWITCH_INTERVAL
from agentflow.errors import InvalidInput
from tests.scenarios.desk import Case, desk
from tests.scenarios.processes import WITHIN, kill, process, says, tell
from tests.scenarios.workbench import Piece, bench, quick, stubborn, threaded

Worker = subprocess.Popen[str]


@contextmanager
def worker(store: str, *options: str) -> Iterator[Worker]:
    """A worker that is ready."""
    words = ("--app", "tests.scenarios.workbench:app", "--db", store, "worker", *options)
    with process("agentflow", *words) as started:
        assert says(started).startswith("ready: process")
        yield started


@asynccontextmanager
async def looking(store: str) -> AsyncIterator[App]:
    """An App that starts runs and looks at them, and drives none."""
    app = App([bench, threaded, stubborn, quick], store=store)
    app.leave_to_workers()
    try:
        yield app
    finally:
        await app.close()


async def queue(app: App, workflow: Workflow[Piece, None], *names: str) -> None:
    for name in names:
        await app.start(workflow, Piece(name=name), id=name)


def complains(started: Worker) -> str:
    """The next line on its standard error."""
    assert started.stderr is not None
    return started.stderr.readline().strip()


def ended(started: Worker) -> int:
    return started.wait(timeout=WITHIN)


# --- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_without_work_stops_at_a_signal_with_0(on_disk: str, number: signal.Signals) -> None:
    with worker(on_disk) as started:
        started.send_signal(number)
        assert ended(started) == 0
        assert complains(started).startswith("stopping: bodies at work have 30 s to finish")


async def test_a_body_at_work_finishes_and_commits_and_queued_runs_stay_queued(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, bench, "a", "b", "c")
        with worker(on_disk, "--concurrency", "1") as started:
            assert says(started) == "begun a"
            started.terminate()
            assert complains(started).startswith("stopping:")
            tell(started)
            assert ended(started) == 0
        found = {name: await app.get(name, bench) for name in "abc"}
        attempts = [(await app.export(name))["attempts"] for name in "abc"]
    assert (str(found["a"].state), found["a"].revision, found["a"].context.done) == ("finish", 1, ["stand"])
    assert [(run.status, run.revision) for run in found.values()] == [("queued", 1), ("queued", 0), ("queued", 0)]
    assert attempts == [[], [], []]


async def test_a_signal_stops_one_that_was_to_end_by_itself_likewise(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, bench, "a", "b")
        with worker(on_disk, "--once", "--concurrency", "1") as started:
            assert says(started) == "begun a"
            started.terminate()
            assert complains(started).startswith("stopping:")
            tell(started)
            assert ended(started) == 0
        assert [(await app.get(name)).revision for name in "ab"] == [1, 0]


async def test_what_a_stopped_worker_left_is_finished_by_the_next_and_nothing_is_done_twice(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, bench, "a")
        with worker(on_disk) as started:
            assert says(started) == "begun a"
            started.terminate()
            assert complains(started).startswith("stopping:")
            tell(started)
            assert ended(started) == 0
        with worker(on_disk, "--once", "-v") as next_one:
            assert says(next_one) == "ended: a completed at finished"
            assert ended(next_one) == 0
        over = await app.get("a", bench)
    assert over.context.done == ["stand", "finish"]


@pytest.mark.parametrize("workflow", [bench, threaded], ids=["coroutine", "thread"])
async def test_a_body_that_misses_the_drain_time_is_given_back_and_done_again(
    on_disk: str, workflow: Workflow[Piece, None]
) -> None:
    async with looking(on_disk) as app:
        await queue(app, workflow, "a")
        with worker(on_disk, "--drain", "0.1") as started:
            assert says(started) == "begun a"
            started.terminate()
            assert ended(started) == 0
        given_back = await app.get("a", workflow)
        with worker(on_disk, "-v") as next_one:
            assert says(next_one) == "begun a"
            tell(next_one)
            assert says(next_one) == "ended: a completed at finished"
        attempts = (await app.export("a"))["attempts"]
    assert (given_back.status, given_back.revision) == ("queued", 0)
    assert attempts == []  # it was given back, not lost


async def test_a_second_signal_ends_at_once_and_another_worker_goes_on(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, bench, "a")
        with worker(on_disk) as started:
            assert says(started) == "begun a"
            started.terminate()
            assert complains(started).startswith("stopping:")
            started.terminate()
            assert ended(started) == 128 + signal.SIGTERM
        with worker(on_disk, "-v") as next_one:
            assert says(next_one) == "begun a"
            tell(next_one)
            assert says(next_one) == "ended: a completed at finished"


async def test_a_body_that_goes_on_although_it_was_cancelled_does_not_keep_a_worker_alive(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, stubborn, "a")
        with worker(on_disk, "--drain", "0") as started:
            assert says(started) == "begun a"
            started.terminate()
            assert ended(started) == 128 + signal.SIGTERM
            assert complains(started).startswith("stopping:")
            assert complains(started).startswith("a body does not let itself be stopped")


async def test_b14_a_worker_takes_over_from_one_that_was_killed(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, bench, "a")
        with worker(on_disk) as started:
            assert says(started) == "begun a"
            kill(started)
        with worker(on_disk, "-v") as next_one:
            assert says(next_one) == "begun a"
            tell(next_one)
            assert says(next_one) == "ended: a completed at finished"
        outcomes = [attempt["outcome"] for attempt in (await app.export("a"))["attempts"]]
    assert outcomes == ["lost"]


# --- working -----------------------------------------------------------------------------------------------------


async def test_once_drives_all_that_is_due_however_few_at_a_time_and_ends(on_disk: str) -> None:
    names = [f"q{number}" for number in range(20)]
    async with looking(on_disk) as app:
        await queue(app, quick, *names)
        with worker(on_disk, "--once", "--concurrency", "3") as started:
            assert ended(started) == 0
        assert {(await app.get(name)).status for name in names} == {"completed"}


def test_once_ends_where_nothing_is_due(on_disk: str) -> None:
    with worker(on_disk, "--once") as started:
        assert ended(started) == 0


async def test_runs_of_other_workflows_are_left_alone(on_disk: str) -> None:
    other = App([desk], store=on_disk)
    other.leave_to_workers()
    await other.start(desk, Case(order="A1"), id="r")
    with worker(on_disk, "--once") as started:
        assert ended(started) == 0
    found = await other.get("r")
    await other.close()
    assert (found.status, found.revision) == ("queued", 0)


async def test_a_program_reads_what_a_worker_does_as_objects(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, quick, "a")
        words = ("--app", "tests.scenarios.workbench:app", "--db", on_disk, "worker", "--once", "-v", "--json")
        with process("agentflow", *words) as started:
            ready, end = json.loads(says(started)), json.loads(says(started))
            assert ended(started) == 0
    assert (ready["v"], ready["event"], ready["concurrency"]) == (1, "ready", 100)
    assert end == {"v": 1, "event": "ended", "run": "a", "status": "completed", "at": "finished"}


async def test_only_a_worker_shortens_the_switch_interval_of_its_process(on_disk: str) -> None:
    before = sys.getswitchinterval()
    async with looking(on_disk) as app:
        await queue(app, quick, "a")
        with worker(on_disk, "--once") as started:
            assert ended(started) == 0
        there = (await app.get("a", quick)).context.done
        here = (await app.run(quick, Piece(name="b"), id="b")).context.done
    assert there == [f"every {SWITCH_INTERVAL:.4f} s"]
    assert here == [f"every {before:.4f} s"]
    assert before > SWITCH_INTERVAL


# --- seen --------------------------------------------------------------------------------------------------------


async def test_workers_are_seen_with_their_runs_and_are_gone_when_they_have_stopped(on_disk: str) -> None:
    async with looking(on_disk) as app:
        await queue(app, bench, "a")
        assert await app.workers() == []
        with worker(on_disk) as started:
            assert says(started) == "begun a"
            [seen] = await app.workers()
            started.terminate()
            tell(started)
            assert ended(started) == 0
        assert await app.workers() == []
    assert (seen.alive, list(seen.runs), seen.name.endswith(f":{started.pid}")) == (True, ["a"], True)
    assert 0 < seen.lease.total_seconds() <= 30


async def test_an_effect_under_a_live_worker_is_not_settled_by_hand_and_the_worker_is_named(store: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    flow = Workflow("acting", Piece)

    async def call(key: str) -> str:
        begun.set()
        await go.wait()
        return "done"

    @flow.step()
    async def act(case: Piece, run: Run) -> None:
        case.done.append(await run.effect("call", call))

    flow.build(start=act, transitions=[act.to(flow.end("finished"))])
    async with App([flow], store=store) as app:
        await app.start(flow, Piece(name="a"), id="a")
        await begun.wait()
        [at_work] = await app.effects(run="a")
        reply = await app.resolve_effect("a:act:1:call", False, evidence="I think it hangs")
        go.set()
        over = await app.result("a", flow)
        [settled] = await app.effects(run="a")
        [command] = (await app.export("a"))["commands"]
        [worker] = await app.workers()
    assert (at_work.status, at_work.at_work, settled.status, settled.at_work) == ("claimed", True, "done", False)
    assert (reply.status, f"is at work under worker {worker.name} (session {worker.id})" in reply.why) == (
        "refused", True,
    )  # fmt: skip
    assert (command["status"], command["reason"]) == ("refused", "I think it hangs")
    assert over.context.done == ["done"]


async def test_the_outcome_of_a_body_that_ran_once_must_be_one_that_the_state_knows(store: str) -> None:
    class Side(StrEnum):
        LEFT = "left"
        RIGHT = "right"

    flow = Workflow("once", Piece)

    @flow.step(once=True)
    async def turn(case: Piece, run: Run) -> Side:
        raise TimeoutError("no answer")

    left, right = flow.end("left"), flow.end("right")
    flow.build(start=turn, transitions=[turn.on(Side.LEFT).to(left), turn.on(Side.RIGHT).to(right)])
    async with App([flow], store=store) as app:
        assert (await app.run(flow, Piece(name="a"), id="a")).status == "failed"
        [doubt] = await app.effects(run="a", status="unclear")
        for result in (None, "UP"):
            with pytest.raises(InvalidInput, match="answers with one of LEFT, RIGHT"):
                await app.resolve_effect(doubt.key, True, result, evidence="seen")
        await app.resolve_effect(doubt.key, True, "RIGHT", evidence="seen")
        await app.retry("a")
        over = await app.result("a", flow)
    assert over.end is right
