"""The contract of groups: opened and settled by commits, stopped and begun again by whoever holds the run."""

from typing import Any

import pytest

from agentflow.store.protocol import Store
from agentflow.store.rows import Committed, GroupRow, LateResult, RunFilter, RunRow, Settled
from tests.store.making import NOON, Clock, claimed, command, commit, history, new_run, standing, wait_row

PLACE = ("r", "work", 1)


def group(total: int = 3, **changes: Any) -> GroupRow:
    columns: dict[str, Any] = {"needed": total, "fails": 1, "opened_at": NOON, **changes}
    return GroupRow(run="r", state="work", visit=1, total=total, **columns)


def branch(number: int, **changes: Any) -> Any:
    columns: dict[str, Any] = {"group_state": "work", "group_visit": 1, "position": number, **changes}
    return new_run(f"r:work:1:{number}", parent="r", root="r", **columns)


async def opened(store: Store, total: int = 3, *, awaits: tuple[int, ...] = (), **changes: Any) -> tuple[str, RunRow]:
    """A run that waits for its branches."""
    session, row = await claimed(store)
    branches = [
        branch(number, awaits=count, standing=standing("queued", due_at=None if count else NOON))
        for number, count in enumerate((*awaits, *[0] * (total - len(awaits))))
    ]
    parks = commit(row, standing("waiting"), group=group(total, **changes), branches=tuple(branches), release=True)
    assert await store.commit(parks) == Committed()
    return session, row


def ends(row: RunRow, outcome: Any = "done", **changes: Any) -> Any:
    status = {"done": "completed", "failed": "failed", "stopped": "cancelled"}[outcome]
    settled = Settled(parent="r", state="work", visit=1, outcome=outcome, **changes)
    line = history(1, difference=f'{{"set":{{"n":{row.position}}}}}')
    return commit(row, standing(status), history=line, settled=settled, release=True)


async def take(store: Store, session: str, limit: int = 9) -> dict[str, RunRow]:
    return {row.id: row for row in await store.claim_runs(session, limit=limit)}


async def due_of(store: Store, run: str = "r") -> Any:
    row = await store.run(run)
    assert row is not None
    return row.standing.due_at


async def test_a_group_and_its_branches_are_there_with_the_commit_that_opens_them(store: Store) -> None:
    await opened(store)
    assert await store.group(*PLACE) == group()
    rows = await store.branches(*PLACE)
    assert [(row.id, row.parent, row.position) for row in rows] == [(f"r:work:1:{n}", "r", n) for n in range(3)]
    assert [line.revision for line in await store.history("r:work:1:1")] == [0]
    assert list(await store.stranded(limit=9)) == []
    assert await store.group("r", "work", 2) is None


async def test_a_commit_that_is_late_opens_nothing(store: Store) -> None:
    _, row = await claimed(store)
    late = commit(row, standing("waiting"), expected_revision=7, group=group(1), branches=(branch(0),), release=True)
    assert isinstance(await store.commit(late), LateResult)
    assert (await store.group(*PLACE), list(await store.branches(*PLACE))) == (None, [])


async def test_the_last_branch_that_ends_wakes_the_run_once(store: Store) -> None:
    session, _ = await opened(store)
    rows = await take(store, session)
    for number in range(2):
        await store.commit(ends(rows[f"r:work:1:{number}"]))
        assert await due_of(store) is None
    await store.commit(ends(rows["r:work:1:2"]))
    found = await store.group(*PLACE)
    assert found is not None
    assert (found.done, found.decided, found.is_over, await due_of(store)) == (3, True, True, NOON)
    assert await store.branch_differences(*PLACE) == {f"r:work:1:{n}": [f'{{"set":{{"n":{n}}}}}'] for n in range(3)}


@pytest.mark.parametrize(
    ("group_of", "outcomes", "decided"),
    [
        ({}, ["failed"], True),
        ({"needed": 1, "fails": 3}, ["done"], True),
        ({"needed": 1, "fails": 3}, ["failed", "failed"], False),
        ({"needed": 2, "fails": 2}, ["done", "failed"], False),
        ({"needed": 2, "fails": 2}, ["failed", "failed"], True),
        ({"needed": 0, "fails": 4}, ["failed", "done"], False),
    ],
)
async def test_a_group_is_decided_where_the_rest_cannot_change_it(
    store: Store, group_of: Any, outcomes: list[Any], decided: bool
) -> None:
    session, _ = await opened(store, **group_of)
    rows = await take(store, session)
    for number, outcome in enumerate(outcomes):
        await store.commit(ends(rows[f"r:work:1:{number}"], outcome))
    assert (await due_of(store) is not None) is decided


