"""One command to one event: run a body, ask a model, ask a person.

The order is body, `.store`, validation; guards follow in `advance`. Author code works on private copies, and nothing
that it raises leaves here as an exception: it becomes a `BodyFailed` or, for `.store`, a `Broken` event.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError

from agentflow.engine.commands import FailState, Perform
from agentflow.engine.events import Answered, BodyFailed, Broken, Event, Expired, Facts, GiveUp
from agentflow.engine.head import NO_USAGE, Head, Usage
from agentflow.engine.limits import limits_of
from agentflow.errors import ConfigurationError, EffectHeld, InvalidContext, LeaseLost, StoreError, StoreFailed
from agentflow.failures import OverLimit, TimedOut
from agentflow.model.context import Context
from agentflow.model.definition import Definition, StateDefinition, form_of
from agentflow.model.notation import notation_of
from agentflow.model.places import short
from agentflow.model.run import Run, SyncRun
from agentflow.model.values import Answer, Question, failure_of
from agentflow.runners.ledger import RunLedger
from agentflow.runners.only_once import run_once
from agentflow.runners.records import actor_of, facts_of, from_json, to_json
from agentflow.runners.resources import Resources
from agentflow.runners.retries import verdict
from agentflow.store.protocol import Store
from agentflow.store.rows import GroupRow, Joined, NewRun, WaitRow
from agentflow.store.texts import escaped

if TYPE_CHECKING:
    from agentflow.llm.choice import ModelAnswer


@dataclass(frozen=True, slots=True)
class Parked:
    """The run waits for somebody, or for branches: `wait` or `group` is to be opened, None if it is open already."""

    wait: WaitRow | None
    due_at: datetime | None
    group: GroupRow | None = None
    branches: tuple[NewRun, ...] = ()


class Script(Protocol):
    """Answers that stand in for models and people, in tests."""

    def take(self, work: "Work", state: StateDefinition) -> "ScriptedAnswer | Exception | None":
        """The next answer of a state, an exception to raise, or None to do what the state says."""
        ...


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """What a script says instead of a model or a person."""

    outcome: Enum | None
    data: Any
    reason: str = ""
    expires: bool = False


@dataclass(slots=True, kw_only=True)
class Work:
    """One attempt at one state."""

    store: Store
    definition: Definition
    resources: Resources
    head: Head
    state: StateDefinition
    token: str
    strict: bool = False
    script: Script | None = None
    origin: str | None = None  # the run that this one was forked from
    holds_effects: bool = False
    used: Usage = NO_USAGE
    joined: list[Joined] = field(default_factory=list[Joined])  # statements for the commit
    settles: tuple[str, ...] = ()  # effects that the commit settles
    item: tuple[Any, ...] = ()  # what the body of an `each` gets beside the context

    def copy(self) -> Context:
        """A private copy of the context."""
        context: Context = self.definition.context.copy(self.head.kept, self.head.cause)
        return context


async def perform(work: Work, command: Perform | FailState) -> Event | Parked:
    """Do what a command says; come back with what happened."""
    if isinstance(command, FailState):
        return BodyFailed(work.store.now(), command.failure, GiveUp())
    started = time.perf_counter()
    if work.head.answer is not None:
        return _kept_answer(work, started)
    scripted = work.script.take(work, work.state) if work.script is not None else None
    if scripted is not None:
        return _from_script(work, scripted)
    try:
        return await _by_kind(work, started)
    except (ConfigurationError, StoreError):
        raise  # the program is set up wrongly: no run is to blame for it
    except BaseException as error:  # the one place where author code is called: what it raises is data
        if _ends_the_task(error):
            raise
        return _failed(work, error, started)


def _ends_the_task(error: BaseException) -> bool:
    """Whether it was meant for whoever drives the run: a lost lease, a cancel from outside, the user's interrupt."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0  # else the body waited for something that was cancelled
    return isinstance(error, LeaseLost | EffectHeld | KeyboardInterrupt | GeneratorExit)


