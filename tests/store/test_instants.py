"""B55: every store keeps instants, not readings of a clock: of whatever zone, to the microsecond, and no naive ones."""

from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agentflow.errors import InvalidInput
from agentflow.store.protocol import Store
from agentflow.store.rows import Committed, RunFilter
from tests.store.making import (
    NOON,
    Clock,
    attempt,
    claimed,
    command,
    commit,
    decision,
    effect,
    history,
    new_run,
    standing,
    wait_row,
)

ZONES = [ZoneInfo("America/Los_Angeles"), ZoneInfo("Asia/Kathmandu"), ZoneInfo("Europe/Paris")]
TICK = timedelta(microseconds=1)
# 02:30 was shown twice that night in Paris; the second time is an hour later, and only `fold` tells.
TWICE = datetime(2030, 10, 27, 2, 30, 0, 123456, tzinfo=ZoneInfo("Europe/Paris"), fold=1)
IN_UTC = datetime(2030, 10, 27, 1, 30, 0, 123456, tzinfo=UTC)


def instants_of(row: Any) -> dict[str, datetime]:
    """Every instant in a row, by its column."""
    found = {item.name: getattr(row, item.name) for item in fields(row)}
    if "standing" in found:
        found.update(instants_of(found.pop("standing")))
    return {name: value for name, value in found.items() if isinstance(value, datetime)}


async def test_b55_an_hour_that_the_clock_shows_twice_is_the_instant_that_was_meant(store: Store, clock: Clock) -> None:
    await store.create_run(new_run(standing=standing("queued", due_at=TWICE)))
    row = await store.run("r")
    assert row is not None
    assert (row.standing.due_at, await store.next_due()) == (IN_UTC, IN_UTC)
    session = await store.open_session("test")
    for instant, runs in ((IN_UTC - TICK, 0), (IN_UTC, 1)):
        clock.instant = instant
        assert store.renew_session(session) or (session := await store.open_session("again"))
        assert len(await store.claim_runs(session, limit=1)) == runs


@pytest.mark.parametrize("zone", ZONES, ids=str)
async def test_b55_every_instant_of_every_row_comes_back_in_utc(store: Store, clock: Clock, zone: ZoneInfo) -> None:
    clock.instant = NOON.astimezone(zone)
    due = (NOON + timedelta(days=200, microseconds=7)).astimezone(zone)  # across a change of clocks
    _, row = await claimed(store, standing=standing("queued", due_at=clock.instant))
    await store.begin_effect(effect(row))
    await store.settle_effect("r", row.token or "", "r:work:1:pay", "done", result="1")
    reply = await store.commit(
        commit(
            row,
            standing("waiting", due_at=due),
            history=history(1, at=clock.instant),
            attempts=(attempt(1, at=clock.instant, retry_at=due),),
            opens=(wait_row(due_at=due, opened_at=clock.instant),),
            release=True,
        )
    )
    assert isinstance(reply, Committed)
    await store.request(command(at=clock.instant), word=None, wake=False)
    assert (await store.decide(decision())).status == "applied"
    rows = [
        *await store.runs(RunFilter()),
        *await store.history("r"),
        *await store.attempts("r"),
        *await store.waits(run="r", status=None),
        *await store.effects(run="r"),
        *await store.commands("r"),
        *await store.sessions(),
    ]
    assert len(rows) == 8
    for one in rows:
        for name, instant in instants_of(one).items():
            assert instant.tzinfo is UTC, name
            assert instant - NOON in {timedelta(0), timedelta(days=200, microseconds=7), timedelta(seconds=30)}, name
    assert instants_of(rows[0])["created_at"] == NOON
    assert (await store.waits(run="r", status=None))[0].due_at == due


@pytest.mark.parametrize("zone", ZONES, ids=str)
async def test_b55_a_wait_takes_answers_until_the_microsecond_before_it_is_due(
    store: Store, clock: Clock, zone: ZoneInfo
) -> None:
    due = NOON + timedelta(hours=1)
    for run in ("early", "late"):
        _, row = await claimed(store, run)
        opened = (wait_row(run, due_at=due.astimezone(zone)),)
        await store.commit(commit(row, standing("waiting", due_at=due.astimezone(zone)), opens=opened, release=True))
    clock.instant = (due - TICK).astimezone(ZONES[0])
    assert (await store.decide(decision(wait="early.work.1"))).status == "applied"
    expired = await store.expire("late.work.1")
    assert expired is not None
    assert expired.status == "open"
    clock.instant = due.astimezone(ZONES[1])
    assert (await store.decide(decision(wait="late.work.1"))).status == "late"
    expired = await store.expire("late.work.1")
    assert expired is not None
    assert (expired.status, expired.closed_at) == ("expired", due)


@pytest.mark.parametrize("zone", ZONES, ids=str)
async def test_b55_a_lease_ends_at_its_instant_wherever_the_clock_hangs(
    store: Store, clock: Clock, zone: ZoneInfo
) -> None:
    clock.instant = NOON.astimezone(zone)
    session = await store.open_session("test")
    [row] = await store.sessions()
    lease = row.lease_until
    clock.instant = (lease - TICK).astimezone(ZONES[0])
    assert store.renew_session(session)
    [row] = await store.sessions()
    assert row.lease_until - lease == lease - TICK - NOON
    clock.instant = row.lease_until.astimezone(ZONES[1])
    assert not store.renew_session(session)


NAIVE = datetime(2030, 1, 1, 12)  # noqa: DTZ001  that is the point
Write = Callable[[Store, Any], Awaitable[Any]]
BORDERS: dict[str, Write] = {
    "the start of a run": lambda store, row: store.create_run(new_run("other", history=history(0, at=NAIVE))),
    "when a run is due": lambda store, row: store.commit(commit(row, standing(due_at=NAIVE))),
    "a transition": lambda store, row: store.commit(commit(row, history=history(1, at=NAIVE))),
    "an attempt": lambda store, row: store.commit(commit(row, attempts=(attempt(1, at=NAIVE),))),
    "another attempt": lambda store, row: store.commit(commit(row, attempts=(attempt(1, retry_at=NAIVE),))),
    "when a wait is due": lambda store, row: store.commit(commit(row, opens=(wait_row(due_at=NAIVE),))),
    "when a wait was opened": lambda store, row: store.commit(commit(row, opens=(wait_row(opened_at=NAIVE),))),
    "a command": lambda store, row: store.request(command(at=NAIVE), word=None, wake=False),
}


@pytest.mark.parametrize("write", BORDERS.values(), ids=BORDERS.keys())
async def test_b55_a_naive_instant_is_refused_and_nothing_is_written(store: Store, write: Write) -> None:
    _, row = await claimed(store)
    before = await store.run("r")
    with pytest.raises(InvalidInput, match="has no time zone"):
        await write(store, row)
    assert await store.run("r") == before
    assert await store.run("other") is None
    assert (len(await store.history("r")), await store.attempts("r"), await store.commands("r")) == (1, [], [])
    assert await store.waits(run="r", status=None) == []


async def test_b55_a_naive_clock_is_refused(store: Store) -> None:
    store.use_clock(lambda: NAIVE)
    with pytest.raises(InvalidInput, match="has no time zone"):
        store.now()
    with pytest.raises(InvalidInput, match="has no time zone"):
        await store.create_run(replace(new_run(), id="x"))
    store.use_clock(lambda: NOON)
    assert await store.run("x") is None
