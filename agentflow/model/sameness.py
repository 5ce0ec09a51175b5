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
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pydantic_core
from pydantic import BaseModel

from agentflow.merge import Append

__all__ = ["Unlike", "short", "sorted_sets", "unlike", "unwritable"]

Place: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Unlike:
    """Where two values part, and why that matters."""

    place: Place
    why: str


def unlike(value: Any, back: Any, place: Place = ()) -> Unlike | None:
    """The first place at which `back` is not what `value` was; None if they are the same."""
    if isinstance(value, datetime) and isinstance(back, datetime):
        return _unlike_instants(value, back, place)
    if type(value) is int and type(back) is float:  # a float field takes an int, if no digit is lost
        return None if value == back else _changed(value, back, place)
    if type(value) is not type(back):
        return _changed(value, back, place)
    compare = _COMPARISONS.get(type(value))
    if compare is not None:
        return compare(value, back, place)
    names = _fields_of(value)
    if names is None:
        return None if value == back else _changed(value, back, place)
    return _first(((name, getattr(value, name, None), getattr(back, name, None)) for name in names), place)


def _fields_of(value: Any) -> list[str] | None:
    """The names of the fields of a model or a dataclass, None for any other value."""
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    return [field.name for field in fields(value)] if is_dataclass(value) else None


def _changed(value: Any, back: Any, place: Place) -> Unlike:
    if type(value) is type(back):
        return Unlike(place, f"{short(value)} would come back as {short(back)}")
    was, becomes = type(value).__name__, type(back).__name__
    return Unlike(place, f"{short(value)} of type {was} would come back as {short(back)} of type {becomes}")


def _first(parts: Iterable[tuple[str | int, Any, Any]], place: Place) -> Unlike | None:
    for step, value, back in parts:
        if value is not back and (found := unlike(value, back, (*place, step))) is not None:
            return found
    return None


def _unlike_instants(value: datetime, back: datetime, place: Place) -> Unlike | None:
    if value.tzinfo is None:
        return Unlike(place, f"{value!r} has no time zone; use an aware datetime")
    # Not `==`: it calls no instant equal that a clock change makes ambiguous in its zone.
    if value.utcoffset() == back.utcoffset() and value.replace(tzinfo=None) == back.replace(tzinfo=None):
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
    mine = {item: item for item in value}
    if len(mine) != len(back) or any(item not in mine for item in back):
        return _changed(value, back, place)
    return _first((("[]", mine[item], item) for item in back), place)


def _unlike_dicts(value: dict[Any, Any], back: dict[Any, Any], place: Place) -> Unlike | None:
    if len(value) != len(back):
        return _changed(value, back, place)
    pairs = list(zip(value, back, strict=True))
    keys = _first(((f"{short(mine)}.[key]", mine, other) for mine, other in pairs), place)
    return keys or _first(((str(mine), value[mine], back[other]) for mine, other in pairs), place)


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


def short(value: object) -> str:
    """A value in few enough words for a message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  `repr` may be author code, and refuses integers of thousands of digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def unwritable(value: Any, place: Place = ()) -> Unlike | None:
    """The first text or bytes in a value that JSON has no form for; None if they all have one."""
    try:
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, bytes):
            value.decode()
    except UnicodeEncodeError:
        return Unlike(place, f"{short(value)} holds half of a character (a lone surrogate), which cannot be written")
    except UnicodeDecodeError:
        return Unlike(place, f"{short(value)} is not UTF-8; {_BASE64} keeps all bytes")
    for step, part in _parts(value):
        if (found := unwritable(part, (*place, step))) is not None:
            return found
    return None


_BASE64 = "model_config = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64') in the class around it"


def _parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return [*((f"{short(key)}.[key]", key) for key in value), *((str(key), part) for key, part in value.items())]
    if isinstance(value, list | tuple | Append):
        return enumerate(value)
    if isinstance(value, set | frozenset):
        return [("[]", item) for item in value]
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
    if not isinstance(tree, dict):
        return tree
    if isinstance(value, dict):
        parts = list(value.values())
        if len(parts) != len(tree):
            return tree
        return {name: _sorted(part, branch) for part, (name, branch) in zip(parts, tree.items(), strict=True)}
    return {name: _sorted(getattr(value, name, None), branch) for name, branch in tree.items()}
