"""How commits are written to PostgreSQL, other than those that are one statement."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.store import ledger_statements as ledger
from agentflow.store import postgres_statements as own
from agentflow.store import statements as sql
from agentflow.store.joining import execute_on_postgres
from agentflow.store.mapping import columns_of, history_columns, run_of
from agentflow.store.postgres_connection import Using
from agentflow.store.rows import Commit, CommitReply, Committed, LateResult, Requested


def is_plain(commit: Commit) -> bool:
    """Whether it is a transition of a run that keeps its claim, and nothing else."""
    more = (commit.attempts, commit.opens, commit.closes, commit.settles, commit.joined, commit.values)
    return commit.history is not None and not commit.release and not any(more)


async def write_commit(connection: Using, commit: Commit, columns: Mapping[str, Any]) -> CommitReply:
    """Write a commit in the transaction that is open."""
    if commit.release:  # a wait may be settled at this moment: look at it behind the lock that its decider takes too
        await connection.row(own.lock_run, columns)
    advance = sql.advance_and_release_run if commit.release else sql.advance_run
    if await connection.change(advance, columns) == 0:
        return await why_late(connection, commit)
    if commit.history is not None:
        await connection.change(sql.add_history, history_columns(commit.run, commit.history))
    for attempt in commit.attempts:
        await connection.change(sql.add_attempt, columns_of(attempt, run=commit.run))
    for closed in commit.closes:
        await connection.change(sql.close_wait, {"id": closed, "run": commit.run, "now": columns["now"]})
    for opened in commit.opens:
        await connection.change(sql.open_wait, columns_of(opened))
    for key in commit.settles:
        values = {"key": key, "token": commit.token, "now": columns["now"]}
        await connection.change(ledger.settle_effect_by_commit, values)
    await keep_values(connection, commit.values)
    if commit.joined:
        await execute_on_postgres(connection.raw, commit.joined)
    return Committed()


async def why_late(connection: Using, commit: Commit) -> LateResult | Requested:
    """What came before a commit whose comparison found nothing."""
    row = await connection.row(sql.one_run, {"id": commit.run})
    if row is None:
        return LateResult()
    run = run_of(row)
    is_own = run.revision == commit.expected_revision and run.token == commit.token
    return Requested(run) if is_own else LateResult()


async def keep_values(connection: Using, values: Sequence[tuple[str, bytes]]) -> None:
    """Store bytes under their digests, unless they are there."""
    for digest, content in values:
        await connection.change(ledger.keep_value, {"digest": digest, "content": content})
