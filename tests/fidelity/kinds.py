"""Strategies: any type that a context may hold, with values of it that are hard to keep."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from agentflow import Blob, Context
from agentflow.merge import Append
from tests.fidelity.zoo import (
    Cat,
    Colour,
    Dog,
    Leaf,
    Level,
    Line,
    Mixed,
    Money,
    Node,
    Order,
    Outer,
    Right,
)

Values = st.SearchStrategy[Any]


@dataclass(frozen=True)
class Kind:
    """A type, as its text, and its values."""

    text: str
    values: Values
    hashable: bool = False  # of which sets can be made
    immutable: bool = False  # which an Append may hold

    def __repr__(self) -> str:
        return self.text


ZONES = [UTC, timezone(timedelta(hours=5, minutes=45)), *map(ZoneInfo, ("Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"))]  # fmt: skip

# Python's own text is wider than what can be written: halves of characters are refused, see test_refusals.
TEXTS: Values = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    [
        "",
        "\x00",
        "a\x00b",
        "\u2028",
        "\ufeff",
        "é",
        "e\u0301",
        "日本",
        "🙂",
        '"\\/',
        "null",
        "1",
        "True",
        "{{ x }}",
        "a.b['c']",
    ]
)
INTEGERS: Values = st.integers() | st.sampled_from([0, -1, 2**53 + 1, 2**63, -(2**63) - 1, 2**70, -(2**70), 10**100])
FINITE: Values = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 5e-324, 1e16, 1e22, 0.1])
FLOATS: Values = FINITE | st.sampled_from([math.inf, -math.inf])
DECIMALS: Values = st.decimals(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [
        Decimal("1.10"),
        Decimal("1.1"),
        Decimal("-0.00"),
        Decimal("1E+100"),
        Decimal("0E-20"),
        Decimal("123456789.123456789"),
    ]
)
INSTANTS: Values = st.builds(
    lambda instant, zone, fold: instant.replace(tzinfo=zone, fold=fold),
    st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001  the zone is drawn, too
    | st.sampled_from([datetime(2030, 10, 27, 2, 30), datetime(2030, 3, 31, 2, 30), datetime(2030, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001  where clocks change
    st.sampled_from(ZONES),
    st.integers(0, 1),
)
DAYS: Values = st.dates() | st.sampled_from([date.min, date.max])
SPANS: Values = st.timedeltas() | st.sampled_from(
    [timedelta.min, timedelta.max, timedelta(microseconds=-1), timedelta(0), timedelta(days=-1, seconds=1)]
)
MONEY: Values = st.builds(Money, DECIMALS, st.none() | INSTANTS, st.frozensets(TEXTS, max_size=2))
LINES: Values = st.builds(Line, TEXTS, MONEY, st.lists(st.sampled_from(Level), max_size=2).map(tuple))
LEAVES: Values = st.builds(
    Leaf, name=TEXTS, weight=FLOATS, raw=st.binary(max_size=4), colour=st.none() | st.sampled_from(Colour)
)
PETS: Values = st.builds(Cat, lives=INTEGERS) | st.builds(Dog, name=TEXTS, since=st.none() | DAYS)
NODES: Values = st.recursive(
    st.builds(Node, name=TEXTS),
    lambda inner: st.builds(Node, name=TEXTS, children=st.lists(inner, max_size=2)),
    max_leaves=4,
)
PLAIN_ORDERS: Values = st.builds(
    Order,
    theNumber=INTEGERS,
    lines=st.lists(LINES, max_size=2),
    by_day=st.dictionaries(TEXTS, INSTANTS, max_size=2),
    pets=st.lists(PETS, max_size=2),
    labels=st.sets(st.sampled_from(Colour)),
)
ORDERS: Values = PLAIN_ORDERS | st.builds(
    lambda order, parent: order.model_copy(update={"parent": parent}), PLAIN_ORDERS, PLAIN_ORDERS
)
BLOBS: Values = st.builds(Blob, st.binary(max_size=20), media_type=st.sampled_from(["image/png", "text/plain"]))

SCALARS = [
    Kind("bool", st.booleans(), True, True),
    Kind("int", INTEGERS, True, True),
    Kind("float", FLOATS, True, True),
    Kind("str", TEXTS, True, True),
    Kind("bytes", st.binary(max_size=5) | st.just(b"\xff\x00"), True, True),
    Kind("Decimal", DECIMALS, True, True),
    Kind("datetime", INSTANTS, True, True),
    Kind("date", DAYS, True, True),
    Kind("timedelta", SPANS, True, True),
    Kind("UUID", st.uuids(), True, True),
    Kind("Colour", st.sampled_from(Colour), True, True),
    Kind("Level", st.sampled_from(Level), True, True),
    Kind("Mixed", st.sampled_from(Mixed), True, True),
    Kind("Right", st.sampled_from([Right.READ, Right.READ | Right.WRITE, Right(0)]), True, True),
    Kind("Inner", st.sampled_from(Outer.Inner), True, True),
    Kind("Choice", st.sampled_from(["a", "b", 1, True, None]), False, True),  # 1 and True are one item of a set
    Kind("Key", TEXTS, True, True),
    Kind("Positive", st.integers(1), True, True),
    Kind("Money", MONEY, True, True),
    Kind("Line", LINES, True, True),
    Kind("Leaf", LEAVES, True, True),
    Kind("Blob", BLOBS, False, True),
]
CLASSES = [
    Kind("Pet", PETS),
    Kind("Node", NODES),
    Kind("Order", ORDERS),
    Kind("float", FLOATS | st.just(math.nan), False, True),
]

KEYS: list[tuple[str, Values]] = [
    ("str", TEXTS),
    ("int", INTEGERS),
    ("Colour", st.sampled_from(Colour)),
    ("Key", TEXTS),
]


def _around(inner: Kind) -> Values:
    """Types that hold one other type."""
    some = st.lists(inner.values, max_size=3)
    found = [
        Kind(f"list[{inner}]", some),
        Kind(f"tuple[{inner}, ...]", some.map(tuple), inner.hashable, inner.immutable),
        *(Kind(f"dict[{key}, {inner}]", st.dictionaries(keys, inner.values, max_size=3)) for key, keys in KEYS),
    ]
    if inner.text != "Choice" and not inner.text.endswith("None"):
        found.append(Kind(f"{inner} | None", st.none() | inner.values, inner.hashable, inner.immutable))
    if inner.hashable:
        found.append(Kind(f"set[{inner}]", some.map(set)))
        found.append(Kind(f"frozenset[{inner}]", some.map(frozenset), True, True))
    if inner.immutable:
        found.append(Kind(f"Append[{inner}]", some.map(Append)))
    return st.sampled_from(found)


def _pair(one: Kind, other: Kind) -> Kind:
    values = st.tuples(one.values, other.values)
    return Kind(f"tuple[{one}, {other}]", values, one.hashable and other.hashable, one.immutable and other.immutable)


BASE = st.sampled_from([*SCALARS, *CLASSES])
KINDS: st.SearchStrategy[Kind] = st.recursive(
    BASE, lambda inner: inner.flatmap(_around) | st.builds(_pair, inner, inner), max_leaves=3
)


@dataclass(frozen=True)
class Made:
    """A context class, as the texts of its types, and values of its fields at two moments."""

    types: Mapping[str, str]
    first: Mapping[str, Any]
    then: Mapping[str, Any]

    def context(self, kind: type[Context]) -> Context:
        """The context at the first moment, of a class that `context_class` made of the types."""
        return kind.model_construct(**self.first)


@st.composite
def contexts(draw: st.DrawFn, kinds: st.SearchStrategy[Kind] = KINDS) -> Made:
    """Any context class, with values."""
    found = draw(st.lists(kinds, min_size=1, max_size=3))
    named = {f"f{number}": kind for number, kind in enumerate(found)}
    first = {name: draw(kind.values) for name, kind in named.items()}
    then = {name: draw(kind.values) for name, kind in named.items()}
    return Made({name: kind.text for name, kind in named.items()}, first, then)
