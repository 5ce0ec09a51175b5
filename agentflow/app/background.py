"""The loop on which blocking verbs run, on a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentflow.errors import RequestError

T = TypeVar("T")


class Background:
    """One event loop on a thread of its own, for the `_sync` verbs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentflow-background", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there; an interrupt of the caller cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RequestError(
                "a blocking verb was called on the App's own loop, where it would wait for itself; "
                "await the verb without _sync"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Run one more coroutine, then end the loop and its thread."""
        try:
            self.wait_for(last)
        finally:
            self.wait_for(_end_the_others())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _end_the_others() -> None:
    """Cancel what else runs on this loop: a thread may wait for it, and would do so for ever."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
