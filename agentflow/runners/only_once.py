"""Bodies that must not be repeated at all (`once=True`): the intention is durable before the body begins.

The row is one of the ledger of effects, named `body`. The commit of the transition settles it. A body that raised, or
whose worker died, leaves it unclear: the state fails with `Unclear` from then on, until somebody says whether it
happened (`agentflow effects resolve`).
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from agentflow.errors import EffectHeld, LeaseLost
from agentflow.failures import Unclear
from agentflow.runners.ledger import claim_of, record
from agentflow.runners.records import from_json
from agentflow.store.rows import EffectBegun

if TYPE_CHECKING:
    from agentflow.runners.perform import Work

NAME = "body"

Answer = tuple[Any, BaseException | None]  # an outcome, or what a thread raised


async def run_once(work: "Work", body: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run the body unless it may have run before: then `Unclear` is raised, or what somebody found out is answered."""
    if work.holds_effects:
        raise EffectHeld(
            f"the body of {work.head.state!r}, which must not be repeated, is held back: run {work.head.run!r} is a fork "
            "whose effects are held; fork again with effects='live' to let it run"
        )
    found = await work.store.begin_effect(claim_of(work, NAME))
    if found is None:
        raise LeaseLost(f"run {work.head.run!r} belongs to another worker now")
    key = found.row.key
    if not isinstance(found, EffectBegun):
        if found.row.status == "claimed":  # by a worker that died: now it is a doubt, and listed as one
            await record(
                work, key, "unclear", begun_by=found.row.token, error="its worker died before the body answered"
            )
        return _found_out(work, found.row.status, key, from_json(found.row.result)), None
    try:
        outcome, error = await body()
    except Exception as raised:
        await _left_unclear(work, key, raised)
        raise
    if error is None:
        work.settles = (key,)
    else:
        await _left_unclear(work, key, error)
    return outcome, error


async def _left_unclear(work: "Work", key: str, error: BaseException) -> None:
    """The body raised: how far it came, nobody knows."""
    await record(work, key, "unclear", error=f"{type(error).__name__}: {error}"[:2_000])


def _found_out(work: "Work", status: str, key: str, outcome: Any) -> Any:
    """The outcome of a body that happened, as somebody found out."""
    state, enum = work.head.state, work.state.spec.outcome
    if status != "done":
        raise Unclear(
            f"the body of {state!r} was begun before and must not be repeated; find out whether it happened, and say so: "
            f"agentflow effects resolve {key} happened|not --evidence TEXT",
            effect=NAME,
            key=key,
        )
    if enum is None:
        return None
    if outcome not in enum.__members__:
        allowed = ", ".join(enum.__members__)
        raise Unclear(
            f"the body of {state!r} happened, but with which outcome is not said: --result is one of {allowed}",
            effect=NAME,
            key=key,
        )
    return enum[outcome]
