"""A virtual event loop: its clock jumps to the next timer, and a seed decides whose turn it is.

A `Lane` stands for one process. Within a lane callbacks run in the order in which they became ready, as on every
asyncio loop; which lane goes next is drawn, as the timing of separate processes is nobody's promise. A lane can be
frozen (nothing of it runs until it thaws, then all that became due meanwhile) and killed (nothing of it ever runs
again: no `finally`, no `except`, no last word).
"""

import asyncio
import heapq
import math
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeAlias

Call: TypeAlias = tuple[asyncio.Handle, Callable[..., object], tuple[Any, ...], Context]

TURNS_PER_INSTANT = 20_000  # more callbacks without any time passing, and something spins
MICRO = 1_000_000


class Stuck(AssertionError):
    """Nothing is ready and nothing is timed, or callbacks follow one another without end."""


class Lane:
    """The callbacks of one process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Call] = deque()
        self.frozen = False
        self.dead = False

    def __repr__(self) -> str:
        return self.name

    def context(self) -> Context:
        """A context in which everything that is scheduled belongs to this lane."""
        context = copy_context()
        context.run(LANE.set, self)
        return context


OUTSIDE = Lane("outside")
LANE: ContextVar[Lane] = ContextVar("LANE", default=OUTSIDE)


class VirtualTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks have the same order in every run of a seed."""

    number = 0
    lane: "Lane"

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop without threads, sleep and clock."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._draw = rng.random
        self._micros = 0
        self._timers: list[tuple[int, int, Call]] = []
        self._timer_count = 0
        self._lanes: list[Lane] = []
        self.tasks: list[VirtualTask] = []
        self.complaints: list[str] = []
        self.turns = 0
        self._turns_now = 0
        factory: Any = self._make_task
        self.set_task_factory(factory)

    # --- what asyncio asks for -----------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since the beginning, in whole microseconds."""
        return self._micros / MICRO

    @property
    def micros(self) -> int:
        """The same, as a whole number."""
        return self._micros

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run it in the lane of its context, after what is ready there."""
        context = copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue((handle, callback, args, context))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """The same: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run it at that instant, never earlier."""
        context = copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        micros = math.ceil(when * MICRO - 0.001)
        heapq.heappush(self._timers, (micros, self._timer_count, (handle, callback, args, context)))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run it after so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong in a callback."""
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> Any:
        VirtualTask.number = len(self.tasks)
        task = VirtualTask(coro, loop=loop, **options)
        task.number, task.lane = len(self.tasks), LANE.get()
        self.tasks.append(task)
        return task

    def spawn(self, work: Coroutine[Any, Any, Any], context: Context) -> None:
        """Begin a task there; the loop keeps it."""
        _ = context.run(self.create_task, work)

    # --- turning ---------------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, Any], lane: Lane) -> Any:
        """Turn until `main`, in that lane, is done; return what it returned."""
        context = lane.context()
        task = context.run(self.create_task, main)
        self.turn_until(task.done)
        return task.result()

    def turn_until(self, done: Callable[[], bool]) -> None:
        """Turn until the condition holds. Raises `Stuck` where it never will."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while not done():
                self._turn()
        finally:
            events._set_running_loop(before)

    def _turn(self) -> None:
        able = [lane for lane in self._lanes if lane.ready and not lane.frozen]
        if not able:
            self._pass_time()
            return
        self.turns += 1
        self._turns_now += 1
        if self._turns_now > TURNS_PER_INSTANT:
            raise Stuck(f"{TURNS_PER_INSTANT} callbacks ran at one instant, and {able} go on")
        lane = able[int(self._draw() * len(able))] if len(able) > 1 else able[0]
        handle, callback, args, context = lane.ready.popleft()
        if not handle.cancelled():
            self._run(callback, args, context)

    def _run(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        try:
            context.run(callback, *args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  as asyncio does: a callback does not end the loop
            self.call_exception_handler({"message": f"exception in {callback}", "exception": error})

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2][0].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing is ready, and no timer is set")
        if timers[0][0] > self._micros:
            self._micros = timers[0][0]
            self._turns_now = 0
        while timers and timers[0][0] <= self._micros:
            self._enqueue(heapq.heappop(timers)[2])

    def _enqueue(self, call: Call) -> None:
        lane = call[3].get(LANE, OUTSIDE)
        lane.ready.append(call)
        if not lane.dead and lane not in self._lanes:
            self._lanes.append(lane)

    def kill(self, lane: Lane) -> None:
        """Nothing of this lane runs any more."""
        lane.dead = True
        if lane in self._lanes:
            self._lanes.remove(lane)

    # --- the end -------------------------------------------------------------------------------------------------

    def clear_away(self) -> None:
        """Cancel what is left of all lanes, also of dead and frozen ones, and close."""
        left = [task for task in self.tasks if not task.done()]
        for task in left:
            task.lane.dead = task.lane.frozen = False
            if task.lane not in self._lanes:
                self._lanes.append(task.lane)
            task.cancel()
        self._turns_now = 0
        self.turn_until(lambda: all(task.done() for task in left))
        self.complaints.clear()
        self.close()
