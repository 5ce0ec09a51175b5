"""The ledger behind `run.effect`: claimed before the call, result stored after it, replayed ever after.

What the call raises tells whether the effect happened. `Business`, a refused connection and an HTTP 4xx other than
408, 409 and 429 mean that it did not: the next attempt calls again under the same key. Everything else, and a claim
that has no result because its worker died, is unclear, and `unclear=` decides before anybody acts again.
"""

import asyncio
import concurrent.futures
import queue
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pydantic_core
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from agentflow.effects import NOT_HAPPENED, STILL_UNCLEAR, Happened
from agentflow.errors import EffectNameReused, InvalidContext, LeaseLost, RequestError
from agentflow.failures import Business, Retryable, Unclear
from agentflow.model.context import Context
from agentflow.runners.retries import status_code
from agentflow.store.protocol import Store
from agentflow.store.rows import EffectBegun, EffectClaim, EffectFound, EffectRow

STILL_POSSIBLE = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSpec:
    """One `run.effect(...)` call."""

    name: str
    call: Callable[[str], Any]
    item: str | None
    once_per: str | None
    result: TypeAdapter[Any] | None
    unclear: Any


@dataclass(slots=True, kw_only=True)
class RunLedger:
    """The effects of one attempt at one body."""

    store: Store
    run: str
    token: str
    workflow: str
    state: str
    visit: int
    context: Context
    loop: asyncio.AbstractEventLoop
    used: set[tuple[str, str | None]] = field(default_factory=set[tuple[str, str | None]])

    # What `Run` and `SyncRun` call

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
        stored = _stored_form(name, result)
        spec = EffectSpec(name=name, call=call, item=item, once_per=once_per, result=stored, unclear=unclear)
        found = await self._begin(spec)
        if isinstance(found, EffectFound):
            if found.row.status == "done":
                return _decode(found.row, spec)
            self._check_idle(found, spec)
            await self._settle_doubt(found, spec, await self._ask(spec, run, found.row.key))
            return await self._after_doubt(spec)
        key = found.row.key
        try:
            value = await call(key)
        except Exception as error:  # noqa: BLE001  the call is author code: the class of what it raises decides
            fate = await self._fate_of(spec, error, run, key)
            return await self._record_fate(spec, key, error, fate)
        return await self._record_value(spec, key, value)

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
        """The same for a body in a thread: the call runs there, the ledger is written on the loop."""
        desk = ThreadDesk()
        asked = desk.bring(unclear) if callable(unclear) else unclear
        work = self.effect(name, desk.bring(call), item=item, once_per=once_per, result=result, unclear=asked, run=run)
        try:
            begun = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError as error:  # the loop is closed
            work.close()
            raise LeaseLost(f"run {self.run!r} is left to another process: this one is ending") from error
        return desk.serve(begun)

    def spawn(self, workflow: Any, context: Context, run_id: str | None) -> str:
        """Children come later."""
        raise RequestError("run.spawn: independent runs cannot be started from a body yet; use app.start")

    def execute(self, statement: Any, parameters: Mapping[str, object] | None) -> None:
        """Statements of the author's come later."""
        raise RequestError("run.transaction: statements cannot join the commit yet; use run.effect")

    # Beginning

    def key(self, name: str, item: str | None) -> str:
        """The key of an effect: the same in every attempt, after a crash and under another worker."""
        plain = name.replace("%", "%25").replace(":", "%3A")  # so that no name reads like a name with an item
        parts = [self.run, self.state, str(self.visit), plain, *([] if item is None else [item])]
        return ":".join(parts)

    async def _begin(self, spec: EffectSpec) -> EffectBegun | EffectFound:
        if (spec.name, spec.item) in self.used:
            raise EffectNameReused(
                f"effect {spec.name!r} was used before in this visit of {self.state!r}; pass item= to tell calls apart"
            )
        self.used.add((spec.name, spec.item))
        return await self._claim(spec)

    async def _claim(self, spec: EffectSpec) -> EffectBegun | EffectFound:
        claim = EffectClaim(
            run=self.run,
            token=self.token,
            key=self.key(spec.name, spec.item),
            name=spec.name,
            state=self.state,
            visit=self.visit,
            item=spec.item,
            workflow=self.workflow,
            once_per=spec.once_per,
        )
        found = await self.store.begin_effect(claim)
        if found is None:
            raise LeaseLost(f"run {self.run!r} belongs to another worker now")
        return found

    # Doubt

    async def _ask(self, spec: EffectSpec, run: Any, key: str) -> Any:
        """What `unclear=` says; `STILL_UNCLEAR` where nobody knows."""
        if spec.unclear is None or spec.unclear == "retry":
            return NOT_HAPPENED if spec.unclear == "retry" else STILL_UNCLEAR
        try:
            return await spec.unclear(self.context, run, key)
        except Exception:  # noqa: BLE001  author code that was to remove a doubt failed, so the doubt stays
            return STILL_UNCLEAR

    def _check_idle(self, found: EffectFound, spec: EffectSpec) -> None:
        row = found.row
        if row.run != self.run and row.status == "claimed" and found.holder_alive:
            raise Retryable(f"effect {spec.name!r} once per {spec.once_per!r} is at work in run {row.run!r}")

    async def _settle_doubt(self, found: EffectFound, spec: EffectSpec, fate: Any) -> None:
        row = found.row
        if isinstance(fate, Happened):
            await self._settle(row, "done", result=_encode(_value_of(fate), spec))
        elif fate is NOT_HAPPENED:
            await self._settle(row, "not_happened")
        else:
            await self._settle(row, "unclear", error=row.error or "its worker died before the result was recorded")
            raise self._unclear(spec, row.key)

    async def _settle(
        self, row: EffectRow, status: Any, *, result: str | None = None, error: str | None = None
    ) -> None:
        settled = await self.store.settle_effect(
            self.run, self.token, row.key, status, begun_by=row.token, result=result, error=error
        )
        if not settled:
            raise LeaseLost(f"run {self.run!r} belongs to another worker now")

    async def _after_doubt(self, spec: EffectSpec) -> Any:
        """The doubt is settled: read the result, or call for the first time that counts."""
        found = await self._claim(spec)
        if isinstance(found, EffectFound):
            return _decode(found.row, spec)
        try:
            value = await spec.call(found.row.key)
        except Exception as error:  # noqa: BLE001  as above
            fate = STILL_UNCLEAR if not did_not_happen(error) else NOT_HAPPENED
            return await self._record_fate(spec, found.row.key, error, fate)
        return await self._record_value(spec, found.row.key, value)

    async def _fate_of(self, spec: EffectSpec, error: Exception, run: Any, key: str) -> Any:
        if did_not_happen(error):
            return NOT_HAPPENED
        if spec.unclear == "retry":
            return STILL_UNCLEAR
        return await self._ask(spec, run, key)

    def _unclear(self, spec: EffectSpec, key: str) -> Unclear:
        return Unclear(
            f"effect {spec.name!r} was begun and it is not known whether it happened (key {key})",
            effect=spec.name,
            key=key,
        )

    # Recording

    async def _record_fate(self, spec: EffectSpec, key: str, error: Exception, fate: Any) -> Any:
        text = f"{type(error).__name__}: {error}"[:2_000]
        if isinstance(fate, Happened):
            return await self._record_value(spec, key, _value_of(fate))
        if fate is NOT_HAPPENED:
            await self._record(key, "not_happened", error=text)
            raise error
        await self._record(key, "unclear", error=text)
        if spec.unclear == "retry":
            raise error  # the retry policy decides; the next attempt calls under the same key
        raise self._unclear(spec, key) from error

    async def _record_value(self, spec: EffectSpec, key: str, value: Any) -> Any:
        try:
            encoded = _encode(value, spec)
        except InvalidContext as error:
            await self._record(key, "done", error=str(error))
            raise
        await self._record(key, "done", result=encoded)
        return value

    async def _record(self, key: str, status: Any, *, result: str | None = None, error: str | None = None) -> None:
        if not await self.store.settle_effect(self.run, self.token, key, status, result=result, error=error):
            raise LeaseLost(f"run {self.run!r} belongs to another worker now")


