"""How a run is put under another version or shape, in whatever database: what is written, and what must hold before."""

from collections.abc import Mapping
from typing import Any

from agentflow.store.mapping import columns_of, history_columns, standing_columns
from agentflow.store.rows import TERMINAL, Relocation, WaitRow


def relocation_columns(change: Relocation, now: int) -> dict[str, Any]:
    """What `relocate_run` takes, the clock excepted."""
    return {
        **standing_columns(change.standing),
        "id": change.command.run,
        "expected_control_seq": change.expected_control_seq,
        "expected_revision": change.history.revision - 1,
        "revision": change.history.revision,
        "version": change.version,
        "shape": change.shape,
        "ended_at": now if change.standing.status in TERMINAL else None,
    }


def relocation_history(change: Relocation) -> dict[str, Any]:
    """Its line of history."""
    return history_columns(change.command.run, change.history)


def moved_columns(old: str, wait: WaitRow) -> dict[str, Any]:
    """What `move_wait` takes."""
    return columns_of(wait, old_id=old)


def expected_waits(change: Relocation) -> Mapping[str, str]:
    """The status that each wait must have: an answer that came meanwhile must not be lost."""
    return {**dict.fromkeys(change.closes, "open"), **{old: wait.status for old, wait in change.moves}}
