"""The run that is killed: twenty transitions with every kind of thing that a crash could double or lose."""

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from tenacity import wait_none

from agentflow import Actor, App, Context, Question, Retry, Run, SyncRun, Workflow
from agentflow.effects import NOT_HAPPENED, Fate, Happened
from agentflow.failures import Retryable, Unclear
from agentflow.merge import Append

TRANSITIONS = 20  # of a run that nothing interrupts
ROUNDS = 11
ADA = Actor("ada@shop.example", source="test")

reach: Callable[[str], None] = lambda point: None  # noqa: E731  set in the process that is killed


class Go(StrEnum):
    ON = "on"
    ENOUGH = "enough"


class Case(Context):
    n: int = 0
    log: Append[str] = Append()
    by_hand: str = ""


def note(*words: object) -> None:
    """One line of what happened outside, which a killed process leaves behind."""
    line = " ".join(map(str, words)) + "\n"
    handle = os.open(os.environ["MATRIX_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line.encode())
    os.close(handle)


def has_acted(key: str) -> bool:
    """What the other side says when it is asked."""
    return f"acted {key}\n" in Path(os.environ["MATRIX_LOG"]).read_text(encoding="utf-8")


async def act(key: str) -> str:
    """The call to the world: it acts, and then the answer travels back."""
    reach("before the call acts")
    note("acted", key)
    reach("after the call acted")
    return f"receipt {key}"


async def ask_world(case: Case, run: Run, key: str) -> Fate[str]:
    note("asked", key)
    return Happened(f"receipt {key}") if has_acted(key) else NOT_HAPPENED


def body(run: Any, state: str) -> None:
    note("begun", state, run.visit, run.attempt)
    reach("in a body")


def has_rounds(case: Case) -> bool:
    return case.n == ROUNDS


# A chain with a loop of eleven rounds; each state that may end in doubt goes on all the same.
flow = Workflow("matrix", Case)


@flow.step(max_visits=ROUNDS)
async def count(case: Case, run: Run) -> Go:
    body(run, "count")
    case.n += 1
    case.log.append(f"round {case.n}")
    return Go.ENOUGH if case.n == ROUNDS else Go.ON


@flow.step()
async def repeated(case: Case, run: Run) -> None:
    body(run, "repeated")
    case.log.append(await run.effect("repeated", act, unclear="retry"))


@flow.step()
async def asked(case: Case, run: Run) -> None:
    body(run, "asked")
    case.log.append(await run.effect("asked", act, unclear=ask_world))


@flow.step()
async def doubted(case: Case, run: Run) -> None:
    body(run, "doubted")
    case.log.append(await run.effect("doubted", act))


@flow.step(once=True)
async def once(case: Case, run: Run) -> None:
    body(run, "once")
    case.log.append("once")


@flow.step(retry=Retry(attempts=2, wait=wait_none()))
async def flaky(case: Case, run: Run) -> None:
    body(run, "flaky")
    if run.attempt == 1:
        raise Retryable("not yet")
    case.log.append("flaky")


@flow.step()
def threaded(case: Case, run: SyncRun) -> None:
    body(run, "threaded")
    case.log.append("threaded")


@flow.human(Go, max_visits=1)
def person(case: Case) -> Question:
    return Question("Enough?")


@person.store
def _(case: Case, answer: Any) -> None:
    case.by_hand = answer.actor.subject


@flow.step()
async def weigh(case: Case, run: Run) -> Go:
    body(run, "weigh")
    return Go.ENOUGH


@flow.step()
async def last(case: Case, run: Run) -> None:
    body(run, "last")
    case.log.append("last")


over = flow.end("over")
flow.build(
    start=count,
    transitions=[
        count.on(Go.ON).to(count),
        count.on(Go.ENOUGH).to(repeated),
        repeated.to(asked),
        asked.to(doubted),
        doubted.failed(Unclear).to(once),
        doubted.to(once),
        once.failed(Unclear).to(flaky),
        once.to(flaky),
        flaky.to(threaded),
        threaded.to(person),
        person.on(Go.ON, Go.ENOUGH).to(weigh),
        weigh.on(Go.ON).to(last),
        weigh.on(Go.ENOUGH).when(has_rounds).to(last),
        weigh.on(Go.ENOUGH).to(over),
        last.to(over),
    ],
)


async def finish(app: App) -> Any:
    """Start the run, or go on with it, and answer its question, until it is over."""
    await app.start(flow, Case(), id="r")
    while True:
        found = await app.follow("r", flow)
        if found.status != "waiting":
            return found
        for wait in found.waits:
            await app.decide(wait.id, Go.ENOUGH, actor=ADA, request="the only one")
