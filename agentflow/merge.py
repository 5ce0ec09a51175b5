"""How a field that several branches write is merged: a type per rule, so `notes: Append[str]` says it all."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, get_args, overload

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = ["Add", "Append", "Last", "Merge", "Most", "Unite", "Update"]

T = TypeVar("T")
K = TypeVar("K")
N = TypeVar("N", int, float, Decimal)


class Append(Sequence[T]):
    """A list that only grows; branches' new items follow each other in branch order.

    Reading is as in a list. Writing is `append` and `extend` alone, because history keeps new items only: a change of
    an old one would be lost. Two copies of a run's context may share the items, so a step costs the same however long
    the list is.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = (), /) -> None:
        self._items = list(items)
        self._length = len(self._items)

    @classmethod
    def _sharing(cls, items: list[T], length: int) -> "Append[T]":
        """A view of the first `length` items; shares the list while nobody has written beyond them."""
        view = cls.__new__(cls)
        view._items = items if len(items) == length else items[:length]
        view._length = length
        return view

    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice, /) -> T | Sequence[T]:
        if self._length == len(self._items):
            return self._items[index]
        return self._items[: self._length][index]

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object, /) -> bool:
        """Equal to any list of the same items; so it has no hash, and pydantic copies a default."""
        if isinstance(other, Append):
            return list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"Append({list(self)!r})"

    def __copy__(self) -> "Append[T]":
        return Append(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Append[T]":
        return Append(self)  # the items are immutable, build() sees to that

    def append(self, item: T, /) -> None:
        """Add one item at the end."""
        self.extend((item,))

    def extend(self, items: Iterable[T], /) -> None:
        """Add several items at the end."""
        if len(self._items) != self._length:  # another copy has grown beyond this one: part with it
            self._items = self._items[: self._length]
        self._items.extend(items)
        self._length = len(self._items)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        item = get_args(source)
        items = core_schema.list_schema(handler.generate_schema(item[0]) if item else core_schema.any_schema())
        from_list = core_schema.no_info_after_validator_function(cls, items)
        return core_schema.no_info_before_validator_function(
            _as_list,
            from_list,
            serialization=core_schema.plain_serializer_function_ser_schema(list, return_schema=items),
        )


def _as_list(value: object) -> object:
    return list(value) if isinstance(value, Append | tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class Merge(Generic[T]):
    """A rule of one's own, for `Annotated[Score, Merge(best)]`."""

    def __init__(self, rule: Callable[[T, T], T], /) -> None:
        self.rule = rule


Add: TypeAlias = Annotated[N, "add"]
"""The sum of what the branches added."""
Most: TypeAlias = Annotated[T, "most"]
"""The largest."""
Last: TypeAlias = Annotated[T, "last"]
"""The last branch's, in branch order."""
Unite: TypeAlias = Annotated[set[T], "unite"]
"""The union."""
Update: TypeAlias = Annotated[dict[K, T], "update"]
"""The union by key; one key twice is a conflict."""
