"""When a run must look at its group, as conditions in statements about runs."""

from typing import Any

from sqlalchemy import ColumnElement, and_, literal_column, or_

from agentflow.store.prepared import given, given_for
from agentflow.store.tables import groups, runs

is_over_group = groups.c.done + groups.c.failed + groups.c.stopped >= groups.c.total
is_group_of_run = and_(groups.c.run == runs.c.id, groups.c.state == runs.c.state, groups.c.visit == runs.c.visit)


def is_of_group_standing() -> ColumnElement[bool]:
    """The group of the standing that is being committed."""
    return and_(
        groups.c.run == given("id"),
        groups.c.state == given_for(runs.c.state),
        groups.c.visit == given_for(runs.c.visit),
    )


def must_be_looked_at(group: Any) -> ColumnElement[bool]:
    """Whether the run of a group, given by its columns, must look at it: it is over, or decided."""
    is_over = group.done + group.failed + group.stopped >= group.total
    return or_(is_over, and_(group.decided == literal_column("1"), group.stopping == literal_column("0")))