class ThreadDesk:
    """Where a body's thread carries out what its ledger, on the loop, wants called: clients may belong to a thread."""

    def __init__(self) -> None:
        self._wanted: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def bring(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """The function for the loop; it runs in the thread that serves this desk."""

        async def brought(*arguments: Any) -> Any:
            answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

            def call() -> None:
                if not answer.set_running_or_notify_cancel():
                    return  # nobody waits for it any more
                try:
                    answer.set_result(function(*arguments))
                except BaseException as error:  # noqa: BLE001  carried over to the loop, whatever it is
                    answer.set_exception(_for_the_loop(error))

            self._wanted.put(call)
            return await asyncio.wrap_future(answer)

        return brought

    def serve(self, work: "concurrent.futures.Future[Any]") -> Any:
        """Carry out what is wanted, until the work is done."""
        work.add_done_callback(lambda _: self._wanted.put(None))
        while (call := self._wanted.get()) is not None:
            call()
        try:
            return work.result()
        except concurrent.futures.CancelledError:
            raise LeaseLost("this process is ending; another one goes on with the run") from None


def _for_the_loop(error: BaseException) -> BaseException:
    """The exception as a loop can take it: some of them would end the loop, or never arrive."""
    if isinstance(error, LeaseLost) or (isinstance(error, Exception) and not isinstance(error, StopIteration)):
        return error
    carried = RuntimeError(f"the call raised {type(error).__name__}: {error}")
    carried.__cause__ = error
    return carried


def _value_of(happened: Any) -> Any:
    return happened.value


def did_not_happen(error: Exception) -> bool:
    """Whether the exception proves that the other side did nothing."""
    if isinstance(error, Business | ConnectionRefusedError):
        return True
    status = status_code(error)
    return status is not None and 400 <= status < 500 and status not in STILL_POSSIBLE


def _stored_form(name: str, result: type[Any] | None) -> TypeAdapter[Any] | None:
    """How a declared result is stored. Raises `InvalidContext` if it cannot be: before the call, not after it."""
    if result is None:
        return None
    try:
        return TypeAdapter(result)
    except PydanticUserError as error:
        raise InvalidContext(f"effect {name!r}", f"result={result!r} is no type that can be stored: {error}") from None


def _encode(value: Any, spec: EffectSpec) -> str:
    if spec.result is not None:
        return _typed_json(value, spec.name, spec.result)
    text = _plain_json(value)
    if text is None:
        raise InvalidContext(
            f"effect {spec.name!r}",
            f"its result of type {type(value).__name__} would not come back from storage as it is; "
            f"pass result={type(value).__name__}. The effect is recorded as done and is not repeated",
        )
    return text


def _typed_json(value: Any, name: str, form: TypeAdapter[Any]) -> str:
    try:
        text = form.dump_json(value, warnings="error")
        form.validate_json(text)
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidContext(
            f"effect {name!r}",
            f"its result of type {type(value).__name__} is not what result= says: {error}. "
            "The effect is recorded as done and is not repeated",
        ) from None
    return text.decode()


def _plain_json(value: Any) -> str | None:
    """The JSON of a value that comes back from it as it is, None for another."""
    try:
        text = pydantic_core.to_json(value)
        return text.decode() if _same(pydantic_core.from_json(text), value) else None
    except (ValueError, PydanticSerializationError):
        return None


def _same(back: Any, value: Any) -> bool:
    if type(back) is not type(value):
        return False
    if isinstance(value, dict):
        return back.keys() == value.keys() and all(_same(back[key], value[key]) for key in back)
    if isinstance(value, list):
        return len(back) == len(value) and all(map(_same, back, value))  # pyright: ignore[reportUnknownArgumentType]
    return bool(back == value)


def _decode(row: EffectRow, spec: EffectSpec) -> Any:
    if row.result is None:
        raise InvalidContext(f"effect {spec.name!r}", row.error or "was recorded without its result")
    if spec.result is not None:
        return spec.result.validate_json(row.result)
    return pydantic_core.from_json(row.result)
