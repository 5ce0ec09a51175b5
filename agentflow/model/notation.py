"""How the values of one type are written as JSON, and proved to come back as they were.

A `Notation` serves every place where a value of an author is stored: the fields of a context, the results of effects, the
answers of people. What it cannot prove it refuses with the path, and nothing is written.
"""

# This module looks into types of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypedDict

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agentflow.errors import InvalidContext
from agentflow.model.blobs import INLINE, Blob, BlobSource
from agentflow.model.exactly import Exact, exact_types
from agentflow.model.fieldtypes import is_recursive, marks_of, mentions, strip
from agentflow.model.places import short, told
from agentflow.model.sameness import DEEPEST, NOT_FINITE, TOO_DEEP, Unlike, sorted_sets, unlike, unwritable
from agentflow.model.utc import DATED, in_utc
from agentflow.record import record

__all__ = ["CLOSED", "OPENED", "Notation", "config_of", "notation_of", "traits_of"]

FIELD_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings")
EXACT: frozenset[type] = frozenset({str, int, bool})  # JSON gives these back as they were, so one look is enough
EXACT_BYTES = 4000  # beyond, a parser may refuse the digits of a number
SETS: frozenset[Any] = frozenset({set, frozenset})
BLOBS: frozenset[Any] = frozenset({Blob})
OPENED, CLOSED = b"[" * (200 - DEEPEST), b"]" * (200 - DEEPEST)


@record(kw_only=True)
class Notation:
    """How values of one type are written and read."""

    where: str  # what a path begins with, such as `context.amount`
    adapter: TypeAdapter[Any]
    exact: type | None  # of which values need no second look
    types: Exact | None  # of values that are what their JSON says; None if no types can tell
    sets: bool
    blobs: bool
    instants: bool
    recursive: bool
    hidden: bool = False  # no message shows the value

    def dump(self, value: Any, blobs: dict[str, bytes] | None = None) -> bytes:
        """The JSON of a value; raises `InvalidContext` if it is none that the type can hold.

        Bytes of blobs that are not stored yet are put into `blobs`; without it they become part of the JSON.
        """
        try:
            if type(value) is self.exact:
                return pydantic_core.to_json(value)
            return self._text(value, blobs)
        except (ValueError, RecursionError) as error:
            raise self._refusal(value, error) from None

    def _text(self, value: Any, blobs: dict[str, bytes] | None = None, warnings: Any = "error") -> bytes:
        context = INLINE if self.blobs and blobs is None else blobs
        text = self.adapter.dump_json(
            value, by_alias=False, warnings=warnings, exclude_computed_fields=True, context=context
        )
        # A set has no order of its own: without one, equal sets would look changed.
        return sorted_sets(value, text) if self.sets else text

    def load(self, text: bytes | str, source: BlobSource | None = None) -> Any:
        """The value behind its JSON; raises `ValidationError`. Names are those of the fields, whatever their aliases."""
        value = self.adapter.validate_json(text, by_alias=False, by_name=True, context=source)
        return in_utc(value) if self.instants else value

    def settle(
        self, value: Any, text: bytes, blobs: dict[str, bytes] | None = None, source: BlobSource | None = None
    ) -> tuple[bytes, Any]:
        """The value as it will come back from storage, and its text; raises `InvalidContext` if it is not the same."""
        if self.exact is not None and type(value) is self.exact and len(text) <= EXACT_BYTES:
            return text, value
        try:
            back = self.load(text, source)
            if (found := unlike(value, back)) is not None:
                raise self.at(value, found)
            if self.recursive:
                pydantic_core.from_json(OPENED + text + CLOSED)
            return (self._text(back, blobs) if self.instants else text), back
        except ValidationError as error:
            raise self.invalid(error, value) from None
        except (RecursionError, ValueError) as error:
            raise self._unreadable(value, "recursion" if isinstance(error, RecursionError) else str(error)) from None

    def confirm(self, value: Any, text: bytes, source: BlobSource | None = None) -> None:
        """Raise `InvalidContext` if a value has the same JSON as the one that was kept, and is another one."""
        if self.types is None or not self.types.holds((value,)):
            self.settle(value, text, None, source)

    # What a refusal says

    def at(self, value: Any, found: Unlike) -> InvalidContext:
        """The refusal of a value for what was found inside it."""
        place = told(self.where, value, found.place, hidden=self.hidden)
        return InvalidContext(place.path, found.why if place.is_open else found.bare)

    def invalid(self, error: ValidationError, value: Any = None) -> InvalidContext:
        """The refusal of JSON that does not fit the type, or of a value that does not."""
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return self._unreadable(value, first["msg"])
        place = told(self.where, value, first["loc"], hidden=self.hidden)
        if first["input"] is None and isinstance(place.value, float) and not math.isfinite(place.value):
            return InvalidContext(place.path, f"{place.value!r} {NOT_FINITE}" if place.is_open else NOT_FINITE)
        return InvalidContext(
            place.path, f"{first['msg']}, got {short(first['input'])}" if place.is_open else first["msg"]
        )

    def _unreadable(self, value: Any, why: str) -> InvalidContext:
        if "recursion" in why:
            return InvalidContext(self.where, TOO_DEEP)
        return InvalidContext(
            self.where, f"{self._shown(value)} cannot be read back: {why.removeprefix('Invalid JSON: ')}"
        )

    def _shown(self, value: Any) -> str:
        return f"a value of type {type(value).__name__}" if self.hidden else short(value)

    def _refusal(self, value: Any, error: Exception) -> InvalidContext:
        """Why a value cannot be written, looked for in the value itself: a serialiser only says that it gave up."""
        try:
            self.adapter.validate_python(value, strict=True)
            found = unlike(value, self.load(self._text(value, warnings=False)))
        except ValidationError as invalid:
            return self.invalid(invalid, value)
        except (ValueError, RecursionError):
            found = unwritable(value)  # there is no JSON to look into
        if found is not None:
            return self.at(value, found)
        return InvalidContext(
            self.where, f"{self._shown(value)} cannot be written: {str(error).splitlines()[-1].strip()}"
        )


class Traits(TypedDict):
    """What a notation is told by its type."""

    exact: type | None
    types: Exact | None
    sets: bool
    blobs: bool
    instants: bool
    recursive: bool


def traits_of(annotation: Any) -> Traits:
    """What the type of a field, a result or an answer says about its notation."""
    bare = strip(annotation)
    return Traits(
        exact=bare if bare in EXACT and not marks_of(annotation) else None,
        types=exact_types(annotation),
        sets=mentions(bare, SETS),
        blobs=mentions(bare, BLOBS),
        instants=mentions(bare, DATED),
        recursive=is_recursive(bare),
    )


def config_of(annotation: Any) -> ConfigDict | None:
    """How floats and bytes of a type are written; a class says so for itself."""
    bare = strip(annotation)
    owns = isinstance(bare, type) and (
        issubclass(bare, BaseModel) or hasattr(bare, "__pydantic_config__") or hasattr(bare, "__dataclass_fields__")
    )
    return None if owns else FIELD_CONFIG


@lru_cache(maxsize=512)
def _notation_of(annotation: Any) -> Notation:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=config_of(annotation))
    return Notation(where="value", adapter=adapter, **traits_of(annotation))


def notation_of(annotation: Any, where: str) -> Notation:
    """The notation of a type, made once; raises what pydantic raises for a type that it does not know."""
    return replace(_notation_of(annotation), where=where)
