"""Asking: which texts are an answer, the one re-ask, what is kept in the ledger, and what it all took."""

from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum

import pytest
from pydantic import BaseModel

from agentflow.failures import Invalid, ModelFailure, Refused, Truncated, Unavailable
from agentflow.llm.choice import ModelQuestion, ask
from agentflow.llm.client import Usage
from agentflow.llm.pool import ModelClients
from agentflow.llm.reading import Read, Unreadable, answer_schema, read_answer
from agentflow.model.members import ambiguous_members, match_member
from agentflow.model.values import Model
from agentflow.testing.scripted import ScriptedModel, cut, refusal, reply, status, unreachable
from tests.llm.asking import MESSAGES, MODEL, Assessment, Ledger, Verdict, asked

FORM = Assessment(amount=Decimal("12.50"), items=["A", "B"])


# --- what is an answer (B21) -------------------------------------------------------------------------------------


async def test_an_answer_in_the_schema_is_read_with_its_reason(pool: ModelClients) -> None:
    answer = await asked(pool, [reply(Verdict.REFUND, reason="it never came")])

    assert (answer.outcome, answer.reason, answer.data) == (Verdict.REFUND, "it never came", None)
    assert (answer.how, answer.turns, answer.ladder) == ("schema", 1, ("json_schema",))
    assert (answer.model_asked, answer.model_answered) == ("any-model", "any-model")


NORMALISED = {
    "blanks": " Refund\n",
    "capitals": "REFUND",
    "quotes": '"Refund"',
    "single quotes": "'refund'",
    "backticks": "`refund`",
    "fenced json": '```json\n{"reason": "r", "choice": "refund"}\n```',
    "fenced word": "```\nrefund\n```",
    "choice in capitals": '{"reason": "r", "choice": "REFUND"}',
    "choice with blanks": '{"reason": "r", "choice": " refund "}',
    "no reason": '{"choice": "refund"}',
}


@pytest.mark.parametrize("text", NORMALISED.values(), ids=NORMALISED.keys())
def test_b21_the_one_normalisation_is_recorded_as_such(text: str) -> None:
    found = read_answer(text, Verdict, None)

    assert isinstance(found, Read)
    assert (found.outcome, found.is_exact) == (Verdict.REFUND, False)


INVALID = {
    "label": "Category: refund",
    "negation": "not refund",
    "two labels": "refund or reject",
    "full-width letters": "\uff32\uff45\uff46\uff55\uff4e\uff44",
    "full stop": "refund.",
    "zero-width space": "refund\u200b",
    "prose": "I think we should refund this.",
    "prose around json": 'Sure! {"reason": "r", "choice": "refund"}',
    "prose around a fence": 'Sure!\n```json\n{"reason": "r", "choice": "refund"}\n```',
    "two fences": "```\nrefund\n```\n```\nreject\n```",
    "unknown": '{"reason": "r", "choice": "approve"}',
    "negation in json": '{"reason": "r", "choice": "not refund"}',
    "choice as a list": '{"reason": "r", "choice": ["refund"]}',
    "choice null": '{"reason": "r", "choice": null}',
    "no choice": '{"reason": "refund"}',
    "another field": '{"reason": "r", "verdict": "refund"}',
    "two choices": '{"reason": "r", "choice": "refund", "choice": "reject"}',
    "reason as a list": '{"reason": [], "choice": "refund"}',
    "half of it": '{"reason": "r", "choice": "refund"',
    "a list": '["refund"]',
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID.keys())
def test_b21_everything_else_is_no_answer(text: str) -> None:
    assert isinstance(read_answer(text, Verdict, None), Unreadable)


class Step(Enum):
    GO_ON = "go-on"
    STOP_NOW = 2


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ("go-on", Step.GO_ON),
        ("Go On", Step.GO_ON),
        ("go_on", Step.GO_ON),
        ("STOP_NOW", Step.STOP_NOW),
        ("stop now", Step.STOP_NOW),
        ("2", None),
        ("go", None),
    ],
)
def test_a_member_is_named_by_its_value_or_its_name(text: str, member: Step | None) -> None:
    assert match_member(text, Step) is member


