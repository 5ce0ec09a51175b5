"""The ledger behind `run.effect`: claimed before the call, result stored after it, replayed ever after.

What the call raises tells whether the effect happened. `Business`, a refused connection and an HTTP 4xx other than
408, 409 and 429 mean that it did not: the next attempt calls again under the same key. Everything else, and a claim
that has no result because its worker died, is unclear, and `unclear=` decides before anybody acts again.
"""

import asyncio
import concurrent.futures
import queue
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentflow.effects import NOT_HAPPENED, STILL_UNCLEAR, Happened
from agentflow.errors import EffectHeld, EffectNameReused, InvalidContext, LeaseLost, RequestError
from agentflow.failures import Business, Retryable, Unclear
from agentflow.model.context import Context
from agentflow.runners.results import ResultNotation, result_notation
from agentflow.runners.retries import status_code
from agentflow.store.rows import EffectBegun, EffectClaim, EffectFound, EffectRow, EffectStatus
from agentflow.store.texts import checked_name, escaped

if TYPE_CHECKING:
    from agentflow.runners.perform import Work

STILL_POSSIBLE = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSpec:
    """One `run.effect(...)` call."""

    name: str
    call: Callable[[str], Any]
    item: str | None
    once_per: str | None
    result: ResultNotation
    unclear: Any


class RunLedger:
    """The effects and statements of one attempt at one body."""

    __slots__ = ("context", "loop", "used", "work")

    def __init__(self, work: "Work", context: Context) -> None:
        self.work = work
        self.context = context
        self.loop = asyncio.get_running_loop()
        self.used: set[tuple[str, str | None]] | None = None

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.work.head.run

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
        for text, what in ((name, "the effect's name"), (item, "item="), (once_per, "once_per=")):
            checked_name(text or "", what)
        stored = result_notation(name, result)
        spec = EffectSpec(name=name, call=call, item=item, once_per=once_per, result=stored, unclear=unclear)
        found = await self._begin(spec)
        if isinstance(found, EffectFound):
            if found.row.status == "done":
                return spec.result.decode(found.row)
            self._check_idle(found, spec)
            if spec.unclear == "retry":
                return await self._repeat(found, spec)
            await self._settle_doubt(found, spec, await self._ask(spec, run, found.row.key))
            return await self._after_doubt(found, spec)
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
        """Keep a statement for the commit of this attempt, if it answers."""
        self.work.joined.append(self.work.store.join(statement, parameters))

    # Beginning

    async def _begin(self, spec: EffectSpec) -> EffectBegun | EffectFound:
        used = self.used = self.used or set()
        if (spec.name, spec.item) in used:
            raise EffectNameReused(
                f"effect {spec.name!r} was used before in this visit of {self.work.head.state!r}; "
                "pass item= to tell calls apart"
            )
        used.add((spec.name, spec.item))
        if self.work.origin is not None and (replayed := await self._recorded_by_origin(spec)) is not None:
            return EffectFound(replayed, holder_alive=False)
        return await self._claim(spec, await self._generation(spec))

    async def _recorded_by_origin(self, spec: EffectSpec) -> EffectRow | None:
        """What the run that this one was forked from recorded. Raises `EffectHeld` for what is new and held."""
        origin: str | None = self.work.origin
        while origin is not None:
            rows = await self.work.store.effects(run=origin, status="done")
            if (found := self._last_of(rows, spec)) is not None:
                return found
            forked = await self.work.store.run(origin)
            origin = None if forked is None else forked.origin
        if not self.work.holds_effects:
            return None
        raise EffectHeld(
            f"effect {spec.name!r} is held back: run {self.run!r} is a fork whose effects are held, and its origin did "
            "not record this one; fork again with effects='live' to let it act"
        )

    async def _generation(self, spec: EffectSpec) -> int:
        """The generation of the key: a new one after an operator's retry, if the last did not happen."""
        if self.work.head.generation == 0:
            return 0
        last = self._last_of(await self.work.store.effects(run=self.run), spec)
        return self.work.head.generation if last is None or last.status == "not_happened" else last.generation

    def _last_of(self, rows: Sequence[EffectRow], spec: EffectSpec) -> EffectRow | None:
        head = self.work.head
        place = (head.state, head.visit, spec.name, spec.item)
        fit = [row for row in rows if (row.state, row.visit, row.name, row.item) == place]
        return max(fit, key=lambda row: row.generation, default=None)

    async def _claim(self, spec: EffectSpec, generation: int) -> EffectBegun | EffectFound:
        claim = claim_of(self.work, spec.name, item=spec.item, generation=generation, once_per=spec.once_per)
        found = await self.work.store.begin_effect(claim)
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
        if row.run != self.run and found.holder_alive:  # also where it is in doubt: its holder settles that
            raise Retryable(f"effect {spec.name!r} once per {spec.once_per!r} is at work in run {row.run!r}")

    async def _settle_doubt(self, found: EffectFound, spec: EffectSpec, fate: Any) -> None:
        row = found.row
        if isinstance(fate, Happened):
            await self._settle(row, "done", result=spec.result.encode(_value_of(fate))[0])
        elif fate is NOT_HAPPENED:
            await self._settle(row, "not_happened")
        else:
            await self._settle(row, "unclear", error=row.error or "its worker died before the result was recorded")
            raise self._unclear(spec, row.key)

    async def _settle(
        self, row: EffectRow, status: Any, *, result: str | None = None, error: str | None = None
    ) -> None:
        """Settle what another claim began. Somebody may have been faster: whoever goes on looks again."""
        told = None if error is None else escaped(error)
        await self.work.store.settle_effect(
            self.run, self.work.token, row.key, status, begun_by=row.token, result=result, error=told
        )

    async def _after_doubt(self, doubted: EffectFound, spec: EffectSpec) -> Any:
        """The doubt is settled: read the result, or call for the first time that counts."""
        own = doubted.row.run == self.run
        found = await self._claim(spec, doubted.row.generation if own else await self._generation(spec))
        if isinstance(found, EffectFound):
            if found.row.status != "done":
                raise Retryable(
                    f"effect {spec.name!r} once per {spec.once_per!r} was begun by {found.row.run!r} meanwhile"
                )
            return spec.result.decode(found.row)
        try:
            value = await spec.call(found.row.key)
        except Exception as error:  # noqa: BLE001  as above
            fate = STILL_UNCLEAR if not did_not_happen(error) else NOT_HAPPENED
            return await self._record_fate(spec, found.row.key, error, fate)
        return await self._record_value(spec, found.row.key, value)

    async def _repeat(self, found: EffectFound, spec: EffectSpec) -> Any:
        """Call again under the key that was begun, whoever began it: only then does the other side notice a repetition.

        The row stays as it is meanwhile: to call it `not_happened` would set a business key free that may have acted.
        """
        try:
            value = await spec.call(found.row.key)
        except Exception as error:
            if did_not_happen(error):
                await self._settle(found.row, "not_happened", error=str(error))
            raise
        try:
            encoded, settled = spec.result.encode(value)
        except InvalidContext as error:
            await self._settle(found.row, "done", error=str(error))
            raise
        await self._settle(found.row, "done", result=encoded)
        return settled

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
            encoded, settled = spec.result.encode(value)
        except InvalidContext as error:
            await self._record(key, "done", error=str(error))
            raise
        await self._record(key, "done", result=encoded)
        return settled

    async def _record(self, key: str, status: Any, *, result: str | None = None, error: str | None = None) -> None:
        await record(self.work, key, status, result=result, error=error)


