"""Statements about groups and their branches, for every database."""

from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, not_, select, update
from sqlalchemy.sql.base import Executable

from agentflow.store.group_conditions import is_group_of_run, is_over_group
from agentflow.store.mapping import names_of
from agentflow.store.prepared import NOW, Statement, given
from agentflow.store.rows import GroupRow
from agentflow.store.statements import (
    NULL,
    ONE,
    RUN,
    ZERO,
    is_terminal,
    is_unclaimed,
    row_for,
    word,
)  # fmt: skip
from agentflow.store.tables import Number, groups, history, runs

GROUP = [groups.c[name] for name in names_of(GroupRow)]
COUNTED = ("done", "failed", "stopped", "decided", "stopping", "expired", "generation")

is_group = and_(groups.c.run == given("run"), groups.c.state == given("state"), groups.c.visit == given("visit"))
is_branch = and_(
    runs.c.parent == given("run"), runs.c.group_state == given("state"), runs.c.group_visit == given("visit")
)


@Statement
def open_group() -> Executable:
    return row_for(groups)


@Statement
def one_group() -> Executable:
    return select(*GROUP).where(is_group)


@Statement
def count_group() -> Executable:
    """Write the counts of a group, which were worked out from its row in the same transaction."""
    return update(groups).where(is_group).values({name: given(name, Number) for name in COUNTED})


@Statement
def branches_of_group() -> Executable:
    return select(*RUN).where(is_branch).order_by(runs.c.position)


@Statement
def lock_branches() -> Executable:
    """Branches that have not settled, locked until the transaction ends."""
    return select(runs.c.seq).where(is_branch, ~is_terminal).order_by(runs.c.position).with_for_update()


@Statement
def differences_of_branches() -> Executable:
    """What the branches changed, each by its own transitions."""
    return (
        select(history.c.run, history.c.difference)
        .select_from(history.join(runs, runs.c.id == history.c.run))
        .where(is_branch, history.c.revision > ZERO)
        .order_by(runs.c.position, history.c.revision)
    )


@Statement
def free_branch() -> Executable:
    """A branch that needed the one that is done: it begins once it needs no other."""
    return (
        update(runs)
        .where(is_branch, runs.c.position == given("position", Number), runs.c.awaits > ZERO, ~is_terminal)
        .values(awaits=runs.c.awaits - ONE, due_at=case((runs.c.awaits == ONE, NOW), else_=runs.c.due_at))
    )


@Statement
def fill_slot() -> Executable:
    """The first branch that waits for a place among those at work."""
    first = select(func.min(runs.c.position)).where(is_branch, runs.c.awaits > ZERO, ~is_terminal).scalar_subquery()
    return update(runs).where(is_branch, runs.c.position == first).values(awaits=ZERO, due_at=NOW)


def _waits_for_branches() -> ColumnElement[bool]:
    """Whether a branch stands in a group of its own, whose branches must be stopped before it."""
    return exists(ONE).where(is_group_of_run, ~is_over_group)


@Statement
def stop_resting_branches() -> Executable:
    """Branches that nobody drives are cancelled at once."""
    rests = and_(is_unclaimed, runs.c.status.in_([word("queued"), word("waiting")]), not_(_waits_for_branches()))
    values: dict[str, Any] = {
        "status": word("cancelled"),
        "due_at": NULL,
        "blocked": NULL,
        "paused": ZERO,
        "request": NULL,
        "awaits": ZERO,
        "control_seq": runs.c.control_seq + ONE,
        "updated_at": NOW,
        "ended_at": NOW,
    }
    return update(runs).where(is_branch, rests).values(values).returning(runs.c.id)


@Statement
def ask_branches_to_stop() -> Executable:
    """The others stop at their next commit."""
    return (
        update(runs)
        .where(is_branch, ~is_terminal)
        .values(
            request=given("word"),
            paused=ZERO,
            control_seq=runs.c.control_seq + ONE,
            due_at=case((is_unclaimed, NOW), else_=runs.c.due_at),
            updated_at=NOW,
        )
        .returning(runs.c.id)
    )


@Statement
def begin_branch_again() -> Executable:
    """A branch that did not get done, once more from where it stood."""
    return (
        update(runs)
        .where(runs.c.id == given("id"), runs.c.status.in_([word("failed"), word("cancelled")]))
        .values(
            status=word("queued"),
            attempt=ZERO,
            failure=NULL,
            memory=given("memory"),
            due_at=NOW,
            claims_without_progress=ZERO,
            control_seq=runs.c.control_seq + ONE,
            updated_at=NOW,
            ended_at=NULL,
        )
    )
