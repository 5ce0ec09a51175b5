"""Forks: a new run that stands where another one stood, with some of its data changed.

What a fork guarantees about people: it begins in a state that its origin stood in, so it never gets past a state that
nobody has decided; a person who was asked there is asked anew. What was decided before is part of the data that the
fork begins with. Where a `protected=True` state is among it, that data cannot be changed any more: the decision was
about what was shown then. Fork at that state's revision instead, and it is decided anew over the changed data.
"""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from agentflow.app.commands import By, command_row, note_refusal
from agentflow.app.lineage import Passed, lineage, visits_of, was_rescued
from agentflow.app.reading import place_of
from agentflow.app.starting import check_run_id
from agentflow.engine.head import Head, failure_from_json
from agentflow.engine.limits import check_size
from agentflow.errors import Conflict, InvalidContext, InvalidInput, NotFound, RequestError
from agentflow.model.check import nearest
from agentflow.model.context import Context, Difference, Kept, describe
from agentflow.model.definition import Definition, StateDefinition
from agentflow.model.source import digest
from agentflow.record import record
from agentflow.runners.carrying import CARRIES
from agentflow.runners.records import actor_to_json, standing_of, to_json
from agentflow.store.protocol import Store
from agentflow.store.rows import Existing, HistoryRow, NewRun, RunRow
from agentflow.store.texts import checked_name

ID_LENGTH = 16


@record
class Asked:
    """What a fork was asked to be."""

    id: str | None
    revision: int
    change: Mapping[str, object]
    effects: Literal["held", "live"]
    by: By


async def fork_run(store: Store, definition: Definition, origin: RunRow, asked: Asked) -> RunRow:
    """Create the fork; repeating it under the same id, or the same `request`, finds the one that was created.

    Raises `NotFound` for a revision that there is not, `InvalidInput` for changes that do not fit, and `Conflict` for an
    id that another run has. What is refused is kept with the origin's commands.
    """
    try:
        new = await _new_run(store, definition, origin, asked)
        reply = await store.create_run(new)
        if isinstance(reply, Existing) and reply.row.fingerprint != new.fingerprint:
            raise Conflict(f"run {new.id!r} exists, and is not this fork of {origin.id!r}; fork under another id")
    except RequestError as error:
        await note_refusal(store, origin.id, "fork", asked.by, str(error))
        raise
    by = By(**asked.by)
    by.setdefault("request", f"fork {new.id}")  # so that a repetition is not kept twice
    why = f"run {new.id!r} from revision {asked.revision}{_changes(asked.change)}, effects {asked.effects}"
    await store.request(command_row(store, origin.id, "fork", by, "applied", why), word=None, wake=False)
    return reply.row


def _changes(change: Mapping[str, object]) -> str:
    return f" with another {', '.join(sorted(change))}" if change else ""


async def _new_run(store: Store, definition: Definition, origin: RunRow, asked: Asked) -> NewRun:
    if origin.group_state is not None:
        raise InvalidInput(
            f"run {origin.id!r} is a branch of run {origin.parent!r}; fork that where it opens the group"
        )
    path = await _path_to(store, definition, origin, asked)
    last = path[-1].row
    kept, difference = await _context_of(store, definition, origin, asked)
    now = store.now()
    head = _head_of(definition, _id_of(origin, asked), path, kept, now)
    return NewRun(
        id=head.run,
        workflow=definition.name,
        version=definition.version,
        shape=definition.shape,
        fingerprint=digest(origin.id, str(asked.revision), asked.effects, difference.text()),
        standing=standing_of(head, now),
        history=_first_row(head, difference, origin, asked, failure=last.failure),
        origin=origin.id,
        origin_revision=asked.revision,
        holds_effects=asked.effects == "held",
        values=difference.blobs,
    )


