"""What a definition is, as data: kept beside the runs, so that later code can tell what they were started under.

An outline is made from a `Definition` and travels as JSON. It holds what a stored run depends on (kinds, members, ways
out, guards, forms, the context's schema) and digests of the rest.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentflow.model.definition import Definition, StateDefinition, context_outline, form_of
from agentflow.model.source import schema_text
from agentflow.record import record

__all__ = ["ContextOutline", "Outline", "StateOutline", "WayOut", "outline_from", "outline_of"]


@record
class WayOut:
    """One row of the table, seen from its source."""

    event: str
    outcomes: tuple[str, ...]
    failures: tuple[str, ...]
    guards: tuple[str, ...]
    target: str

    @property
    def label(self) -> str:
        """What must happen for it to be taken, in words."""
        failures = ", ".join(name.rpartition(".")[2] for name in self.failures)
        what = {
            "on": " | ".join(self.outcomes),
            "failed": f"failed({failures})" if failures else "failed",
            "done": "",
        }.get(self.event, self.event)
        return " ".join(part for part in (what, f"[{' and '.join(self.guards)}]" if self.guards else "") if part)

    def __str__(self) -> str:
        return f"{self.label} -> {self.target}".lstrip()


@record
class StateOutline:
    """One state."""

    name: str
    kind: str
    members: tuple[tuple[str, str], ...] | None  # names and values, the values as text
    ways: tuple[WayOut, ...]
    form: Mapping[str, Any] | None  # JSON Schema
    shape: str
    code: str
    prompt: str | None  # digest
    model: str | None


@record
class ContextOutline:
    """The run's data: its schema by the names that are stored, and which fields are `Append`."""

    schema: Mapping[str, Any]
    appends: tuple[str, ...]

    @property
    def fields(self) -> Mapping[str, Any]:
        """The schema of each field."""
        found: Mapping[str, Any] = self.schema.get("properties", {})
        return found

    @property
    def required(self) -> frozenset[str]:
        """Fields without a default."""
        return frozenset(self.schema.get("required", ()))


@record
class Outline:
    """A workflow at one version and shape."""

    name: str
    version: int
    shape: str
    code: str
    start: str
    states: Mapping[str, StateOutline]
    ends: Mapping[str, bool]  # and whether an end is a failed one
    rescues: tuple[WayOut, ...]
    context: ContextOutline

    def text(self) -> str:
        """The stored form."""
        return json.dumps(_plain(self), sort_keys=True)


def outline_of(definition: Definition) -> Outline:
    """The outline of a definition; made once for each."""
    found = definition.engine_cache.get("outline")
    if found is None:
        found = definition.engine_cache["outline"] = _outline(definition)
    made: Outline = found
    return made


def _outline(definition: Definition) -> Outline:
    return Outline(
        name=definition.name,
        version=definition.version,
        shape=definition.shape,
        code=definition.code,
        start=definition.start,
        states={name: _state(state) for name, state in definition.states.items()},
        ends={end.name: end.failed for end in definition.ends.values()},
        rescues=tuple(_way(way) for way in definition.ways_of_rescues),
        context=_context(context_outline(definition.context)),
    )


def _state(state: StateDefinition) -> StateOutline:
    enum = state.spec.outcome
    return StateOutline(
        name=state.name,
        kind=state.kind,
        members=None if enum is None else tuple((member.name, str(member.value)) for member in enum),
        ways=tuple(_way(way) for way in state.ways),
        form=json.loads(schema_text(form_of(state.spec))),
        shape=state.shape,
        code=state.code,
        prompt=None if state.prompt is None else state.prompt.digest,
        model=state.spec.model or (state.prompt.model if state.prompt else None),
    )


def _way(way: Any) -> WayOut:
    event, outcomes, failures, guards, target = way
    return WayOut(event, tuple(outcomes), tuple(failures), tuple(guards), target)


def _context(raw: Mapping[str, Any]) -> ContextOutline:
    return ContextOutline(raw["schema"], tuple(raw["appends"]))


# --- as JSON -----------------------------------------------------------------------------------------------------


def _plain(outline: Outline) -> dict[str, Any]:
    return {
        "name": outline.name,
        "version": outline.version,
        "shape": outline.shape,
        "code": outline.code,
        "start": outline.start,
        "states": [_plain_state(state) for state in outline.states.values()],  # a list: the table's order is kept
        "ends": [[name, failed] for name, failed in outline.ends.items()],
        "rescues": [_plain_way(way) for way in outline.rescues],
        "context": {"schema": outline.context.schema, "appends": outline.context.appends},
    }


def _plain_state(state: StateOutline) -> dict[str, Any]:
    return {
        "name": state.name,
        "kind": state.kind,
        "members": state.members,
        "ways": [_plain_way(way) for way in state.ways],
        "form": state.form,
        "shape": state.shape,
        "code": state.code,
        "prompt": state.prompt,
        "model": state.model,
    }


def _plain_way(way: WayOut) -> list[Any]:
    return [way.event, way.outcomes, way.failures, way.guards, way.target]


@lru_cache(maxsize=256)
def outline_from(text: str) -> Outline:
    """An outline from its stored form."""
    raw: dict[str, Any] = json.loads(text)
    states = (_state_from(state) for state in raw["states"])
    return Outline(
        name=raw["name"],
        version=raw["version"],
        shape=raw["shape"],
        code=raw["code"],
        start=raw["start"],
        states={state.name: state for state in states},
        ends=dict(raw["ends"]),
        rescues=tuple(_way(way) for way in raw["rescues"]),
        context=_context(raw["context"]),
    )


def _state_from(raw: dict[str, Any]) -> StateOutline:
    members = raw["members"]
    return StateOutline(
        name=raw["name"],
        kind=raw["kind"],
        members=None if members is None else tuple((name, value) for name, value in members),
        ways=tuple(_way(way) for way in raw["ways"]),
        form=raw["form"],
        shape=raw["shape"],
        code=raw["code"],
        prompt=raw["prompt"],
        model=raw["model"],
    )
