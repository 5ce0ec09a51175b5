"""A worker that stands still at a chosen point of a charge, to be killed there (B01, B02, effects).

`python -m tests.scenarios.charges STORE LOG POINT` prints `here` at that point and goes no further.
"""

import asyncio
import os
import sys
from typing import Any

from agentflow import App, Context, Run, Workflow
from agentflow.effects import Fate, Happened
from agentflow.engine.head import Head
from agentflow.failures import Unclear
from tests.scenarios.desk import note, say


class Charge(Context):
    order: str
    receipt: str | None = None
    told: bool = False


stop_at: str | None = None  # the point where this process stands still; only the worker's own has one


def reach(point: str) -> None:
    """Stand still here, if this is the point."""
    if point == stop_at:
        say("here", point)
        sys.stdin.readline()  # never comes: it is killed


async def call(name: str, key: str) -> str:
    reach("before the call")
    receipt = note(name, key)
    reach("in the call")
    return receipt


async def ask_shop(case: Charge, run: Run, key: str) -> Fate[str]:
    """The shop remembers what it was told under a key."""
    note("asked", key)
    return Happened(f"found {key}")


def chain(name: str, unclear: Any) -> Workflow[Charge, None]:
    """`charge -> notify -> done`, with what the charge does about a doubt."""
    flow = Workflow(name, Charge)

    @flow.step()
    async def charge(case: Charge, run: Run) -> None:
        note("begun", run.id)
        reach("in the body")
        case.receipt = await run.effect("charge", lambda key: call("charge", key), unclear=unclear)
        reach("after the call")

    @flow.step()
    async def notify(case: Charge, run: Run) -> None:
        case.told = True

    done, doubtful = flow.end("done"), flow.end("doubtful", failed=True)
    flow.build(start=charge, transitions=[charge.failed(Unclear).to(doubtful), charge.to(notify), notify.to(done)])
    return flow


retried, asked, doubted = chain("retried", "retry"), chain("asked", ask_shop), chain("doubted", None)
FLOWS = {flow.name: flow for flow in (retried, asked, doubted)}


async def main(address: str, flow: str) -> None:
    app = App(list(FLOWS.values()), store=address)

    def committed(head: Head) -> None:
        reach(f"after commit {head.revision}")

    app._settings.on_commit = committed
    await app.start(FLOWS[flow], Charge(order="A1"), id="r")
    reach("after the start")
    await app.result("r")


if __name__ == "__main__":
    address, os.environ["DESK_LOG"], flow, stop_at = sys.argv[1:]
    asyncio.run(main(address, flow))
