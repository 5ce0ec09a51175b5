"""Checks of the table: every answer leads somewhere, every state can be reached and left, every cycle is bounded."""

# This module looks into types and functions of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

from agentflow.model.check import Draft, Found, nearest
from agentflow.model.check_groups import branch_places, check_groups, heads_of
from agentflow.model.groups import with_openings
from agentflow.model.states import End, Fork, Guarded, Item, Place, State, Transition


def check_table(draft: Draft, found: Found) -> None:
    """All problems of the table."""
    _check_names(draft, found)
    _check_entries(draft, found)
    listed = [row for row in draft.rows if isinstance(row, Transition)]
    _check_left_out(draft, listed, found)
    for row in listed:
        _check_row(draft, row, found)
    rows = with_openings(listed)
    check_groups(draft, rows, found)
    settles = branch_places(draft, rows)
    for state in draft.workflow.states:
        mine = [row for row in rows if row.exit.place is state]
        _check_state(state, mine, found, settles=state in settles)
    for place in [*draft.workflow.items, *draft.workflow.groups]:
        _check_outlets(place, [row for row in rows if row.exit.place is place], found)
    _check_failures([row for row in rows if row.exit.place is None], draft.workflow.name, found)
    if _check_start(draft, found):
        _check_graph(draft, rows, found)


def _check_names(draft: Draft, found: Found) -> None:
    seen: dict[str, Any] = {}
    places: list[Any] = [*draft.workflow.states, *draft.workflow.items, *draft.workflow.ends]
    for place in places:
        if place.name in seen:
            found.error(place.line, f"the name {place.name!r} is taken by the one at {seen[place.name].line}")
        seen.setdefault(place.name, place)


def _check_entries(draft: Draft, found: Found) -> None:
    rows: tuple[Any, ...] = draft.rows
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Transition):
            found.error(draft.line, f"transitions: entry {number} {_not_a_row(row)}")


def _not_a_row(entry: Any) -> str:
    if isinstance(entry, State):
        return f"is the state {entry.name!r}; a row is written {entry.name}.to(...) or {entry.name}.on(...).to(...)"
    if isinstance(entry, Guarded):
        return "is an unfinished row; add .to(...)"
    if isinstance(entry, Fork):
        return "is a group; add .join(...)"
    return f"is {entry!r}; a row is written state.to(...) or state.on(...).to(...)"


def _check_left_out(draft: Draft, rows: list[Transition[Any]], found: Found) -> None:
    listed = {id(row) for row in rows}
    for row in draft.workflow.made:
        if id(row) not in listed:
            found.error(row.line, f"row {_title(row)} was made but is not in the table")
    seen: set[int] = set()
    for row in rows:
        if id(row) in seen:
            found.error(row.line, f"row {_title(row)} is in the table twice")
        seen.add(id(row))


def _title(row: Transition[Any]) -> str:
    exit = row.exit
    source = exit.place.name if exit.place is not None else exit.owner.name
    way = {"done": "", "on": f".on({', '.join(map(_as_code, exit.outcomes))})"}.get(exit.event, f".{exit.event}")
    return f"{source}{way} -> {getattr(row.target, 'name', row.target)}"


def _as_code(outcome: Any) -> str:
    return f"{type(outcome).__name__}.{outcome.name}" if isinstance(outcome, Enum) else str(outcome)


def _check_row(draft: Draft, row: Transition[Any], found: Found) -> None:
    _check_target(draft, row, found)
    place = row.exit.place
    if place is not None and place.owner is not draft.workflow:
        found.error(row.line, f"row {_title(row)}: state {place.name!r} belongs to workflow {place.owner.name!r}")
    if row.exit.undo:
        found.error(row.line, f"row {_title(row)}: undo() cannot run yet")
    kinds: tuple[Any, ...] = row.exit.failures  # authors may have passed anything
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            found.error(row.line, f"row {_title(row)}: {kind!r} is no class of exceptions")
    if row.exit.event == "on" and isinstance(place, State):
        for outcome in row.exit.outcomes:
            _check_outcome(place, outcome, row, found)


