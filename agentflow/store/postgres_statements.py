"""What PostgreSQL is asked in words of its own; the rest is in `statements`. Nothing here is executed.

Each round trip counts, so whatever a worker writes is one statement: a claim, a start, a commit with all its rows, an
effect. Its parts are CTEs, and hang together by what the first one found: nothing is written behind a lost comparison.

All parts of a statement see what was committed before it began. Where it has to see what somebody else commits while it
waits for a row, it reads that with the lock (`FOR UPDATE`, `FOR SHARE`), which gives the row as it is by then. Whatever
must not race with a worker's commit takes the lock of the run's row first.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    CTE,
    Column,
    ColumnElement,
    LargeBinary,
    Select,
    Table,
    Text,
    and_,
    any_,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.base import Executable

from agentflow.store import ledger_statements as ledger
from agentflow.store import statements as sql
from agentflow.store.group_conditions import is_of_group_standing, must_be_looked_at
from agentflow.store.mapping import RUN_NAMES
from agentflow.store.prepared import NOW, SERVER_NOW, Statement, given, given_for, insert
from agentflow.store.statements import ONE
from agentflow.store.tables import Number, attempts, effects, groups, history, kept_values, runs, sessions, waits

server_time: ColumnElement[int] = literal_column(SERVER_NOW)


# --- sessions and claims -----------------------------------------------------------------------------------------


@Statement
def server_now() -> Executable:
    return select(server_time)


@Statement
def renew_lease() -> Executable:
    """As on SQLite, by the server's clock, which comes along."""
    until = NOW + given("lease", Number)
    return (
        update(sessions)
        .where(sessions.c.id == given("id"), sql.is_live)
        .values(lease_until=until)
        .returning(server_time)
    )


@Statement
def look_for_work() -> Executable:
    """The server's time, whether a run is due, and the sessions of others that hold runs although they are dead."""
    is_wanted = and_(sql.is_unclaimed, runs.c.due_at <= NOW, runs.c.paused == sql.ZERO, ~sql.is_terminal)
    holds = exists(ONE).where(runs.c.session == sessions.c.id)
    dead = (
        select(sessions.c.id)
        .where(sql.is_running, sessions.c.id != given("id"), sessions.c.lease_until <= NOW, holds)
        .order_by(sessions.c.seq)  # all workers end them in one order, so that they do not wait for each other
    )
    return select(server_time, exists(ONE).where(is_wanted), func.array(dead.scalar_subquery()))


