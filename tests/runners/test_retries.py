"""What is tried again, and when: the table of D10 and B31, and the waits that the other side asks for (B30)."""

import json
import math
import socket
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError
from tenacity import stop_after_delay, wait_exponential, wait_fixed, wait_none

from agentflow import Retry
from agentflow.engine.events import GiveUp, RetryAt
from agentflow.failures import Business, Retryable, TimedOut, Unavailable, Unclear
from agentflow.runners.retries import LONGEST_WAIT, asked_wait, verdict

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
AT_ONCE = Retry(attempts=3, wait=wait_none())


def http(status: int, headers: Mapping[str, str] | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://shop.example")
    return httpx.HTTPStatusError("status", request=request, response=httpx.Response(status, headers=headers))


class Strict(BaseModel):
    n: int


def invalid() -> Exception:
    try:
        Strict.model_validate({"n": "x"})
    except ValidationError as error:
        return error
    raise AssertionError


def no_json() -> Exception:
    try:
        json.loads("{")
    except json.JSONDecodeError as error:
        return error
    raise AssertionError


REQUEST = httpx.Request("GET", "http://shop.example")
AGAIN: dict[str, BaseException] = {
    **{str(status): http(status) for status in (408, 429, 500, 502, 503, 504, 529)},
    "connection refused": ConnectionRefusedError("refused"),
    "connection reset": ConnectionResetError("reset"),
    "no such name yet": socket.gaierror(-3, "temporary failure in name resolution"),
    "timeout": TimeoutError("slow"),
    "the state's timeout": TimedOut("slow"),
    "connect error": httpx.ConnectError("no route", request=REQUEST),
    "read timeout": httpx.ReadTimeout("slow", request=REQUEST),
    "cut off in the body": httpx.RemoteProtocolError("peer closed", request=REQUEST),
    "retryable": Retryable("again"),
    "unavailable": Unavailable("later"),
}
NEVER: dict[str, BaseException] = {
    **{str(status): http(status) for status in (400, 401, 403, 404, 409, 422)},
    "a rule": Business("no"),
    "in doubt": Unclear("who knows"),
    "a slip": ValueError("slip"),
    "a missing key": KeyError("k"),
    "no JSON": no_json(),
    "another shape": invalid(),
    "no such file": FileNotFoundError("gone"),
}


def after(retry: Retry | None, error: BaseException, *, attempt: int = 1, elapsed: float = 0.0) -> RetryAt | GiveUp:
    return verdict(retry, error, attempt=attempt, entered_at=NOW - timedelta(seconds=elapsed), now=NOW)


@pytest.mark.parametrize("name", AGAIN)
def test_b31_what_another_attempt_may_cure_is_tried_again(name: str) -> None:
    assert after(AT_ONCE, AGAIN[name]) == RetryAt(NOW)


@pytest.mark.parametrize("name", NEVER)
def test_b31_what_no_attempt_will_cure_is_not_tried_again(name: str) -> None:
    assert after(AT_ONCE, NEVER[name]) == GiveUp()


@pytest.mark.parametrize("name", AGAIN)
def test_without_a_policy_nothing_is_tried_again(name: str) -> None:
    assert after(None, AGAIN[name]) == GiveUp()
    assert after(Retry(), AGAIN[name]) == GiveUp()


def test_d10_attempts_are_counted_in_all() -> None:
    assert [type(after(AT_ONCE, Retryable(), attempt=number)) for number in (1, 2, 3, 4)] == [
        RetryAt, RetryAt, GiveUp, GiveUp,
    ]  # fmt: skip


def test_a_list_of_classes_replaces_the_table_but_a_doubt_is_never_repeated() -> None:
    own = Retry(attempts=3, wait=wait_none(), on=[ValueError, Unclear])
    assert isinstance(after(own, ValueError()), RetryAt)
    assert isinstance(after(own, Retryable()), GiveUp)
    assert isinstance(after(own, Unclear("who knows")), GiveUp)


def test_d10_tenacity_decides_over_stored_instants() -> None:
    growing = Retry(attempts=9, wait=wait_exponential(multiplier=2, max=60))
    assert [after(growing, Retryable(), attempt=number) for number in (1, 2, 3)] == [
        RetryAt(NOW + timedelta(seconds=seconds)) for seconds in (2, 4, 8)
    ]
    patient = Retry(attempts=9, wait=wait_fixed(1), stop=stop_after_delay(10))
    assert isinstance(after(patient, Retryable(), elapsed=9), RetryAt)
    assert isinstance(after(patient, Retryable(), elapsed=11), GiveUp)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (http(429, {"Retry-After": "30"}), 30),
        (http(503, {"retry-after": "Tue, 01 Jan 2030 12:05:00 GMT"}), 300),
        (http(429, {"Retry-After": "-1"}), 0),
        (http(429, {"Retry-After": "nan"}), 0),
        (http(429, {"Retry-After": "soon"}), 0),
        (http(429, {"Retry-After": "Mon, 31 Dec 2029 00:00:00 GMT"}), 0),
        (http(429), 0),
        (Unavailable("later", retry_after=7), 7),
        (Unavailable("later", retry_after=math.nan), 0),
        (Unavailable("later", retry_after=math.inf), 0),
        (Retryable("again"), 0),
    ],
)
def test_b30_a_wait_that_is_asked_for_is_understood_or_passed_over(error: Any, seconds: float) -> None:
    assert asked_wait(error, NOW) == seconds


def test_b30_the_longer_of_the_two_waits_counts_and_none_is_without_end() -> None:
    policy = Retry(attempts=3, wait=wait_fixed(10))
    assert after(policy, http(429, {"Retry-After": "2"})) == RetryAt(NOW + timedelta(seconds=10))
    assert after(policy, http(429, {"Retry-After": "300"})) == RetryAt(NOW + timedelta(seconds=300))
    endless = Retry(attempts=3, wait=wait_fixed(10**9))
    assert after(endless, Retryable()) == RetryAt(NOW + timedelta(seconds=LONGEST_WAIT))
