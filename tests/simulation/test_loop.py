"""The virtual loop itself: time that jumps, orders that differ by seed, processes that freeze and die."""

import asyncio
import random

import pytest

from tests.simulation.loop import Lane, Stuck, VirtualLoop


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(random.Random(1))


def spawn(loop: VirtualLoop, lane: Lane, work) -> None:
    loop.spawn(work, lane.context())


async def count(seen: list[str], name: str, times: int = 5) -> None:
    for number in range(times):
        seen.append(f"{name}{number}")
        await asyncio.sleep(0)


def interleaving(seed: int) -> list[str]:
    loop, seen = VirtualLoop(random.Random(seed)), list[str]()
    for name in ("a", "b"):
        spawn(loop, Lane(name), count(seen, name))
    loop.run(asyncio.sleep(1), Lane("main"))
    loop.clear_away()
    return seen


def test_an_hour_passes_at_once(loop: VirtualLoop) -> None:
    loop.run(asyncio.sleep(3600), Lane("main"))
    assert loop.time() == 3600
    loop.clear_away()


def test_the_order_between_lanes_is_drawn_and_the_order_within_a_lane_is_kept() -> None:
    orders = [interleaving(seed) for seed in range(8)]
    assert len({tuple(order) for order in orders}) > 1
    assert orders[3] == interleaving(3)
    for order in orders:
        assert [one for one in order if one[0] == "a"] == [f"a{number}" for number in range(5)]


def test_a_frozen_lane_runs_nothing_and_goes_on_when_it_thaws(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def beat() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(loop.time())

    lane = Lane("frozen")
    spawn(loop, lane, beat())
    loop.call_later(2.5, setattr, lane, "frozen", True)
    loop.call_later(7.25, setattr, lane, "frozen", False)
    loop.run(asyncio.sleep(9), Lane("main"))
    loop.clear_away()
    assert seen == [1, 2, 7.25, 8.25]


def test_a_dead_lane_has_no_last_word(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(2)
        finally:
            seen.append(f"finally at {loop.time()}")

    lane = Lane("dead")
    spawn(loop, lane, work())
    loop.call_later(1, loop.kill, lane)
    loop.run(asyncio.sleep(5), Lane("main"))
    assert seen == []
    loop.clear_away()
    assert seen == ["finally at 5.0"]  # only when everything is cleared away


def test_callbacks_without_end_are_noticed(loop: VirtualLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    loop.call_soon(spin)
    with pytest.raises(Stuck, match="callbacks ran at one instant"):
        loop.run(asyncio.sleep(1), Lane("main"))
    loop.clear_away()


def test_a_wait_that_nobody_ends_is_noticed(loop: VirtualLoop) -> None:
    async def wait() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="no timer is set"):
        loop.run(wait(), Lane("main"))
    loop.clear_away()
