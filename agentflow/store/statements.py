"""One statement for each thing that the store wants of a database, named for that; nothing here is executed.

Words are written into the text, not passed as parameters: only so may the database use a partial index.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    Table,
    Update,
    and_,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy import tuple_ as pair
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.dml import ReturningInsert

from agentflow.store.group_conditions import is_group_of_run, is_of_group_standing, is_over_group, must_be_looked_at
from agentflow.store.mapping import RUN_NAMES, STANDING_NAMES, names_of
from agentflow.store.prepared import NOW, Statement, given, given_for, insert
from agentflow.store.rows import TERMINAL, AttemptRow, CommandRow, HistoryRow, SessionRow, WaitRow
from agentflow.store.tables import (
    Number,
    attempts,
    commands,
    groups,
    history,
    meta,
    runs,
    segments,
    sessions,
    waits,
)

NULL: ColumnElement[None] = literal_column("NULL")
ONE: ColumnElement[int] = literal_column("1")
ZERO: ColumnElement[int] = literal_column("0")


def word(text: str) -> ColumnElement[str]:
    """A constant word in the text of a statement."""
    return literal_column(f"'{text}'")


is_terminal = runs.c.status.in_([word(status) for status in sorted(TERMINAL)])
is_unclaimed = runs.c.session.is_(None)
SETTLED = [word("decided"), word("expired")]
is_settled = waits.c.status.in_(SETTLED)
is_running = sessions.c.stopped_at.is_(None)
is_live = and_(is_running, sessions.c.lease_until > NOW)

RUN = [runs.c[name] for name in RUN_NAMES]
HISTORY = [history.c[name] for name in names_of(HistoryRow)]
ATTEMPT = [attempts.c[name] for name in names_of(AttemptRow)]
WAIT = [waits.c[name] for name in names_of(WaitRow)]
COMMAND = [commands.c[name] for name in names_of(CommandRow)]
SESSION = [sessions.c[name] for name in names_of(SessionRow)]
PLACE = (runs.c.workflow, runs.c.version, runs.c.shape, runs.c.state)


def row_for(table: Table) -> Executable:
    """A row of a table, each column given."""
    return insert(table).values({column.name: given_for(column) for column in columns_to_fill(table)})


def columns_to_fill(table: Table) -> Sequence[Column[Any]]:
    """All but the row number, which the database gives."""
    return [column for column in table.c if column.name != "seq"]


# --- meta --------------------------------------------------------------------------------------------------------


@Statement
def record_schema() -> Executable:
    return insert(meta).values(name=given("name"), value=given("value"))


# --- sessions ----------------------------------------------------------------------------------------------------


@Statement
def begin_session() -> Executable:
    return row_for(sessions)


@Statement
def renew_lease() -> Executable:
    """Only a lease that still runs is renewed: a lost one is lost for good."""
    return update(sessions).where(sessions.c.id == given("id"), is_live).values(lease_until=given("lease_until"))


@Statement
def stop_session() -> Executable:
    return update(sessions).where(sessions.c.id == given("id"), sessions.c.stopped_at.is_(None)).values(stopped_at=NOW)


@lru_cache
def free_runs_of_session(*, is_dead: bool) -> Statement:
    """Its runs are unclaimed and due; a claim that was given up in an orderly way does not count as one."""
    given_back = {} if is_dead else {"claims_without_progress": _one_claim_less()}
    return Statement(
        lambda: update(runs).where(runs.c.session == given("session")).values(_unclaimed_and_due() | given_back)
    )


@Statement
def live_session() -> Executable:
    """A session that has not stopped and whose lease runs."""
    return select(ONE).where(sessions.c.id == given("id"), is_live)


@Statement
def other_holders() -> Executable:
    """Sessions of others that hold runs, and how long their leases run."""
    holds = exists(ONE).where(runs.c.session == sessions.c.id)
    return select(sessions.c.id, sessions.c.lease_until).where(
        sessions.c.stopped_at.is_(None), sessions.c.id != given("id"), holds
    )


@Statement
def sessions_with_runs() -> Executable:
    """A row for each session and run; a session without runs has one row without."""
    return (
        select(*SESSION, runs.c.id)
        .select_from(sessions.outerjoin(runs, runs.c.session == sessions.c.id))
        .where(sessions.c.stopped_at.is_(None))
        .order_by(sessions.c.seq, runs.c.seq)
    )


# --- runs --------------------------------------------------------------------------------------------------------


@Statement
def create_run() -> Executable:
    return run_to_create()


@Statement
def create_branch() -> Executable:
    """A branch's row; that there is none of that id yet is the claim of its parent."""
    values = {column: given_for(column) for column in RUN}
    return insert(runs).values(values | {"priority": ZERO})


