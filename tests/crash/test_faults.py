"""The store fails before or after each of its calls did its work, and nothing is lost, doubled or stuck."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentflow import App, Context, Question, Run, Snapshot, Workflow
from agentflow.errors import RunFailed, StoreError, StoreUnavailable
from agentflow.store.memory import MemoryStore
from agentflow.store.protocol import Store
from agentflow.store.sqlite import SqliteStore
from tests import postgres
from tests.crash import statements
from tests.crash.evidence import lasting_problems, told_by_ledger
from tests.crash.hooked import hooked
from tests.crash.in_turn import at_each_call
from tests.crash.journey import ADA, Trip, Verdict, app_over, journey
from tests.crash.lives import ended_state_of, state_of
from tests.crash.log import Log, read_log
from tests.crash.matrix import show
from tests.crash.stores import NO_POSTGRES, open_store

T = TypeVar("T")
MADE: list[str] = []  # addresses of schemas
TRIES = 20  # tries of one verb


@dataclass
class Fault:
    """One call that fails, before or after its work: the `at`-th point, from 1."""

    log: Log
    at: int
    error: type[Exception] = StoreUnavailable
    met: int = 0
    where: str | None = None
    raised: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        self.met += 1
        if self.met == self.at:
            self.where = point
            raise self.error(f"lost: {point}")
        self.log.note("point", point)


async def until_done(verb: Callable[[], Awaitable[T]], raised: list[str]) -> T:
    """Repeat a verb until it succeeds: what it raises until then is a `StoreError`, and nothing else."""
    for _ in range(TRIES):
        try:
            return await verb()
        except StoreError as error:
            raised.append(str(error))
    raise AssertionError(f"it never succeeded: {raised}")


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in trouble is tried again at once, and looked at all the time."""
    monkeypatch.setattr("agentflow.runners.local.TROUBLE", 0.0)
    monkeypatch.setattr("agentflow.runners.local.POLL", 0.001)


@pytest.fixture
def schemas() -> Iterator[None]:
    """Drop the schemas that a test has made."""
    MADE.clear()
    yield
    with ThreadPoolExecutor(1) as thread:  # the test's loop may still be set
        for address in MADE:
            thread.submit(asyncio.run, postgres.drop(address)).result()


def fresh(kind: str, folder: Path) -> Store:
    if kind == "postgres":
        MADE.append(postgres.fresh_address())
        return open_store(MADE[-1])
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "runs.db")


KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


# --- the journey ---------------------------------------------------------------------------------------------------


async def travel_in_trouble(kind: str, folder: Path, at: int) -> tuple[str | None, list[str]]:
    """A journey of which one call of the store fails; where, and all that is wrong afterwards."""
    log = Log(folder / "log", "only")
    fault = Fault(log, at)
    return await travelled(hooked(fresh(kind, folder), fault), ("r",), fault)


async def travel_on_a_failing_disk(runs: Sequence[str], folder: Path, at: int) -> tuple[str | None, list[str]]:
    """Journeys of which one statement of the database fails; where, and all that is wrong afterwards."""
    log = Log(folder / "log", "only")
    fault = Fault(log, at, sqlite3.OperationalError)
    with statements.hooked("sqlite:", fault):
        return await travelled(fresh("sqlite", folder), runs, fault)


async def travelled(store: Store, runs: Sequence[str], fault: Fault) -> tuple[str | None, list[str]]:
    """Let runs go to their end, with each verb repeated until it succeeds."""
    app, again = app_over(store, fault.log, lambda _: None), fault.raised
    overs = await asyncio.gather(*(travel_on(app, run, again) for run in runs))
    left = [await until_done(partial(ended_state_of, store, over), again) for over in overs]
    await until_done(app.close, again)
    fault.log.close()
    log, found = read_log(fault.log.path), list[str]()
    for run, end in zip(runs, left, strict=True):
        found += [f"{run}: {problem}" for problem in lasting_problems(told_by_ledger(run, log.of(run), end))]
    return fault.where, found


async def travel_on(app: App, run: str, again: list[str]) -> Snapshot[Trip]:
    """What `travel` does, whatever the store does."""
    await until_done(lambda: app.start(journey, Trip(order=f"order of {run}"), id=run), again)
    resting = await until_done(lambda: app.follow(run, journey), again)
    for wait in resting.waits:
        decide = partial(app.decide, wait.id, Verdict.YES, actor=ADA, request=f"{run} yes")
        assert (await until_done(decide, again)).status in {"applied", "already"}
    return await until_done(lambda: app.result(run, journey), again)


@KINDS
async def test_a_call_of_the_store_that_fails_or_loses_its_answer_changes_nothing_of_a_journey(kind: str) -> None:
    tried = await at_each_call(partial(travel_in_trouble, kind))

    assert not tried.wrong, tried.told()
    assert tried.calls > 150


