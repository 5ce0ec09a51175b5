"""A run as one document: all that is stored about it, for a bug report, an archive or another tool.

It is read from the rows alone, so a run of any workflow and version can be exported, whatever the code at hand. Its
form is versioned by `v`; names and order of its keys stay as they are within a version.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from agentflow.model.definition import Definition
from agentflow.model.folding import stored_context
from agentflow.runners.records import from_json
from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter, RunRow

FORM = 1
JSON_TEXT = frozenset(
    {"difference", "guards", "answer", "failure", "actor", "shown", "data", "result", "memory", "request"}
)
REQUEST_ID = frozenset({"request"})  # elsewhere a plain id, on a run what a command asks of it
OF_OTHERS = frozenset({"token", "session"})  # who holds the run at this moment says nothing about it later


async def export_run(store: Store, definition: Definition | None, row: RunRow) -> Mapping[str, Any]:
    """The document of a run, up to the revision of its row; what is committed meanwhile is left out."""
    history = [line for line in await store.history(row.id) if line.revision <= row.revision]
    return {
        "v": FORM,
        "run": _run(row),
        "definition": _definition(definition, row) | {"outline": await _outline(store, row)},
        "context": stored_context(await store.differences(row.id, row.revision)),
        "history": [_plain(line) for line in history],
        "attempts": [_plain(attempt) for attempt in await store.attempts(row.id)],
        "effects": [_plain(effect) for effect in await store.effects(run=row.id)],
        "waits": [
            _plain(wait, keep=REQUEST_ID) for wait in await store.waits(run=row.id, status=None, limit=row.revision + 2)
        ],
        "commands": [_plain(command, keep=REQUEST_ID) for command in await store.commands(row.id)],
        "branches": [
            {"id": one.id, "status": one.standing.status, "group": one.group_state, "visit": one.group_visit}
            for one in await _branches(store, row)
        ],
    }


async def _branches(store: Store, row: RunRow) -> Sequence[RunRow]:
    """Runs of their own, each to be exported by itself: first those that were begun first."""
    count = await store.count_runs(RunFilter(parent=row.id))
    return list(reversed(await store.runs(RunFilter(parent=row.id, limit=count)))) if count else ()


def _run(row: RunRow) -> dict[str, Any]:
    found = _plain(row)
    standing = _plain(row.standing)
    found.pop("standing")
    return {**found, **standing}


async def _outline(store: Store, row: RunRow) -> Any:
    """What the workflow was under which it stands, None if nobody recorded that."""
    known = await store.definitions(row.workflow)
    found = (from_json(one.outline) for one in known if (one.version, one.shape) == (row.version, row.shape))
    return next(found, None)


def _definition(definition: Definition | None, row: RunRow) -> dict[str, Any]:
    """Which workflow it stands under, and what the code at hand has of it."""
    at_hand = None
    if definition is not None:
        codes = {name: state.code for name, state in definition.states.items()}
        at_hand = {"shape": definition.shape, "code": definition.code, "states": codes}
    return {"workflow": row.workflow, "version": row.version, "shape": row.shape, "at_hand": at_hand}


def _plain(row: Any, *, keep: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A row as JSON values, in the order of its columns; stored JSON becomes what it says."""
    found: dict[str, Any] = {}
    for column in fields(row):
        value = getattr(row, column.name)
        if column.name not in OF_OTHERS:
            is_text = column.name in JSON_TEXT and column.name not in keep
            found[column.name] = from_json(value) if is_text else value
    return found
