"""Groups in SQLite: opened and settled by commits, stopped and begun again by whoever drives their run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentflow.store import group_statements as sql
from agentflow.store import statements
from agentflow.store.mapping import columns_of, history_columns, new_run_columns, row_of, run_of
from agentflow.store.rows import Commit, GroupRow, RunRow, Settled
from agentflow.store.sqlite_connection import Writing

if TYPE_CHECKING:
    from agentflow.store.prepared import Statement
    from agentflow.store.sqlite_connection import Row
    from agentflow.store.sqlite_writes import Writes

STOP = '{"cancel":""}'


def open_group(writing: Writing, commit: Commit, now: int) -> None:
    """The group that a commit opens, with its branches."""
    if commit.group is None:
        return
    writing.change(sql.open_group, columns_of(commit.group))
    for new in commit.branches:
        writing.change(statements.create_branch, new_run_columns(new, now, is_over=False))
        writing.change(statements.add_history, history_columns(new.id, new.history))


def settle(writing: Writing, settled: Settled | None, now: int) -> None:
    """What the end of a branch means to its group: it is counted, others begin, and its run is woken if it must look."""
    if settled is None:
        return
    place = {"run": settled.parent, "state": settled.state, "visit": settled.visit, "now": now}
    before = group_at(writing, place)
    if before is None:
        return
    after = before.with_settled(**{settled.outcome: 1})
    _count(writing, after)
    for position in settled.frees:
        writing.change(sql.free_branch, {**place, "position": position})
    if settled.slot:
        writing.change(sql.fill_slot, place)
    if after.wakes(before):
        writing.change(statements.wake_run, {"id": settled.parent, "now": now})


def stop(writing: Writing, place: Mapping[str, object], *, token: str, expired: bool) -> GroupRow | None:
    """Stop the branches that have not settled; the group as it is then."""
    before = group_at(writing, place)
    if before is None or not _is_held(writing, place, token):
        return None
    if before.is_over:
        return before
    stopped = [run for (run,) in writing.rows(sql.stop_resting_branches, place)]
    for run in stopped:
        writing.change(statements.close_waits_of_run, {"run": run, "now": place["now"]})
    writing.rows(sql.ask_branches_to_stop, {**place, "word": STOP})
    after = before.with_settled(stopped=len(stopped)).told_to_stop(expired=expired)
    _count(writing, after)
    return after


def begin_again(
    writing: Writing, place: Mapping[str, object], memories: Mapping[str, str], *, token: str, generation: int
) -> None:
    """Let branches that did not get done begin again, each with its memory."""
    before = group_at(writing, place)
    if before is None or not _is_held(writing, place, token):
        return
    for run, memory in memories.items():
        writing.change(sql.begin_branch_again, {"id": run, "memory": memory, "now": place["now"]})
    _count(writing, before.begun_again(generation))


def _is_held(writing: Writing, place: Mapping[str, object], token: str) -> bool:
    """Whether the run is still in the hands of the claim of that token."""
    claim = writing.row(statements.claim_of_run, {"id": place["run"]})
    return claim is not None and claim[0] == token


def group_at(writing: Writing, place: Mapping[str, object]) -> GroupRow | None:
    """The group of a run's state and visit."""
    row = writing.row(sql.one_group, place)
    return None if row is None else row_of(GroupRow, row)


def _count(writing: Writing, row: GroupRow) -> None:
    writing.change(sql.count_group, columns_of(row))


class GroupsInSqlite:
    """The part of a `SqliteStore` that knows of groups."""

    if TYPE_CHECKING:
        _writes: Writes

        def _now(self) -> int: ...
        def _query(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]: ...

    async def group(self, run: str, state: str, visit: int) -> GroupRow | None:
        """The group that a run opened in that visit of a state."""
        rows = self._query(sql.one_group, {"run": run, "state": state, "visit": visit})
        return row_of(GroupRow, rows[0]) if rows else None

    async def branches(self, run: str, state: str, visit: int) -> Sequence[RunRow]:
        """Its branches, in their order."""
        rows = self._query(sql.branches_of_group, {"run": run, "state": state, "visit": visit})
        return [run_of(row) for row in rows]

    async def branch_differences(self, run: str, state: str, visit: int) -> Mapping[str, Sequence[str]]:
        """What each of its branches changed by its own transitions, in order."""
        found: dict[str, list[str]] = defaultdict(list)
        for branch, difference in self._query(
            sql.differences_of_branches, {"run": run, "state": state, "visit": visit}
        ):
            found[branch].append(difference)
        return found

    async def stop_branches(self, run: str, state: str, visit: int, *, token: str, expired: bool) -> GroupRow | None:
        """Stop the branches that have not settled; the group as it is then."""
        place = {"run": run, "state": state, "visit": visit, "now": self._now()}
        found: GroupRow | None = await self._writes.do(
            lambda writing: stop(writing, place, token=token, expired=expired)
        )
        return found

    async def begin_branches_again(
        self, run: str, state: str, visit: int, memories: Mapping[str, str], *, token: str, generation: int
    ) -> None:
        """Let the named branches begin again where they stood, each with its memory."""
        place = {"run": run, "state": state, "visit": visit, "now": self._now()}
        await self._writes.do(lambda writing: begin_again(writing, place, memories, token=token, generation=generation))
