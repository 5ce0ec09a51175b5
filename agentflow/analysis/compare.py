"""Two runs side by side: where their paths part, which fields of their contexts differ, and what each has used."""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from agentflow.model.shapes import is_list, is_object
from agentflow.model.views import FieldDifference, Revision, Spent

MISSING = object()


def shared_length(one: Sequence[Revision], other: Sequence[Revision]) -> int:
    """How many transitions two paths share, from the first on. Who decided and when plays no part."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if _way(a) != _way(b)), min(len(one), len(other)))


def _way(line: Revision) -> tuple[str, str, str | None, str]:
    return (line.source, line.event, line.outcome, line.target)


def spent_on(path: Sequence[Revision]) -> Spent:
    """What a path has used."""
    return Spent(
        transitions=len(path),
        model_calls=sum(line.model is not None for line in path),
        tokens=sum(line.tokens or 0 for line in path),
        cost=sum((line.cost for line in path if line.cost is not None), Decimal(0)),
    )


def differing_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> Sequence[FieldDifference]:
    """Where two contexts, as JSON values, differ: the innermost fields, in the order of the first context."""
    return tuple(_differing("", one, other))


def _differing(path: str, one: Any, other: Any) -> Iterator[FieldDifference]:
    if is_object(one) and is_object(other):
        for name in dict.fromkeys((*one, *other)):
            yield from _differing(_joined(path, name), one.get(name, MISSING), other.get(name, MISSING))
    elif is_list(one) and is_list(other):
        for number, (a, b) in enumerate(zip_longest(one, other, fillvalue=MISSING)):
            yield from _differing(_joined(path, str(number)), a, b)
    elif _text(one) != _text(other):
        yield FieldDifference(path, _text(one), _text(other))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _text(value: Any) -> str | None:
    """A value as JSON text, by which True, 1 and 1.0 differ."""
    return None if value is MISSING else json.dumps(value, ensure_ascii=False)