def run_to_create() -> ReturningInsert[Any]:
    """A new run's row, if there is none of that id."""
    values = {column.name: given_for(column) for column in RUN}
    return insert(runs, unless_there=True).values(values | {"priority": ZERO}).returning(*RUN)


@lru_cache
def claim_due(*, listed_only: bool, known_only: bool, refuses: bool = False) -> Statement:
    """Give due runs to a session, the most urgent first; nothing to one whose lease is over: others would take them."""

    def build() -> Executable:
        wanted = claimable()
        if listed_only:
            wanted = wanted.where(runs.c.id.in_(select(func.json_each(given("runs")).table_valued("value").c.value)))
        if known_only:
            wanted = wanted.where(_is_known())
        if refuses:
            wanted = wanted.where(or_(runs.c.blocked.is_(None), ~_is_refused()))
        return (
            update(runs)
            .where(runs.c.seq.in_(wanted), exists(ONE).where(sessions.c.id == given("session"), is_live))
            .values(taken() | {"token": given("token").concat(runs.c.seq)})
            .returning(*RUN, runs.c.priority, runs.c.seq)
        )

    return Statement(build)


def claimable() -> Select[Any]:
    """Rows that a worker may take now, the most urgent first."""
    return (
        select(runs.c.seq)
        .where(is_unclaimed, runs.c.due_at <= NOW, runs.c.paused == ZERO, ~is_terminal)
        .order_by(runs.c.priority.desc(), runs.c.due_at.asc(), runs.c.seq.asc())
        .limit(given("limit"))
    )


def taken() -> dict[str, ColumnElement[Any]]:
    """What a claim changes, beside the token: that is fresh for each claim, and another for each run."""
    is_at_rest = runs.c.status.in_([word("queued"), word("waiting")])
    return {
        "session": given_for(runs.c.session),
        "status": case((is_at_rest, word("running")), else_=runs.c.status),
        "claims_without_progress": runs.c.claims_without_progress + ONE,
        "control_seq": runs.c.control_seq + ONE,  # a command that was thought of before the claim thinks again
        "updated_at": NOW,
    }


def _is_known() -> ColumnElement[bool]:
    listed = func.json_each(given("workflows")).table_valued("value")
    name, newest = (func.json_extract(listed.c.value, word(path)) for path in ("$[0]", "$[1]"))
    return exists(ONE).select_from(listed).where(name == runs.c.workflow, newest >= runs.c.version)


def _is_refused() -> ColumnElement[bool]:
    listed = func.json_each(given("refused")).table_valued("value")
    parts = (func.json_extract(listed.c.value, word(f"$[{number}]")) for number in range(len(PLACE)))
    return pair(*PLACE).in_(select(*parts))


def _queued_again() -> ColumnElement[str]:
    return case((runs.c.status == word("running"), word("queued")), else_=runs.c.status)


def is_own() -> ColumnElement[bool]:
    """The comparison that a worker's commit must win."""
    return and_(
        runs.c.id == given("id"),
        runs.c.revision == given("expected_revision"),
        runs.c.token == given("token"),
        runs.c.control_seq == given("control_seq"),
    )


@Statement
def advance_run() -> Executable:
    """Compare and set: move a claimed run on, and keep it."""
    return update(runs).where(is_own()).values(moved_on())


def moved_on() -> Mapping[str, ColumnElement[Any]]:
    """What a commit changes that keeps its claim."""
    return _standing() | _after_commit() | {"claims_without_progress": ONE}


def _standing() -> dict[str, ColumnElement[Any]]:
    return {name: given_for(runs.c[name]) for name in STANDING_NAMES}


@Statement
def advance_and_release_run() -> Executable:
    """Compare and set: move a claimed run on and let go of it; due at once if a wait of it was settled meanwhile."""
    settled = or_(
        exists(ONE).where(is_of_standing(), is_settled),
        exists(ONE).where(is_of_group_standing(), must_be_looked_at(groups.c)),
    )
    return update(runs).where(is_own()).values(moved_on_and_freed(settled))


def is_of_standing() -> ColumnElement[bool]:
    """A wait of the standing that is being committed."""
    return and_(
        waits.c.run == given("id"),
        waits.c.state == given_for(runs.c.state),
        waits.c.visit == given_for(runs.c.visit),
    )


def moved_on_and_freed(settled: ColumnElement[bool]) -> Mapping[str, ColumnElement[Any]]:
    """What a commit changes that gives its claim back; `settled` says whether a wait of it was settled meanwhile."""
    is_at_rest = or_(given_for(runs.c.ended_at).is_not(None), given_for(runs.c.blocked).is_not(None))
    wakes = and_(~is_at_rest, settled)
    free: dict[str, ColumnElement[Any]] = {
        "session": NULL,
        "token": NULL,
        "claims_without_progress": ZERO,
        "due_at": case((wakes, NOW), else_=given_for(runs.c.due_at)),
    }
    return _standing() | _after_commit() | free