def _check_target(draft: Draft, row: Transition[Any], found: Found) -> None:
    target: Any = row.target
    if type(target) is str:
        known = [place.name for place in [*draft.workflow.states, *draft.workflow.ends]]
        found.error(row.line, f"target {target!r} is a string; pass the state or end itself{nearest(target, known)}")
    elif isinstance(target, Item):
        found.error(row.line, f"row {_title(row)}: an item is entered by `each` only")
    elif not isinstance(target, State | End):
        found.error(row.line, f"target {target!r} is neither a state nor an end")
    elif target.owner is not draft.workflow:
        found.error(row.line, f"row {_title(row)}: {target.name!r} belongs to workflow {target.owner.name!r}")


def _check_outcome(state: State[Any], outcome: Any, row: Transition[Any], found: Found) -> None:
    enum = state.spec.outcome
    if enum is None:
        found.error(row.line, f"state {state.name!r} has no outcome; write {state.name}.to(...)")
    elif not isinstance(outcome, enum):
        known = [text for member in enum for text in (member.name, str(member.value))]
        typed = outcome.name if isinstance(outcome, Enum) else str(outcome)
        found.error(
            row.line, f"state {state.name!r} answers with {enum.__name__}, not with {outcome!r}{nearest(typed, known)}"
        )


# --- one state ---------------------------------------------------------------------------------------------------


def _check_state(state: State[Any], rows: list[Transition[Any]], found: Found, *, settles: bool) -> None:
    """One state; where a branch settles at it, it may have no way out."""
    by_event = _by_event(rows)
    if settles and not by_event.get("on") and not by_event.get("done"):
        pass
    elif state.spec.outcome is not None:
        _check_members(state, by_event.get("on", []), found)
        for row in by_event.get("done", []):
            found.error(row.line, f"state {state.name!r} decides; write {state.name}.on(...).to(...)")
    elif state.spec.kind != "call":
        _check_single_way(state, by_event.get("done", []), found)
    _check_failures(by_event.get("failed", []), state.name, found)
    _check_expiry(state, by_event.get("expired", []), found)


def _by_event(rows: list[Transition[Any]]) -> dict[str, list[Transition[Any]]]:
    by_event: dict[str, list[Transition[Any]]] = {}
    for row in rows:
        by_event.setdefault(row.exit.event, []).append(row)
    return by_event


def _check_outlets(place: Any, rows: list[Transition[Any]], found: Found) -> None:
    """An item may lead on, a group fails and expires."""
    by_event = _by_event(rows)
    if by_event.get("done"):
        _check_order(f"item {place.name!r}", by_event["done"], found)
    _check_failures(by_event.get("failed", []), place.name, found)
    if by_event.get("expired"):
        _check_order(f"group {place.name!r}: expiry", by_event["expired"], found)


def _check_members(state: State[Any], rows: list[Transition[Any]], found: Found) -> None:
    enum = state.spec.outcome
    assert enum is not None  # the caller looked
    for row in rows:
        if any(outcome in row.exit.outcomes[:number] for number, outcome in enumerate(row.exit.outcomes)):
            found.error(row.line, f"row {_title(row)} names a member twice")
    for member in enum:
        mine = [row for row in rows if member in row.exit.outcomes]
        title = f"{enum.__name__}.{member.name}"
        if not mine:
            found.error(
                state.line, f"state {state.name!r}: {title} leads nowhere; add {state.name}.on({title}).to(...)"
            )
        else:
            _check_order(f"state {state.name!r}: {title}", mine, found)


def _check_order(title: str, rows: list[Transition[Any]], found: Found) -> None:
    """The last row has no guard, so one is always taken; no row stands behind one without, or it never is."""
    if rows[-1].exit.guards:
        found.error(rows[-1].line, f"{title} has a guard on its last row; add one without, for when no guard is true")
    for number, row in enumerate(rows[:-1]):
        if not row.exit.guards:
            shadowed = ", ".join(str(later.line) for later in rows[number + 1 :])
            found.error(row.line, f"{title} always takes this row, so the one at {shadowed} is never reached")
            return
        for later in rows[number + 1 :]:
            if later.exit.guards and _is_narrower(later, row):
                found.error(later.line, f"{title}: the row at {row.line} has the same guard, so this is never reached")


