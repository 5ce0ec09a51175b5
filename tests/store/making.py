"""Runs, commits and claims to try a store with."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from agentflow.store.protocol import Store
from agentflow.store.rows import (
    AttemptRow,
    CommandRow,
    Commit,
    Decision,
    EffectClaim,
    HistoryRow,
    NewRun,
    RunRow,
    Standing,
    WaitRow,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that is moved by hand."""

    instant: datetime = NOON

    def now(self) -> datetime:
        return self.instant

    def advance(self, **span: float) -> None:
        self.instant += timedelta(**span)


MakeStore = Callable[[], Store]


def history(revision: int, **changes: Any) -> HistoryRow:
    row = HistoryRow(
        revision=revision,
        at=NOON,
        event="start" if revision == 0 else "done",
        source=None if revision == 0 else "work",
        outcome=None,
        target="work",
        visit=1,
        attempt=1,
        duration_ms=1.5,
        difference=f'{{"set":{{"n":{revision}}}}}',
    )
    return replace(row, **changes)


def standing(status: Any = "running", **changes: Any) -> Standing:
    return replace(Standing(status=status, state="work", visit=1), **changes)


def new_run(run: str = "r", **changes: Any) -> NewRun:
    made = NewRun(
        id=run,
        workflow="flow",
        version=1,
        shape="s",
        fingerprint="f",
        standing=standing("queued", due_at=NOON),
        history=history(0),
    )
    return replace(made, **changes)


async def claimed(store: Store, run: str = "r", **changes: Any) -> tuple[str, RunRow]:
    """A session, and a run that it has claimed."""
    await store.create_run(new_run(run, **changes))
    session = await store.open_session("test")
    [row] = await store.claim_runs(session, limit=1, runs=[run])
    return session, row


def commit(row: RunRow, to: Standing | None = None, **changes: Any) -> Commit:
    """A commit of the claim that `row` shows."""
    made = Commit(
        run=row.id,
        expected_revision=row.revision,
        token=row.token or "",
        control_seq=row.control_seq,
        standing=to or standing(),
    )
    return replace(made, **changes)


def step(row: RunRow, to: Standing | None = None, **changes: Any) -> Commit:
    """A commit with a transition."""
    return commit(row, to, history=history(row.revision + 1), **changes)


def wait_row(run: str = "r", **changes: Any) -> WaitRow:
    made = WaitRow(
        id=f"{run}.work.1",
        run=run,
        workflow="flow",
        revision=0,
        state="work",
        visit=1,
        kind="human",
        question="fine?",
        shown='{"evidence":1}',
        outcomes=("YES", "NO"),
        roles=("boss",),
        opened_at=NOON,
    )
    return replace(made, **changes)


def decision(outcome: str = "YES", **changes: Any) -> Decision:
    made = Decision(wait="r.work.1", outcome=outcome, data='{"a":1}', actor='{"subject":"ada"}')
    return replace(made, **changes)


def command(name: str = "cancel", run: str = "r", **changes: Any) -> CommandRow:
    made = CommandRow(run=run, at=NOON, command=name, actor=None, reason="", request=None, status="applied", why="")
    return replace(made, **changes)


def effect(row: RunRow, key: str = "r:work:1:pay", **changes: Any) -> EffectClaim:
    made = EffectClaim(run=row.id, token=row.token or "", key=key, name="pay", state="work", visit=1, workflow="flow")
    return replace(made, **changes)


def attempt(number: int, **changes: Any) -> AttemptRow:
    made = AttemptRow(
        revision=0, state="work", visit=1, attempt=number, at=NOON, outcome="failed", failure='{"kind":"X"}'
    )
    return replace(made, **changes)