def _after_commit() -> dict[str, ColumnElement[Any]]:
    return {
        "revision": given_for(runs.c.revision),
        "request": case((given("clear_request", Number) == ONE, NULL), else_=runs.c.request),
        "paused": _paused(),
        "updated_at": NOW,
        "ended_at": given_for(runs.c.ended_at),
    }


def _paused() -> ColumnElement[object]:
    """A run that has ended is no longer paused."""
    return case((given_for(runs.c.ended_at).is_(None), runs.c.paused), else_=ZERO)


@Statement
def release_run() -> Executable:
    """Give a claim back, as if it had not been made."""
    return (
        update(runs)
        .where(runs.c.id == given("id"), runs.c.token == given("token"))
        .values(_unclaimed_and_due() | {"claims_without_progress": _one_claim_less()})
    )


def _unclaimed_and_due() -> dict[str, Any]:
    return {
        "session": NULL,
        "token": NULL,
        "status": _queued_again(),
        "due_at": case((is_terminal, runs.c.due_at), else_=NOW),
        "updated_at": NOW,
    }


def _one_claim_less() -> ColumnElement[int]:
    claims = runs.c.claims_without_progress
    return case((claims > ZERO, claims - ONE), else_=ZERO)


@Statement
def reopen_run() -> Executable:
    """Compare and set: change the standing of a run that nobody drives."""
    return (
        update(runs)
        .where(runs.c.id == given("id"), runs.c.control_seq == given("expected_control_seq"), is_unclaimed)
        .values(
            _standing()
            | {
                "control_seq": runs.c.control_seq + ONE,
                "claims_without_progress": ZERO,
                "paused": ZERO,
                "updated_at": NOW,
                "ended_at": given_for(runs.c.ended_at),
            }
        )
    )


@Statement
def pause_run() -> Executable:
    """Pause a run or lift its pause; a worker notices by `control_seq`."""
    return (
        update(runs)
        .where(
            runs.c.id == given("id"),
            runs.c.paused != given("paused", Number),
            runs.c.request.is_(None),
            ~is_terminal,
        )
        .values(paused=given("paused", Number), control_seq=runs.c.control_seq + ONE, updated_at=NOW)
    )


@Statement
def ask_of_run() -> Executable:
    """Put a request to a run; a worker notices by `control_seq`."""
    return (
        update(runs)
        .where(runs.c.id == given("id"))
        .values(request=given("word"), paused=ZERO, control_seq=runs.c.control_seq + ONE, updated_at=NOW)
    )


@Statement
def requests_of_session() -> Executable:
    """What is asked of the runs that a session holds."""
    return select(runs.c.id, runs.c.request).where(
        runs.c.session == given("session"), runs.c.session.is_not(None), runs.c.request.is_not(None)
    )


@Statement
def wake_run() -> Executable:
    """Make a run due now, unless somebody drives it, it has ended, or it is due anyway."""
    return (
        update(runs)
        .where(
            runs.c.id == given("id"),
            is_unclaimed,
            ~is_terminal,
            or_(runs.c.due_at.is_(None), runs.c.due_at > NOW),
        )
        .values(due_at=NOW, updated_at=NOW)
    )


@Statement
def one_run() -> Executable:
    return select(*RUN).where(runs.c.id == given("id"))


@Statement
def claim_of_run() -> Executable:
    """Token and session of the run's present claim."""
    return select(runs.c.token, runs.c.session).where(runs.c.id == given("id"))


@lru_cache
def list_runs(filters: frozenset[str]) -> Statement:
    """Rows of a page, newest first. Filters: workflow, status, batch, after."""
    newest_first = select(*RUN).order_by(runs.c.seq.desc()).limit(given("limit"))
    return Statement(lambda: _filtered(newest_first, filters))


@lru_cache
def count_runs(filters: frozenset[str]) -> Statement:
    """How many runs fit."""
    return Statement(lambda: _filtered(select(func.count()).select_from(runs), filters - {"after"}))


def _filtered(found: Select[Any], filters: frozenset[str]) -> Executable:
    older = select(runs.c.seq).where(runs.c.id == given("after")).scalar_subquery()
    conditions: dict[str, ColumnElement[bool]] = {
        "workflow": runs.c.workflow == given("workflow"),
        "status": runs.c.status == given("status"),
        "batch": runs.c.batch == given("batch"),
        "after": runs.c.seq < older,
        "parent": runs.c.parent == given("parent"),
    }
    branches = runs.c.group_state.is_not(None) if "parent" in filters else runs.c.group_state.is_(None)
    return found.where(branches, *(conditions[name] for name in sorted(filters)))


