"""The types that a context may hold, and a form of their values in which two are equal only if they are the same.

A context class is made from texts of annotations, `{"a": "dict[Colour, list[Money | None]]"}`: so another process can
make the same one and read what this one wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, computed_field, create_model

from agentflow import Blob, Context
from agentflow.merge import Append

KEEPS_ALL = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings")


class Colour(StrEnum):
    RED = "red"
    PALE_BLUE = "pale blue"
    NONE = ""
    ODD = "\x00\u2028 'ü"


class Level(IntEnum):
    LOW = 0
    HIGH = 1
    LARGEST = 2**63 - 1
    LEAST = -(2**63)


class Mixed(Enum):
    TEXT = "1"
    NUMBER = 1
    RED = "red"


class Right(Flag):
    READ = 1
    WRITE = 2


class Outer:
    class Inner(Enum):
        """An enum inside a class, as large as its name is long."""

        A = "a"
        B = 2


@dataclass(frozen=True)
class Money:
    amount: Decimal
    at: datetime | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    price: Money
    levels: tuple[Level, ...] = ()


class Leaf(BaseModel, frozen=True):
    model_config = KEEPS_ALL
    name: str = ""
    weight: float = 0.0
    raw: bytes = b""
    colour: Colour | None = None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = ""
    since: date | None = None


class Node(BaseModel):
    name: str = ""
    children: "list[Node]" = []


class Order(BaseModel):
    """A model with all that makes models difficult: aliases, computed fields, mutable parts, another order of fields."""

    number: int = Field(default=0, alias="theNumber")
    lines: list[Line] = []
    by_day: dict[str, datetime] = {}
    pets: "list[Annotated[Cat | Dog, Field(discriminator='kind')]]" = []
    labels: set[Colour] = set()
    parent: "Order | None" = None

    @computed_field
    def double(self) -> int:
        return self.number * 2


Pet: Any = Annotated[Cat | Dog, Field(discriminator="kind")]
Key = NewType("Key", str)
Choice: Any = Literal["a", "b", 1, True, None]
Positive: Any = Annotated[int, Field(gt=0)]

NAMES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (
        bool, int, float, str, bytes, list, tuple, set, frozenset, dict, Decimal, datetime, date, timedelta, UUID,
        Colour, Level, Mixed, Right, Money, Line, Leaf, Cat, Dog, Node, Order, Append, Blob,
    )},
    "Inner": Outer.Inner, "Pet": Pet, "Key": Key, "Choice": Choice, "Positive": Positive, "None": None,
}  # fmt: skip


def type_of(text: str) -> Any:
    """The annotation that a text names."""
    return eval(text, {"__builtins__": {}}, NAMES)


def context_class(types: Mapping[str, str]) -> type[Context]:
    """The context class with fields of these types."""
    wanted: dict[str, Any] = {name: (type_of(text), ...) for name, text in types.items()}
    return create_model("Made", __base__=Context, **wanted)


def exact(value: Any) -> Any:
    """A value in words: two of them are equal only if types and values are, all the way down; instants are in UTC."""
    kind = type(value).__qualname__
    if type(value) is datetime:
        return kind, value.astimezone(UTC).isoformat()
    if isinstance(value, Blob):
        return kind, value.media_type, value.read().hex()
    if isinstance(value, BaseModel):
        return kind, [(name, exact(getattr(value, name))) for name in type(value).model_fields]
    if is_dataclass(value):
        return kind, [(field.name, exact(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, Mapping):
        return kind, [(exact(key), exact(part)) for key, part in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted((exact(item) for item in value), key=repr)
    if isinstance(value, list | tuple | Append):
        return kind, [exact(item) for item in value]
    return kind, repr(value)


def text_of(context: Context) -> str:
    """All fields of a context in words."""
    return repr({name: exact(getattr(context, name)) for name in type(context).model_fields})


def instants(value: Any) -> list[datetime]:
    """Every instant in a value."""
    if isinstance(value, datetime):
        return [value]
    if isinstance(value, BaseModel):
        return [found for name in type(value).model_fields for found in instants(getattr(value, name))]
    if is_dataclass(value):
        return [found for field in fields(value) for found in instants(getattr(value, field.name))]
    if isinstance(value, Mapping):
        return [found for part in value.values() for found in instants(part)]
    if isinstance(value, set | frozenset | list | tuple | Append):
        return [found for item in value for found in instants(item)]
    return []
