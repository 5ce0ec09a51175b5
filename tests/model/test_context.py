"""Contexts: what comes back from storage is what was there, in value and type, or it is refused with its path."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator, model_validator

from agentflow import Context, Failure
from agentflow.errors import InvalidContext, InvalidInput
from agentflow.merge import Add, Append, Unite
from agentflow.model.context import ContextPlan, plan_of
from agentflow.model.fieldtypes import check_type


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    ONE = "one"


@dataclass(frozen=True)
class Point:
    x: int
    y: Decimal


class Line(BaseModel):
    text: str
    numbers: list[int] = []


class Frozen(BaseModel, frozen=True):
    name: str


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Zoo(Context):
    colour: Colour = Colour.RED
    size: Size = Size.SMALL
    word: Word = Word.ONE
    money: Decimal = Decimal("1.10")
    at: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    day: date = date(2030, 1, 1)
    span: timedelta = timedelta(days=1, microseconds=3)
    uuid: UUID = UUID(int=7)
    raw: bytes = b"\xff\x00"
    names: set[str] = set()
    fixed: frozenset[int] = frozenset()
    pair: tuple[int, str] = (1, "a")
    many: tuple[Frozen, ...] = ()
    by_number: dict[int, str] = {}
    by_word: dict[Word, list[Decimal]] = {}
    point: Point = Point(1, Decimal("2.50"))
    line: Line = Line(text="")
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat(lives=9)
    maybe: int | None = None
    choice: Literal["a", "b"] = "a"
    number: float = 0.5
    big: int = 0
    text: str = ""
    flag: bool = False
    total: Add[int] = 0
    tags: Unite[str] = set()
    log: Append[str] = Append()


PLAN: ContextPlan[Zoo] = plan_of(Zoo)

VALUES: list[tuple[str, Any]] = [
    ("colour", Colour.BLUE),
    ("money", Decimal("1.50")),
    ("money", Decimal("1.5")),
    ("money", Decimal("-0")),
    ("at", datetime(2030, 6, 1, 12, 30, tzinfo=timezone(timedelta(hours=-8)))),
    ("span", timedelta(microseconds=-1)),
    ("raw", b""),
    ("names", {"b", "a", ""}),
    ("fixed", frozenset({3, 1})),
    ("many", (Frozen(name="x"), Frozen(name="日本"))),
    ("by_number", {1: "a", 10: "b"}),
    ("by_word", {Word.ONE: [Decimal("1.00")]}),
    ("point", Point(-1, Decimal("0.10"))),
    ("line", Line(text="\x00 nul", numbers=[2**70])),
    ("pet", Dog(name="Rex")),
    ("maybe", 0),
    ("number", -0.0),
    ("number", 1e300),
    ("number", math.inf),
    ("big", 2**70),
    ("text", "\x00\u200b emoji 🙂"),
    ("flag", True),
    ("tags", {"x"}),
]


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_b54_a_value_comes_back_with_its_type(name: str, value: Any) -> None:
    kept, first = PLAN.start(Zoo())
    case = PLAN.copy(kept)
    setattr(case, name, value)
    changed, difference = PLAN.keep(kept, case)
    for back in (PLAN.copy(changed), PLAN.copy(PLAN.load([first.text(), difference.text()]))):
        found = getattr(back, name)
        assert found == value
        assert type(found) is type(value)
        assert repr(found) == repr(value) or isinstance(value, datetime | set | frozenset)


def test_nan_comes_back_as_nan() -> None:
    kept, first = PLAN.start(Zoo(number=math.nan))
    assert math.isnan(PLAN.copy(PLAN.load([first.text()])).number)
    assert PLAN.keep(kept, PLAN.copy(kept))[0] is kept


REFUSED: list[tuple[str, Any, str]] = [
    ("text", None, "context.text"),
    ("text", "\ud800", "context.text"),
    ("maybe", "3", "context.maybe"),
    ("big", True, "context.big"),
    ("flag", 1, "context.flag"),
    ("money", 3, "context.money"),
    ("money", Decimal("NaN"), "context.money"),
    ("at", datetime(2030, 1, 1), "context.at"),  # noqa: DTZ001  that is the point
    ("day", datetime(2030, 1, 1, tzinfo=UTC), "context.day"),
    ("pair", [1, "a"], "context.pair"),
    ("by_number", {"1": "a"}, "context.by_number"),
    ("names", ["a"], "context.names"),
    ("log", ["a"], "context.log"),
    ("choice", "c", "context.choice"),
]


@pytest.mark.parametrize(("name", "value", "path"), REFUSED)
def test_b57_a_value_that_would_not_come_back_is_refused_with_its_path(name: str, value: Any, path: str) -> None:
    kept, _ = PLAN.start(Zoo())
    case = PLAN.copy(kept)
    setattr(case, name, value)
    with pytest.raises(InvalidContext) as caught:
        PLAN.keep(kept, case)
    assert caught.value.path.startswith(path)
    assert PLAN.copy(kept) == Zoo()


def test_an_invalid_change_inside_a_nested_model_is_found() -> None:
    kept, _ = PLAN.start(Zoo(line=Line(text="a", numbers=[1])))
    case = PLAN.copy(kept)
    bad: Any = "x"
    case.line.numbers.append(bad)
    with pytest.raises(InvalidContext, match=r"context\.line"):
        PLAN.keep(kept, case)


def test_a_change_inside_a_nested_model_is_kept_and_the_old_copy_is_not_touched() -> None:
    kept, _ = PLAN.start(Zoo(line=Line(text="a")))
    case = PLAN.copy(kept)
    case.line.numbers.append(1)
    changed, difference = PLAN.keep(kept, case)
    assert difference.text() == '{"set":{"line":{"text":"a","numbers":[1]}}}'
    assert (PLAN.copy(kept).line.numbers, PLAN.copy(changed).line.numbers) == ([], [1])


def test_true_one_and_one_point_zero_are_three_values() -> None:
    class Loose(Context):
        number: float = 1.0
        flag: bool = True

    plan = plan_of(Loose)
    kept, _ = plan.start(Loose())
    case = plan.copy(kept)
    case.number = 1
    assert plan.keep(kept, case)[1].text() == "{}"  # an int in a float field is that float
    assert type(plan.copy(plan.keep(kept, case)[0]).number) is float


def test_sets_are_equal_in_whatever_order_they_were_built() -> None:
    kept, _ = PLAN.start(Zoo(names={"a", "b", "c"}))
    case = PLAN.copy(kept)
    case.names = {"c", "b", "a"}
    assert PLAN.keep(kept, case)[0] is kept


def test_contexts_are_equal_by_their_fields_however_the_run_came_there() -> None:
    kept, _ = PLAN.start(Zoo())
    failed = PLAN.copy(kept, Failure("Business", "closed", "pay"))
    assert failed == PLAN.copy(kept) == Zoo()
    assert failed != Zoo(big=1)


def test_a_missing_or_unknown_field_is_refused() -> None:
    kept, _ = PLAN.start(Zoo())
    case = PLAN.copy(kept)
    del case.text
    with pytest.raises(InvalidContext, match=r"context\.text: is missing"):
        PLAN.keep(kept, case)
    with pytest.raises(ValueError, match="no field"):
        setattr(case, "unknown", 1)  # noqa: B010  a slip that type checkers would find


def test_a_default_that_is_mutable_is_not_shared_between_runs() -> None:
    one, _ = PLAN.start(Zoo())
    case = PLAN.copy(one)
    case.names.add("x")
    case.log.append("y")
    PLAN.keep(one, case)
    assert (Zoo().names, list(Zoo().log)) == (set(), [])


# --- Append ------------------------------------------------------------------------------------------------------


def test_only_new_items_of_an_append_field_are_written() -> None:
    kept, _ = PLAN.start(Zoo(log=Append(["a"])))
    case = PLAN.copy(kept)
    case.log.extend(["b", "c"])
    changed, difference = PLAN.keep(kept, case)
    assert difference.text() == '{"add":{"log":["b","c"]}}'
    assert list(PLAN.copy(changed).log) == ["a", "b", "c"]


def test_what_a_failed_attempt_appended_is_gone() -> None:
    kept, _ = PLAN.start(Zoo(log=Append(["a"])))
    PLAN.copy(kept).log.append("lost")
    assert list(PLAN.copy(kept).log) == ["a"]
    again = PLAN.copy(kept)
    again.log.append("b")
    assert list(PLAN.copy(PLAN.keep(kept, again)[0]).log) == ["a", "b"]


def test_two_copies_of_one_append_field_grow_apart() -> None:
    kept, _ = PLAN.start(Zoo(log=Append(["a"])))
    one, other = PLAN.copy(kept), PLAN.copy(kept)
    one.log.append("one")
    other.log.append("other")
    assert (list(one.log), list(other.log)) == (["a", "one"], ["a", "other"])


@pytest.mark.parametrize("items", [[], ["b"], ["b", "a"]])
def test_an_append_field_that_was_replaced_by_other_items_is_refused(items: list[str]) -> None:
    kept, _ = PLAN.start(Zoo(log=Append(["a"])))
    case = PLAN.copy(kept)
    case.log = Append(items)
    with pytest.raises(InvalidContext, match="only grows"):
        PLAN.keep(kept, case)


def test_a_step_looks_at_the_new_items_alone_however_long_the_list_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _ = PLAN.start(Zoo(log=Append(str(number) for number in range(20_000))))
    case = PLAN.copy(kept)
    case.log.append("new")
    looked: list[Any] = []
    field = type(PLAN.fields["log"])
    plain = field.dump

    def counted(self: Any, value: Any, *rest: Any) -> bytes:
        if self.name == "log":
            looked.append(value)
        return plain(self, value, *rest)

    monkeypatch.setattr(field, "dump", counted)
    PLAN.keep(kept, case)
    assert looked == ["new"]


# --- validators --------------------------------------------------------------------------------------------------


class Checked(Context):
    low: int = 0
    high: int = 10

    @field_validator("low")
    @classmethod
    def not_negative(cls, value: int) -> int:
        if value < 0:
            raise ValueError("low must not be negative")
        return value

    @model_validator(mode="after")
    def in_order(self) -> "Checked":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


@pytest.mark.parametrize(("low", "message"), [(-1, "must not be negative"), (11, "low is above high")])
def test_validators_of_the_context_run_on_what_a_step_leaves(low: int, message: str) -> None:
    plan = plan_of(Checked)
    kept, _ = plan.start(Checked())
    case = plan.copy(kept)
    case.low = low
    with pytest.raises(InvalidContext, match=message):
        plan.keep(kept, case)


def test_input_from_outside_is_refused_with_every_path() -> None:
    with pytest.raises(InvalidInput) as caught:
        PLAN.parse('{"big": "x", "line": {"text": 3}, "unknown": 1}')
    assert all(path in str(caught.value) for path in ("big:", "line.text:", "unknown:"))


# --- what is refused when a workflow is built ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        object,
        list,
        dict,
        complex,
        Callable[[], int],
        int | str,
        dict[tuple[int, int], str],
        Append[list[int]],
        list[Any],
        dict[Colour, int],
    ],
)
def test_a_type_that_cannot_come_back_is_named(annotation: Any) -> None:
    findings = check_type(annotation, "Case.field")
    assert findings
    assert all(finding.path.startswith("Case.field") for finding in findings)


# --- everything together -----------------------------------------------------------------------------------------


def edits() -> st.SearchStrategy[list[tuple[str, Any]]]:
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    instants = st.datetimes(timezones=st.just(UTC))
    one = st.one_of(
        st.tuples(st.just("text"), texts),
        st.tuples(st.just("big"), st.integers()),
        st.tuples(st.just("number"), st.floats(allow_nan=False)),
        st.tuples(st.just("money"), st.decimals(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just("at"), instants),
        st.tuples(st.just("names"), st.sets(texts, max_size=3)),
        st.tuples(st.just("by_number"), st.dictionaries(st.integers(), texts, max_size=3)),
        st.tuples(st.just("raw"), st.binary(max_size=4)),
        st.tuples(st.just("line"), st.builds(Line, text=texts, numbers=st.lists(st.integers(), max_size=3))),
        st.tuples(st.just("log"), st.lists(texts, max_size=3)),
    )
    return st.lists(one, max_size=12)


@given(edits())
def test_b54_every_revision_loads_as_it_was_seen(changes: list[tuple[str, Any]]) -> None:
    kept, difference = PLAN.start(Zoo())
    texts, seen = [difference.text()], [PLAN.copy(kept)]
    for name, value in changes:
        case = PLAN.copy(kept)
        if name == "log":
            case.log.extend(value)
        else:
            setattr(case, name, value)
        kept, difference = PLAN.keep(kept, case)
        texts.append(difference.text())
        seen.append(PLAN.copy(kept))
    for revision, live in enumerate(seen):
        loaded = PLAN.load(texts[: revision + 1])
        assert PLAN.copy(loaded) == live
    assert PLAN.load(texts).texts == kept.texts
    assert PLAN.load(texts).size == kept.size
