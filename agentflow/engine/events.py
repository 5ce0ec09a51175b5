"""What can happen to a run, each with its instant: the engine reads no clock."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, TypeAlias

from agentflow.engine.head import NO_USAGE, Usage
from agentflow.model.context import Difference, Kept
from agentflow.model.values import Failure
from agentflow.record import record


@record
class Facts:
    """What is recorded about an answer beside its outcome; the engine only hands it on to history."""

    duration_ms: float | None = None
    answer: Mapping[str, Any] | None = None  # reason, data, confidence, wait, ... as JSON values
    actor: Mapping[str, Any] | None = None
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: str | None = None
    prompt: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether somebody answered, a model or a person: code leaves nothing but its duration."""
        return self.answer is not None or self.actor is not None or self.model is not None


@record
class Answered:
    """A body answered; its context was validated."""

    at: datetime
    outcome: str | None  # the member's name
    kept: Kept
    difference: Difference
    facts: Facts = field(default_factory=Facts)
    usage: Usage = NO_USAGE
    skipped: bool = False  # an optional step failed and is passed over
    joined: bool = False  # the branches of a group have met


@record
class RetryAt:
    """Try again, not before this instant."""

    instant: datetime


@record
class GiveUp:
    """No attempt is left, or the failure is none that another attempt would cure."""


@record
class BodyFailed:
    """A body raised, a model gave no usable answer, or a limit was reached."""

    at: datetime
    failure: Failure
    verdict: RetryAt | GiveUp
    facts: Facts = field(default_factory=Facts)
    usage: Usage = NO_USAGE


@record
class Broken:
    """Author code that must not fail did: a guard or a `.store` function. No row covers it."""

    at: datetime
    failure: Failure
    usage: Usage = NO_USAGE


@record
class Expired:
    """Nobody answered in time."""

    at: datetime


Event: TypeAlias = Answered | BodyFailed | Broken | Expired
