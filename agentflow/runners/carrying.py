"""Put a run under the definition at hand: a transition of its own, which takes an open question along.

It is done while nobody holds the run, so that an answer which comes at this moment wins, and is carried with the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from agentflow.engine.head import Head, failure_to_json
from agentflow.engine.placing import place
from agentflow.model.context import Kept
from agentflow.model.definition import Definition
from agentflow.record import record
from agentflow.runners.perform import wait_id
from agentflow.runners.records import head_of, is_over_limit, object_of, standing_of, to_json
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, CommandRow, HistoryRow, Relocation, RunRow, Standing, WaitRow

RENAMED, ADOPTED, MIGRATED = "rename", "adopt", "migrate"
CARRIES = frozenset({RENAMED, ADOPTED, MIGRATED})  # transitions that put a run under another shape


@record
class Carry:
    """How a run comes under another definition."""

    event: str
    target: str
    kept: Kept
    stays: bool = True  # the visit goes on, with the question that it may have asked
    difference: str = "{}"
    values: tuple[tuple[str, bytes], ...] = ()
    actor: str | None = None  # JSON
    reason: str = ""
    request: str | None = None
    told: Mapping[str, Any] = field(default_factory=dict[str, Any])


def must_be_carried(definition: Definition, row: RunRow) -> bool:
    """Whether it takes a transition: the version is another, or the run has names of before, also in its visits."""
    if row.shape == definition.shape:
        return False
    if row.version != definition.version:
        return True
    renames, visits = definition.renames, object_of(row.standing.memory).get("visits", {})
    known = {row.standing.state, *visits}
    return not known.isdisjoint(renames.places) or renames.place(row.standing.state) in renames.members


def seen_as(definition: Definition, row: RunRow) -> RunRow:
    """The run in the names of now, for whoever only looks at it."""
    if row.shape == definition.shape:
        return row
    standing = row.standing
    state, end = definition.renames.place(standing.state), standing.end
    now = replace(standing, state=state, end=None if end is None else definition.renames.place(end))
    return replace(row, standing=now)


async def carry_over(store: Store, definition: Definition, row: RunRow) -> bool:
    """Carry a run that is accepted as it is; False if anything of it changed meanwhile."""
    name = definition.renames.place(row.standing.state)
    is_old = row.version != definition.version
    reason = "accepted as it is" if is_old else "a new name in the workflow"
    carry = Carry(ADOPTED if is_old else RENAMED, name, definition.context.empty, reason=reason)
    return await store.relocate(relocation(definition, row, await waits_here(store, row), carry, store.now()))


async def waits_here(store: Store, row: RunRow) -> Sequence[WaitRow]:
    """Questions of this visit that are not closed: open, or settled and not acted upon."""
    here = (row.standing.state, row.standing.visit)
    rows = await store.waits(run=row.id, status=None, limit=row.revision + 2)
    return [wait for wait in rows if (wait.state, wait.visit) == here and wait.status != "closed"]


def relocation(
    definition: Definition, row: RunRow, waits: Sequence[WaitRow], carry: Carry, now: datetime
) -> Relocation:
    """All that is written when a run is carried."""
    before = head_of(row, carry.kept)
    head = place(definition, before, carry.target, kept=carry.kept, at=now, stays=carry.stays)
    standing = standing_of(head, None)
    standing = _stays_due(standing, row.standing, now) if carry.stays else _is_due(standing, now)
    moved = [(wait.id, _renamed_wait(definition, wait, head)) for wait in waits] if carry.stays else []
    return Relocation(
        command=_command(row, definition, carry, now),
        expected_control_seq=row.control_seq,
        version=definition.version,
        shape=definition.shape,
        standing=standing,
        history=_line(definition, row, carry, moved, now, failure_to_json(before.cause) if carry.stays else None),
        closes=() if carry.stays else tuple(wait.id for wait in waits if wait.status == "open"),
        moves=tuple(moved),
        values=carry.values,
    )


def _is_due(standing: Standing, now: datetime) -> Standing:
    return standing if standing.status in TERMINAL else replace(standing, due_at=now)


def _stays_due(standing: Standing, before: Standing, now: datetime) -> Standing:
    """As it was: a wait for an instant goes on, a limit still blocks; what another definition blocked is looked at."""
    if is_over_limit(before):
        return replace(standing, blocked=before.blocked, failure=before.failure, due_at=before.due_at)
    due = before.due_at
    if before.status == "queued" and (before.blocked is not None or due is None or due < now):
        due = now
    return replace(standing, blocked=None, due_at=due)


def _renamed_wait(definition: Definition, wait: WaitRow, head: Head) -> WaitRow:
    member, name = definition.renames.member, head.state
    return replace(
        wait,
        id=wait_id(head),
        state=name,
        visit=head.visit,
        outcomes=tuple(member(name, outcome) for outcome in wait.outcomes),
        outcome=None if wait.outcome is None else member(name, wait.outcome),
    )


def _command(row: RunRow, definition: Definition, carry: Carry, now: datetime) -> CommandRow:
    versions = f"version {row.version} to {definition.version}, " if row.version != definition.version else ""
    return CommandRow(
        run=row.id,
        at=now,
        command=carry.event,
        actor=carry.actor,
        reason=carry.reason,
        request=carry.request,
        status="applied",
        why=f"{versions}{row.standing.state} to {carry.target}",
    )


def _line(
    definition: Definition,
    row: RunRow,
    carry: Carry,
    moved: Sequence[tuple[str, WaitRow]],
    now: datetime,
    cause: str | None,
) -> HistoryRow:
    standing = row.standing
    renamed = dict(definition.renames.members.get(carry.target, {}))
    told = {
        "reason": carry.reason,
        "version": row.version,
        "shape": row.shape,
        "stays": carry.stays,
        "members": renamed,
        "waits": [old for old, _ in moved],
        **carry.told,
    }
    return HistoryRow(
        revision=row.revision + 1,
        at=now,
        event=carry.event,
        source=standing.state,
        outcome=None,
        target=carry.target,
        visit=standing.visit,
        attempt=0,
        duration_ms=None,
        difference=carry.difference,
        answer=to_json(told),
        actor=carry.actor,
        failure=cause,
    )
