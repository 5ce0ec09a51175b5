"""A run's data: the `Context` that authors derive, and how it is copied, compared and kept.

Every body works on a private copy. What is *kept* between two steps is `Kept`: the immutable values themselves, the
JSON bytes of the others, and for an `Append` field the list with the length that counts. After a body, `ContextPlan.keep`
finds what changed (by comparing bytes: `==` would not tell True from 1, or 1.50 from 1.5), validates that alone, and
returns it as the `Difference` that history stores.
"""

# This module looks into types and functions of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Generic, Self

import pydantic_core
from pydantic import BaseModel, ConfigDict, PrivateAttr, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from agentflow.errors import InvalidContext, InvalidInput
from agentflow.merge import Append
from agentflow.model.blobs import BlobSource
from agentflow.model.fieldtypes import Finding, check_type, is_append, is_immutable, strip
from agentflow.model.folding import fold
from agentflow.model.notation import Notation, config_of, traits_of
from agentflow.model.places import short, told
from agentflow.model.sameness import unlike
from agentflow.model.source import schema_text
from agentflow.model.unread import Unread, read_all, unread_of
from agentflow.model.utc import in_utc
from agentflow.model.values import Failure
from agentflow.record import record

__all__ = ["Context", "ContextPlan", "Difference", "Kept", "plan_of"]

C = TypeVar("C", bound="Context")

EAGER_BYTES = 4000  # a mutable field with more JSON than that is read when it is looked at


