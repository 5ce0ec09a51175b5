"""Large fields of a copy: read when they are looked at, and never missed by what goes past attributes."""

import copy
import pickle
from typing import Any

import pydantic_core
import pytest
from pydantic import model_validator

from agentflow import Context
from agentflow.errors import InvalidContext
from agentflow.model.context import EAGER_BYTES, plan_of
from agentflow.model.unread import unread_of


class Big(Context):
    n: int = 0
    big: list[dict[str, int]] = []
    small: list[int] = [1]


PLAN = plan_of(Big)
BIG = [{"number": number} for number in range(EAGER_BYTES)]


def fresh() -> Big:
    """A copy that has not read its large field."""
    kept, _ = PLAN.start(Big(n=1, big=BIG))
    made = PLAN.copy(kept)
    assert "big" not in vars(made)
    return made


def test_a_large_field_is_read_at_the_first_look_and_is_private_to_its_copy() -> None:
    kept, _ = PLAN.start(Big(n=1, big=BIG))
    one, other = PLAN.copy(kept), PLAN.copy(kept)
    one.big.append({"number": -1})
    assert (len(one.big), len(other.big)) == (len(BIG) + 1, len(BIG))


def test_a_field_that_nobody_looked_at_is_unchanged_and_not_read() -> None:
    kept, _ = PLAN.start(Big(n=1, big=BIG))
    body = PLAN.copy(kept)
    body.n = 2
    after, difference = PLAN.keep(kept, body)
    assert (difference.text(), "big" in vars(body)) == ('{"set":{"n":2}}', False)
    assert PLAN.copy(after).big == BIG


def test_a_change_of_a_large_field_is_found_and_an_assignment_needs_no_look() -> None:
    kept, _ = PLAN.start(Big(big=BIG))
    changed, assigned = PLAN.copy(kept), PLAN.copy(kept)
    changed.big[0]["number"] = 7
    assigned.big = []
    assert PLAN.keep(kept, changed)[0].texts["big"].startswith(b'[{"number":7}')
    assert PLAN.keep(kept, assigned)[1].text() == '{"set":{"big":[]}}'


def test_small_mutable_fields_are_read_at_once() -> None:
    assert vars(fresh())["small"] == [1]


READERS: dict[str, Any] = {
    "model_dump": lambda case: case.model_dump()["big"],
    "model_dump_json": lambda case: pydantic_core.from_json(case.model_dump_json())["big"],
    "iteration": lambda case: dict(case)["big"],
    "model_copy": lambda case: case.model_copy().big,
    "copy": lambda case: copy.copy(case).big,
    "deepcopy": lambda case: copy.deepcopy(case).big,
    "pickle": lambda case: pickle.loads(pickle.dumps(case)).big,
    "repr": lambda case: BIG if "'number': 3999" in repr(case) else repr(case),
    "equality": lambda case: BIG if case == Big(n=1, big=BIG) else None,
}


@pytest.mark.parametrize("way", READERS)
def test_what_goes_past_attributes_sees_all_fields_in_their_order(way: str) -> None:
    case = fresh()
    assert READERS[way](case) == BIG
    assert list(case.model_dump()) == ["n", "big", "small"]


def test_copies_of_a_copy_do_not_share_what_they_read() -> None:
    case = fresh()
    other = copy.copy(case)
    case.big.clear()
    assert other.big == BIG


def test_a_name_that_is_no_field_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="bigg"):
        getattr(fresh(), "bigg")  # noqa: B009  checkers know that it is none


def test_a_field_that_was_deleted_is_missed() -> None:
    kept, _ = PLAN.start(Big())
    body = PLAN.copy(kept)
    del body.n
    with pytest.raises(InvalidContext, match=r"context\.n"):
        PLAN.keep(kept, body)


class Checked(Context):
    n: int = 0
    big: list[int] = []

    @model_validator(mode="after")
    def all_below(self) -> "Checked":
        if any(number > self.n for number in self.big):
            raise ValueError("a number is above n")
        return self


def test_a_validator_across_fields_sees_what_nobody_looked_at() -> None:
    plan = plan_of(Checked)
    kept, _ = plan.start(Checked(n=5000, big=list(range(5000))))
    body = plan.copy(kept)
    body.n = 10
    with pytest.raises(InvalidContext, match="above n"):
        plan.keep(kept, body)


def test_contexts_without_large_fields_hold_nothing_unread() -> None:
    kept, _ = PLAN.start(Big())
    assert list(unread_of(PLAN.copy(kept))) == []
