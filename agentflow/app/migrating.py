"""Put runs of older versions under a new one by its migrations: tried on every run before anything is written."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.analysis.acceptance import renamed_state, state_problems
from agentflow.analysis.migrating import CannotMigrate, Outcome, migrated, stored_run
from agentflow.app.commands import By
from agentflow.app.open_runs import open_runs
from agentflow.engine.placing import renamed_visits
from agentflow.model.definition import Definition
from agentflow.model.outline import outline_of
from agentflow.model.views import MigratedRun
from agentflow.record import record
from agentflow.runners.carrying import MIGRATED, Carry, relocation, waits_here
from agentflow.runners.records import actor_to_json, from_json, object_of
from agentflow.runners.versions import Versions, has_acted
from agentflow.store.protocol import Store
from agentflow.store.rows import RunRow, WaitRow

TRIES = 20  # of a run that changes while it is migrated
A_MOMENT = 0.05  # in seconds: for a worker that has just claimed it, and will find that it does not take it


@record
class Plan:
    """What migrating a run comes to."""

    row: RunRow
    outcome: Outcome | None
    stays: bool
    waits: Sequence[WaitRow]
    problem: str | None

    def line(self, definition: Definition, *, applied: bool) -> MigratedRun:
        """What is told of it."""
        return MigratedRun(
            run=self.row.id,
            version=self.row.version,
            to=definition.version,
            state=self.row.standing.state,
            target=None if self.outcome is None or self.problem else self.outcome.target,
            asks_anew=not self.stays and any(wait.status == "open" for wait in self.waits),
            changes=() if self.outcome is None else self.outcome.changes,
            problem=self.problem,
            applied=applied,
        )


async def migrate_runs(
    known: Versions, definition: Definition, by: By, *, runs: Sequence[str] | None, dry_run: bool, partly: bool
) -> Sequence[MigratedRun]:
    """A line for each run of an older version; nothing is written if one of them has a problem, unless `partly`."""
    rows = await _older_runs(known.store, definition, runs)
    lines = [(await plan_of_run(known, definition, row)).line(definition, applied=False) for row in rows]
    if dry_run or (not partly and any(line.problem for line in lines)):
        return lines
    await known.record(definition)
    return [await _applied(known, definition, row, by) for row in rows]


async def _older_runs(store: Store, definition: Definition, runs: Sequence[str] | None) -> Sequence[RunRow]:
    found = {row.id: row async for row in open_runs(store, definition.name, failed=True)}
    rows = sorted((row for row in found.values() if row.version < definition.version), key=lambda row: row.created_at)
    return rows if runs is None else [row for row in rows if row.id in runs]


async def plan_of_run(known: Versions, definition: Definition, row: RunRow) -> Plan:
    """Try the migrations with a run, and say what else is in the way."""
    waits = await waits_here(known.store, row)
    if row.standing.status == "cancelling" or "cancel" in object_of(row.request):
        return Plan(row, None, True, waits, "it is being cancelled")
    try:
        outcome = await _outcome(known.store, definition, row)
    except CannotMigrate as error:
        return Plan(row, None, True, waits, str(error))
    stays = await _stays(known, definition, row, outcome, waits)
    return Plan(row, outcome, stays, waits, await _problem(known.store, definition, row, outcome, stays, waits))


async def _outcome(store: Store, definition: Definition, row: RunRow) -> Outcome:
    memory: Mapping[str, Any] = from_json(row.standing.memory)
    visits = renamed_visits(definition.renames, memory.get("visits", {}))
    stored = stored_run(row.standing.state, await store.differences(row.id, row.revision), visits)
    return migrated(definition, row.version, stored, store.value)


async def _stays(
    known: Versions, definition: Definition, row: RunRow, outcome: Outcome, waits: Sequence[WaitRow]
) -> bool:
    """Whether the visit goes on: the state is the same, and so is what was asked there."""
    if outcome.target != definition.renames.place(row.standing.state) or outcome.target in definition.ends:
        return False
    if not waits:
        return True
    outline = await known.outline(row.workflow, row.version, row.shape)
    if outline is None or row.standing.state not in outline.states:
        return False
    after = outline_of(definition).states[outcome.target]
    return not list(state_problems(renamed_state(outline.states[row.standing.state], after, definition.renames), after))


async def _problem(
    store: Store, definition: Definition, row: RunRow, outcome: Outcome, stays: bool, waits: Sequence[WaitRow]
) -> str | None:
    decided = next((wait for wait in waits if wait.status == "decided"), None)
    if decided is not None and not stays:
        who = object_of(decided.actor).get("subject", "somebody")
        return (
            f"{who} has decided {decided.outcome} in {decided.state!r}, which would be lost; let version {row.version} "
            "carry it out, or cancel the run"
        )
    is_renamed = stays and outcome.target != row.standing.state
    if is_renamed and await has_acted(store, row):
        return (
            f"this visit of {row.standing.state!r} has begun an effect under that name, which would be repeated as "
            f"{outcome.target!r}; let version {row.version} finish it"
        )
    return None


async def _applied(known: Versions, definition: Definition, row: RunRow, by: By) -> MigratedRun:
    """Write it, planned anew: the contexts of all runs would not fit into memory. One that changes is looked at again."""
    store = known.store
    plan = await plan_of_run(known, definition, row)
    for _ in range(TRIES):
        if plan.problem is not None or plan.outcome is None:
            return plan.line(definition, applied=False)
        carry = Carry(
            event=MIGRATED,
            target=plan.outcome.target,
            kept=plan.outcome.kept,
            stays=plan.stays,
            difference=plan.outcome.difference,
            actor=actor_to_json(by.get("actor")),
            reason=by.get("reason", "") or f"version {plan.row.version} to {definition.version}",
            request=by.get("request"),
        )
        now = store.now()
        if await store.relocate(relocation(definition, plan.row, plan.waits, carry, now)):
            return plan.line(definition, applied=True)
        if plan.row.session is not None:
            await asyncio.sleep(A_MOMENT)
        fresh = await store.run(row.id)
        assert fresh is not None  # runs are not deleted
        if fresh.version >= definition.version or fresh.standing.end is not None:  # somebody was quicker, or it is over
            return plan.line(definition, applied=fresh.version >= definition.version)
        plan = await plan_of_run(known, definition, fresh)
    at_work = " (a worker is at it)" if plan.row.session is not None else ""
    changed = Plan(plan.row, None, plan.stays, plan.waits, f"it changed while it was migrated{at_work}; migrate again")
    return changed.line(definition, applied=False)
