"""Asking a model for a choice: a question, at most one re-ask, and an answer with all that it took.

Every reply goes to a ledger before it is judged. A crash, a re-ask and a retry read it there instead of paying again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from agentflow.failures import Filtered, Invalid, ModelFailure, Refused, Truncated
from agentflow.llm.body import FILTERED, TRUNCATED
from agentflow.llm.client import Message, ModelClient, ModelReply, ModelRequest, Usage
from agentflow.llm.reading import Read, Unreadable, answer_schema, read_answer
from agentflow.model.members import listed
from agentflow.model.values import Model

__all__ = ["AnswerLedger", "ModelAnswer", "ModelQuestion", "ask"]

How = Literal["schema", "normalised", "re-asked", "text"]
"""How an answer was read: as asked for, by the normalisation, at the second turn, or as plain text."""


class AnswerLedger(Protocol):
    """Where the replies of one visit are kept."""

    async def recorded(self, turn: int) -> str | None:
        """The reply of a turn, if there was one."""
        ...

    async def record(self, turn: int, reply: str) -> None:
        """Keep a reply; it is durable when this returns."""
        ...


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """What to ask: with an `outcome` the model chooses, with an `answer` it fills a form, with neither it writes."""

    messages: tuple[Message, ...]
    outcome: type[Enum] | None = None
    answer: type[BaseModel] | None = None
    max_tokens: int | None = None
    timeout: timedelta | None = None
    """For each turn; None for the model's own."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What the model answered, and what it took."""

    outcome: Enum | None
    data: Any
    """A model of the question's `answer`, the text of a plain answer, else None."""
    reason: str
    how: How
    ladder: tuple[str, ...]
    """The formats that were asked for, in order; more than one if the server refused the first."""
    turns: int
    model_asked: str
    model_answered: str | None
    usage: Usage
    """Of all turns, also of those that were read from the ledger."""
    text: str
    """What the model wrote last."""
    confidence: float | None = None


async def ask(client: ModelClient, model: Model, question: ModelQuestion, ledger: AnswerLedger) -> ModelAnswer:
    """Ask a model until its answer fits, at most twice.

    Raises the classes of `agentflow.failures`, each with the `usage` of all turns: `Refused`, `Truncated` and
    `Filtered` without asking again, `Invalid` with the last text after the second turn, and what the client raises.
    """
    replies = list[ModelReply]()
    request = _request(model, question)
    try:
        found = await _turn(client, request, ledger, replies, question)
        if isinstance(found, Unreadable):
            request = _asked_again(request, replies[-1], found.why, question)
            found = await _turn(client, request, ledger, replies, question)
        if isinstance(found, Unreadable):
            why = f"model {model.name!r} gave no valid answer, also when asked again: {found.why}"
            raise Invalid(why, text=replies[-1].text)
        return _answer(found, replies, model, question)
    except ModelFailure as failure:
        failure.usage = _usage(replies, model, failure.usage)
        raise


def _request(model: Model, question: ModelQuestion) -> ModelRequest:
    schema = answer_schema(question.outcome, question.answer)
    return ModelRequest(
        model.name,
        question.messages,
        ("answer", schema) if schema is not None else None,
        question.max_tokens,
        question.timeout or model.timeout,
    )


async def _turn(
    client: ModelClient,
    request: ModelRequest,
    ledger: AnswerLedger,
    replies: list[ModelReply],
    question: ModelQuestion,
) -> Read | Unreadable:
    turn = len(replies) + 1
    recorded = await ledger.recorded(turn)
    if recorded is None:
        reply = await client.complete(request)
        await ledger.record(turn, reply.to_json())
    else:
        reply = ModelReply.from_json(recorded)
    replies.append(reply)
    _check_complete(reply, request.model)
    return read_answer(reply.text, question.outcome, question.answer)


def _check_complete(reply: ModelReply, model: str) -> None:
    """Refuse what is no whole answer, however much it looks like one: half a text can name a choice by accident."""
    if reply.finish in TRUNCATED:
        raise Truncated(f"model {model!r} was cut off at the limit of tokens", text=reply.text)
    if reply.finish in FILTERED:
        raise Filtered(f"model {model!r}: the provider's filter withheld the answer", text=reply.text)
    if reply.refusal is not None:
        raise Refused(f"model {model!r} refused: {reply.refusal}", text=reply.refusal)


def _asked_again(request: ModelRequest, reply: ModelReply, why: str, question: ModelQuestion) -> ModelRequest:
    wish = f"That answer can't be used: {why}. Answer the question again, in the form that was asked for."
    if question.outcome is not None:
        wish += f" The choice must be exactly one of: {listed(question.outcome)}."
    again = (Message("assistant", reply.text), Message("user", wish))
    return replace(request, messages=request.messages + again)


def _answer(found: Read, replies: Sequence[ModelReply], model: Model, question: ModelQuestion) -> ModelAnswer:
    last = replies[-1]
    return ModelAnswer(
        outcome=found.outcome,
        data=found.data,
        reason=found.reason,
        how=_how(found, len(replies), question),
        ladder=tuple(dict.fromkeys(step for reply in replies for step in reply.ladder)),
        turns=len(replies),
        model_asked=model.name,
        model_answered=last.model,
        usage=_usage(replies, model, None),
        text=last.text,
    )


def _how(found: Read, turns: int, question: ModelQuestion) -> How:
    if question.outcome is None and question.answer is None:
        return "text"
    if turns > 1:
        return "re-asked"
    return "schema" if found.is_exact else "normalised"


def _usage(replies: Sequence[ModelReply], model: Model, failed: object) -> Usage:
    """What all turns took, with what a call that failed has used up."""
    spent = [Usage(reply.calls, reply.tokens_in, reply.tokens_out) for reply in replies]
    if isinstance(failed, Usage):
        spent.append(failed)
    tokens_in = _total([one.tokens_in for one in spent])
    tokens_out = _total([one.tokens_out for one in spent])
    return Usage(sum(one.calls for one in spent), tokens_in, tokens_out, _cost(model, tokens_in, tokens_out))


def _total(counts: Sequence[int | None]) -> int | None:
    """The sum; one unknown part makes it unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _cost(model: Model, tokens_in: int | None, tokens_out: int | None) -> Decimal | None:
    if tokens_in is None or tokens_out is None or model.input_price is None or model.output_price is None:
        return None
    return (tokens_in * model.input_price + tokens_out * model.output_price) / 1_000_000
