"""How commits are written to SQLite: one by one, or many in a few statements.

Each begins with its compare-and-set. A commit that only goes on (`Commit.goes_on`) writes no column that an index
covers, so it touches three pages: the run's row, its history row, and the entry of that in the index.

Many are written with one statement per kind, not per member: each step of a statement gives up the interpreter's lock,
and beside a busy thread the way back to it costs a whole switch interval.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from agentflow.store import ledger_statements as ledger
from agentflow.store import statements as sql
from agentflow.store.instants import to_number
from agentflow.store.joining import execute_on_sqlite
from agentflow.store.mapping import columns_of, commit_columns, history_columns, names_of, run_of
from agentflow.store.rows import TERMINAL, Commit, CommitReply, Committed, HistoryRow, LateResult, Requested
from agentflow.store.sqlite_connection import Writing
from agentflow.store.sqlite_groups import open_group, settle

CHUNKS = (128, 32, 8, 1)  # members of one statement: few sizes, so that each is parsed once

SET = ("revision", "state", "visit", "attempt", "memory", "updated_at")
OWN = ("id", "revision", "token", "control_seq")
GO_ON = " ".join(
    (
        "UPDATE runs SET claims_without_progress = 1,",
        ", ".join(f"{name} = ?" for name in SET),
        ", failure = NULL WHERE",
        " AND ".join(f"{name} = ?" for name in OWN),
    )
)

# Most transitions leave these empty, and to bind an empty value costs the driver more than to bind a number.
SELDOM = ("guards", "answer", "failure", "actor", "model", "tokens_in", "tokens_out", "cost", "prompt")
WHOLE = names_of(HistoryRow)
BARE = tuple(name for name in WHOLE if name not in SELDOM)
OF_HISTORY = {columns: attrgetter(*columns) for columns in (WHOLE, BARE)}
AT = WHOLE.index("at")
_seldom = attrgetter(*SELDOM)
_EMPTY = (None,) * len(SELDOM)


def write_commit(writing: Writing, commit: Commit, now: int) -> CommitReply:
    """Write one commit in the transaction that is open. Raises `StatementRefused`, and what the driver raises."""
    if is_plain(commit):
        if writing.raw.execute(GO_ON, going_on(commit, now)).rowcount == 0:
            return why_late(writing, commit)
        used = columns_in_use(commit)
        writing.raw.execute(_add_history(used, 1), history_of(commit, used))
        return Committed()
    advance = sql.advance_and_release_run if commit.release else sql.advance_run
    columns = commit_columns(commit, now, is_over=commit.standing.status in TERMINAL)
    if writing.change(advance, columns) == 0:
        return why_late(writing, commit)
    _add_rows(writing, commit, now)
    return Committed()


def is_plain(commit: Commit) -> bool:
    """Whether it is a transition of a run that goes on, not by a failure, and nothing else."""
    return (
        commit.goes_on
        and commit.history is not None
        and commit.standing.failure is None
        and not (commit.release or commit.clear_request or commit.attempts or commit.opens or commit.closes)
        and not (commit.settles or commit.joined or commit.values or commit.settled)
    )


def write_plain_commits(writing: Writing, commits: Sequence[Commit], now: int) -> bool:
    """Write many plain commits of different runs; False if one of them lost its comparison: then roll back."""
    for chunk in _chunks(commits):
        values = tuple(chain.from_iterable(going_on(commit, now) for commit in chunk))
        if writing.raw.execute(_go_on_many(len(chunk)), values).rowcount != len(chunk):
            return False
    by_columns: dict[tuple[str, ...], list[Commit]] = {}
    for commit in commits:
        by_columns.setdefault(columns_in_use(commit), []).append(commit)
    for columns, alike in by_columns.items():
        for chunk in _chunks(alike):
            values = tuple(chain.from_iterable(history_of(commit, columns) for commit in chunk))
            writing.raw.execute(_add_history(columns, len(chunk)), values)
    return True


def _chunks(commits: Sequence[Commit]) -> list[Sequence[Commit]]:
    found: list[Sequence[Commit]] = []
    first = 0
    for size in CHUNKS:
        while len(commits) - first >= size:
            found.append(commits[first : first + size])
            first += size
    return found


@lru_cache
def _go_on_many(count: int) -> str:
    given = (*SET, "id", "expected", "token", "control_seq")
    rows = ", ".join([f"({', '.join('?' * len(given))})"] * count)
    listed = " ".join(("WITH given", f"({', '.join(given)})", "AS (VALUES", rows, ") SELECT * FROM given"))
    parts = (  # not as `WITH ... UPDATE`: the driver counts rows only where a statement begins with its verb
        "UPDATE runs SET claims_without_progress = 1,",
        ", ".join(f"{name} = given.{name}" for name in SET),
        ", failure = NULL",
        f"FROM ({listed}) AS given",
        "WHERE runs.id = given.id AND runs.revision = given.expected",
        "AND runs.token = given.token AND runs.control_seq = given.control_seq",
    )
    return " ".join(parts)


@lru_cache
def _add_history(columns: tuple[str, ...], count: int) -> str:
    names = ("run", *columns)
    rows = ", ".join([f"({', '.join('?' * len(names))})"] * count)
    return f"INSERT INTO history ({', '.join(names)}) VALUES {rows}"  # noqa: S608


def going_on(commit: Commit, now: int) -> tuple[Any, ...]:
    """The values of `GO_ON`."""
    standing = commit.standing
    return (
        commit.revision,
        standing.state,
        standing.visit,
        standing.attempt,
        standing.memory,
        now,
        commit.run,
        commit.expected_revision,
        commit.token,
        commit.control_seq,
    )


def columns_in_use(commit: Commit) -> tuple[str, ...]:
    """The columns that its history row fills."""
    return BARE if _seldom(commit.history) == _EMPTY else WHOLE


def history_of(commit: Commit, columns: tuple[str, ...]) -> tuple[Any, ...]:
    """The values of its history row, for these columns behind the run's id."""
    row = commit.history
    assert row is not None  # a plain commit has one
    values = OF_HISTORY[columns](row)
    return (commit.run, *values[:AT], to_number(row.at), *values[AT + 1 :])


def _add_rows(writing: Writing, commit: Commit, now: int) -> None:
    """All that a commit writes beside the row of its run."""
    if commit.history is not None:
        writing.change(sql.add_history, history_columns(commit.run, commit.history))
    for attempt in commit.attempts:
        writing.change(sql.add_attempt, columns_of(attempt, run=commit.run))
    for closed in commit.closes:
        writing.change(sql.close_wait, {"id": closed, "run": commit.run, "now": now})
    for opened in commit.opens:
        writing.change(sql.open_wait, columns_of(opened))
    for key in commit.settles:
        writing.change(ledger.settle_effect_by_commit, {"key": key, "token": commit.token, "now": now})
    keep_values(writing, commit.values)
    open_group(writing, commit, now)
    settle(writing, commit.settled, now)
    if commit.joined:
        execute_on_sqlite(writing.raw, commit.joined)


def keep_values(writing: Writing, values: Sequence[tuple[str, bytes]]) -> None:
    """Store bytes under their digests, unless they are there."""
    for digest, content in values:
        writing.change(ledger.keep_value, {"digest": digest, "content": content})


def why_late(writing: Writing, commit: Commit) -> LateResult | Requested:
    """What came before a commit whose comparison found nothing."""
    row = writing.row(sql.one_run, {"id": commit.run})
    if row is None:
        return LateResult()
    run = run_of(row)
    is_own = run.revision == commit.expected_revision and run.token == commit.token
    return Requested(run) if is_own else LateResult()
