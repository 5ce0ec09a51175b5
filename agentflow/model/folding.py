"""Differences of a run folded into one: the last value of each field, and all items of each `Append` field, in order.

A difference is JSON text, `{"set": {field: value}, "add": {field: [items]}}`. One with `"whole": true` holds a whole
context: nothing before it counts, as after a migration, which may take fields away.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pydantic_core

from agentflow.record import record

__all__ = ["Folded", "fold", "stored_context", "whole"]


@record
class Folded:
    """What differences lead to, as JSON values."""

    values: dict[str, Any]
    added: dict[str, list[Any]]
    is_whole: bool  # one of them held a whole context

    @property
    def context(self) -> dict[str, Any]:
        """All fields."""
        return {**self.values, **self.added}


def fold(differences: Iterable[str]) -> Folded:
    """Fold differences, oldest first."""
    values: dict[str, Any] = {}
    added: dict[str, list[Any]] = {}
    is_whole = False
    for text in differences:
        difference = pydantic_core.from_json(text)
        if "whole" in difference:
            values, added, is_whole = {}, {}, True
        values.update(difference.get("set", {}))
        for name, items in difference.get("add", {}).items():
            added.setdefault(name, []).extend(items)
    return Folded(values, added, is_whole)


def stored_context(differences: Iterable[str]) -> dict[str, Any]:
    """The context that stored differences lead to, as JSON values, whatever its class is today."""
    return fold(differences).context


def whole(values: Mapping[str, Any], added: Mapping[str, Any]) -> str:
    """The difference that replaces whatever there was."""
    parts = {"whole": True, "set": values, "add": {name: items for name, items in added.items() if items}}
    found = {name: part for name, part in parts.items() if part}
    return pydantic_core.to_json(found, inf_nan_mode="constants").decode()
