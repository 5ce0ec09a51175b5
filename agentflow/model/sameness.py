"""Whether a value that was read back is the one that was written: equal, of the same types, all the way down.

`==` cannot say it: True equals 1, Decimal("1.50") equals Decimal("1.5"), a StrEnum member equals its text, and a model
that dropped a field on the way may still be equal. The walk goes by the structure that the context's types allow.
"""

# This module looks into values of authors' types, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pydantic_core
from pydantic import BaseModel, RootModel

from agentflow.merge import Append
from agentflow.model.places import ITEM, KeyStep, Place, short

__all__ = ["DEEPEST", "NOT_FINITE", "TOO_DEEP", "Unlike", "sorted_sets", "unlike", "unwritable"]

DEEPEST = 190
"""Levels of JSON that a value may have: parsers take 200, and history wraps it into a few of its own."""
TOO_DEEP = f"is nested too deeply: at most {DEEPEST} levels can be stored"


@dataclass(frozen=True, slots=True)
class Unlike:
    """Where two values part, and why that matters; `bare` says it without showing them."""

    place: Place
    why: str
    bare: str = "would not come back as it is"


def unlike(value: Any, back: Any, place: Place = ()) -> Unlike | None:
    """The first place at which `back` is not what `value` was; None if they are the same."""
    if type(value) is datetime and type(back) is datetime:
        return _unlike_instants(value, back, place)
    if type(value) is int and type(back) is float:  # a float field takes an int, if no digit is lost
        return None if value == back else _changed(value, back, place)
    if type(value) is not type(back):
        return _changed(value, back, place)
    compare = _COMPARISONS.get(type(value)) or _comparison_of_base(value)
    if compare is not None:
        return compare(value, back, place)
    names = _fields_of(value)
    if names is None:
        return None if value == back else _changed(value, back, place)
    parts = ((name, getattr(value, name, None), getattr(back, name, None)) for name in names)
    return _first(parts, place) or _unlike_hidden(value, back, place)


def _fields_of(value: Any) -> list[str] | None:
    """The names of the fields of a model or a dataclass, None for any other value."""
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    return [field.name for field in fields(value)] if is_dataclass(value) else None


def _unlike_hidden(value: Any, back: Any, place: Place) -> Unlike | None:
    """What a model holds beside its fields, which no JSON of it has: only an effect's result or an answer may try."""
    for what in ("__pydantic_private__", "__pydantic_extra__"):
        one, other = getattr(value, what, None) or {}, getattr(back, what, None) or {}
        names = [
            name
            for name in one
            if name not in OF_CONTEXTS and (name not in other or unlike(one[name], other[name]) is not None)
        ]
        if names:
            why = f"{type(value).__name__}.{names[0]} is no field, so it is not stored"
            return Unlike(place, why, why)
    return None


NOT_FINITE = (
    "would come back as null; ConfigDict(ser_json_inf_nan='strings') as the config of the class around it keeps NaN and "
    "infinity"
)


def _changed(value: Any, back: Any, place: Place) -> Unlike:
    if back is None and isinstance(value, float) and not math.isfinite(value):
        return Unlike(place, f"{value!r} {NOT_FINITE}", NOT_FINITE)
    if type(value) is type(back):
        return Unlike(place, f"{short(value)} would come back as {short(back)}")
    was, becomes = type(value).__name__, type(back).__name__
    return Unlike(place, f"{short(value)} of type {was} would come back as {short(back)} of type {becomes}")


def _first(parts: Iterable[tuple[Any, Any, Any]], place: Place) -> Unlike | None:
    for step, value, back in parts:
        if value is not back and (found := unlike(value, back, (*place, step))) is not None:
            return found
    return None


def _unlike_instants(value: datetime, back: datetime, place: Place) -> Unlike | None:
    if value.utcoffset() is None:
        return Unlike(place, f"{value!r} has no time zone; use an aware datetime", NO_ZONE)
    try:
        # Not `==` of the two: it calls no instant equal that a clock change makes ambiguous in its zone.
        same = value.astimezone(UTC) == back
    except OverflowError:
        return Unlike(
            place, f"{value.isoformat()} is outside the years 1 to 9999 in UTC", "is outside the years of UTC"
        )
    if same:
        return None
    return Unlike(
        place, f"{value.isoformat()} would come back as {back.isoformat()}: an offset has no seconds; use UTC"
    )


def _unlike_floats(value: float, back: float, place: Place) -> Unlike | None:
    both_nan = math.isnan(value) and math.isnan(back)
    same = both_nan or (value == back and math.copysign(1, value) == math.copysign(1, back))
    return None if same else _changed(value, back, place)


