"""From stored rows to what the verbs answer: snapshots, history, and why a run is where it is."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from agentflow.engine.head import failure_from_json
from agentflow.errors import IncompatibleDefinition, NotFound
from agentflow.model.definition import Definition
from agentflow.model.states import Place
from agentflow.model.values import Failure
from agentflow.model.views import Revision, Snapshot, Wait, Why, Worker
from agentflow.runners.contexts import load_context
from agentflow.runners.records import actor_of, from_json, is_over_limit, object_of
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, AttemptRow, GroupRow, HistoryRow, RunRow, WaitRow

MANY_BRANCHES = 5  # more are counted, not named


async def read_snapshot(store: Store, definition: Definition, row: RunRow) -> Snapshot[Any]:
    """The run as it is now."""
    kept = await load_context(store, definition, row)
    standing = row.standing
    failure = failure_from_json(standing.failure)
    waits = await open_waits(store, row) if standing.status not in TERMINAL else ()
    return Snapshot(
        id=row.id,
        revision=row.revision,
        status=standing.status,
        paused=row.paused,
        blocked=standing.blocked,
        state=place_of(definition, row.id, standing.state),
        end=definition.ends[standing.end] if standing.end is not None else None,
        context=definition.context.copy(kept, failure),
        failure=failure,
        waits=tuple(wait_of(wait) for wait in waits),
    )


async def read_revision(store: Store, definition: Definition, row: RunRow, revision: int) -> Snapshot[Any]:
    """The run as it was at a revision. Raises `NotFound` if it has none of that number."""
    rows = await store.history(row.id, after=revision - 1, limit=1)
    if revision < 0 or not rows or rows[0].revision != revision:
        raise NotFound(f"run {row.id!r} has the revisions 0 to {row.revision}, not {revision}")
    then = rows[0]
    target = definition.renames.place(then.target)
    kept = await load_context(store, definition, row, revision)
    end = definition.ends.get(target)
    failure = failure_from_json(then.failure)
    return Snapshot(
        id=row.id,
        revision=revision,
        status="running" if end is None else "failed" if end.failed else "completed",
        paused=False,
        blocked=None,
        state=place_of(definition, row.id, target),
        end=end,
        context=definition.context.copy(kept, failure),
        failure=failure,
        waits=(),
    )


async def read_workers(store: Store) -> Sequence[Worker]:
    """Worker sessions that have not ended, oldest first."""
    now = store.now()
    return [
        Worker(
            id=row.id,
            name=row.name,
            since=row.started_at,
            alive=row.lease_until > now,
            lease=max(row.lease_until - now, timedelta(0)),
            runs=tuple(row.runs),
        )
        for row in sorted(await store.sessions(), key=lambda row: row.started_at)
    ]


async def open_waits(store: Store, row: RunRow) -> Sequence[WaitRow]:
    """The open questions of a run and of its branches."""
    found = list(await store.waits(run=row.id, status="open"))
    for branch in await unsettled_branches(store, row):
        found += await open_waits(store, branch)
    return found


async def unsettled_branches(store: Store, row: RunRow) -> Sequence[RunRow]:
    """The branches that a run waits for."""
    standing = row.standing
    branches = await store.branches(row.id, standing.state, standing.visit)
    return [branch for branch in branches if branch.standing.status not in TERMINAL]


def place_of(definition: Definition, run: str, name: str) -> Place[Any]:
    """The place of that name. Raises `IncompatibleDefinition` if the definition at hand has none."""
    if name not in definition.states and name not in definition.ends:
        raise IncompatibleDefinition(
            f"run {run!r} stands in {name!r}, which workflow {definition.name!r} version {definition.version} "
            "does not have"
        )
    return definition.place(name)


def wait_of(row: WaitRow) -> Wait:
    """An open question."""
    shown = object_of(row.shown)
    return Wait(
        id=row.id,
        run=row.run,
        state=row.state,
        question=row.question,
        outcomes=row.outcomes,
        due=row.due_at,
        evidence=shown.get("evidence"),
        form=shown.get("form"),
        suggest=shown.get("suggest"),
        roles=row.roles,
        opened=row.opened_at,
    )


def revision_of(row: HistoryRow) -> Revision:
    """A line of history."""
    answer: Mapping[str, Any] | None = from_json(row.answer)
    failure = failure_from_json(row.failure)
    counted = [count for count in (row.tokens_in, row.tokens_out) if count is not None]
    return Revision(
        number=row.revision,
        at=row.at,
        source=row.source or "",
        outcome=row.outcome,
        target=row.target,
        guards=dict(from_json(row.guards) or []),
        reason=_reason_of_fork(answer) if row.event == "fork" else _reason(answer, failure),
        actor=actor_of(from_json(row.actor)),
        cost=None if row.cost is None else Decimal(row.cost),
        event=row.event.partition(":")[0],
        visit=row.visit,
        attempt=row.attempt,
        duration=None if row.duration_ms is None else row.duration_ms / 1000,
        difference=from_json(row.difference),
        answer=answer,
        failure=failure,
        model=row.model,
        tokens=sum(counted) if counted else None,
        prompt=row.prompt,
        code=row.code,
    )


def _reason_of_fork(answer: Mapping[str, Any] | None) -> str:
    """Whose fork a run is, what was changed, and why."""
    told = answer or {}
    changed = f", changed {', '.join(told['changed'])}" if told.get("changed") else ""
    reason = f": {told['reason']}" if told.get("reason") else ""
    return f"fork of {told.get('run')}@{told.get('revision')}{changed}{reason}"


def _reason(answer: Mapping[str, Any] | None, failure: Failure | None) -> str:
    if answer is not None:
        return str(answer.get("reason") or answer.get("skipped") or "")
    return f"{failure.kind}: {failure.message}" if failure is not None else ""


# --- why ---------------------------------------------------------------------------------------------------------


async def read_why(store: Store, row: RunRow) -> Why:
    """What the run waits for, or why it ended as it did."""
    standing = row.standing
    attempts = await store.attempts(row.id)
    if standing.status in TERMINAL:
        return Why(await _why_over(store, row), None)
    if row.paused:
        return Why(await _why_paused(store, row), None)
    if is_over_limit(standing):
        return Why(
            f"blocked in {standing.state} by a limit: {standing.blocked}. `resume` goes on, with it raised", None
        )
    if standing.blocked is not None:
        told = f"blocked in {standing.state}: {standing.blocked}"
        if standing.due_at is None:
            return Why(f"{told}. Nothing wakes it but a command", None)
        return Why(f"{told}; looked at again {_when(standing.due_at)}", "timer")
    if standing.status == "waiting":
        group = await store.group(row.id, standing.state, standing.visit)
        if group is not None:
            return Why(_why_branches(standing.state, group, await unsettled_branches(store, row)), "group")
        waits = await store.waits(run=row.id, status="open")
        return Why(_why_waiting(standing.state, waits), "wait")
    if row.session is not None:
        return Why(
            f"a worker is at work in {standing.state} (visit {standing.visit})" + _tries(attempts, row), "session"
        )
    if standing.due_at is not None and standing.due_at > store.now():
        return Why(f"tries {standing.state} again {_when(standing.due_at)}" + _tries(attempts, row), "timer")
    return Why(f"queued in {standing.state}: due now, no worker has taken it yet" + _tries(attempts, row), "timer")


async def _why_paused(store: Store, row: RunRow) -> str:
    commands = [command for command in await store.commands(row.id) if command.command == "pause"]
    who = object_of(commands[-1].actor).get("subject", "somebody") if commands else "somebody"
    reason = f": {commands[-1].reason}" if commands and commands[-1].reason else ""
    where = f"is at work in {row.standing.state} until its body is done" if row.session else f"in {row.standing.state}"
    blocked = f", and blocked: {row.standing.blocked}" if row.standing.blocked else ""
    return f"paused {where} by {who}{reason}{blocked}. `resume` goes on"


def _why_branches(state: str, group: GroupRow, unsettled: Sequence[RunRow]) -> str:
    counts = ", ".join(
        f"{count} {word}"
        for word, count in (("done", group.done), ("failed", group.failed), ("stopped", group.stopped))
        if count
    )
    first = ", ".join(f"{row.id} ({_briefly(row)})" for row in unsettled[:MANY_BRANCHES])
    more = f" and {len(unsettled) - MANY_BRANCHES} more" if len(unsettled) > MANY_BRANCHES else ""
    told = f"waits in {state} for {len(unsettled)} of {group.total} branches"
    return f"{told}{f' ({counts})' if counts else ''}: {first}{more}" if unsettled else f"{told}, and is about to go on"


def _briefly(row: RunRow) -> str:
    if row.awaits:
        return "not begun"
    if row.standing.blocked is not None:
        return f"blocked in {row.standing.state}"
    return f"{'paused' if row.paused else row.standing.status} in {row.standing.state}"


def _why_waiting(state: str, waits: Sequence[WaitRow]) -> str:
    if not waits:
        return f"waits in {state}, and is about to go on"
    wait = waits[0]
    roles = f" with role {' or '.join(wait.roles)}" if wait.roles else ""
    due = f"; expires {_when(wait.due_at)}" if wait.due_at is not None else "; never expires"
    return f"waits in {state} for a person{roles} to answer {' or '.join(wait.outcomes)}{due}. Wait id: {wait.id}"


async def _why_over(store: Store, row: RunRow) -> str:
    standing = row.standing
    if standing.status == "cancelled":
        commands = [command for command in await store.commands(row.id) if command.command == "cancel"]
        who = object_of(commands[-1].actor).get("subject", "somebody") if commands else "somebody"
        reason = f": {commands[-1].reason}" if commands and commands[-1].reason else ""
        return f"cancelled in {standing.state} by {who}{reason}"
    if standing.status == "failed" and standing.end is None:
        failure = failure_from_json(standing.failure)
        told = f"{failure.kind}: {failure.message}" if failure is not None else "for an unknown reason"
        return f"failed in {standing.state}: {told}. `retry` goes on from there"
    lines = await store.history(row.id)
    path = [_told(line) for line in lines[1:] if _decides(line, lines[-1])]
    return "\n  ".join([f"ended at {standing.end}", *path])


def _decides(line: HistoryRow, last: HistoryRow) -> bool:
    """Whether a transition could have gone another way, so that the reader wants to know why it did not."""
    return line is last or line.outcome is not None or line.guards is not None or line.failure is not None


def _told(row: HistoryRow) -> str:
    """One transition in words."""
    line = revision_of(row)
    who = f" by {line.actor.subject}" if line.actor is not None else f" by {line.model}" if line.model else ""
    told = f"{line.source} {f'answered {line.outcome}' if line.outcome else _EVENTS.get(line.event, line.event)}{who}"
    if line.guards:
        told += " (" + ", ".join(f"{'' if result else 'not '}{name}" for name, result in line.guards.items()) + ")"
    return f'{told} "{line.reason}"' if line.reason else told


_EVENTS = {"done": "was done", "failed": "failed", "expired": "expired"}


def _tries(attempts: Sequence[AttemptRow], row: RunRow) -> str:
    here = [
        attempt for attempt in attempts if attempt.state == row.standing.state and attempt.visit == row.standing.visit
    ]
    if not here:
        return ""
    failure = failure_from_json(here[-1].failure)
    told = f", last {failure.kind}: {failure.message}" if failure is not None else ""
    return f"; {len(here)} attempt{'s' if len(here) > 1 else ''} did not succeed{told}"


def _when(instant: datetime | None) -> str:
    return "at an unknown time" if instant is None else f"at {instant:%Y-%m-%d %H:%M:%S} UTC"
