"""Statements about definitions, and about runs that come under another version or shape; nothing here is executed."""

from functools import lru_cache

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.sql.base import Executable

from agentflow.store import statements as sql
from agentflow.store.mapping import STANDING_NAMES, names_of
from agentflow.store.prepared import NOW, Statement, given, given_for, insert
from agentflow.store.rows import DefinitionRow
from agentflow.store.tables import definitions, runs, waits

DEFINITION = [definitions.c[name] for name in names_of(DefinitionRow)]


@Statement
def record_definition() -> Executable:
    """Nothing is written if that shape is known."""
    return insert(definitions, unless_there=True).values({column.name: given_for(column) for column in DEFINITION})


@lru_cache
def list_definitions(*, of_workflow: bool) -> Statement:
    """In the order in which they were first seen."""
    found = select(*DEFINITION).order_by(definitions.c.seq)
    return Statement(lambda: found.where(definitions.c.workflow == given("workflow")) if of_workflow else found)


@Statement
def adopt_run() -> Executable:
    """Let a claimed run stand under another shape."""
    return (
        update(runs)
        .where(runs.c.id == given("id"), runs.c.token == given("token"))
        .values(shape=given_for(runs.c.shape), updated_at=NOW)
    )


@Statement
def relocate_run() -> Executable:
    """Compare and set: an unclaimed run that may go on, under another version or shape and in another standing."""
    may_go_on = or_(~sql.is_terminal, and_(runs.c.status == sql.word("failed"), runs.c.end.is_(None)))
    own = and_(
        runs.c.id == given("id"),
        runs.c.control_seq == given("expected_control_seq"),
        runs.c.revision == given("expected_revision"),
        sql.is_unclaimed,
        may_go_on,
    )
    named = ("version", "shape", "revision", *STANDING_NAMES)
    changed = {name: given_for(runs.c[name]) for name in named}
    counted = {"control_seq": runs.c.control_seq + sql.ONE, "claims_without_progress": sql.ZERO, "updated_at": NOW}
    ended = {"ended_at": func.coalesce(runs.c.ended_at, given_for(runs.c.ended_at))}  # a failed run stays as it ended
    return update(runs).where(own).values({**changed, **counted, **ended})


@Statement
def move_wait() -> Executable:
    """Give a wait another id and other content."""
    changed = {column.name: given_for(column) for column in sql.WAIT}
    return update(waits).where(waits.c.id == given("old_id")).values(changed)
