"""The run that is killed, frozen and refused everywhere: exactly 20 transitions, one of each thing that can be lost.

Whichever way a doubt goes, the path has the same length: a state after each effect that may end unclear takes either
way. Bodies and effects tell the `Outside`, the one service, which keeps what they did out of reach of the engine.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tenacity import wait_none

from agentflow import Actor, App, Context, Question, Retry, Run, Snapshot, SyncRun, Workflow
from agentflow.effects import NOT_HAPPENED, Fate, Happened
from agentflow.failures import Business, Retryable, Unclear
from agentflow.merge import Append
from agentflow.store.protocol import Store
from tests.crash.log import Log, read_log
from tests.crash.points import Hook

ADA = Actor("ada@shop.example", source="tests")
TRANSITIONS = 20


class Trip(Context):
    order: str
    weight: int = 0
    total: Decimal = Decimal(0)
    receipts: dict[str, str] = {}
    doubts: list[str] = []
    stamps: Append[int] = Append()
    trail: Append[str] = Append()
    answered: str = ""
    notes: int = 0


class Size(StrEnum):
    LARGE = "large"
    SMALL = "small"


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


class Again(StrEnum):
    MORE = "more"
    ENOUGH = "enough"


class NotNeeded(Business):
    pass


@dataclass
class Outside:
    """The world: what begins in it, who is paid, and what it remembers."""

    log: Log
    hook: Hook

    @contextmanager
    def body(self, case: Trip, run: "Run[Outside] | SyncRun[Outside]", state: str) -> Iterator[None]:
        """A body begins, and returns at the end of the block."""
        self.log.act("begun", f"{run.id}:{state}:{run.visit}")
        self.hook(f"body {state} {run.visit} begins")
        case.trail.append(f"{state}:{run.visit}")
        yield
        self.hook(f"body {state} {run.visit} returns")

    def pay(self, key: str) -> str:
        """Act on the outside, under a key."""
        self.hook(f"effect {key}:before")
        self.log.act("acted", key)
        self.hook(f"effect {key}:after")
        return receipt(key)

    async def paying(self, key: str) -> str:
        return self.pay(key)

    def find(self, key: str) -> Fate[str]:
        """Whether it happened: the world remembers keys."""
        self.log.note("asked", key)
        return Happened(receipt(key)) if key in read_log(self.log.path).said("acted") else NOT_HAPPENED


def receipt(key: str) -> str:
    return f"receipt of {key}"


journey = Workflow("journey", Trip, services=Outside, version=1)
Running = Run[Outside]


@journey.step()
async def gather(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "gather"):
        case.weight = 1200


@journey.step()
async def weigh(case: Trip, run: Running) -> Size:
    with run.services.body(case, run, "weigh"):
        return Size.LARGE


def heavy(case: Trip) -> bool:
    return case.weight > 1000


def free(case: Trip) -> bool:
    return case.total > 10_000


async def look(case: Trip, run: Any, key: str) -> Fate[str]:
    fate: Fate[str] = run.services.find(key)
    return fate


@journey.step()
async def reserve(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "reserve"):
        case.receipts["reserve"] = await run.effect("reserve", run.services.paying, unclear="retry")


@journey.step()
async def charge(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "charge"):
        case.receipts["charge"] = await run.effect("charge", run.services.paying, unclear=look)
        case.total += Decimal("12.50")


@journey.step(retry=Retry(attempts=4, wait=wait_none(), on=[Exception]))
async def ship(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "ship"):
        case.receipts["ship"] = await run.effect("ship", run.services.paying)


@journey.step()
async def shipped(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "shipped"):
        case.notes += 1


@journey.step()
async def doubt_ship(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "doubt_ship"):
        case.doubts.append(f"ship {case.failure.kind if case.failure else '?'}")


@journey.step(retry=Retry(attempts=3, wait=wait_none()))
async def shaky(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "shaky"):
        first = await run.effect("first", run.services.paying, unclear="retry")
        if run.attempt < 2:
            raise Retryable("not yet")
        second = await run.effect("second", run.services.paying, unclear=look)
        case.receipts["shaky"] = f"{first}, {second}"


@journey.human(Verdict)
def approval(case: Trip) -> Question:
    return Question(f"Send {case.weight} for {case.total}?", evidence=case.receipts)


@approval.store
def _(case: Trip, answer: Any) -> None:
    case.answered = f"{answer.outcome.value} by {answer.actor.subject}"


@journey.step(max_visits=3)
async def stamp(case: Trip, run: Running) -> Again:
    with run.services.body(case, run, "stamp"):
        await run.effect("stamp", run.services.paying, unclear="retry")
        case.stamps.append(run.visit)
        return Again.MORE if len(case.stamps) < 3 else Again.ENOUGH


@journey.step(once=True)
async def seal(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "seal"):
        run.services.pay(f"{run.id}:seal:1:body")


@journey.step()
async def sealed(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "sealed"):
        case.notes += 1


@journey.step()
async def doubt_seal(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "doubt_seal"):
        case.doubts.append(f"seal {case.failure.kind if case.failure else '?'}")


@journey.step()
def papers(case: Trip, run: SyncRun[Outside]) -> None:
    with run.services.body(case, run, "papers"):
        for item in ("a", "b"):
            case.receipts[f"papers {item}"] = run.effect("papers", run.services.pay, item=item, unclear="retry")


@journey.step()
async def tally(case: Trip, run: Running) -> Size:
    with run.services.body(case, run, "tally"):
        case.total += len(case.receipts)
        return Size.SMALL


@journey.step()
async def bill(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "bill"):
        case.receipts["bill"] = await run.effect(
            "bill", run.services.paying, once_per=f"order {case.order}", unclear="retry", result=str
        )


@journey.step()
async def jot(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "jot"):
        case.notes += 1


@journey.step(optional=True)
async def extra(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "extra"):
        raise NotNeeded("nobody wants it")


@journey.step()
async def wrap(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "wrap"):
        case.notes += 1


@journey.step()
async def farewell(case: Trip, run: Running) -> None:
    with run.services.body(case, run, "farewell"):
        case.notes += 1


arrived, astray = journey.end("arrived"), journey.end("astray")
journey.build(
    start=gather,
    transitions=[
        gather.to(weigh),
        weigh.on(Size.LARGE).when(heavy).to(reserve),
        weigh.on(Size.LARGE, Size.SMALL).to(astray),
        reserve.to(charge),
        charge.to(ship),
        ship.failed(Unclear).to(doubt_ship),
        ship.to(shipped),
        shipped.to(shaky),
        doubt_ship.to(shaky),
        shaky.to(approval),
        approval.on(Verdict.YES).to(stamp),
        approval.on(Verdict.NO).to(astray),
        stamp.on(Again.MORE).to(stamp),
        stamp.on(Again.ENOUGH).to(seal),
        seal.failed(Unclear).to(doubt_seal),
        seal.to(sealed),
        sealed.to(papers),
        doubt_seal.to(papers),
        papers.to(tally),
        tally.on(Size.SMALL).when(free).to(astray),
        tally.on(Size.SMALL).to(bill),
        tally.on(Size.LARGE).to(astray),
        bill.to(jot),
        jot.to(extra),
        extra.to(wrap),
        wrap.to(farewell),
        farewell.to(arrived),
    ],
)


def app_over(store: Store, log: Log, hook: Hook) -> App:
    """An App whose bodies meet the same points as its store."""

    @asynccontextmanager
    async def outside() -> AsyncGenerator[Outside, None]:
        yield Outside(log, hook)

    return App([journey], store=store, services=[outside])


async def travel(app: App, run: str) -> Snapshot[Trip]:
    """Start the run, or find it; decide for the person once they are asked; stay until it ends."""
    await app.start(journey, Trip(order=f"order of {run}"), id=run)
    resting = await app.follow(run, journey)
    for wait in resting.waits:
        await app.decide(wait.id, Verdict.YES, actor=ADA, request=f"{run} yes")
    return await app.result(run, journey)
