"""Groups of branches: the rows that open them, and the region of the table that belongs to each branch.

A branch works in the same table as the run that opened the group. Its *region* is what can be reached from its head;
regions are disjoint from each other and from the main flow, so a place belongs to one branch at most. A branch settles
at a state of its region that has no way out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentflow.model.states import Fork, Place, Transition


def with_openings(rows: Iterable[Transition[Any]]) -> list[Transition[Any]]:
    """The rows of the table, and before the first row of each group the one that opens it."""
    opened: set[int] = set()
    table: list[Transition[Any]] = []
    for row in rows:
        group = _group_of(row)
        if group is not None and id(group) not in opened:
            opened.add(id(group))
            if group.opened_by.place is not None:  # else the run starts with it
                table.append(Transition(group.opened_by, group, group.line))
        table.append(row)
    return table


def _group_of(row: Transition[Any]) -> "Fork[Any] | None":
    place: Any = row.exit.place
    return place if isinstance(place, Fork) else None  # pyright: ignore[reportUnknownVariableType]


def ways_of(rows: Iterable[Transition[Any]]) -> dict[Place[Any], list[Place[Any]]]:
    """Where each place leads; the workflow's own exits are not in it, branches never take them."""
    ways: dict[Place[Any], list[Place[Any]]] = {}
    for row in rows:
        if row.exit.place is not None:
            ways.setdefault(row.exit.place, []).append(row.target)
    return ways


def region_of(head: Place[Any], ways: Mapping[Place[Any], Sequence[Place[Any]]]) -> list[Place[Any]]:
    """What a branch can reach from its head, in the order in which it is met; without regions of groups in it."""
    found: dict[Place[Any], None] = {}
    todo = [head]
    while todo:
        place = todo.pop(0)
        if place not in found:
            found[place] = None
            todo.extend(ways.get(place, ()))
    return list(found)


def needs_in_order(needs: Mapping[Any, Sequence[Any]]) -> list[Any] | None:
    """The branches of a graph, each after those that it needs, else in their own order; None if they go in a circle."""
    left = list(needs)
    order: list[Any] = []
    while left:
        ready = next((head for head in left if all(need in order for need in needs[head])), None)
        if ready is None:
            return None
        left.remove(ready)
        order.append(ready)
    return order
