"""What can be proved of two types of a field: whether the new one takes every value of the old one, and as it was."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pydantic_core
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, create_model

from agentflow import Context
from agentflow.analysis.acceptance import same_json
from agentflow.analysis.widening import relation
from agentflow.errors import InvalidContext
from agentflow.model.context import ContextPlan
from agentflow.model.definition import context_outline


class Two(StrEnum):
    A = "a"
    B = "b"


class Three(StrEnum):
    A = "a"
    B = "b"
    C = "c"


class Small(BaseModel):
    x: int


class WithDefault(BaseModel):
    x: int
    y: str = ""


class WithMore(BaseModel):
    x: int
    y: str


class Wide(BaseModel):
    x: int | None


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class WideTree(BaseModel):
    value: int | None
    children: list["WideTree"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class LuckyCat(BaseModel):
    kind: Literal["cat"]
    lives: int | None


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class WithList(BaseModel):
    x: int
    y: list[int] = Field(default_factory=list)


def plan_with(kind: Any) -> ContextPlan[Any]:
    return ContextPlan(create_model("Case", __base__=Context, x=(kind, ...)))


def related(old: Any, new: Any) -> str:
    """How the schemas relate that two contexts would have for a field of these types."""
    one, other = (context_outline(plan_with(kind))["schema"] for kind in (old, new))
    return relation(one["properties"]["x"], other["properties"]["x"], one, other)


TOLD: list[tuple[Any, Any, str]] = [
    (int, int, "same"),
    (int, int | None, "wider"),
    (int | None, int, "narrower"),
    (int, str, "unknown"),
    (int, float, "unknown"),
    (Two, Three, "wider"),
    (Three, Two, "narrower"),
    (Two, str, "wider"),
    (Literal["a"], Literal["a", "b"], "wider"),
    (Annotated[int, Field(le=10)], Annotated[int, Field(le=20)], "wider"),
    (Annotated[int, Field(ge=0)], Annotated[int, Field(ge=-1)], "wider"),
    (int, Annotated[int, Field(le=20)], "narrower"),
    (Annotated[str, Field(max_length=3)], str, "wider"),
    (Annotated[str, Field(pattern="a")], Annotated[str, Field(pattern="b")], "unknown"),
    (str, Annotated[str, Field(min_length=1)], "narrower"),
    (list[int], list[int | None], "wider"),
    (list[int], list[str], "unknown"),
    (dict[str, int], dict[str, int | None], "wider"),
    (tuple[int, str], tuple[int, str], "same"),
    (tuple[int, str], tuple[int], "unknown"),
    (Small, WithDefault, "wider"),
    (Small, WithList, "unknown"),  # a default that is made by code
    (Small, Wide, "wider"),
    (WithDefault, Small, "narrower"),
    (Small, WithMore, "unknown"),
    (Tree, Tree, "same"),
    (Tree, WideTree, "wider"),
    (Cat | Dog, Cat | Dog, "same"),
    (Cat, Cat | Dog, "wider"),
    (Cat | Dog, LuckyCat | Dog, "wider"),
    (Cat | Dog, Cat, "narrower"),
    (Point, Point, "same"),
    (date, datetime, "unknown"),
    (str, UUID, "narrower"),
    (Decimal, Decimal, "same"),
    (str, Decimal, "narrower"),
    (Decimal, str, "wider"),
    (float, Decimal, "unknown"),
    (Decimal, float | str, "wider"),
    (Annotated[Decimal, Field(le=5)], Decimal, "wider"),
    (Decimal, Annotated[Decimal, Field(le=5)], "narrower"),
    (bytes, str, "wider"),
]


@pytest.mark.parametrize(("old", "new", "told"), TOLD, ids=lambda one: getattr(one, "__name__", str(one))[-40:])
def test_two_types_are_related_as_far_as_it_can_be_proved(old: Any, new: Any, told: str) -> None:
    found = related(old, new)
    assert found in {told, "unknown"}, "proved too much"
    assert found == told


TYPES: list[Any] = [
    int, str, bool, float, Two, Three, Small, Wide, WithDefault, Cat, Dog, LuckyCat, date, UUID, Decimal, Point,
    int | None, int | str, bool | int, Two | int, Cat | Dog, LuckyCat | Dog, list[int], list[int | None], list[Two],
    list[Three], dict[str, int], dict[str, int | None], tuple[int, str], tuple[int | None, str], Literal["a"],
    Literal["a", "b"], Annotated[int, Field(le=3)], Annotated[int, Field(le=3, ge=0)], Annotated[str, Field(max_length=2)],
]  # fmt: skip


FIT = [kind for kind in TYPES if "x" in plan_with(kind).fields]  # a context takes no union that JSON might mix up


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data(), st.sampled_from(FIT), st.sampled_from(FIT))
def test_what_is_proved_to_be_wider_takes_every_value_and_writes_it_as_it_was(data: Any, old: Any, new: Any) -> None:
    assume(related(old, new) in {"same", "wider"})
    value = data.draw(st.from_type(old) if not hasattr(old, "__metadata__") else st.integers(0, 3) | st.just("ab"))
    before, after = plan_with(old).fields["x"], plan_with(new).fields["x"]
    try:
        text = before.dump(TypeAdapter(old).validate_python(value))
    except (ValueError, InvalidContext):
        return
    back = after.dump(after.load(text))
    assert holds(pydantic_core.from_json(back), pydantic_core.from_json(text))


def holds(back: Any, before: Any) -> bool:
    """Whether all that was stored is there as it was; fields may be new, with their defaults."""
    if isinstance(before, dict):
        return all(name in back and holds(back[name], value) for name, value in before.items())
    if isinstance(before, list):
        return len(back) == len(before) and all(map(holds, back, before))
    return same_json(back, before)
