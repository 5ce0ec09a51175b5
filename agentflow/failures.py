"""Why a body did not answer: the classes for `.failed(...)`.

Business       a rule says no; never retried
Retryable      worth another attempt
├── TimedOut
└── Unavailable (also a ModelFailure)
ModelFailure   a model gave no usable answer
├── Refused, Truncated, Filtered, Invalid, Unavailable
Unclear, OverLimit, CrashLoop, MergeConflict, StatementRefused
"""

from typing import Any

__all__ = [
    "Business",
    "CrashLoop",
    "Filtered",
    "Invalid",
    "MergeConflict",
    "ModelFailure",
    "OverLimit",
    "Refused",
    "Retryable",
    "StatementRefused",
    "TimedOut",
    "Truncated",
    "Unavailable",
    "Unclear",
]


class Business(Exception):
    """A rule of the business says no; never retried. Derive your own."""


class Retryable(Exception):
    """Worth another attempt. Derive your own."""


class TimedOut(Retryable):
    """An attempt took longer than its `timeout`."""


class Unclear(Exception):
    """An effect was begun, and whether it happened is not known, nor does `unclear=` know."""

    def __init__(self, message: str = "", *, effect: str = "", key: str = "") -> None:
        super().__init__(message)
        self.effect = effect
        self.key = key


class OverLimit(Exception):
    """The run would use more than its `Limits`, or enter a state more often than its `max_visits`."""

    def __init__(self, message: str = "", *, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit


class CrashLoop(Exception):
    """The process died again and again in this state."""


class StatementRefused(Exception):
    """The database refused a statement of `run.transaction`, so the step was not committed."""


class MergeConflict(Exception):
    """Two branches wrote one field that has no merge rule."""

    def __init__(self, message: str = "", *, field: str = "", branches: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.field = field
        self.branches = branches


class ModelFailure(Exception):
    """A model gave no usable answer; `text` is what it sent, if anything."""

    def __init__(self, message: str = "", *, text: str = "", usage: Any = None) -> None:
        super().__init__(message)
        self.text = text
        self.usage = usage


class Refused(ModelFailure):
    """It declined."""


class Truncated(ModelFailure):
    """Its answer was cut off at the token limit."""


class Filtered(ModelFailure):
    """The provider's filter withheld the answer."""


class Invalid(ModelFailure):
    """Its answer fits no outcome, also when asked again."""


class Unavailable(ModelFailure, Retryable):
    """The provider could not be reached, or said to come back later; `retry_after` is in seconds."""

    def __init__(
        self, message: str = "", *, text: str = "", usage: Any = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, text=text, usage=usage)
        self.retry_after = retry_after
