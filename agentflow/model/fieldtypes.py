"""Which types a context may hold, and which of them are immutable.

The list is short on purpose: each type on it comes back from JSON as it was. Everything else is a build error that
names the path, so that nothing changes silently between two steps.
"""

# This module looks into types and functions of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel
from typing_extensions import TypeAliasType

from agentflow.merge import Append
from agentflow.model.blobs import Blob

SCALARS: frozenset[Any] = frozenset(
    {bool, int, float, str, bytes, Decimal, datetime, date, timedelta, UUID, Blob, type(None)}
)
KEYS: frozenset[Any] = frozenset({str, int})


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a type cannot be kept, and where in the annotation it stands."""

    path: str
    why: str


def check_type(annotation: Any, path: str) -> list[Finding]:
    """All reasons for which values of this type might not come back as they were."""
    return list(_walk(annotation, path, frozenset()))


def is_append(annotation: Any) -> bool:
    """Whether the field is an `Append[...]`."""
    return get_origin(strip(annotation)) is Append or strip(annotation) is Append


def is_immutable(annotation: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether no value of the type can change in place, so that copies may share it."""
    bare = strip(annotation)
    if bare in SCALARS or _is_enum(bare) or get_origin(bare) is Literal or bare in seen:
        return True
    inner: Callable[[Any], bool] = lambda part: part is Ellipsis or is_immutable(part, seen | {bare})  # noqa: E731
    if get_origin(bare) in {tuple, frozenset, Union, types.UnionType}:
        return all(inner(part) for part in get_args(bare))
    if _is_frozen(bare):
        return all(inner(part) for _, part in members(bare))
    return False


def strip(annotation: Any) -> Any:
    """The type behind `Annotated`, aliases and `NewType`."""
    while annotation is not (bare := _unwrapped(annotation)):
        annotation = bare
    return annotation


