"""How members of an enum are named to a model, and which member a text names. No model is asked here."""

from collections.abc import Iterable
from enum import Enum
from itertools import combinations
from typing import TypeVar

__all__ = ["ambiguous_members", "choice_of", "match_member", "normalised"]

E = TypeVar("E", bound=Enum)


def choice_of(member: Enum) -> str:
    """The word by which a model chooses a member: its value if that is a text, else its name."""
    return member.value if isinstance(member.value, str) else member.name


def normalised(text: str) -> str:
    """The one normalisation: without blanks and quotes around it, case folded, `-` and blanks as `_`."""
    bare = text.strip()
    for quote in ('"', "'", "`"):
        if len(bare) > 1 and bare.startswith(quote) and bare.endswith(quote):
            bare = bare[1:-1].strip()
    return bare.casefold().replace("-", "_").replace(" ", "_")


def match_member(text: str, outcome: type[E]) -> E | None:
    """The one member that the whole text names, after the normalisation; nothing is guessed."""
    wanted = normalised(text)
    found = [member for member in outcome if wanted in _keys(member)]
    return found[0] if len(found) == 1 else None


def ambiguous_members(outcome: type[Enum]) -> list[tuple[Enum, Enum]]:
    """The pairs of members that an answer could not tell apart after the normalisation."""
    return [(one, other) for one, other in combinations(outcome, 2) if _keys(one) & _keys(other)]


def listed(outcome: Iterable[Enum]) -> str:
    """The choices in one line."""
    return ", ".join(choice_of(member) for member in outcome)


def _keys(member: Enum) -> frozenset[str]:
    return frozenset({normalised(choice_of(member)), normalised(member.name)})
