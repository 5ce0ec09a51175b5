"""B54 and B57, type by type: a value comes back equal and of its type, or is refused with the path to it."""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NewType, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, StringConstraints, computed_field, create_model
from pydantic import field_serializer as serialized

from agentflow import Context
from agentflow.errors import InvalidContext
from agentflow.merge import Append
from agentflow.model.context import plan_of


class Word(StrEnum):
    ONE = "one"
    TWO = "two"


class Number(IntEnum):
    ONE = 1


class Mixed(Enum):
    TEXT = "1"
    NUMBER = 1


class Right(Flag):
    READ = 1
    WRITE = 2


class Plain(BaseModel):
    text: str = ""
    number: float | None = None
    raw: bytes = b""
    at: datetime | None = None
    labels: set[int] = set()


class Frozen(BaseModel, frozen=True):
    name: str


class Richer(Frozen, frozen=True):
    extra: int = 0


class Aliased(BaseModel):
    number: int = Field(default=0, alias="theNumber")


class Renamed(BaseModel, serialize_by_alias=True):
    number: int = Field(default=0, validation_alias="in", serialization_alias="out")


class Bytes(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    raw: bytes = b""


class Lossy(BaseModel):
    number: float = 0.0

    @serialized("number")
    def short(self, value: float) -> float:
        return round(value, 2)


class Doubled(BaseModel):
    number: int = 0

    @computed_field
    def twice(self) -> int:
        return self.number * 2


class Node(BaseModel):
    name: str
    children: "list[Node]" = []


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = ""


Pet: Any = Annotated[Cat | Dog, Field(discriminator="kind")]
Key = NewType("Key", str)


@dataclass(frozen=True)
class Point:
    x: int
    y: Decimal


class Text(str): ...


def context_of(annotation: Any) -> type[Context]:
    made: type[Context] = create_model("Made", __base__=Context, value=(annotation, ...))
    assert plan_of(made).problems() == []
    return made


def back(annotation: Any, value: Any) -> Any:
    """The value of a field after it was written and loaded."""
    made = context_of(annotation)
    plan = plan_of(made)
    kept, difference = plan.start(made.model_construct(value=value))
    live: Any = plan.copy(kept)
    loaded: Any = plan.copy(plan.load([difference.text()]))
    assert exact(live.value) == exact(loaded.value)
    return loaded.value


def exact(value: Any) -> Any:
    """A form of a value in which two are equal only if they are the same, types included."""
    kind = type(value)
    if isinstance(value, datetime):
        return kind, value.astimezone(UTC)  # what comes back is the instant, in UTC
    if isinstance(value, BaseModel):
        return kind, [(name, exact(getattr(value, name))) for name in type(value).model_fields]
    if is_dataclass(value):
        return kind, [(field.name, exact(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, Mapping):
        return kind, [(exact(key), exact(part)) for key, part in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted((exact(item) for item in value), key=repr)
    if isinstance(value, list | tuple | Append):
        return kind, [exact(item) for item in value]
    return kind, repr(value)


BACK: list[tuple[Any, Any]] = [
    (list[float], [-0.0, 0.0, math.inf, -math.inf, 1e300, 5e-324]),
    (list[float | None], [math.nan, None]),
    (dict[str, Decimal], {"a": Decimal("1.50"), "b": Decimal("1.5"), "c": Decimal("-0.00"), "d": Decimal("1E+100")}),
    (list[int], [0, -1, 2**70, -(2**63) - 1]),
    (list[bool], [True, False]),
    (list[timedelta], [timedelta.min, timedelta.max, timedelta(microseconds=-1)]),
    (list[date], [date.min, date.max]),
    (list[datetime], [datetime.min.replace(tzinfo=UTC), datetime(2030, 7, 1, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))]),
    (UUID, UUID(int=2**128 - 1)),
    (dict[str, int], {"1": 1, "": 2, "\x00": 3, "a.b": 4, "日本": 5}),
    (dict[int, int], {1: 1, -1: 2, 2**70: 3}),
    (dict[Word, list[Frozen]], {Word.TWO: [Frozen(name="x")], Word.ONE: []}),
    (set[Frozen], {Frozen(name="b"), Frozen(name="a")}),
    (frozenset[Point], frozenset({Point(1, Decimal("1.0")), Point(2, Decimal("2.50"))})),
    (set[tuple[int, str]], {(2, "b"), (1, "a")}),
    (set[bytes], {b"\xff\xfe", b"a"}),
    (set[Word], {Word.TWO, Word.ONE}),
    (list[set[frozenset[int]]], [{frozenset({3, 1}), frozenset()}]),
    (Mixed, Mixed.NUMBER),
    (list[Mixed], [Mixed.TEXT, Mixed.NUMBER]),
    (Number, Number.ONE),
    (Right, Right.READ | Right.WRITE),
    (tuple[int, str, tuple[()]], (1, "a", ())),
    (tuple[Number, ...], (Number.ONE,)),
    (Pet, Dog(name="Rex")),
    (Pet | None, None),
    (list[Pet], [Cat(lives=1), Dog(name="Rex")]),
    (dict[str, Pet | None], {"a": Cat(), "b": None}),
    (Plain, Plain(text="\x00 \u2028 🙂", raw=b"utf-8", at=datetime(2030, 1, 1, tzinfo=UTC), labels={3, 1})),
    (Bytes, Bytes(raw=b"\xff\x00")),
    (list[Bytes], [Bytes(raw=b"\xff\x00")]),
    (set[bytes] | None, {b"\xff"}),
    (Aliased, Aliased(theNumber=3)),
    (list[Aliased], [Aliased(theNumber=3)]),
    (Renamed, Renamed.model_construct(number=4)),
    (Doubled, Doubled(number=2)),
    (Lossy, Lossy(number=1.25)),
    (Node, Node(name="a", children=[Node(name="b", children=[Node(name="c")])])),
    (Literal["a", 1, True, None], True),
    (Literal[Word.ONE], Word.ONE),
    (Key, Key("x")),
    (Annotated[int, Field(gt=0)], 5),
    (dict[str, Append[str]], {"a": Append(["x"])}),
    (Append[tuple[int, str]], Append([(1, "a"), (2, "b")])),
]


@pytest.mark.parametrize(("annotation", "value"), BACK)
def test_b54_a_value_comes_back_equal_and_of_its_type(annotation: Any, value: Any) -> None:
    assert exact(back(annotation, value)) == exact(value)


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001  that is the point
NO_ZONE = r"datetime\.datetime\(2030, 1, 1, 0, 0\) has no time zone; use an aware datetime"
REFUSED: list[tuple[Any, Any, str]] = [
    # what equals its text or number but is something else
    (list[str], [Word.ONE], r"value\[0\]: <Word\.ONE: 'one'> of type Word would come back as 'one' of type str"),
    (list[str], [Text("a")], r"value\[0\]: 'a' of type Text would come back as 'a' of type str"),
    (list[int], [1, Number.ONE], r"value\[1\]: <Number\.ONE: 1> of type Number would come back as 1 of type int"),
    (tuple[int, ...], (1, True), r"value\[1\]: True of type bool would come back as 1 of type int"),
    (set[int], {True}, r"value\[\]: True of type bool would come back as 1 of type int"),
    (list[float], [True], r"value\[0\]: "),
    (list[int], [1.0], r"value\[0\]: "),
    (list[bool], [1], r"value\[0\]: "),
    (list[Word], ["one"], r"value\[0\]: "),
    (list[Literal["one"]], [Word.ONE], r"value\[0\]: "),
    # what would lose something on the way
    (float, 2**53 + 1, r"value: 9007199254740993 of type int would come back as 9007199254740992\.0 of type float"),
    (list[Frozen], [Richer(name="a", extra=3)], r"value\[0\]: Richer\(.*\) of type Richer would come back as Frozen"),
    (Frozen, Richer(name="a"), r"value: Richer\("),
    (dict[str, int], defaultdict(int, a=1), r"value: defaultdict.* would come back as \{'a': 1\} of type dict"),
    (dict[str, int], Counter("a"), r"value: Counter"),
    (dict[str, int], OrderedDict(a=1), r"value: OrderedDict"),
    (list[Lossy], [Lossy(number=1.257)], r"value\[0\]\.number: 1\.257 would come back as 1\.26"),
    (
        Plain,
        Plain(number=math.nan),
        r"value\.number: nan would come back as null; ConfigDict\(ser_json_inf_nan='strings'\)",
    ),
    (
        Plain,
        Plain(number=math.inf),
        r"value\.number: inf would come back as null; ConfigDict\(ser_json_inf_nan='strings'\)",
    ),
    (datetime, datetime(2030, 1, 1, tzinfo=timezone(timedelta(seconds=30))), r"value: 2030-.*; use UTC"),
    (Annotated[str, StringConstraints(to_upper=True)], "a", r"value: 'a' would come back as 'A'"),
    (Annotated[list[int], PlainSerializer(sorted)], [2, 1], r"value\[0\]: 2 would come back as 1"),
    # keys
    (dict[str, int], {1: 1, "1": 2}, r"value\[1\]: "),
    (dict[str, int], {Word.ONE: 1}, r"value\[key <Word\.ONE: 'one'>\]: .* would come back as 'one' of type str"),
    (dict[int, int], {True: 1}, r"value\[True\]: "),
    (dict[Word, int], {"one": 1}, r"value\['one'\]: "),
    # text and bytes that have no form in JSON
    (list[str], ["\ud800"], r"value\[0\]: '\\ud800' holds half of a character \(a lone surrogate\)"),
    (Plain, Plain.model_construct(text="a\udfff"), r"value\.text: 'a\\udfff' holds half of a character"),
    (
        dict[str, int],
        {"\ud800": 1},
        r"value\[key '\\ud800'\]: '\\ud800' (would come back as|holds half of a character)",
    ),
    (Plain, Plain(raw=b"\xff"), r"value\.raw: b'\\xff' is not UTF-8; ConfigDict\(ser_json_bytes="),
    (dict[str, list[Plain]], {"a": [Plain(raw=b"\xff")]}, r"value\['a'\]\[0\]\.raw: b'\\xff' is not UTF-8"),
    # instants without a zone, at any depth
    (datetime, NAIVE, rf"value: {NO_ZONE}"),
    (datetime | None, NAIVE, rf"value: {NO_ZONE}"),
    (list[dict[str, tuple[datetime, ...]]], [{"a": (NAIVE,)}], rf"value\[0\]\['a'\]\[0\]: {NO_ZONE}"),
    (frozenset[datetime], frozenset({NAIVE}), rf"value\[\]: {NO_ZONE}"),
    (list[Plain], [Plain(at=NAIVE)], rf"value\[0\]\.at: {NO_ZONE}"),
    (list[date], [datetime(2030, 1, 1, tzinfo=UTC)], r"value\[0\]: "),
    # simply wrong
    (list[tuple[int, ...]], [[1]], r"value\[0\]: Input should be a valid tuple, got \[1\]"),
    (list[bytes], [bytearray(b"a")], r"value\[0\]: "),
    (list[Decimal], [Decimal("sNaN")], r"value\[0\]: Input should be a finite number"),
    (list[Pet], [Frozen(name="x")], r"value\[0\]"),
    (Node, Node.model_construct(name="a", children=[3]), r"value\.children\[0\]: "),
    (list[int], None, r"value: Input should be a valid array, got None"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSED)
def test_b57_a_value_that_would_not_come_back_is_refused_at_the_write_with_its_path(
    annotation: Any, value: Any, message: str
) -> None:
    with pytest.raises(InvalidContext, match=rf"^context\.{message}"):
        back(annotation, value)


@pytest.mark.parametrize(("annotation", "many"), [(int, False), (list[int], True)])
def test_a_number_of_more_digits_than_can_be_read_is_refused(annotation: Any, many: bool) -> None:
    huge = 10**5000
    with pytest.raises(InvalidContext, match=r"^context\.value: a value of type \w+ cannot be read back: number out"):
        back(annotation, [huge] if many else huge)


def test_a_body_that_leaves_what_cannot_be_stored_changes_nothing() -> None:
    made = context_of(list[int])
    plan = plan_of(made)
    kept, _ = plan.start(made.model_construct(value=[1]))
    case: Any = plan.copy(kept)
    case.value.append(True)
    with pytest.raises(InvalidContext, match=r"context\.value\[1\]"):
        plan.keep(kept, case)
    again: Any = plan.copy(kept)
    assert exact(again.value) == exact([1])


def test_equal_sets_have_one_text_however_they_were_built() -> None:
    made = context_of(dict[str, set[Frozen]])
    plan = plan_of(made)
    names = [Frozen(name=str(number)) for number in range(50)]
    _, one = plan.start(made.model_construct(value={"a": set(names)}))
    grown = set[Frozen]()
    for name in reversed(names):
        grown.add(name)
    _, other = plan.start(made.model_construct(value={"a": grown}))
    assert one.text() == other.text()


def test_a_float_that_becomes_another_is_a_change() -> None:
    made = context_of(dict[str, float | None])
    plan = plan_of(made)
    kept, _ = plan.start(made.model_construct(value={"a": 1.0}))
    case: Any = plan.copy(kept)
    case.value = {"a": 1.5}
    assert plan.keep(kept, case)[1].text() == '{"set":{"value":{"a":1.5}}}'


@pytest.mark.parametrize(
    ("annotation", "value", "alike"),
    [(int, 1, True), (float, 1.0, True), (str, "one", Word.ONE), (tuple[int, ...], (1,), (Number.ONE,))],
)
def test_what_only_looks_like_the_value_that_was_there_is_refused(annotation: Any, value: Any, alike: Any) -> None:
    made = context_of(annotation)
    plan = plan_of(made)
    kept, _ = plan.start(made.model_construct(value=value))
    case: Any = plan.copy(kept)
    case.value = alike
    with pytest.raises(InvalidContext, match=r"^context\.value"):
        plan.keep(kept, case)


def test_decimals_that_are_equal_but_written_differently_are_a_change() -> None:
    made = context_of(Decimal)
    plan = plan_of(made)
    kept, _ = plan.start(made.model_construct(value=Decimal("1.5")))
    case: Any = plan.copy(kept)
    case.value = Decimal("1.50")
    changed, difference = plan.keep(kept, case)
    assert difference.text() == '{"set":{"value":"1.50"}}'
    again: Any = plan.copy(changed)
    assert str(again.value) == "1.50"


# --- any type, any value -----------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXTS),
    (int, st.integers()),
    (bool, st.booleans()),
    (float, st.floats(allow_nan=False)),
    (bytes, st.binary(max_size=4)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Word, st.sampled_from(Word)),
    (Frozen, st.builds(Frozen, name=TEXTS)),
    (Point, st.builds(Point, x=st.integers(), y=st.decimals(allow_nan=False, allow_infinity=False))),
    (datetime, st.datetimes(datetime(1980, 1, 1), timezones=st.timezones())),  # noqa: DTZ001  as hypothesis wants it
]


LIST, TUPLE, DICT, SET, FROZENSET = (cast(Any, kind) for kind in (list, tuple, dict, set, frozenset))


def wrapped(inner: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    kind, values = inner
    return st.sampled_from(
        [
            (LIST[kind], st.lists(values, max_size=3)),
            (TUPLE[kind, ...], st.lists(values, max_size=3).map(tuple)),
            (DICT[str, kind], st.dictionaries(TEXTS, values, max_size=3)),
            (DICT[int, kind], st.dictionaries(st.integers(), values, max_size=3)),
            (kind | None, st.none() | values),
        ]
    )


TYPES = st.recursive(st.sampled_from(SCALARS), lambda inner: inner.flatmap(wrapped), max_leaves=4)


@given(st.data())
def test_b54_any_value_of_any_type_comes_back(data: st.DataObject) -> None:
    annotation, values = data.draw(TYPES)
    value = data.draw(values)
    assert exact(back(annotation, value)) == exact(value)


@given(st.sampled_from(SCALARS[:11]), st.data())
def test_b54_any_set_comes_back(scalar: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject) -> None:
    kind, values = scalar
    value = data.draw(st.frozensets(values, max_size=4))
    assert exact(back(FROZENSET[kind], value)) == exact(value)
    assert exact(back(SET[kind], set(value))) == exact(set(value))