class Context(BaseModel):
    """The run's data; a body works on a private copy."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    _failure: Failure | None = PrivateAttr(default=None)
    _unread: Unread | None = PrivateAttr(default=None)

    @property
    def failure(self) -> Failure | None:
        """The failure that led into this state, if one did."""
        return self._failure

    def __eq__(self, other: object) -> bool:
        """Equal if all fields are; how the run came here is no part of its data."""
        if not isinstance(other, Context) or type(self) is not type(other):
            return False
        return vars(read_all(self)) == vars(read_all(other))

    __hash__ = None  # type: ignore[assignment]

    # A large field of a copy is read when it is looked at. What goes past attributes reads all of them first.

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            private = object.__getattribute__(self, "__pydantic_private__")
            unread = None if private is None else private.get("_unread")
            if unread is not None and name in unread.texts:
                return unread.read(self, name)
            return super().__getattr__(name)

    def __iter__(self) -> Any:
        return super(Context, read_all(self)).__iter__()

    def __repr_args__(self) -> Any:
        return super(Context, read_all(self)).__repr_args__()

    def __getstate__(self) -> dict[Any, Any]:
        read_all(self)._unread = None
        return super().__getstate__()

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """The fields as a dict; options as those of `BaseModel.model_dump`."""
        return super(Context, read_all(self)).model_dump(**options)

    def model_dump_json(self, **options: Any) -> str:
        """The fields as JSON; options as those of `BaseModel.model_dump_json`."""
        return super(Context, read_all(self)).model_dump_json(**options)

    def model_copy(self, **options: Any) -> Self:
        """A copy; options as those of `BaseModel.model_copy`."""
        return super(Context, read_all(self)).model_copy(**options)


@record
class Difference:
    """What one transition changed: new values of fields, and items added to `Append` fields, each as JSON."""

    values: Mapping[str, bytes]
    added: Mapping[str, Sequence[bytes]]
    blobs: tuple[tuple[str, bytes], ...] = ()  # digests and bytes that are new

    def text(self) -> str:
        """The stored form: `{"set": {field: value}, "add": {field: [items]}}`."""
        parts: list[bytes] = []
        if self.values:
            before = b'{"set":{'
            for name, text in self.values.items():
                parts += (before, _key(name), text)
                before = b","
            parts.append(b"}")
        if self.added:
            before = b',"add":{' if parts else b'{"add":{'
            for name, items in self.added.items():
                parts += (before, _key(name), b"[", b",".join(items), b"]")
                before = b","
            parts.append(b"}")
        return b"".join((*parts, b"}")).decode() if parts else "{}"


NO_DIFFERENCE = Difference({}, {})


@cache
def _key(name: str) -> bytes:
    return b'"' + name.encode() + b'":'


@record
class Kept:
    """A context as it is kept at a revision; nothing of it changes."""

    values: Mapping[str, Any]  # immutable values, and the lists behind Append fields
    texts: Mapping[str, bytes]  # JSON of every field but the Append ones
    lengths: Mapping[str, int]  # of Append fields
    size: int  # bytes of JSON
    source: BlobSource | None = None  # where blobs are read


EMPTY = Kept({}, {}, {}, 0)


@record(kw_only=True)
class FieldPlan(Notation):
    """How one field is copied and written; the notation is that of one item for an `Append` field."""

    name: str
    append: bool
    shared: bool
    items: TypeAdapter[list[Any]]  # of an Append field: of a list of them


class ContextPlan(Generic[C]):
    """How contexts of one class are copied, compared, written and loaded; made once per class by `plan_of`."""

    def __init__(self, kind: type[C]) -> None:
        self.kind = kind
        self.fields: dict[str, FieldPlan] = {
            name: _field_plan(kind, name) for name in kind.model_fields if not self._problems(name)
        }
        decorators = kind.__pydantic_decorators__
        self.whole = bool(decorators.model_validators or decorators.field_validators or decorators.validators)

    def problems(self) -> list[Finding]:
        """Fields whose values might not come back as they were."""
        found = [finding for name in self.kind.model_fields for finding in self._problems(name)]
        own = [name for name in self.kind.__private_attributes__ if name not in Context.__private_attributes__]
        found += [Finding(f"{self.kind.__name__}.{name}", "a private attribute is not stored") for name in own]
        if self.kind.model_config.get("extra") == "allow":
            found.append(Finding(self.kind.__name__, "extra='allow' lets in fields that are not stored; leave it out"))
        if "failure" in self.kind.model_fields:
            found.append(Finding(f"{self.kind.__name__}.failure", "the name is taken: it is the failure that led here"))
        return found

    def _problems(self, name: str) -> list[Finding]:
        info = self.kind.model_fields[name]
        return check_type(_annotation(info), f"{self.kind.__name__}.{name}")

    @cached_property
    def schema_digest_source(self) -> str:
        """What two versions of the class must agree on, as text."""
        return schema_text(self.kind.model_json_schema())

    @property
    def empty(self) -> Kept:
        """What is kept before a run has a context, for commands that do not look at it."""
        return EMPTY

    def start(self, context: C) -> tuple[Kept, Difference]:
        """Keep a whole context; raises `InvalidContext` with the path of what cannot be stored."""
        return self.keep(EMPTY, context)

    def copy(self, kept: Kept, failure: Failure | None = None) -> C:
        """A private copy to work on."""
        values: dict[str, Any] = {}
        large: dict[str, tuple[FieldPlan, bytes]] = {}
        for name, field in self.fields.items():
            if field.shared:
                values[name] = kept.values[name]
            elif field.append:
                values[name] = Append._sharing(kept.values[name], kept.lengths[name])  # pyright: ignore[reportPrivateUsage]
            elif len(kept.texts[name]) > EAGER_BYTES:
                large[name] = field, kept.texts[name]
            else:
                values[name] = field.load(kept.texts[name], kept.source)
        copy = self.kind.__new__(self.kind)
        object.__setattr__(copy, "__dict__", values)
        object.__setattr__(copy, "__pydantic_fields_set__", set(self.fields))
        object.__setattr__(copy, "__pydantic_extra__", None)
        private = {"_failure": failure, "_unread": Unread(large, kept.source) if large else None}
        object.__setattr__(copy, "__pydantic_private__", private)
        return copy

    def keep(self, kept: Kept, context: Context) -> tuple[Kept, Difference]:
        """What changed since `kept`, and what is to be kept now; raises `InvalidContext`, and keeps nothing."""
        if type(context) is not self.kind:
            raise InvalidContext("context", f"is a {type(context).__name__}, not a {self.kind.__name__}")
        work = _Work(kept)
        values = context.__dict__
        unread = unread_of(context)
        same = kept.values
        for name, field in self.fields.items():
            if name in values:
                value = values[name]
                if not (field.shared and name in same and same[name] is value):
                    work.look(field, value)
            elif name not in unread:  # what nobody looked at is unchanged
                raise InvalidContext(f"context.{name}", "is missing")
        if self.whole and work.changed:
            self._validate_whole(read_all(context))
        return work.result()

    def _validate_whole(self, context: Context) -> None:
        try:
            self.kind.model_validate(dict(context.__dict__), by_alias=False, by_name=True)
        except ValidationError as error:
            raise _whole(context, error) from None

    def apply(self, kept: Kept, text: str) -> tuple[Kept, Difference]:
        """What is kept after a stored difference, and the difference itself."""
        difference = pydantic_core.from_json(text)
        copy = self.copy(kept)
        values: Any = read_all(copy).__dict__  # past `__setattr__`, which a frozen class refuses
        for name, value in difference.get("set", {}).items():
            values[name] = self._load_value(self._field(name), value, kept.source)
        for name, items in difference.get("add", {}).items():
            field = self._field(name)
            values[name].extend(self._load_value(field, item, kept.source) for item in items)
        return self.keep(kept, copy)

    def _field(self, name: str) -> FieldPlan:
        if name not in self.fields:
            raise InvalidContext(f"context.{name}", "was stored, but the class has no such field any more")
        return self.fields[name]

    def load(self, differences: Iterable[str], source: BlobSource | None = None) -> Kept:
        """Fold stored differences, oldest first, into the context that they lead to; blobs are read from `source`."""
        found = fold(differences)
        return self.loaded(found.values, found.added, source)

    def loaded(self, values: Mapping[str, Any], added: Mapping[str, list[Any]], source: BlobSource | None) -> Kept:
        """What is kept of JSON values and of the items of `Append` fields; a missing field gets its default."""
        work = _Work(replace(EMPTY, source=source))
        loaded: dict[str, Any] = {}
        for name, field in self.fields.items():
            if field.append:
                text = pydantic_core.to_json(added.get(name, []), inf_nan_mode="constants")
                items = self._load_items(field, text, source)
                work.take_items(field, items, len(text))
                loaded[name] = Append(items)
                continue
            value = self._load_value(field, values[name], source) if name in values else self._default(name, loaded)
            work.look(field, value)
            loaded[name] = value
        if self.whole:
            self._validate_whole(self._assemble(loaded))
        return work.result()[0]

    def _assemble(self, values: dict[str, Any]) -> C:
        made = self.kind.__new__(self.kind)
        object.__setattr__(made, "__dict__", values)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    @staticmethod
    def _load_items(field: FieldPlan, text: bytes, source: BlobSource | None) -> list[Any]:
        """All items of an Append field at once: one by one, a long list would take long."""
        try:
            found: list[Any] = field.items.validate_json(text, by_alias=False, by_name=True, context=source)
        except ValidationError as error:
            raise field.invalid(error) from None
        return in_utc(found) if field.instants else found

    @staticmethod
    def _load_value(field: FieldPlan, value: Any, source: BlobSource | None = None) -> Any:
        """The value of a field, or an item of an Append field, from what JSON gave."""
        try:
            return field.load(pydantic_core.to_json(value, inf_nan_mode="constants"), source)
        except ValidationError as error:
            raise field.invalid(error) from None

    def _default(self, name: str, loaded: dict[str, Any]) -> Any:
        info = self.kind.model_fields[name]
        if info.is_required():
            raise InvalidContext(f"context.{name}", "is required and was not stored; the field is newer than the run")
        return info.get_default(call_default_factory=True, validated_data=loaded)

    def parse(self, text: str | bytes) -> C:
        """A context from JSON that a caller sent; raises `InvalidInput` that names each field."""
        try:
            return self.kind.model_validate_json(text)
        except ValidationError as error:
            raise InvalidInput(describe(error)) from None


class _Work:
    """One comparison of a context with what was kept."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.values: dict[str, Any] = {}
        self.texts: dict[str, bytes] = {}
        self.added: dict[str, list[bytes]] = {}
        self.lengths: dict[str, int] = {}
        self.blobs: dict[str, bytes] = {}
        self.growth = 0

    @property
    def changed(self) -> bool:
        return bool(self.texts or self.added)

    def look(self, field: FieldPlan, value: Any) -> None:
        if field.append:
            self._look_at_items(field, value)
        else:
            self._look_at_value(field, value)

    def _look_at_value(self, field: FieldPlan, value: Any) -> None:
        blobs, source = (self.blobs, self.bytes_of) if field.blobs else (None, None)
        text = field.dump(value, blobs)
        before = self.kept.texts.get(field.name)
        if text == before and not (field.shared and unlike(value, self.kept.values[field.name])):
            if not field.shared:
                field.confirm(value, text, source)
            return
        text, settled = field.settle(value, text, blobs, source)
        if text == before:
            return  # the same instants, in another zone
        self.texts[field.name] = text
        self.growth += len(text) - len(before or b"")
        if field.shared:
            self.values[field.name] = settled

    def bytes_of(self, digest: str) -> bytes | None:
        """The bytes of a blob that may be new."""
        if digest in self.blobs or self.kept.source is None:
            return self.blobs.get(digest)
        return self.kept.source(digest)

    def _look_at_items(self, field: FieldPlan, value: Any) -> None:
        name = field.name
        if not isinstance(value, Append):
            raise InvalidContext(f"context.{name}", "an Append field only grows: use append() or extend()")
        items: list[Any] = value._items  # pyright: ignore[reportPrivateUsage]
        old = self.kept.lengths.get(name, 0)
        if name in self.kept.values and items is not self.kept.values[name]:
            self._check_prefix(field, items, old)
        new = [self._item(field, item, number) for number, item in enumerate(items[old : len(value)], old)]
        if new or name not in self.kept.values:
            self.added[name] = [text for text, _ in new]
            settled = [item for _, item in new]
            if old:
                items[old : old + len(new)] = settled  # as they will be loaded; no other copy has got that far
            self.values[name] = items if old else settled
            self.lengths[name] = old + len(new)
            self.growth += sum(len(text) for text, _ in new)

    def take_items(self, field: FieldPlan, items: list[Any], size: int) -> None:
        """Items as they were stored; `size` is that of their JSON list."""
        self.values[field.name], self.lengths[field.name], self.added[field.name] = items, len(items), []
        self.growth += size - 2 - max(0, len(items) - 1)

    def _check_prefix(self, field: FieldPlan, items: list[Any], length: int) -> None:
        before = self.kept.values[field.name][:length]
        if len(items) < length or any(
            a is not b and unlike(b, a) is not None for a, b in zip(before, items, strict=False)
        ):
            raise InvalidContext(f"context.{field.name}", "an Append field only grows: old items were changed")

    def _item(self, field: FieldPlan, item: Any, number: int) -> tuple[bytes, Any]:
        blobs, source = (self.blobs, self.bytes_of) if field.blobs else (None, None)
        try:
            return field.settle(item, field.dump(item, blobs), blobs, source)
        except InvalidContext as error:
            path = f"{field.where}[{number}]{error.path.removeprefix(field.where)}"
            raise InvalidContext(path, error.why) from None

    def result(self) -> tuple[Kept, Difference]:
        if not self.changed:
            return self.kept, NO_DIFFERENCE
        kept = self.kept
        after = Kept(
            {**kept.values, **self.values} if self.values else kept.values,
            {**kept.texts, **self.texts} if self.texts else kept.texts,
            {**kept.lengths, **self.lengths} if self.lengths else kept.lengths,
            kept.size + self.growth,
            kept.source,
        )
        added = {name: items for name, items in self.added.items() if items}
        return after, Difference(self.texts, added, tuple(self.blobs.items()))


