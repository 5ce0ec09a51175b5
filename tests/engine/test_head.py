"""What the engine remembers of a run comes back as it was, whatever came from outside."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.engine.head import Head, KeptAnswer, Usage, failure_from_json, failure_to_json, memory_of, with_memory
from agentflow.failures import Refused, TimedOut
from agentflow.model.context import Kept
from agentflow.model.values import Failure, failure_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
BLANK = Head(
    run="r",
    revision=3,
    status="running",
    state="work",
    visit=2,
    kept=Kept({}, {}, {}, 0),
    started_at=NOON,
    entered_at=NOON,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
FAILURES = st.builds(
    Failure,
    kind=TEXTS,
    message=TEXTS,
    state=TEXTS,
    attempts=st.integers(1, 9),
    bases=st.lists(TEXTS, max_size=3).map(tuple),
    detail=TEXTS,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
HEADS = st.builds(
    replace,
    st.just(BLANK),
    visits=st.dictionaries(TEXTS, st.integers(1, 99), max_size=3),
    entered_at=st.datetimes(datetime(1980, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  as hypothesis wants it
    usage=st.builds(
        Usage,
        st.integers(0, 10**6),
        st.integers(0, 10**12),
        st.decimals(0, 10**6, allow_nan=False, allow_infinity=False, places=6),
    ),
    rescued=st.booleans(),
    generation=st.integers(0, 5),
    cause=st.none() | FAILURES,
    answer=st.none()
    | st.builds(
        KeptAnswer, outcome=st.none() | TEXTS, difference=TEXTS, facts=st.dictionaries(TEXTS, JSON, max_size=3)
    ),
)


@given(HEADS)
def test_what_was_remembered_comes_back(head: Head) -> None:
    assert with_memory(BLANK, memory_of(head)) == head


@given(HEADS, HEADS)
def test_what_a_head_held_before_does_not_shine_through(head: Head, before: Head) -> None:
    assert with_memory(before, memory_of(head)) == head


@given(FAILURES)
def test_a_failure_comes_back(failure: Failure) -> None:
    assert failure_from_json(failure_to_json(failure)) == failure


def test_no_failure_is_stored_as_nothing() -> None:
    assert failure_to_json(None) is None
    assert failure_from_json(None) is None


def test_a_failure_matches_its_bases_after_it_was_stored() -> None:
    failure = failure_from_json(failure_to_json(failure_of(TimedOut("late"), "work")))
    assert failure is not None
    assert (failure.matches(TimedOut), failure.matches(TimeoutError), failure.matches(Refused)) == (True, False, False)
    assert failure.matches(Exception)


def test_a_cost_keeps_its_digits() -> None:
    head = replace(BLANK, usage=Usage(1, 2, Decimal("0.1000")))
    assert str(with_memory(BLANK, memory_of(head)).usage.cost) == "0.1000"


def test_an_instant_in_another_zone_is_the_same_instant() -> None:
    head = replace(BLANK, entered_at=NOON.astimezone(timezone(timedelta(hours=-8))))
    assert with_memory(BLANK, memory_of(head)).entered_at == NOON


HALF = "a \ud800 name"


@pytest.mark.parametrize(
    "changes",
    [
        {"cause": Failure("E", HALF, "work", detail=HALF, bases=(HALF,))},
        {"answer": KeptAnswer(None, "{}", {"answer": {"reason": HALF, HALF: [HALF]}})},
    ],
)
def test_half_a_character_from_outside_is_escaped_and_stops_nothing(changes: dict[str, Any]) -> None:
    text = memory_of(replace(BLANK, **changes))
    assert "a \\\\ud800 name" in text
    back = with_memory(BLANK, text)
    assert (back.cause is None, back.answer is None) == ("cause" not in changes, "answer" not in changes)


def test_a_failure_with_half_a_character_in_its_message_can_be_stored() -> None:
    failure = failure_from_json(failure_to_json(failure_of(ValueError(HALF), "work")))
    assert failure is not None
    assert failure.message == "a \\ud800 name"
    assert failure.matches(ValueError)


class Mute(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_cannot_speak_is_told_by_its_class() -> None:
    assert failure_of(Mute(), "work").message == "Mute"


def test_a_failure_is_told_in_reasonable_length() -> None:
    assert len(failure_of(ValueError("x" * 100_000), "work").message) == 5_000
