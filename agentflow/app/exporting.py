"""A run as one document: all that is stored about it, for a bug report, an archive or another tool.

It is read from the rows alone, so a run of any workflow and version can be exported, whatever the code at hand. Its
form is versioned by `v`; names and order of its keys stay as they are within a version.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from agentflow.model.definition import Definition
from agentflow.runners.records import from_json
from agentflow.store.protocol import Store
from agentflow.store.rows import RunRow

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
        "definition": _definition(definition, row),
        "context": context_at(await store.differences(row.id, row.revision)),
        "history": [_plain(line) for line in history],
        "attempts": [_plain(attempt) for attempt in await store.attempts(row.id)],
        "effects": [_plain(effect) for effect in await store.effects(run=row.id)],
        "waits": [
            _plain(wait, keep=REQUEST_ID) for wait in await store.waits(run=row.id, status=None, limit=row.revision + 2)
        ],
        "commands": [_plain(command, keep=REQUEST_ID) for command in await store.commands(row.id)],
    }


def _run(row: RunRow) -> dict[str, Any]:
    found = _plain(row)
    standing = _plain(row.standing)
    found.pop("standing")
    return {**found, **standing}


def _definition(definition: Definition | None, row: RunRow) -> dict[str, Any]:
    """Which workflow it was started under, and what the code at hand has of it."""
    at_hand = None
    if definition is not None:
        codes = {name: state.code for name, state in definition.states.items()}
        at_hand = {"shape": definition.shape, "code": definition.code, "states": codes}
    return {"workflow": row.workflow, "version": row.version, "shape_at_start": row.shape, "at_hand": at_hand}


def _plain(row: Any, *, keep: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A row as JSON values, in the order of its columns; stored JSON becomes what it says."""
    found: dict[str, Any] = {}
    for column in fields(row):
        value = getattr(row, column.name)
        if column.name not in OF_OTHERS:
            is_text = column.name in JSON_TEXT and column.name not in keep
            found[column.name] = from_json(value) if is_text else value
    return found


def context_at(differences: Iterable[str]) -> dict[str, Any]:
    """The context that stored differences lead to, as JSON values, whatever its class is today."""
    values: dict[str, Any] = {}
    for text in differences:
        difference: dict[str, Any] = from_json(text)
        values.update(difference.get("set", {}))
        for name, items in difference.get("add", {}).items():
            values[name] = [*values.get(name, []), *items]
    return values
