"""What a body sees of its run: `Run` in asynchronous bodies, `SyncRun` in those that run in a thread.

The handles hold no logic of their own: what they do is done by the `Ledger` that the runner puts behind them.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol

from typing_extensions import TypeVar

from agentflow.effects import Fate
from agentflow.model.context import Context

if TYPE_CHECKING:
    from sqlalchemy import Executable

    from agentflow.model.workflow import Workflow

__all__ = ["Run", "Scope", "SyncRun", "Transaction"]

S = TypeVar("S")
SD = TypeVar("SD", default=None)
T = TypeVar("T")
CC = TypeVar("CC", bound=Context)


class Ledger(Protocol):
    """What stands behind a handle: the effects, children and statements of one attempt at one body."""

    async def effect(
        self,
        name: str,
        call: Callable[[str], Awaitable[Any]],
        *,
        item: str | None,
        once_per: str | None,
        result: type[Any] | None,
        unclear: Any,
        run: Any,
    ) -> Any:
        """Carry out an effect once, or return what was recorded."""
        ...

    def effect_from_thread(
        self,
        name: str,
        call: Callable[[str], Any],
        *,
        item: str | None,
        once_per: str | None,
        result: type[Any] | None,
        unclear: Any,
        run: Any,
    ) -> Any:
        """The same for a body in a thread."""
        ...

    def spawn(self, workflow: Any, context: Context, run_id: str | None) -> str:
        """Plan an independent run for this step's commit."""
        ...

    def execute(self, statement: Any, parameters: Mapping[str, object] | None) -> None:
        """Plan a statement for this step's commit."""
        ...


class Scope(Generic[S]):
    """What both kinds of body see of their run."""

    services: S
    id: str
    visit: int
    attempt: int

    def __init__(self, *, services: S, id: str, visit: int, attempt: int, now: datetime, ledger: Ledger) -> None:
        self.services = services
        self.id = id
        self.visit = visit
        self.attempt = attempt
        self._now = now
        self._ledger = ledger

    def now(self) -> datetime:
        """The instant of this attempt, the same after a replay."""
        return self._now

    def spawn(self, workflow: "Workflow[CC, Any]", context: CC, /, *, id: str | None = None) -> str:
        """Start an independent run in this step's commit; return its id."""
        return self._ledger.spawn(workflow, context, id)

    @property
    def transaction(self) -> "Transaction":
        """SQLAlchemy Core statements that join this step's commit."""
        return Transaction(self._ledger)


class Run(Scope[SD], Generic[SD]):
    """The execution that an asynchronous body belongs to."""

    async def effect(
        self,
        name: str,
        call: Callable[[str], Awaitable[T]],
        /,
        *,
        item: str | None = None,
        once_per: str | None = None,
        result: type[T] | None = None,
        unclear: "Literal['retry'] | Callable[[Any, Run[SD], str], Awaitable[Fate[T]]] | None" = None,
    ) -> T:
        """Act on the world once, under a key; later attempts get the recorded result, `unclear` settles a doubt.

        The key is made of run, state, visit, name and item, so it is the same in every attempt and after a crash:
        hand it to the other system as its idempotency key. The intention is durable before `call`, the result after
        it. `once_per` is a business key, unique per workflow and name: another run that used it gets that result.

        `call` raising `Business`, a refused connection or an HTTP 4xx other than 408, 409 and 429 means that it did
        not happen. Any other exception, and a crash in between, leave it unclear: `unclear` decides, or the body
        fails with `Unclear`. Raises `EffectNameReused` if the name was used before in this attempt.
        """
        found: T = await self._ledger.effect(
            name, call, item=item, once_per=once_per, result=result, unclear=unclear, run=self
        )
        return found


class SyncRun(Scope[SD], Generic[SD]):
    """The execution that a synchronous body, in its thread, belongs to."""

    def effect(
        self,
        name: str,
        call: Callable[[str], T],
        /,
        *,
        item: str | None = None,
        once_per: str | None = None,
        result: type[T] | None = None,
        unclear: "Literal['retry'] | Callable[[Any, SyncRun[SD], str], Fate[T]] | None" = None,
    ) -> T:
        """Act on the world once, under a key; as `Run.effect`."""
        found: T = self._ledger.effect_from_thread(
            name, call, item=item, once_per=once_per, result=result, unclear=unclear, run=self
        )
        return found


class Transaction:
    """Statements that are committed together with the transition."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def execute(self, statement: "Executable", parameters: Mapping[str, object] | None = None, /) -> None:
        """Add one statement; it runs at the commit, so there is no result."""
        self._ledger.execute(statement, parameters)
