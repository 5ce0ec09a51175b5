"""Work that a cancel does not interrupt: it is done first, its result is handed over, and the cancel follows."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, whatever is asked of the calling task meanwhile.

    A commit whose answer a cancel took away would leave its run in doubt. A cancel that comes while it is under way is
    delivered at the next point where the task waits, other than for more work of this kind; until then
    `Task.cancelling()` tells of it.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    done = loop.create_task(work)
    cancelled = False
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and task is not None:
        loop.call_soon(task.cancel)
    return done.result()