def _is_narrower(later: Transition[Any], earlier: Transition[Any]) -> bool:
    """Whether all guards of the earlier row stand at the later one, too: if that is taken, so was the earlier."""
    return all(any(guard is other for other in later.exit.guards) for guard in earlier.exit.guards)


def _check_single_way(state: State[Any], rows: list[Transition[Any]], found: Found) -> None:
    if not rows:
        found.error(state.line, f"state {state.name!r} has no way out; add {state.name}.to(...)")
    else:
        _check_order(f"state {state.name!r}", rows, found)


def _check_failures(rows: list[Transition[Any]], owner: str, found: Found) -> None:
    for number, row in enumerate(rows):
        takers = [_taker(kind, row, rows[:number]) for kind in _failures_of(row)]
        taken = [taker for taker in takers if taker is not None]
        if len(taken) == len(takers):
            lines = ", ".join(dict.fromkeys(str(taker.line) for taker in taken))
            word = "row" if len({id(taker) for taker in taken}) == 1 else "rows"
            verb = "takes" if word == "row" else "take"
            found.error(
                row.line, f"{owner}.failed: the {word} at {lines} {verb} these failures, so this is never reached"
            )


def _failures_of(row: Transition[Any]) -> tuple[type[Exception], ...]:
    """The classes that a row takes; a bare one takes every exception."""
    return row.exit.failures or (Exception,)


def _taker(kind: type[Exception], row: Transition[Any], earlier: list[Transition[Any]]) -> Transition[Any] | None:
    """The earlier row that takes all failures of the class, whenever this row's guards are true."""
    for other in earlier:
        kinds = tuple(one for one in _failures_of(other) if isinstance(one, type))
        if isinstance(kind, type) and issubclass(kind, kinds) and _is_narrower(row, other):
            return other
    return None


def _check_expiry(state: State[Any], rows: list[Transition[Any]], found: Found) -> None:
    if state.spec.expires is not None and not rows:
        found.error(
            state.line, f"state {state.name!r} expires, but leads nowhere then; add {state.name}.expired.to(...)"
        )
    elif state.spec.expires is None and rows:
        found.error(rows[0].line, f"state {state.name!r} never expires; give its decorator expires=...")
    elif state.spec.expires is None and state.spec.kind in {"human", "signal"}:
        found.warn(state.line, f"state {state.name!r} may wait for ever; give it expires=... and an .expired row")
    if rows:
        _check_order(f"state {state.name!r}: expiry", rows, found)


# --- the graph ---------------------------------------------------------------------------------------------------


def _check_start(draft: Draft, found: Found) -> bool:
    start: Any = draft.start
    if isinstance(start, State | Fork) and start.owner is draft.workflow:
        return True
    if isinstance(start, State | Fork) and start.owner is not draft.workflow:
        found.error(draft.line, f"start={start.name!r} belongs to workflow {start.owner.name!r}")
    else:
        title = f"end {start.name!r}" if isinstance(start, End) else repr(start)
        hint = nearest(start, [state.name for state in draft.workflow.states]) if isinstance(start, str) else ""
        found.error(draft.line, f"start={title}: a run starts at a state; pass the state itself{hint}")
    return False


Ways: TypeAlias = Mapping[Place[Any], Sequence[Place[Any]]]


def _check_graph(draft: Draft, rows: list[Transition[Any]], found: Found) -> None:
    ways = _ways(draft, rows)
    reached = _closure([draft.start], ways)
    for place in [*draft.workflow.states, *draft.workflow.groups, *draft.workflow.ends]:
        if place not in reached:
            kind = "end" if isinstance(place, End) else "group" if isinstance(place, Fork) else "state"
            found.error(place.line, f"{kind} {place.name!r} is never reached from {draft.start.name!r}")
    _check_traps(draft, rows, ways, reached, found)
    _check_cycles(draft, rows, reached, found)
    _check_failure_ends(draft, rows, found)


