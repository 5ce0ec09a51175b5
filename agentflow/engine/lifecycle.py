"""The lifecycle of a run as a plain table: which command is legal in which status, and where it leads.

`paused` and `blocked` are no statuses: they lie over one.
"""

from typing import Literal, TypeAlias

from agentflow.errors import Conflict
from agentflow.model.views import Status

LifecycleCommand: TypeAlias = Literal[
    "claim", "park", "defer", "block", "release", "complete", "fail", "cancel", "stop", "retry", "compensate"
]  # fmt: skip

TABLE: dict[tuple[Status, LifecycleCommand], Status] = {
    ("queued", "claim"): "running",
    ("queued", "cancel"): "cancelled",
    ("running", "claim"): "running",  # a takeover from a dead worker
    ("running", "park"): "waiting",  # a person, a signal or a long sleep
    ("running", "defer"): "queued",  # a retry that is not due yet
    ("running", "block"): "queued",  # a limit is reached, and no row takes its failure
    ("running", "release"): "queued",  # a worker that stops
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "cancel"): "cancelling",
    ("running", "compensate"): "compensating",
    ("waiting", "claim"): "running",
    ("waiting", "cancel"): "cancelled",
    ("cancelling", "claim"): "cancelling",
    ("cancelling", "cancel"): "cancelling",
    ("cancelling", "release"): "cancelling",
    ("cancelling", "compensate"): "compensating",
    ("cancelling", "complete"): "completed",  # the body that was at work reached an end before the cancel took effect
    ("cancelling", "fail"): "failed",
    ("cancelling", "stop"): "cancelled",
    ("compensating", "claim"): "compensating",
    ("compensating", "release"): "compensating",
    ("compensating", "complete"): "completed",
    ("compensating", "fail"): "failed",
    ("compensating", "stop"): "cancelled",
    ("failed", "retry"): "queued",
}

STATUSES: tuple[Status, ...] = (
    "queued", "running", "waiting", "cancelling", "compensating", "completed", "failed", "cancelled",
)  # fmt: skip
TERMINAL: frozenset[Status] = frozenset({"completed", "failed", "cancelled"})


def is_legal(status: Status, command: LifecycleCommand) -> bool:
    """Whether the command may be given in that status."""
    return (status, command) in TABLE


def next_status(status: Status, command: LifecycleCommand) -> Status:
    """The status after the command. Raises `Conflict` where it is illegal."""
    try:
        return TABLE[status, command]
    except KeyError:
        raise Conflict(f"a run that is {status} cannot {command}") from None
