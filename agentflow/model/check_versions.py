"""Checks of what leads stored runs to a changed definition: the map of new names, and migrations."""

# This module looks into values of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

from collections.abc import Sequence
from enum import Enum
from typing import Any

from agentflow.model.check import Draft, Found, nearest
from agentflow.model.migrations import Migration, Renames
from agentflow.model.states import End, State

PLACES = (State, End)


def check_versions(draft: Draft, found: Found) -> None:
    """All problems of renames and migrations; the renames themselves, where there are none."""
    workflow = draft.workflow
    wrong = problems_of_migrations(workflow.migrations, workflow.version)
    for migration, told in wrong or _gaps(workflow.migrations, workflow.version):
        found.error(migration.line, told)
    places: dict[str, str] = {}
    members: dict[str, dict[str, str]] = {}
    for old, new in draft.renamed.items():
        problem = _problem_of_name(draft, old, new)
        if problem is not None:
            found.error(draft.line, f"renamed={{{old!r}: ...}}: {problem}")
        elif isinstance(new, PLACES):
            places[old] = new.name
    for old, new in draft.renamed.items():
        if isinstance(new, Enum):
            state, _, member = old.rpartition(".")
            members.setdefault(places.get(state, state), {})[member] = new.name
    found.renames = Renames(places, members)


def problems_of_migrations(migrations: Sequence[Migration], version: int) -> list[tuple[Migration, str]]:
    """Which migrations of a workflow cannot stand beside the others, and why."""
    problems: list[tuple[Migration, str]] = []
    first: dict[int, Migration] = {}
    for migration in migrations:
        number = migration.from_version
        what = f"migration(from_version={number})"
        if number in first:
            problems.append((migration, f"{what}: there is one already at {first[number].line}; leave one of them out"))
        elif number < 1:
            problems.append((migration, f"{what}: versions count from 1"))
        elif number >= version:
            problems.append((migration, f"{what}: it leads to version {number + 1}, and the workflow has {version}"))
        first.setdefault(number, migration)
    return problems


def _gaps(migrations: Sequence[Migration], version: int) -> list[tuple[Migration, str]]:
    """Migrations that lead to a version from which none goes on."""
    known = {migration.from_version for migration in migrations}
    ends = [migration for migration in migrations if migration.from_version + 1 not in known | {version}]
    return [(migration, _told_gap(migration.from_version)) for migration in ends]


def _told_gap(number: int) -> str:
    return (
        f"migration(from_version={number}): it leads to version {number + 1}, and none goes on from there; "
        f"add migration(from_version={number + 1})"
    )


def _problem_of_name(draft: Draft, old: Any, new: Any) -> str | None:
    if not isinstance(old, str):
        return "the key is the old name, as text"
    if isinstance(new, PLACES):
        return _problem_of_place(draft, old, new)
    if isinstance(new, Enum):
        return _problem_of_member(draft, old, new)
    return f"the value is the new state, end or member, not {new!r}"


def _problem_of_place(draft: Draft, old: str, new: Any) -> str | None:
    if "." in old:
        return f"the key names a member, the value {new.name!r} is none"
    if new.owner is not draft.workflow:
        return f"{new.name!r} is of workflow {new.owner.name!r}"
    if any(place.name == old for place in (*draft.workflow.states, *draft.workflow.ends)):
        return "there is still something of that name; a new name is for what is gone"
    return None


def _problem_of_member(draft: Draft, old: str, new: Enum) -> str | None:
    name, dot, member = old.rpartition(".")
    if not dot:
        return f"the key of a member is 'state.MEMBER', such as 'ask.{old}'"
    place: Any = draft.renamed.get(name)
    state = place if isinstance(place, State) else draft.state_named(name)
    if state is None:
        return f"there is no state {name!r}{nearest(name, [one.name for one in draft.workflow.states])}"
    enum: Any = state.spec.outcome
    if enum is None or new not in list(enum) or type(new) is not enum:
        return f"state {state.name!r} does not answer {new!r}"
    if member in enum.__members__ and member != new.name:
        return f"state {state.name!r} still answers {member}; a new name is for what is gone"
    return None
