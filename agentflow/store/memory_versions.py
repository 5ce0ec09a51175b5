"""Definitions in memory, and runs that come under another version or shape of theirs."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from agentflow.store.instants import with_instants_in_utc
from agentflow.store.memory_rows import is_known, standing_in
from agentflow.store.relocating import expected_waits
from agentflow.store.rows import (
    TERMINAL,
    AttemptRow,
    CommandRow,
    DefinitionRow,
    HistoryRow,
    Relocation,
    RunRow,
    WaitRow,
)


@dataclass(slots=True)
class Kept:
    """A run and all that belongs to it."""

    row: RunRow
    seq: int
    history: list[HistoryRow]
    attempts: list[AttemptRow] = field(default_factory=list[AttemptRow])
    commands: list[CommandRow] = field(default_factory=list[CommandRow])
    waits: list[str] = field(default_factory=list[str])


class VersionsInMemory:
    """The part of a `MemoryStore` that knows definitions."""

    _lock: threading.RLock
    _definitions: dict[tuple[str, int, str], DefinitionRow]
    _runs: dict[str, Kept]
    _waits: dict[str, WaitRow]
    _values: dict[str, bytes]

    def now(self) -> datetime:
        raise AssertionError("the store has the clock")

    def _put(self, row: RunRow) -> RunRow:
        raise AssertionError("the store writes")

    def _close_waits(self, names: Iterable[str], now: datetime) -> None:
        raise AssertionError("the store writes")

    async def record_definition(self, row: DefinitionRow) -> None:
        """Keep what a workflow is, unless its workflow, version and shape are known."""
        row = with_instants_in_utc(row, "first_seen")
        with self._lock:
            self._definitions.setdefault((row.workflow, row.version, row.shape), row)

    async def definitions(self, workflow: str | None = None) -> Sequence[DefinitionRow]:
        """What is known of workflows, in the order in which it was first seen."""
        with self._lock:
            return [row for row in self._definitions.values() if workflow in {None, row.workflow}]

    async def adopt(self, run: str, token: str, shape: str) -> bool:
        """Let a claimed run stand under another shape of its definition; False if the claim is lost."""
        now = self.now()
        with self._lock:
            kept = self._runs.get(run)
            if kept is None or kept.row.token is None or kept.row.token != token:
                return False
            self._put(replace(kept.row, shape=shape, updated_at=now))
        return True

    async def relocate(self, change: Relocation) -> bool:
        """Put an unclaimed run under another version or shape; False, and nothing is written, if it changed."""
        now = self.now()
        command, history = with_instants_in_utc(change.command, "at"), with_instants_in_utc(change.history, "at")
        standing = with_instants_in_utc(change.standing, "due_at")
        moves = [(old, with_instants_in_utc(row, "due_at", "opened_at", "closed_at")) for old, row in change.moves]
        with self._lock:
            kept = self._runs.get(command.run)
            if kept is None or not self._is_as_expected(kept, change):
                return False
            moved = replace(
                standing_in(kept.row, standing, now),
                version=change.version,
                shape=change.shape,
                revision=history.revision,
                control_seq=kept.row.control_seq + 1,
            )
            self._put(replace(moved, ended_at=kept.row.ended_at or moved.ended_at))
            kept.history.append(history)
            kept.commands.append(command)
            self._close_waits(change.closes, now)
            for old, wait in moves:
                self._move_wait(kept, old, wait)
            self._values.update(change.values)
        return True

    def _is_as_expected(self, kept: Kept, change: Relocation) -> bool:
        row = kept.row
        is_same = (row.control_seq, row.revision) == (change.expected_control_seq, change.history.revision - 1)
        may_go_on = row.standing.status not in TERMINAL or (
            row.standing.status == "failed" and row.standing.end is None
        )
        if not (is_same and may_go_on and row.session is None) or is_known(kept.commands, change.command):
            return False
        waits = ((self._waits.get(name), status) for name, status in expected_waits(change).items())
        return all(wait is not None and wait.status == status for wait, status in waits)

    def _move_wait(self, kept: Kept, old: str, wait: WaitRow) -> None:
        self._waits = {
            wait.id if name == old else name: wait if name == old else row for name, row in self._waits.items()
        }
        kept.waits[kept.waits.index(old)] = wait.id
