"""All tables, in their final layout. Columns are Number, Text, Float or LargeBinary and nothing else.

Statements run as compiled text on the driver, past all type processing of SQLAlchemy: so an instant is an integer
(microseconds since 1970, UTC), JSON is text, and truth is 0 or 1. Tables keep their hidden row number, so that bodies
are appended in commit order; the business key is a unique index beside it.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    and_,
    literal_column,
)

SCHEMA = 3  # raised with each migration; a database of a higher one is refused

Number = BigInteger().with_variant(Integer(), "sqlite")  # 64 bits; SQLite's row number must be called INTEGER

metadata = MetaData()


def _partial(name: str, *columns: Column[Any], where: ColumnElement[bool], unique: bool = False) -> None:
    """An index of some rows alone; a statement that shows the same condition may use it."""
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("started_at", Number, nullable=False),
    Column("lease_until", Number, nullable=False),
    Column("stopped_at", Number),
)
Index("sessions_id", sessions.c.id, unique=True)
_partial("sessions_live", sessions.c.lease_until, where=sessions.c.stopped_at.is_(None))

runs = Table(
    "runs",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("id", Text, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("version", Number, nullable=False),
    Column("shape", Text, nullable=False),
    Column("revision", Number, nullable=False),
    # where it stands
    Column("status", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("visit", Number, nullable=False),
    Column("attempt", Number, nullable=False),
    Column("end", Text),
    Column("blocked", Text),
    Column("failure", Text),
    Column("memory", Text, nullable=False),
    Column("due_at", Number),
    # who drives it
    Column("paused", Number, nullable=False),
    Column("session", Text),
    Column("token", Text),
    Column("claims_without_progress", Number, nullable=False),
    Column("control_seq", Number, nullable=False),
    Column("request", Text),
    # what it belongs to
    Column("fingerprint", Text, nullable=False),
    Column("batch", Text),
    Column("parent", Text),
    Column("root", Text),
    Column("origin", Text),
    Column("origin_revision", Number),
    Column("holds_effects", Number, nullable=False),
    Column("group_state", Text),
    Column("group_visit", Number),
    Column("position", Number),
    Column("awaits", Number, nullable=False),
    Column("tenant", Text),
    Column("queue", Text),
    Column("priority", Number, nullable=False),  # higher goes first
    Column("deadline_at", Number),
    Column("created_at", Number, nullable=False),
    Column("updated_at", Number, nullable=False),
    Column("ended_at", Number),
    postgresql_with={"fillfactor": 70},  # room for the next version of a row beside it, so that no index is touched
)
Index("runs_id", runs.c.id, unique=True)
_partial("runs_due", runs.c.due_at, where=and_(runs.c.session.is_(None), runs.c.due_at.is_not(None)))
_partial("runs_session", runs.c.session, where=runs.c.session.is_not(None))
Index("runs_workflow_status", runs.c.workflow, runs.c.status)
Index("runs_status", runs.c.status)
_partial("runs_batch", runs.c.batch, where=runs.c.batch.is_not(None))
_partial(
    "runs_branches",
    runs.c.parent,
    runs.c.group_state,
    runs.c.group_visit,
    runs.c.position,
    where=runs.c.parent.is_not(None),
)

history = Table(
    "history",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("run", Text, nullable=False),
    Column("revision", Number, nullable=False),
    Column("at", Number, nullable=False),
    Column("event", Text, nullable=False),
    Column("source", Text),
    Column("outcome", Text),
    Column("target", Text, nullable=False),
    Column("visit", Number, nullable=False),
    Column("attempt", Number, nullable=False),
    Column("duration_ms", Float),
    Column("difference", Text, nullable=False),
    Column("guards", Text),
    Column("answer", Text),
    Column("failure", Text),
    Column("actor", Text),
    Column("model", Text),
    Column("tokens_in", Number),
    Column("tokens_out", Number),
    Column("cost", Text),
    Column("prompt", Text),
    Column("code", Text),
)
Index("history_run_revision", history.c.run, history.c.revision, unique=True)

definitions = Table(
    "definitions",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("workflow", Text, nullable=False),
    Column("version", Number, nullable=False),
    Column("shape", Text, nullable=False),
    Column("outline", Text, nullable=False),  # JSON: what the workflow was, for people and for later versions
    Column("first_seen", Number, nullable=False),
)
Index("definitions_shape", definitions.c.workflow, definitions.c.version, definitions.c.shape, unique=True)

segments = Table(
    "segments",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("run", Text, nullable=False),
    Column("number", Number, nullable=False),  # it folds the revisions from 256 * number on
    Column("difference", Text, nullable=False),
)
Index("segments_run_number", segments.c.run, segments.c.number, unique=True)

groups = Table(
    "groups",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("run", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("visit", Number, nullable=False),
    Column("total", Number, nullable=False),
    Column("needed", Number, nullable=False),
    Column("fails", Number, nullable=False),
    Column("done", Number, nullable=False),
    Column("failed", Number, nullable=False),
    Column("stopped", Number, nullable=False),
    Column("decided", Number, nullable=False),
    Column("stopping", Number, nullable=False),
    Column("expired", Number, nullable=False),
    Column("generation", Number, nullable=False),
    Column("opened_at", Number, nullable=False),
)
Index("groups_run_state_visit", groups.c.run, groups.c.state, groups.c.visit, unique=True)

attempts = Table(
    "attempts",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("run", Text, nullable=False),
    Column("revision", Number, nullable=False),
    Column("state", Text, nullable=False),
    Column("visit", Number, nullable=False),
    Column("attempt", Number, nullable=False),
    Column("at", Number, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("failure", Text),
    Column("duration_ms", Float),
    Column("retry_at", Number),
)
Index("attempts_run", attempts.c.run)

waits = Table(
    "waits",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("id", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("revision", Number, nullable=False),
    Column("state", Text, nullable=False),
    Column("visit", Number, nullable=False),
    Column("kind", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("shown", Text, nullable=False),
    Column("outcomes", Text, nullable=False),  # JSON list
    Column("roles", Text, nullable=False),  # JSON list
    Column("due_at", Number),
    Column("opened_at", Number, nullable=False),
    Column("status", Text, nullable=False),
    Column("closed_at", Number),
    Column("outcome", Text),
    Column("data", Text),
    Column("actor", Text),
    Column("comment", Text, nullable=False),
    Column("request", Text),
)
Index("waits_id", waits.c.id, unique=True)
Index("waits_status_due", waits.c.status, waits.c.due_at)
Index("waits_run", waits.c.run)

effects = Table(
    "effects",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("key", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("visit", Number, nullable=False),
    Column("item", Text),
    Column("generation", Number, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("once_per", Text),
    Column("status", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("session", Text),
    Column("result", Text),
    Column("error", Text),
    Column("claimed_at", Number, nullable=False),
    Column("settled_at", Number),
)
Index("effects_key", effects.c.key, unique=True)
Index("effects_run", effects.c.run)
_partial(
    "effects_open",
    effects.c.seq,
    where=effects.c.status.in_([literal_column("'claimed'"), literal_column("'unclear'")]),
)
_partial(
    "effects_once_per",
    effects.c.workflow,
    effects.c.name,
    effects.c.once_per,
    unique=True,
    where=and_(effects.c.once_per.is_not(None), effects.c.status != literal_column("'not_happened'")),
)

commands = Table(
    "commands",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("run", Text, nullable=False),
    Column("at", Number, nullable=False),
    Column("command", Text, nullable=False),
    Column("actor", Text),
    Column("reason", Text, nullable=False),
    Column("request", Text),
    Column("status", Text, nullable=False),
    Column("why", Text, nullable=False),
)
Index("commands_run", commands.c.run)
_partial(
    "commands_run_request",
    commands.c.run,
    commands.c.request,
    unique=True,
    where=commands.c.request.is_not(None),
)

kept_values = Table(
    "kept_values",
    metadata,
    Column("seq", Number, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
Index("kept_values_digest", kept_values.c.digest, unique=True)
