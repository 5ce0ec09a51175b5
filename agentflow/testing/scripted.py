"""A scripted model for offline tests, below the client that the engine really builds: no socket is opened.

    with ScriptedModel([reply(choice="spam", reason="a prize"), status(429, retry_after=2)]) as script:
        model = Model("any", base_url=script.base_url, api_key="test")
        ...
    assert "You won" in script.requests[0].prompt

It stands in for every server at once, so a model without a `base_url` is answered too. Whatever the script does not
foresee is a `ScriptError`: at once, where it happens, and again when the block ends, should the program have coped.
"""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from agentflow.errors import ConfigurationError
from agentflow.model.members import choice_of

if TYPE_CHECKING:
    import httpx
    from respx import MockRouter

__all__ = [
    "ScriptError",
    "ScriptedModel",
    "ScriptedReply",
    "ScriptedRequest",
    "breaks_off",
    "cut",
    "filtered",
    "hangs",
    "raw",
    "refusal",
    "reply",
    "status",
    "unreachable",
]


class ScriptError(AssertionError):
    """The program asked for what the script does not foresee, or did not ask for all that it does."""


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """What the model was asked."""

    number: int
    """The number of the call, from 1."""
    body: Mapping[str, Any]
    """The request as it was sent."""
    url: str
    headers: Mapping[str, str] = field(repr=False)

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(self.body.get("model"))

    @property
    def prompt(self) -> str:
        """The contents of all messages, one after the other."""
        return "\n\n".join(str(message.get("content")) for message in self.body.get("messages", ()))

    @property
    def choices(self) -> Sequence[str]:
        """The choices that the schema of the answer allows; none if there is no such schema."""
        shape: Mapping[str, Any] = self.body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        return tuple(shape.get("properties", {}).get("choice", {}).get("enum", ()))


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """What a call gets; made by `reply`, `status` and their like."""

    status: int = 200
    content: Mapping[str, Any] | str = ""
    """A JSON object, or a text of any other type."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    error: str = ""
    """The name of an exception of `httpcore2` to raise instead."""
    is_endless: bool = False


Answer = Callable[[ScriptedRequest], ScriptedReply]


def reply(
    choice: str | Enum | None = None,
    *,
    reason: str = "because",
    data: BaseModel | Mapping[str, Any] | None = None,
    text: str | None = None,
    finish: str = "stop",
    tokens: tuple[int, int] | None = (20, 8),
) -> ScriptedReply:
    """An answer: a choice with a reason and perhaps data, data alone, or a text; `tokens` are those in and out."""
    content = text if text is not None else json.dumps(_content(choice, reason, data))
    return _completion({"role": "assistant", "content": content, "refusal": None}, finish, tokens)


def refusal(text: str, *, tokens: tuple[int, int] | None = (20, 8)) -> ScriptedReply:
    """The model declines."""
    return _completion({"role": "assistant", "content": None, "refusal": text}, "stop", tokens)


def cut(text: str = '{"reason": "it', *, tokens: tuple[int, int] | None = (20, 8)) -> ScriptedReply:
    """An answer that was cut off at the limit of tokens."""
    return reply(text=text, finish="length", tokens=tokens)


def filtered(text: str = "", *, tokens: tuple[int, int] | None = (20, 8)) -> ScriptedReply:
    """An answer that the provider's filter withheld."""
    return reply(text=text, finish="content_filter", tokens=tokens)