async def test_a_run_that_gives_itself_back_while_its_group_is_decided_is_due_at_once(store: Store) -> None:
    session, _ = await opened(store, 1)
    rows = await take(store, session)
    await store.commit(ends(rows["r:work:1:0"]))
    [row] = await store.claim_runs(session, limit=1)
    await store.commit(commit(row, standing("waiting"), release=True))
    assert await due_of(store) == NOON


async def test_a_branch_that_others_need_lets_them_begin_when_it_is_done(store: Store) -> None:
    session, _ = await opened(store, awaits=(0, 0, 2))
    rows = await take(store, session)
    assert sorted(rows) == ["r:work:1:0", "r:work:1:1"]
    await store.commit(ends(rows["r:work:1:0"], frees=(2,)))
    assert await take(store, session) == {}
    await store.commit(ends(rows["r:work:1:1"], frees=(2,)))
    assert list(await take(store, session)) == ["r:work:1:2"]


async def test_a_branch_that_ends_leaves_its_place_to_the_next(store: Store) -> None:
    session, _ = await opened(store, 4, awaits=(0, 0, 1, 1))
    rows = await take(store, session)
    await store.commit(ends(rows["r:work:1:1"], slot=True))
    assert list(await take(store, session)) == ["r:work:1:2"]
    assert list(await store.stranded(limit=9)) == []


async def test_the_rest_is_stopped_at_rest_at_once_and_at_work_by_a_request(store: Store) -> None:
    session, _ = await opened(store, fails=3, needed=1)
    rows = await take(store, session, 2)
    asks = wait_row(id="w", run="r:work:1:1")
    await store.commit(commit(rows["r:work:1:1"], standing("waiting"), opens=(asks,), release=True))
    await store.request(command("look", run="r"), word=None, wake=True)
    [held] = await store.claim_runs(session, limit=1, runs=["r"])
    found = await store.stop_branches(*PLACE, token=held.token or "", expired=False)
    assert found is not None
    assert (found.stopped, found.decided, found.stopping, found.is_over) == (2, True, True, False)
    assert [row.standing.status for row in await store.branches(*PLACE)] == ["running", "cancelled", "cancelled"]
    assert [wait.status for wait in await store.waits(run="r:work:1:1", status=None)] == ["closed"]
    assert ("r:work:1:0", '{"cancel":""}') in list(await store.requests(session))


async def test_branches_that_are_not_done_begin_again_and_the_others_stay(store: Store) -> None:
    session, _ = await opened(store)
    rows = await take(store, session)
    await store.commit(ends(rows["r:work:1:0"]))
    await store.commit(ends(rows["r:work:1:1"], "failed"))
    await store.commit(ends(rows["r:work:1:2"], "stopped"))
    held = (await take(store, session))["r"]
    memories = {"r:work:1:1": "{}", "r:work:1:2": "{}"}
    await store.begin_branches_again(*PLACE, memories, token=held.token or "", generation=1)
    found = await store.group(*PLACE)
    assert found == group(done=1, generation=1)
    statuses = [(row.standing.status, row.ended_at is None) for row in await store.branches(*PLACE)]
    assert statuses == [("completed", False), ("queued", True), ("queued", True)]


async def test_a_claim_that_no_longer_stands_stops_and_begins_nothing(store: Store, clock: Clock) -> None:
    await opened(store)
    before = (await store.group(*PLACE), await store.branches(*PLACE))
    assert await store.stop_branches(*PLACE, token="of a dead claim", expired=True) is None
    await store.begin_branches_again(*PLACE, {"r:work:1:0": "{}"}, token="of a dead claim", generation=4)
    assert (await store.group(*PLACE), await store.branches(*PLACE)) == before


async def test_a_branch_that_is_cancelled_at_rest_is_counted(store: Store) -> None:
    await opened(store, 1)
    settled = Settled(parent="r", state="work", visit=1, outcome="stopped")
    note = command("cancel", run="r:work:1:0")
    assert await store.reopen(note, standing=standing("cancelled"), expected_control_seq=0, settled=settled)
    found = await store.group(*PLACE)
    assert found is not None
    assert (found.stopped, await due_of(store)) == (1, NOON)


async def test_branches_are_listed_by_their_parent_alone(store: Store) -> None:
    await opened(store)
    assert [row.id for row in await store.runs(RunFilter())] == ["r"]
    assert await store.count_runs(RunFilter(parent="r")) == 3