def test_a_member_whose_value_is_no_text_is_offered_by_its_name() -> None:
    schema = answer_schema(Step, None)

    assert schema is not None
    assert schema["properties"]["choice"]["enum"] == ["go-on", "STOP_NOW"]
    assert list(schema["properties"]) == ["reason", "choice"]


class Clashing(StrEnum):
    SPAM = "spam"
    LOUD = "SPAM"
    FIRST = "second"
    SECOND = "first"
    OTHER = "other"


def test_b21_members_that_are_equal_after_the_normalisation_are_found_for_the_check() -> None:
    assert ambiguous_members(Clashing) == [(Clashing.SPAM, Clashing.LOUD), (Clashing.FIRST, Clashing.SECOND)]
    assert ambiguous_members(Verdict) == []


def test_an_ambiguous_text_names_nobody_but_the_exact_value_does() -> None:
    assert match_member("Spam", Clashing) is None
    found = read_answer('{"reason": "", "choice": "SPAM"}', Clashing, None)
    assert isinstance(found, Read)
    assert found.outcome is Clashing.LOUD


def test_half_a_surrogate_pair_in_a_reason_can_be_stored() -> None:
    found = read_answer('{"reason": "a\\ud800", "choice": "refund"}', Verdict, None)

    assert isinstance(found, Read)
    assert found.reason == "a?"


# --- forms and texts ---------------------------------------------------------------------------------------------


async def test_a_choice_comes_with_its_form(pool: ModelClients) -> None:
    answer = await asked(pool, [reply(Verdict.REFUND, data=FORM)], answer=Assessment)

    assert (answer.outcome, answer.data, answer.how) == (Verdict.REFUND, FORM, "schema")


async def test_without_an_enum_the_form_itself_is_the_answer(pool: ModelClients) -> None:
    answer = await asked(pool, [reply(data=FORM)], outcome=None, answer=Assessment)

    assert (answer.outcome, answer.data, answer.how, answer.reason) == (None, FORM, "schema", "")


async def test_with_neither_the_text_is_the_answer_as_it_is(pool: ModelClients) -> None:
    with ScriptedModel([reply(text=" Dear Ms Doe \n")]) as script:
        answer = await ask(pool.client(MODEL), MODEL, ModelQuestion(MESSAGES), Ledger())

    assert (answer.outcome, answer.data, answer.how) == (None, " Dear Ms Doe \n", "text")
    assert "response_format" not in script.requests[0].body


async def test_a_form_that_does_not_fit_is_asked_again_with_the_field_named(pool: ModelClients) -> None:
    wrong = {"amount": "much", "items": []}
    with ScriptedModel([reply("refund", data=wrong), reply("refund", data=FORM)]) as script:
        answer = await ask(pool.client(MODEL), MODEL, ModelQuestion(MESSAGES, Verdict, Assessment), Ledger())

    assert answer.data == FORM
    assert "data.amount: Input should be a valid decimal" in script.requests[1].prompt


@pytest.mark.parametrize("text", ['{"reason": "r", "choice": "refund"}', "refund", '{"data": {}}'])
def test_a_choice_without_its_form_is_no_answer(text: str) -> None:
    assert isinstance(read_answer(text, Verdict, Assessment), Unreadable)


def test_a_form_is_read_as_json_also_where_a_model_is_strict() -> None:
    class Strict(BaseModel, strict=True):
        due: date
        tags: set[str]

    found = read_answer('{"choice": "refund", "data": {"due": "2026-12-01", "tags": ["a"]}}', Verdict, Strict)

    assert isinstance(found, Read)
    assert found.data == Strict(due=date(2026, 12, 1), tags={"a"})


# --- the one re-ask (B20, B26) -----------------------------------------------------------------------------------


async def test_b20_a_value_outside_the_enum_is_asked_again_once_with_the_choices_named(pool: ModelClients) -> None:
    with ScriptedModel([reply("approve"), reply("refund")]) as script:
        answer = await ask(pool.client(MODEL), MODEL, ModelQuestion(MESSAGES, Verdict), Ledger())

    assert (answer.outcome, answer.how, answer.turns) == (Verdict.REFUND, "re-asked", 2)
    sent = script.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert "approve" in sent[1]["content"]
    assert "'approve' is none of the choices: refund, reject, escalate" in sent[2]["content"]


