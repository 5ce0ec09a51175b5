"""Commands from outside: each is applied once, answered *applied*, *already* or *refused*, and kept for the audit."""

import contextlib
from dataclasses import replace
from enum import Enum
from typing import Any, TypedDict

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from agentflow.engine.head import failure_from_json
from agentflow.engine.lifecycle import is_legal, next_status
from agentflow.errors import InvalidContext, InvalidInput, NotAllowed
from agentflow.model.check import nearest
from agentflow.model.definition import Definition, context_limit
from agentflow.model.notation import notation_of
from agentflow.model.values import Actor
from agentflow.model.views import Reply
from agentflow.runners.groups import settled_by
from agentflow.runners.records import actor_to_json, head_of, object_of, standing_of, to_json
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, CommandRow, Decision, DecisionReply, RunRow, Settled, Standing, WaitRow
from agentflow.store.texts import checked_name, escaped

ANSWER_KEPT = frozenset({"GuardFailed", "StoreFailed"})  # failures after an answer: a retry does not ask anew


class By(TypedDict, total=False):
    """Who commands, why, and under which id, so that a repetition is noticed."""

    actor: Actor
    reason: str
    request: str


# --- decide ------------------------------------------------------------------------------------------------------


async def decide_wait(
    store: Store,
    definition: Definition,
    wait: WaitRow,
    outcome: Enum,
    data: BaseModel | None,
    *,
    actor: Actor,
    comment: str,
    request: str | None,
) -> Reply:
    """Answer a wait. Raises `InvalidInput` for an answer that does not fit."""
    by: By = {"actor": actor, "reason": comment}
    checked_name(request or "", "request=")
    try:
        name, text = _checked_answer(definition, wait, outcome, data)
        _check_role(wait, actor)
    except (InvalidInput, NotAllowed) as error:
        await note_refusal(store, wait.run, "decide", by, str(error))
        raise
    decision = Decision(
        wait=wait.id,
        outcome=name,
        data=text,
        actor=actor_to_json(actor) or "{}",
        comment=escaped(comment),
        request=request,
    )
    reply = await store.decide(decision)
    answer = _reply_to_decision(wait.id, reply)
    if answer.status == "refused":
        await note_refusal(store, wait.run, "decide", by, answer.why)
    return answer


def _checked_answer(
    definition: Definition, wait: WaitRow, outcome: Enum, data: BaseModel | None
) -> tuple[str, str | None]:
    state = definition.states[wait.state]
    enum, form = state.spec.outcome, state.spec.answer
    if enum is None or not isinstance(outcome, enum):
        allowed = ", ".join(wait.outcomes)
        raise InvalidInput(
            f"wait {wait.id!r} takes {allowed}, not {outcome!r}{nearest(str(outcome), [*wait.outcomes])}"
        )
    if form is None and data is not None:
        raise InvalidInput(f"wait {wait.id!r} takes no data beside its outcome, got {type(data).__name__}")
    if form is not None and not isinstance(data, form):
        fields = ", ".join(form.model_fields)
        got = "nothing" if data is None else type(data).__name__
        raise InvalidInput(f"wait {wait.id!r} takes a {form.__name__} ({fields}) beside its outcome, got {got}")
    return outcome.name, None if form is None or data is None else _checked_data(definition, wait, form, data)


def _checked_data(definition: Definition, wait: WaitRow, form: type[BaseModel], data: BaseModel) -> str:
    """The stored form of an answer's data, read back as the run will read it: its form may have been gone round."""
    stored = notation_of(form, "data")
    try:
        _check_size(definition, wait, data)
        return stored.settle(data, stored.dump(data))[0].decode()
    except InvalidContext as error:
        raise InvalidInput(f"wait {wait.id!r}: {error}") from None


def _check_size(definition: Definition, wait: WaitRow, data: BaseModel) -> None:
    """Before anybody looks into it."""
    with contextlib.suppress(PydanticSerializationError):  # which says nothing of where: that is found out later
        size, most = len(to_json(data).encode()), context_limit(definition.limits)
        if size > most:
            raise InvalidInput(f"wait {wait.id!r}: {size:,} bytes of data, at most {most:,} fit")


def _check_role(wait: WaitRow, actor: Actor) -> None:
    if wait.roles and not set(wait.roles) & set(actor.roles):
        raise NotAllowed(f"wait {wait.id!r} takes an actor with role {' or '.join(wait.roles)}; {_who(actor)}")


def _who(actor: Actor) -> str:
    roles = f"has {', '.join(actor.roles)}" if actor.roles else "has none"
    return f"{actor.subject} {roles}"


def _reply_to_decision(wait_id: str, reply: DecisionReply) -> Reply:
    row = reply.wait
    match reply.status:
        case "applied":
            return Reply("applied", f"{wait_id} is decided")
        case "already":
            return Reply("already", f"{wait_id} was decided so before: {_decision(row)}")
        case "conflict":
            return Reply("refused", f"{wait_id} is decided otherwise: {_decision(row)}")
        case "late":
            closed = row.status if row is not None and row.status != "open" else "expired"
            return Reply("refused", f"{wait_id} is {closed}; it takes no answer any more")
        case "unknown":
            return Reply("refused", f"there is no wait {wait_id!r}")


def _decision(row: WaitRow | None) -> str:
    return "unknown" if row is None else told_decision(row)


def told_decision(row: WaitRow) -> str:
    """Who decided what, and when."""
    who = object_of(row.actor).get("subject", "somebody")
    at = f" at {row.closed_at:%Y-%m-%d %H:%M:%S} UTC" if row.closed_at is not None else ""
    return f"{row.outcome} by {who}{at}"


