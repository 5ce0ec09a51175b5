"""A closed workflow: what the engine needs to move a run, and what tells two versions apart.

*Shape* is what a stored run depends on: kind, enum members, ways out, guard names, form, context schema. *Code* is the
rest: bodies, guards, prompts, models. A run goes on when its shape is unchanged; code is recorded and shown.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from agentflow.model.check import Draft, Found
from agentflow.model.context import ContextPlan, plan_of
from agentflow.model.groups import region_of, ways_of, with_openings
from agentflow.model.migrations import Migration, Renames
from agentflow.model.prompts import Prompt
from agentflow.model.source import code_digest, digest, schema_text
from agentflow.model.states import Branching, End, EventKind, Fork, Item, Kind, Place, Spec, State, Transition
from agentflow.model.values import Limits, full_name

DEFAULT_TRANSITIONS = 10_000
DEFAULT_CONTEXT_BYTES = 1024 * 1024


class StateDefinition:
    """One state, with what can happen in it."""

    def __init__(
        self,
        place: "State[Any] | Item[Any, Any, Any] | Fork[Any]",
        rows: Sequence[Transition[Any]],
        prompt: Prompt | None,
    ) -> None:
        keeps: list[Callable[..., None]] = getattr(place, "keeps", [])
        self.name: str = place.name
        self.place: Any = place
        self.spec: Spec = place.spec
        self.branching: Branching | None = getattr(place, "branching", None)
        self.body: Callable[..., Any] = getattr(place, "body", _no_body)
        self.is_async = inspect.iscoroutinefunction(self.body)
        self.keep: Callable[..., None] | None = keeps[0] if keeps else None
        self.prompt = prompt
        self.rows = tuple(rows)
        self.branch_places: tuple[Any, ...] = ()  # of a group: all states in which its branches may stand

    @property
    def kind(self) -> Kind:
        return self.spec.kind

    @property
    def heads(self) -> tuple[str, ...]:
        """Where the branches of a group begin; of any other state there are none."""
        return () if self.branching is None else tuple(head.name for head in self.branching.heads)

    @property
    def leads_on(self) -> bool:
        """Whether an answer has a way on; else a branch settles here."""
        return any(row.exit.event in {"done", "on"} for row in self.rows)

    def rows_on(self, event: EventKind) -> tuple[Transition[Any], ...]:
        """The rows for one kind of event, in table order."""
        return tuple(row for row in self.rows if row.exit.event == event)

    def outcome_named(self, name: str | None) -> Enum | None:
        """The member that a stored name stands for."""
        return None if name is None or self.spec.outcome is None else self.spec.outcome[name]

    @cached_property
    def shape(self) -> str:
        """A digest of what a run that stands here depends on."""
        members = [[m.name, m.value] for m in self.spec.outcome] if self.spec.outcome else None
        form = schema_text(form_of(self.spec))
        parts: list[Any] = [self.name, self.kind, members, self.ways, form]
        if self.branching is not None:
            parts += [self.branching.kind, [head.name for head in self.branching.heads], self.branching.mode]
        return digest(json.dumps(parts, default=str))

    @property
    def ways(self) -> list[list[Any]]:
        """The rows as plain data: event, outcomes, failures, guards, target."""
        return [_way(row) for row in self.rows]

    @cached_property
    def code(self) -> str:
        """A digest of the code that decides here: body, `.store`, guards, prompt, model."""
        told = self.branching
        kept = (self.keep, self.spec.undo, None if told is None else told.items, None if told is None else told.key)
        functions = [self.body, *(function for function in kept if function is not None)]
        functions += _guards(self.rows)
        prompt = self.prompt.digest if self.prompt else ""
        return digest(*(code_digest(function) for function in functions), prompt, self.spec.model or "")


def _no_body() -> None:
    """A group has none."""


def _guards(rows: Sequence[Transition[Any]]) -> list[Callable[..., Any]]:
    return [guard for row in rows for guard in row.exit.guards]


def _way(row: Transition[Any]) -> list[Any]:
    exit = row.exit
    outcomes = [outcome.name for outcome in exit.outcomes]
    failures = [full_name(kind) for kind in exit.failures]
    return [exit.event, outcomes, failures, [guard_name(guard) for guard in exit.guards], row.target.name]


def guard_name(guard: Callable[..., Any]) -> str:
    """The name under which history shows a guard."""
    return getattr(guard, "__name__", repr(guard))


def form_of(spec: Spec) -> dict[str, Any] | None:
    """JSON Schema of the data that comes with an answer, None if there is none."""
    answer = spec.answer
    return answer.model_json_schema() if isinstance(answer, type) and issubclass(answer, BaseModel) else None


DECIMAL_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "max_digits", "decimal_places")


class StoredSchema(GenerateJsonSchema):
    """JSON Schema of what is stored: a `Decimal` is text of its own kind, not any number or any text."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        """With its bounds as text."""
        given: dict[str, Any] = {**schema}
        bounds = {name: str(given[name]) for name in DECIMAL_BOUNDS if given.get(name) is not None}
        return {"type": "string", "format": "decimal", **bounds}


def context_outline(plan: ContextPlan[Any]) -> dict[str, Any]:
    """What stored contexts depend on: their schema by the names that are stored, and which fields only grow."""
    schema = json.loads(schema_text(plan.kind.model_json_schema(by_alias=False, schema_generator=StoredSchema)))
    return {"schema": schema, "appends": sorted(name for name, field in plan.fields.items() if field.append)}


@dataclass(frozen=True)
class Definition:
    """A closed workflow."""

    name: str
    version: int
    context: ContextPlan[Any]
    services: type[Any] | None
    states: Mapping[str, StateDefinition]
    ends: Mapping[str, End[Any]]
    rows: tuple[Transition[Any], ...]
    rescues: tuple[Transition[Any], ...]
    start: str
    limits: Limits
    warnings: tuple[str, ...]
    workflow: Any = field(repr=False)
    renames: Renames = field(default_factory=Renames)
    engine_cache: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    def place(self, name: str) -> Place[Any]:
        """The state or end of that name."""
        return self.ends[name] if name in self.ends else self.states[name].place

    @cached_property
    def shape(self) -> str:
        """A digest of all that stored runs depend on."""
        states = [state.shape for _, state in sorted(self.states.items())]
        ends = [f"{end.name}:{end.failed}" for _, end in sorted(self.ends.items())]
        rescues = json.dumps(self.ways_of_rescues)
        context = json.dumps(context_outline(self.context), sort_keys=True)
        return digest(self.name, str(self.version), context, *states, *ends, rescues)

    @property
    def migrations(self) -> Mapping[int, Migration]:
        """How runs of older versions come under this one, by the version that each step starts from."""
        registered: list[Migration] = self.workflow.migrations
        return {migration.from_version: migration for migration in registered}

    @property
    def ways_of_rescues(self) -> list[list[Any]]:
        """The rows of `workflow.failed` as plain data."""
        return [_way(row) for row in self.rescues]

    @cached_property
    def code(self) -> str:
        """A digest of all code."""
        states = [state.code for _, state in sorted(self.states.items())]
        return digest(*states, *(code_digest(guard) for guard in _guards(self.rescues)))


def transition_limit(limits: Limits) -> int:
    """How many transitions a run may make."""
    return limits.transitions or DEFAULT_TRANSITIONS


def context_limit(limits: Limits) -> int:
    """How many bytes a run's context may have."""
    return limits.context_bytes or DEFAULT_CONTEXT_BYTES


def compile_definition(draft: Draft, found: Found) -> Definition:
    """Close a draft in which no errors were found."""
    workflow = draft.workflow
    table = tuple(with_openings(draft.rows))
    ways = ways_of(table)
    states: dict[str, StateDefinition] = {}
    places: list[Any] = [*workflow.states, *workflow.items, *workflow.groups]
    for place in places:
        rows = [row for row in table if row.exit.place is place]
        states[place.name] = state = StateDefinition(place, rows, found.prompts.get(place.name))
        if state.branching is not None:
            state.branch_places = tuple(one for head in state.branching.heads for one in region_of(head, ways))
    return Definition(
        name=workflow.name,
        version=workflow.version,
        context=plan_of(workflow.context),
        services=workflow.services,
        states=states,
        ends={end.name: end for end in workflow.ends},
        rows=table,
        rescues=tuple(row for row in table if row.exit.place is None),
        start=draft.start.name,
        limits=workflow.limits,
        warnings=tuple(found.warnings),
        workflow=workflow,
        renames=found.renames,
    )
