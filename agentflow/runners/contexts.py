"""The context of a stored run. A branch stores only what it changed: it begins with the context of its parent."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pydantic_core

from agentflow.engine.head import Branch
from agentflow.engine.merging import Branched, merged
from agentflow.errors import StoreError
from agentflow.model.context import ContextPlan, Kept
from agentflow.model.definition import Definition
from agentflow.model.groups import needs_in_order
from agentflow.store.protocol import Store
from agentflow.store.rows import RunRow

REMEMBERED = 32


class Bases:
    """Contexts with which branches began, so that a thousand of one group load theirs once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], Kept] = OrderedDict()

    def get(self, key: tuple[Any, ...]) -> Kept | None:
        """What was put under that key, if it is still remembered."""
        return self._kept.get(key)

    def put(self, key: tuple[Any, ...], kept: Kept) -> Kept:
        """Remember it, and forget the oldest."""
        self._kept[key] = kept
        if len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)
        return kept


def branch_of(row: RunRow) -> Branch | None:
    """What makes a run a branch, None if it is none."""
    if row.group_state is None:
        return None
    return Branch(**pydantic_core.from_json(row.standing.memory)["branch"])


async def load_context(
    store: Store, definition: Definition, row: RunRow, revision: int | None = None, bases: Bases | None = None
) -> Kept:
    """The context of a run as it is now, or was at a revision."""
    differences = await store.differences(row.id, row.revision if revision is None else revision)
    return await fold_context(store, definition, row, differences, bases or Bases())


async def fold_context(
    store: Store, definition: Definition, row: RunRow, differences: Sequence[str], bases: Bases
) -> Kept:
    """The context to which a run's own differences lead."""
    branch = branch_of(row)
    if branch is None:
        return definition.context.load(differences, store.value)
    return applied(definition.context, await base_of(store, definition, branch, bases), differences)


def applied(plan: ContextPlan[Any], kept: Kept, differences: Iterable[str]) -> Kept:
    """What is kept after some stored differences."""
    for text in differences:
        if text != "{}":
            kept, _ = plan.apply(kept, text)
    return kept


async def base_of(store: Store, definition: Definition, branch: Branch, bases: Bases) -> Kept:
    """The context with which a branch began: that of its parent, and what the branches that it needed made of it."""
    shared = await _shared_base(store, definition, branch, bases)
    before = needed_by(definition, branch)
    if not before:
        return shared
    key = (branch.parent, branch.group, branch.visit, tuple(before))
    found = bases.get(key)
    if found is not None:
        return found
    done = await branched(store, definition, branch.parent, branch.group, branch.visit, bases, only=before)
    kept, _ = definition.context.keep(shared, merged(definition.context, shared, done))
    return bases.put(key, kept)


async def _shared_base(store: Store, definition: Definition, branch: Branch, bases: Bases) -> Kept:
    key = (branch.parent, branch.base)
    found = bases.get(key)
    if found is not None:
        return found
    parent = await store.run(branch.parent)
    if parent is None:
        raise StoreError(f"run {branch.parent!r}, of which a branch is at work, is not in the database")
    return bases.put(key, await load_context(store, definition, parent, branch.base, bases))


def needed_by(definition: Definition, branch: Branch) -> list[str]:
    """The names of all branches that must be done before this one, in the order in which they can be."""
    branching = definition.states[branch.group].branching
    return [] if branching is None or branching.needs is None else _all_needs(branching.needs)[branch.name]


def _all_needs(needs: Mapping[Any, Sequence[Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for head in needs_in_order(needs) or ():
        names: dict[str, None] = {}
        for need in needs[head]:
            names.update(dict.fromkeys([*found[need.name], need.name]))
        found[head.name] = list(names)
    return {name: [one for one in found if one in before] for name, before in found.items()}


async def branched(
    store: Store,
    definition: Definition,
    parent: str,
    group: str,
    visit: int,
    bases: Bases,
    *,
    only: Sequence[str] | None = None,
) -> list[Branched]:
    """What the completed branches of a group made of their contexts, in their order; `only` those of these names."""
    rows = await store.branches(parent, group, visit)
    differences = await store.branch_differences(parent, group, visit)
    found: dict[str, Branched] = {}
    for row in rows:
        branch = branch_of(row)
        if branch is None or row.standing.status != "completed" or (only is not None and branch.name not in only):
            continue
        base = await base_of(store, definition, branch, bases)
        kept = applied(definition.context, base, differences.get(row.id, ()))
        found[branch.name] = Branched(branch.name, base, kept, frozenset(needed_by(definition, branch)))
    order = _in_order(definition, group) or list(found) if only is None else only
    return [found[name] for name in order if name in found]


def _in_order(definition: Definition, group: str) -> list[str]:
    """Of a graph, the branches each after those that it needs."""
    branching = definition.states[group].branching
    needs = None if branching is None else branching.needs
    return [] if needs is None else [head.name for head in needs_in_order(needs) or ()]
