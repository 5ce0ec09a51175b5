"""The ledger of effects for operators: what is in it, and how a doubt is settled by hand."""

from collections.abc import Sequence

from pydantic_core import PydanticSerializationError

from agentflow.app.commands import By, command_row, note_refusal
from agentflow.errors import InvalidInput, NotFound
from agentflow.model.check import nearest
from agentflow.model.definition import StateDefinition
from agentflow.model.views import Effect, Reply
from agentflow.runners.only_once import NAME as BODY
from agentflow.runners.records import from_json, object_of, to_json
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, CommandRow, EffectRow, EffectStatus, RunRow
from agentflow.store.texts import checked_name, escaped, is_storable

COMMAND = "resolve effect"
SEARCHED = 1_000  # keys that are looked through for the nearest one


async def list_effects(store: Store, *, run: str | None, status: EffectStatus | None, limit: int) -> Sequence[Effect]:
    """The ledger, in the order in which effects were begun. Raises `NotFound` for an unknown run."""
    if run is not None and (not is_storable(run) or await store.run(run) is None):
        raise NotFound(f"there is no run {run!r}")
    rows = await store.effects(run=run, status=status, limit=limit)
    return [await _effect(store, row) for row in rows]


async def _effect(store: Store, row: EffectRow) -> Effect:
    return Effect(
        key=row.key,
        run=row.run,
        state=row.state,
        visit=row.visit,
        name=row.name,
        item=row.item,
        status=row.status,
        at_work=await _is_at_work(store, row),
        result=from_json(row.result),
        error=row.error,
        once_per=row.once_per,
        begun=row.claimed_at,
        settled=row.settled_at,
    )


async def _is_at_work(store: Store, row: EffectRow) -> bool:
    """Whether the claim that began an effect still stands."""
    if row.status != "claimed":
        return False
    run = await store.run(row.run)
    return run is not None and run.token == row.token


async def settle_by_hand(
    store: Store,
    row: EffectRow,
    happened: bool,
    result: object,
    *,
    evidence: str,
    by: By,
    state: StateDefinition | None,
) -> Reply:
    """Say whether an effect in doubt took place. Raises `InvalidInput`; `state` is the one it belongs to, if at hand."""
    key = row.key
    text = _checked(key, happened, result, evidence)
    if happened and state is not None:
        _check_outcome(row, state, result)
    while True:
        if (earlier := await _repeated(store, row, by)) is not None:
            return Reply("already", f"request {by.get('request')!r} was carried out before: {earlier.why}")
        if (why := await _refusal(store, row, happened, text)) is not None:
            return await _answer_settled(store, row, why, happened, text, evidence, by)
        status: EffectStatus = "done" if happened else "not_happened"
        why = _told(key, happened, result)
        command = command_row(store, row.run, COMMAND, _with_evidence(by, evidence), "applied", why)
        if await store.resolve_effect(command, key, status, result=text):
            return Reply("applied", f"{why}; {await _what_next(store, row)}")
        row = await effect_named(store, key)  # somebody was faster


def _checked(key: str, happened: bool, result: object, evidence: str) -> str | None:
    """The stored form of the result. Raises `InvalidInput`."""
    if not evidence.strip():
        raise InvalidInput(f"effect {key!r}: evidence= must say how you know; it is kept for the audit")
    if not happened and result is not None:
        raise InvalidInput(f"effect {key!r}: what did not happen has no result; leave it out")
    try:
        return to_json(result) if happened else None
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInput(f"effect {key!r}: the result cannot be stored as JSON: {error}") from None


def _check_outcome(row: EffectRow, state: StateDefinition, result: object) -> None:
    """Raise `InvalidInput` if a body that ran once is said to have answered something that the state does not know."""
    enum = state.spec.outcome
    if not (state.spec.once and row.name == BODY) or enum is None or result in enum.__members__:
        return
    raise InvalidInput(
        f"effect {row.key!r}: the body of {state.name!r} answers with one of {', '.join(enum.__members__)}; "
        f"say which as the result, not {result!r}"
    )


