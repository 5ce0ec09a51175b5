"""What the world must do next for a run; the runner carries it out and comes back with an event."""

from datetime import datetime
from typing import TypeAlias

from agentflow.model.values import Failure
from agentflow.record import record


@record
class Perform:
    """Do what the state says: run its body, ask its model, or ask a person."""

    state: str


@record
class FailState:
    """The state may not be worked on: come back with this failure."""

    state: str
    failure: Failure


@record
class WaitUntil:
    """Come back at this instant and try the state again."""

    instant: datetime


@record
class Stop:
    """The run is over."""


Command: TypeAlias = Perform | FailState | WaitUntil | Stop
