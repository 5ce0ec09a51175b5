"""What a server understands of Chat Completions, learned from what it refuses.

Servers differ in how they take a schema and in what they call the limit of tokens. Each refusal by a 400 that names
the thing is one step down; a 400 about anything else is none of this module's business.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from agentflow.llm.client import Format, Message, ModelRequest

__all__ = ["Dialect", "first_dialect"]

_Limit = Literal["max_completion_tokens", "max_tokens"]
_SIMPLER: dict[Format, Format] = {"json_schema": "json_object", "json_object": "text"}
_FORMAT = re.compile(r"response_format|json_schema|json_object|structured.?output", re.IGNORECASE)
_UNKNOWN = re.compile(r"unsupported|not supported|unrecogni[sz]ed|unknown|extra inputs", re.IGNORECASE)
_BAD_SCHEMA = re.compile(r"invalid schema", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one model at one server is spoken to."""

    limit: _Limit
    format: Format = "json_schema"
    limit_is_settled: bool = False

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The request's body; what is not set does not appear in it."""
        messages = request.messages
        body: dict[str, Any] = {"model": request.model}
        if request.schema is not None:
            name, schema = request.schema
            if self.format == "json_schema":
                shape = {"name": name, "strict": True, "schema": schema}
                body["response_format"] = {"type": "json_schema", "json_schema": shape}
            else:
                messages = _with_schema(messages, schema)
            if self.format == "json_object":
                body["response_format"] = {"type": "json_object"}
        if request.max_tokens is not None:
            body[self.limit] = request.max_tokens
        return body | {"messages": [{"role": message.role, "content": message.content} for message in messages]}

    def without(self, refused: str, request: ModelRequest) -> "Dialect | None":
        """The next simpler dialect after a 400 with these words; None if they are about something else."""
        names_limit = request.max_tokens is not None and re.search(rf"\b{self.limit}\b", refused)
        # A limit that is too high is named too; then its other name would be refused for the same reason.
        if names_limit and not self.limit_is_settled and _UNKNOWN.search(refused):
            other: _Limit = "max_tokens" if self.limit == "max_completion_tokens" else "max_completion_tokens"
            return replace(self, limit=other, limit_is_settled=True)
        simpler = _SIMPLER.get(self.format)
        if request.schema is None or simpler is None or not _FORMAT.search(refused) or _BAD_SCHEMA.search(refused):
            return None
        return replace(self, format=simpler)


def first_dialect(base_url: str) -> Dialect:
    """What a server is assumed to understand: OpenAI renamed the limit, most others know its old name."""
    host = urlsplit(base_url).hostname or ""
    openai = host == "openai.com" or host.endswith((".openai.com", ".azure.com"))
    return Dialect("max_completion_tokens" if openai else "max_tokens")


def _with_schema(messages: tuple[Message, ...], schema: Any) -> tuple[Message, ...]:
    """The messages with the schema at the end of the last one, where small models heed it most."""
    wish = (
        "Answer with one JSON object and nothing else. It must fit this JSON Schema:\n"
        f"{json.dumps(schema, ensure_ascii=False)}"
    )
    *before, last = messages
    if last.role != "user":
        return (*messages, Message("user", wish))
    return (*before, Message("user", f"{last.content}\n\n{wish}"))
