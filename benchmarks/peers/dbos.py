"""DBOS: a workflow function whose every state is a step, whose result is stored; in SQLite.

It stores what each step returned, never a whole context, and comes back after a crash by running the function again.
"""

import asyncio
import logging
import os
import time
from typing import TypedDict

from dbos import DBOS, DBOSConfig, SetWorkflowID

from benchmarks.harness import Meter, Peer, Variant, message, payload


class Flat(TypedDict):
    n: int
    payload: str


class _Now:
    """Its workflows are functions of a module, so the meter and the end are too."""

    meter: Meter
    is_resumed = False


@DBOS.step()
def flat(number: int) -> Flat:
    _Now.meter.step()
    return {"n": number, "payload": payload(number)}


@DBOS.step()
async def flat_async(number: int) -> Flat:
    _Now.meter.step()
    return {"n": number, "payload": payload(number)}


@DBOS.step()
def said(number: int) -> str:
    _Now.meter.step()
    return message(number)


@DBOS.workflow()
def one_run() -> int:
    number = 0
    while not _Now.meter.is_enough(number):
        number = flat(number + 1)["n"]
    return number


@DBOS.workflow()
async def one_of_many() -> int:
    number = 0
    while not _Now.meter.is_enough(number):
        number = (await flat_async(number + 1))["n"]
    return number


@DBOS.workflow()
def growing_run() -> int:
    messages: list[str] = []
    while not _Now.meter.is_enough(len(messages)):
        messages.append(said(len(messages) + 1))
    return len(messages)


@DBOS.workflow()
def interrupted_run(steps: int) -> int:
    number = 0
    while number < steps:
        number = flat(number + 1)["n"]
    _Now.is_resumed = True
    return number


class DiesOnTheWay(Meter):
    """Ends the process in the step after the last one, so that the run is left as a crash leaves it."""

    def step(self) -> None:
        super().step()
        if self.done > self.steps:
            os.write(1, b"@@{}\n")
            os._exit(0)


class Sqlite(Peer):
    """All of DBOS in one SQLite file."""

    def open(self) -> None:
        _Now.meter = self.meter
        logging.getLogger("dbos").setLevel(logging.ERROR)
        settings: DBOSConfig = {
            "name": "bench",
            "system_database_url": f"sqlite:///{self.meter.database}",
            "log_level": "ERROR",
            "application_version": "v1",
            "executor_id": "bench",
        }
        DBOS(config=settings)
        DBOS.launch()

    def close(self) -> None:
        DBOS.destroy()

    def one_run(self) -> None:
        one_run()

    def growing_run(self) -> None:
        growing_run()

    def many_runs(self, runs: int) -> None:
        async def main() -> None:
            started = await asyncio.gather(*(DBOS.start_workflow_async(one_of_many) for _ in range(runs)))
            await asyncio.gather(*(run.get_result() for run in started))

        asyncio.run(main())

    def leave_run(self) -> None:
        dying = DiesOnTheWay(self.meter.steps, 600, self.meter.folder, self.meter.synchronous, None)
        _Now.meter = dying
        with SetWorkflowID("r"):
            interrupted_run(self.meter.steps + 1)

    def resume_run(self) -> None:
        while not _Now.is_resumed:  # `launch` has taken the run up by itself
            time.sleep(0.001)


VARIANTS = {"sqlite": Variant(Sqlite)}
