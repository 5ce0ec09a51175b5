"""Pause and resume: a run stands still, and goes on, with raised limits if it met one."""

from dataclasses import replace
from datetime import datetime

from agentflow.app.commands import By, again, command_row, refuse, reopen, repeated
from agentflow.engine.head import Head
from agentflow.errors import InvalidInput
from agentflow.model.check import limit_problems
from agentflow.model.definition import Definition
from agentflow.model.values import Limits
from agentflow.model.views import Reply
from agentflow.runners.records import head_of, object_of, standing_of
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, RunRow


async def pause_run(store: Store, row: RunRow, by: By) -> Reply:
    """Let a run stand still: at once where it rests, else as soon as the body at work is done."""
    if (before := await repeated(store, row.id, by)) is not None:
        return before
    while True:
        if row.paused:
            return Reply("already", f"run {row.id!r} is paused")
        if (why := _why_not(row)) is not None:
            return await refuse(store, row, "pause", by, f"{why}; it cannot be paused")
        if await store.pause(command_row(store, row.id, "pause", by, "applied", ""), paused=True):
            at_work = row.session is not None
            told = "stands still once the body at work is done" if at_work else f"stands still in {row.standing.state}"
            return Reply("applied", f"run {row.id!r} {told}")
        if (before := await repeated(store, row.id, by)) is not None:
            return before
        row = await again(store, row)


def _why_not(row: RunRow) -> str | None:
    """Why a run takes neither a pause nor a resumption."""
    if row.standing.status in TERMINAL:
        return f"run {row.id!r} is {row.standing.status}"
    if row.standing.status == "cancelling" or "cancel" in object_of(row.request):
        return f"run {row.id!r} is being cancelled"
    return None


async def resume_run(store: Store, definition: Definition, row: RunRow, limits: Limits | None, by: By) -> Reply:
    """Lift a pause or a block, and raise limits for this run if some are given. Raises `InvalidInput` for bad ones."""
    if limits is not None and (problems := limit_problems(limits)):
        raise InvalidInput("; ".join(problems))
    if (before := await repeated(store, row.id, by)) is not None:
        return before
    while True:
        if (why := _why_not(row)) is not None:
            return await refuse(store, row, "resume", by, f"{why}; there is nothing to resume")
        reply = await _resumed(store, definition, row, limits, by)
        if reply is not None:
            return reply
        if (before := await repeated(store, row.id, by)) is not None:
            return before
        row = await again(store, row)


async def _resumed(store: Store, definition: Definition, row: RunRow, limits: Limits | None, by: By) -> Reply | None:
    """The reply; None if the run has changed meanwhile."""
    blocked = row.standing.blocked
    if limits is None and blocked is None:
        if not row.paused:
            return Reply("already", f"run {row.id!r} is neither paused nor blocked")
        lifted = await store.pause(command_row(store, row.id, "resume", by, "applied", ""), paused=False)
        return Reply("applied", f"run {row.id!r} goes on in {row.standing.state}") if lifted else None
    if row.session is not None:
        why = f"a worker is at work on run {row.id!r}; pause it, then resume it with the limits"
        return await refuse(store, row, "resume", by, why)
    head = head_of(row, definition.context.empty)
    if limits is not None:
        head = replace(head, limits=limits if head.limits is None else head.limits.raised(limits))
        if (used := _used_up(head, limits, store.now())) is not None:
            return await refuse(store, row, "resume", by, f"run {row.id!r} {used}; raise it further")
    on = replace(head, blocked=None, failure=None)
    return await reopen(store, row, "resume", by, standing_of(on, store.now()), why=_told(limits))


def _told(limits: Limits | None) -> str:
    """The raised limits, as the audit keeps them."""
    raised = {} if limits is None else {name: value for name, value in vars(limits).items() if value is not None}
    return ", ".join(f"{name}={value}" for name, value in raised.items())


def _used_up(head: Head, raised: Limits, now: datetime) -> str | None:
    """A limit that was raised, and that the run would meet all the same; None if there is none."""
    used = {
        "transitions": head.revision,
        "llm_calls": head.usage.llm_calls,
        "tokens": head.usage.tokens,
        "cost": head.usage.cost,
        "wall_time": now - head.started_at,
    }
    for name, so_far in used.items():
        most = getattr(raised, name)
        if most is not None and so_far >= most:
            return f"has used {so_far} of {name} by now, {most} would stop it again"
    if raised.visits is not None and head.visit > raised.visits:
        return f"is in visit {head.visit} of {head.state!r}, visits={raised.visits} would stop it again"
    return None
