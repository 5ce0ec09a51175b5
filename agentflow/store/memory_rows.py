"""How the rows of a `MemoryStore` follow from one another: what statements do elsewhere, as pure functions."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from agentflow.store.instants import with_instants_in_utc
from agentflow.store.rows import TERMINAL, CommandRow, Commit, EffectRow, NewRun, RunFilter, RunRow, Standing, WaitRow


def new_row(new: NewRun, now: datetime) -> RunRow:
    standing = with_instants_in_utc(new.standing, "due_at")
    return RunRow(
        id=new.id,
        workflow=new.workflow,
        version=new.version,
        shape=new.shape,
        revision=new.history.revision,
        standing=standing,
        paused=False,
        session=None,
        token=None,
        claims_without_progress=0,
        control_seq=0,
        request=None,
        fingerprint=new.fingerprint,
        batch=new.batch,
        parent=new.parent,
        root=new.root,
        origin=new.origin,
        origin_revision=new.origin_revision,
        holds_effects=new.holds_effects,
        group_state=new.group_state,
        group_visit=new.group_visit,
        position=new.position,
        awaits=new.awaits,
        created_at=now,
        updated_at=now,
        ended_at=now if standing.status in TERMINAL else None,
    )


def commit_in_utc(commit: Commit) -> Commit:
    """The commit with all its instants in UTC. Raises `InvalidInput` for a naive one."""
    return replace(
        commit,
        standing=with_instants_in_utc(commit.standing, "due_at"),
        history=None if commit.history is None else with_instants_in_utc(commit.history, "at"),
        attempts=tuple(with_instants_in_utc(row, "at", "retry_at") for row in commit.attempts),
        opens=tuple(with_instants_in_utc(row, "due_at", "opened_at", "closed_at") for row in commit.opens),
    )


def standing_in(row: RunRow, standing: Standing, now: datetime) -> RunRow:
    """The row in its new standing: a run that has ended is no longer paused."""
    is_over = standing.status in TERMINAL
    return replace(
        row,
        standing=standing,
        paused=row.paused and not is_over,
        claims_without_progress=0,
        updated_at=now,
        ended_at=now if is_over else None,
    )


def freed(row: RunRow, now: datetime) -> RunRow:
    standing = row.standing
    if standing.status not in TERMINAL:
        status = "queued" if standing.status == "running" else standing.status
        standing = replace(standing, status=status, due_at=now)
    return replace(row, standing=standing, session=None, token=None, updated_at=now)


def given_back(row: RunRow) -> RunRow:
    """A claim that was given up in an orderly way does not count as one without progress."""
    return replace(row, claims_without_progress=max(row.claims_without_progress - 1, 0))


def fits(row: RunRow, wanted: RunFilter) -> bool:
    return (
        wanted.workflow in {None, row.workflow}
        and wanted.status in {None, row.standing.status}
        and wanted.batch in {None, row.batch}
        and wanted.parent == (row.parent if row.group_state is not None else None)
    )


def is_refused(row: RunRow, refused: Sequence[tuple[str, int, str, str]]) -> bool:
    """Whether a blocked run stands where the claimer does not take it from."""
    place = (row.workflow, row.version, row.shape, row.standing.state)
    return row.standing.blocked is not None and place in refused


def is_asleep(row: RunRow) -> bool:
    """Whether only an open wait could wake the run."""
    standing = row.standing
    rests = standing.status in TERMINAL or row.paused or standing.blocked is not None
    return not rests and row.session is None and standing.due_at is None and row.awaits == 0


def is_known(commands: Sequence[CommandRow], command: CommandRow) -> bool:
    return command.request is not None and any(past.request == command.request for past in commands)


def is_past(wait: WaitRow, now: datetime) -> bool:
    return wait.due_at is not None and wait.due_at <= now


def begun_again(row: EffectRow) -> dict[str, Any]:
    """What changes when an effect is begun once more."""
    names = ("status", "once_per", "token", "session", "result", "error", "claimed_at", "settled_at")
    return {name: getattr(row, name) for name in names}
