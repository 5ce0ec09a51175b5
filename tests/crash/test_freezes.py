"""A worker stands still beyond its lease, another one finishes its run, and the first goes on (B62, B64)."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.crash.evidence import gathered, problems
from tests.crash.forks import WITHIN, Child, Fork, child, fork, run_child
from tests.crash.lives import be_refused, finish, frozen_in_statement
from tests.crash.log import read_log
from tests.crash.long_steps import KINDS, Keeper, take_over, wait_in_ambush, work
from tests.crash.matrix import Thaw, freeze_everywhere, show_count, thaw_after, thaw_meanwhile
from tests.crash.stores import PAST_THE_LEASE, Kind, Place, open_store

THAWS = pytest.mark.parametrize("thaw", [thaw_after, thaw_meanwhile], ids=["after its end", "in the same state"])


@THAWS
def test_b62_a_worker_that_thaws_after_its_run_was_taken_over_writes_nothing(kind: Kind, thaw: Thaw) -> None:
    stride = {"sqlite": 5, "postgres": 11}[kind.name]
    count = freeze_everywhere(kind, thaw, stride=stride)

    assert not count.wrong, count.told()
    assert count.points == count.recovered > 200 // stride


@pytest.mark.proof
@THAWS
def test_b62_wherever_a_worker_was_frozen_it_writes_nothing(kind: Kind, thaw: Thaw) -> None:
    count = freeze_everywhere(kind, thaw)

    show_count(f"frozen and taken over, {thaw.__name__} on {kind.name}", count)
    assert not count.wrong, count.told()
    assert count.points == count.recovered > 200
    assert count.late_calls > 0


def hold_up(place: Place, point: str) -> None:
    """Stop a life at a statement, let another one try, and let both go on."""
    frozen = Fork(frozen_in_statement, place, point)
    assert frozen.stops()
    try:
        fork(be_refused, place)
    finally:
        frozen.go_on()
    frozen.end()
    fork(finish, place)


@pytest.mark.parametrize("point", ["UPDATE runs SET:after", "INSERT INTO effects:after", "INSERT INTO waits:after"])
def test_b61_a_worker_that_stands_still_with_the_write_lock_makes_others_busy_and_nothing_worse(
    on_disk: Kind, point: str
) -> None:
    place = on_disk.place("held")
    run_child(hold_up, place, point)
    log = read_log(place.log)

    assert log.said("read") in (["queued"], ["running"])
    [busy] = log.said("busy")
    assert "write lock" in busy
    [evidence] = gathered(place)
    assert problems(evidence) == []
    assert evidence.bodies_repeated == 0


def take_from_transaction(place: Place) -> None:
    """Stop a worker in the middle of a transaction, and let another one take its run over and end it."""
    frozen = Fork(frozen_in_statement, place, "SELECT effects.key")
    assert frozen.stops()
    try:
        fork(finish, place, PAST_THE_LEASE)
    finally:
        frozen.go_on()
    frozen.end()


@pytest.mark.proof
def test_b62_a_worker_that_stands_still_in_a_transaction_does_not_keep_its_run_for_ever(kind: Kind) -> None:
    if kind.name == "sqlite":
        pytest.skip("on SQLite it holds the write lock, and others are told so")
    place = kind.place("held")
    Child(take_from_transaction, place).end(2 * WITHIN)
    [evidence] = gathered(place)

    assert problems(evidence) == []


@pytest.fixture
def place(kind: Kind) -> Place:
    return kind.place("long")


@pytest.fixture
def keeper(place: Place) -> Iterator[Keeper]:
    made = Keeper(place.log.parent, KINDS)
    yield made
    made.close()


def test_b64_a_body_that_outlasts_its_lease_is_not_taken_away_while_its_process_lives(
    place: Place, keeper: Keeper
) -> None:
    folder = place.log.parent
    with child(work, place.address, folder, KINDS[:2]) as first, child(work, place.address, folder, KINDS[2:]) as last:
        assert {keeper.await_arrival() for _ in KINDS} == set(KINDS)
        run_child(wait_in_ambush, place.address, folder, 1.5)
        for run in KINDS:
            keeper.open(run)
        assert (first.end(), last.end()) == (0, 0)
    log = read_log(folder / "log")

    assert log.count("begun") == log.count("returned") == Counter(KINDS)
    assert {line.life for line in log.lines if line.kind == "begun"} == {"worker"}
    assert log.count("after") == Counter(KINDS)
    assert log.said("sessions", "ambush")


def test_b64_a_worker_that_was_killed_is_taken_over_by_its_lease_where_no_lock_proves_its_death(
    place: Place, keeper: Keeper
) -> None:
    folder = place.log.parent
    with child(work, place.address, folder, ("waits",)) as worker:
        assert keeper.await_arrival() == "waits"
        worker.kill()
    if place.address.startswith("sqlite:"):
        forget_locks(place)
    with child(take_over, place.address, folder) as successor:
        assert keeper.await_arrival() == "waits"
        keeper.open("waits")
        assert successor.end() == 0
    log = read_log(folder / "log")

    assert log.said("begun") == ["waits", "waits"]
    assert log.said("returned") == log.said("after") == ["waits"]
    [lease_until] = log.said("lease until")
    assert str(asyncio.run(first_claim(place))) >= lease_until


def forget_locks(place: Place) -> None:
    """Take away what proves a death, as on a file system without locks."""
    for lock in Path(place.address.removeprefix("sqlite:///") + "-sessions").iterdir():
        lock.unlink()


async def first_claim(place: Place) -> datetime:
    """When the successor's claim was surely there: its attempt follows the lost one, whose row says when."""
    store = open_store(place.address)
    await store.open()
    [lost] = await store.attempts("waits")
    await store.close()
    assert lost.outcome == "lost"
    return lost.at
