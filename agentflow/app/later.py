"""Verbs that are declared and typed, and refuse by name until they run."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

from pydantic import BaseModel

from agentflow.app.commands import By
from agentflow.errors import RequestError
from agentflow.model.context import Context
from agentflow.model.states import State, Target
from agentflow.model.values import Actor
from agentflow.model.views import Reply, Snapshot
from agentflow.model.workflow import C, Workflow

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp


def not_yet(verb: str) -> NoReturn:
    """Refuse a verb that cannot run yet."""
    raise RequestError(f"app.{verb} is declared, but cannot run in this version")


class LaterVerbs:
    """What an App will do; each verb raises `RequestError` until then."""

    def asgi(
        self,
        *,
        identity: "Callable[[HTTPConnection], Awaitable[Actor | None]] | None" = None,
        page: bool = True,
    ) -> "ASGIApp":
        """The HTTP API and the page, to be mounted in an existing application."""
        not_yet("asgi")

    def schedule(
        self,
        cron: str,
        workflow: Workflow[C, Any],
        context: Callable[[datetime], C],
        /,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        misfire: Literal["skip", "once", "all"] = "once",
        overlap: Literal["skip", "queue", "cancel"] = "skip",
    ) -> None:
        """Start a run at every due instant."""
        not_yet("schedule")

    async def signal(
        self,
        signal: BaseModel | Enum,
        data: BaseModel | None = None,
        /,
        *,
        run: str | None = None,
        id: str | None = None,
    ) -> Reply:
        """Send a payload, or a member with its payload, to one run or to those whose key it carries."""
        not_yet("signal")

    async def ask(
        self, run: str, signal: BaseModel | Enum, data: BaseModel | None = None, /, *, timeout: timedelta | None = None
    ) -> Snapshot[Context]:
        """Signal a run and stay until it waits again or ends."""
        not_yet("ask")

    async def redrive(self, run: str, /, *, state: State[Any] | None = None, **by: Unpack[By]) -> Snapshot[Context]:
        """Start a new run where an ended one broke."""
        not_yet("redrive")

    async def skip(
        self, run: str, to: Target[Any], /, *, actor: Actor, reason: str, request: str | None = None
    ) -> Reply:
        """Put a run into another state by hand."""
        not_yet("skip")
