"""Outlines as text, and two of them side by side: as lines that were added, taken away or changed, and as a diagram."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias

from agentflow.analysis.acceptance import form_changes, type_of
from agentflow.analysis.draw import KINDS, arrow, escaped
from agentflow.model.outline import ContextOutline, Outline, StateOutline, WayOut
from agentflow.record import record

Mark: TypeAlias = Literal[" ", "+", "-", "~"]


@record
class Line:
    """A line of a difference: there before and after, added, taken away, or a note on what changed."""

    mark: Mark
    text: str


NOTHING = StateOutline(name="", kind="", members=None, ways=(), form=None, shape="", code="", prompt=None, model=None)


def told(outline: Outline) -> str:
    """An outline in full."""
    lines = [f"{named(outline)}, shape {outline.shape}, code {outline.code}", ""]
    for state in outline.states.values():
        lines += [_title(state, outline), *_ways(state.ways)]
    if outline.rescues:
        lines += ["(any state)", *_ways(outline.rescues)]
    lines += [_end(name, failed) for name, failed in outline.ends.items()]
    return "\n".join([*lines, "", "context", *(f"  {text}" for text in _fields(outline.context).values())])


def named(outline: Outline) -> str:
    """Name and version."""
    return f"{outline.name}@{outline.version}"


def _title(state: StateOutline, outline: Outline) -> str:
    notes = ["start"] if state.name == outline.start else []
    notes.append(KINDS.get(state.kind, state.kind))
    members = f" {', '.join(f'{name}={value}' for name, value in state.members)}" if state.members else ""
    return f"{state.name}  [{', '.join(notes)}]{members}"


def _ways(ways: Sequence[WayOut]) -> list[str]:
    return [f"    {way}" for way in ways]


def _end(name: str, failed: bool) -> str:
    return f"{name}  [{'end, failed' if failed else 'end'}]"


def _fields(context: ContextOutline) -> dict[str, str]:
    return {name: _field(name, schema, context) for name, schema in context.fields.items()}


def _field(name: str, schema: Mapping[str, Any], context: ContextOutline) -> str:
    default = f" = {json.dumps(schema['default'], ensure_ascii=False)}" if "default" in schema else ""
    needed = ", required" if name in context.required else ""
    append = ", Append" if name in context.appends else ""
    return f"{name}: {type_of(schema)}{default}{append}{needed}"


# --- two of them -------------------------------------------------------------------------------------------------


def outline_difference(one: Outline, other: Outline) -> Sequence[Line]:
    """All lines of both; those that only the other has are added, and what no line shows is a note."""
    lines: list[Line] = []
    for name in _merged([*one.states], [*other.states]):
        lines += _state_lines(one, other, name)
    if one.rescues or other.rescues:
        lines += [Line(" ", "(any state)"), *_line_by_line(_ways(one.rescues), _ways(other.rescues))]
    ends, ends_of_other = ([_end(*end) for end in outline.ends.items()] for outline in (one, other))
    lines += _line_by_line(ends, ends_of_other)
    fields, fields_of_other = _fields(one.context), _fields(other.context)
    lines += [Line(" ", ""), Line(" ", "context")]
    for name in _merged([*fields], [*fields_of_other]):
        texts = ([f"  {found[name]}"] if name in found else [] for found in (fields, fields_of_other))
        lines += _line_by_line(*texts)
    if one.context.schema.get("$defs") != other.context.schema.get("$defs"):
        lines.append(Line("~", "  a type within the context is another"))
    return lines


def is_same(lines: Sequence[Line]) -> bool:
    """Whether nothing differs."""
    return all(line.mark == " " for line in lines)


def _state_lines(one: Outline, other: Outline, name: str) -> Iterator[Line]:
    before, after = one.states.get(name), other.states.get(name)
    titles = ([] if state is None else [_title(state, outline)] for state, outline in ((before, one), (after, other)))
    yield from _line_by_line(*titles)
    yield from _line_by_line(_ways((before or NOTHING).ways), _ways((after or NOTHING).ways))
    if before is not None and after is not None:
        yield from (Line("~", f"    {note}") for note in _notes(before, after))


def _notes(before: StateOutline, after: StateOutline) -> Iterator[str]:
    if before.form != after.form:
        yield f"the form of its answer: {', '.join(form_changes(before.form, after.form))}"
    if before.prompt != after.prompt:
        yield "its prompt is another"
    if before.model != after.model:
        yield f"its model was {before.model or 'the default'}, it is {after.model or 'the default'} now"
    if before.code != after.code and before.prompt == after.prompt:
        yield "its code is another"


def _line_by_line(one: Sequence[str], other: Sequence[str]) -> Iterator[Line]:
    for kind, start, end, start_of_other, end_of_other in SequenceMatcher(None, one, other, False).get_opcodes():
        if kind == "equal":
            yield from (Line(" ", text) for text in one[start:end])
        else:
            yield from (Line("-", text) for text in one[start:end])
            yield from (Line("+", text) for text in other[start_of_other:end_of_other])


def _merged(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """All names: the order is that of the other, and what only the first has comes where it was."""
    found = [*other]
    for number, name in enumerate(one):
        if name not in other:
            before = next((found.index(earlier) + 1 for earlier in reversed(one[:number]) if earlier in found), 0)
            found.insert(before, name)
    return found


# --- as a diagram ------------------------------------------------------------------------------------------------

STYLES = {
    "added": "fill:#e8f5e9,stroke:#2e7d32,stroke-width:2px",
    "removed": "fill:#ffebee,stroke:#c62828,stroke-dasharray:4",
    "changed": "fill:#fff8e1,stroke:#ff8f00,stroke-width:2px",
}
LINKS = {"+": "stroke:#2e7d32,stroke-width:3px", "-": "stroke:#c62828,stroke-dasharray:4"}


def mermaid_difference(one: Outline, other: Outline) -> str:
    """A Mermaid flowchart of both, with what was added, taken away and changed in colours of its own."""
    states = _merged([*one.states], [*other.states])
    ends = _merged([*one.ends], [*other.ends])
    ids = {name: f"s{number}" for number, name in enumerate(dict.fromkeys([*states, *ends]))}
    lines = ["flowchart TD"]
    for name in states:
        kind = (other.states.get(name) or one.states[name]).kind
        lines.append(f'    {ids[name]}["{escaped(name)}<br/><small>{escaped(kind)}</small>"]')
    lines += [f'    {ids[name]}(["{escaped(name)}"])' for name in ends if name not in states]
    arrows = [*_arrows(one, other, ids)]
    lines += [line.text for line in arrows]
    for mark, style in LINKS.items():
        numbers = [str(number) for number, line in enumerate(arrows) if line.mark == mark]
        lines += [f"    linkStyle {','.join(numbers)} {style}"] if numbers else []
    for kind, style in STYLES.items():
        found = [ids[name] for name in ids if _fate(one, other, name) == kind]
        lines += [f"    classDef {kind} {style}", f"    class {','.join(found)} {kind}"] if found else []
    return "\n".join(lines) + "\n"


def _arrows(one: Outline, other: Outline, ids: Mapping[str, str]) -> Iterator[Line]:
    def drawn(outline: Outline, name: str) -> list[str]:
        state = outline.states.get(name)
        ways = () if state is None else (*state.ways, *outline.rescues)
        return [arrow(ids[name], ids[way.target], way.label) for way in ways]

    for name in _merged([*one.states], [*other.states]):
        yield from _line_by_line(drawn(one, name), drawn(other, name))


def _fate(one: Outline, other: Outline, name: str) -> str | None:
    places: list[Callable[[Outline], Mapping[str, Any]]] = [
        lambda outline: outline.states,
        lambda outline: outline.ends,
    ]
    for place in places:
        before, after = place(one).get(name), place(other).get(name)
        if (before is None) != (after is None):
            return "added" if before is None else "removed"
        if before is not None and before != after:
            return "changed"
    return None
