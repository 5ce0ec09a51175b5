"""A refund desk for the scenarios: a fetch, a person, a payment; what reaches the outside is written to a file.

`python -m tests.scenarios.desk STORE LOG VERB [RUN [OUTCOME]]` is one process of it; each line that it prints is one
fact, written at once, so that a test can wait for it.
"""

import asyncio
import json
import os
import sys
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, Field

from agentflow import Actor, App, Context, Question, Run, Workflow

ADA = Actor("ada@shop.example", source="tests")


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class Amount(BaseModel, extra="forbid"):
    amount: Decimal = Field(le=100)


class Case(Context):
    order: str
    wanted: Decimal = Decimal(40)
    verdict: str | None = None
    receipt: str | None = None


def say(*words: object) -> None:
    """One line, in one write, so that a kill leaves whole lines."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def note(name: str, key: str) -> str:
    """Act on the outside: one more line in the log."""
    with Path(os.environ["DESK_LOG"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps([name, key]) + "\n")
    return f"{name} {key}"


def noted(log: Path) -> list[tuple[str, str]]:
    """What reached the outside."""
    return [tuple(json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


desk = Workflow("desk", Case)


@desk.step()
async def fetch(case: Case, run: Run) -> None:
    await run.effect("fetch", lambda key: noting("fetch", key))


async def noting(name: str, key: str) -> str:
    return note(name, key)


@desk.human(Verdict)
def approval(case: Case) -> Question:
    return Question(f"Pay {case.wanted} for {case.order}?")


@desk.step()
async def pay(case: Case, run: Run) -> None:
    case.receipt = await run.effect("pay", lambda key: noting("pay", key))


paid, refused = desk.end("paid"), desk.end("refused")
desk.build(
    start=fetch,
    transitions=[
        fetch.to(approval),
        approval.on(Verdict.APPROVE).to(pay),
        approval.on(Verdict.REJECT).to(refused),
        pay.to(paid),
    ],
)


async def serve(app: App, verb: str, run: str, outcome: str) -> None:
    """One verb of a process."""
    match verb:
        case "run":
            waiting = await app.run(desk, Case(order="A1"), id=run)
            say(waiting.status, waiting.waits[0].id)
        case "start":
            say("started", (await app.start(desk, Case(order="A1"), id=run)).id)
            await asyncio.Event().wait()  # until it is killed
        case "decide":
            sys.stdin.readline()  # go
            say((await app.decide(f"{run}.approval.1", Verdict(outcome), actor=ADA)).status)
        case "work":
            async with app:
                say((await app.result(run)).end)
        case _:
            raise SystemExit(f"unknown verb {verb}")


def main(address: str, log: str, verb: str, run: str = "", outcome: str = "approve") -> None:
    os.environ["DESK_LOG"] = log
    asyncio.run(serve(App([desk], store=address), verb, run, outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
