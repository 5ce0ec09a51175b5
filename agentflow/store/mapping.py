"""Between rows of the tables and the plain data of `rows`: columns come in the order of the fields."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from agentflow.store.instants import from_number_or_none, to_number, to_number_or_none
from agentflow.store.rows import Commit, HistoryRow, NewRun, RunFilter, RunRow, SessionRow, Standing

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)
else:
    R = TypeVar("R")

STANDING_NAMES = tuple(item.name for item in fields(Standing))
RUN_NAMES = (*STANDING_NAMES, *(item.name for item in fields(RunRow) if item.name != "standing"))
AFTER_STANDING = len(STANDING_NAMES)
NOT_STORED: dict[type, frozenset[str]] = {SessionRow: frozenset({"runs"})}


@lru_cache
def names_of(kind: "type[DataclassInstance]") -> tuple[str, ...]:
    """The columns of a kind of row."""
    left_out = NOT_STORED.get(kind, frozenset())
    return tuple(item.name for item in fields(kind) if item.name not in left_out)


# --- into the database -------------------------------------------------------------------------------------------


def columns_of(row: "DataclassInstance", **more: Any) -> dict[str, Any]:
    """The columns of a row and some more. Raises `InvalidInput` for a naive instant."""
    found: dict[str, Any] = {}
    for item in fields(row):
        value = getattr(row, item.name)
        convert = INTO.get(item.name)
        found[item.name] = value if convert is None or value is None else convert(value)
    found.update(more)
    return found


def history_columns(run: str, row: HistoryRow) -> dict[str, Any]:
    """As `columns_of`, spelt out: each transition comes through here."""
    return {
        "run": run,
        "revision": row.revision,
        "at": to_number(row.at),
        "event": row.event,
        "source": row.source,
        "outcome": row.outcome,
        "target": row.target,
        "visit": row.visit,
        "attempt": row.attempt,
        "duration_ms": row.duration_ms,
        "difference": row.difference,
        "guards": row.guards,
        "answer": row.answer,
        "failure": row.failure,
        "actor": row.actor,
        "model": row.model,
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
        "cost": row.cost,
        "prompt": row.prompt,
        "code": row.code,
    }


def commit_columns(commit: Commit, now: int, *, is_over: bool) -> dict[str, Any]:
    """What a commit writes into the row of its run, and what it compares."""
    columns = standing_columns(commit.standing)
    columns["id"] = commit.run
    columns["expected_revision"] = commit.expected_revision
    columns["revision"] = commit.revision
    columns["token"] = commit.token
    columns["control_seq"] = commit.control_seq
    columns["clear_request"] = 1 if commit.clear_request else 0
    columns["now"] = now
    columns["ended_at"] = now if is_over else None
    return columns


def standing_columns(standing: Standing) -> dict[str, Any]:
    """The columns of a standing."""
    return {
        "status": standing.status,
        "state": standing.state,
        "visit": standing.visit,
        "attempt": standing.attempt,
        "end": standing.end,
        "blocked": standing.blocked,
        "failure": standing.failure,
        "memory": standing.memory,
        "due_at": to_number_or_none(standing.due_at),
    }


def new_run_columns(new: NewRun, now: int, *, is_over: bool) -> dict[str, Any]:
    """The columns of a run that is created."""
    return {
        **standing_columns(new.standing),
        "id": new.id,
        "workflow": new.workflow,
        "version": new.version,
        "shape": new.shape,
        "revision": new.history.revision,
        "paused": 0,
        "session": None,
        "token": None,
        "claims_without_progress": 0,
        "control_seq": 0,
        "request": None,
        "fingerprint": new.fingerprint,
        "batch": new.batch,
        "parent": new.parent,
        "root": new.root,
        "origin": new.origin,
        "origin_revision": new.origin_revision,
        "holds_effects": int(new.holds_effects),
        "group_state": new.group_state,
        "group_visit": new.group_visit,
        "position": new.position,
        "awaits": new.awaits,
        "created_at": now,
        "updated_at": now,
        "ended_at": now if is_over else None,
    }


def filters_of(wanted: RunFilter) -> tuple[dict[str, Any], frozenset[str]]:
    """What is asked of runs, by name, and the names alone."""
    named = {
        "workflow": wanted.workflow,
        "status": wanted.status,
        "batch": wanted.batch,
        "after": wanted.after,
        "parent": wanted.parent,
    }
    values = {name: value for name, value in named.items() if value is not None}
    return values, frozenset(values)


# --- out of it ---------------------------------------------------------------------------------------------------


def run_of(row: Sequence[Any]) -> RunRow:
    """A run from the columns `RUN_NAMES`; more columns may follow."""
    return RunRow(standing=row_of(Standing, row), **_values(RUN_NAMES[AFTER_STANDING:], row[AFTER_STANDING:]))


def row_of(kind: type[R], row: Sequence[Any]) -> R:
    """A row of that kind from its columns; more columns may follow."""
    return kind(**_values(names_of(kind), row))


def _values(names: tuple[str, ...], row: Sequence[Any]) -> dict[str, Any]:
    found = dict(zip(names, row, strict=False))
    for name, convert in _conversions(names):
        found[name] = convert(found[name])
    return found


@lru_cache
def _conversions(names: tuple[str, ...]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((name, OUT_OF[name]) for name in names if name in OUT_OF)


def _list_of(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


INSTANTS = frozenset(
    {
        "at", "claimed_at", "closed_at", "created_at", "due_at", "ended_at", "first_seen", "lease_until", "opened_at",
        "retry_at", "settled_at", "started_at", "stopped_at", "updated_at",
    }
)  # fmt: skip
LISTS = frozenset({"outcomes", "roles"})
TRUTHS = frozenset({"paused", "holds_effects", "decided", "stopping", "expired"})

INTO: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(INSTANTS, to_number),
    **dict.fromkeys(LISTS, json.dumps),
    **dict.fromkeys(TRUTHS, int),
}
OUT_OF: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(INSTANTS, from_number_or_none),
    **dict.fromkeys(LISTS, _list_of),
    **dict.fromkeys(TRUTHS, bool),
}
