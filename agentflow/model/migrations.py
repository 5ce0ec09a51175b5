"""How stored runs come under a changed definition: migrations between versions, and new names within one.

    @refund.migration(from_version=1)
    def with_currency(old: Stored) -> Stored:
        return Stored(old.state, {**old.context, "currency": "EUR"})

A migration leads one version on; several make a chain. It is a pure function of what was stored, and is tried on every
run before anything is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentflow.model.states import Line
from agentflow.record import record

__all__ = ["Migrate", "Migration", "Renames", "Stored", "chain_from"]


@dataclass(frozen=True)
class Stored:
    """Where a run stands, and its context as JSON values: a date is text there, a `Decimal` is text, too.

    `visits` says how often it entered each state; the engine counts on from there whatever a migration returns.
    """

    state: str
    context: dict[str, Any]
    visits: Mapping[str, int] = field(default_factory=dict[str, int])


Migrate: TypeAlias = Callable[[Stored], Stored]


@record
class Migration:
    """One step: from a version to the next one."""

    from_version: int
    function: Migrate
    line: Line


@record
class Renames:
    """The names that stored runs know, and what they mean now."""

    places: Mapping[str, str] = field(default_factory=dict[str, str])  # of states and ends
    members: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])  # by state, as now

    def place(self, name: str) -> str:
        """What a state or end is called now."""
        return self.places.get(name, name)

    def member(self, state: str, name: str) -> str:
        """What a member is called now; `state` by its name of now."""
        return self.members.get(state, {}).get(name, name)


def chain_from(version: int, migrations: Mapping[int, Migration], to: int) -> tuple[Migration, ...] | None:
    """The steps from one version to another, None if one is missing."""
    steps = [migrations.get(number) for number in range(version, to)]
    found = tuple(step for step in steps if step is not None)
    return found if found and len(found) == len(steps) else None