async def effect_named(store: Store, key: str) -> EffectRow:
    """The effect of that key. Raises `NotFound` with the nearest one."""
    row = await store.effect(key) if is_storable(key) else None
    if row is not None:
        return row
    run = escaped(key.partition(":")[0])
    near = await store.effects(run=run, limit=SEARCHED) or await store.effects(status="unclear", limit=SEARCHED)
    known = [row.key for row in near]
    hint = nearest(key, known) or (f"; run {run!r} has {', '.join(known[:5])}" if near and near[0].run == run else "")
    raise NotFound(f"there is no effect {key!r}{hint}")


async def _repeated(store: Store, row: EffectRow, by: By) -> CommandRow | None:
    request = by.get("request")
    checked_name(request or "", "request=")
    commands = await store.commands(row.run) if request is not None else ()
    return next((past for past in commands if past.request == request), None)


async def _refusal(store: Store, row: EffectRow, happened: bool, result: str | None) -> str | None:
    """Why an effect is not to be settled by hand, None if it is."""
    if row.status in {"done", "not_happened"}:
        return f"effect {row.key} is settled: {await _settlement(store, row)}"
    if not await _is_at_work(store, row):
        return None
    worker = await _worker_of(store, row)
    return (
        f"effect {row.key} is at work under {worker}; let it finish. If that process is dead, its lease runs out, and the "
        "next worker settles the effect or leaves it unclear"
    )


async def _settlement(store: Store, row: EffectRow) -> str:
    told = "it happened" if row.status == "done" else "it did not happen"
    if row.status == "done" and row.result not in (None, "null"):
        told += f", result {_short(row.result or '')}"
    by_hand = [
        past
        for past in await store.commands(row.run)
        if past.command == COMMAND and past.status == "applied" and past.why.startswith(f"effect {row.key} ")
    ]
    if not by_hand:
        return f"{told}, as its worker recorded"
    who = object_of(by_hand[-1].actor).get("subject", "somebody")
    return f"{told}, says {who} at {by_hand[-1].at:%Y-%m-%d %H:%M:%S} UTC (evidence: {by_hand[-1].reason})"


async def _worker_of(store: Store, row: EffectRow) -> str:
    holder = next((session for session in await store.sessions() if session.id == row.session), None)
    return f"worker {holder.name} (session {holder.id})" if holder is not None else "a worker"


async def _answer_settled(
    store: Store, row: EffectRow, why: str, happened: bool, result: str | None, evidence: str, by: By
) -> Reply:
    """The same again is `already`; anything else is refused, and the refusal is kept for the audit."""
    same = (row.status, row.result) == (("done", result) if happened else ("not_happened", None))
    if same:
        return Reply("already", why)
    await note_refusal(store, row.run, COMMAND, _with_evidence(by, evidence), why)
    return Reply("refused", why)


def _with_evidence(by: By, evidence: str) -> By:
    """The evidence is the reason of the command; a reason of its own stands before it."""
    reason = by.get("reason", "")
    return {**by, "reason": f"{reason} (evidence: {evidence})" if reason else evidence}


def _told(key: str, happened: bool, result: object) -> str:
    if not happened:
        return f"effect {key} did not happen: the body calls it again"
    if result is None:
        return f"effect {key} happened, without a result: the body gets None from it"
    return f"effect {key} happened: the body gets {_short(to_json(result))} from it"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


async def _what_next(store: Store, effect: EffectRow) -> str:
    """How the run goes on from here."""
    row = await store.run(effect.run)
    assert row is not None  # the effect is one of its
    standing = row.standing
    if can_be_retried(row):
        return f"run {row.id!r} failed in {standing.state!r}, and retry goes on from there"
    if standing.end is not None:
        return f"run {row.id!r} ended at {standing.end!r}, which this does not change"
    if standing.status in TERMINAL:
        return f"run {row.id!r} is {standing.status}, which this does not change"
    where = f"run {row.id!r} is {standing.status} in {standing.state!r}"
    if (standing.state, standing.visit) == (effect.state, effect.visit):
        return f"{where}, whose body takes it up when it runs next"
    return f"{where}; another visit of {effect.state!r} has a key of its own and does not look at this one"


def can_be_retried(row: RunRow) -> bool:
    """Whether a run failed where it stands, so that a retry goes on from there."""
    return row.standing.status == "failed" and row.standing.end is None
