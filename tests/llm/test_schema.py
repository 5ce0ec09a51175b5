"""Strict schemas: what is rewritten, and what is refused with the field's path."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from agentflow.model.schema import UnsupportedSchema, strict_schema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    name: str = Field(min_length=1, json_schema_extra={"pattern": "^(?!x)"})
    weight: float = Field(default=1.0, ge=0)


class Box(BaseModel):
    kind: Literal["box"]
    side: int


class Ball(BaseModel):
    kind: Literal["ball"]
    radius: int


class Everything(BaseModel):
    """All that strict mode can say."""

    colour: Colour = Field(description="the paint")
    main: Part = Field(description="the biggest")
    parts: Annotated[list[Part], Field(min_length=1)]
    shape: Annotated[Box | Ball, Field(discriminator="kind")]
    tags: set[str]
    note: str | None = None
    due: date
    price: Decimal
    level: Literal["low", "high"] = "low"


def objects(schema: Any) -> list[dict[str, Any]]:
    """All objects within a schema."""
    if isinstance(schema, list):
        return [found for item in schema for found in objects(item)]
    if not isinstance(schema, dict):
        return []
    here = [schema] if schema.get("type") == "object" else []
    return here + [found for item in schema.values() for found in objects(item)]


def test_every_object_is_closed_and_requires_all_its_fields() -> None:
    found = objects(strict_schema(Everything))

    assert len(found) == 5
    for one in found:
        assert one["additionalProperties"] is False
        assert one["required"] == list(one["properties"])


def test_no_word_is_left_that_strict_mode_does_not_know() -> None:
    text = repr(strict_schema(Everything))

    for word in ("$ref", "$defs", "default", "const", "oneOf", "discriminator", "uniqueItems", "minLength", "title"):
        assert f"'{word}'" not in text


def test_what_helps_the_model_is_kept() -> None:
    fields = strict_schema(Everything)["properties"]

    assert fields["colour"] == {"type": "string", "enum": ["red", "blue"], "description": "the paint"}
    assert fields["main"]["description"] == "the biggest"
    assert fields["main"]["properties"]["weight"] == {"type": "number", "minimum": 0}
    assert fields["main"]["properties"]["name"] == {"type": "string"}
    assert fields["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert fields["due"] == {"type": "string", "format": "date"}
    assert fields["parts"]["minItems"] == 1
    assert [option["properties"]["kind"]["enum"] for option in fields["shape"]["anyOf"]] == [["box"], ["ball"]]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Counts(BaseModel):
    counts: dict[str, int]


class Deep(BaseModel):
    parts: list[Counts]


class Anything(BaseModel):
    value: Any


class Pair(BaseModel):
    pair: tuple[int, str]


class Tree(BaseModel):
    children: "list[Tree]"


class Numbers(RootModel[list[int]]):
    pass


class Code(BaseModel):
    run: Callable[[], None]


def nested(depth: int) -> type[BaseModel]:
    model: type[BaseModel] = Box
    for level in range(depth - 1):
        model = type(f"Level{level}", (BaseModel,), {"__annotations__": {"inner": model}})
    return model


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (Open, "Open"),
        (Counts, "Counts.counts"),
        (Deep, "Deep.parts[].counts"),
        (Anything, "Anything.value"),
        (Pair, "Pair.pair"),
        (Tree, "Tree.children[]"),
        (Numbers, "Numbers"),
        (Code, "Code"),
        (nested(10), "Level8" + ".inner" * 9),
    ],
)
def test_what_strict_mode_can_not_say_is_refused_with_the_path(model: type[BaseModel], path: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        strict_schema(model)

    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


def test_nine_levels_are_not_too_deep() -> None:
    assert len(objects(strict_schema(nested(9)))) == 9


def test_one_model_used_twice_side_by_side_does_not_contain_itself() -> None:
    class Two(BaseModel):
        left: Part
        right: Part

    assert len(objects(strict_schema(Two))) == 3
