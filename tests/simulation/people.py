"""The people of a simulation: they decide, too late or against each other, cancel, retry, and look again."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agentflow import Actor
from agentflow.app.commands import By, cancel_run, decide_wait, retry_run, wake_run
from agentflow.errors import StoreError
from agentflow.model.definition import Definition
from agentflow.model.views import Reply
from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter, RunRow, WaitRow
from tests.simulation.faults import Weather
from tests.simulation.flows import Verdict
from tests.simulation.records import Records


@dataclass(slots=True)
class Promise:
    """What a person was told about a decision."""

    wait: str
    outcome: str
    subject: str
    status: str


@dataclass(slots=True)
class People:
    """All who act from outside, through the functions behind the App's verbs."""

    store: Store
    definitions: Mapping[tuple[str, int], Definition]
    weather: Weather
    records: Records
    diligence: float  # how many of the open questions they answer at all
    meddling: float  # how often a second they cancel, retry or look again
    promises: list[Promise] = field(default_factory=list)
    at_rest: bool = False
    _seen: set[str] = field(default_factory=set)
    _count: int = 0

    async def answer(self) -> None:
        """Look for open questions, and answer each some time later, some of them several times."""
        while True:
            await asyncio.sleep(self.weather.between(0.1, 0.4))
            with contextlib.suppress(StoreError):
                for wait in await self.store.waits():
                    self._consider(wait)

    def _consider(self, wait: WaitRow) -> None:
        if wait.id in self._seen:
            return
        self._seen.add(wait.id)
        if not self.weather.happens(self.diligence):
            return
        for _ in range(1 + int(self.weather.rng.random() * 3)):
            self._begin(self._decide(wait))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        _ = asyncio.get_running_loop().create_task(work)

    async def _decide(self, wait: WaitRow) -> None:
        self._count += 1
        actor = Actor(f"p{self._count}", source="simulation")
        outcome = list(Verdict)[int(self.weather.rng.random() * 3)]
        request = f"d{self._count}" if self.weather.happens(0.7) else None
        await asyncio.sleep(self.weather.between(0, 2))
        row = await self._insist(lambda: self.store.run(wait.run))
        definition = self.definitions[row.workflow, row.version]
        reply: Reply = await self._insist(
            lambda: decide_wait(self.store, definition, wait, outcome, None, actor=actor, comment="", request=request)
        )
        self.records.tell(actor.subject, "decided", wait.id, outcome.name, reply.status)
        self.promises.append(Promise(wait.id, outcome.name, actor.subject, reply.status))

    async def _insist(self, verb: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Try until the store answers, as a person does whose page did not load."""
        while True:
            try:
                return await verb()
            except StoreError:
                await asyncio.sleep(0.2)

    async def meddle(self) -> None:
        """Cancel, retry and look again, at random moments, until it is time to rest."""
        while not self.at_rest:
            await asyncio.sleep(self.weather.between(0.2, 0.6))
            if self.weather.happens(self.meddling * 0.4):
                self._begin(self._command())

    async def _command(self) -> None:
        """Somebody looks at some runs, or at those that failed or wait, and does something about one of them."""
        drawn = self.weather.rng.random()
        status: Any = "failed" if drawn < 0.3 else "waiting" if drawn < 0.7 else None
        rows = await self._insist(lambda: self.store.runs(RunFilter(status=status)))
        if not rows:
            return
        row: RunRow = rows[int(self.weather.rng.random() * len(rows))]
        self._count += 1
        who = f"p{self._count}"
        by = By(actor=Actor(who), reason="simulated", request=f"c{self._count}")
        for _ in range(1 + int(self.weather.rng.random() * 3)):
            self._begin(self._carry_out(row, who, by))
            await asyncio.sleep(self.weather.between(0, 0.2))

    async def _carry_out(self, row: RunRow, who: str, by: By) -> None:
        definition = self.definitions[row.workflow, row.version]
        if row.standing.status == "failed" and row.standing.end is None:
            reply = await self._insist(lambda: retry_run(self.store, definition, row, by))
            self.records.tell(who, "retried", row.id, reply.status)
        elif self.weather.happens(0.2):
            reply, _ = await self._insist(lambda: cancel_run(self.store, row, by, definition))
            self.records.tell(who, "cancelled", row.id, reply.status, reply.why)
        else:
            await self._insist(lambda: wake_run(self.store, row.id))


def of_store(store: object) -> Store:
    """A `FaultyStore` is one, although no checker can see it."""
    return cast("Store", store)