def _ways(draft: Draft, rows: Iterable[Transition[Any]]) -> dict[Place[Any], list[Place[Any]]]:
    """Where each place leads: a group to its branches, too, and a rescue of the workflow from every state."""
    places: list[Any] = [*draft.workflow.states, *draft.workflow.items, *draft.workflow.groups]
    ways: dict[Place[Any], list[Place[Any]]] = {place: [] for place in places}
    for group in draft.workflow.groups:
        ways[group].extend(heads_of(group))
    for row in rows:
        target: Any = row.target  # authors may have passed anything
        if not isinstance(target, State | Fork | End):
            continue
        sources: list[Place[Any]] = list(ways) if row.exit.place is None else [row.exit.place]
        for source in sources:
            ways.setdefault(source, []).append(target)
    return ways


def _closure(starts: Iterable[Place[Any]], ways: Ways) -> set[Place[Any]]:
    reached: set[Place[Any]] = set()
    todo = list(starts)
    while todo:
        place = todo.pop()
        if place not in reached:
            reached.add(place)
            todo.extend(ways.get(place, []))
    return reached


def _check_traps(draft: Draft, rows: list[Transition[Any]], ways: Ways, reached: set[Place[Any]], found: Found) -> None:
    back: dict[Place[Any], list[Place[Any]]] = {}
    for source, targets in ways.items():
        for target in targets:
            back.setdefault(target, []).append(source)
    settles = [place for place in branch_places(draft, rows) if not ways.get(place)]
    can_end = _closure([*draft.workflow.ends, *settles], back)
    if not draft.workflow.ends:
        found.error(
            draft.workflow.line, f"workflow {draft.workflow.name!r} has no end; add {draft.workflow.name}.end(...)"
        )
    for state in draft.workflow.states:
        if state in reached and state not in can_end and ways[state]:
            found.error(state.line, f"state {state.name!r} is a trap: no way from it leads to an end")


def _check_cycles(draft: Draft, rows: list[Transition[Any]], reached: set[Place[Any]], found: Found) -> None:
    """Every cycle must hold a state with `max_visits`: without those states, no cycle may be left.

    Rescues of the workflow do not count: they are taken at most once in a run.
    """
    places: list[Any] = [*draft.workflow.states, *draft.workflow.items, *draft.workflow.groups]
    unbounded: set[Place[Any]] = {place for place in places if place.spec.max_visits is None}
    ways = _ways(draft, [row for row in rows if row.exit.place is not None])
    left = {place: targets for place, targets in ways.items() if place in unbounded & reached}
    for cycle in _cycles(left):
        path = " -> ".join(place.name for place in [*cycle, cycle[0]])
        found.error(cycle[0].line, f"the cycle {path} has no bound; give one of its states max_visits=")


def _cycles(ways: Ways) -> Iterator[list[Place[Any]]]:
    """One cycle for each knot of states that reach each other, from its first state in the source."""
    left = set(ways)
    for place in ways:
        if place in left and (path := _way_back(place, ways)):
            yield path
            left -= {other for other in _closure([place], ways) if place in _closure(ways.get(other, []), ways)}


def _way_back(start: Place[Any], ways: Ways) -> list[Place[Any]]:
    """The shortest way from a state to itself, empty if there is none."""
    paths = {start: [start]}
    todo = [start]
    while todo:
        place = todo.pop(0)
        for target in ways.get(place, []):
            if target is start:
                return paths[place]
            if target in ways and target not in paths:
                paths[target] = [*paths[place], target]
                todo.append(target)
    return []


def _check_failure_ends(draft: Draft, rows: list[Transition[Any]], found: Found) -> None:
    """A technical failure is not a business answer: somebody should decide before it ends as one."""
    ways = _ways(draft, [row for row in rows if row.exit.place is not None and row.exit.event != "failed"])
    deciders = {state for state in draft.workflow.states if state.spec.kind in {"human", "llm", "react", "signal"}}
    undecided: Ways = {place: ([] if place in deciders else targets) for place, targets in ways.items()}
    business = [end for end in draft.workflow.ends if not end.failed]
    for row in rows:
        if row.exit.event == "failed" and isinstance(row.target, State | End):
            reached = _closure([row.target], undecided)
            for end in (end for end in business if end in reached):
                found.warn(
                    row.line,
                    f"row {_title(row)}: a failure reaches the end {end.name!r}, which is not failed=True, "
                    "and neither a person nor a model decides in between",
                )