async def test_b20_twice_outside_the_enum_is_invalid_with_the_raw_text_and_never_a_choice(pool: ModelClients) -> None:
    with pytest.raises(Invalid) as caught:
        await asked(pool, [reply("approve"), reply("approve", reason="again")])

    assert caught.value.text == '{"reason": "again", "choice": "approve"}'
    assert "refund, reject, escalate" in str(caught.value)
    assert caught.value.usage == Usage(2, 40, 16, Decimal("0.000052"))


async def test_b26_prose_where_json_was_required_is_asked_again_once(pool: ModelClients) -> None:
    answer = await asked(pool, [reply(text="Let me think about it."), reply("reject")])

    assert (answer.outcome, answer.usage.calls) == (Verdict.REJECT, 2)


async def test_b26_always_prose_is_invalid_after_two_calls(pool: ModelClients) -> None:
    with pytest.raises(Invalid, match="not one JSON object") as caught:
        await asked(pool, [reply(text="Well."), reply(text="Well, well.")])

    assert (caught.value.text, caught.value.usage.calls) == ("Well, well.", 2)


async def test_b22_a_cut_second_turn_is_truncated_with_the_tokens_of_both(pool: ModelClients) -> None:
    with pytest.raises(Truncated) as caught:
        await asked(pool, [reply("approve"), cut()])

    assert (caught.value.usage.calls, caught.value.usage.tokens_in) == (2, 40)


async def test_b23_a_refused_second_turn_is_a_refusal(pool: ModelClients) -> None:
    with pytest.raises(Refused, match="refused: I can't"):
        await asked(pool, [reply("approve"), refusal("I can't")])


# --- the ledger --------------------------------------------------------------------------------------------------


async def test_a_recorded_reply_is_never_asked_again(pool: ModelClients) -> None:
    ledger = Ledger()
    first = await asked(pool, [reply("approve"), reply("refund")], ledger=ledger)
    second = await asked(pool, [], ledger=ledger)

    assert second == first
    assert ledger.written == 2


@pytest.mark.parametrize("answer", [cut(), refusal("no"), reply("refund", finish="content_filter")])
async def test_a_reply_is_recorded_before_it_is_judged(pool: ModelClients, answer) -> None:
    ledger = Ledger()
    with pytest.raises(ModelFailure) as first:
        await asked(pool, [answer], ledger=ledger)
    with pytest.raises(ModelFailure) as second:
        await asked(pool, [], ledger=ledger)

    assert (type(first.value), str(first.value)) == (type(second.value), str(second.value))
    assert first.value.usage == second.value.usage


async def test_after_a_crash_between_two_turns_only_the_second_is_asked(pool: ModelClients) -> None:
    ledger = Ledger()
    with pytest.raises(Unavailable) as caught:
        await asked(pool, [reply("approve"), unreachable()], ledger=ledger)
    answer = await asked(pool, [reply("refund")], ledger=ledger)

    assert (caught.value.usage.calls, caught.value.usage.tokens_in) == (2, 20)
    assert (answer.outcome, answer.how, answer.usage.calls) == (Verdict.REFUND, "re-asked", 2)


async def test_an_error_is_not_recorded_and_the_retry_asks(pool: ModelClients) -> None:
    ledger = Ledger()
    with pytest.raises(Unavailable):
        await asked(pool, [status(503)], ledger=ledger)

    assert (await asked(pool, [reply("refund")], ledger=ledger)).turns == 1


# --- what it took ------------------------------------------------------------------------------------------------


async def test_cost_is_exact_and_sums_over_the_turns(pool: ModelClients) -> None:
    answer = await asked(pool, [reply("approve", tokens=(1000, 10)), reply("refund", tokens=(2000, 20))])

    assert answer.usage == Usage(2, 3000, 30, Decimal("0.00156"))


async def test_without_prices_the_cost_is_unknown_but_not_the_tokens(pool: ModelClients) -> None:
    answer = await asked(pool, [reply("refund")], model=Model("m", base_url=MODEL.base_url, api_key="test"))

    assert answer.usage == Usage(1, 20, 8, None)


async def test_a_turn_without_usage_makes_the_sum_unknown_instead_of_too_small(pool: ModelClients) -> None:
    answer = await asked(pool, [reply("approve"), reply("refund", tokens=None)])

    assert answer.usage == Usage(2, None, None, None)
