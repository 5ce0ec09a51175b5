"""A provider's errors as our failures: what is worth another attempt, how long to wait, and what may be shown."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from agentflow.failures import Filtered, ModelFailure, Unavailable
from agentflow.model.shapes import is_object

if TYPE_CHECKING:
    import openai

__all__ = ["Redact", "fault_inside", "fault_of", "redactor", "retry_after", "shapeless"]

Redact = Callable[[str], str]

_SHOWN = 500
_LONGEST_WAIT = 30 * 24 * 3600.0
_AGAIN = frozenset({408, 409, 429})
_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_FILTER = frozenset({"content_filter", "content_policy_violation"})
_FINAL = _QUOTA | {"context_length_exceeded", "invalid_api_key", "model_not_found", "invalid_request_error"}


def fault_of(error: "openai.OpenAIError", model: str, redact: Redact) -> ModelFailure:
    """The failure that an error of the `openai` package stands for."""
    import openai  # noqa: PLC0415  loaded already, since it raised

    if isinstance(error, openai.APIStatusError):
        return _fault_of_status(error, model, redact)
    if isinstance(error, openai.APITimeoutError):
        return Unavailable(f"model {model!r} did not answer in time")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return Unavailable(f"model {model!r} could not be reached: {type(cause).__name__}: {redact(str(cause))}")
    return ModelFailure(f"model {model!r}: {redact(str(error))}")


def fault_inside(error: Any, model: str, redact: Redact) -> ModelFailure:
    """The failure for an error object inside an answer with status 200."""
    said = error if is_object(error) else {"message": error}
    code = str(said.get("code") or said.get("type") or "")
    words = redact(_words(said))
    message = f"model {model!r} answered 200 with an error inside{_bracketed(code)}: {words}"
    final = {code, str(said.get("type"))} & _FINAL
    if final or (code.isdigit() and 400 <= int(code) < 500 and int(code) not in _AGAIN):
        return ModelFailure(message, text=words)
    return Unavailable(message, text=words)


def shapeless(why: str, body: str, model: str, redact: Redact) -> Unavailable:
    """The failure for an answer with status 200 that is no answer."""
    shown = redact(body)
    return Unavailable(f"model {model!r} answered 200, but {why}: {shown or 'the body is empty'}", text=shown)


def redactor(key: str) -> Redact:
    """A function that makes a provider's words fit to be shown: without the key, also in parts, and not too long."""
    # A key of the offline tests, such as "k", is no secret and would tear holes into every word.
    whole = [re.escape(key)] if len(key) >= 4 else []
    # Providers quote a wrong key with its middle masked: its beginning and end are no one's business either.
    pattern = re.compile("|".join([*whole, r"\bsk-[\w*.-]{4,}", r"\w*\*{3,}[\w*]*"]))

    def redact(text: str) -> str:
        shown = pattern.sub("[key]", text)
        return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"

    return redact


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that a provider asks to wait; None if it says nothing that makes sense."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("retry-after")
    seconds = _seconds(said)
    if seconds is not None or said is None:
        return seconds
    try:
        date = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    # A date without a zone ("-0000") is UTC by RFC 9110.
    return _sensible(((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())


def _seconds(text: str | None) -> float | None:
    try:
        return _sensible(float(text or ""))
    except ValueError:
        return None


def _sensible(seconds: float) -> float | None:
    return seconds if 0 < seconds <= _LONGEST_WAIT else None


def _fault_of_status(error: "openai.APIStatusError", model: str, redact: Redact) -> ModelFailure:
    status, code = error.status_code, error.code or ""
    words = redact(_words(error.body))
    message = f"model {model!r} answered {status}{_bracketed(code)}: {words or 'without a word'}"
    if code in _FILTER:
        return Filtered(message, text=words)
    out_of_quota = bool({code, str(error.type)} & _QUOTA)
    if (status in _AGAIN or status >= 500) and not out_of_quota:
        wait = retry_after(error.response.headers, datetime.now(UTC))
        return Unavailable(message, text=words, retry_after=wait)
    return ModelFailure(message, text=words)


def _words(body: object) -> str:
    """What a provider says in an error's body, in whatever shape."""
    if is_object(body):
        message = body.get("message")
        return message if isinstance(message, str) else json.dumps(body, default=str)
    return "" if body is None else str(body)


def _bracketed(code: str) -> str:
    return f" ({code})" if code else ""