async def _by_kind(work: Work, started: float) -> Event | Parked:
    match work.state.kind:
        case "step" | "item":
            return await _step(work, started)
        case "llm":
            return await _llm(work, started)
        case "human":
            return await _human(work)
        case "group":
            from agentflow.runners.groups import perform_group  # noqa: PLC0415  most runs have none

            return await perform_group(work)
        case kind:
            raise NotImplementedError(f"build() lets no {kind!r} state through")


# --- what came out -----------------------------------------------------------------------------------------------


def _answered(work: Work, context: Context, outcome: Enum | None, facts: Facts) -> Event:
    kept, difference = work.definition.context.keep(work.head.kept, context)
    name = None if outcome is None else outcome.name
    return Answered(work.store.now(), name, kept, difference, facts, work.used)


def _failed(work: Work, error: BaseException, started: float, *, final: bool = False) -> Event:
    now = work.store.now()
    attempt = work.head.number
    spec = work.state.spec
    retry = None if final else spec.retry
    policy = verdict(retry, error, attempt=work.head.attempt + 1, entered_at=work.head.entered_at, now=now)
    facts = Facts(duration_ms=_milliseconds(started))
    if isinstance(error, StoreFailed):
        return Broken(now, failure_of(error, work.head.state, attempts=attempt), work.used)
    if spec.optional and isinstance(policy, GiveUp):
        note = Facts(duration_ms=facts.duration_ms, answer={"skipped": f"{type(error).__name__}: {error}"})
        kept, difference = work.definition.context.keep(work.head.kept, work.copy())
        return Answered(now, None, kept, difference, note, work.used, skipped=True)
    return BodyFailed(now, failure_of(error, work.head.state, attempts=attempt), policy, facts, work.used)


