"""Whether every value of one JSON schema is a value of another, as far as that can be proved from the two.

What cannot be proved is not guessed: `relation` says `unknown`, and whoever asks looks at the value itself.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from agentflow.model.shapes import is_list, is_object

Schema: TypeAlias = Mapping[str, Any]
Relation: TypeAlias = Literal["same", "wider", "narrower", "unknown"]

LOWER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
UPPER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
STRUCTURE = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "const", "default"}
)
OPEN = True  # what a list without `items` and an object without `additionalProperties` take


def relation(old: Schema, new: Schema, old_root: Schema, new_root: Schema) -> Relation:
    """How the values of `new` relate to those of `old`; the roots hold the definitions that they refer to."""
    wider = _Proof(old_root, new_root).takes(old, new)
    narrower = _Proof(new_root, old_root).takes(new, old)
    if wider and narrower:
        return "same"
    return "wider" if wider else "narrower" if narrower else "unknown"


class _Proof:
    """One attempt to prove that a schema takes all values of another."""

    def __init__(self, old_root: Schema, new_root: Schema) -> None:
        self._old_root = old_root
        self._new_root = new_root
        self._assumed: set[tuple[str, str]] = set()  # pairs of definitions that are being compared: they may recur

    def takes(self, old: Any, new: Any) -> bool:
        """Whether `new` takes every value of `old`."""
        if not is_object(old) or not is_object(new):
            return new is OPEN or bool(old == new)
        names = (str(old.get("$ref", "")), str(new.get("$ref", "")))
        if all(names):
            if names in self._assumed:
                return True
            self._assumed.add(names)
        old, new = _resolved(old, self._old_root), _resolved(new, self._new_root)
        old_ways, new_ways = _ways(old), _ways(new)
        if len(old_ways) == len(new_ways) == 1:
            return self._one_takes(old_ways[0], new_ways[0])
        return self._union_takes(old_ways, new_ways)

    def _union_takes(self, old_ways: list[Any], new_ways: list[Any]) -> bool:
        """Each old way is taken by one new way, and no other new way could take the value for itself."""
        for old in old_ways:
            rivals = [new for new in new_ways if _could_share(self._settled_old(old), self._settled_new(new))]
            tagged = [new for new in rivals if _same_tag(self._settled_old(old), self._settled_new(new))]
            found = tagged or rivals
            if len(found) != 1 and not self._is_among(old, new_ways, old_ways):
                return False
            if len(found) == 1 and not self.takes(old, found[0]):
                return False
        return True

    def _is_among(self, old: Any, new_ways: list[Any], old_ways: list[Any]) -> bool:
        """Whether the new ways that could take it are those that could take it before."""
        rivals_now = [new for new in new_ways if _could_share(self._settled_old(old), self._settled_new(new))]
        rivals_then = [one for one in old_ways if _could_share(self._settled_old(old), self._settled_old(one))]
        if len(rivals_now) != len(rivals_then):
            return False
        return all(self.takes(then, now) for then, now in zip(rivals_then, rivals_now, strict=True))

    def _settled_old(self, way: Any) -> Any:
        return _resolved(way, self._old_root)

    def _settled_new(self, way: Any) -> Any:
        return _resolved(way, self._new_root)

    def _one_takes(self, old: Schema, new: Schema) -> bool:
        old_values, new_values = _values(old), _values(new)
        if new_values is not None:
            return old_values is not None and all(value in new_values for value in old_values)
        if old.get("type") != new.get("type"):
            return False
        if old_values is not None:
            return not (new.keys() - STRUCTURE)  # a bound might leave one out
        if not all(_bound_takes(key, old, new) for key in (old.keys() | new.keys()) - STRUCTURE):
            return False
        return self._object_takes(old, new) and self._list_takes(old, new)

    def _object_takes(self, old: Schema, new: Schema) -> bool:
        if old.get("type") != "object":
            return True
        before: Schema = old.get("properties", {})
        after: Schema = new.get("properties", {})
        if not set(new.get("required", ())) <= set(old.get("required", ())):
            return False
        if not all(name in after and self.takes(field, after[name]) for name, field in before.items()):
            return False
        if not all("default" in after[name] for name in after if name not in before):
            return False  # a default that code makes might differ each time
        if before or after:
            return bool(old.get("additionalProperties", False) == new.get("additionalProperties", False))
        return self.takes(old.get("additionalProperties", OPEN), new.get("additionalProperties", OPEN))

    def _list_takes(self, old: Schema, new: Schema) -> bool:
        if old.get("type") != "array":
            return True
        before, after = old.get("prefixItems", []), new.get("prefixItems", [])
        if len(before) != len(after) or not all(map(self.takes, before, after)):
            return False
        return self.takes(old.get("items", OPEN), new.get("items", OPEN))


def _resolved(schema: Any, root: Schema) -> Any:
    """The schema behind a reference, with what stands beside it."""
    seen: set[str] = set()
    while is_object(schema) and "$ref" in schema and schema["$ref"] not in seen:
        seen.add(schema["$ref"])
        target: Schema = root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
        schema = {**target, **{key: part for key, part in schema.items() if key != "$ref"}}
    return schema


def _ways(schema: Any) -> list[Any]:
    for union in ("anyOf", "oneOf"):
        if is_list(schema.get(union)):
            ways: list[Any] = schema[union]
            return ways
    return [schema]


def _values(schema: Schema) -> list[Any] | None:
    """The values that are listed, None where they are not."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return list(listed) if is_list(listed) else None


NUMBERS = frozenset({"integer", "number"})


def _could_share(one: Any, other: Any) -> bool:
    """Whether a JSON value might be read as either."""
    kinds = {_kind(one), _kind(other)}
    return None in kinds or len(kinds) == 1 or kinds <= NUMBERS


def _kind(schema: Any) -> str | None:
    kind = schema.get("type") if is_object(schema) else None
    return kind if isinstance(kind, str) else None


def _same_tag(one: Any, other: Any) -> bool:
    """Whether two objects carry the same constant in a field of the same name."""
    if not (is_object(one) and is_object(other)):
        return False
    before, after = one.get("properties", {}), other.get("properties", {})
    tags = [name for name in before if name in after and _constants(before[name]) and _constants(after[name])]
    return bool(tags) and all(_constants(before[name]) == _constants(after[name]) for name in tags)


def _constants(schema: Any) -> list[Any] | None:
    return _values(schema) if is_object(schema) else None


def _bound_takes(key: str, old: Schema, new: Schema) -> bool:
    """Whether a bound of `new` leaves in all that the bound of `old` did."""
    before, after = old.get(key), new.get(key)
    if after is None or before == after:
        return True
    if before is None:
        return False
    if key in LOWER:
        return bool(after <= before)
    return bool(after >= before) if key in UPPER else False