def status(
    code: int,
    *,
    message: str = "scripted",
    kind: str = "error",
    error_code: str | None = None,
    param: str | None = None,
    retry_after: float | str | None = None,
) -> ScriptedReply:
    """An error by its HTTP status, perhaps with the header `Retry-After`."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    error = {"message": message, "type": kind, "param": param, "code": error_code}
    return ScriptedReply(code, {"error": error}, headers)


def raw(
    content: Mapping[str, Any] | str, *, code: int = 200, headers: Mapping[str, str] | None = None
) -> ScriptedReply:
    """Any body at all, for answers that are none."""
    return ScriptedReply(code, content, headers or {})


def unreachable() -> ScriptedReply:
    """No connection."""
    return ScriptedReply(error="ConnectError")


def breaks_off() -> ScriptedReply:
    """The connection is lost within the answer."""
    return ScriptedReply(error="RemoteProtocolError")


def hangs() -> ScriptedReply:
    """No answer, ever: the time limit must end it."""
    return ScriptedReply(is_endless=True)


class ScriptedModel:
    """Answers the program's calls by a list, in order, or by a function of each request."""

    base_url = "http://model.test/v1"

    def __init__(self, answers: Sequence[ScriptedReply] | Answer, *, assert_all_used: bool = True) -> None:
        self._answers = answers
        self._assert_all_used = assert_all_used
        self._errors = list[Exception]()
        self._router: MockRouter | None = None
        self.requests = list[ScriptedRequest]()

    @property
    def unused(self) -> int:
        """How many replies of the list were not asked for."""
        return 0 if callable(self._answers) else max(0, len(self._answers) - len(self.requests))

    def __enter__(self) -> "ScriptedModel":
        router = _router()
        router.route().mock(side_effect=self._answer)
        router.start()
        self._router = router
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._router is not None:
            self._router.stop(quiet=True)
        if kind is not None:
            return
        if self._errors:
            raise self._errors[0]
        if self._assert_all_used and self.unused:
            raise ScriptError(f"the script was not used up: {self.unused} of its replies were never asked for")

    def _answer(self, request: "httpx.Request") -> "httpx.Response | Awaitable[httpx.Response]":
        try:
            asked = self._asked(request)
            answer = self._choose(asked)
        except Exception as error:
            # An engine turns what a call raises into a failure that a workflow may route; a test must not pass so.
            self._errors.append(error)
            raise
        return _response(answer, asked)

    def _asked(self, request: "httpx.Request") -> ScriptedRequest:
        if request.method != "POST" or not request.url.path.endswith("/chat/completions"):
            raise ScriptError(f"a scripted model answers POST .../chat/completions, not {request.method} {request.url}")
        body: dict[str, Any] = json.loads(request.content)
        asked = ScriptedRequest(len(self.requests) + 1, body, str(request.url), dict(request.headers))
        self.requests.append(asked)
        return asked

    def _choose(self, asked: ScriptedRequest) -> ScriptedReply:
        if callable(self._answers):
            return self._answers(asked)
        if asked.number > len(self._answers):
            raise ScriptError(
                f"call {asked.number} was not foreseen, the script ends after {len(self._answers)}; "
                f"its prompt begins {asked.prompt[:120]!r}"
            )
        return self._answers[asked.number - 1]


def _content(choice: str | Enum | None, reason: str, data: BaseModel | Mapping[str, Any] | None) -> Any:
    plain = data.model_dump(mode="json", by_alias=True) if isinstance(data, BaseModel) else data
    if choice is None:
        return plain
    content = {"reason": reason, "choice": choice_of(choice) if isinstance(choice, Enum) else choice}
    return content if plain is None else content | {"data": plain}


def _completion(message: Mapping[str, Any], finish: str, tokens: tuple[int, int] | None) -> ScriptedReply:
    content: dict[str, Any] = {
        "object": "chat.completion",
        "created": 1_780_000_000,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    if tokens is not None:
        sent, received = tokens
        content["usage"] = {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}
    return ScriptedReply(content=content)


def _response(answer: ScriptedReply, asked: ScriptedRequest) -> "httpx.Response | Awaitable[httpx.Response]":
    import httpx  # noqa: PLC0415  comes with respx, which only tests have

    if answer.is_endless:
        return _never()
    if answer.error:
        import httpcore2  # noqa: PLC0415  comes with openai, which only programs with models load

        raise getattr(httpcore2, answer.error)(f"scripted for call {asked.number}")
    if isinstance(answer.content, str):
        headers = {"content-type": "text/html; charset=utf-8", **answer.headers}
        return httpx.Response(answer.status, text=answer.content, headers=headers)
    content = dict(answer.content)
    if content.get("object") == "chat.completion":
        content = {"id": f"chatcmpl-{asked.number}", "model": asked.model, **content}
    return httpx.Response(answer.status, json=content, headers=answer.headers)


async def _never() -> "httpx.Response":
    await asyncio.Event().wait()
    raise AssertionError("an event that nobody sets was set")


def _router() -> "MockRouter":
    try:
        from respx import MockRouter  # noqa: PLC0415  only tests need it
    except ImportError:
        raise ConfigurationError("a scripted model needs respx: pip install 'agentflow-engine[test]'") from None
    if _mocker().routers:
        raise ScriptError("another scripted model is at work: one block answers all calls, whatever the model's name")
    return MockRouter(assert_all_called=False, using=_mocker().name)


@functools.cache
def _mocker() -> Any:
    """The place where respx steps in: the transport of the `openai` package, which plain respx does not know."""
    from respx.mocks import HTTPCoreMocker  # noqa: PLC0415  only tests need it

    class ModelMocker(HTTPCoreMocker):
        name = "agentflow-model"
        targets = [  # noqa: RUF012  respx reads it so
            "httpcore2._sync.connection.HTTPConnection",
            "httpcore2._sync.connection_pool.ConnectionPool",
            "httpcore2._sync.http_proxy.HTTPProxy",
            "httpcore2._async.connection.AsyncHTTPConnection",
            "httpcore2._async.connection_pool.AsyncConnectionPool",
            "httpcore2._async.http_proxy.AsyncHTTPProxy",
        ]

    return ModelMocker
