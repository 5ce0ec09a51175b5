"""Small deliberate faults of the product, to see whether the simulation notices them.

Each is a context manager that replaces a few lines of the store, the ledger or the runner while it is open. They were
written after the simulation and its checker, which know nothing of them.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias
from unittest.mock import patch

import pydantic_core

from agentflow.engine.head import Head
from agentflow.model.context import Kept
from agentflow.runners.drive import Drive
from agentflow.runners.ledger import RunLedger, claim_of, record
from agentflow.store.memory import MemoryStore
from agentflow.store.rows import Commit, RunRow

Mutant: TypeAlias = Callable[[], AbstractContextManager[None]]


@contextmanager
def no_token_check() -> Iterator[None]:
    """A commit is compared by revision alone: a worker that lost the run can still write."""
    commit_as_it_is = MemoryStore.commit

    async def commit(self: MemoryStore, commit: Commit) -> Any:
        row = await self.run(commit.run)
        return await commit_as_it_is(self, commit if row is None else replace(commit, token=row.token or ""))

    with patch.object(MemoryStore, "commit", commit):
        yield


@contextmanager
def ledger_after_the_call() -> Iterator[None]:
    """An effect is written down when its call has come back, not before it."""

    async def effect(self: RunLedger, name: str, call: Any, *, item: Any, once_per: Any, **_: Any) -> Any:
        claim = claim_of(self.work, name, item=item, once_per=once_per)
        row = await self.work.store.effect(claim.key)
        if row is not None and row.status == "done":
            return pydantic_core.from_json(row.result or "null")
        value = await call(claim.key)
        await self.work.store.begin_effect(claim)
        await record(self.work, claim.key, "done", result=pydantic_core.to_json(value).decode())
        return value

    with patch.object(RunLedger, "effect", effect):
        yield


@contextmanager
def result_after_the_transition() -> Iterator[None]:
    """The result of an effect is written down when the transition of its body has been committed."""
    move_as_it_is, value_as_it_is = Drive._move, RunLedger._record_value
    pending: dict[int, list[tuple[RunLedger, Any, str, Any]]] = {}

    async def record_value(self: RunLedger, spec: Any, key: str, value: Any) -> Any:
        pending.setdefault(id(self.work), []).append((self, spec, key, value))
        return value

    async def move(self: Drive, step: Any, attempts: Any, answered: Any) -> Any:
        reply = await move_as_it_is(self, step, attempts, answered)
        for ledger, spec, key, value in pending.pop(id(answered), []):
            await value_as_it_is(ledger, spec, key, value)
        return reply

    with patch.object(RunLedger, "_record_value", record_value), patch.object(Drive, "_move", move):
        yield


@contextmanager
def lost_timer() -> Iterator[None]:
    """A run that is given back to be tried a third time keeps no instant at which it is due."""
    commit_as_it_is = MemoryStore.commit

    async def commit(self: MemoryStore, commit: Commit) -> Any:
        standing = commit.standing
        if commit.release and standing.status == "queued" and standing.attempt == 2:
            commit = replace(commit, standing=replace(standing, due_at=None))
        return await commit_as_it_is(self, commit)

    with patch.object(MemoryStore, "commit", commit):
        yield


@contextmanager
def wake_before_commit() -> Iterator[None]:
    """A decision that comes while a worker holds the run wakes nobody, and the commit that parks it does not look."""
    with patch.object(MemoryStore, "_is_answered", lambda *_: False):
        yield


@contextmanager
def doubled_claim() -> Iterator[None]:
    """Now and then a claim that finds nothing due takes a run out of another worker's hands."""
    claim_as_it_is, idle = MemoryStore.claim_runs, 0

    async def claim_runs(self: MemoryStore, session: str, **options: Any) -> Any:
        nonlocal idle
        rows = await claim_as_it_is(self, session, **options)
        idle += not rows
        held = [kept.row for kept in self._runs.values() if kept.row.session not in {None, session}]
        if rows or not held or idle % 10:
            return rows
        taken: RunRow = self._claim(held[0], session, self.now())
        return [taken]

    with patch.object(MemoryStore, "claim_runs", claim_runs):
        yield


@contextmanager
def stale_head() -> Iterator[None]:
    """A worker that gets a run again goes on from the context that it had when it last wrote to it."""
    load_as_it_is = Drive._load
    known: dict[tuple[int, str], Kept] = {}

    async def load(self: Drive) -> Head:
        key, on_commit = (id(self.resources), self.row.id), self.on_commit

        def committed(head: Head) -> None:
            known[key] = head.kept
            on_commit(head)

        self.on_commit = committed
        head = await load_as_it_is(self)
        return replace(head, kept=known.get(key, head.kept))

    with patch.object(Drive, "_load", load):
        yield


MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        no_token_check,
        ledger_after_the_call,
        result_after_the_transition,
        lost_timer,
        wake_before_commit,
        doubled_claim,
        stale_head,
    )
}
