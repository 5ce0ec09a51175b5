"""Telling the shape of what came as JSON, in words that type checkers understand."""

from typing import Any, TypeGuard

__all__ = ["is_list", "is_object"]


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a JSON array."""
    return isinstance(value, list)
