"""Large fields of a private copy that nobody has looked at yet: read from their JSON at the first look."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from agentflow.model.blobs import BlobSource
    from agentflow.model.context import Context, FieldPlan

    C = TypeVar("C", bound=Context)
else:
    C = TypeVar("C")


class Unread:
    """What a copy has not read. Nothing of it changes, so copies of the copy may share it."""

    __slots__ = ("source", "texts")

    def __init__(self, texts: "Mapping[str, tuple[FieldPlan, bytes]]", source: "BlobSource | None") -> None:
        self.texts = texts
        self.source = source

    def read(self, context: "Context", name: str) -> Any:
        """Read one field into the copy."""
        field, text = self.texts[name]
        value = field.load(text, self.source)
        values: Any = context.__dict__  # past `__setattr__`, which a frozen class refuses
        values[name] = value
        return value

    def __copy__(self) -> "Unread":
        return self

    def __deepcopy__(self, _memo: object) -> "Unread":
        return self


def unread_of(context: "Context") -> Collection[str]:
    """The names of fields that may not be read yet."""
    private = context.__pydantic_private__
    unread: Unread | None = None if private is None else private.get("_unread")
    return () if unread is None else unread.texts


def read_all(context: C) -> C:
    """The context itself, with every field read, in the order of the class."""
    names = unread_of(context)
    if names and any(name not in context.__dict__ for name in names):
        values: Any = context.__dict__
        read = {name: getattr(context, name) for name in type(context).model_fields}
        values.clear()
        values.update(read)
    return context
