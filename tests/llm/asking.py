"""What the tests of this folder ask with: an enum, a form, a ledger in memory, and one function that asks."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

from pydantic import BaseModel

from agentflow.llm.choice import ModelAnswer, ModelQuestion, ask
from agentflow.llm.client import Message, ModelReply, ModelRequest
from agentflow.llm.pool import ModelClients
from agentflow.model.values import Model
from agentflow.testing.scripted import ScriptedModel, ScriptedReply


class Verdict(StrEnum):
    REFUND = "refund"
    REJECT = "reject"
    ESCALATE = "escalate"


class Assessment(BaseModel):
    amount: Decimal
    items: list[str]


class Ledger:
    """The replies of one visit; `written` counts how often something was recorded."""

    def __init__(self) -> None:
        self.replies: dict[int, str] = {}
        self.written = 0

    async def recorded(self, turn: int) -> str | None:
        return self.replies.get(turn)

    async def record(self, turn: int, reply: str) -> None:
        assert turn not in self.replies
        self.replies[turn] = reply
        self.written += 1


MODEL = Model(
    "any-model",
    base_url=ScriptedModel.base_url,
    api_key="test",
    input_price=Decimal("0.50"),
    output_price=Decimal(2),
)
MESSAGES = (Message("user", "What about order A1?"),)


async def asked(
    pool: ModelClients,
    answers: Sequence[ScriptedReply],
    *,
    outcome: type[Enum] | None = Verdict,
    answer: type[BaseModel] | None = None,
    ledger: Ledger | None = None,
    model: Model = MODEL,
) -> ModelAnswer:
    """Ask with these answers, all of which must be used."""
    question = ModelQuestion(MESSAGES, outcome, answer)
    with ScriptedModel(answers):
        return await ask(pool.client(model), model, question, ledger or Ledger())


async def completed(pool: ModelClients, answers: Sequence[ScriptedReply], model: Model = MODEL) -> ModelReply:
    """Send one request for plain text to the client itself, with these answers, all of which must be used."""
    with ScriptedModel(answers):
        return await pool.client(model).complete(ModelRequest(model.name, MESSAGES, timeout=model.timeout))


def body(**fields: Any) -> dict[str, Any]:
    """A completion with these fields in the place of the usual ones."""
    usual: dict[str, Any] = {
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28},
    }
    return usual | fields


def choice_body(content: object, finish: object = "stop", **message: Any) -> dict[str, Any]:
    """A completion with that content."""
    said = {"role": "assistant", "content": content, **message}
    return body(choices=[{"index": 0, "finish_reason": finish, "message": said}])


BRIEF = timedelta(milliseconds=50)
