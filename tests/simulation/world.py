"""The outside world of a simulation: what bodies begin, and whom they pay.

It records every call with its key. By seed it acts or does not act, and then answers, raises, or is the last thing that
a worker ever saw. It remembers keys, as systems with idempotency keys do: the same key acts once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agentflow import Context, Run
from agentflow.effects import NOT_HAPPENED, STILL_UNCLEAR, Fate, Happened
from agentflow.failures import Business, Retryable
from tests.simulation.faults import Process, Weather
from tests.simulation.records import Begun, Records


class Declined(Business):
    """The other side says no; it did nothing."""


class Shaky(Retryable):
    """A body that fails for a while."""


@dataclass(frozen=True, slots=True)
class Called:
    """One call of an effect."""

    number: int
    worker: str
    run: str
    state: str
    visit: int
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Act:
    """The world did something, once per key."""

    number: int
    is_holder: bool  # whether the run was still in the hands of the worker that had called


@dataclass(slots=True)
class World:
    """What all workers share: the other systems."""

    weather: Weather
    records: Records
    now: Callable[[], datetime]
    calls: list[Called] = field(default_factory=list)
    acts: dict[str, Act] = field(default_factory=dict)  # by key
    receipts: dict[str, str] = field(default_factory=dict)
    denied: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # "it did not happen"
    shaky: dict[tuple[str, str], int] = field(default_factory=dict)  # failures left, by run and state
    killers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Desk:
    """The world as one worker's bodies see it: the service of the workflows."""

    world: World
    process: Process

    # --- bodies ------------------------------------------------------------------------------------------------

    async def begin(self, case: Context, run: "Run[Desk]", state: str) -> None:
        """A body begins: note what it sees, linger, fail or die as the seed says."""
        world, me, weather = self.world, self.process.lane.name, self.world.weather
        records = world.records
        number = records.tell(me, "begin", run.id, state, f"visit {run.visit} attempt {run.attempt}")
        seen = case.model_dump_json()
        place = (run.id, state, run.visit, run.attempt)
        records.begun.append(Begun(number, world.now(), me, *place, token_of(run), seen))
        if run.id in world.killers:
            await self._die("a body that kills")
        await self._linger()
        if self.process.is_mortal and weather.happens(weather.rates.body_dies):
            await self._die("in a body")

    async def _linger(self) -> None:
        drawn = self.world.weather.rng.random()
        if drawn < 0.15:
            await asyncio.sleep(self.world.weather.between(0.01, 0.6))
        elif drawn < 0.5:
            await asyncio.sleep(0)

    async def _die(self, why: str) -> None:
        self.process.die(why)
        await asyncio.get_running_loop().create_future()

    def shake(self, run: "Run[Desk]", state: str) -> None:
        """Raise `Shaky` as often as the seed says for this run and state."""
        left = self.world.shaky.setdefault((run.id, state), int(self.world.weather.rng.random() * 4))
        if left > 0:
            self.world.shaky[run.id, state] = left - 1
            raise Shaky(f"{state} fails {left} more times")

    # --- effects -----------------------------------------------------------------------------------------------

    async def pay(self, run: "Run[Desk]", state: str, name: str, key: str, business: str | None = None) -> str:
        """Act once per key, or not, or nobody knows."""
        world, me = self.world, self.process.lane.name
        number = world.records.tell(me, "call", run.id, name, key)
        world.calls.append(Called(number, me, run.id, state, run.visit, name, key))
        trouble = self._trouble()
        if trouble in {"refused", "declined"}:
            world.denied[key].append(world.records.tell("world", "denies", key))
            raise ConnectionRefusedError("refused") if trouble == "refused" else Declined("declined")
        if trouble == "dead before":
            await self._die("before the act")
        if trouble == "lost before":
            raise TimeoutError("lost on its way")
        await self._linger()
        receipt = self._act(run, key)
        if trouble == "dead after":
            await self._die("after the act")
        if trouble == "lost after":
            raise TimeoutError("the answer was lost")
        await self._linger()
        return receipt

    def _trouble(self) -> str | None:
        weather = self.world.weather
        if self.process.is_mortal and weather.happens(weather.rates.body_dies):
            return "dead after" if weather.happens(0.5) else "dead before"
        if not weather.happens(weather.rates.world):
            return None
        kinds = ("refused", "declined", "lost before", "lost after")
        return kinds[int(weather.rng.random() * len(kinds))]

    def _act(self, run: "Run[Desk]", key: str) -> str:
        world = self.world
        if key not in world.receipts:
            held = world.records.held.get(run.id)
            is_holder = held is not None and held.token == token_of(run)
            world.receipts[key] = f"receipt {len(world.receipts)}"
            world.acts[key] = Act(world.records.tell("world", "acts", key), is_holder)
        return world.receipts[key]

    async def find(self, key: str) -> Fate[str]:
        """Whether it happened under that key: the truth, as of now, or no answer."""
        world = self.world
        if world.weather.happens(world.weather.rates.world / 2):
            if world.weather.happens(0.5):
                raise TimeoutError("nobody answers")
            return STILL_UNCLEAR
        await self._linger()
        if key in world.receipts:
            world.records.tell("world", "knows", key)
            return Happened(world.receipts[key])
        world.denied[key].append(world.records.tell("world", "denies", key))
        return NOT_HAPPENED


def token_of(run: "Run[Desk]") -> str:
    """The claim under which a body runs, which it does not know itself."""
    ledger: Any = run._ledger
    token: str = ledger.work.token
    return token
