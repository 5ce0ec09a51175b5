"""B28: servers that take no schema, or know the limit of tokens by its other name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentflow.failures import Invalid, ModelFailure
from agentflow.llm.choice import ModelAnswer, ModelQuestion, ask
from agentflow.llm.pool import ModelClients
from agentflow.model.values import Model
from agentflow.testing.scripted import ScriptedModel, ScriptedReply, ScriptedRequest, reply, status
from tests.llm.asking import MESSAGES, MODEL, Ledger, Verdict


async def put(
    pool: ModelClients,
    server: Callable[[ScriptedRequest], ScriptedReply],
    *,
    model: Model = MODEL,
    max_tokens: int | None = None,
) -> tuple[ModelAnswer, list[ScriptedRequest]]:
    with ScriptedModel(server) as script:
        question = ModelQuestion(MESSAGES, Verdict, max_tokens=max_tokens)
        return await ask(pool.client(model), model, question, Ledger()), script.requests


def refusing(
    *formats: str, words: str = "This response_format type is unavailable now"
) -> Callable[..., ScriptedReply]:
    """A server that refuses these formats by a 400."""

    def answer(request: ScriptedRequest) -> ScriptedReply:
        wanted: dict[str, Any] = request.body.get("response_format", {})
        if wanted.get("type") in formats:
            return status(400, message=words)
        return reply("refund") if wanted else reply(text="Refund")

    return answer


async def test_b28_one_step_down_and_the_second_question_costs_one_request(pool: ModelClients) -> None:
    server = refusing("json_schema")
    first, first_requests = await put(pool, server)
    second, second_requests = await put(pool, server)

    assert (len(first_requests), first.usage.calls, first.ladder) == (2, 2, ("json_schema", "json_object"))
    assert (len(second_requests), second.usage.calls, second.ladder) == (1, 1, ("json_object",))
    assert first.outcome is second.outcome is Verdict.REFUND


async def test_b28_a_server_that_refuses_both_is_asked_for_text_with_the_schema_in_the_prompt(
    pool: ModelClients,
) -> None:
    answer, requests = await put(pool, refusing("json_schema", "json_object"))

    assert answer.ladder == ("json_schema", "json_object", "text")
    assert answer.how == "normalised"
    assert "response_format" not in requests[2].body
    assert [message["role"] for message in requests[2].body["messages"]] == ["user"]
    assert '"enum": ["refund", "reject", "escalate"]' in requests[2].prompt
    assert "JSON" in requests[1].prompt
    assert "JSON" not in requests[0].prompt


async def test_b28_the_enum_is_enforced_here_where_the_server_does_not(pool: ModelClients) -> None:
    def server(request: ScriptedRequest) -> ScriptedReply:
        wanted: dict[str, Any] = request.body["response_format"]
        return status(400, message="json_schema unavailable") if wanted["type"] == "json_schema" else reply("approve")

    with pytest.raises(Invalid) as caught:
        await put(pool, server)

    assert caught.value.usage.calls == 3


@pytest.mark.parametrize(
    "words",
    [
        "the prompt is too long",
        "Invalid schema for response_format 'answer': schema must have type object",
        "max_tokens is too large: 5000. This model supports at most 4096 completion tokens",
    ],
)
async def test_b28_an_unrelated_400_is_raised_unchanged_with_no_second_call(pool: ModelClients, words: str) -> None:
    with pytest.raises(ModelFailure) as caught:
        await put(pool, refusing("json_schema", words=words), max_tokens=5000)

    assert type(caught.value) is ModelFailure
    assert words in str(caught.value)
    assert caught.value.usage.calls == 1


async def test_b28_another_status_than_400_is_no_refusal_of_the_format(pool: ModelClients) -> None:
    def server(request: ScriptedRequest) -> ScriptedReply:
        return status(404, message="response_format")

    with pytest.raises(ModelFailure) as caught:
        await put(pool, server)

    assert caught.value.usage.calls == 1


async def test_b28_what_was_learned_holds_for_that_model_at_that_server_only(pool: ModelClients) -> None:
    await put(pool, refusing("json_schema"))
    other, _ = await put(pool, refusing(), model=replace(MODEL, name="other"))
    elsewhere, _ = await put(pool, refusing(), model=replace(MODEL, base_url="http://elsewhere.test/v1"))

    assert other.ladder == elsewhere.ladder == ("json_schema",)


async def test_b28_a_step_that_led_to_no_answer_is_not_remembered(pool: ModelClients) -> None:
    def failing(request: ScriptedRequest) -> ScriptedReply:
        return status(400, message="response_format?") if request.number == 1 else status(500)

    with pytest.raises(ModelFailure):
        await put(pool, failing)
    answer, _ = await put(pool, refusing())

    assert answer.ladder == ("json_schema",)


async def test_the_limit_of_tokens_has_the_name_that_the_server_knows(pool: ModelClients) -> None:
    openai = Model("gpt-x", api_key="test")
    _, there = await put(pool, refusing(), model=openai, max_tokens=99)
    _, here = await put(pool, refusing(), max_tokens=99)

    assert (there[0].body.get("max_completion_tokens"), there[0].body.get("max_tokens")) == (99, None)
    assert (here[0].body.get("max_completion_tokens"), here[0].body.get("max_tokens")) == (None, 99)


async def test_b29_a_refused_name_of_the_limit_is_changed_once_and_remembered(pool: ModelClients) -> None:
    def server(request: ScriptedRequest) -> ScriptedReply:
        if "max_tokens" in request.body:
            words = "Unsupported parameter: 'max_tokens' is not supported with this model."
            return status(400, message=words, param="max_tokens", error_code="unsupported_parameter")
        return reply("refund")

    first, _ = await put(pool, server, max_tokens=99)
    second, requests = await put(pool, server, max_tokens=99)

    assert (first.usage.calls, second.usage.calls) == (2, 1)
    assert requests[0].body["max_completion_tokens"] == 99


async def test_b29_a_server_that_knows_neither_name_is_not_asked_for_ever(pool: ModelClients) -> None:
    def server(request: ScriptedRequest) -> ScriptedReply:
        return status(400, message="unknown parameter: max_tokens, max_completion_tokens")

    with pytest.raises(ModelFailure) as caught:
        await put(pool, server, max_tokens=99)

    assert caught.value.usage.calls == 2
