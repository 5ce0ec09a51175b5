"""Between the engine's values and the store's rows."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import pydantic_core

from agentflow.engine.advance import Move
from agentflow.engine.events import Facts
from agentflow.engine.head import Head, failure_from_json, failure_to_json, memory_of, with_memory, writable_json
from agentflow.errors import IncompatibleDefinition
from agentflow.failures import OverLimit
from agentflow.model.context import EMPTY, Difference, Kept
from agentflow.model.definition import Definition
from agentflow.model.values import Actor
from agentflow.store.rows import HistoryRow, RunRow, Standing
from agentflow.store.texts import escaped


def to_json(value: Any) -> str:
    """JSON text of plain values, models and dataclasses."""
    return writable_json(value)


def from_json(text: str | None) -> Any:
    """Plain values of JSON text, None for None."""
    return None if text is None else pydantic_core.from_json(text)


def object_of(text: str | None) -> dict[str, Any]:
    """The object of JSON text, an empty one for None."""
    return from_json(text) or {}


def head_of(row: RunRow, kept: Kept) -> Head:
    """The head of a stored run."""
    standing = row.standing
    head = Head(
        run=row.id,
        revision=row.revision,
        status=standing.status,
        state=standing.state,
        visit=standing.visit,
        kept=kept,
        started_at=row.created_at,
        entered_at=row.created_at,
        attempt=standing.attempt,
        end=standing.end,
        failure=failure_from_json(standing.failure) if standing.status == "failed" else None,
        blocked=standing.blocked,
    )
    return with_memory(head, standing.memory)


def memory_again(row: RunRow) -> Head:
    """The head of a stored run of whose context nothing is needed."""
    return head_of(row, EMPTY)


def standing_of(head: Head, due_at: datetime | None) -> Standing:
    """What a commit writes of a head."""
    return Standing(
        status=head.status,
        state=head.state,
        visit=head.visit,
        attempt=head.attempt,
        end=head.end,
        blocked=None if head.blocked is None else escaped(head.blocked),
        failure=failure_to_json(head.cause if head.failure is None else head.failure),
        memory=memory_of(head),
        due_at=due_at,
    )


def is_over_limit(standing: Standing) -> bool:
    """Whether a run is blocked by a limit: looking at it again changes nothing until the limit is raised."""
    if standing.blocked is None:
        return False
    failure = failure_from_json(standing.failure)
    return failure is not None and escaped(failure.message) == standing.blocked and failure.matches(OverLimit)


def first_row(head: Head, difference: Difference) -> HistoryRow:
    """Revision 0: the start of a run."""
    return HistoryRow(
        revision=0,
        at=head.started_at,
        event="start",
        source=None,
        outcome=None,
        target=head.state,
        visit=0,
        attempt=0,
        duration_ms=None,
        difference=difference.text(),
    )


def history_row(definition: Definition, revision: int, move: Move) -> HistoryRow:
    """A transition, as it is stored."""
    facts = move.facts
    row = HistoryRow(
        revision=revision,
        at=move.at,
        event=move.event,
        source=move.source,
        outcome=move.outcome,
        target=move.target,
        visit=move.visit,
        attempt=move.attempt,
        duration_ms=facts.duration_ms,
        difference=move.difference.text(),
        code=definition.states[move.source].code,
    )
    if move.guards or move.failure is not None or facts.is_answer:
        return replace(row, guards=to_json(move.guards) if move.guards else None, **_answer_of(move))
    return row


def _answer_of(move: Move) -> dict[str, Any]:
    """What most transitions do not have."""
    facts = move.facts
    return {
        "answer": None if facts.answer is None else to_json(facts.answer),
        "failure": failure_to_json(move.failure),
        "actor": None if facts.actor is None else to_json(facts.actor),
        "model": None if facts.model is None else escaped(facts.model),
        "tokens_in": facts.tokens_in,
        "tokens_out": facts.tokens_out,
        "cost": facts.cost,
        "prompt": facts.prompt,
    }


def actor_to_json(actor: Actor | None) -> str | None:
    """The stored form of an actor."""
    return None if actor is None else to_json({**asdict(actor), "roles": list(actor.roles)})


def actor_of(raw: Mapping[str, Any] | None) -> Actor | None:
    """A stored actor."""
    if raw is None:
        return None
    return Actor(
        raw["subject"],
        source=raw.get("source", ""),
        strength=raw.get("strength", ""),
        roles=tuple(raw.get("roles", ())),
    )


def facts_of(raw: Mapping[str, Any]) -> Facts:
    """Facts that were kept with an answer."""
    return Facts(**raw)


def check_accepts(definition: Definition, row: RunRow) -> None:
    """Raise `IncompatibleDefinition` if the run stands where this definition has no place."""
    state = row.standing.state
    if state not in definition.states and state not in definition.ends:
        raise IncompatibleDefinition(
            f"run {row.id!r} stands in state {state!r}, which workflow {definition.name!r} version "
            f"{definition.version} does not have; deploy a version that has it"
        )
