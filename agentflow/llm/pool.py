"""The clients of a program: one per event loop and endpoint.

Making one is dear, and its connections belong to the loop on which they were opened.
"""

import asyncio
import os
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import urlsplit

from agentflow.errors import ConfigurationError
from agentflow.llm.chat import Dialects, OpenAIClient
from agentflow.llm.client import ModelClient
from agentflow.model.values import Model, Secret

__all__ = ["ModelClients"]

_OPENAI = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class _Endpoint:
    base_url: str
    key: str = field(repr=False)


class ModelClients:
    """Makes clients, keeps them, and remembers what was learned about their servers."""

    def __init__(self) -> None:
        self._clients: dict[asyncio.AbstractEventLoop, dict[_Endpoint, OpenAIClient]] = {}
        self._dialects: Dialects = {}

    def client(self, model: Model) -> ModelClient:
        """The client for a model, on the running event loop.

        What the model leaves open is taken from OPENAI_API_KEY and OPENAI_BASE_URL. Raises `ConfigurationError` if
        there is no key, or the key or the address can't be right.
        """
        endpoint = _endpoint(model)
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._forget_closed_loops()
        clients = self._clients.setdefault(loop, {})
        if endpoint not in clients:
            clients[endpoint] = OpenAIClient(endpoint.key, endpoint.base_url, self._dialects)
        return clients[endpoint]

    async def close(self) -> None:
        """Close the clients of the running event loop; repeating it is harmless, and so is asking afterwards."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()

    async def __aenter__(self) -> "ModelClients":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._clients if loop.is_closed()]:
            del self._clients[loop]


def _endpoint(model: Model) -> _Endpoint:
    given = model.api_key
    key = given.reveal() if isinstance(given, Secret) else given or os.environ.get("OPENAI_API_KEY", "")
    if not key:
        raise ConfigurationError(
            f"model {model.name!r}: there is no API key; set the environment variable OPENAI_API_KEY, "
            "or give Model(..., api_key=...)"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError(
            f"model {model.name!r}: the API key holds a blank, a line break or a character that no key has; "
            "check OPENAI_API_KEY or Model(..., api_key=...)"
        )
    return _Endpoint(_address(model), key)


def _address(model: Model) -> str:
    base_url = model.base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
    try:
        parts = urlsplit(base_url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigurationError(
            f"model {model.name!r}: base_url {base_url!r} is no address such as 'http://localhost:8000/v1'"
        )
    return base_url
