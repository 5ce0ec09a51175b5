"""Plain values that nobody changes: what `@dataclass(frozen=True, slots=True)` says, at a third of its price.

A frozen dataclass sets each field through `object.__setattr__`. A transition makes a dozen of them, which added up to a
tenth of its time. A record is immutable for the type checkers, which read every line of this package; at run time it is
an ordinary dataclass with slots, so writing to it is not refused there, and is a mistake all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def record(kind: type[T], /) -> type[T]: ...
@overload
def record(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True)
def record(kind: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a record."""
    made = dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)
    return made if kind is None else made(kind)