def _unlike_decimals(value: Decimal, back: Decimal, place: Place) -> Unlike | None:
    return None if value.as_tuple() == back.as_tuple() else _changed(value, back, place)


def _unlike_lists(value: Any, back: Any, place: Place) -> Unlike | None:
    if len(value) != len(back):
        return _changed(value, back, place)
    return _first(((number, one, other) for number, (one, other) in enumerate(zip(value, back, strict=True))), place)


def _unlike_sets(value: Any, back: Any, place: Place) -> Unlike | None:
    if len(value) != len(back):
        return _changed(value, back, place)
    mine = {item: item for item in value}
    # An instant that a clock change makes ambiguous equals none in another zone, so it must be looked for.
    missing = [item for item in back if item not in mine]
    if not all(any(unlike(one, item) is None for one in value) for item in missing):
        return _changed(value, back, place)
    return _first(((ITEM, mine[item], item) for item in back if item in mine), place)


def _unlike_dicts(value: dict[Any, Any], back: dict[Any, Any], place: Place) -> Unlike | None:
    if len(value) != len(back):
        return _changed(value, back, place)
    pairs = list(zip(value, back, strict=True))
    keys = _first(((KeyStep(mine), mine, other) for mine, other in pairs), place)
    return keys or _first(((mine, value[mine], back[other]) for mine, other in pairs), place)


OF_CONTEXTS = frozenset({"_failure", "_unread"})  # what every `Context` has beside its fields
NO_ZONE = "has no time zone; use an aware datetime"
Comparison: TypeAlias = Callable[[Any, Any, Place], Unlike | None]
_COMPARISONS: dict[type, Comparison] = {
    float: _unlike_floats,
    Decimal: _unlike_decimals,
    list: _unlike_lists,
    tuple: _unlike_lists,
    Append: _unlike_lists,
    set: _unlike_sets,
    frozenset: _unlike_sets,
    dict: _unlike_dicts,
}


def _comparison_of_base(value: Any) -> Comparison | None:
    """For a class derived from a container, such as a named tuple."""
    return next((compare for kind, compare in _COMPARISONS.items() if isinstance(value, kind)), None)


def unwritable(value: Any, place: Place = (), above: frozenset[int] = frozenset()) -> Unlike | None:
    """The first part of a value that JSON has no form for; None if every part has one."""
    if id(value) in above:
        return Unlike(place, "holds itself, so there is no end to it", "holds itself")
    if len(place) > DEEPEST:
        return Unlike((), TOO_DEEP, TOO_DEEP)
    try:
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, bytes):
            value.decode()
    except UnicodeEncodeError:
        return Unlike(place, f"{short(value)} {HALF}", HALF)
    except UnicodeDecodeError:
        return Unlike(place, f"{short(value)} is not UTF-8; {_BASE64}", f"is not UTF-8; {_BASE64}")
    inside = above | {id(value)}
    for step, part in parts_of(value):
        if (found := unwritable(part, (*place, step), inside)) is not None:
            return found
    return None


HALF = "holds half of a character (a lone surrogate), which cannot be written"
_BASE64 = (
    "ConfigDict(ser_json_bytes='base64', val_json_bytes='base64') as the config of the class around it keeps all bytes"
)


def parts_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """The parts of a value, each with the step that leads to it."""
    if isinstance(value, dict):
        return [*((KeyStep(key), key) for key in value), *value.items()]
    if isinstance(value, list | tuple | Append):
        return enumerate(value)
    if isinstance(value, set | frozenset):
        return [(ITEM, item) for item in value]
    return [(name, getattr(value, name, None)) for name in _fields_of(value) or ()]


# --- sets --------------------------------------------------------------------------------------------------------


def sorted_sets(value: Any, text: bytes) -> bytes:
    """The JSON of a value with the items of its sets in one order, whatever order they were built in."""
    return pydantic_core.to_json(_sorted(value, pydantic_core.from_json(text)))


def _sorted(value: Any, tree: Any) -> Any:
    """The JSON tree, walked beside the value that it was made from: only that one tells a set from a list."""
    if isinstance(tree, list) and isinstance(value, set | frozenset | list | tuple | Append):
        if len(tree) != len(value):
            return tree
        items = [_sorted(one, branch) for one, branch in zip(value, tree, strict=True)]
        return sorted(items, key=pydantic_core.to_json) if isinstance(value, set | frozenset) else items
    if isinstance(value, RootModel):
        return _sorted(value.root, tree)
    if not isinstance(tree, dict):
        return tree
    if isinstance(value, dict):
        parts = list(value.values())
        if len(parts) != len(tree):
            return tree
        return {name: _sorted(part, branch) for part, (name, branch) in zip(parts, tree.items(), strict=True)}
    return {name: _sorted(getattr(value, name, None), branch) for name, branch in tree.items()}
