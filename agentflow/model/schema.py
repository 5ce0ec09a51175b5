"""JSON Schemas in the strict form that servers enforce: closed objects, every field required, nothing open-ended.

What strict mode has no word for but the answer model checks by itself (lengths, uniqueness, defaults) is left out;
what would let a model answer anything (`dict`, `Any`) is refused, with the field's path.
"""

from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

__all__ = ["UnsupportedSchema", "strict_schema"]

_KEPT = frozenset(
    {"type", "description", "enum", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum"}
    | {"exclusiveMaximum", "minItems", "maxItems"}
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_DEPTH = 9
"""Of the ten levels that servers allow, one is the answer around the model."""


class UnsupportedSchema(ValueError):
    """An answer model that strict mode can't express; the message names the field."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The strict schema of an answer model. Raises `UnsupportedSchema`."""
    try:
        schema = model.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise UnsupportedSchema(model.__name__, error.message) from None
    definitions: dict[str, Any] = schema.pop("$defs", {})
    strict = _Strict(definitions).node(schema, model.__name__, (), 0)
    if strict.get("type") != "object":
        raise UnsupportedSchema(model.__name__, "an answer must be an object with fields")
    return strict


class _Strict:
    """Rewrites one schema, with its definitions put in their places."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions

    def node(self, schema: dict[str, Any], path: str, inside: tuple[str, ...], depth: int) -> dict[str, Any]:
        """One schema in strict form; `inside` names the definitions that surround it."""
        if reference := schema.get("$ref"):
            name = str(reference).rpartition("/")[2]
            if name in inside:
                raise UnsupportedSchema(path, f"{name} contains itself; an answer's depth must have an end")
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return self.node(self._definitions[name] | beside, path, (*inside, name), depth)
        strict = {key: value for key, value in schema.items() if key in _KEPT and _is_expressible(key, value)}
        if schema.get("format") in _FORMATS:
            strict["format"] = schema["format"]
        if "const" in schema:
            strict["enum"] = [schema["const"]]
        for union in ("anyOf", "oneOf"):
            if union in schema:
                strict["anyOf"] = [self.node(option, path, inside, depth) for option in schema[union]]
        return strict | self._content(schema, strict, path, inside, depth)

    def _content(
        self, schema: dict[str, Any], strict: dict[str, Any], path: str, inside: tuple[str, ...], depth: int
    ) -> dict[str, Any]:
        match schema.get("type"):
            case "object":
                return self._object(schema, path, inside, depth + 1)
            case "array":
                if "items" not in schema or "prefixItems" in schema:
                    raise UnsupportedSchema(path, "a list must have items of one type; use a model for fixed places")
                return {"items": self.node(schema["items"], f"{path}[]", inside, depth)}
            case None if not strict.keys() & {"anyOf", "enum"}:
                raise UnsupportedSchema(path, "any value would do; give the field a type")
            case _:
                return {}

    def _object(self, schema: dict[str, Any], path: str, inside: tuple[str, ...], depth: int) -> dict[str, Any]:
        if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
            raise UnsupportedSchema(path, "the names of its fields are open; use a model, or a list of pairs")
        if depth > _DEPTH:
            raise UnsupportedSchema(path, f"objects are nested deeper than {_DEPTH}")
        fields: dict[str, Any] = schema.get("properties", {})
        strict = {name: self.node(field, f"{path}.{name}", inside, depth) for name, field in fields.items()}
        return {"properties": strict, "required": list(strict), "additionalProperties": False}


def _is_expressible(key: str, value: Any) -> bool:
    """Look-around is no part of the patterns that servers understand; the answer model checks it all the same."""
    return key != "pattern" or "(?" not in str(value)
