"""The one way into a state past the table: a run is *placed*, by a new name, a new version, or by hand.

It is a transition like any other: the revision goes up by one, and history says who did it and why.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from agentflow.engine.head import Head, KeptAnswer
from agentflow.model.context import Kept
from agentflow.model.definition import Definition
from agentflow.model.migrations import Renames

__all__ = ["place"]


def place(definition: Definition, head: Head, target: str, *, kept: Kept, at: datetime, stays: bool) -> Head:
    """The run one revision later, in a state or end of this definition.

    With `stays` the visit goes on: its attempts, effects and the failure that led there are those of before, under the
    names of now; an answer that was kept is dropped if the context is another. Without, the state is entered anew, and a
    failed run is still one that only a retry takes on.
    """
    visits = renamed_visits(definition.renames, head.visits)
    after = replace(head, revision=head.revision + 1, state=target, kept=kept, visits=visits)
    if stays:
        if target != head.state:  # where two names become one, no visit may get the number of another
            after = replace(after, visit=visits.get(target, head.visit))
        return replace(after, answer=_renamed_answer(definition, after) if kept is head.kept else None)
    end = definition.ends.get(target)
    if end is not None:
        return replace(
            _anew(after, at), status="failed" if end.failed else "completed", end=target, visit=1, failure=None
        )
    visits = {**visits, target: visits.get(target, 0) + 1}
    status = head.status if head.status == "failed" else "queued"
    return replace(_anew(after, at), status=status, visit=visits[target], visits=visits)


def renamed_visits(renames: Renames, visits: Mapping[str, int]) -> Mapping[str, int]:
    """How often each state was entered, by the names of now."""
    if not renames.places:
        return visits
    counted: dict[str, int] = {}
    for name, count in visits.items():
        now = renames.place(name)
        counted[now] = counted.get(now, 0) + count
    return counted


def _renamed_answer(definition: Definition, head: Head) -> KeptAnswer | None:
    answer = head.answer
    if answer is None or answer.outcome is None:
        return answer
    return replace(answer, outcome=definition.renames.member(head.state, answer.outcome))


def _anew(head: Head, at: datetime) -> Head:
    """What belongs to a visit begins anew."""
    return replace(head, entered_at=at, attempt=0, lost=0, generation=0, answer=None, cause=None, blocked=None)
