"""Whether a stored run may go on under the definition at hand, and if not, what is in the way and how it is mended.

A run goes on when its own state is unchanged (kind, members, ways out, guards, form) and the new context accepts the
old one. What cannot be told from the two definitions depends on the run's own data; `judge_context` looks at them.
Nothing here reads a store.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pydantic_core

from agentflow.analysis.widening import relation
from agentflow.errors import InvalidContext
from agentflow.model.blobs import BlobSource
from agentflow.model.check import nearest
from agentflow.model.context import Kept
from agentflow.model.definition import Definition
from agentflow.model.folding import stored_context
from agentflow.model.migrations import Renames
from agentflow.model.outline import ContextOutline, Outline, StateOutline, WayOut, outline_of
from agentflow.model.shapes import is_list, is_object
from agentflow.record import record


@record
class Accepts:
    """The run goes on in this state; it has another name than before where the author renamed it."""

    state: str


@record
class Refuses:
    """The run does not go on: in words, with what mends it."""

    reason: str
    migrates: bool = False  # but a migration is there that leads it on


@record
class Depends:
    """It hangs on the data of the run: `unsure` fields may not fit, `defaulted` ones must have been stored."""

    state: str
    unsure: tuple[str, ...]
    defaulted: tuple[str, ...] = ()
    blind: bool = False  # nothing is known of the definition that the run stands under


Verdict: TypeAlias = Accepts | Refuses | Depends


def judge(outline: Outline | None, version: int, state: str, definition: Definition) -> Verdict:
    """Whether a run of that version which stands in `state` goes on under this definition, of its version or a later one.

    `outline` is what it stands under; without one, its data alone decide.
    """
    if (unmigrated := _unmigrated(version, definition)) is not None:
        return unmigrated
    name = definition.renames.place(state)
    if name not in definition.states:
        return Refuses(_no_state(state, version, definition))
    if outline is None or state not in outline.states:
        return blind(definition, name)
    after = outline_of(definition)
    before = renamed_state(outline.states[state], after.states[name], definition.renames)
    problems = list(state_problems(before, after.states[name]))
    if problems:
        hint = _hint_at_members(before, after.states[name])
        return Refuses(f"state {name!r}: {'; '.join(problems)}; {hint}{mend(definition, version)}")
    return _judge_contexts(outline, after.context, definition, name)


def judge_reading(outline: Outline | None, version: int, state: str, definition: Definition) -> Verdict:
    """Whether the context of a run that stands in `state`, or ended there, is shown as it was stored."""
    if (unmigrated := _unmigrated(version, definition)) is not None:
        return unmigrated
    name = definition.renames.place(state)
    return (
        blind(definition, name)
        if outline is None
        else _judge_contexts(outline, outline_of(definition).context, definition, name)
    )


def blind(definition: Definition, state: str) -> Depends:
    """The verdict where nothing is known of the definition that a run stood under."""
    return Depends(state, tuple(definition.context.fields), blind=True)


def _unmigrated(version: int, definition: Definition) -> Refuses | None:
    steps = steps_between(version, definition)
    if not steps:
        return None
    told = ", ".join(str(step) for step in steps)
    has = (
        f"workflow {definition.name!r} version {definition.version} has a migration from version {told}, which it must"
    )
    if missing_steps(version, definition):
        return Refuses(f"{has} not miss, and does not get to; {mend(definition, version)}")
    return Refuses(f"{has} not miss: agentflow deploy migrate {definition.name}", migrates=True)


def steps_between(version: int, definition: Definition) -> list[int]:
    """The versions from which a migration leads on to this definition, of those that a run of `version` has before it."""
    return [number for number in sorted(definition.migrations) if version <= number < definition.version]


def missing_steps(version: int, definition: Definition) -> list[int]:
    """The versions from which no migration leads on, of those between a run's and this definition's."""
    return [number for number in range(version, definition.version) if number not in definition.migrations]


def _no_state(state: str, version: int, definition: Definition) -> str:
    if state in definition.ends:
        return f"{state!r} is an end now, and was a state; {mend(definition, version)}"
    known = [*definition.states]
    return (
        f"workflow {definition.name!r} version {definition.version} has no state {state!r}{nearest(state, known)}; if it "
        f"has another name now, say so: build(renamed={{{state!r}: ...}}), else {mend(definition, version)}"
    )


def mend(definition: Definition, version: int) -> str:
    """What lets runs of that version go on after all, in words."""
    if version >= definition.version:
        return f"give the workflow version={version + 1} and a migration(from_version={version})"
    missing = missing_steps(version, definition)
    wanted = " and ".join(f"migration(from_version={number})" for number in missing[:3])
    return f"give version {definition.version} a {wanted}, or deploy version {version} beside it"


# --- states ------------------------------------------------------------------------------------------------------


def renamed_state(state: StateOutline, after: StateOutline, renames: Renames) -> StateOutline:
    """A state as it was, in the names of now."""
    name, values = after.name, dict(after.members or ())

    def way_of(way: WayOut) -> WayOut:
        outcomes = tuple(renames.member(name, outcome) for outcome in way.outcomes)
        return WayOut(way.event, outcomes, way.failures, way.guards, renames.place(way.target))

    def member_of(member: str, value: str) -> tuple[str, str]:
        if member not in renames.members.get(name, {}):
            return member, value
        now = renames.member(name, member)
        return now, values.get(now, value)

    members = state.members
    return StateOutline(
        name=name,
        kind=state.kind,
        members=None if members is None else tuple(member_of(*member) for member in members),
        ways=tuple(way_of(way) for way in state.ways),
        form=state.form,
        shape=state.shape,
        code=state.code,
        prompt=state.prompt,
        model=state.model,
    )


def state_problems(before: StateOutline, after: StateOutline) -> Iterator[str]:
    """What changed in a state that a run in it depends on, in words; nothing if nothing did."""
    if before.kind != after.kind:
        yield f"its kind was {before.kind}, it is {after.kind} now"
        return
    yield from _member_problems(dict(before.members or ()), dict(after.members or ()))
    gone = [str(way) for way in before.ways if way not in after.ways]
    new = [str(way) for way in after.ways if way not in before.ways]
    if gone or new:
        parts = [f"{word} '{way}'" for word, ways in (("no longer", gone), ("new", new)) for way in ways]
        yield f"its ways out differ: {', '.join(parts)}"
    elif before.ways != after.ways:
        yield "its ways out are tried in another order"
    if before.form != after.form:
        yield f"the form of its answer differs: {', '.join(form_changes(before.form, after.form))}"


def _member_problems(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    gone, added = [name for name in old if name not in new], [name for name in new if name not in old]
    if gone:
        yield f"its answer {', '.join(gone)} is gone"
    if added:
        yield f"its answer {', '.join(added)} is new"
    changed = [
        f"{name} was {old[name]!r} and is {new[name]!r}" for name in old if new.get(name, old[name]) != old[name]
    ]
    if changed:
        yield f"its answers have other values: {', '.join(changed)}"


def _hint_at_members(before: StateOutline, after: StateOutline) -> str:
    """The other way to mend it, where an answer may have got another name."""
    old, new = dict(before.members or ()), dict(after.members or ())
    gone = [name for name in old if name not in new]
    if not gone or not [name for name in new if name not in old]:
        return ""
    return f"if it has another name now, say so: build(renamed={{'{after.name}.{gone[0]}': ...}}), else "


def form_changes(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    """What differs between the forms of two answers, in words."""
    old: Mapping[str, Any] = {} if before is None else before.get("properties", {})
    new: Mapping[str, Any] = {} if after is None else after.get("properties", {})
    words = [f"field {name!r} is gone" for name in old if name not in new]
    words += [f"field {name!r} is new" for name in new if name not in old]
    words += [f"field {name!r} is another" for name in old if name in new and old[name] != new[name]]
    return words or ["a type within it is another"]


# --- contexts ----------------------------------------------------------------------------------------------------


def _judge_contexts(outline: Outline, after: ContextOutline, definition: Definition, state: str) -> Verdict:
    before = outline.context
    if before.schema == after.schema and before.appends == after.appends:
        return Accepts(state)
    problems, unsure = context_problems(before, after)
    if problems:
        return Refuses(f"{'; '.join(problems)}; {mend(definition, outline.version)}")
    moving = [name for name in after.fields if name not in before.fields and _is_made(definition, name)]
    changed = [name for name, schema in before.fields.items() if _default(schema) != _default(after.fields[name])]
    optional = [name for name in changed if name not in before.required]
    if unsure or moving or optional:
        return Depends(state, (*unsure, *moving), tuple(optional))
    return Accepts(state)


def context_problems(before: ContextOutline, after: ContextOutline) -> tuple[list[str], list[str]]:
    """What is in the way of every run, in words; and the fields of which only a run's own data can tell."""
    problems: list[str] = []
    unsure: list[str] = []
    added = [name for name in after.fields if name not in before.fields]
    for name in before.fields:
        if name not in after.fields:
            hint = f" (its new name is {added[0]!r}?)" if len(added) == 1 else ""
            problems.append(f"field {name!r} is gone{hint}, and stored runs have it")
    problems += [f"field {name!r} is new and has no default" for name in added if name in after.required]
    problems += [
        f"field {name!r} is new, and would begin without the items of its default"
        for name in added
        if name in after.appends and after.fields[name].get("default")
    ]
    for name, old in before.fields.items():
        if name not in after.fields:
            continue
        new = after.fields[name]
        found = relation(old, new, before.schema, after.schema)
        if (name in before.appends) != (name in after.appends):
            problems.append(
                f"field {name!r} is stored otherwise: it is{'' if name in after.appends else ' no longer'} Append"
            )
        elif found == "narrower":
            problems.append(f"field {name!r} takes less than before: {type_of(old)}, now {type_of(new)}")
        elif found == "unknown":
            unsure.append(name)
    return problems, unsure


