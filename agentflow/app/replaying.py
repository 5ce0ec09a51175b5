"""Replays: what the code at hand would have made of a recorded run's answers.

Bodies are not run, models are not asked and effects are not executed. Each recorded transition gives its outcome and
its difference; the machine and the guards of today decide where it leads.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentflow.app.lineage import lineage, visits_of, was_rescued
from agentflow.app.reading import revision_of
from agentflow.engine.advance import Advance, advance, next_commands
from agentflow.engine.commands import FailState
from agentflow.engine.events import Answered, BodyFailed, Event, Expired, GiveUp
from agentflow.engine.head import Head, failure_from_json
from agentflow.errors import InvalidContext
from agentflow.model.context import Difference, Kept
from agentflow.model.definition import Definition
from agentflow.model.views import Judged, Replayed
from agentflow.record import record
from agentflow.runners.carrying import ADOPTED, RENAMED
from agentflow.runners.contexts import load_context
from agentflow.store.protocol import Store
from agentflow.store.rows import HistoryRow, RunRow


@record
class Verdict:
    """Where a recorded transition leads now: `head` is the run after it, None where the two ways part."""

    head: Head | None
    target: str | None
    guards: Mapping[str, bool]
    why: str = ""


async def replay_run(store: Store, definition: Definition, row: RunRow) -> Replayed:
    """Judge every recorded transition, up to the first that leads elsewhere."""
    recorded = [line for line in await store.history(row.id) if line.revision <= row.revision]
    lines = [_in_names_of_now(definition, line) for line in recorded if line.event not in {RENAMED, ADOPTED}]
    difference: Judged | None = None
    guards: list[Judged] = []
    checked = 0
    try:
        head = await _first_head(store, definition, row, lines[0])
    except InvalidContext as error:  # the context's class no longer takes what was stored
        head, difference = None, Judged(revision_of(lines[0]), None, {}, str(error))
    for line in lines[1:]:
        if head is None:
            break
        verdict = _judge(definition, head, line)
        judged = Judged(revision_of(line), verdict.target, verdict.guards, verdict.why)
        head = verdict.head
        if head is None:
            difference = judged
        else:
            checked += 1
            guards += [judged] if dict(verdict.guards) != dict(judged.then.guards) else []
    return Replayed(
        run=row.id,
        version=definition.version,
        same=difference is None,
        checked=checked,
        difference=difference,
        guards=tuple(guards),
        gone=tuple(_gone(definition, lines)),
        changed=tuple(_changed(definition, lines)),
    )


def _in_names_of_now(definition: Definition, line: HistoryRow) -> HistoryRow:
    """The line with the names that the definition says are those of today."""
    renames = definition.renames
    source = None if line.source is None else renames.place(line.source)
    event, _, member = line.event.partition(":")
    now = f"{event}:{renames.member(source or '', member)}" if member else line.event
    return replace(line, source=source, target=renames.place(line.target), event=now)


async def _first_head(store: Store, definition: Definition, row: RunRow, first: HistoryRow) -> Head:
    """The run as it started; of a fork, with what it took over from its origin."""
    path = (await lineage(store, row, 0)) if row.origin is not None else ()
    kept = await load_context(store, definition, row, 0)
    visits = visits_of(definition, path) if path else {first.target: 1}
    return Head(
        run=row.id,
        revision=0,
        status="running",
        state=first.target,
        visit=visits.get(first.target, 1),
        kept=kept,
        started_at=first.at,
        entered_at=first.at,
        cause=failure_from_json(first.failure),
        visits=visits,
        rescued=was_rescued(definition, path),
    )


# --- one transition ----------------------------------------------------------------------------------------------


def _judge(definition: Definition, head: Head, line: HistoryRow) -> Verdict:
    """Let the machine of today decide over a recorded answer."""
    if (missing := _missing(definition, line)) is not None:
        return Verdict(None, None, {}, missing)
    try:
        kept, difference = definition.context.apply(head.kept, line.difference)
    except InvalidContext as error:
        return Verdict(None, None, {}, f"the recorded change no longer fits the context: {error}")
    command = next_commands(definition, head)[0]
    if isinstance(command, FailState) and line.event != "failed":
        refused = BodyFailed(line.at, command.failure, GiveUp())
        step = advance(definition, head, refused)
        return _verdict(step, line, f"today the state is not worked on: {command.failure.message}")
    return _verdict(advance(definition, head, _event(line, kept, difference)), line, "")


def _missing(definition: Definition, line: HistoryRow) -> str | None:
    """What the transition needs and the workflow no longer has."""
    state = definition.states.get(line.source or "")
    if state is None:
        return f"there is no state {line.source!r} any more"
    if line.event.startswith("on:"):
        member = line.event.removeprefix("on:")
        if state.spec.outcome is None or member not in state.spec.outcome.__members__:
            return f"state {state.name!r} no longer answers {member}"
    elif line.event not in {"done", "failed", "expired"}:
        return f"it was put there by hand ({line.event}), which no row of the table says"
    return None


def _event(line: HistoryRow, kept: Kept, difference: Difference) -> Event:
    if line.event == "expired":
        return Expired(line.at)
    failure = failure_from_json(line.failure)
    if line.event == "failed" and failure is not None:
        return BodyFailed(line.at, failure, GiveUp())
    member = line.event.removeprefix("on:") if line.event.startswith("on:") else None
    return Answered(line.at, member, kept, difference, skipped=line.outcome == "skipped")


def _verdict(step: Advance, line: HistoryRow, why: str) -> Verdict:
    if step.move is None:
        failure = step.head.failure
        told = "no row takes it" if failure is None else f"{failure.kind}: {failure.message}"
        return Verdict(None, None, {}, why or f"today the run ends failed here: {told}")
    guards = dict(step.move.guards)
    if step.move.target != line.target:
        return Verdict(None, step.move.target, guards, why)
    head = replace(step.head, status="running") if step.head.end is None else step.head
    return Verdict(head, step.move.target, guards)


# --- what has changed --------------------------------------------------------------------------------------------


def _gone(definition: Definition, lines: list[HistoryRow]) -> list[str]:
    """States, ends and members that are no more, each once, in the order in which the run met them."""
    found: dict[str, None] = {}
    for line in lines:
        for name in (line.source, line.target):
            if name is not None and name not in definition.states and name not in definition.ends:
                found[name] = None
        state = definition.states.get(line.source or "")
        member = line.event.partition(":")[2]
        enum: Any = None if state is None else state.spec.outcome
        if member and state is not None and (enum is None or member not in enum.__members__):
            found[f"{state.name}.{member}"] = None
    return list(found)


def _changed(definition: Definition, lines: list[HistoryRow]) -> list[str]:
    """States whose code is another now than when the run left them."""
    names = dict.fromkeys(line.source for line in lines if line.source in definition.states and line.code is not None)
    latest = {line.source: line.code for line in lines if line.code is not None}
    return [name for name in names if name is not None and definition.states[name].code != latest[name]]
