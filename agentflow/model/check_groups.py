"""Checks of groups: what opens and closes them, their numbers and functions, and the regions of their branches."""

# This module looks into types and functions of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

import inspect
from collections.abc import Sequence
from typing import Any

from agentflow.model.check import Draft, Found
from agentflow.model.groups import needs_in_order, region_of, ways_of
from agentflow.model.states import End, Fork, Item, Line, Place, State, Transition


def check_groups(draft: Draft, rows: Sequence[Transition[Any]], found: Found) -> None:
    """All problems of the groups; `rows` is the table with the rows that open them."""
    for group in draft.workflow.groups:
        _check_rows(draft, group, [row for row in rows if row.exit.place is group], found)
        _check_numbers(group, found)
        if _check_heads(draft, group, found):
            _check_needs(group, found)
    for item in draft.workflow.items:
        if not any(item in group.branching.heads for group in draft.workflow.groups):
            found.error(item.line, f"item {item.name!r} is the body of no `each`")
    _check_regions(draft, rows, found)


def heads_of(group: Fork[Any]) -> list[Any]:
    """The places at which branches begin, as far as they are some."""
    return [head for head in group.branching.heads if isinstance(head, State | Item)]


def _check_rows(draft: Draft, group: Fork[Any], rows: list[Transition[Any]], found: Found) -> None:
    events = {row.exit.event for row in rows}
    if "joined" not in events:
        found.error(group.line, f"group {group.name!r} leads nowhere; add its row .join(...) to the table")
    if group.spec.expires is not None and "expired" not in events:
        found.error(group.line, f"group {group.name!r} expires, but leads nowhere then; add .expired.to(...)")
    if group.opened_by.place is None and draft.start is not group:
        found.error(group.line, f"group {group.name!r} was opened by the workflow, so it must be its start=")
    if sum(row.exit.event == "joined" for row in rows) > 1:
        found.error(rows[-1].line, f"group {group.name!r} is joined twice; one of the rows is never reached")


def _check_numbers(group: Fork[Any], found: Found) -> None:
    told = group.branching
    for name, count in {"max_items": told.max_items, "max_parallel": told.max_parallel}.items():
        if count is not None and (not isinstance(count, int) or count < 1):
            found.error(group.line, f"group {group.name!r}: {name}={count!r}: it must be at least 1")
    mode = told.mode
    if isinstance(mode, int):
        most = told.max_items if told.kind == "each" else len(told.heads)
        if isinstance(mode, bool) or mode < 1 or (most is not None and mode > most):
            found.error(
                group.line, f"group {group.name!r}: mode={mode}: of {most} branches, 1 to {most} can be asked for"
            )
    elif mode not in {"all", "any", "settled"}:
        found.error(group.line, f"group {group.name!r}: mode={mode!r}: it is 'all', 'any', 'settled' or a number")
    for name, function in {"the items": told.items, "key=": told.key}.items():
        if function is not None and not _takes_one(function):
            wanted = "(case)" if name == "the items" else "(item)"
            found.error(group.line, f"group {group.name!r}: {name} must be a function that takes {wanted}")


def _takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind("one")
    except (TypeError, ValueError):
        return False
    return not inspect.iscoroutinefunction(function)


def _check_heads(draft: Draft, group: Fork[Any], found: Found) -> bool:
    fine = True
    seen: list[Any] = []
    kind: Any = Item if group.branching.kind == "each" else State
    for head in group.branching.heads:
        if not isinstance(head, kind) or isinstance(head, End):
            what = "an item, made by @workflow.item(...)" if kind is Item else "a state"
            found.error(group.line, f"group {group.name!r}: {getattr(head, 'name', head)!r} must be {what}")
            fine = False
        elif head.owner is not draft.workflow:
            found.error(group.line, f"group {group.name!r}: {head.name!r} belongs to workflow {head.owner.name!r}")
            fine = False
        elif head in seen:
            found.error(group.line, f"group {group.name!r}: {head.name!r} is two of its branches")
            fine = False
        seen.append(head)
    return fine


def _check_needs(group: Fork[Any], found: Found) -> None:
    needs = group.branching.needs
    if needs is None:
        return
    for head, wanted in needs.items():
        for need in wanted:
            if need not in needs:
                found.error(
                    group.line,
                    f"group {group.name!r}: {head.name!r} needs {getattr(need, 'name', need)!r}, which is none of its "
                    "branches",
                )
                return
    if not needs:
        found.error(group.line, f"group {group.name!r} has no branches")
    elif needs_in_order(needs) is None:
        circle = ", ".join(head.name for head in needs)
        found.error(group.line, f"group {group.name!r}: the branches need each other in a circle: {circle}")


# --- regions -----------------------------------------------------------------------------------------------------


def _check_regions(draft: Draft, rows: Sequence[Transition[Any]], found: Found) -> None:
    """No place belongs to two branches, or to a branch and the main flow; no branch leads to an end."""
    ways = ways_of(rows)
    main = region_of(draft.start, ways) if isinstance(draft.start, State | Fork) else []
    main += [place for row in rows if row.exit.place is None for place in region_of(row.target, ways)]
    owners: dict[Place[Any], str] = dict.fromkeys(main, "the main flow")
    for group in draft.workflow.groups:
        for head in heads_of(group):
            title = f"branch {head.name!r} of {group.name!r}"
            region = region_of(head, ways)
            for place in region:
                line = _line_into(place, region, group, rows)
                if isinstance(place, End):
                    found.error(
                        line,
                        f"{title} leads to the end {place.name!r}; "
                        "a branch ends at a state without a way out, the run at .join",
                    )
                elif place in owners:
                    found.error(
                        line,
                        f"{title} leads to {place.name!r}, which belongs to {owners[place]}; branches meet at .join only",
                    )
                    break
                else:
                    owners[place] = title


def _line_into(place: Any, region: list[Any], group: Fork[Any], rows: Sequence[Transition[Any]]) -> Line:
    """The line on which a branch leads to a place: that of the group, if it begins there."""
    if place is region[0]:
        return group.line
    return next((row.line for row in rows if row.target is place and row.exit.place in region), group.line)


def branch_places(draft: Draft, rows: Sequence[Transition[Any]]) -> set[Place[Any]]:
    """All places that belong to a branch: these may have no way out."""
    ways = ways_of(rows)
    return {place for group in draft.workflow.groups for head in heads_of(group) for place in region_of(head, ways)}
