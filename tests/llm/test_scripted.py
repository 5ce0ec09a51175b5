"""B78: the scripted model catches the client that the engine really builds, and says what the script lacks."""

import importlib
import socket
from decimal import Decimal
from enum import StrEnum
from typing import NoReturn

import httpx2
import openai
import pytest
from pydantic import BaseModel

from agentflow.errors import ConfigurationError
from agentflow.failures import Unavailable
from agentflow.llm.choice import ModelQuestion, ask
from agentflow.llm.client import ModelRequest
from agentflow.llm.pool import ModelClients
from agentflow.model.values import Model
from agentflow.testing.scripted import (
    ScriptedModel,
    ScriptedReply,
    ScriptedRequest,
    ScriptError,
    refusal,
    reply,
    status,
)
from tests.llm.asking import MESSAGES, MODEL, Ledger, Verdict

REQUEST = ModelRequest("any-model", MESSAGES)


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


async def test_b78_the_default_client_is_answered_without_a_socket(
    pool: ModelClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    with ScriptedModel([reply(Verdict.REFUND)]) as script:
        answer = await ask(pool.client(Model("gpt-x")), Model("gpt-x"), ModelQuestion(MESSAGES, Verdict), Ledger())

    assert answer.outcome is Verdict.REFUND
    assert script.requests[0].url == "https://api.openai.com/v1/chat/completions"


async def test_b78_a_client_that_an_author_builds_is_answered_too() -> None:
    with ScriptedModel([reply(text="fine")]):
        async with openai.AsyncOpenAI(api_key="test", max_retries=0) as client:
            completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])

    assert completion.choices[0].message.content == "fine"
    assert completion.id == "chatcmpl-1"
    assert completion.object == "chat.completion"
    assert completion.model == "m"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 28


def test_b78_a_synchronous_client_is_answered_too() -> None:
    with ScriptedModel([reply(text="fine")]), openai.OpenAI(api_key="test", max_retries=0) as client:
        completion = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])

    assert completion.choices[0].message.content == "fine"


async def test_b78_an_exhausted_script_is_a_clear_error_at_once(pool: ModelClients) -> None:
    async def ask_twice() -> None:
        for _ in range(2):
            await pool.client(MODEL).complete(REQUEST)

    words = r"call 2 was not foreseen, the script ends after 1; its prompt begins 'What about order A1"
    with pytest.raises(ScriptError, match=words), ScriptedModel([reply(text="fine")]):
        await ask_twice()


async def test_b78_a_program_that_copes_with_the_error_does_not_pass(pool: ModelClients) -> None:
    script = ScriptedModel([])
    with pytest.raises(ScriptError, match="call 1 was not foreseen"), script, pytest.raises(ScriptError):
        await pool.client(MODEL).complete(REQUEST)


async def test_b78_another_address_is_refused_at_once(pool: ModelClients) -> None:
    with pytest.raises(ScriptError, match=r"not GET http://model\.test/v1/models"), ScriptedModel([]):
        async with httpx2.AsyncClient() as client:
            await client.get("http://model.test/v1/models")


async def test_b78_replies_that_were_not_asked_for_are_counted(pool: ModelClients) -> None:
    script = ScriptedModel([reply(text="fine"), reply(text="more")])
    with pytest.raises(ScriptError, match="not used up: 1 of its replies"), script:
        await pool.client(MODEL).complete(REQUEST)

    with ScriptedModel([reply(text="fine")], assert_all_used=False) as script:
        assert script.unused == 1


def test_the_error_of_the_test_itself_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedModel([reply(text="fine")]):
        _ = 1 / 0


async def test_a_function_answers_by_the_request(pool: ModelClients) -> None:
    def answer(request: ScriptedRequest) -> ScriptedReply:
        assert "order A1" in request.prompt
        assert request.choices == ("refund", "reject", "escalate")
        return reply(request.choices[request.number - 1], reason=request.model)

    with ScriptedModel(answer) as script:
        answers = [await ask(pool.client(MODEL), MODEL, ModelQuestion(MESSAGES, Verdict), Ledger()) for _ in range(2)]

    assert [one.outcome for one in answers] == [Verdict.REFUND, Verdict.REJECT]
    assert answers[0].reason == "any-model"
    assert script.unused == 0


async def test_an_error_in_the_function_reaches_the_test(pool: ModelClients) -> None:
    def answer(request: ScriptedRequest) -> ScriptedReply:
        raise KeyError("order A1")

    with pytest.raises(KeyError, match="order A1"), ScriptedModel(answer), pytest.raises(KeyError):
        await pool.client(MODEL).complete(REQUEST)


def test_two_scripts_at_once_are_refused() -> None:
    second = ScriptedModel([])
    with ScriptedModel([]), pytest.raises(ScriptError, match="another scripted model is at work"), second:
        pass


async def test_a_script_ends_with_its_block(pool: ModelClients) -> None:
    with ScriptedModel([]):
        pass
    with pytest.raises(AssertionError, match="a socket was opened"):
        await pool.client(MODEL).complete(REQUEST)


async def test_a_status_and_a_refusal_look_like_a_provider(pool: ModelClients) -> None:
    with ScriptedModel([status(429, retry_after=2), refusal("no")]):
        with pytest.raises(Unavailable) as caught:
            await pool.client(MODEL).complete(REQUEST)
        got = await pool.client(MODEL).complete(REQUEST)

    assert caught.value.retry_after == 2
    assert (got.refusal, got.text) == ("no", "")


class Colour(StrEnum):
    RED = "red"


class Form(BaseModel):
    price: Decimal


def test_a_reply_may_be_written_with_members_and_models() -> None:
    assert reply(Colour.RED, data=Form(price=Decimal("1.5"))) == reply("red", data={"price": "1.5"})


def test_without_respx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.import_module("sys").modules, "respx", None)

    with pytest.raises(ConfigurationError, match=r"pip install 'agentflow-engine\[test\]'"), ScriptedModel([]):
        pass
