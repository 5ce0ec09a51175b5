"""An App for workers that are processes of their own: bodies say on standard output that they stand, and wait for `go`.

`python -m agentflow --app tests.scenarios.workbench:app --db STORE worker` is one.
"""

import asyncio
import contextlib
import sys

from agentflow import App, Context, Run, SyncRun, Workflow
from tests.scenarios.desk import say


class Piece(Context):
    name: str
    done: list[str] = []


def wait_for_go(run: str) -> None:
    """Say that a body is at work, and stand there until the test sends a line."""
    say("begun", run)
    sys.stdin.readline()


bench = Workflow("bench", Piece)


@bench.step()
async def stand(case: Piece, run: Run) -> None:
    await asyncio.to_thread(wait_for_go, run.id)
    case.done.append("stand")


@bench.step()
async def finish(case: Piece, run: Run) -> None:
    case.done.append("finish")


finished = bench.end("finished")
bench.build(start=stand, transitions=[stand.to(finish), finish.to(finished)])

threaded = Workflow("threaded", Piece)


@threaded.step()
def stand_in_thread(case: Piece, run: SyncRun) -> None:
    wait_for_go(run.id)


threaded.build(start=stand_in_thread, transitions=[stand_in_thread.to(threaded.end("finished"))])

stubborn = Workflow("stubborn", Piece)


@stubborn.step()
async def go_on(case: Piece, run: Run) -> None:
    """Goes on whatever it is told."""
    say("begun", run.id)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


stubborn.build(start=go_on, transitions=[go_on.to(stubborn.end("finished"))])

quick = Workflow("quick", Piece)


@quick.step()
async def do(case: Piece, run: Run) -> None:
    case.done.append(f"every {sys.getswitchinterval():.4f} s")


quick.build(start=do, transitions=[do.to(quick.end("finished"))])

app = App([bench, threaded, stubborn, quick])
