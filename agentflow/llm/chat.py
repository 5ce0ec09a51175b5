"""Chat Completions over the `openai` package, whose own retries are off: the engine decides about another attempt."""

import asyncio
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from agentflow.failures import ModelFailure, Unavailable
from agentflow.llm.body import read_body
from agentflow.llm.client import ModelReply, ModelRequest, Usage
from agentflow.llm.dialect import Dialect, first_dialect
from agentflow.llm.faults import fault_of, redactor

if TYPE_CHECKING:
    from openai import OpenAIError

__all__ = ["Dialects", "OpenAIClient"]

Dialects = MutableMapping[tuple[str, str], Dialect]
"""What was learned about (base URL, model); shared by all clients of a pool."""


class OpenAIClient:
    """A `ModelClient` for one endpoint and one event loop."""

    def __init__(self, key: str, base_url: str, dialects: Dialects) -> None:
        from openai import AsyncOpenAI, Timeout  # noqa: PLC0415  half a second that only programs with models pay

        # No limit per phase but for connecting: a request has one time limit for all of it, and no second one.
        waiting = Timeout(None, connect=5.0)
        self._sdk = AsyncOpenAI(api_key=key, base_url=base_url, max_retries=0, timeout=waiting)
        self._base_url = base_url
        self._dialects = dialects
        self._redact = redactor(key)

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once; a server that refuses the format is asked again in a simpler one, and that is remembered."""
        asked = list[str]()
        try:
            async with asyncio.timeout(request.timeout.total_seconds()):
                return await self._complete(request, asked)
        except TimeoutError:
            seconds = request.timeout.total_seconds()
            failure = Unavailable(f"model {request.model!r} did not answer within {seconds:g} s")
        failure.usage = Usage(len(asked))
        raise failure

    async def close(self) -> None:
        """Let go of its connections."""
        await self._sdk.close()

    async def _complete(self, request: ModelRequest, asked: list[str]) -> ModelReply:
        place = (self._base_url, request.model)
        dialect: Dialect | None = self._dialects.get(place) or first_dialect(self._base_url)
        failure = ModelFailure()
        while dialect is not None:
            asked.append("text" if request.schema is None else dialect.format)
            answer = await self._post(dialect.body(request))
            if isinstance(answer, str):
                self._dialects[place] = dialect
                return read_body(answer, request.model, self._redact, calls=len(asked), ladder=_steps(asked))
            failure = fault_of(answer, request.model, self._redact)
            dialect = _simpler(dialect, answer, request)
        # Not raised where it is caught: the provider's own error would show its words, and the key in them.
        failure.usage = Usage(len(asked))
        raise failure

    async def _post(self, body: dict[str, Any]) -> "str | OpenAIError":
        """The text of an answer with status 200, or the error."""
        from openai import OpenAIError  # noqa: PLC0415  loaded already by the constructor

        # The raw answer, since the parsed one takes any shape for right: HTML is a text, `{}` an object full of None.
        create: Any = self._sdk.chat.completions.with_raw_response.create
        try:
            answer = await create(**body)
        except OpenAIError as error:
            return error
        text: str = answer.text
        return text


def _simpler(dialect: Dialect, error: "OpenAIError", request: ModelRequest) -> Dialect | None:
    from openai import BadRequestError  # noqa: PLC0415  loaded already by the constructor

    if not isinstance(error, BadRequestError):
        return None
    return dialect.without(f"{error.param or ''} {error.message}", request)


def _steps(asked: list[str]) -> tuple[str, ...]:
    """The formats in order, each once: a second request in the same format changed something else."""
    return tuple(dict.fromkeys(asked))