def _milliseconds(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def _kept_answer(work: Work, started: float) -> Event:
    """The answer whose guards raised: only they are evaluated again."""
    answer = work.head.answer
    assert answer is not None  # the caller looked
    try:
        kept, difference = work.definition.context.apply(work.head.kept, answer.difference)
    except InvalidContext as error:  # the context's class has changed since
        return _failed(work, error, started, final=True)
    return Answered(work.store.now(), answer.outcome, kept, difference, facts_of(answer.facts))


def _keep(work: Work, context: Context, answer: Answer[Any, Any]) -> None:
    """Let the state's `.store` put the answer into the copy. Raises `StoreFailed`."""
    if work.state.keep is None:
        return
    try:
        work.state.keep(context, answer)
    except Exception as error:
        raise StoreFailed(
            f"the .store function of {work.head.state!r} raised {type(error).__name__}: {error}"
        ) from error


# --- code --------------------------------------------------------------------------------------------------------


async def _step(work: Work, started: float) -> Event:
    context = work.copy()
    services = None
    if work.definition.services is not None:
        services = work.resources.entered(work.definition) or await work.resources.services(work.definition)
    head, spec = work.head, work.state.spec
    kind = Run if work.state.is_async else SyncRun
    run: Any = kind(
        services=services,
        id=head.run,
        visit=head.visit,
        attempt=head.number,
        now=head.entered_at,
        ledger=RunLedger(work, context),
    )
    if spec.kind == "item":
        work.item = (item_of(work),)
    if work.state.is_async and spec.timeout is None and not spec.once:
        outcome = await work.state.body(context, *work.item, run)
    else:
        outcome, error = await _guarded(work, context, run)
        if error is not None:
            if isinstance(error, ConfigurationError | StoreError | LeaseLost | EffectHeld):
                raise error
            return _failed(work, error, started)
    _check_outcome(work, outcome)
    return _answered(work, context, outcome, Facts(duration_ms=_milliseconds(started)))


async def _guarded(work: Work, context: Context, run: Any) -> tuple[Any, BaseException | None]:
    """As `_body`, at most once where that is asked for."""
    if work.state.spec.once:
        return await run_once(work, lambda: _body(work, context, run))
    return await _body(work, context, run)


async def _body(work: Work, context: Context, run: Any) -> tuple[Any, BaseException | None]:
    """What the body returned. What it raised comes out of a thread as a value, out of a coroutine as it is."""
    if work.state.is_async:
        return await _run_async(work, context, run), None
    return await _in_thread(work, context, run)


async def _in_thread(work: Work, context: Context, run: SyncRun[Any]) -> tuple[Any, BaseException | None]:
    """What a synchronous body returned, or raised: as a value, since a loop does not survive every exception."""

    def call() -> tuple[Any, BaseException | None]:
        try:
            return work.state.body(context, run), None
        except BaseException as error:  # noqa: BLE001  nobody interrupts a thread: this is the body's own
            return None, error

    try:
        called = asyncio.get_running_loop().run_in_executor(work.resources.threads, call)
    except RuntimeError as error:  # no thread starts any more: the next process goes on with the run
        raise LeaseLost(f"run {work.head.run!r} is left to another process: this one is ending") from error
    return await called


async def _run_async(work: Work, context: Context, run: Run[Any]) -> Any:
    timeout = work.state.spec.timeout
    if timeout is None:
        return await work.state.body(context, *work.item, run)
    limit = asyncio.timeout(timeout.total_seconds())
    try:
        async with limit:
            return await work.state.body(context, *work.item, run)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimedOut(f"state {work.head.state!r} took longer than its timeout of {timeout}") from error


def item_of(work: Work) -> Any:
    """The item of this branch, as its type."""
    branch = work.head.branch
    assert branch is not None  # an item is entered as a branch only
    assert branch.item is not None
    adapter: TypeAdapter[Any] = TypeAdapter(work.state.spec.answer)
    return adapter.validate_json(branch.item)


def _check_outcome(work: Work, outcome: Any) -> None:
    enum = work.state.spec.outcome
    if enum is None and outcome is not None:
        raise InvalidContext(f"state {work.head.state!r}", f"returned {outcome!r}; it has no outcome, so return None")
    if enum is not None and not isinstance(outcome, enum):
        raise InvalidContext(f"state {work.head.state!r}", f"returned {outcome!r}, which is no {enum.__name__}")


# --- a model -----------------------------------------------------------------------------------------------------


async def _llm(work: Work, started: float) -> Event:
    from agentflow.runners.ask import ask_model  # noqa: PLC0415  a run without models loads no client

    _check_model_limits(work)
    answer = await ask_model(work)
    context = work.copy()
    _keep(work, context, Answer(answer.outcome, answer.data, answer.reason, answer.confidence))
    return _answered(work, context, answer.outcome, _model_facts(work, answer, started))


def _check_model_limits(work: Work) -> None:
    limits, usage = limits_of(work.definition, work.head), work.head.usage
    for name, used, allowed in (
        ("llm_calls", usage.llm_calls, limits.llm_calls),
        ("tokens", usage.tokens, limits.tokens),
        ("cost", usage.cost, limits.cost),
    ):
        if allowed is not None and Decimal(used) >= Decimal(allowed):
            raise OverLimit(f"the run has used {used} of its limit {name}={allowed}", limit=name)


def _model_facts(work: Work, answer: "ModelAnswer", started: float) -> Facts:
    prompt = work.state.prompt
    record: dict[str, Any] = {"reason": answer.reason, "asked": answer.model_asked, "how": answer.how}
    if answer.data is not None:
        record["data"] = from_json(to_json(answer.data))
    if answer.confidence is not None:
        record["confidence"] = answer.confidence
    if answer.turns > 1:
        record["turns"] = answer.turns
    if len(answer.ladder) > 1:
        record["formats"] = list(answer.ladder)  # the server refused the first: a fallback is recorded as one
    return Facts(
        duration_ms=_milliseconds(started),
        answer=record,
        model=answer.model_answered or answer.model_asked,
        tokens_in=answer.usage.tokens_in,
        tokens_out=answer.usage.tokens_out,
        cost=None if answer.usage.cost is None else str(answer.usage.cost),
        prompt=prompt.digest if prompt else None,
    )


# --- a person ----------------------------------------------------------------------------------------------------


def wait_id(head: Head) -> str:
    """The id of the question that a run asks in this visit."""
    return f"{head.run}.{head.state}.{head.visit}"


async def _human(work: Work) -> Event | Parked:
    row = await work.store.wait(wait_id(work.head))
    if row is not None and row.status == "open" and row.due_at is not None and row.due_at <= work.store.now():
        row = await work.store.expire(row.id)
    if row is None:
        opened = _open_wait(work)
        return Parked(opened, opened.due_at)
    if row.status == "open":
        return Parked(None, row.due_at)
    if row.status == "decided":
        return _decided(work, row)
    return Expired(work.store.now())


def _open_wait(work: Work) -> WaitRow:
    spec, head, now = work.state.spec, work.head, work.store.now()
    question = work.state.body(work.copy())
    if not isinstance(question, Question):
        raise InvalidContext(f"state {head.state!r}", f"returned {question!r}; a human state returns a Question")
    shown = {
        "evidence": _jsonable(question.evidence, f"state {head.state!r}: evidence"),
        "suggest": _jsonable(question.suggest, f"state {head.state!r}: suggest"),
        "form": form_of(spec),
    }
    return WaitRow(
        id=wait_id(head),
        run=head.run,
        workflow=work.definition.name,
        revision=head.revision,
        state=head.state,
        visit=head.visit,
        kind="human",
        question=escaped(question.text),
        shown=to_json(shown),
        outcomes=tuple(member.name for member in spec.outcome or ()),
        roles=tuple(spec.roles),
        due_at=None if spec.expires is None else now + spec.expires,
        opened_at=now,
    )


def _jsonable(value: object, where: str) -> Any:
    """What a person is shown, as JSON values: for the eye, so types and zones may be lost. Raises `InvalidContext`."""
    try:
        return from_json(to_json(value.model_dump(mode="json") if isinstance(value, BaseModel) else value))
    except (ValueError, RecursionError) as error:
        raise InvalidContext(where, f"{short(value)} cannot be shown: {str(error).splitlines()[0]}") from None


def _data_of(spec: Any, row: WaitRow) -> Any:
    """What came with the decision. Raises `InvalidContext` if the form has changed since."""
    if spec.answer is None or row.data is None:
        return None
    notation = notation_of(spec.answer, "data")
    try:
        return notation.load(row.data)
    except ValidationError as error:
        raise notation.invalid(error) from None


def _decided(work: Work, row: WaitRow) -> Event:
    spec = work.state.spec
    data = _data_of(spec, row)
    actor = from_json(row.actor)
    outcome = work.state.outcome_named(row.outcome)
    context = work.copy()
    _keep(work, context, Answer(outcome, data, row.comment, None, actor_of(actor)))
    record: dict[str, Any] = {"wait": row.id, "reason": row.comment}
    if row.data is not None:
        record["data"] = from_json(row.data)
    return _answered(work, context, outcome, Facts(answer=record, actor=actor))


# --- a script ----------------------------------------------------------------------------------------------------


def _from_script(work: Work, scripted: ScriptedAnswer | Exception) -> Event:
    started = time.perf_counter()
    try:
        if isinstance(scripted, Exception):
            raise scripted
        if scripted.expires:
            return Expired(work.store.now())
        _render_question(work)
        context = work.copy()
        _keep(work, context, Answer(scripted.outcome, scripted.data, scripted.reason))
        record = {"reason": scripted.reason, "data": from_json(to_json(scripted.data)), "how": "script"}
        return _answered(work, context, scripted.outcome, Facts(answer=record))
    except Exception as error:  # noqa: BLE001  as in perform()
        return _failed(work, error, started, final=True)  # a script says what becomes of a visit, not of an attempt


def _render_question(work: Work) -> None:
    """Run what the state would ask, so that a broken question or prompt is found without a model or a person."""
    context = work.copy()
    asked: Callable[..., Any] = work.state.body
    if work.state.kind in {"human", "llm"}:
        asked(context)
        if work.strict and work.definition.context.keep(work.head.kept, context)[0] is not work.head.kept:
            raise InvalidContext(
                f"state {work.head.state!r}", "its body changed the context; it only says what is needed"
            )
