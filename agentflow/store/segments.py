"""Segments: 256 differences folded into one, so that a long run loads from few rows.

A difference is JSON text, `{"set": {field: value}, "add": {field: [items]}}`: the fold of several has the last value
of each field and all items, in order. Bytes stay linear in the length of the run: each is folded once.
"""

from collections.abc import Iterable
from typing import Any

import pydantic_core

LENGTH = 256  # revisions


def whole_segments(revision: int) -> int:
    """How many segments lie entirely at or below a revision."""
    return (revision + 1) // LENGTH


def is_last_of_segment(revision: int) -> bool:
    """Whether a segment is complete with this revision."""
    return revision % LENGTH == LENGTH - 1


def fold(differences: Iterable[str]) -> str:
    """One difference that does what these do, one after the other."""
    values: dict[str, Any] = {}
    added: dict[str, list[Any]] = {}
    for text in differences:
        difference = pydantic_core.from_json(text)
        values.update(difference.get("set", {}))
        for name, items in difference.get("add", {}).items():
            added.setdefault(name, []).extend(items)
    parts = {"set": values, "add": added}
    whole = {name: part for name, part in parts.items() if part}
    return pydantic_core.to_json(whole, inf_nan_mode="constants").decode()