@lru_cache
def claim_due(*, listed_only: bool, known_only: bool, refuses: bool = False) -> Statement:
    """Give due runs to a session; what another worker is just taking is passed over, so none waits for another."""

    def build() -> Executable:
        wanted: Any = sql.claimable()
        if listed_only:
            wanted = wanted.where(runs.c.id == any_(given("runs", ARRAY(Text))))
        if known_only:
            wanted = wanted.where(_is_known())
        if refuses:
            wanted = wanted.where(or_(runs.c.blocked.is_(None), ~_is_refused()))
        mine = (  # whoever ends this session waits for the claim, and so sees what it has taken
            select(sessions.c.seq)
            .where(sessions.c.id == given("session"), sql.is_live)
            .with_for_update(read=True)
            .cte("mine")
        )
        taken = wanted.where(exists(ONE).select_from(mine)).with_for_update(skip_locked=True, of=runs).cte("wanted")
        return (
            update(runs)
            .where(runs.c.seq == taken.c.seq)
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
    return exists(ONE).where(known.c.name == runs.c.workflow, known.c.version >= runs.c.version)


def _is_refused() -> Any:
    names = [column.name for column in sql.PLACE]
    lists = [given(f"refused_{column.name}", ARRAY(column.type)) for column in sql.PLACE]
    refused = func.unnest(*lists).table_valued(*names, name="refused").render_derived()
    return exists(ONE).where(*(refused.c[column.name] == column for column in sql.PLACE))


def places_given(
    workflows: Sequence[tuple[str, int]], refused: Sequence[tuple[str, int, str, str]]
) -> dict[str, list[Any]]:
    """What `claim_due` takes with `known_only` and with `refuses`."""
    known: dict[str, list[Any]] = {
        "names": [name for name, _ in workflows],
        "versions": [version for _, version in workflows],
    }
    parts = {f"refused_{column.name}": [one[number] for one in refused] for number, column in enumerate(sql.PLACE)}
    return {**known, **parts}


def urgency(claimed: Sequence[Any]) -> tuple[int, int, int]:
    """As the claim ordered them, which what it returns does not show."""
    priority, seq = claimed[len(RUN_NAMES) :]
    return -priority, claimed[RUN_NAMES.index("due_at")], seq


# --- starts and commits ------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """What a commit has; the statements of two commits of one shape are the same."""

    release: bool
    history: bool
    attempts: bool
    opens: bool
    closes: bool
    settles: bool
    values: bool


@lru_cache
def create_run(*, values: bool) -> Statement:
    """A run with its first history row and its values, if there is none of that id; no row if there is."""

    def build() -> Executable:
        created = sql.run_to_create().cte("created")
        parts = [_history(created)]
        if values:
            parts.append(_values(created))
        return select(*created.c).add_cte(*parts)

    return Statement(build)


@lru_cache(256)
def commit_run(shape: Shape) -> Statement:
    """The whole of a commit: compare and set, and all its rows if that found its run; how many runs it found."""

    def build() -> Executable:
        moved = _moved_and_freed() if shape.release else _moved()
        parts: list[CTE] = []
        if shape.history:
            parts.append(_history(moved))
        if shape.attempts:
            parts.append(_listed(attempts, "attempt_", moved))
        if shape.closes:
            parts.append(_closed(moved))
        if shape.opens:
            parts.append(_listed(waits, "wait_", moved))
        if shape.settles:
            parts.append(_settled(moved))
        if shape.values:
            parts.append(_values(moved))
        return select(func.count()).select_from(moved).add_cte(*parts)

    return Statement(build)


def _moved() -> CTE:
    return update(runs).where(sql.is_own()).values(sql.moved_on()).returning(runs.c.seq).cte("moved")


def _moved_and_freed() -> CTE:
    """A wait may be settled at this moment: it is read behind the lock of the run, which whoever settles it takes too."""
    held = select(runs.c.seq).where(sql.is_own()).with_for_update().cte("held")
    seen = (
        select(waits.c.status)
        .select_from(held.join(waits, true()))
        .where(sql.is_of_standing())
        .with_for_update(read=True, of=waits)
        .cte("seen")
    )
    group = (
        select(*(groups.c[name] for name in ("done", "failed", "stopped", "total", "decided", "stopping")))
        .select_from(held.join(groups, true()))
        .where(is_of_group_standing())
        .with_for_update(read=True, of=groups)
        .cte("branches")
    )
    settled = or_(
        exists(ONE).select_from(seen).where(seen.c.status.in_(sql.SETTLED)),
        exists(ONE).select_from(group).where(must_be_looked_at(group.c)),
    )
    return (
        update(runs)
        .where(runs.c.seq == held.c.seq)
        .values(sql.moved_on_and_freed(settled))
        .returning(runs.c.seq)
        .cte("moved")
    )


def _history(after: CTE) -> CTE:
    columns = sql.columns_to_fill(history)
    row = select(*(given_for(column, "history_") for column in columns)).select_from(after)
    return insert(history).from_select(_names(columns), row).cte("recorded")


def _listed(table: Table, prefix: str, after: CTE) -> CTE:
    """Rows of a table, given column by column."""
    columns = sql.columns_to_fill(table)
    lists = [given(f"{prefix}{column.name}", ARRAY(column.type)) for column in columns]
    rows = func.unnest(*lists).table_valued(*_names(columns), name=f"{prefix}rows").render_derived()
    chosen = select(*(rows.c[name] for name in _names(columns))).where(exists(ONE).select_from(after))
    return insert(table).from_select(_names(columns), chosen).cte(f"{prefix}added")


def _closed(after: CTE) -> CTE:
    is_listed = waits.c.id == any_(given("closes", ARRAY(Text)))
    return sql.closed_waits(and_(is_listed, waits.c.run == given("id"), exists(ONE).select_from(after))).cte("closed")


def _settled(after: CTE) -> CTE:
    is_listed = effects.c.key == any_(given("settles", ARRAY(Text)))
    return ledger.effects_done(and_(is_listed, exists(ONE).select_from(after))).cte("settled")


def _values(after: CTE) -> CTE:
    lists = (given("digests", ARRAY(Text)), given("contents", ARRAY(LargeBinary)))
    rows = func.unnest(*lists).table_valued("digest", "content", name="value_rows").render_derived()
    chosen = select(rows.c.digest, rows.c.content).where(exists(ONE).select_from(after))
    return insert(kept_values, unless_there=True).from_select(["digest", "content"], chosen).cte("kept")


def _names(columns: Sequence[Column[Any]]) -> list[str]:
    return [column.name for column in columns]


# --- locks -------------------------------------------------------------------------------------------------------


@Statement
def lock_run() -> Executable:
    """Token and session of a run whose row is locked until the transaction ends."""
    return _claim_of(given("id")).with_for_update()


def _claim_of(run: ColumnElement[Any]) -> Select[Any, Any]:
    return select(runs.c.token, runs.c.session).where(runs.c.id == run)


@Statement
def lock_run_of_wait() -> Executable:
    """The same for the run that a wait belongs to."""
    return _claim_of(select(waits.c.run).where(waits.c.id == given("id")).scalar_subquery()).with_for_update()


# --- effects -----------------------------------------------------------------------------------------------------


def _held() -> CTE:
    """The claim as it is by now: until the statement is over, nobody takes the run over. Others may hold it likewise."""
    return _claim_of(given("run")).where(runs.c.token == given("token")).with_for_update(read=True).cte("held")


@Statement
def begin_effect() -> Executable:
    """The intention of a claim that stands; no row if it does not, or if the key or business key was used before."""
    held = _held()
    values = {column.name: given_for(column) for column in ledger.EFFECT} | {"session": held.c.session}
    row = select(*values.values()).select_from(held)
    return insert(effects, unless_there=True).from_select(list(values), row).returning(*ledger.EFFECT)


@Statement
def settle_effect() -> Executable:
    """As on SQLite, behind the lock of the run's row: a claim that is just being taken over settles nothing."""
    return ledger.settled_effect(exists(ONE).select_from(_held()))
