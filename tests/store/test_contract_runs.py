"""The contract of runs, claims and commits, for every store."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from agentflow.errors import InvalidInput, SessionOver
from agentflow.store.protocol import Store
from agentflow.store.rows import Committed, Created, Existing, LateResult, Requested, RunFilter, RunRow
from tests.store.making import (
    NOON,
    Clock,
    attempt,
    claimed,
    command,
    commit,
    history,
    new_run,
    standing,
    step,
    wait_row,
)


async def test_a_run_is_created_once_with_its_first_revision(store: Store) -> None:
    first = await store.create_run(new_run(batch="b"))
    again = await store.create_run(new_run(fingerprint="other"))
    assert isinstance(first, Created)
    assert isinstance(again, Existing)
    assert again.row == first.row == await store.run("r")
    assert (first.row.fingerprint, first.row.batch, first.row.revision) == ("f", "b", 0)
    assert await store.history("r") == [history(0)]


async def test_an_unknown_run_is_none(store: Store) -> None:
    assert await store.run("nowhere") is None
    assert await store.history("nowhere") == []


async def test_a_due_run_is_claimed_once_with_a_fresh_token(store: Store) -> None:
    session, row = await claimed(store)
    other = await store.open_session("other")
    assert (row.session, row.standing.status, row.claims_without_progress) == (session, "running", 1)
    assert row.token
    assert list(await store.claim_runs(other, limit=9)) == []
    assert list(await store.claim_runs(session, limit=9)) == []


async def test_a_run_that_is_not_due_is_left_alone_until_it_is(store: Store, clock: Clock) -> None:
    await store.create_run(new_run(standing=standing("queued", due_at=NOON + timedelta(seconds=5))))
    session = await store.open_session("test")
    assert list(await store.claim_runs(session, limit=9)) == []
    assert await store.next_due() == NOON + timedelta(seconds=5)
    clock.advance(seconds=5)
    assert [row.id for row in await store.claim_runs(session, limit=9)] == ["r"]
    assert await store.next_due() is None


async def test_claims_go_in_due_order_up_to_the_limit_and_to_known_workflows(store: Store) -> None:
    for number in (3, 1, 2):
        due = NOON - timedelta(seconds=10 - number)
        await store.create_run(new_run(f"r{number}", standing=standing("queued", due_at=due)))
    await store.create_run(new_run("foreign", workflow="other"))
    session = await store.open_session("test")
    assert [row.id for row in await store.claim_runs(session, limit=2, workflows=[("flow", 1)])] == ["r1", "r2"]
    assert [row.id for row in await store.claim_runs(session, limit=9, workflows=[("flow", 1)])] == ["r3"]
    assert list(await store.claim_runs(session, limit=9, workflows=[("another", 2)])) == []
    assert [row.id for row in await store.claim_runs(session, limit=9)] == ["foreign"]


async def test_tokens_of_runs_claimed_together_differ(store: Store) -> None:
    for number in range(3):
        await store.create_run(new_run(f"r{number}"))
    session = await store.open_session("test")
    assert len({row.token for row in await store.claim_runs(session, limit=9)}) == 3


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_an_ended_run_is_never_claimed(store: Store, status: Any) -> None:
    session, row = await claimed(store)
    await store.commit(commit(row, standing(status, due_at=NOON), release=True))
    assert list(await store.claim_runs(session, limit=9)) == []
    ended = await store.run("r")
    assert ended is not None
    assert ended.ended_at == NOON


@pytest.mark.parametrize("status", ["cancelling", "compensating"])
async def test_a_claim_leaves_the_status_of_a_run_that_is_being_ended(store: Store, status: Any) -> None:
    await store.create_run(new_run(standing=standing(status, due_at=NOON)))
    session = await store.open_session("test")
    [row] = await store.claim_runs(session, limit=1)
    assert row.standing.status == status


# --- commits -----------------------------------------------------------------------------------------------------


async def test_a_transition_is_written_whole(store: Store) -> None:
    _, row = await claimed(store)
    after = standing(state="next", visit=2, memory='{"m":1}', failure='{"kind":"X"}')
    row_of_history = history(
        1,
        outcome="YES",
        guards='[["small",true]]',
        answer='{"reason":"ä"}',
        actor='{"subject":"ada"}',
        model="m",
        tokens_in=3,
        tokens_out=4,
        cost="0.01",
        prompt="p",
        code="c",
    )
    reply = await store.commit(commit(row, after, history=row_of_history, attempts=(attempt(1),)))
    assert reply == Committed()
    stored = await store.run("r")
    assert stored is not None
    assert (stored.revision, stored.standing, stored.token) == (1, after, row.token)
    assert stored.claims_without_progress == 1
    assert await store.history("r", after=0) == [row_of_history]
    assert await store.attempts("r") == [attempt(1)]


@pytest.mark.parametrize("wrong", [{"token": "other"}, {"expected_revision": 7}, {"run": "nowhere"}])
async def test_a_commit_of_another_claim_writes_nothing(store: Store, wrong: dict[str, Any]) -> None:
    _, row = await claimed(store)
    late = replace(step(row, attempts=(attempt(1),), opens=(wait_row(),)), **wrong)
    assert await store.commit(late) == LateResult()
    assert await store.run("r") == row
    assert (await store.history("r", after=0), await store.attempts("r"), await store.waits()) == ([], [], [])


async def test_a_commit_that_meets_a_command_is_told_so_and_writes_nothing(store: Store) -> None:
    _, row = await claimed(store)
    await store.request(command(), word='{"cancel":1}', wake=True)
    reply = await store.commit(step(row))
    assert isinstance(reply, Requested)
    assert (reply.row.control_seq, reply.row.request, reply.row.revision) == (2, '{"cancel":1}', 0)
    seen = commit(reply.row, history=history(1), clear_request=True)
    assert await store.commit(seen) == Committed()
    after = await store.run("r")
    assert after is not None
    assert (after.revision, after.request) == (1, None)


async def test_a_release_gives_the_claim_back(store: Store) -> None:
    session, row = await claimed(store)
    due = NOON + timedelta(hours=1)
    await store.commit(commit(row, standing("queued", due_at=due), release=True))
    stored = await store.run("r")
    assert stored is not None
    assert (stored.session, stored.token, stored.standing.due_at) == (None, None, due)
    await store.release_run("r", row.token or "")  # a claim that is lost is nobody's business
    assert await store.run("r") == stored
    assert list(await store.claim_runs(session, limit=1)) == []


async def test_a_run_that_is_given_back_is_due_and_does_not_count_as_crashed(store: Store) -> None:
    session, row = await claimed(store)
    await store.release_run("r", row.token or "")
    [again] = await store.claim_runs(session, limit=1)
    assert (again.claims_without_progress, again.token == row.token) == (1, False)


async def test_claims_whose_worker_died_are_counted(store: Store, clock: Clock) -> None:
    await store.create_run(new_run())
    for count in (1, 2, 3):
        session = await store.open_session("test")
        [row] = await store.claim_runs(session, limit=1)
        assert row.claims_without_progress == count
        clock.advance(seconds=31)


async def test_a_death_after_a_commit_is_counted_too(store: Store, clock: Clock) -> None:
    _, row = await claimed(store)
    assert await store.commit(step(row)) == Committed()
    clock.advance(seconds=31)
    other = await store.open_session("other")
    [taken] = await store.claim_runs(other, limit=1)
    assert taken.claims_without_progress == 2


async def test_a_claim_that_was_given_up_in_an_orderly_way_is_not_counted(store: Store) -> None:
    await store.create_run(new_run())
    for _ in range(3):
        session = await store.open_session("test")
        [row] = await store.claim_runs(session, limit=1)
        assert row.claims_without_progress == 1
        await store.close_session(session)


async def test_a_session_whose_lease_is_over_takes_nothing(store: Store, clock: Clock) -> None:
    session = await store.open_session("slept")
    await store.create_run(new_run())
    clock.advance(seconds=31)
    with pytest.raises(SessionOver, match="begin another"):
        await store.claim_runs(session, limit=1)
    assert len(await store.claim_runs(await store.open_session("awake"), limit=1)) == 1


async def test_a_session_that_ends_frees_its_runs(store: Store) -> None:
    session, row = await claimed(store)
    await store.close_session(session)
    other = await store.open_session("other")
    [again] = await store.claim_runs(other, limit=1)
    assert (again.session, again.token != row.token) == (other, True)
    assert await store.commit(step(row)) == LateResult()


async def test_a_lease_that_ran_out_is_lost_for_good_and_its_runs_are_taken_over(store: Store, clock: Clock) -> None:
    session, row = await claimed(store)
    clock.advance(seconds=20)
    assert store.renew_session(session)
    clock.advance(seconds=29)
    other = await store.open_session("other")
    assert list(await store.claim_runs(other, limit=1)) == []
    clock.advance(seconds=2)
    [taken] = await store.claim_runs(other, limit=1)
    assert (taken.session, taken.claims_without_progress) == (other, 2)
    assert not store.renew_session(session)
    assert await store.commit(step(row)) == LateResult()


async def test_sessions_show_what_they_hold(store: Store) -> None:
    session, _ = await claimed(store)
    idle = await store.open_session("idle")
    shown = {row.id: row for row in await store.sessions()}
    assert (shown[session].runs, shown[idle].runs) == (("r",), ())
    assert shown[session].lease_until == NOON + timedelta(seconds=30)
    await store.close_session(idle)
    assert [row.id for row in await store.sessions()] == [session]


# --- reading -----------------------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_by_filter_and_page(store: Store) -> None:
    for number in range(4):
        await store.create_run(new_run(f"r{number}", batch="even" if number % 2 == 0 else None))
    assert [row.id for row in await store.runs(RunFilter())] == ["r3", "r2", "r1", "r0"]
    assert [row.id for row in await store.runs(RunFilter(limit=2, after="r3"))] == ["r2", "r1"]
    assert [row.id for row in await store.runs(RunFilter(batch="even"))] == ["r2", "r0"]
    assert [row.id for row in await store.runs(RunFilter(workflow="other"))] == []
    assert await store.count_runs(RunFilter(status="queued", limit=1)) == 4


async def test_history_is_read_in_parts_and_folds_up_to_a_revision(store: Store) -> None:
    _, row = await claimed(store)
    for number in range(1, 4):
        await store.commit(commit(row, history=history(number)))
        row = replace(row, revision=number)
    assert [line.revision for line in await store.history("r", after=0, limit=2)] == [1, 2]
    assert await store.differences("r", 2) == ['{"set":{"n":0}}', '{"set":{"n":1}}', '{"set":{"n":2}}']


async def test_d12_a_segment_stands_for_256_differences_and_loads_the_same(store: Store) -> None:
    _, row = await claimed(store)
    row = await add_revisions(store, row, 700)
    whole = {at: folded(await store.differences("r", at)) for at in (0, 255, 256, 511, 512, 699, 700)}
    written = await store.condense("r")
    assert await store.condense("r") == 0
    assert {at: folded(await store.differences("r", at)) for at in whole} == whole
    if written:  # a store without segments reads them all
        assert written == 2
        assert len(await store.differences("r", 700)) == 2 + 700 - 511


async def test_d12_segments_are_taken_up_where_the_last_stopped(store: Store) -> None:
    _, row = await claimed(store)
    row = await add_revisions(store, row, 300)
    first = await store.condense("r")
    await add_revisions(store, row, 300)
    before = folded(await store.differences("r", 600))
    second = await store.condense("r")
    assert folded(await store.differences("r", 600)) == before
    assert (first, second) in {(1, 1), (0, 0)}
    assert await store.condense("no such run") == 0


async def add_revisions(store: Store, row: RunRow, count: int) -> RunRow:
    for number in range(row.revision + 1, row.revision + count + 1):
        difference = f'{{"set":{{"n":{number}}},"add":{{"log":["{number}"]}}}}'
        assert await store.commit(commit(row, history=history(number, difference=difference))) == Committed()
        row = replace(row, revision=number)
    return row


def folded(differences: Sequence[str]) -> tuple[object, list[str]]:
    number: object = None
    log: list[str] = []
    for text in differences:
        difference = json.loads(text)
        number = difference["set"]["n"]
        log += difference.get("add", {}).get("log", [])
    return number, log


async def test_b55_instants_of_all_zones_are_one_line_of_time(store: Store, clock: Clock) -> None:
    zones = {"west": -8, "utc": 0, "east": 9}
    for name, hours in zones.items():
        due = (NOON + timedelta(minutes=hours)).astimezone(timezone(timedelta(hours=hours)))
        await store.create_run(new_run(name, standing=standing("queued", due_at=due)))
    clock.advance(hours=1)
    session = await store.open_session("test")
    rows = await store.claim_runs(session, limit=9)
    assert [row.id for row in rows] == ["west", "utc", "east"]
    assert [row.standing.due_at for row in rows] == [NOON + timedelta(minutes=hours) for hours in zones.values()]
    assert all(row.standing.due_at is not None and row.standing.due_at.utcoffset() == timedelta(0) for row in rows)


async def test_b55_a_naive_instant_is_refused(store: Store) -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InvalidInput, match="time zone"):
        await store.create_run(new_run(standing=standing("queued", due_at=naive)))
    assert await store.run("r") is None


async def test_values_are_kept_once_under_their_digest(store: Store) -> None:
    await store.create_run(new_run("other", values=(("d", b"one"), ("e", b"two"))))
    _, row = await claimed(store)
    await store.commit(step(row, values=(("d", b"one"), ("f", bytes(range(256))))))
    assert [store.value(digest) for digest in "defg"] == [b"one", b"two", bytes(range(256)), None]


async def test_a_run_that_nothing_would_ever_wake_is_found(store: Store) -> None:
    _, lost = await claimed(store, "lost")
    _, waits = await claimed(store, "waits")
    await store.commit(commit(lost, standing("waiting"), release=True))
    await store.commit(commit(waits, standing("waiting"), release=True, opens=(wait_row("waits"),)))
    assert list(await store.stranded(limit=9)) == ["lost"]
    assert list(await store.stranded(limit=0)) == []


async def test_requests_of_a_session_are_those_of_the_runs_that_it_holds(store: Store) -> None:
    session, _ = await claimed(store, "mine")
    other, _ = await claimed(store, "other")
    await store.create_run(new_run("free"))
    for run in ("mine", "other", "free"):
        await store.request(command("cancel", run=run), word='{"cancel":""}', wake=True)
    await store.create_run(new_run("quiet"))
    assert list(await store.requests(session)) == [("mine", '{"cancel":""}')]
    assert list(await store.requests(other)) == [("other", '{"cancel":""}')]
