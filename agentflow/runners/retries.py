"""Whether and when a failed body is tried again: a pure policy over stored instants.

tenacity's `stop` and `wait` objects decide; nothing here sleeps. What counts as worth another attempt follows one
table: `RETRIED_STATUS` for HTTP, `Retryable`, timeouts and connection errors for the rest.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from socket import gaierror
from typing import Any

from agentflow.engine.events import GiveUp, RetryAt
from agentflow.failures import Business, OverLimit, Retryable, Unclear
from agentflow.model.values import Retry

LONGEST_WAIT = 30 * 24 * 3600.0  # seconds; a wait beyond is no wait but a mistake
RETRIED_STATUS = frozenset({408, 429, 529}) | frozenset(range(500, 600))
HTTP_LIBRARIES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "openai", "requests", "aiohttp"})
TRANSPORT_ERRORS = frozenset({"TransportError", "APIConnectionError", "ClientConnectionError", "RequestException"})


def verdict(
    retry: Retry | None, error: BaseException, *, attempt: int, entered_at: datetime, now: datetime
) -> RetryAt | GiveUp:
    """What the policy says after attempt number `attempt` (from 1) failed with `error`."""
    if retry is None or attempt >= retry.attempts or not is_worth_retrying(retry, error):
        return GiveUp()
    return _evaluate(retry, error, attempt, max(0.0, (now - entered_at).total_seconds()), now)


def is_worth_retrying(retry: Retry, error: BaseException) -> bool:
    """Whether another attempt may cure the failure."""
    if isinstance(error, Unclear | OverLimit):
        return False  # nobody knows whether it happened, so nobody may do it again; more attempts use no less
    if retry.on:
        return isinstance(error, tuple(retry.on))
    if isinstance(error, Business):
        return False
    if isinstance(error, Retryable | TimeoutError | ConnectionError | gaierror):
        return True
    status = status_code(error)
    if status is not None:
        return status in RETRIED_STATUS
    return is_transport_error(error)


def status_code(error: BaseException) -> int | None:
    """The HTTP status that an exception of a client library carries."""
    response: Any = getattr(error, "response", None)
    for holder in (error, response):
        status = getattr(holder, "status_code", None) or getattr(holder, "status", None)
        if isinstance(status, int):
            return status
    return None


def is_transport_error(error: BaseException) -> bool:
    """Whether an HTTP library says that no complete response came back."""
    return any(
        kind.__module__.partition(".")[0] in HTTP_LIBRARIES and kind.__name__ in TRANSPORT_ERRORS
        for kind in type(error).__mro__
    )


def _evaluate(retry: Retry, error: BaseException, attempt: int, elapsed: float, now: datetime) -> RetryAt | GiveUp:
    from tenacity import RetryCallState, wait_random_exponential  # noqa: PLC0415  only a failure needs it

    state: Any = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.attempt_number = attempt
    state.set_exception((type(error), error, error.__traceback__))
    state.start_time, state.outcome_timestamp = 0.0, elapsed
    wait = retry.wait if retry.wait is not None else wait_random_exponential(multiplier=1, max=60)
    seconds = min(max(float(wait(state)), asked_wait(error, now)), LONGEST_WAIT)
    state.upcoming_sleep = seconds
    if retry.stop is not None and retry.stop(state):
        return GiveUp()
    return RetryAt(now + timedelta(seconds=seconds))


def asked_wait(error: BaseException, now: datetime) -> float:
    """Seconds that the other side asked for, by its exception or its `Retry-After` header; 0 if it did not."""
    seconds = getattr(error, "retry_after", None)
    if isinstance(seconds, int | float) and 0 < seconds <= LONGEST_WAIT:
        return float(seconds)
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    if not isinstance(headers, Mapping):
        return 0.0
    from agentflow.llm.faults import retry_after  # noqa: PLC0415  only a failure needs it

    return retry_after(headers, now) or 0.0  # pyright: ignore[reportUnknownArgumentType]
