"""The client: what each shape of an answer becomes, with the number of calls and what they used."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agentflow.failures import Filtered, ModelFailure, Refused, Retryable, Truncated, Unavailable
from agentflow.llm.client import ModelReply, ModelRequest, Usage
from agentflow.llm.faults import redactor, retry_after
from agentflow.llm.pool import ModelClients
from agentflow.testing.scripted import (
    ScriptedModel,
    ScriptedReply,
    breaks_off,
    cut,
    filtered,
    hangs,
    raw,
    refusal,
    reply,
    status,
    unreachable,
)
from tests.llm.asking import BRIEF, MESSAGES, MODEL, Verdict, asked, body, choice_body, completed

# --- bodies that are answers -------------------------------------------------------------------------------------


async def test_a_plain_answer_comes_with_model_finish_and_tokens(pool: ModelClients) -> None:
    got = await completed(pool, [reply(text="fine", tokens=(11, 3))])

    assert (got.text, got.finish, got.refusal, got.model) == ("fine", "stop", None, "any-model")
    assert (got.tokens_in, got.tokens_out, got.calls) == (11, 3, 1)


async def test_a_server_that_keeps_silent_about_usage_leaves_it_unknown(pool: ModelClients) -> None:
    got = await completed(pool, [reply(text="fine", tokens=None)])

    assert (got.tokens_in, got.tokens_out) == (None, None)


async def test_content_in_parts_is_one_text(pool: ModelClients) -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "fi"}, {"type": "text", "text": "ne"}]

    assert (await completed(pool, [raw(choice_body(parts))])).text == "fine"


async def test_half_a_surrogate_pair_does_not_reach_the_run(pool: ModelClients) -> None:
    got = await completed(pool, [raw('{"choices": [{"message": {"content": "a\\ud800b"}}]}')])

    assert got.text == "a?b"


async def test_an_unknown_finish_reason_does_no_harm(pool: ModelClients) -> None:
    assert (await completed(pool, [raw(choice_body("fine", "eos"))])).text == "fine"


async def test_a_reply_is_rebuilt_from_its_json(pool: ModelClients) -> None:
    got = await completed(pool, [reply(text="für “you”\x00")])

    assert ModelReply.from_json(got.to_json()) == got
    assert '"object":"chat.completion"' in got.raw


# --- bodies that are none (B25), and every other row of the table of failures ------------------------------------

SHAPELESS = {
    "html": raw("<html>502 Bad Gateway</html>"),
    "html that calls itself json": raw("<html>oops</html>", headers={"content-type": "application/json"}),
    "broken json": raw('{"choices": [', headers={"content-type": "application/json"}),
    "json nested too deeply": raw("[" * 100_000, headers={"content-type": "application/json"}),
    "nothing": raw("", headers={"content-type": "application/json"}),
    "null": raw("null", headers={"content-type": "application/json"}),
    "a list": raw("[]", headers={"content-type": "application/json"}),
    "a text": raw('"fine"', headers={"content-type": "application/json"}),
    "an empty object": raw({}),
    "an error inside": raw({"error": {"message": "boom", "code": "server_error"}}),
    "an error text inside": raw({"error": "boom", "choices": None}),
    "an overload inside": raw({"error": {"message": "slow down", "code": 429}}),
    "no choices": raw(body(choices=[])),
    "choices null": raw(body(choices=None)),
    "choices as an object": raw(body(choices={"0": {}})),
    "a choice that is null": raw(body(choices=[None])),
    "a choice without message": raw(body(choices=[{"finish_reason": "stop"}])),
    "message null": raw(body(choices=[{"finish_reason": "stop", "message": None}])),
    "content null": raw(choice_body(None)),
    "content blank": raw(choice_body(" \n\t")),
    "content of another type": raw(choice_body(7)),
    "content an empty list": raw(choice_body([])),
    "a tool call that nobody offered": raw(choice_body(None, "tool_calls", tool_calls=[{"id": "c1"}])),
    "finish reason error": raw(choice_body("half an ans", "error")),
    "finish reason of another type": raw(choice_body("fine", 7)),
}


@pytest.mark.parametrize("answer", SHAPELESS.values(), ids=SHAPELESS.keys())
async def test_b25_an_answer_without_shape_is_unavailable_and_is_not_kept(
    pool: ModelClients, answer: ScriptedReply
) -> None:
    with pytest.raises(Unavailable, match="'any-model' answered 200") as caught:
        await asked(pool, [answer])

    assert caught.value.usage.calls == 1
    assert caught.value.retry_after is None


async def test_b25_tokens_of_a_shapeless_answer_are_not_lost(pool: ModelClients) -> None:
    with pytest.raises(Unavailable) as caught:
        await asked(pool, [raw(choice_body("  "))])

    assert (caught.value.usage.tokens_in, caught.value.usage.tokens_out) == (20, 8)


@pytest.mark.parametrize(
    "error", [{"message": "no money", "code": "insufficient_quota"}, {"message": "?", "code": 401}]
)
async def test_an_error_inside_a_200_that_will_not_pass_is_final(pool: ModelClients, error: dict[str, object]) -> None:
    with pytest.raises(ModelFailure) as caught:
        await asked(pool, [raw({"error": error})])

    assert not isinstance(caught.value, Retryable)


TYPED = {
    "refusal": (refusal("I can't help"), Refused, "I can't help"),
    "refusal beside content": (raw(choice_body("x", refusal="no")), Refused, "no"),
    "refusal as finish reason": (raw(choice_body("I won't", "refusal")), Refused, "I won't"),
    "cut in half": (cut('{"reason": "be'), Truncated, '{"reason": "be'),
    "cut to nothing": (cut(""), Truncated, ""),
    "cut to null": (raw(choice_body(None, "length")), Truncated, ""),
    "cut, but whole to the eye": (reply("refund", finish="length"), Truncated, "refund"),
    "cut by another word": (reply("refund", finish="max_tokens"), Truncated, "refund"),
    "filtered": (filtered(), Filtered, ""),
    "a prompt that was filtered": (status(400, message="no", error_code="content_filter"), Filtered, "no"),
    "filtered with text": (filtered('{"reason": "x", "choice": "refund"}'), Filtered, "refund"),
}


@pytest.mark.parametrize(("answer", "kind", "text"), TYPED.values(), ids=TYPED.keys())
async def test_b22_b23_no_whole_answer_is_a_typed_failure_after_one_call(
    pool: ModelClients, answer: ScriptedReply, kind: type[ModelFailure], text: str
) -> None:
    with pytest.raises(ModelFailure) as caught:
        await asked(pool, [answer])

    assert type(caught.value) is kind
    assert text in caught.value.text
    assert caught.value.usage.calls == 1
    assert caught.value.usage.tokens_in == (0 if answer.status == 400 else 20)


# --- statuses and connections (B30, B31) -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_b31_a_passing_status_is_worth_another_attempt_which_is_not_made_here(
    pool: ModelClients, code: int
) -> None:
    with pytest.raises(Unavailable, match=f"'any-model' answered {code}: busy") as caught:
        await asked(pool, [status(code, message="busy")])

    assert caught.value.usage == Usage(1, 0, 0, cost=caught.value.usage.cost)


FINAL = {
    "bad request": status(400, message="busy"),
    "context": status(400, message="maximum context length is 8192; max_tokens", error_code="context_length_exceeded"),
    "key": status(401),
    "permission": status(403),
    "model": status(404, error_code="model_not_found"),
    "unprocessable": status(422),
    "teapot": status(418),
    "quota": status(429, error_code="insufficient_quota"),
    "quota by type": status(429, kind="insufficient_quota", retry_after=5),
}


@pytest.mark.parametrize("answer", FINAL.values(), ids=FINAL.keys())
async def test_b31_a_lasting_status_is_final_after_one_call(pool: ModelClients, answer: ScriptedReply) -> None:
    with pytest.raises(ModelFailure, match=rf"'any-model' answered {answer.status}[ :]") as caught:
        await asked(pool, [answer])

    assert not isinstance(caught.value, Retryable)
    assert caught.value.usage.calls == 1


async def test_a_proxy_without_json_is_quoted(pool: ModelClients) -> None:
    with pytest.raises(Unavailable, match="answered 502: <h1>Bad Gateway</h1>"):
        await asked(pool, [raw("<h1>Bad Gateway</h1>", code=502)])


@pytest.mark.parametrize("answer", [unreachable(), breaks_off()])
async def test_b31_a_lost_connection_is_unavailable_after_one_call(pool: ModelClients, answer: ScriptedReply) -> None:
    with pytest.raises(Unavailable, match=r"could not be reached: .*Error: scripted") as caught:
        await asked(pool, [answer])

    assert caught.value.usage.calls == 1


async def test_an_endless_answer_is_ended_by_the_time_limit_and_the_client_stays_usable(pool: ModelClients) -> None:
    hasty = replace(MODEL, timeout=BRIEF)
    with pytest.raises(Unavailable, match=r"'any-model' did not answer within 0\.05 s") as caught:
        await asked(pool, [hangs()], model=hasty)

    assert caught.value.usage.calls == 1
    assert (await asked(pool, [reply("refund")])).outcome is Verdict.REFUND


WAITS = {
    "seconds": ({"retry-after": "2"}, 2.0),
    "a long wait": ({"retry-after": "300"}, 300.0),
    "a fraction": ({"retry-after": "0.3"}, 0.3),
    "milliseconds win": ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    "bad milliseconds do not": ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
    "a date": ({"retry-after": "Wed, 02 Dec 2026 10:00:30 GMT"}, 30.0),
    "a date without zone": ({"retry-after": "Wed, 02 Dec 2026 10:00:30 -0000"}, 30.0),
    "a date gone by": ({"retry-after": "Wed, 02 Dec 2026 09:00:00 GMT"}, None),
    "negative": ({"retry-after": "-1"}, None),
    "not a number": ({"retry-after": "nan"}, None),
    "longer than any quota lasts": ({"retry-after": "1e300"}, None),
    "a date at the end of time": ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
    "endless": ({"retry-after": "inf"}, None),
    "nonsense": ({"retry-after": "soon"}, None),
    "nothing": ({}, None),
}


@pytest.mark.parametrize(("headers", "wait"), WAITS.values(), ids=WAITS.keys())
def test_b30_the_wait_is_what_the_header_says_if_it_makes_sense(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after(headers, datetime(2026, 12, 2, 10, tzinfo=UTC)) == wait


async def test_b30_the_wait_reaches_the_failure_and_nothing_is_tried_again_below_the_engine(
    pool: ModelClients,
) -> None:
    with pytest.raises(Unavailable) as caught:
        await asked(pool, [status(503, retry_after=300)])

    assert caught.value.retry_after == 300


# --- the request (B29) -------------------------------------------------------------------------------------------


async def test_b29_what_is_not_set_is_absent_from_the_request(pool: ModelClients) -> None:
    with ScriptedModel([reply(text="fine")]) as script:
        await pool.client(MODEL).complete(ModelRequest("m", MESSAGES))

    assert script.requests[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "What about order A1?"}],
    }


async def test_b29_a_parameter_that_the_model_rejects_is_named_after_one_call(pool: ModelClients) -> None:
    words = "Unsupported value: 'temperature' does not support 0.2 with this model."
    with pytest.raises(ModelFailure, match="temperature") as caught:
        await asked(pool, [status(400, message=words, param="temperature")])

    assert not isinstance(caught.value, Retryable)


async def test_the_schema_is_sent_in_strict_form_with_the_reason_first(pool: ModelClients) -> None:
    with ScriptedModel([reply(text="fine")]) as script:
        await pool.client(MODEL).complete(ModelRequest("m", MESSAGES, ("answer", {"type": "object"}), 99))

    sent = script.requests[0].body
    assert sent["response_format"]["type"] == "json_schema"
    assert sent["response_format"]["json_schema"] == {"name": "answer", "strict": True, "schema": {"type": "object"}}
    assert sent["max_tokens"] == 99


# --- what is shown -----------------------------------------------------------------------------------------------

KEY = "sk-proj-0123456789abcdefghij"


@pytest.mark.parametrize(
    "answer",
    [
        status(401, message=f"Incorrect API key provided: {KEY}."),
        status(500, message=f"could not check {KEY}"),
        raw(f"<p>{KEY}</p>", code=503),
        raw(f"<p>{KEY}</p>"),
        raw({"error": {"message": f"bad {KEY}"}}),
        status(400, message="x" * 495 + KEY),
    ],
)
async def test_the_key_is_in_no_message_nor_its_text(pool: ModelClients, answer: ScriptedReply) -> None:
    with pytest.raises(ModelFailure) as caught:
        await asked(pool, [answer], model=replace(MODEL, api_key=KEY))

    shown = f"{caught.value}{caught.value.text}{caught.value.__cause__}{caught.value.__context__}"
    assert KEY[3:12] not in shown
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("words", [f"<{KEY}>", "sk-pr****ghij", "wrong: gsk_12***************90"])
def test_a_key_is_not_shown_in_parts_either(words: str) -> None:
    shown = redactor(KEY)(words)

    assert "[key]" in shown
    assert "ghij" not in shown
    assert "90" not in shown


def test_a_short_key_of_a_test_leaves_the_words_whole() -> None:
    assert redactor("k")("think **hard**") == "think **hard**"


async def test_the_time_limit_counts_for_the_whole_call_with_its_steps_down(pool: ModelClients) -> None:
    refused = status(400, message="response_format is not supported")
    request = ModelRequest("m", MESSAGES, ("answer", {"type": "object"}), timeout=timedelta(milliseconds=300))
    with ScriptedModel([refused, hangs()]), pytest.raises(Unavailable) as caught:
        await pool.client(MODEL).complete(request)

    assert caught.value.usage.calls == 2