def plan_of(kind: type[C]) -> ContextPlan[C]:
    """The plan of a context class, made once."""
    plan: ContextPlan[C] = _plan(kind)
    return plan


@lru_cache(maxsize=512)
def _plan(kind: Any) -> Any:
    return ContextPlan(kind)


def describe(error: ValidationError) -> str:
    """Every problem of a validation, one after the other, each with its path."""
    parts = (f"{'.'.join(map(str, part['loc'])) or 'value'}: {part['msg']}" for part in error.errors())
    return "; ".join(parts)


def _annotation(info: Any) -> Any:
    if getattr(info, "discriminator", None):
        return Annotated[info.annotation, info]
    return info.annotation


def _field_plan(kind: type[Context], name: str) -> FieldPlan:
    info = kind.model_fields[name]
    annotation = _annotation(info)
    append = is_append(annotation)
    target: Any = strip(annotation).__args__[0] if append else annotation
    if not append and info.metadata:
        target = Annotated[(annotation, *info.metadata)]
    config = config_of(target)
    adapter: TypeAdapter[Any] = TypeAdapter(target, config=config)
    many: Any = GenericAlias(list, target)
    return FieldPlan(
        name=name,
        where=f"context.{name}",
        append=append,
        shared=not append and is_immutable(annotation),
        hidden=not info.repr,
        adapter=adapter,
        items=TypeAdapter(many, config=config) if append else adapter,
        **traits_of(target),
    )


def _whole(context: Context, error: ValidationError) -> InvalidContext:
    """The refusal of a context by a validator of its class."""
    first = error.errors()[0]
    place = told("context", context, first["loc"])
    return InvalidContext(place.path, f"{first['msg']}, got {short(first['input'])}" if place.is_open else first["msg"])
