"""A thread that notices when something blocks the event loop, and names the state whose body does.

An `async def` body that computes, or calls something that does not await, stops every other run of the process. Nothing
on the loop can notice that; a thread can, and says where the loop's thread stands at that moment.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("agentflow.runner")

PATIENCE = 1.0  # seconds for which the loop may be silent


class Watchdog(threading.Thread):
    """Watches the loop on which it was made. `name_of` says what a task is at, None for tasks that are not ours."""

    def __init__(self, name_of: Callable[["asyncio.Task[object]"], str | None], patience: float = PATIENCE) -> None:
        super().__init__(name="agentflow-watchdog", daemon=True)
        self._name_of = name_of
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._end = threading.Event()

    def run(self) -> None:
        """Knock at the loop again and again, and wait for its answer."""
        while not self._end.wait(self._patience):
            answered = threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # the loop is closed
            if not answered.wait(self._patience) and not self._end.is_set():
                self._warn()
                answered.wait()  # once for each time that it is blocked

    def stop(self) -> None:
        """Watch no more. Called on the loop, so nothing is waited for."""
        self._end.set()

    def _warn(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]  # it is documented
        task = asyncio.current_task(self._loop)
        name = None if task is None else self._name_of(task)
        what = "something beside the runs" if name is None else name
        log.warning(
            "%s blocks the event loop for more than %g s, and with it every run of this process; write the body as a "
            "plain `def`, which runs in a thread, or await what takes long. It is at: %s",
            what,
            self._patience,
            "unknown" if frame is None else _place(frame),
        )


def _place(frame: FrameType) -> str:
    """Where a thread stands, innermost first."""
    lines = [f"{entry.filename}:{entry.lineno} in {entry.name}" for entry in traceback.extract_stack(frame)]
    return ", called from ".join(reversed(lines[-3:]))
