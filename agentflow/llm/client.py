"""What a model is asked and what it replies, whatever the provider: the words of this layer."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, Protocol

from agentflow.model.prompts import Role

__all__ = ["Format", "Message", "ModelClient", "ModelReply", "ModelRequest", "Usage"]

Format = Literal["json_schema", "json_object", "text"]
"""How an answer's shape is asked for: enforced by the server, as any JSON, or by the prompt alone."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model. What is None is left out of the request."""

    model: str
    """The provider's name of the model."""
    messages: tuple[Message, ...]
    schema: tuple[str, Mapping[str, Any]] | None = None
    """Name and JSON Schema of the answer; None for plain text."""
    max_tokens: int | None = None
    timeout: timedelta = timedelta(seconds=60)
    """For the whole call, with all that the client does to get an answer."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model replied, before anyone judged it: it may be a refusal, cut off, or nonsense."""

    text: str
    finish: str | None = None
    """The provider's word for why it stopped: `stop`, `length`, `content_filter`, ..."""
    refusal: str | None = None
    model: str | None = None
    """The model that answered, as the provider names it."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    calls: int = 1
    """How many requests it took, with those that a server refused for their format."""
    ladder: tuple[str, ...] = ("json_schema",)
    """The formats that were asked for, in order; the last one was answered."""
    raw: str = field(default="", repr=False)
    """The provider's whole answer, as it came."""

    def to_json(self) -> str:
        """The text from which `from_json` builds the same reply again."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ModelReply":
        """The reply that was written by `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        fields["ladder"] = tuple(fields["ladder"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Usage:
    """What asking took. None means that it is not known, since a provider may keep silent about it."""

    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    cost: Decimal | None = None


class ModelClient(Protocol):
    """Asks one provider. Write your own for a provider that does not speak Chat Completions."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once, without retries.

        Raises `Unavailable` where another attempt may help and a plain `ModelFailure` where it can't, both with the
        `Usage` of what was spent. Refusals and answers that were cut off are replies.
        """
        ...
