"""The store as one process sees it: late, sometimes out of reach, and a place where processes die.

Each call may travel (others run before it arrives and before its answer is back), fail before its work or after it
("done, but the answer was lost"), or meet the end or the freeze of its process. What was sent arrives, whatever
becomes of the sender, so a frozen worker's calls reach the store while another owns the run.
"""

import asyncio
import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentflow.errors import SessionOver, StoreError, StoreUnavailable
from agentflow.store.memory import MemoryStore
from agentflow.store.rows import Committed
from tests.simulation.loop import Lane, VirtualLoop
from tests.simulation.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often each fault happens, per call."""

    travel: float = 0.0
    longest: float = 0.05  # of one way, in seconds
    fail_before: float = 0.0
    fail_after: float = 0.0
    die_before: float = 0.0
    die_after: float = 0.0
    die_sent: float = 0.0  # with the call under way
    freeze_before: float = 0.0
    freeze_after: float = 0.0
    freeze_sent: float = 0.0
    frozen: float = 2.0  # at most so long, in seconds
    beat: float = 0.0  # heartbeats that fail
    body_dies: float = 0.0  # of bodies and of calls to the outside
    world: float = 0.0  # of calls to the outside that do not simply work
    moves: float = 0.0  # how often the cluster changes, per second
    jumps: float = 0.0  # how often the wall clock jumps forwards, per second
    interrupts: bool = False  # whether a cancel ends the wait for a call under way, unless it is a commit


FAULTS = (
    "travel", "fail_before", "fail_after", "die_before", "die_after", "die_sent", "freeze_before", "freeze_after",
    "freeze_sent",
)  # fmt: skip
DEADLY = frozenset({"die_before", "die_after", "die_sent", "freeze_before", "freeze_after", "freeze_sent"})


@dataclass(slots=True)
class Weather:
    """The rates of the moment, and the numbers that decide."""

    rng: random.Random
    rates: Rates
    over: bool = False
    ladder: list[tuple[float, str]] = field(default_factory=list)

    def change(self, rates: Rates) -> None:
        self.rates, self.ladder, total = rates, [], 0.0
        for name in FAULTS:
            total += getattr(rates, name)
            self.ladder.append((total, name))

    def fault(self) -> str | None:
        """What happens to the next call."""
        drawn = self.rng.random()
        if drawn >= self.ladder[-1][0]:
            return None
        return next(name for limit, name in self.ladder if drawn < limit)

    def happens(self, rate: float) -> bool:
        return rate > 0 and self.rng.random() < rate

    def between(self, low: float, high: float) -> float:
        return low + self.rng.random() * (high - low)


class Process(Protocol):
    """Whoever calls the store."""

    lane: Lane
    is_mortal: bool

    def die(self, why: str) -> None: ...

    def freeze(self, seconds: float, why: str) -> None: ...


Observe = Callable[[str, str, tuple[Any, ...], dict[str, Any], Any], None]


@dataclass(slots=True)
class Letter:
    """A call under way, and later its answer."""

    waiter: "asyncio.Future[None] | None" = None
    is_back: bool = False
    answer: Any = None
    error: Exception | None = None


class FaultyStore:
    """A `Store` for one process. `observe` sees each call that reached the store, with its answer."""

    def __init__(
        self, store: MemoryStore, process: Process, weather: Weather, records: Records, observe: Observe, network: Lane
    ) -> None:
        self._store = store
        self._process = process
        self._weather = weather
        self._records = records
        self._observe = observe
        self._network = network.context()

    # --- what is no coroutine -------------------------------------------------------------------------------------

    def now(self) -> Any:
        return self._store.now()

    def renew_session(self, session: str) -> bool:
        failed = self._weather.happens(self._weather.rates.beat)
        if failed and self._weather.happens(0.5):
            raise StoreUnavailable("simulated: out of reach")
        alive = self._store.renew_session(session)
        self._observe(self._process.lane.name, "renew_session", (session,), {}, alive)
        if failed:
            raise StoreUnavailable("simulated: the answer was lost")
        return alive

    # --- all the others -------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method  # it looks into memory, or only makes something of its arguments

        async def call(*args: Any, **options: Any) -> Any:
            answer = await self._call(name, method, args, options)
            if isinstance(answer, Committed):
                self._records.acknowledged.append(args[0])
            return answer

        setattr(self, name, call)
        return call

    async def _call(self, name: str, method: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self._weather.over or self._process.lane.dead:
            raise asyncio.CancelledError  # it is being cleared away

        def work() -> Any:
            return self._reach(name, method, args, options)

        fault = self._weather.fault()
        if fault in DEADLY and not self._process.is_mortal:
            fault = "travel"
        match fault:
            case None:
                return work()
            case "travel":
                return await self._travel(name, work)
            case "fail_before" | "fail_after":
                return await self._fail(fault, name, work)
            case "die_before" | "die_after" | "die_sent":
                return await self._die(fault, name, work)
            case _:
                return await self._freeze(fault, name, work)

    def _reach(self, name: str, method: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The call reaches the store; nothing of it suspends there."""
        work = method(*args, **options)
        try:
            work.send(None)
        except StopIteration as answer:
            self._observe(self._process.lane.name, name, args, options, answer.value)
            return answer.value
        except SessionOver:  # the worker will know that its bodies are no longer its own
            self._records.excuse(self._process.lane.name, "finds its session over", name)
            raise
        raise AssertionError(f"{name} suspended in a store that never does")

    async def _travel(self, name: str, work: Callable[[], Any]) -> Any:
        there, back = (self._weather.between(0, self._weather.rates.longest) for _ in range(2))
        return await self._until_back(name, self._send(work, there, back))

    def _send(self, work: Callable[[], Any], there: float, back: float) -> Letter:
        letter, loop = Letter(), self._loop

        def arrive() -> None:
            try:
                letter.answer = work()
            except StoreError as error:
                letter.error = error
            loop.call_later(back, come_back, context=self._network)

        def come_back() -> None:
            letter.is_back = True
            if letter.waiter is not None and not letter.waiter.done():
                letter.waiter.set_result(None)

        loop.call_later(there, arrive, context=self._network)
        return letter

    async def _until_back(self, name: str, letter: Letter) -> Any:
        """Wait for the answer; a cancel that comes meanwhile is delivered after it, or, where it is not the answer to a
        commit, at once: what was sent arrives all the same.
        """
        task, cancels = asyncio.current_task(), 0
        assert task is not None  # whoever awaits is a task
        while not letter.is_back:
            letter.waiter = self._loop.create_future()
            try:
                await letter.waiter
            except asyncio.CancelledError:
                if self._weather.over or (self._weather.rates.interrupts and name != "commit"):
                    raise
                cancels += 1
                task.uncancel()
        if cancels:
            self._loop.call_soon(task.cancel)
        if letter.error is not None:
            raise letter.error
        return letter.answer

    @property
    def _loop(self) -> VirtualLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop

    async def _fail(self, fault: str, name: str, work: Callable[[], Any]) -> Any:
        if self._weather.happens(0.5):
            await asyncio.sleep(self._weather.between(0, self._weather.rates.longest))
        if fault == "fail_after":
            work()
        self._records.excuse(self._process.lane.name, fault, name)
        raise StoreUnavailable(f"simulated: {fault} in {name}")

    async def _die(self, fault: str, name: str, work: Callable[[], Any]) -> Any:
        if fault == "die_after":
            work()
        elif fault == "die_sent":
            self._send(work, self._weather.between(0, self._weather.rates.frozen), 0)
        self._process.die(f"{fault} {name}")
        return await self._loop.create_future()

    async def _freeze(self, fault: str, name: str, work: Callable[[], Any]) -> Any:
        seconds = self._weather.between(0.1, self._weather.rates.frozen)
        answer = work() if fault == "freeze_after" else None
        letter = self._send(work, self._weather.between(0, seconds), 0) if fault == "freeze_sent" else None
        self._process.freeze(seconds, f"{fault} {name}")
        if letter is not None:
            return await self._until_back(name, letter)
        await asyncio.sleep(0)  # until it thaws
        return answer if fault == "freeze_after" else work()
