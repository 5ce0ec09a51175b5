"""Tests that tell from types alone whether a value is the one that its JSON stands for.

A field whose JSON has not changed is not read again, which would cost as much as writing it. But JSON hides types: a
list of texts may have got an enum's member, a dict may have become a `defaultdict`. For most annotations a test of the
types is enough, which costs little; for the others there is none, and the field is read again.
"""

# This module looks into types of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

import types
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from enum import Enum
from itertools import chain
from math import isfinite
from operator import attrgetter, methodcaller
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agentflow.merge import Append
from agentflow.model.blobs import Blob
from agentflow.model.fieldtypes import SCALARS, marks_of, members, strip
from agentflow.record import record

__all__ = ["Exact", "exact_types"]

Inside: TypeAlias = Callable[[list[Any]], bool]
WRITTEN_OTHERWISE = frozenset({"ser_json_timedelta", "ser_json_temporal", "json_encoders"})


@record
class Exact:
    """The types that values must have, at the root and inside. It looks at many values at once, at the speed of C."""

    roots: frozenset[type]
    inside: Inside | None = None  # of values whose root is right

    def holds(self, values: Iterable[Any]) -> bool:
        """Whether all values are of these types all the way down, so that their JSON can mean nothing else."""
        found = [*values]
        return self.roots.issuperset(map(type, found)) and (self.inside is None or self.inside(found))


def exact_types(annotation: Any, seen: frozenset[Any] = frozenset()) -> Exact | None:
    """What the values of a type must be for their JSON to mean nothing else; None if no types can tell."""
    bare = strip(annotation)
    if bare in seen or any(map(_may_serialize, marks_of(annotation))) or not _is_plain_class(bare):
        return None
    if bare is float:
        return Exact(frozenset({float}), _are_finite)
    if bare in SCALARS or (isinstance(bare, type) and issubclass(bare, Enum)):
        return Exact(frozenset({bare}))
    kind, inner = get_origin(bare), seen | {bare}
    if kind is Literal:
        return _of_literal(get_args(bare))
    if kind in {Union, types.UnionType}:
        return _of_union([exact_types(part, inner) for part in get_args(bare)])
    if kind in BUILT:
        return BUILT[kind](kind, get_args(bare), inner)
    if isinstance(bare, type) and (issubclass(bare, BaseModel) or is_dataclass(bare)):
        return _of_class(bare, inner)
    return None


def _may_serialize(mark: Any) -> bool:
    """Whether a mark of `Annotated` may change how the value is written."""
    return hasattr(mark, "__get_pydantic_core_schema__") and not isinstance(mark, FieldInfo)


def _is_plain_class(bare: Any) -> bool:
    """Whether it is no class that says itself how it is written."""
    if not isinstance(bare, type) or bare is Blob or bare is Append:
        return True
    own: Any = getattr(bare, "__get_pydantic_core_schema__", None)
    inherited: Any = BaseModel.__get_pydantic_core_schema__
    if own is not None and getattr(own, "__func__", own) is not inherited.__func__:
        return False
    marks: Any = getattr(bare, "__pydantic_decorators__", None)
    config: Any = getattr(bare, "model_config", None) or getattr(bare, "__pydantic_config__", None) or {}
    serializes = marks is not None and bool(marks.field_serializers or marks.model_serializers)
    return not serializes and not WRITTEN_OTHERWISE & set(config)


def _are_finite(values: list[Any]) -> bool:
    return all(map(isfinite, values))  # a model may write NaN as null


def _of_literal(values: tuple[Any, ...]) -> Exact | None:
    kinds = frozenset(map(type, values))
    has_members = any(isinstance(value, Enum) for value in values)
    return None if has_members and len(kinds) > 1 else Exact(kinds)  # a member and its text have one JSON


def _of_union(parts: list[Exact | None]) -> Exact | None:
    known = [part for part in parts if part is not None]
    roots = frozenset(chain.from_iterable(part.roots for part in known))
    if len(known) < len(parts) or len(roots) < sum(len(part.roots) for part in known):
        return None
    inner = [(part.roots, part.inside) for part in known if part.inside is not None]
    if not inner:
        return Exact(roots)
    return Exact(
        roots, lambda values: all(inside([one for one in values if type(one) in own]) for own, inside in inner)
    )


def _of_items(kind: Any, parts: tuple[Any, ...], seen: frozenset[Any]) -> Exact | None:
    """Of a list, a set, or a tuple of any length."""
    item = exact_types(parts[0], seen)
    return None if item is None else Exact(frozenset({kind}), lambda values: item.holds(chain.from_iterable(values)))


def _of_tuple(kind: Any, parts: tuple[Any, ...], seen: frozenset[Any]) -> Exact | None:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return _of_items(kind, parts, seen)
    places = [place for part in parts if (place := exact_types(part, seen)) is not None]
    if len(places) < len(parts):
        return None

    def inside(values: list[Any]) -> bool:
        columns = zip(*values, strict=True)
        return all(len(value) == len(places) for value in values) and all(
            place.holds(column) for place, column in zip(places, columns, strict=False)
        )

    return Exact(frozenset({kind}), inside)


def _of_dict(kind: Any, parts: tuple[Any, ...], seen: frozenset[Any]) -> Exact | None:
    key, value = (exact_types(part, seen) for part in parts)
    if key is None or value is None:
        return None
    return Exact(
        frozenset({kind}),
        lambda values: (
            key.holds(chain.from_iterable(values)) and value.holds(chain.from_iterable(map(VALUES_OF, values)))
        ),
    )


VALUES_OF = methodcaller("values")


def _of_class(kind: type[Any], seen: frozenset[Any]) -> Exact | None:
    """Of a model or dataclass: the class itself, and each field."""
    infos: Any = kind.model_fields.values() if issubclass(kind, BaseModel) else ()
    if any(getattr(info, "exclude_if", None) is not None or any(map(_may_serialize, info.metadata)) for info in infos):
        return None
    found = [(attrgetter(name), exact_types(part, seen)) for name, part in members(kind)]
    fields = [(get, part) for get, part in found if part is not None]
    if len(fields) < len(found):
        return None
    return Exact(frozenset({kind}), lambda values: all(part.holds(map(get, values)) for get, part in fields))


BUILT: dict[Any, Callable[[Any, tuple[Any, ...], frozenset[Any]], Exact | None]] = {
    list: _of_items,
    set: _of_items,
    frozenset: _of_items,
    Append: _of_items,
    tuple: _of_tuple,
    dict: _of_dict,
}
