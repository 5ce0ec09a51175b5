"""A machine as text: a listing that fits a terminal, and Mermaid for everything that draws.

Both are made from the definition alone, in the order of the table, so the same definition gives the same bytes. With
the states that a run has visited they show where it was and where it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from agentflow.model.definition import Definition, StateDefinition, guard_name
from agentflow.model.states import Transition

KINDS = {"step": "code", "llm": "a model", "human": "a person", "item": "code for each item", "group": "branches"}


@dataclass(frozen=True, slots=True)
class Trail:
    """Where a run has been: how often it entered each place, and where it stands."""

    visits: Mapping[str, int] = field(default_factory=dict[str, int])
    current: str | None = None


NOWHERE = Trail()


def spine(definition: Definition, trail: Trail = NOWHERE) -> str:
    """One block for each state, with its ways out; `>` marks where a run stands, `*` where it was."""
    lines = [f"{definition.name} v{definition.version}", ""]
    for state in _in_order(definition):
        lines += [_title(state, definition, trail), *_ways(state)]
    if definition.rescues:
        lines += ["  (any state)", *(_way(row) for row in definition.rescues)]
    for end in definition.ends.values():
        note = "end, failed" if end.failed else "end"
        lines.append(f"{_mark(end.name, trail)} {end.name}  [{note}]")
    return "\n".join(lines) + "\n"


def _in_order(definition: Definition) -> list[StateDefinition]:
    """The states as a reader meets them, from the start on."""
    seen: dict[str, StateDefinition] = {}
    todo = [definition.start]
    while todo:
        name = todo.pop(0)
        if name in definition.states and name not in seen:
            seen[name] = definition.states[name]
            todo += [*seen[name].heads, *(row.target.name for row in seen[name].rows)]
    return [*seen.values(), *(state for name, state in definition.states.items() if name not in seen)]


def _title(state: StateDefinition, definition: Definition, trail: Trail) -> str:
    notes = [KINDS.get(state.kind, state.kind)]
    if state.name == definition.start:
        notes.insert(0, "start")
    if state.spec.max_visits is not None:
        notes.append(f"at most {state.spec.max_visits} visits")
    if state.spec.expires is not None:
        notes.append(f"expires after {span_of(state.spec.expires)}")
    count = trail.visits.get(state.name, 0)
    visited = f"  x{count}" if count > 1 else ""
    return f"{_mark(state.name, trail)} {state.name}  [{', '.join(notes)}]{visited}"


def span_of(span: timedelta) -> str:
    """A span in its largest whole unit."""
    seconds = int(span.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}{'s' if seconds // size > 1 else ''}"
    return f"{span.total_seconds():g} s"


def _mark(name: str, trail: Trail) -> str:
    if name == trail.current:
        return ">"
    return "*" if trail.visits.get(name) else " "


def _ways(state: StateDefinition) -> Iterator[str]:
    for name in state.heads:
        yield f"      branch -> {name}"
    for row in state.rows:
        yield _way(row)


def _way(row: Transition[Any]) -> str:
    label = label_of(row)
    return f"      {label + ' ' if label else ''}-> {row.target.name}"


def label_of(row: Transition[Any]) -> str:
    """What must happen for a row to be taken, in words."""
    exit = row.exit
    what = {
        "on": " | ".join(outcome.name for outcome in exit.outcomes),
        "failed": f"failed({', '.join(kind.__name__ for kind in exit.failures)})" if exit.failures else "failed",
    }.get(exit.event, "" if exit.event == "done" else exit.event)
    guards = " and ".join(guard_name(guard) for guard in exit.guards)
    return " ".join(part for part in (what, f"[{guards}]" if guards else "") if part)


def mermaid(definition: Definition, trail: Trail = NOWHERE) -> str:
    """A Mermaid flowchart; ids are generated, so any name may stand in a label."""
    ids = {name: f"s{number}" for number, name in enumerate([*definition.states, *definition.ends])}
    lines = ["flowchart TD"]
    for name, state in definition.states.items():
        lines.append(f'    {ids[name]}["{escaped(name)}<br/><small>{escaped(state.kind)}</small>"]')
    for name, end in definition.ends.items():
        lines.append(f'    {ids[name]}(["{escaped(name)}"])' + (":::failed" if end.failed else ""))
    for name, state in definition.states.items():
        lines += [f"    {ids[name]} -.->|branch| {ids[head]}" for head in state.heads]
    in_branches = {place.name for state in definition.states.values() for place in state.branch_places}
    main = [name for name in definition.states if name not in in_branches]
    for row in definition.rows:
        sources = [row.exit.place.name] if row.exit.place is not None else main
        lines += [arrow(ids[source], ids[row.target.name], label_of(row)) for source in sources]
    lines.append("    classDef failed stroke:#c62828,stroke-width:2px")
    lines += _classes(ids, trail)
    return "\n".join(lines) + "\n"


def arrow(source: str, target: str, label: str) -> str:
    """An arrow of a flowchart, between two ids."""
    return f'    {source} -->|"{escaped(label)}"| {target}' if label else f"    {source} --> {target}"


def _classes(ids: Mapping[str, str], trail: Trail) -> Iterator[str]:
    visited = [ids[name] for name in ids if trail.visits.get(name) and name != trail.current]
    if visited:
        yield "    classDef visited fill:#e3f2fd,stroke:#1565c0"
        yield f"    class {','.join(visited)} visited"
    if trail.current is not None and trail.current in ids:
        yield "    classDef current fill:#fff8e1,stroke:#ff8f00,stroke-width:3px"
        yield f"    class {ids[trail.current]} current"


def escaped(text: str) -> str:
    """Text that Mermaid shows as it is: everything that it could read as syntax becomes a character code."""
    return "".join(char if char.isalnum() or char in " _.,-" else f"#{ord(char)};" for char in text)
