"""The prompts name every choice and just the variables that their states fill."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from definitions.content_review import ClassifyVars, Label
from definitions.refund import UnderstandVars
from definitions.wishes import Wish, WishDetails

PROMPTS = Path(__file__).parents[2] / "prompts"


@pytest.mark.parametrize(
    ("name", "variables", "choices"),
    [
        ("refund/understand.md", UnderstandVars.__annotations__, Wish),
        ("content_review/classify.md", ClassifyVars.__annotations__, Label),
    ],
)
def test_a_prompt_has_the_variables_and_the_criteria_of_its_state(
    name: str, variables: dict[str, object], choices: type[StrEnum]
) -> None:
    text = (PROMPTS / name).read_text(encoding="utf-8")
    assert set(re.findall(r"{{ (\w+)", text)) == variables.keys()
    assert {choice for choice in choices if f"\n- `{choice}`: " in text} == set(choices)


def test_what_a_customer_or_an_author_writes_is_fenced() -> None:
    assert "{{ request | fenced }}" in (PROMPTS / "refund/understand.md").read_text(encoding="utf-8")
    assert "{{ text | fenced }}" in (PROMPTS / "content_review/classify.md").read_text(encoding="utf-8")


def test_the_prompt_explains_every_detail_that_is_asked_for() -> None:
    text = (PROMPTS / "refund/understand.md").read_text(encoding="utf-8")
    assert [field for field in WishDetails.model_fields if f"\n- `{field}`: " not in text] == []
