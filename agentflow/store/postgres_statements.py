"""What PostgreSQL is asked in words of its own; the rest is in `statements`. Nothing here is executed.

A commit of a plain transition is one statement. Whatever must not race with a worker's commit takes the lock of the run's
row first, in a statement of its own: what a later statement of the transaction reads is then what the worker left.
"""

from functools import lru_cache
from typing import Any

from sqlalchemy import Text, and_, any_, cast, exists, func, insert, select, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.base import Executable

from agentflow.store import ledger_statements as ledger
from agentflow.store import statements as sql
from agentflow.store.prepared import NOW, Statement, given, given_for
from agentflow.store.statements import ONE
from agentflow.store.tables import Number, history, runs, sessions


@Statement
def lock_run() -> Executable:
    """Token and session of a run whose row is locked until the transaction ends."""
    return select(runs.c.token, runs.c.session).where(runs.c.id == given("id")).with_for_update()


@lru_cache
def claim_due(*, listed_only: bool, known_only: bool) -> Statement:
    """Give due runs to a session; what another worker is just taking is passed over, so none waits for another."""

    def build() -> Executable:
        wanted: Any = sql.claimable()
        if listed_only:
            wanted = wanted.where(runs.c.id == any_(given("runs", ARRAY(Text))))
        if known_only:
            wanted = wanted.where(_is_known())
        taken = wanted.with_for_update(skip_locked=True).cte("wanted")
        return (
            update(runs)
            .where(
                runs.c.seq == taken.c.seq,
                exists(ONE).where(sessions.c.id == given("session"), sql.is_live),
            )
            .values(sql.taken() | {"token": given("token", Text()).concat(cast(runs.c.seq, Text))})
            .returning(*sql.RUN, runs.c.priority, runs.c.seq)
        )

    return Statement(build)


def _is_known() -> Any:
    known = (
        func.unnest(given("names", ARRAY(Text)), given("versions", ARRAY(Number)))
        .table_valued("name", "version")
        .render_derived()
    )
    return exists(ONE).where(known.c.name == runs.c.workflow, known.c.version == runs.c.version)


@Statement
def dead_holders() -> Executable:
    """Sessions of others that hold runs although their lease is over."""
    holds = exists(ONE).where(runs.c.session == sessions.c.id)
    return select(sessions.c.id).where(
        sql.is_running, sessions.c.id != given("id"), sessions.c.lease_until <= NOW, holds
    )


@Statement
def is_anything_due() -> Executable:
    is_wanted = and_(sql.is_unclaimed, runs.c.due_at <= NOW, runs.c.paused == sql.ZERO, ~sql.is_terminal)
    return select(exists(ONE).where(is_wanted))


@Statement
def advance_with_history() -> Executable:
    """The whole of a plain commit: compare and set, and the history row if that found its run."""
    moved = update(runs).where(sql.is_own()).values(sql.moved_on()).returning(runs.c.id).cte("moved")
    columns = sql.columns_to_fill(history)
    names = [column.name for column in columns]
    values = select(*(given_for(column, "history_") for column in columns)).select_from(moved)
    return insert(history).inline().from_select(names, values)


@Statement
def settle_effect() -> Executable:
    """As on SQLite, behind the lock of the run's row: a claim that is just being taken over settles nothing."""
    own = (
        select(runs.c.id).where(runs.c.id == given("run"), runs.c.token == given("token")).with_for_update().cte("own")
    )
    return ledger.settled_effect(exists(ONE).select_from(own))


@Statement
def server_now() -> Executable:
    return select(NOW)
