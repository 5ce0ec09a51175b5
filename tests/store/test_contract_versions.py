"""The contract of definitions, and of runs that come under another version or shape, for every store."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agentflow.store.protocol import Store
from agentflow.store.rows import DefinitionRow, Relocation, RunRow, WaitRow
from tests.store.making import NOON, claimed, command, commit, decision, history, new_run, standing, wait_row

PLACE = ("flow", 1, "s", "work")


def definition(shape: str = "s", **changes: Any) -> DefinitionRow:
    made = DefinitionRow(workflow="flow", version=1, shape=shape, outline='{"start":"work"}', first_seen=NOON)
    return replace(made, **changes)


def relocation(row: RunRow, **changes: Any) -> Relocation:
    made = Relocation(
        command=command("migrate", row.id),
        expected_control_seq=row.control_seq,
        version=2,
        shape="t",
        standing=standing("queued", state="next", due_at=NOON),
        history=history(row.revision + 1, event="migrate", target="next"),
    )
    return replace(made, **changes)


async def fresh(store: Store, run: str = "r") -> RunRow:
    found = await store.run(run)
    assert found is not None
    return found


async def parked(store: Store) -> RunRow:
    """A run that waits for a person and is in nobody's hands."""
    _, row = await claimed(store)
    await store.commit(commit(row, standing("waiting"), opens=(wait_row(),), release=True))
    return await fresh(store)


async def wait_of(store: Store, wait: str) -> WaitRow | None:
    return await store.wait(wait)


# --- definitions -------------------------------------------------------------------------------------------------


async def test_a_definition_is_kept_once_for_each_workflow_version_and_shape(store: Store) -> None:
    later = definition(outline='{"start":"other"}', first_seen=NOON + timedelta(days=1))
    rows = [definition(), definition("t"), definition(version=2), definition(workflow="other")]
    for row in [*rows, later]:
        await store.record_definition(row)
    assert list(await store.definitions()) == rows
    assert list(await store.definitions("flow")) == rows[:3]
    assert list(await store.definitions("nowhere")) == []


async def test_a_claimed_run_is_adopted_under_another_shape_by_its_claim_alone(store: Store) -> None:
    _, row = await claimed(store)
    assert not await store.adopt("r", "another token", "t")
    assert (await fresh(store)).shape == "s"
    assert await store.adopt("r", row.token or "", "t")
    adopted = await fresh(store)
    assert (adopted.shape, adopted.revision, adopted.token) == ("t", row.revision, row.token)


async def test_a_run_that_nobody_holds_is_not_adopted(store: Store) -> None:
    await store.create_run(new_run())
    assert not await store.adopt("r", "", "t")
    assert not await store.adopt("nowhere", "", "t")


async def test_blocked_runs_that_a_worker_refused_are_left_to_others(store: Store) -> None:
    session, row = await claimed(store)
    await store.create_run(new_run("unblocked"))
    await store.create_run(new_run("elsewhere", standing=standing("queued", state="other", blocked="x", due_at=NOON)))
    await store.commit(commit(row, standing("queued", blocked="why", due_at=NOON), release=True))
    other = await store.open_session("other")

    mine = await store.claim_runs(session, limit=9, refused=[PLACE])
    assert {one.id for one in mine} == {"unblocked", "elsewhere"}
    assert [one.id for one in await store.claim_runs(other, limit=9, refused=[("flow", 2, "s", "work")])] == ["r"]


async def test_runs_of_older_versions_are_claimed_and_those_of_newer_ones_are_left_alone(store: Store) -> None:
    for version in (1, 2, 3):
        await store.create_run(replace(new_run(f"v{version}"), version=version))
    await store.create_run(replace(new_run("other"), workflow="other"))
    session = await store.open_session("worker")
    taken = await store.claim_runs(session, limit=9, workflows=[("flow", 2)])
    assert {row.id for row in taken} == {"v1", "v2"}


# --- relocations -------------------------------------------------------------------------------------------------


