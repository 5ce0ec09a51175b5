"""What the world must do next for a run; the runner carries it out and comes back with an event."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from agentflow.model.values import Failure


@dataclass(frozen=True, slots=True)
class Perform:
    """Do what the state says: run its body, ask its model, or ask a person."""

    state: str


@dataclass(frozen=True, slots=True)
class FailState:
    """The state may not be worked on: come back with this failure."""

    state: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Come back at this instant and try the state again."""

    instant: datetime


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is over."""


Command: TypeAlias = Perform | FailState | WaitUntil | Stop
