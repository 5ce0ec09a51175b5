"""How what branches wrote becomes one context: by the rule of each field, in the order of the branches."""

from typing import Annotated, Any

import pytest

from agentflow import Context
from agentflow.engine.merging import Branched, merged
from agentflow.failures import MergeConflict
from agentflow.merge import Add, Append, Last, Merge, Most, Unite, Update
from agentflow.model.context import plan_of


def longest(one: str, other: str) -> str:
    return max(one, other, key=len)


class Case(Context):
    plain: int = 0
    other: str = ""
    total: Add[int] = 10
    best: Most[float] = 1.5
    last: Last[str] = ""
    tags: Unite[str] = set()
    votes: Update[str, int] = {}
    title: Annotated[str, Merge(longest)] = ""
    log: Append[str] = Append()


PLAN: Any = plan_of(Case)
BASE, _ = PLAN.start(Case(tags={"a"}, votes={"x": 1}, log=Append(["begin"])))


def branch(name: str, *, base: Any = BASE, after: frozenset[str] = frozenset(), **changes: Any) -> Branched:
    copy = PLAN.copy(base)
    for field, value in changes.items():
        if field == "log":
            copy.log.extend(value)
        else:
            setattr(copy, field, value)
    return Branched(name, base, PLAN.keep(base, copy)[0], after)


def test_what_nobody_wrote_stays() -> None:
    assert merged(PLAN, BASE, [branch("a"), branch("b")]) == PLAN.copy(BASE)
    assert merged(PLAN, BASE, []) == PLAN.copy(BASE)


def test_fields_that_one_branch_wrote_are_its_own() -> None:
    found: Any = merged(PLAN, BASE, [branch("a", plain=3), branch("b", other="b")])
    assert (found.plain, found.other) == (3, "b")


@pytest.mark.parametrize(
    ("field", "one", "two", "found"),
    [
        ("total", 15, 7, 12),  # 10 + 5 - 3
        ("best", 0.5, 9.5, 9.5),
        ("best", 0.5, 1.0, 1.5),  # what was there is among them
        ("last", "a", "b", "b"),
        ("tags", {"a", "b"}, {"a", "c"}, {"a", "b", "c"}),
        ("votes", {"x": 1, "y": 2}, {"x": 1, "z": 3}, {"x": 1, "y": 2, "z": 3}),
        ("title", "long title", "short", "long title"),
    ],
)
def test_each_rule_merges_what_two_branches_wrote(field: str, one: Any, two: Any, found: Any) -> None:
    assert getattr(merged(PLAN, BASE, [branch("a", **{field: one}), branch("b", **{field: two})]), field) == found


def test_new_items_follow_each_other_in_the_order_of_the_branches() -> None:
    found: Any = merged(PLAN, BASE, [branch("a", log=["a1", "a2"]), branch("b"), branch("c", log=["c1"])])
    assert list(found.log) == ["begin", "a1", "a2", "c1"]


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ({"plain": 1}, {"plain": 2}, "field 'plain' was written by several branches and has no merge rule: a, b"),
        ({"plain": 1}, {"plain": 1}, "field 'plain' was written by several branches and has no merge rule: a, b"),
        ({"votes": {"x": 2}}, {"votes": {"x": 3}}, "key 'x' of field 'votes' was written twice: a, b"),
        ({"votes": {}}, {}, "field 'votes' only grows in branches, and key 'x' was removed: a"),
        ({}, {"tags": set[str]()}, "field 'tags' only grows in branches, and items were taken out of it: b"),
    ],
)
def test_a_conflict_names_the_field_and_the_branches(one: Any, two: Any, message: str) -> None:
    with pytest.raises(MergeConflict) as raised:
        merged(PLAN, BASE, [branch("a", **one), branch("b", **two)])
    assert str(raised.value) == message
    assert raised.value.field in {"plain", "votes", "tags"}


def test_a_branch_that_needed_another_may_write_over_what_that_wrote() -> None:
    first = branch("a", plain=1, votes={"x": 5})
    second = branch("b", base=first.kept, after=frozenset({"a"}), plain=2, votes={"x": 7, "y": 1})
    found: Any = merged(PLAN, BASE, [first, second])
    assert (found.plain, found.votes) == (2, {"x": 7, "y": 1})


def test_the_kept_context_is_left_alone() -> None:
    before = PLAN.copy(BASE)
    merged(PLAN, BASE, [branch("a", tags={"a", "z"}, votes={"x": 1, "q": 1}, log=["more"])])
    assert PLAN.copy(BASE) == before