async def test_a_statement_of_the_database_that_fails_changes_nothing_of_a_journey() -> None:
    tried = await at_each_call(partial(travel_on_a_failing_disk, ("r",)))

    assert not tried.wrong, tried.told()
    assert tried.calls > 150


@pytest.mark.proof
async def test_a_statement_of_the_database_that_fails_changes_nothing_of_several_journeys() -> None:
    tried = await at_each_call(partial(travel_on_a_failing_disk, ("r", "s", "t")))

    show("statements that failed, three runs at a time", [("statements", tried.calls), ("wrong", len(tried.wrong))])
    assert not tried.wrong, tried.told()


@pytest.mark.proof
@pytest.mark.usefixtures("schemas")
async def test_a_call_that_fails_or_loses_its_answer_changes_nothing_of_a_journey_on_postgres() -> None:
    if postgres.server() is None:
        pytest.skip(NO_POSTGRES)
    travels = await at_each_call(partial(travel_in_trouble, "postgres"))
    commands = await at_each_call(partial(command_in_trouble, "postgres"))

    show("calls that failed, on postgres", [("of a journey", travels.calls), ("of commands", commands.calls)])
    assert not travels.wrong, travels.told()
    assert not commands.wrong, commands.told()


# --- commands ------------------------------------------------------------------------------------------------------


class Case(Context):
    tries: int = 0


def mending() -> tuple[Workflow[Case, None], list[str]]:
    """Fails until it is retried, and then asks a person; the bodies that began."""
    flow, begun = Workflow("mending", Case), list[str]()

    @flow.step()
    async def attempt(case: Case, run: Run) -> None:
        begun.append("attempt")
        if "mended" not in begun:
            raise ValueError("broken")
        await run.effect("mend", acting, unclear="retry")

    async def acting(key: str) -> str:
        begun.append(key)
        return "whole"

    @flow.human(Verdict)
    def ask(case: Case) -> Question:
        return Question("Fine?")

    flow.build(start=attempt, transitions=[attempt.to(ask), ask.on(Verdict.YES, Verdict.NO).to(flow.end("done"))])
    return flow, begun


async def command_in_trouble(kind: str, folder: Path, at: int) -> tuple[str | None, list[str]]:
    """Start, retry and cancel a run, each repeated until it succeeds and then once more."""
    store, log = fresh(kind, folder), Log(folder / "log", "only")
    flow, begun = mending()
    fault = Fault(log, at)
    app, again = App([flow], store=hooked(store, fault)), fault.raised
    await until_done(lambda: app.start(flow, Case(), id="r"), again)
    failed = await until_done(lambda: app.follow("r", flow), again)
    begun.append("mended")
    replies = [await until_done(lambda: app.retry("r", request="again"), again) for _ in range(2)]
    waiting = await until_done(lambda: app.follow("r", flow), again)
    replies += [await until_done(lambda: app.cancel("r", request="stop"), again) for _ in range(2)]
    repeated = await until_done(lambda: app.retry("r", request="again"), again)
    with pytest.raises(RunFailed):
        await until_done(lambda: app.result("r", flow), again)
    told = await commanded(store, begun)
    await until_done(app.close, again)
    log.close()
    told |= {
        "before": (failed.status, waiting.status),
        "replies": [reply.status for reply in replies if reply.status not in {"applied", "already"}],
        "a retry that was carried out before": repeated.status,
    }
    return fault.where, [f"{name}: {value}" for name, value in told.items() if value != COMMANDED[name]]


async def commanded(store: Store, begun: Sequence[str]) -> dict[str, Any]:
    """What the books say of a run that was retried and cancelled."""
    found = await state_of(store, "r")
    assert found is not None  # it was started
    applied = [row.command for row in await store.commands("r") if row.status == "applied"]
    return {
        "status": found["status"],
        "commands": [command for command in applied if command in {"retry", "cancel"}],
        "history": [line["source"] for line in found["history"][1:]],
        "waits": [wait[1] for wait in found["waits"]],
        "keys": {word for word in begun if word.startswith("r:")},
        "stranded": found["stranded"],
    }


COMMANDED: dict[str, Any] = {
    "before": ("failed", "waiting"),
    "status": "cancelled",
    "replies": [],
    "a retry that was carried out before": "already",
    "commands": ["retry", "cancel"],
    "history": ["attempt"],
    "waits": ["closed"],
    "keys": {"r:attempt:1.g1:mend"},
    "stranded": [],
}


@KINDS
async def test_a_command_whose_call_fails_or_loses_its_answer_is_carried_out_once(kind: str) -> None:
    tried = await at_each_call(partial(command_in_trouble, kind))

    assert not tried.wrong, tried.told()
    assert tried.calls > 60
