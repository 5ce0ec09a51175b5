"""A cancel does not take away the answer of what is under way."""

import asyncio

import pytest

from agentflow.store.uninterrupted import uninterrupted


async def test_a_cancel_is_delivered_after_the_work_and_its_result() -> None:
    may_end, seen = asyncio.Event(), list[str]()

    async def work() -> str:
        await may_end.wait()
        return "written"

    async def caller() -> None:
        seen.append(await uninterrupted(work()))
        await asyncio.Event().wait()

    task = asyncio.create_task(caller())
    for _ in range(3):  # it is asked several times
        await asyncio.sleep(0)
        task.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["written"]


async def test_without_a_cancel_the_result_or_the_error_is_handed_over() -> None:
    async def fails() -> None:
        raise ValueError("no")

    async def works() -> int:
        return 7

    assert await uninterrupted(works()) == 7
    with pytest.raises(ValueError, match="no"):
        await uninterrupted(fails())
