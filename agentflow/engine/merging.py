"""How what branches wrote becomes one context again: by the rule of each field, in the order of the branches.

A field without a rule may be written by one branch only, or by branches of which each needs the one before; two others
are a conflict, which names the field and the branches, and nothing is merged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Any

from agentflow.failures import MergeConflict
from agentflow.merge import Merge
from agentflow.model.context import Context, ContextPlan, Kept
from agentflow.record import record


@record
class Branched:
    """What one branch made of the context that it began with."""

    name: str
    base: Kept
    kept: Kept
    after: frozenset[str] = field(
        default_factory=frozenset[str]
    )  # names of branches that it needed, of all generations


def merged(plan: ContextPlan[Any], kept: Kept, branches: Sequence[Branched]) -> Context:
    """A copy of the kept context with what the branches wrote. Raises `MergeConflict`."""
    copy: Context = plan.copy(kept)
    for name, one in plan.fields.items():
        if one.append:
            for branch in branches:
                added = branch.kept.values[name][branch.base.lengths[name] : branch.kept.lengths[name]]
                getattr(copy, name).extend(added)
            continue
        writers = [branch for branch in branches if branch.kept.texts[name] != branch.base.texts[name]]
        if writers:
            object.__setattr__(copy, name, _merged_field(plan, name, kept, writers))
    return copy


def _merged_field(plan: ContextPlan[Any], name: str, kept: Kept, writers: Sequence[Branched]) -> Any:
    rule: Any = rule_of(plan, name)
    values = [_value(plan, name, writer.kept) for writer in writers]
    own: Any = getattr(rule, "rule", None)
    if own is not None:
        return reduce(own, values)
    if rule is not None:
        before = [_value(plan, name, writer.base) for writer in writers]
        return RULES[rule](name, _value(plan, name, kept), before, values, writers)
    for number, later in enumerate(writers):
        for earlier in writers[:number]:
            if earlier.name not in later.after:
                raise _conflict(f"field {name!r} was written by several branches and has no merge rule", name, writers)
    return values[-1]


def rule_of(plan: ContextPlan[Any], name: str) -> Any:
    """The merge rule of a field: the word of `agentflow.merge`, a `Merge`, or None."""
    return next((mark for mark in plan.kind.model_fields[name].metadata if _is_rule(mark)), None)


def _is_rule(mark: Any) -> bool:
    return isinstance(mark, Merge) or (isinstance(mark, str) and mark in RULES)


def _value(plan: ContextPlan[Any], name: str, kept: Kept) -> Any:
    one = plan.fields[name]
    return kept.values[name] if one.shared else one.load(kept.texts[name], kept.source)


def _conflict(why: str, name: str, writers: Sequence[Branched]) -> MergeConflict:
    names = tuple(writer.name for writer in writers)
    return MergeConflict(f"{why}: {', '.join(names)}", field=name, branches=names)


# --- the rules of agentflow.merge --------------------------------------------------------------------------------

Rule = Callable[[str, Any, Sequence[Any], Sequence[Any], Sequence[Branched]], Any]


def _add(name: str, base: Any, before: Sequence[Any], values: Sequence[Any], writers: Sequence[Branched]) -> Any:
    return reduce(lambda total, pair: total + (pair[1] - pair[0]), zip(before, values, strict=True), base)


def _most(name: str, base: Any, before: Sequence[Any], values: Sequence[Any], writers: Sequence[Branched]) -> Any:
    return max([base, *values])


def _last(name: str, base: Any, before: Sequence[Any], values: Sequence[Any], writers: Sequence[Branched]) -> Any:
    return values[-1]


def _unite(name: str, base: Any, before: Sequence[Any], values: Sequence[Any], writers: Sequence[Branched]) -> Any:
    for writer, had, has in zip(writers, before, values, strict=True):
        if had - has:
            raise _conflict(f"field {name!r} only grows in branches, and items were taken out of it", name, [writer])
    return base.union(*values)


def _update(name: str, base: Any, before: Sequence[Any], values: Sequence[Any], writers: Sequence[Branched]) -> Any:
    owner: dict[Any, Branched] = {}
    merged = dict(base)
    for writer, had, has in zip(writers, before, values, strict=True):
        if gone := [key for key in had if key not in has]:
            raise _conflict(f"field {name!r} only grows in branches, and key {gone[0]!r} was removed", name, [writer])
        for key, value in has.items():
            if key in had and had[key] == value:
                continue
            if key in owner and owner[key].name not in writer.after:
                raise _conflict(f"key {key!r} of field {name!r} was written twice", name, [owner[key], writer])
            owner[key], merged[key] = writer, value
    return merged


RULES: Mapping[str, Rule] = {"add": _add, "most": _most, "last": _last, "unite": _unite, "update": _update}
