"""Where programs call the verbs from: scripts, running loops, web handlers, threads; and how an App ends."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from agentflow import App, Context, Retry, Run, SyncRun, Workflow
from agentflow.errors import RequestError
from tests.scenarios.processes import ROOT, WITHIN

SOON = timedelta(seconds=20)


class Count(Context):
    number: int = 0
    thread: str = ""


class Desk:
    """A service that tells when it is entered and left."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.loops: list[int] = []


count = Workflow("count", Count)


@count.step()
async def add(case: Count, run: Run) -> None:
    case.number += 1


@count.step()
def add_in_thread(case: Count, run: SyncRun) -> None:
    case.number += run.effect("one", lambda key: 1)
    case.thread = threading.current_thread().name


counted = count.end("counted")
count.build(start=add, transitions=[add.to(add_in_thread), add_in_thread.to(counted)])


# --- where verbs are called from ---------------------------------------------------------------------------------


def test_a_script_without_a_loop_uses_the_blocking_verbs(store: str) -> None:
    with App([count], store=store) as app:
        over = app.run_sync(count, Count(), id="r", timeout=SOON)
        assert app.get_sync("r", count) == over
        assert [line.target for line in app.history_sync("r")] == ["add", "add_in_thread", "counted"]

    assert (over.end, over.context.number) == (counted, 2)
    assert over.context.thread.startswith("agentflow-step")


async def test_blocking_verbs_work_while_a_loop_runs_in_this_thread_and_so_does_await(store: str) -> None:
    app = App([count], store=store)
    blocking = app.run_sync(count, Count(), id="r1", timeout=SOON)
    awaited = await app.run(count, Count(), id="r2", timeout=SOON)
    seen = app.get_sync("r2", count)
    app.close_sync()
    await app.close()

    assert blocking.end is awaited.end is counted
    assert seen == awaited


async def test_a_fastapi_handler_awaits_the_verbs(store: str) -> None:
    flows = App([count], store=store)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        async with flows:
            yield

    web = FastAPI(lifespan=lifespan)

    @web.post("/counts/{run}")
    async def post(run: str) -> dict[str, object]:
        over = await flows.run(count, Count(), id=run, timeout=SOON)
        return {"end": str(over.end), "number": over.context.number}

    async with lifespan(web), httpx.AsyncClient(transport=httpx.ASGITransport(app=web), base_url="http://web") as http:
        answers = await asyncio.gather(*(http.post(f"/counts/r{number}") for number in range(5)))

    assert [answer.json() for answer in answers] == [{"end": "counted", "number": 2}] * 5


async def test_a_blocking_verb_in_a_body_on_the_background_loop_is_refused_and_does_not_hang(store: str) -> None:
    nested = Workflow("nested", Count)

    @nested.step()
    async def ask(case: Count, run: Run) -> None:
        app.get_sync(run.id)

    end = nested.end("end")
    nested.build(start=ask, transitions=[ask.to(end)])
    app = App([nested], store=store)
    over = app.run_sync(nested, Count(), id="r", timeout=SOON)
    app.close_sync()

    assert over.failure is not None
    assert over.failure.matches(RequestError)
    assert "await" in over.failure.message


def test_programs_may_start_a_new_loop_for_each_verb(store: str) -> None:
    app = App([count], store=store)
    first = asyncio.run(app.run(count, Count(), id="r1", timeout=SOON))
    second = asyncio.run(app.run(count, Count(), id="r2", timeout=SOON))
    listed = asyncio.run(app.list(count))
    asyncio.run(app.close())

    assert first.end is second.end is counted
    assert {run.id for run in listed} == {"r1", "r2"}
    assert len(app._runners) == 0


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from agentflow import App
from tests.scenarios.test_app import Count, count