def _id_of(origin: RunRow, asked: Asked) -> str:
    """The id that was asked for; else one that the same request gets again, or a fresh one."""
    if asked.id is not None:
        return check_run_id(asked.id)
    request = asked.by.get("request")
    checked_name(request or "", "request=")
    return secrets.token_hex(ID_LENGTH // 2) if request is None else digest(origin.id, "fork", request)[:ID_LENGTH]


async def _path_to(store: Store, definition: Definition, origin: RunRow, asked: Asked) -> Sequence[Passed]:
    """What led to the revision. Raises if there is none of that number, or nothing to run from it."""
    revision = asked.revision
    if not 0 <= revision <= origin.revision:
        raise NotFound(f"run {origin.id!r} has the revisions 0 to {origin.revision}, not {revision}")
    path = await lineage(store, origin, revision)
    place = place_of(definition, origin.id, definition.renames.place(path[-1].row.target))
    if place.name in definition.ends:
        raise InvalidInput(
            f"run {origin.id!r} ended at {place.name!r} with revision {revision}: there is nothing to run from there; "
            f"fork an earlier one, 0 to {revision - 1}"
        )
    if asked.change:
        _check_protected(definition, origin, path)
    return path


def _is_protected(state: StateDefinition) -> bool:
    """Whether a decision that counts was taken there, or in one of the branches that met there."""
    return state.spec.protected or any(place.spec.protected for place in state.branch_places)


def _check_protected(definition: Definition, origin: RunRow, path: Sequence[Passed]) -> None:
    """Raise `InvalidInput` if what is to be changed was decided upon in a protected state."""
    for passed in reversed(path):
        name = definition.renames.place(passed.row.source or "")
        source = definition.states.get(name)
        is_gone = source is None and passed.row.actor is not None and passed.row.event not in CARRIES
        if is_gone or (source is not None and _is_protected(source)):  # of what is gone nobody knows any more
            at = f"{passed.run}@{passed.row.revision - 1}"
            raise InvalidInput(
                f"run {origin.id!r}: the protected state {name!r} was decided before this revision, over the data "
                f"as they were; fork {at} with these changes, and it is decided anew"
            )


# --- the context -------------------------------------------------------------------------------------------------


async def _context_of(store: Store, definition: Definition, origin: RunRow, asked: Asked) -> tuple[Kept, Difference]:
    """The context of the fork, whole. Raises `InvalidInput` that names every change that does not fit."""
    plan = definition.context
    before = plan.load(await store.differences(origin.id, asked.revision), store.value)
    context: Context = plan.copy(before)
    if asked.change:
        context = _changed(definition, context, asked.change)
    try:
        kept, difference = plan.keep(Kept({}, {}, {}, 0, store.value), context)
    except InvalidContext as error:
        raise InvalidInput(f"the changed context cannot be stored: {error}") from None
    if (too_large := check_size(definition.limits, kept)) is not None:
        raise InvalidInput(too_large)
    return kept, difference


def _changed(definition: Definition, context: Context, change: Mapping[str, object]) -> Context:
    plan = definition.context
    kind = plan.kind.__name__
    known = [*plan.fields]
    problems = [
        f"{name}: {kind} has no such field{nearest(name, known) or '; it has ' + ', '.join(known)}"
        for name in change
        if name not in known
    ]
    fitting = {name: value for name, value in change.items() if name in known}
    values = {name: getattr(context, name) for name in known}
    changed = context
    try:
        changed = plan.kind.model_validate({**values, **fitting}, by_alias=False, by_name=True)
    except ValidationError as error:
        problems.append(describe(error))
    if problems:
        raise InvalidInput(f"these changes do not fit: {'; '.join(problems)}")
    return changed


# --- the first row -----------------------------------------------------------------------------------------------


def _head_of(definition: Definition, run: str, path: Sequence[Passed], kept: Kept, now: datetime) -> Head:
    """The fork at its start: in the place and visit of its origin, with attempts and limits of its own."""
    last = path[-1].row
    visits = visits_of(definition, path)
    state = definition.renames.place(last.target)
    return Head(
        run=run,
        revision=0,
        status="queued",
        state=state,
        visit=visits[state],
        kept=kept,
        started_at=now,
        entered_at=now,
        cause=failure_from_json(last.failure),
        visits=visits,
        rescued=was_rescued(definition, path),
    )


def _first_row(head: Head, difference: Difference, origin: RunRow, asked: Asked, *, failure: str | None) -> HistoryRow:
    answer: dict[str, Any] = {"run": origin.id, "revision": asked.revision, "changed": sorted(asked.change)}
    if reason := asked.by.get("reason"):
        answer["reason"] = reason
    return HistoryRow(
        revision=0,
        at=head.started_at,
        event="fork",
        source=None,
        outcome=None,
        target=head.state,
        visit=0,
        attempt=0,
        duration_ms=None,
        difference=difference.text(),
        answer=to_json(answer),
        failure=failure,
        actor=actor_to_json(asked.by.get("actor")),
    )
