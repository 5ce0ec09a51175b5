"""How commits are written to PostgreSQL: most are one statement, with those of an author or a group one transaction."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agentflow.store import postgres_statements as own
from agentflow.store import statements as sql
from agentflow.store.joining import StatementRefused
from agentflow.store.mapping import columns_of, commit_columns, history_columns, run_of
from agentflow.store.postgres_connection import Using, cause_of
from agentflow.store.postgres_errors import BUSY, GONE
from agentflow.store.postgres_groups import open_group, settle
from agentflow.store.rows import TERMINAL, Commit, CommitReply, Committed, HistoryRow, Joined, LateResult, Requested

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


async def write_commit(connection: Using, commit: Commit, stamp: int, now: int | None) -> CommitReply:
    """Write a commit, without the statements of its author. `stamp` is the time for people to read, `now` the injected
    clock by which things are due.
    """
    [moved] = await connection.rows(own.commit_run(_shape(commit)), _given(commit, stamp, now))
    if moved[0] != 1:
        return await _why_late(connection, commit)
    await open_group(connection, commit, stamp)
    await settle(connection, commit.settled, now)
    return Committed()


def is_one_statement(commit: Commit) -> bool:
    """Whether a commit needs no transaction of its own."""
    return commit.group is None and commit.settled is None


async def write_joined_commit(guest: "AsyncConnection", commit: Commit, stamp: int, now: int | None) -> CommitReply:
    """Write a commit and the statements of its author in one transaction. Raises `StatementRefused`.

    SQLAlchemy takes the transaction for its own: inside of ours, what it begins and ends is a savepoint.
    """
    raw: Any = (await guest.get_raw_connection()).driver_connection
    async with raw.transaction():
        reply = await write_commit(Using(raw), commit, stamp, now)
        if not isinstance(reply, Committed):
            return reply
        try:
            await _execute(guest, commit.joined)
            await guest.commit()
        except BaseException:
            with contextlib.suppress(SQLAlchemyError):  # of a connection that broke, nothing is left to be undone
                await guest.rollback()
            raise
    return reply


async def _execute(guest: "AsyncConnection", statements: Sequence[Joined]) -> None:
    number = 0
    try:
        for number, one in enumerate(statements):  # noqa: B007  the number at which it stopped
            await guest.execute(one.statement, one.parameters)
        await guest.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))  # now, where the author can still be told
    except SQLAlchemyError as error:
        cause = cause_of(error) if isinstance(error, DBAPIError) else error
        if isinstance(cause, (*GONE, *BUSY)):
            raise
        raise StatementRefused(number, str(cause)) from error


async def _why_late(connection: Using, commit: Commit) -> LateResult | Requested:
    """What came before a commit whose comparison found nothing."""
    row = await connection.row(sql.one_run, {"id": commit.run})
    if row is None:
        return LateResult()
    run = run_of(row)
    is_own = run.revision == commit.expected_revision and run.token == commit.token
    return Requested(run) if is_own else LateResult()


# --- values ------------------------------------------------------------------------------------------------------


def _shape(commit: Commit) -> own.Shape:
    return own.Shape(
        release=commit.release,
        history=commit.history is not None,
        attempts=bool(commit.attempts),
        opens=bool(commit.opens),
        closes=bool(commit.closes),
        settles=bool(commit.settles),
        values=bool(commit.values),
    )


def _given(commit: Commit, stamp: int, now: int | None) -> Mapping[str, Any]:
    given = commit_columns(commit, stamp, is_over=commit.standing.status in TERMINAL)
    given["now"] = now
    if commit.history is not None:
        given.update(history_given(commit.run, commit.history))
    if commit.attempts:
        given.update(_in_columns("attempt_", [columns_of(row, run=commit.run) for row in commit.attempts]))
    if commit.opens:
        given.update(_in_columns("wait_", [columns_of(row) for row in commit.opens]))
    given["closes"] = list(commit.closes)
    given["settles"] = list(commit.settles)
    given.update(values_given(commit.values))
    return given


def history_given(run: str, row: HistoryRow) -> dict[str, Any]:
    """A history row beside the columns of its run, whose names it shares."""
    return {f"history_{name}": value for name, value in history_columns(run, row).items()}


def values_given(values: Sequence[tuple[str, bytes]]) -> dict[str, list[Any]]:
    """Values in the order of their digests: of two that store the same, one waits for the other, not both."""
    in_order = sorted(values)
    return {"digests": [digest for digest, _ in in_order], "contents": [content for _, content in in_order]}


def _in_columns(prefix: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {f"{prefix}{name}": [row[name] for row in rows] for name in rows[0]}