def _unwrapped(annotation: Any) -> Any:
    """The type with one wrapper less; itself if it has none."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    if isinstance(annotation, TypeAliasType):
        return annotation.__value__
    return annotation.__supertype__ if isinstance(annotation, typing.NewType) else annotation


def marks_of(annotation: Any) -> list[Any]:
    """What `Annotated` says about the type itself, behind aliases too."""
    marks: list[Any] = []
    while annotation is not (bare := _unwrapped(annotation)):
        if get_origin(annotation) is Annotated:
            marks += annotation.__metadata__
        annotation = bare
    return marks


def _walk(annotation: Any, path: str, seen: frozenset[Any]) -> Iterator[Finding]:
    bare = strip(annotation)
    if bare in SCALARS or bare in seen:
        return
    if _is_enum(bare):
        yield from _check_enum(bare, path)
    elif get_origin(bare) is Literal:
        yield from _check_literal(bare, path)
    elif get_origin(bare) in {Union, types.UnionType}:
        yield from _check_union(annotation, bare, path, seen | {bare})
    elif get_origin(bare) in CONTAINERS:
        yield from CONTAINERS[get_origin(bare)](bare, path, seen | {bare})
    elif isinstance(bare, type) and (issubclass(bare, BaseModel) or is_dataclass(bare)):
        yield from _check_class(bare, path, seen)
    else:
        yield Finding(path, f"{_name(bare)} cannot be stored{_hint(bare)}")


def _hint(bare: Any) -> str:
    if bare in {list, tuple, set, frozenset, dict, Append}:
        return f"; say what it holds, such as {bare.__name__}[str{', str' if bare is dict else ''}]"
    if bare is Any or bare is object:
        return "; name the type"
    if isinstance(bare, typing.ForwardRef):
        return "; it names something that is not defined where the class was written"
    return (
        "; use bool, int, float, str, bytes, Decimal, aware datetime, date, timedelta, UUID, Blob, an enum, list, "
        "tuple, set, frozenset, dict, a frozen dataclass, a pydantic model, Literal or X | None"
    )


def _check_enum(enum: type[Enum], path: str) -> Iterator[Finding]:
    for member in enum:
        if not isinstance(member.value, str | int):
            yield Finding(path, f"{enum.__name__}.{member.name} has the value {member.value!r}; use a str or an int")
        elif isinstance(member.value, int) and not -(2**63) <= member.value < 2**63:
            yield Finding(path, f"{enum.__name__}.{member.name} has a value of more than 64 bits; use a smaller one")


def _check_literal(bare: Any, path: str) -> Iterator[Finding]:
    for value in get_args(bare):
        if not isinstance(value, str | int | Enum | None):
            yield Finding(path, f"Literal[{value!r}] cannot be stored; use texts, whole numbers or enum members")


def _check_union(annotation: Any, bare: Any, path: str, seen: frozenset[Any]) -> Iterator[Finding]:
    parts = [part for part in get_args(bare) if part is not type(None)]
    tagged = any(getattr(mark, "discriminator", None) for mark in getattr(annotation, "__metadata__", ()))
    if len(parts) > 1 and not tagged:
        yield Finding(path, f"{_name(bare)} is an untagged union; use X | None, or Field(discriminator=...)")
    for part in parts:
        yield from _walk(part, path, seen)


def _check_items(bare: Any, path: str, seen: frozenset[Any]) -> Iterator[Finding]:
    for part in get_args(bare):
        if part is not Ellipsis:
            yield from _walk(part, f"{path}[]", seen)


def _check_append(bare: Any, path: str, seen: frozenset[Any]) -> Iterator[Finding]:
    (item,) = get_args(bare)
    yield from _walk(item, f"{path}[]", seen)
    if not is_immutable(item):
        yield Finding(
            path, f"items of Append must be immutable, {_name(item)} is not; use a frozen model, a tuple or a frozenset"
        )


def _check_dict(bare: Any, path: str, seen: frozenset[Any]) -> Iterator[Finding]:
    key, value = get_args(bare)
    if strip(key) not in KEYS and not _is_enum(strip(key)):
        yield Finding(path, f"dict keys must be str, int or an enum, not {_name(key)}")
    elif _is_enum(strip(key)) and not all(isinstance(member.value, str) for member in strip(key)):
        yield Finding(
            path, f"dict keys must be texts in JSON, but members of {_name(key)} have other values; use a StrEnum"
        )
    yield from _walk(value, f"{path}[]", seen)


CheckItems: TypeAlias = Callable[[Any, str, frozenset[Any]], Iterator[Finding]]
CONTAINERS: dict[Any, CheckItems] = {
    list: _check_items,
    tuple: _check_items,
    set: _check_items,
    frozenset: _check_items,
    dict: _check_dict,
    Append: _check_append,
}


def _check_class(kind: type[Any], path: str, seen: frozenset[Any]) -> Iterator[Finding]:
    if is_dataclass(kind) and not _is_frozen(kind):
        yield Finding(path, f"dataclass {kind.__name__} must be frozen=True, or a pydantic model")
    if issubclass(kind, BaseModel) and kind.__private_attributes__:
        names = ", ".join(kind.__private_attributes__)
        own = "; derive it from BaseModel, a Context is for a whole run" if "_unread" in names else ""
        yield Finding(path, f"{kind.__name__} has private attributes ({names}), which are not stored{own}")
    if issubclass(kind, BaseModel) and kind.model_config.get("extra") == "allow":
        yield Finding(path, f"{kind.__name__} allows extra fields, whose types are unknown")
    if issubclass(kind, BaseModel):
        for name in (name for name, info in kind.model_fields.items() if info.exclude):
            yield Finding(f"{path}.{name}", "exclude=True keeps it out of what is stored; leave it out")
    for name, part in members(kind):
        yield from _walk(part, f"{path}.{name}", seen | {kind})


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a model or dataclass, with their types."""
    if issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            discriminated = (
                Annotated[info.annotation, info] if getattr(info, "discriminator", None) else info.annotation
            )
            yield name, discriminated
        return
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        yield field.name, hints[field.name]


def _is_enum(bare: Any) -> bool:
    return isinstance(bare, type) and issubclass(bare, Enum)


def _is_frozen(bare: Any) -> bool:
    if not isinstance(bare, type):
        return False
    if issubclass(bare, BaseModel):
        return bool(bare.model_config.get("frozen"))
    return is_dataclass(bare) and bare.__dataclass_params__.frozen  # type: ignore[attr-defined]


def _name(annotation: Any) -> str:
    if isinstance(annotation, TypeVar):
        return str(annotation)
    return getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")


def is_recursive(annotation: Any, above: frozenset[Any] = frozenset()) -> bool:
    """Whether values of the type may be nested to any depth."""
    bare = strip(annotation)
    if bare in above:
        return True
    if isinstance(bare, type) and (issubclass(bare, BaseModel) or is_dataclass(bare)):
        return any(is_recursive(part, above | {bare}) for _, part in members(bare))
    if get_origin(bare) is None or get_origin(bare) is Literal:
        return False
    return any(is_recursive(part, above | {bare}) for part in get_args(bare) if part is not Ellipsis)


def mentions(annotation: Any, kinds: frozenset[Any], seen: frozenset[Any] = frozenset()) -> bool:
    """Whether one of `kinds` occurs anywhere in the type."""
    bare = strip(annotation)
    if bare in kinds or get_origin(bare) in kinds:
        return True
    if bare in seen:
        return False
    inner = seen | {bare}
    if isinstance(bare, type) and (issubclass(bare, BaseModel) or is_dataclass(bare)):
        return any(mentions(part, kinds, inner) for _, part in members(bare))
    return any(mentions(part, kinds, inner) for part in get_args(bare) if part is not Ellipsis)
