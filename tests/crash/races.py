"""Two clients in two processes that give a verb to the same run at the same moment, again and again.

A round is a run that was brought to rest where both verbs make sense. Before each round both wait at a barrier. What
each was answered is written to a file; the run itself is looked at afterwards, once a worker has finished it.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from agentflow import Actor, App, Context, Question, Run, Workflow
from agentflow.app.commands import By
from agentflow.errors import Conflict
from agentflow.store.protocol import Store
from tests.crash.forks import CONTEXT, Child
from tests.crash.stores import open_store

ADA, BOB = Actor("ada@shop.example"), Actor("bob@shop.example")
DUE = timedelta(hours=1)
WITHIN = 30.0  # seconds at a barrier
BEAT = 1_000_000  # nanoseconds


class Case(Context):
    text: str = "first"


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


asked = Workflow("asked", Case)


@asked.human(Verdict, expires=DUE)
def ask(case: Case) -> Question:
    return Question(case.text)


said_yes, said_no, too_late = asked.end("yes"), asked.end("no"), asked.end("late")
asked.build(
    start=ask, transitions=[ask.on(Verdict.YES).to(said_yes), ask.on(Verdict.NO).to(said_no), ask.expired.to(too_late)]
)

MENDED: list[bool] = []  # whether the step of `broken` works, in this process
broken = Workflow("broken", Case)


@broken.step()
async def mend(case: Case, run: Run) -> None:
    if not MENDED:
        raise ValueError("broken")


@broken.human(Verdict)
def confirm(case: Case) -> Question:
    return Question("Mended?")


broken.build(
    start=mend,
    transitions=[mend.to(confirm), confirm.on(Verdict.YES, Verdict.NO).to(broken.end("mended"))],
)
FLOWS = [asked, broken]


def app_over(store: Store) -> App:
    return App(FLOWS, store=store)


async def give(app: App, verb: str, run: str) -> str:
    """Carry out one verb; what became of it, in a word."""
    match verb:
        case "yes" | "no":
            actor = ADA if verb == "yes" else BOB
            return (await app.decide(f"{run}.ask.1", Verdict(verb), actor=actor)).status
        case "cancel":
            return (await app.cancel(run, actor=ADA)).status
        case "retry" | "retry once":
            by = By(actor=ADA, request="once") if verb == "retry once" else By(actor=ADA)
            return (await app.retry(run, **by)).status
        case "start" | "start other":
            try:
                text = "first" if verb == "start" else "other"
                return f"applied {(await app.start(asked, Case(text=text), id=run)).context.text}"
            except Conflict:
                return "refused"
        case "expire":
            row = await app._store.expire(f"{run}.ask.1")
            return "applied" if row is not None and row.status == "expired" else "refused"
        case _:
            raise ValueError(verb)


def be_client(address: str, answers: Path, verb: str, runs: Sequence[str], barrier: Barrier) -> None:
    """One client: the same verb to one run after the other, each at the same moment as the other client's."""
    given = asyncio.run(_be_client(address, verb, runs, barrier))
    answers.write_text(json.dumps(given), encoding="utf-8")


async def _be_client(address: str, verb: str, runs: Sequence[str], barrier: Barrier) -> list[str]:
    ahead = 2 * DUE if verb == "expire" else timedelta(0)  # for this client the questions are due already
    app = app_over(open_store(address, ahead=ahead))
    app.leave_to_workers()
    await app.ping()
    given: list[str] = []
    for run in runs:
        barrier.wait(WITHIN)
        until_next_beat()
        given.append(await give(app, verb, run))
    await app.close()
    return given


def until_next_beat() -> None:
    """Return in both processes at once: whoever waits at a barrier is woken later than the one who comes last."""
    beat = time.monotonic_ns() // BEAT + 2
    while time.monotonic_ns() < beat * BEAT:
        pass


def race(address: str, folder: Path, verbs: tuple[str, str], runs: Sequence[str]) -> list[tuple[str, str]]:
    """What both clients were answered, by round."""
    barrier = CONTEXT.Barrier(2)
    files = [folder / f"{verbs[0]}-{verbs[1]}-{number}.json" for number in range(2)]
    clients = [Child(be_client, address, file, verb, runs, barrier) for file, verb in zip(files, verbs, strict=True)]
    for client in clients:
        client.end()
    first, second = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    return list(zip(first, second, strict=True))


async def prepared(address: str, state: str, runs: Sequence[str]) -> None:
    """Bring runs to rest: asked, failed, or not there yet."""
    MENDED.clear()
    app = app_over(open_store(address))
    for run in runs:
        match state:
            case "asked":
                await app.run(asked, Case(), id=run)
            case "failed":
                await app.run(broken, Case(), id=run)
            case _:
                pass
    await app.close()


async def finished(address: str, runs: Sequence[str], ahead: timedelta) -> list[dict[str, Any]]:
    """Where each run rests once a worker has taken up what became due, and what its books say."""
    MENDED.append(True)
    store = open_store(address, ahead=ahead)
    app, found = app_over(store), list[dict[str, Any]]()
    for run in runs:
        over = await app.follow(run)
        commands = await store.commands(run)
        waits = await store.waits(run=run, status=None)
        found.append(
            {
                "status": over.status,
                "end": str(over.end) if over.end else None,
                "commands": [row.command for row in commands if row.status == "applied"],
                "wait": waits[0].status if waits else None,
                "outcome": waits[0].outcome if waits else None,
                "revisions": [line.revision for line in await store.history(run)],
                "text": over.context.model_dump().get("text"),
            }
        )
    await app.close()
    return found
