"""Groups in memory: opened and settled by commits, stopped and begun again by whoever drives their run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from agentflow.store.instants import with_instants_in_utc
from agentflow.store.memory_rows import new_row
from agentflow.store.rows import TERMINAL, Commit, GroupRow, RunRow, Settled

Place: TypeAlias = tuple[str, str, int]  # a run, its state and the visit of that
STOP = '{"cancel":""}'


@dataclass(slots=True)
class GroupBook:
    """The groups of a store, and which runs are their branches."""

    rows: dict[Place, GroupRow] = field(default_factory=dict[Place, GroupRow])
    branches: dict[Place, list[str]] = field(default_factory=dict[Place, list[str]])

    def wakes(self, run: str, state: str, visit: int) -> bool:
        """Whether a run that stands there must look at its group."""
        row = self.rows.get((run, state, visit))
        return row is not None and (row.is_over or (row.decided and not row.stopping))

    def is_open(self, row: RunRow) -> bool:
        """Whether the run waits for branches."""
        found = self.rows.get((row.id, row.standing.state, row.standing.visit))
        return found is not None and not found.is_over


def open_group(store: Any, commit: Commit, now: datetime) -> None:
    """The group that a commit opens, with its branches."""
    group = commit.group
    if group is None:
        return
    book: GroupBook = store._groups
    place = (group.run, group.state, group.visit)
    book.rows[place] = with_instants_in_utc(group, "opened_at")
    book.branches[place] = [new.id for new in commit.branches]
    for new in commit.branches:
        store._add_run(new, new_row(new, now))


def settle(store: Any, settled: Settled | None, now: datetime) -> None:
    """What the end of a branch means to its group: it is counted, others begin, and its run is woken if it must look."""
    if settled is None:
        return
    book: GroupBook = store._groups
    place = (settled.parent, settled.state, settled.visit)
    before = book.rows.get(place)
    if before is None:
        return
    book.rows[place] = after = before.with_settled(**{settled.outcome: 1})
    rows = [store._runs[name].row for name in book.branches[place]]
    waiting = [row for row in rows if row.awaits > 0 and row.standing.status not in TERMINAL]
    for row in waiting:
        if row.position in settled.frees:
            store._put(_begun(row, row.awaits - 1, now))
    if settled.slot and waiting:
        store._put(_begun(waiting[0], 0, now))
    if after.wakes(before):
        store._wake(settled.parent, now)


def _begun(row: RunRow, awaits: int, now: datetime) -> RunRow:
    due = now if awaits == 0 else row.standing.due_at
    return replace(row, awaits=awaits, standing=replace(row.standing, due_at=due))


class GroupsInMemory:
    """The part of a `MemoryStore` that knows of groups."""

    if TYPE_CHECKING:
        _lock: Any
        _runs: dict[str, Any]
        _groups: GroupBook

        def now(self) -> datetime: ...
        def _put(self, row: RunRow) -> RunRow: ...
        def _close_waits(self, names: Iterable[str], now: datetime) -> None: ...

    async def group(self, run: str, state: str, visit: int) -> GroupRow | None:
        """The group that a run opened in that visit of a state."""
        with self._lock:
            return self._groups.rows.get((run, state, visit))

    async def branches(self, run: str, state: str, visit: int) -> Sequence[RunRow]:
        """Its branches, in their order."""
        with self._lock:
            return [self._runs[name].row for name in self._groups.branches.get((run, state, visit), ())]

    async def branch_differences(self, run: str, state: str, visit: int) -> Mapping[str, Sequence[str]]:
        """What each of its branches changed by its own transitions, in order."""
        with self._lock:
            names = self._groups.branches.get((run, state, visit), ())
            found = {name: [row.difference for row in self._runs[name].history[1:]] for name in names}
        return {name: differences for name, differences in found.items() if differences}

    async def stop_branches(self, run: str, state: str, visit: int, *, token: str, expired: bool) -> GroupRow | None:
        """Stop the branches that have not settled; the group as it is then."""
        now, place = self.now(), (run, state, visit)
        with self._lock:
            before = self._groups.rows.get(place)
            if before is None or self._runs[run].row.token != token:
                return None
            if before.is_over:
                return before
            stopped = 0
            for name in self._groups.branches[place]:
                kept = self._runs[name]
                row: RunRow = kept.row
                if row.standing.status in TERMINAL:
                    continue
                rests = row.session is None and row.standing.status in {"queued", "waiting"}
                if rests and not self._groups.is_open(row):
                    self._put(_cancelled(row, now))
                    self._close_waits(kept.waits, now)
                    stopped += 1
                else:
                    self._put(_asked_to_stop(row, now))
            after = before.with_settled(stopped=stopped).told_to_stop(expired=expired)
            self._groups.rows[place] = after
            return after

    async def begin_branches_again(
        self, run: str, state: str, visit: int, memories: Mapping[str, str], *, token: str, generation: int
    ) -> None:
        """Let the named branches begin again where they stood, each with its memory."""
        now, place = self.now(), (run, state, visit)
        with self._lock:
            before = self._groups.rows.get(place)
            if before is None or self._runs[run].row.token != token:
                return
            for name, memory in memories.items():
                row: RunRow = self._runs[name].row
                if row.standing.status in {"failed", "cancelled"}:
                    self._put(_again(row, memory, now))
            self._groups.rows[place] = before.begun_again(generation)


def _cancelled(row: RunRow, now: datetime) -> RunRow:
    standing = replace(row.standing, status="cancelled", due_at=None, blocked=None)
    return replace(
        row,
        standing=standing,
        paused=False,
        request=None,
        awaits=0,
        control_seq=row.control_seq + 1,
        updated_at=now,
        ended_at=now,
    )


def _asked_to_stop(row: RunRow, now: datetime) -> RunRow:
    due = now if row.session is None else row.standing.due_at
    return replace(
        row,
        standing=replace(row.standing, due_at=due),
        request=STOP,
        paused=False,
        control_seq=row.control_seq + 1,
        updated_at=now,
    )


def _again(row: RunRow, memory: str, now: datetime) -> RunRow:
    standing = replace(row.standing, status="queued", attempt=0, failure=None, memory=memory, due_at=now)
    return replace(
        row,
        standing=standing,
        claims_without_progress=0,
        control_seq=row.control_seq + 1,
        updated_at=now,
        ended_at=None,
    )