app = App([count], store={store!r})
print(app.{verb}_sync(count, Count(), id="r").status, flush=True)
"""


def ran(script: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=WITHIN, check=False)


@pytest.mark.parametrize("verb", ["run", "start"])
async def test_a_script_that_just_ends_loses_nothing(on_disk: str, tmp_path: Path, verb: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=str(ROOT), store=on_disk, verb=verb), encoding="utf-8")
    ended = await asyncio.to_thread(ran, script)
    assert (ended.returncode, ended.stderr) == (0, "")

    async with App([count], store=on_disk) as app:
        over = await app.run(count, Count(), id="r", timeout=SOON)
    assert (over.status, over.failure, over.end) == ("completed", None, counted)


# --- many at a time ----------------------------------------------------------------------------------------------


async def test_many_runs_are_at_work_at_a_time(store: str) -> None:
    meeting = Workflow("meeting", Count)
    barrier = asyncio.Barrier(50)

    @meeting.step()
    async def meet(case: Count, run: Run) -> None:
        async with asyncio.timeout(SOON.total_seconds()):
            await barrier.wait()

    met = meeting.end("met")
    meeting.build(start=meet, transitions=[meet.to(met)])
    async with App([meeting], store=store) as app:
        runs = await asyncio.gather(*(app.run(meeting, Count(), id=f"r{n}", timeout=SOON) for n in range(50)))

    assert {run.end for run in runs} == {met}


def test_many_threads_share_an_app(store: str) -> None:
    with App([count], store=store) as app, ThreadPoolExecutor(8) as threads:
        runs = threads.map(lambda n: app.run_sync(count, Count(), id=f"r{n}", timeout=SOON), range(24))
        assert {run.context.number for run in runs} == {2}


async def test_two_apps_over_one_database_drive_no_run_twice(on_disk: str) -> None:
    shared = Workflow("shared", Count)
    begun: list[str] = []

    @shared.step()
    async def work(case: Count, run: Run) -> None:
        begun.append(run.id)
        await asyncio.sleep(0)

    end = shared.end("end")
    shared.build(start=work, transitions=[work.to(end)])
    async with App([shared], store=on_disk) as one, App([shared], store=on_disk) as other:
        runs = [f"r{number}" for number in range(40)]
        await asyncio.gather(*(app.start(shared, Count(), id=run) for run in runs for app in (one, other)))
        await asyncio.gather(*(app.result(run, timeout=SOON) for run in runs for app in (one, other)))

    assert sorted(begun) == sorted(runs)


async def test_a_caller_that_waits_no_longer_leaves_the_run_at_work(store: str) -> None:
    slow = Workflow("slow", Count)
    go = asyncio.Event()

    @slow.step()
    async def work(case: Count, run: Run) -> None:
        await go.wait()

    end = slow.end("end")
    slow.build(start=work, transitions=[work.to(end)])
    async with App([slow], store=store) as app:
        with pytest.raises(TimeoutError):
            await app.run(slow, Count(), id="r", timeout=timedelta(milliseconds=20))
        assert (await app.get("r")).status == "running"
        go.set()
        assert (await app.result("r", timeout=SOON)).end is end


# --- services ----------------------------------------------------------------------------------------------------


async def test_services_are_entered_once_per_loop_and_left_at_close(store: str) -> None:
    desk = Desk()
    serving = Workflow("serving", Count, services=Desk)

    @serving.step()
    async def use(case: Count, run: Run[Desk]) -> None:
        run.services.said.append("used")

    end = serving.end("end")
    serving.build(start=use, transitions=[use.to(end)])

    @asynccontextmanager
    async def open_desk() -> AsyncGenerator[Desk, None]:
        desk.said.append("entered")
        desk.loops.append(id(asyncio.get_running_loop()))
        try:
            yield desk
        finally:
            desk.said.append("left")

    app = App([serving], store=store, services=[open_desk])
    async with app:
        await asyncio.gather(*(app.run(serving, Count(), id=f"r{number}", timeout=SOON) for number in range(3)))
        assert desk.said == ["entered", "used", "used", "used"]
        app.run_sync(serving, Count(), id="other-loop", timeout=SOON)
        assert desk.said[4:] == ["entered", "used"]
        app.close_sync()
        assert desk.said[6:] == ["left"]
    assert desk.said[7:] == ["left"]
    assert len(set(desk.loops)) == 2


# --- the end of an App -------------------------------------------------------------------------------------------


async def test_a_graceful_stop_lets_a_body_finish_and_gives_the_run_back(on_disk: str) -> None:
    flow = Workflow("stopping", Count)
    begun, go = asyncio.Event(), asyncio.Event()
    after: list[int] = []

    @flow.step()
    async def work(case: Count, run: Run) -> None:
        begun.set()
        await go.wait()
        case.number = 7

    @flow.step()
    async def next_one(case: Count, run: Run) -> None:
        after.append(case.number)

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(next_one), next_one.to(end)])
    app = App([flow], store=on_disk)
    await app.start(flow, Count(), id="r")
    await asyncio.wait_for(begun.wait(), 10)
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)  # it has begun to stop
    go.set()
    await asyncio.wait_for(closing, 10)

    later = App([flow], store=on_disk)
    left = await later.get("r", flow)
    row = await later._store.run("r")
    assert row is not None
    assert (left.status, left.state, left.context.number, row.session) == ("queued", next_one, 7, None)
    assert await later._store.sessions() == []
    assert after == []
    assert (await later.result("r", flow, timeout=SOON)).end is end
    assert after == [7]
    await later.close()


async def test_a_cancelled_error_that_a_body_makes_itself_is_a_failure_of_the_body(store: str) -> None:
    flow = Workflow("cancelling", Count)
    tries: list[int] = []

    async def given_up() -> None:
        raise asyncio.CancelledError

    @flow.step(retry=Retry(attempts=3))
    async def wait_for_task(case: Count, run: Run) -> None:
        tries.append(run.attempt)
        await asyncio.create_task(given_up())

    end = flow.end("end")
    flow.build(start=wait_for_task, transitions=[wait_for_task.to(end)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Count(), id="r", timeout=timedelta(seconds=3))

    assert over.failure is not None
    assert (over.status, over.failure.kind, tries) == ("failed", "CancelledError", [1])


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, BaseException, StopIteration])
async def test_no_exception_of_a_body_keeps_its_run_for_ever(store: str, kind: type[BaseException]) -> None:
    flow = Workflow("leaving", Count)

    @flow.step()
    def leave(case: Count, run: SyncRun) -> None:
        raise kind("out")

    end = flow.end("end")
    flow.build(start=leave, transitions=[leave.to(end)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Count(), id="r", timeout=timedelta(seconds=3))

    assert over.failure is not None
    assert (over.status, over.failure.kind) == ("failed", kind.__name__)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration])
async def test_no_exception_of_a_call_in_a_thread_harms_the_loop(store: str, kind: type[BaseException]) -> None:
    flow = Workflow("calling", Count)

    @flow.step()
    def call(case: Count, run: SyncRun) -> None:
        def out(key: str) -> None:
            raise kind("out")

        run.effect("out", out)

    end = flow.end("end")
    flow.build(start=call, transitions=[call.to(end)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Count(), id="r", timeout=timedelta(seconds=3))

    assert over.failure is not None
    assert (over.status, over.failure.kind) == ("failed", "Unclear")


async def test_an_exit_in_an_asynchronous_body_fails_the_run_and_not_the_program(store: str) -> None:
    flow = Workflow("exiting", Count)

    @flow.step()
    async def leave(case: Count, run: Run) -> None:
        sys.exit(3)

    end = flow.end("end")
    flow.build(start=leave, transitions=[leave.to(end)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Count(), id="r", timeout=timedelta(seconds=3))

    assert over.failure is not None
    assert (over.status, over.failure.kind) == ("failed", "SystemExit")
