"""What an `unclear=` function finds out about an effect that was begun and whose end is not recorded."""

from dataclasses import dataclass
from enum import Enum
from typing import Generic, Literal, TypeAlias, TypeVar

__all__ = ["NOT_HAPPENED", "STILL_UNCLEAR", "Fate", "Happened"]

T = TypeVar("T")


@dataclass(frozen=True)
class Happened(Generic[T]):
    """It took place; the value is what the call would have returned, and is recorded."""

    value: T


class Sentinel(Enum):
    """The two fates without a value."""

    NOT_HAPPENED = "not happened"
    STILL_UNCLEAR = "still unclear"


NOT_HAPPENED: Literal[Sentinel.NOT_HAPPENED] = Sentinel.NOT_HAPPENED
"""It did not take place; the next attempt calls again, under the same key."""

STILL_UNCLEAR: Literal[Sentinel.STILL_UNCLEAR] = Sentinel.STILL_UNCLEAR
"""Nobody can tell yet; the body fails with `Unclear`."""

Fate: TypeAlias = Happened[T] | Literal[Sentinel.NOT_HAPPENED, Sentinel.STILL_UNCLEAR]
"""What the function returns."""
