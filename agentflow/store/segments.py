"""Segments: 256 differences folded into one, so that a long run loads from few rows.

The fold of several has the last value of each field and all items, in order. Bytes stay linear in the length of the
run: each is folded once.
"""

from collections.abc import Iterable

import pydantic_core

from agentflow.model import folding

LENGTH = 256  # revisions


def whole_segments(revision: int) -> int:
    """How many segments lie entirely at or below a revision."""
    return (revision + 1) // LENGTH


def is_last_of_segment(revision: int) -> bool:
    """Whether a segment is complete with this revision."""
    return revision % LENGTH == LENGTH - 1


def fold(differences: Iterable[str]) -> str:
    """One difference that does what these do, one after the other."""
    found = folding.fold(differences)
    if found.is_whole:
        return folding.whole(found.values, found.added)
    parts = {"set": found.values, "add": found.added}
    told = {name: part for name, part in parts.items() if part}
    return pydantic_core.to_json(told, inf_nan_mode="constants").decode()