@Statement
def stranded_runs() -> Executable:
    """Nothing would ever wake these."""
    is_asleep = and_(
        is_unclaimed, runs.c.due_at.is_(None), runs.c.paused == ZERO, runs.c.blocked.is_(None), runs.c.awaits == ZERO
    )
    asks = exists(ONE).where(waits.c.run == runs.c.id, waits.c.status == word("open"))
    branches = exists(ONE).where(is_group_of_run, ~is_over_group)
    return select(runs.c.id).where(~is_terminal, is_asleep, ~asks, ~branches).order_by(runs.c.seq).limit(given("limit"))


@Statement
def next_due() -> Executable:
    """The first instant at which a run wants somebody."""
    is_wanted = and_(is_unclaimed, runs.c.due_at.is_not(None), runs.c.paused == ZERO, ~is_terminal)
    return select(runs.c.due_at).where(is_wanted).order_by(runs.c.due_at).limit(ONE)


# --- history -----------------------------------------------------------------------------------------------------


@Statement
def add_history() -> Executable:
    return row_for(history)


@Statement
def history_after() -> Executable:
    return (
        select(*HISTORY)
        .where(history.c.run == given("run"), history.c.revision > given("after"))
        .order_by(history.c.revision)
        .limit(given("limit"))
    )


@Statement
def differences_between() -> Executable:
    """Differences from one revision to another, both included."""
    return (
        select(history.c.difference)
        .where(
            history.c.run == given("run"),
            history.c.revision >= given("first"),
            history.c.revision <= given("last"),
        )
        .order_by(history.c.revision)
    )


@Statement
def segments_before() -> Executable:
    """The folded differences of the segments below a number."""
    return (
        select(segments.c.difference)
        .where(segments.c.run == given("run"), segments.c.number < given("number"))
        .order_by(segments.c.number)
    )


@Statement
def count_segments() -> Executable:
    return select(func.count()).select_from(segments).where(segments.c.run == given("run"))


@Statement
def add_segment() -> Executable:
    """Segments are written in order; whoever comes second writes nothing."""
    return insert(segments, unless_there=True).values(
        run=given("run"), number=given("number"), difference=given("difference")
    )


@Statement
def add_attempt() -> Executable:
    return row_for(attempts)


@Statement
def attempts_of_run() -> Executable:
    return select(*ATTEMPT).where(attempts.c.run == given("run")).order_by(attempts.c.seq)


# --- commands ----------------------------------------------------------------------------------------------------


@Statement
def record_command() -> Executable:
    """Nothing is written if the run knows a command of that request id."""
    return insert(commands, unless_there=True).values({column.name: given(column.name) for column in COMMAND})


@Statement
def command_of_request() -> Executable:
    return select(ONE).where(commands.c.run == given("run"), commands.c.request == given("request"))


@Statement
def commands_of_run() -> Executable:
    return select(*COMMAND).where(commands.c.run == given("run")).order_by(commands.c.seq)


# --- waits -------------------------------------------------------------------------------------------------------


@Statement
def open_wait() -> Executable:
    return row_for(waits)


@Statement
def close_wait() -> Executable:
    return closed_waits(waits.c.id == given("id"), waits.c.run == given("run"))


@Statement
def close_waits_of_run() -> Executable:
    return closed_waits(waits.c.run == given("run"))


def closed_waits(*which: ColumnElement[bool]) -> Update:
    """Those that were open until now."""
    return update(waits).where(*which, waits.c.status == word("open")).values(status=word("closed"), closed_at=NOW)


@Statement
def decide_wait() -> Executable:
    """The one statement that settles who answered: where it is open and not yet due."""
    in_time = or_(waits.c.due_at.is_(None), waits.c.due_at > NOW)
    answer = {name: given(name) for name in ("outcome", "data", "actor", "comment", "request")}
    return (
        update(waits)
        .where(waits.c.id == given("id"), waits.c.status == word("open"), in_time)
        .values(status=word("decided"), closed_at=NOW, **answer)
        .returning(*WAIT)
    )


@Statement
def expire_wait() -> Executable:
    """Where it is open and due."""
    return (
        update(waits)
        .where(waits.c.id == given("id"), waits.c.status == word("open"), waits.c.due_at <= NOW)
        .values(status=word("expired"), closed_at=NOW)
        .returning(*WAIT)
    )


@Statement
def one_wait() -> Executable:
    return select(*WAIT).where(waits.c.id == given("id"))


@lru_cache
def list_waits(filters: frozenset[str]) -> Statement:
    """Waits, oldest first. Filters: run, status."""
    conditions = {"run": waits.c.run == given("run"), "status": waits.c.status == given("status")}
    found = select(*WAIT).order_by(waits.c.opened_at, waits.c.seq).limit(given("limit"))
    return Statement(lambda: found.where(*(conditions[name] for name in sorted(filters))))