# --- cancel and retry --------------------------------------------------------------------------------------------


async def cancel_run(store: Store, row: RunRow, by: By, definition: Definition | None) -> tuple[Reply, bool]:
    """Cancel a run; also whether a worker is to carry the cancel out: it holds it, or its branches must stop before."""
    if (before := await repeated(store, row.id, by)) is not None:
        return before, row.session is not None
    while True:
        status = row.standing.status
        if status == "cancelled":
            return Reply("already", f"run {row.id!r} is cancelled"), False
        if not is_legal(status, "cancel"):
            return await refuse(store, row, "cancel", by, f"run {row.id!r} is {status}; it cannot be cancelled"), False
        if row.session is not None or status == "cancelling" or await _has_branches(store, row):
            command = command_row(store, row.id, "cancel", by, "applied", "at the next commit")
            known = await store.request(command, word=to_json({"cancel": by.get("reason", "")}), wake=True)
            reply = Reply("applied", f"run {row.id!r} stops at its next commit")
            return (reply if known else Reply("already", f"run {row.id!r} is being cancelled")), True
        cancelled = replace(row.standing, status=next_status(status, "cancel"), due_at=None, blocked=None)
        settled = None if definition is None else settled_by(definition, row, "cancelled")
        changed = await reopen(store, row, "cancel", by, cancelled, settled=settled)
        if changed is not None:
            return changed, False
        row = await again(store, row)


async def _has_branches(store: Store, row: RunRow) -> bool:
    group = await store.group(row.id, row.standing.state, row.standing.visit)
    return group is not None and not group.is_over


async def wake_run(store: Store, run: str) -> None:
    """Make a run due now that nobody drives."""
    await store.request(command_row(store, run, "look again", By(), "applied", ""), word=None, wake=True)


async def retry_run(store: Store, definition: Definition, row: RunRow, by: By) -> Reply:
    """Put a failed run back into the state that failed, with all its attempts before it; a definition that accepts it."""
    if (before := await repeated(store, row.id, by)) is not None:
        return before
    while True:
        standing = row.standing
        if standing.status != "failed" or standing.end is not None or row.group_state is not None:
            return await refuse(store, row, "retry", by, _why_no_retry(row))
        changed = await reopen(store, row, "retry", by, _reopened(definition, row, store))
        if changed is not None:
            return changed
        row = await again(store, row)


def _why_no_retry(row: RunRow) -> str:
    standing = row.standing
    if row.group_state is not None:
        return f"run {row.id!r} is a branch of run {row.parent!r}; retry that, and the branches that failed go on"
    if standing.end is not None:
        return (
            f"run {row.id!r} ended at {standing.end!r}, by a row of its table; there is no failed state to go on from"
        )
    if standing.status in TERMINAL:
        return f"run {row.id!r} is {standing.status}; only a failed run can be retried"
    return f"run {row.id!r} has not failed: it is {standing.status} in {standing.state!r}"


def _reopened(definition: Definition, row: RunRow, store: Store) -> Standing:
    failure = failure_from_json(row.standing.failure)
    head = head_of(row, definition.context.empty)
    anew = failure is None or failure.kind not in ANSWER_KEPT
    again = replace(
        head,
        status=next_status("failed", "retry"),
        failure=None,
        attempt=0,
        lost=0,
        generation=head.generation + (1 if anew else 0),
    )
    return standing_of(again, store.now())


async def reopen(
    store: Store,
    row: RunRow,
    command: str,
    by: By,
    standing: Standing,
    *,
    why: str = "",
    settled: Settled | None = None,
) -> Reply | None:
    """Change a resting run's standing; None if it has changed meanwhile."""
    note = command_row(store, row.id, command, by, "applied", why)
    if await store.reopen(note, standing=standing, expected_control_seq=row.control_seq, settled=settled):
        return Reply("applied", f"run {row.id!r} is {standing.status}")
    return await repeated(store, row.id, by)


async def repeated(store: Store, run: str, by: By) -> Reply | None:
    """The reply to a request that was carried out before, whatever has become of the run since.

    Raises `InvalidInput` for an id that cannot be kept.
    """
    request = by.get("request")
    checked_name(request or "", "request=")
    if request is not None and any(past.request == request for past in await store.commands(run)):
        return Reply("already", f"request {request!r} was carried out before")
    return None


async def again(store: Store, row: RunRow) -> RunRow:
    """The run's row as it is now."""
    fresh = await store.run(row.id)
    assert fresh is not None  # runs are not deleted
    return fresh


async def refuse(store: Store, row: RunRow, command: str, by: By, why: str) -> Reply:
    """Refuse a command, and keep that it was given."""
    await note_refusal(store, row.id, command, by, why)
    return Reply("refused", why)


async def note_refusal(store: Store, run: str, command: str, by: By, why: str) -> None:
    """Keep a refused command for the audit; its request id stays free for another try."""
    unrepeated = By(**{key: value for key, value in by.items() if key != "request"})  # type: ignore[typeddict-item]  # pyright: ignore[reportArgumentType]
    await store.request(command_row(store, run, command, unrepeated, "refused", why), word=None, wake=False)


def command_row(store: Store, run: str, command: str, by: By, status: Any, why: str) -> CommandRow:
    """A command as it is kept for the audit."""
    return CommandRow(
        run=run,
        at=store.now(),
        command=command,
        actor=actor_to_json(by.get("actor")),
        reason=escaped(by.get("reason", "")),
        request=by.get("request"),
        status=status,
        why=escaped(why),
    )
