"""New names are checked by `build`, and an outline is a definition without its code."""

from enum import StrEnum
from typing import Any

import pytest

from agentflow import Context, DefinitionError, Question, Run, Workflow
from agentflow.model.outline import outline_from, outline_of
from tests.versions.claims import claim


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class Other(StrEnum):
    MAYBE = "maybe"


def build(renamed: Any) -> Workflow[Context, None]:
    flow = Workflow("names", Context)

    @flow.step()
    async def weigh(case: Context, run: Run) -> None: ...

    @flow.human(Verdict)
    def ask(case: Context) -> Question:
        return Question("?")

    done = flow.end("done")
    places = {"weigh": weigh, "ask": ask, "done": done, "approve": Verdict.APPROVE, "maybe": Other.MAYBE}
    found: dict[Any, Any] = {
        key: places.get(value, value) if isinstance(value, str) else value for key, value in renamed.items()
    }
    rows = [weigh.to(ask), ask.on(Verdict.APPROVE, Verdict.REJECT).to(done)]
    flow.build(start=weigh, transitions=rows, renamed=found)
    return flow


def test_new_names_of_states_ends_and_members_are_understood() -> None:
    flow = build(
        {"measure": "weigh", "question": "ask", "over": "done", "question.YES": "approve", "ask.OK": "approve"}
    )
    renames = flow.definition.renames
    assert [renames.place(name) for name in ("measure", "question", "over", "other")] == [
        "weigh",
        "ask",
        "done",
        "other",
    ]
    assert [renames.member("ask", name) for name in ("YES", "OK", "REJECT")] == ["APPROVE", "APPROVE", "REJECT"]


WRONG: list[tuple[dict[Any, Any], str]] = [
    ({"ask": "weigh"}, "there is still something of that name"),
    ({"done": "weigh"}, "there is still something of that name"),
    ({"question.YES": "approve"}, "there is no state 'question'"),
    ({"asj.YES": "approve"}, "did you mean 'ask'?"),
    ({"YES": "approve"}, "'state.MEMBER', such as 'ask.YES'"),
    ({"ask.REJECT": "approve"}, "still answers REJECT"),
    ({"ask.NO": "maybe"}, "does not answer <Other.MAYBE"),
    ({"weigh.NO": "approve"}, "does not answer <Verdict.APPROVE"),
    ({"a.b": "ask"}, "the key names a member, the value 'ask' is none"),
    ({"a": "nowhere"}, "the value is the new state, end or member, not 'nowhere'"),
    ({7: "ask"}, "the key is the old name, as text"),
    ({"a": claim().states[0]}, "'fetch' is of workflow 'claim'"),
]


@pytest.mark.parametrize(("renamed", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
def test_a_new_name_that_cannot_be_is_a_problem_of_the_build(renamed: dict[Any, Any], told: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        build(renamed)
    assert told in str(raised.value)


def test_an_outline_comes_back_from_its_text_as_it_was() -> None:
    outline = outline_of(claim().definition)
    again = outline_from(outline.text())
    assert (again, again.text()) == (outline, outline.text())
    assert [*again.states] == ["fetch", "triage", "judge", "review", "pay"]
    assert [str(way) for way in again.states["triage"].ways] == [
        "FAST [small] -> pay",
        "FAST -> judge",
        "FULL -> judge",
    ]
    assert again.states["judge"].members == (("LOW", "low"), ("HIGH", "high"))
    assert again.context.required == {"order"}


@pytest.mark.parametrize(
    ("change", "state", "same"),
    [
        ("a guard's body is another", "triage", True),
        ("a prompt is another", "judge", True),
        ("a body is another", "fetch", True),
        ("a guard has another name", "triage", False),
        ("a member is added", "review", False),
        ("the form of an answer is another", "review", False),
    ],
)
def test_the_shape_of_a_state_holds_what_runs_depend_on_and_code_does_not_count(
    change: str, state: str, same: bool
) -> None:
    before, after = claim().definition.states[state], claim(change).definition.states[state]
    assert (before.shape == after.shape) is same
    assert (claim().definition.shape == claim(change).definition.shape) is same
