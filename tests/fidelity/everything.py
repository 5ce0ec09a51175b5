"""One context with every type of the list, and the values of them that are hardest to keep."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from agentflow import Blob
from agentflow.merge import Append
from tests.fidelity.kinds import Made
from tests.fidelity.zoo import Cat, Colour, Dog, Leaf, Level, Line, Mixed, Money, Node, Order, Outer, Right

PARIS = ZoneInfo("Europe/Paris")
TWICE = datetime(2030, 10, 27, 2, 30, tzinfo=PARIS)  # the clock shows this time twice
MONEY = Money(Decimal("1.10"), TWICE.replace(fold=1), frozenset({"b", "a"}))
LINE = Line("\x00", MONEY, (Level.HIGH, Level.LARGEST))

VALUES: dict[str, tuple[str, Any]] = {
    "truth": ("bool", True),
    "whole": ("int", 2**70),
    "below": ("int", -(2**70)),
    "zero": ("float", -0.0),
    "endless": ("list[float]", [math.inf, -math.inf, math.nan, 5e-324, 1e22]),
    "text": ("str", "é e\u0301 日本 🙂 \x00 \u2028"),
    "empty": ("str", ""),
    "raw": ("bytes", b"\xff\x00"),
    "price": ("Decimal", Decimal("1.10")),
    "prices": ("list[Decimal]", [Decimal("1.1"), Decimal("-0.00"), Decimal("1E+100"), Decimal("0E-20")]),
    "first": ("datetime", TWICE),
    "again": ("datetime", TWICE.replace(fold=1)),
    "other": ("datetime | None", datetime(2030, 1, 1, 13, 30, 0, 1, tzinfo=timezone(-timedelta(hours=8)))),
    "both": ("set[datetime]", {TWICE.replace(fold=1), datetime(2030, 1, 1, tzinfo=UTC)}),
    "day": ("date", date.max),
    "spans": ("tuple[timedelta, ...]", (timedelta.min, timedelta.max, timedelta(microseconds=-1))),
    "id": ("UUID", UUID(int=2**128 - 1)),
    "colour": ("Colour", Colour.RED),
    "colours": ("set[Colour]", {Colour.ODD, Colour.NONE}),
    "level": ("Level", Level.HIGH),
    "mixed": ("list[Mixed]", [Mixed.TEXT, Mixed.NUMBER]),
    "right": ("Right", Right.READ | Right.WRITE),
    "inner": ("dict[str, Inner]", {"a": Outer.Inner.B, "A": Outer.Inner.A}),
    "choices": ("list[Choice]", ["a", 1, True, None]),
    "pair": ("tuple[int, str]", (1, "1")),
    "nothing": ("tuple[str, ...]", ()),
    "deep": ("frozenset[tuple[int, frozenset[str]]]", frozenset({(1, frozenset({"a"})), (2, frozenset[str]())})),
    "by_name": ("dict[str, int]", {"1": 1, "": 2, "a.b['c']": 3, "\x00": 4}),
    "by_number": ("dict[int, str]", {1: "1", -1: "-1", 2**70: "", 0: "0"}),
    "by_colour": ("dict[Colour, list[Leaf]]", {Colour.PALE_BLUE: [Leaf(raw=b"\xff", weight=-0.0)], Colour.NONE: []}),
    "lines": ("list[Line]", [LINE]),
    "line": ("Line", LINE),
    "pets": ("list[Pet]", [Cat(lives=2**70), Dog(name="Rex", since=date.min)]),
    "tree": ("Node", Node(name="a", children=[Node(name="b", children=[Node(name="c")])])),
    "order": ("Order", Order(theNumber=7, lines=[LINE], by_day={"d": TWICE}, pets=[Dog()], parent=Order())),
    "log": ("Append[Line]", Append([LINE])),
    "notes": ("Append[str]", Append(["\x00", ""])),
    "nested": ("dict[str, Append[int]]", {"a": Append([1])}),
    "scan": ("Blob", Blob(b"\x00\xff", media_type="image/png")),
    "scans": ("Append[Blob]", Append([Blob(b""), Blob(b"2")])),
}  # fmt: skip

EVERYTHING = Made(
    {name: text for name, (text, _) in VALUES.items()},
    {name: value for name, (_, value) in VALUES.items()},
    {name: value for name, (_, value) in VALUES.items()},
)
