"""Instants in UTC, wherever they stand in a value that was read.

A stored instant has lost its zone: `2030-07-01T02:00:00+02:00` could be Paris or Cairo, whose clocks differ in winter.
So an instant comes back in UTC, always, instead of in an offset that looks like the zone and is none.
"""

# This module looks into values of authors' types, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import is_dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from agentflow.merge import Append
from agentflow.model.fieldtypes import members, mentions

__all__ = ["in_utc"]

DATED: frozenset[Any] = frozenset({datetime})


def in_utc(value: Any) -> Any:
    """The value with its instants in UTC. It is changed in place where it can be, so it must belong to the caller."""
    kind: Any = type(value)
    if kind is datetime:
        return _instant(value)
    if kind is list:
        value[:] = map(in_utc, value)
    elif kind is dict:
        for key, part in value.items():
            value[key] = in_utc(part)
    elif kind is tuple or kind is set or kind is frozenset or kind is Append:
        return kind(map(in_utc, value))
    else:
        for name in _dated_fields(kind):
            _replace(value, name, in_utc(getattr(value, name)))
    return value


def _instant(value: datetime) -> datetime:
    if value.tzinfo is UTC or value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:  # in UTC it is before the year 1 or after 9999: whoever compares will say so
        return value


def _replace(value: Any, name: str, part: Any) -> None:
    """Set a field of a model or dataclass that may be frozen."""
    if isinstance(value, BaseModel):
        held: Any = value.__dict__  # past `__setattr__`, which a frozen class refuses
        held[name] = part
    else:
        object.__setattr__(value, name, part)


@lru_cache(maxsize=512)
def _dated_fields(kind: Any) -> tuple[str, ...]:
    """The fields of a class that hold instants somewhere."""
    if not (issubclass(kind, BaseModel) or is_dataclass(kind)):
        return ()
    of: Any = kind
    return tuple(name for name, part in members(of) if mentions(part, DATED))
