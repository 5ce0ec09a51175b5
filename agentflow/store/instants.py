"""Instants at the store's border: aware UTC outside, integer microseconds since 1970 inside."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from agentflow.errors import InvalidInput

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)
else:
    R = TypeVar("R")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def in_utc(instant: datetime) -> datetime:
    """The same instant in UTC. Raises `InvalidInput` for a naive one, which names no instant."""
    if instant.tzinfo is UTC:
        return instant
    if instant.utcoffset() is None:
        raise InvalidInput(f"{instant!r} has no time zone, so it names no instant; pass an aware datetime")
    return instant.astimezone(UTC)


def to_number(instant: datetime) -> int:
    """Microseconds since 1970, exact. Raises `InvalidInput` for a naive instant."""
    return (in_utc(instant) - EPOCH) // MICROSECOND


def to_number_or_none(instant: datetime | None) -> int | None:
    """As `to_number`, where there may be none."""
    return None if instant is None else to_number(instant)


def from_number(number: int) -> datetime:
    """The aware UTC instant of that number of microseconds."""
    return EPOCH + timedelta(microseconds=number)


def from_number_or_none(number: int | None) -> datetime | None:
    """As `from_number`, where there may be none."""
    return None if number is None else from_number(number)


def with_instants_in_utc(row: R, *fields: str) -> R:
    """The row with these fields in UTC. Raises `InvalidInput` for a naive one."""
    changed = {
        name: in_utc(value) for name in fields if (value := getattr(row, name)) is not None and value.tzinfo is not UTC
    }
    return replace(row, **changed) if changed else row
