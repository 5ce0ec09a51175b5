"""Rules that every store follows and that need no database: leases, begun effects, refused decisions."""

from datetime import datetime, timedelta
from typing import Literal

from agentflow.store.rows import Decision, EffectClaim, EffectRow, WaitRow

LEASE = timedelta(seconds=30)


def begun_row(claim: EffectClaim, session: str | None, now: datetime) -> EffectRow:
    """An effect that is about to be called for the first time."""
    return EffectRow(
        key=claim.key,
        run=claim.run,
        name=claim.name,
        state=claim.state,
        visit=claim.visit,
        item=claim.item,
        generation=claim.generation,
        workflow=claim.workflow,
        once_per=claim.once_per,
        status="claimed",
        token=claim.token,
        session=session,
        result=None,
        error=None,
        claimed_at=now,
        settled_at=None,
    )


def refusal(wait: WaitRow, decision: Decision) -> Literal["already", "conflict", "late"]:
    """Why a wait took no decision: the person who sent the same again is told so, everybody else sees who was first."""
    if wait.status != "decided":
        return "late"
    is_repeated = decision.request is not None and decision.request == wait.request
    is_same = (decision.outcome, decision.data, decision.actor) == (wait.outcome, wait.data, wait.actor)
    return "already" if is_repeated or is_same else "conflict"
