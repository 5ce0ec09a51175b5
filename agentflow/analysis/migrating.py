"""What becomes of a stored run by the migrations of its workflow: tried without a store, as often as one likes."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core

from agentflow.analysis.acceptance import missing_steps, same_json
from agentflow.analysis.compare import differing_fields
from agentflow.engine.limits import check_size
from agentflow.errors import InvalidContext
from agentflow.model.blobs import BlobSource
from agentflow.model.check import nearest
from agentflow.model.context import Kept
from agentflow.model.definition import Definition
from agentflow.model.folding import stored_context, whole
from agentflow.model.migrations import Migration, Stored, chain_from
from agentflow.model.views import FieldDifference
from agentflow.record import record


class CannotMigrate(Exception):
    """A migration is missing, raised, or gave what the workflow does not take; in words."""


@record
class Outcome:
    """Where a migrated run would stand, and with what."""

    target: str  # a state or an end of the definition
    kept: Kept
    difference: str
    changes: Sequence[FieldDifference]


def migrated(definition: Definition, version: int, stored: Stored, source: BlobSource | None) -> Outcome:
    """What the chain of migrations from that version makes of a run. Raises `CannotMigrate`."""
    chain = chain_from(version, definition.migrations, definition.version)
    if chain is None:
        gaps = ", ".join(str(number) for number in missing_steps(version, definition))
        raise CannotMigrate(f"there is no migration from version {gaps or version}")
    after = stored
    for step in chain:
        after = _applied(step, after)
    if after.state not in definition.states and after.state not in definition.ends:
        known = [*definition.states, *definition.ends]
        raise CannotMigrate(
            f"{_named(chain[-1])} puts it into {after.state!r}, which version {definition.version} does not have"
            f"{nearest(after.state, known)}"
        )
    kept = _kept(definition, after.context, source)
    if (too_large := check_size(definition.limits, kept)) is not None:
        raise CannotMigrate(too_large)
    difference = _difference(definition, kept)
    return Outcome(after.state, kept, difference, differing_fields(stored.context, stored_context([difference])))


def stored_run(state: str, differences: Sequence[str], visits: Mapping[str, int]) -> Stored:
    """A run as its migrations get it."""
    return Stored(state, stored_context(differences), dict(visits))


def _named(step: Migration) -> str:
    return f"migration(from_version={step.from_version}) at {step.line}"


def _applied(step: Migration, before: Stored) -> Stored:
    """One step; it is called twice, which shows the most common ways in which a function is not pure."""
    once, twice = _called(step, before), _called(step, before)
    if once.state != twice.state or not same_json(once.context, twice.context):
        raise CannotMigrate(f"{_named(step)} is not pure: two calls with the same run gave different results")
    return once


def _called(step: Migration, before: Stored) -> Stored:
    given = copy.deepcopy(before)
    try:
        found: Any = step.function(given)
    except Exception as error:
        raise CannotMigrate(f"{_named(step)} raised {type(error).__name__}: {error}") from error
    if not isinstance(found, Stored):
        raise CannotMigrate(f"{_named(step)} returned {found!r}, not a Stored")
    return found


def _kept(definition: Definition, context: Mapping[str, Any], source: BlobSource | None) -> Kept:
    plan = definition.context
    known = [*plan.fields]
    problems = [
        f"{plan.kind.__name__} has no field {name!r}{nearest(name, known)}" for name in context if name not in known
    ]
    if problems:
        raise CannotMigrate("; ".join(problems))
    added = {name: value for name, value in context.items() if plan.fields[name].append}
    values = {name: value for name, value in context.items() if name not in added}
    not_lists = [name for name, items in added.items() if not isinstance(items, list)]
    if not_lists:
        raise CannotMigrate(f"field {not_lists[0]!r} is Append: it takes a list of its items")
    try:
        return plan.loaded(values, added, source)
    except InvalidContext as error:
        raise CannotMigrate(str(error)) from None


def _difference(definition: Definition, kept: Kept) -> str:
    """The whole context, as the class of now writes it."""
    values = {name: pydantic_core.from_json(text) for name, text in kept.texts.items()}
    added = {
        name: [pydantic_core.from_json(field.dump(item, {})) for item in kept.values[name]]
        for name, field in definition.context.fields.items()
        if field.append
    }
    return whole(values, added)
