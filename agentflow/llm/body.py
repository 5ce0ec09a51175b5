"""Reading the body of a Chat Completions answer: checked from the outside in, so that no shape of it can surprise."""

import json
from dataclasses import dataclass
from typing import Any

from agentflow.failures import ModelFailure
from agentflow.llm.client import ModelReply, Usage
from agentflow.llm.faults import Redact, fault_inside, shapeless
from agentflow.model.shapes import is_list, is_object

__all__ = ["FILTERED", "REFUSED", "TRUNCATED", "read_body"]

TRUNCATED = frozenset({"length", "max_tokens"})
FILTERED = frozenset({"content_filter"})
REFUSED = frozenset({"refusal"})
_BROKEN = frozenset({"error"})


@dataclass(frozen=True, slots=True)
class _Body:
    """What came with status 200, and what its failure would need."""

    fields: dict[str, Any] | None
    """None if it is no JSON object."""
    text: str
    model: str
    redact: Redact

    def broken(self, why: str) -> ModelFailure:
        return shapeless(why, self.text, self.model, self.redact)


def read_body(text: str, model: str, redact: Redact, *, calls: int, ladder: tuple[str, ...]) -> ModelReply:
    """The reply in a body that came with status 200. Raises `Unavailable`, with usage, if there is none in it."""
    body = _Body(_object(text), text, model, redact)
    tokens = _tokens(body.fields)
    try:
        said, refusal, finish = _said(body, _choice(body))
    except ModelFailure as failure:
        failure.usage = Usage(calls, tokens[0] or 0, tokens[1] or 0)
        raise
    answered = (body.fields or {}).get("model")
    return ModelReply(
        said, finish, refusal, answered if isinstance(answered, str) else None, *tokens, calls, ladder, raw=text
    )


def _object(text: str) -> dict[str, Any] | None:
    try:
        loaded: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return loaded if is_object(loaded) else None


def _choice(body: _Body) -> dict[str, Any]:
    if body.fields is None:
        raise body.broken("the body is no JSON object")
    if error := body.fields.get("error"):
        raise fault_inside(error, body.model, body.redact)
    choices = body.fields.get("choices")
    if not is_list(choices) or not choices:
        raise body.broken("there are no choices")
    first = choices[0]
    if not is_object(first) or not is_object(first.get("message")):
        raise body.broken("the first choice has no message")
    return first


def _said(body: _Body, choice: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """Text, refusal and finish reason; at least one of them must mean something."""
    message: dict[str, Any] = choice["message"]
    finish = choice.get("finish_reason")
    if finish is not None and not isinstance(finish, str):
        raise body.broken("the finish reason is no text")
    if finish in _BROKEN:
        raise body.broken("the provider broke off")
    text = _text(message.get("content"))
    refusal = message.get("refusal")
    if finish in REFUSED:
        refusal = refusal or text or "no reason given"
    if not text.strip() and not refusal and finish not in TRUNCATED | FILTERED:
        raise body.broken("the message is empty")
    return text, str(refusal) if refusal else None, finish


def _text(content: Any) -> str:
    """The text of a message; some servers send it in parts."""
    parts = content if is_list(content) else [{"text": content}]
    texts = [part["text"] for part in parts if is_object(part) and isinstance(part.get("text"), str)]
    # Half a surrogate pair is no text that can be stored.
    return "".join(texts).encode(errors="replace").decode()


def _tokens(fields: dict[str, Any] | None) -> tuple[int | None, int | None]:
    usage = (fields or {}).get("usage")
    counts = usage if is_object(usage) else {}
    sent, received = counts.get("prompt_tokens"), counts.get("completion_tokens")
    return sent if isinstance(sent, int) else None, received if isinstance(received, int) else None