def _default(schema: Any) -> Any:
    """What tells two defaults apart: True from 1, none from null."""
    return json.dumps(schema["default"]) if "default" in schema else None


def _is_made(definition: Definition, name: str) -> bool:
    """Whether the default of a new field is made by code of the author's, and might differ each time."""
    info = definition.context.kind.model_fields[name]
    factory: Any = info.default_factory
    return factory is not None and not isinstance(factory, type)


def type_of(schema: Mapping[str, Any]) -> str:
    """The type of a field, in a word where one will do."""
    shown = {key: part for key, part in schema.items() if key != "default"}
    if shown.keys() == {"type"}:
        return str(shown["type"])
    reference = shown.get("$ref")
    return str(reference).rpartition("/")[2] if reference else json.dumps(shown, ensure_ascii=False)


# --- the data of one run -----------------------------------------------------------------------------------------


def judge_context(
    definition: Definition, version: int, depends: Depends, differences: Sequence[str], source: BlobSource | None
) -> Accepts | Refuses:
    """Whether the context that a run has is one of the new class, and would be written as it was stored."""
    how = mend(definition, version)
    stored = stored_context(differences)
    plan = definition.context
    for name in depends.defaulted:
        if name not in stored:
            return Refuses(f"field {name!r} was never stored, and its default is another now; {how}")
    try:
        kept, again = plan.load(differences, source), plan.load(differences, source)
    except InvalidContext as error:
        return Refuses(f"{error}; {how}")
    for name in depends.unsure:
        written = _written(definition, kept, name)
        if name not in stored:
            if written != _written(definition, again, name):
                told = f"field {name!r} is new, and its default differs each time"
                return Refuses(f"{told}; {how}")
        elif not same_json(stored[name], written):
            told = f"field {name!r}: {_short(stored[name])} would become {_short(written)}"
            return Refuses(f"{told}; {how}")
    lost = [name for name in stored if name not in plan.fields] if depends.blind else []
    if lost:
        return Refuses(f"field {lost[0]!r} is stored, and the class has none of that name; {how}")
    return Accepts(depends.state)


def _written(definition: Definition, kept: Kept, name: str) -> Any:
    """The JSON value of a field as it would be written."""
    field = definition.context.fields[name]
    if not field.append:
        return pydantic_core.from_json(kept.texts[name])
    return [pydantic_core.from_json(field.dump(item, {})) for item in kept.values[name]]


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values say the same: 5 and 5.0 do, True and 1 do not."""
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same_json(part, other[name]) for name, part in one.items())
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other) or (one != one and other != other)  # not a number is not even itself


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
