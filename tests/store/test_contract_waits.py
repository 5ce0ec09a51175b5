"""The contract of waits, commands and effects, for every store."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agentflow.store.protocol import Store
from agentflow.store.rows import EffectBegun, EffectFound, Requested, RunRow
from tests.store.making import (
    NOON,
    Clock,
    claimed,
    command,
    commit,
    decision,
    effect,
    new_run,
    standing,
    step,
    wait_row,
)


async def parked(store: Store, **changes: Any) -> tuple[str, RunRow]:
    """A run that waits for a person."""
    session, row = await claimed(store)
    wait = wait_row(**changes)
    await store.commit(commit(row, standing("waiting", due_at=wait.due_at), opens=(wait,), release=True))
    return session, row


async def due_of(store: Store) -> Any:
    row = await store.run("r")
    assert row is not None
    return row.standing.due_at


# --- waits -------------------------------------------------------------------------------------------------------


async def test_a_wait_shows_what_was_asked(store: Store) -> None:
    await parked(store)
    assert await store.wait("r.work.1") == wait_row()
    assert await store.waits(run="r") == [wait_row()]
    assert (await store.waits(run="other"), await store.wait("nowhere")) == ([], None)


async def test_b10_one_decision_is_applied_and_wakes_the_run(store: Store) -> None:
    session, _ = await parked(store)
    reply = await store.decide(decision(request="q", comment="ok"))
    assert reply.status == "applied"
    assert reply.wait is not None
    assert (reply.wait.outcome, reply.wait.data, reply.wait.comment, reply.wait.closed_at) == (
        "YES", '{"a":1}', "ok", NOON,
    )  # fmt: skip
    assert await due_of(store) == NOON
    assert [row.id for row in await store.claim_runs(session, limit=1)] == ["r"]


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (decision(request="q"), "already"),
        (decision("NO", request="q"), "already"),
        (decision(), "already"),
        (decision("NO"), "conflict"),
        (decision(data=None), "conflict"),
        (decision(actor='{"subject":"bob"}'), "conflict"),
    ],
)
async def test_b10_a_second_decision_is_told_what_stands(store: Store, second: Any, status: str) -> None:
    await parked(store)
    await store.decide(decision(request="q"))
    reply = await store.decide(second)
    assert (reply.status, reply.wait and reply.wait.outcome) == (status, "YES")


async def test_b10_of_many_decisions_at_once_one_is_applied(store: Store) -> None:
    await parked(store)
    outcomes = ["YES", "NO"] * 20
    replies = await asyncio.gather(
        *(store.decide(decision(outcome, actor=f'"{n}"')) for n, outcome in enumerate(outcomes))
    )
    [winner] = [reply for reply in replies if reply.status == "applied"]
    assert {reply.wait and reply.wait.outcome for reply in replies} == {winner.wait and winner.wait.outcome}


async def test_b13_a_decision_and_an_expiry_exclude_each_other(store: Store, clock: Clock) -> None:
    await parked(store, due_at=NOON + timedelta(hours=1))
    assert (await store.expire("r.work.1")) == wait_row(due_at=NOON + timedelta(hours=1))
    clock.advance(hours=1)
    assert (await store.decide(decision())).status == "late"
    expired = await store.expire("r.work.1")
    assert expired is not None
    assert expired.status == "expired"
    assert (await store.decide(decision())).status == "late"


async def test_a_decision_in_time_is_not_expired_later(store: Store, clock: Clock) -> None:
    await parked(store, due_at=NOON + timedelta(hours=1))
    clock.advance(minutes=59)
    assert (await store.decide(decision())).status == "applied"
    clock.advance(hours=1)
    kept = await store.expire("r.work.1")
    assert kept is not None
    assert kept.status == "decided"


async def test_a_decision_while_the_run_is_parking_is_not_lost(store: Store) -> None:
    session, row = await claimed(store)
    await store.commit(commit(row, standing("running"), opens=(wait_row(),)))
    assert (await store.decide(decision())).status == "applied"
    await store.commit(commit(row, standing("waiting"), release=True))
    assert [row.id for row in await store.claim_runs(session, limit=1)] == ["r"]


async def test_closing_ends_open_waits_alone(store: Store) -> None:
    session, _ = await parked(store)
    await store.decide(decision())
    [row] = await store.claim_runs(session, limit=1)
    open_one = wait_row(id="r.work.2", visit=2)
    await store.commit(commit(row, standing(), opens=(open_one,)))
    await store.commit(commit(row, standing(), closes=("r.work.1", "r.work.2")))
    assert [wait.status for wait in await store.waits(run="r", status=None)] == ["decided", "closed"]
    assert (await store.decide(decision(wait="r.work.2"))).status == "late"
    assert (await store.decide(decision(wait="nowhere"))).status == "unknown"


# --- commands ----------------------------------------------------------------------------------------------------


async def test_a_command_is_recorded_once_for_its_request(store: Store) -> None:
    await parked(store)
    note = command(request="q", reason="why", actor='{"subject":"ada"}')
    assert await store.request(note, word='{"cancel":1}', wake=True)
    assert not await store.request(note, word='{"cancel":2}', wake=True)
    assert await store.request(command("decide", status="refused"), word=None, wake=False)
    assert await store.commands("r") == [note, command("decide", status="refused")]
    row = await store.run("r")
    assert row is not None
    assert (row.control_seq, row.request, row.standing.due_at) == (2, '{"cancel":1}', NOON)


async def test_a_command_that_was_thought_of_before_a_claim_thinks_again(store: Store) -> None:
    await parked(store)
    seen = await store.run("r")
    assert seen is not None
    await store.decide(decision())
    session = await store.open_session("other")
    [row] = await store.claim_runs(session, limit=1)
    await store.commit(step(row, standing("queued", visit=2, due_at=NOON), release=True))
    over = standing("cancelled")
    assert not await store.reopen(command(), standing=over, expected_control_seq=seen.control_seq)
    moved = await store.run("r")
    assert moved is not None
    assert (moved.standing.status, moved.standing.visit) == ("queued", 2)


async def test_a_run_at_rest_is_reopened_where_nothing_came_in_between(store: Store) -> None:
    await parked(store)
    over = standing("cancelled")
    assert not await store.reopen(command(), standing=over, expected_control_seq=7)
    assert await store.reopen(command(request="q"), standing=over, expected_control_seq=1)
    assert not await store.reopen(command(request="q"), standing=over, expected_control_seq=2)
    row = await store.run("r")
    assert row is not None
    assert (row.standing.status, row.control_seq, row.ended_at) == ("cancelled", 2, NOON)
    assert [wait.status for wait in await store.waits(run="r", status=None)] == ["closed"]
    assert len(await store.commands("r")) == 1


async def test_a_claimed_run_is_not_reopened(store: Store) -> None:
    await claimed(store)
    assert not await store.reopen(command(), standing=standing("cancelled"), expected_control_seq=0)
    assert await store.commands("r") == []


async def test_a_run_is_paused_whoever_holds_it_and_taken_by_nobody_until_it_is_resumed(store: Store) -> None:
    session, row = await claimed(store)
    assert await store.pause(command("pause", request="q"), paused=True)
    seen = await store.commit(step(row, standing("running", visit=2)))
    assert isinstance(seen, Requested)
    assert (seen.row.paused, seen.row.control_seq) == (True, row.control_seq + 1)
    again = replace(seen.row, token=row.token)
    await store.commit(step(again, standing("queued", visit=2, due_at=NOON), release=True))
    assert list(await store.claim_runs(session, limit=1)) == []
    assert await store.next_due() is None
    assert list(await store.stranded(limit=5)) == []
    assert await store.pause(command("resume"), paused=False)
    assert await store.next_due() == NOON
    [taken] = await store.claim_runs(session, limit=1)
    assert (taken.paused, taken.revision) == (False, 1)


async def test_a_pause_is_given_once(store: Store) -> None:
    await parked(store)
    assert await store.pause(command("pause", request="q"), paused=True)
    assert not await store.pause(command("pause", request="q"), paused=False)
    assert not await store.pause(command("pause"), paused=True)
    assert await store.pause(command("resume"), paused=False)
    assert [row.command for row in await store.commands("r")] == ["pause", "resume"]


async def test_a_run_that_is_over_or_to_be_cancelled_is_not_paused(store: Store) -> None:
    _, row = await claimed(store)
    await store.request(command("cancel"), word='{"cancel":""}', wake=True)
    assert not await store.pause(command("pause"), paused=True)
    seen = await store.run("r")
    assert seen is not None
    again = replace(seen, token=row.token)
    await store.commit(commit(again, standing("cancelled"), release=True, clear_request=True))
    assert not await store.pause(command("pause"), paused=True)
    assert not await store.pause(command("pause", run="unknown"), paused=True)
    assert [row.command for row in await store.commands("r")] == ["cancel"]


async def test_a_cancel_and_a_change_of_standing_lift_a_pause(store: Store) -> None:
    await parked(store)
    await store.pause(command("pause"), paused=True)
    await store.request(command("cancel"), word='{"cancel":""}', wake=True)
    seen = await store.run("r")
    assert seen is not None
    assert (seen.paused, seen.standing.due_at) == (False, NOON)
    await store.create_run(new_run("s"))
    await store.pause(command("pause", run="s"), paused=True)
    assert await store.reopen(command("resume", run="s"), standing=standing("queued"), expected_control_seq=1)
    reopened = await store.run("s")
    assert reopened is not None
    assert not reopened.paused


async def test_a_wait_may_be_answered_while_its_run_is_paused(store: Store) -> None:
    session, _ = await parked(store)
    await store.pause(command("pause"), paused=True)
    assert (await store.decide(decision())).status == "applied"
    assert list(await store.claim_runs(session, limit=1)) == []
    await store.pause(command("resume"), paused=False)
    [row] = await store.claim_runs(session, limit=1)
    assert row.id == "r"


# --- effects -----------------------------------------------------------------------------------------------------


async def test_an_effect_is_begun_settled_and_found(store: Store) -> None:
    session, row = await claimed(store)
    begun = await store.begin_effect(effect(row, item="i"))
    assert isinstance(begun, EffectBegun)
    assert (begun.row.status, begun.row.session, begun.row.item) == ("claimed", session, "i")
    assert await store.settle_effect("r", row.token or "", begun.row.key, "done", result='"x"')
    found = await store.begin_effect(effect(row, item="i"))
    assert isinstance(found, EffectFound)
    assert (found.row.status, found.row.result, found.row.settled_at) == ("done", '"x"', NOON)
    assert await store.effects(run="r") == [found.row]


async def test_b62_a_lost_claim_neither_begins_nor_settles(store: Store, clock: Clock) -> None:
    _, row = await claimed(store)
    begun = await store.begin_effect(effect(row))
    assert isinstance(begun, EffectBegun)
    clock.advance(seconds=60)
    other = await store.open_session("other")
    [taken] = await store.claim_runs(other, limit=1)
    assert await store.begin_effect(effect(row, key="r:work:1:mail")) is None
    assert not await store.settle_effect("r", row.token or "", begun.row.key, "done", result="1")
    found = await store.begin_effect(effect(taken))
    assert isinstance(found, EffectFound)
    assert (found.row.status, found.holder_alive) == ("claimed", False)
    assert not await store.settle_effect("r", taken.token or "", begun.row.key, "done")
    assert await store.settle_effect("r", taken.token or "", begun.row.key, "done", begun_by=row.token)


async def test_what_did_not_happen_is_begun_again_under_its_key(store: Store) -> None:
    _, row = await claimed(store)
    begun = await store.begin_effect(effect(row, once_per="o"))
    assert isinstance(begun, EffectBegun)
    await store.settle_effect("r", row.token or "", begun.row.key, "not_happened", error="refused")
    again = await store.begin_effect(effect(row, once_per="o"))
    assert isinstance(again, EffectBegun)
    assert (again.row.key, again.row.status, again.row.error) == (begun.row.key, "claimed", None)
    assert len(await store.effects(run="r")) == 1


async def test_once_per_finds_the_effect_of_another_run_until_it_did_not_happen(store: Store) -> None:
    session, row = await claimed(store)
    await store.begin_effect(effect(row, once_per="o"))
    await store.create_run(new_run("other"))
    [second] = await store.claim_runs(session, limit=1, runs=["other"])
    mine = effect(second, key="other:work:1:pay", once_per="o")
    found = await store.begin_effect(mine)
    assert isinstance(found, EffectFound)
    assert (found.row.run, found.holder_alive) == ("r", True)
    assert isinstance(await store.begin_effect(effect(second, key="k", once_per="p")), EffectBegun)
    await store.settle_effect("r", row.token or "", "r:work:1:pay", "not_happened")
    assert isinstance(await store.begin_effect(mine), EffectBegun)
