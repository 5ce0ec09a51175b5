"""Where in a value something stands, in the words of Python: `order.items[3].when`, `by_key['a']`.

Steps come from a comparison or from pydantic. Only the value itself tells what a step means: a name may be a field or
a key, and pydantic's way through a tagged union has steps that nobody wrote.
"""

# This module looks into values of authors' types, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from agentflow.merge import Append

__all__ = ["ITEM", "KeyStep", "Place", "Told", "is_hidden", "short", "told"]


@dataclass(frozen=True, slots=True)
class KeyStep:
    """A key of a dict itself, not what it leads to."""

    key: Any


Place: TypeAlias = tuple[Any, ...]
ITEM = "[]"  # some item of a set, which has no number
KEY_OF_PYDANTIC = "[key]"
NOWHERE = object()  # the value cannot be followed any further


@dataclass(frozen=True, slots=True)
class Told:
    """A path in words, whether what stands there may be shown, and what stands there, if the value has it."""

    path: str
    is_open: bool
    value: Any


def told(where: str, value: Any, place: Iterable[Any], *, hidden: bool = False) -> Told:
    """The path to a place in a value that stands at `where`; closed if a field on the way has `repr=False`."""
    path, is_open = where, not hidden
    for step in place:
        if step == KEY_OF_PYDANTIC:
            continue
        shown, inner = _follow(value, step)
        is_open = is_open and not is_hidden(type(value), step)
        path, value = path + shown, inner
    return Told(path, is_open, value)


def _follow(value: Any, step: Any) -> tuple[str, Any]:
    """How a step reads, and where it leads."""
    if isinstance(step, KeyStep):
        return f"[key {short(step.key)}]", step.key
    if isinstance(value, dict):
        key = _key_of(value, step)
        return f"[{short(key)}]", value.get(key, NOWHERE)
    if step == ITEM or isinstance(value, set | frozenset):
        return "[]", NOWHERE
    if isinstance(step, int):
        inside = isinstance(value, list | tuple | Append) and -len(value) <= step < len(value)
        return f"[{step}]", value[step] if inside else NOWHERE
    if value is NOWHERE or step in _fields_of(value):
        return f".{step}", getattr(value, step, NOWHERE)
    return ("", value) if _fields_of(value) else (f".{step}", NOWHERE)  # the tag of a union, or a validator's name


def _key_of(value: dict[Any, Any], step: Any) -> Any:
    """The key that a step means, which JSON or pydantic may have made a text."""
    if step in value:
        return step
    return next((key for key in value if str(key) == str(step)), step)


def _fields_of(value: Any) -> frozenset[str]:
    if isinstance(value, BaseModel):
        return frozenset(type(value).model_fields)
    return frozenset(field.name for field in fields(value)) if is_dataclass(value) else frozenset()


def is_hidden(kind: type[Any], name: Any) -> bool:
    """Whether a field of a model or dataclass says `repr=False`, so that no message shows what it holds."""
    if issubclass(kind, BaseModel):
        info = kind.model_fields.get(name)
        return info is not None and not info.repr
    return is_dataclass(kind) and any(field.name == name and not field.repr for field in fields(kind))


def short(value: object) -> str:
    """A value in few enough words for a message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  `repr` may be author code, and refuses integers of thousands of digits
        return f"a value of type {type(value).__name__}"
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= 80 else text[:77] + "..."