async def test_a_relocation_writes_the_run_its_transition_and_its_command_together(store: Store) -> None:
    row = await parked(store)
    assert await store.relocate(relocation(row, closes=("r.work.1",), values=(("d", b"v"),)))

    moved = await fresh(store)
    assert (moved.version, moved.shape, moved.revision, moved.standing.state) == (2, "t", 1, "next")
    assert (moved.standing.status, moved.standing.due_at, moved.session) == ("queued", NOON, None)
    assert moved.control_seq == row.control_seq + 1
    assert [line.event for line in await store.history("r")] == ["start", "migrate"]
    assert [note.command for note in await store.commands("r")] == ["migrate"]
    assert store.value("d") == b"v"
    closed = await wait_of(store, "r.work.1")
    assert closed is not None
    assert closed.status == "closed"


async def test_a_relocation_into_an_end_ends_the_run(store: Store) -> None:
    row = await parked(store)
    over = standing("completed", state="done", end="done")
    assert await store.relocate(relocation(row, standing=over, closes=("r.work.1",)))
    assert (await fresh(store)).ended_at == NOON


async def test_a_failed_run_is_relocated_as_it_failed_so_that_a_retry_finds_it(store: Store) -> None:
    _, row = await claimed(store)
    await store.commit(commit(row, standing("failed"), release=True))
    failed = await fresh(store)
    assert await store.relocate(relocation(failed, standing=standing("failed", state="next")))
    moved = await fresh(store)
    assert (moved.standing.status, moved.standing.state, moved.version) == ("failed", "next", 2)
    assert moved.ended_at == failed.ended_at


@pytest.mark.parametrize("how", ["completed", "failed at an end", "cancelled"])
async def test_a_run_that_is_over_is_not_relocated(store: Store, how: str) -> None:
    _, row = await claimed(store)
    end = None if how == "cancelled" else "done"
    status: Any = how.split()[0]
    await store.commit(commit(row, standing(status, end=end), release=True))
    over = await fresh(store)
    assert not await store.relocate(relocation(over, standing=standing("completed", state="next", end="next")))
    assert await fresh(store) == over


async def test_a_wait_moves_under_its_new_name_with_all_that_was_shown(store: Store) -> None:
    row = await parked(store)
    renamed = wait_row(id="r.next.1", state="next", outcomes=("APPROVE", "NO"))
    assert await store.relocate(relocation(row, moves=(("r.work.1", renamed),)))
    assert await wait_of(store, "r.work.1") is None
    assert await wait_of(store, "r.next.1") == renamed
    assert [wait.id for wait in await store.waits(run="r")] == ["r.next.1"]


@pytest.mark.parametrize("how", ["commanded", "moved on", "claimed", "over", "decided", "decided and moves"])
async def test_whatever_came_in_between_wins_over_a_relocation(store: Store, how: str) -> None:
    row = await parked(store)
    change = relocation(row, closes=("r.work.1",))
    if how == "commanded":
        await store.request(command(), word="{}", wake=False)
    elif how == "moved on":
        change = replace(change, history=history(2, event="migrate"))
    elif how == "claimed":
        await store.reopen(command("look"), standing=standing("queued", due_at=NOON), expected_control_seq=1)
        change = replace(change, expected_control_seq=(await fresh(store)).control_seq + 1)
        assert await store.claim_runs(await store.open_session("other"), limit=1)
    elif how == "over":
        await store.reopen(command(), standing=standing("cancelled"), expected_control_seq=row.control_seq)
        change = replace(change, expected_control_seq=row.control_seq + 1, closes=())
    else:
        await store.decide(decision())
        change = change if how == "decided" else replace(change, closes=(), moves=(("r.work.1", wait_row()),))
    before = await fresh(store)
    waits = await store.waits(run="r", status=None)

    assert not await store.relocate(change)
    assert await fresh(store) == before
    assert await store.waits(run="r", status=None) == waits
    assert len(await store.history("r")) == 1
    assert "migrate" not in [note.command for note in await store.commands("r")]


async def test_a_relocation_is_done_once_for_each_request(store: Store) -> None:
    row = await parked(store)
    change = relocation(row, command=command("migrate", request="m1"), closes=("r.work.1",))
    assert await store.relocate(change)
    again = await fresh(store)
    assert not await store.relocate(relocation(again, command=command("migrate", request="m1")))
    assert await fresh(store) == again


async def test_an_unknown_run_is_not_relocated(store: Store) -> None:
    row = await parked(store)
    assert not await store.relocate(relocation(row, command=command("migrate", "nowhere")))