def key_of(work: "Work", name: str, item: str | None, generation: int) -> str:
    """The key of an effect: the same in every attempt, after a crash and under another worker."""
    head = work.head
    visit = f"{head.visit}.g{generation}" if generation else str(head.visit)
    plain = name.replace("%", "%25").replace(":", "%3A")  # so that no name reads like a name with an item
    return ":".join((head.run, head.state, visit, plain, *(() if item is None else (item,))))


def claim_of(
    work: "Work", name: str, *, item: str | None = None, generation: int = 0, once_per: str | None = None
) -> EffectClaim:
    """The intention to carry out an effect of the state at hand."""
    head = work.head
    return EffectClaim(
        run=head.run,
        token=work.token,
        key=key_of(work, name, item, generation),
        name=name,
        state=head.state,
        visit=head.visit,
        item=item,
        generation=generation,
        workflow=work.definition.name,
        once_per=once_per,
    )


async def record(
    work: "Work",
    key: str,
    status: EffectStatus,
    *,
    begun_by: str | None = None,
    result: str | None = None,
    error: str | None = None,
) -> None:
    """Record how an effect went that this claim began, or the one of the token `begun_by`. Raises `LeaseLost`."""
    run, token = work.head.run, work.token
    error = None if error is None else escaped(error)
    if not await work.store.settle_effect(run, token, key, status, begun_by=begun_by, result=result, error=error):
        raise LeaseLost(f"run {work.head.run!r} belongs to another worker now")


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
