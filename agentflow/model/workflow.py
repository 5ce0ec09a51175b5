"""The `Workflow`: decorators that make states, and `build`, which closes the table of transitions.

A state is a function; the decorator says who decides; the body says what they need; the table says where each answer
leads. Start reading here, then `engine/advance.py`, then `runners/local.py`.
"""

import inspect
import sys
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Literal, Required, TypedDict, Unpack, overload

from pydantic import BaseModel
from typing_extensions import TypeVar

from agentflow.errors import DefinitionError
from agentflow.model.check import Draft, check_draft
from agentflow.model.check_versions import problems_of_migrations
from agentflow.model.context import Context
from agentflow.model.definition import Definition, compile_definition
from agentflow.model.migrations import Migrate, Migration
from agentflow.model.run import Run, SyncRun
from agentflow.model.states import (
    Call,
    Decision,
    End,
    Exit,
    Fork,
    Groups,
    Human,
    Item,
    Llm,
    Mode,
    Place,
    Runs,
    Signal,
    SignalChoice,
    Sleep,
    Spec,
    State,
    Step,
    Stream,
    SyncDecision,
    SyncStep,
    TimedHuman,
    TimedSignal,
    TimedSignalChoice,
    Transition,
    WorkflowFailed,
    Writer,
    calling_line,
)
from agentflow.model.values import Limits, Question, Retry, Tool, Vars

C = TypeVar("C", bound=Context)
CC = TypeVar("CC", bound=Context)
CD = TypeVar("CD", bound=Context, default=Context)
S = TypeVar("S")
SD = TypeVar("SD", default=None)
E = TypeVar("E", bound=Enum)
A = TypeVar("A")
AD = TypeVar("AD", default=None)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class ModelOptions(TypedDict, total=False):
    """How a model is asked."""

    model: str
    max_tokens: int
    retry: Retry
    timeout: timedelta
    max_visits: int


class ReactOptions(ModelOptions):
    """The same, with tools and a bound on the turns."""

    tools: Required[Sequence[Tool | Callable[..., Awaitable[object]]]]
    max_turns: Required[int]


class WaitOptions(TypedDict, total=False):
    """Who may answer, how often it is asked, whether anything may go round it."""

    roles: Sequence[str]
    protected: bool
    max_visits: int


class SignalOptions(TypedDict, total=False):
    """Whether a loop takes what was sent before it asked."""

    accept_earlier: bool
    max_visits: int


class StepDecorator(Generic[C, S]):
    """Turns a function into a step, by what it returns."""

    def __init__(self, owner: "Workflow[Any, Any]", spec: Spec) -> None:
        self._owner = owner
        self._spec = spec

    @overload
    def __call__(self, body: Callable[[C, Run[S]], Coroutine[Any, Any, E]], /) -> Decision[C, S, E]: ...
    @overload
    def __call__(self, body: Callable[[C, SyncRun[S]], E], /) -> SyncDecision[C, S, E]: ...
    @overload
    def __call__(self, body: Callable[[C, SyncRun[S]], None], /) -> SyncStep[C, S]: ...
    @overload
    def __call__(self, body: Callable[[C, Run[S]], Coroutine[Any, Any, None]], /) -> Step[C, S]: ...
    def __call__(self, body: Callable[[Any, Any], Any], /) -> Any:
        returned = _returned(body)
        outcome = returned if isinstance(returned, type) and issubclass(returned, Enum) else None
        runs_in_thread = not inspect.iscoroutinefunction(body)
        kinds: dict[tuple[bool, bool], type[State[Any]]] = {
            (True, False): Decision,
            (True, True): SyncDecision,
            (False, True): SyncStep,
            (False, False): Step,
        }
        spec = Spec(
            kind="step",
            outcome=outcome,
            retry=self._spec.retry,
            timeout=self._spec.timeout,
            undo=self._spec.undo,
            optional=self._spec.optional,
            once=self._spec.once,
            protected=self._spec.protected,
            max_visits=self._spec.max_visits,
        )
        return kinds[outcome is not None, runs_in_thread](self._owner, body, spec)


def _returned(body: Callable[..., Any]) -> Any:
    """What a body's annotation says it returns; a text annotation is resolved where the body was written."""
    returned: Any = getattr(body, "__annotations__", {}).get("return")
    if not isinstance(returned, str):
        return returned
    try:
        return typing.get_type_hints(body).get("return")
    except (NameError, TypeError):
        # Another annotation may name something that only type checkers import: look at this one alone.
        scope = {**getattr(body, "__globals__", {})}
        return scope.get(returned)


def _making(kind: Any, owner: "Workflow[Any, Any]", spec: Spec) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that makes states of that kind."""
    return lambda body: kind(owner, body, spec)


class Workflow(Groups[C], Generic[C, SD]):
    """The definition: states, then one table of transitions."""

    name: str

    def __init__(
        self,
        name: str,
        context: type[C],
        /,
        *,
        services: type[SD] | None = None,
        version: int = 1,
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.context = context
        self.services = services
        self.version = version
        self.limits = limits or Limits()
        self.line = calling_line()
        self.states: list[State[C]] = []
        self.items: list[Item[C, Any, Any]] = []
        self.ends: list[End[C]] = []
        self.groups: list[Fork[C]] = []
        self.made: list[Transition[C]] = []
        self.migrations: list[Migration] = []
        self._definition: Definition | None = None

    def __repr__(self) -> str:
        return f"<Workflow {self.name} v{self.version}>"

    @property
    def _group_exit(self) -> Exit:
        return Exit(self, None, "done")

    @property
    def definition(self) -> Definition:
        """The closed definition. Raises `DefinitionError` if `build` was not called."""
        if self._definition is None:
            raise DefinitionError(self.name, [f"{self.line}: it was never built; call {self.name}.build(...)"])
        return self._definition

    @property
    def warnings(self) -> Sequence[str]:
        """What `build` found worth a look, although the workflow can run."""
        return self.definition.warnings

    def step(
        self,
        *,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        undo: Callable[[C, Run[SD]], Awaitable[None]] | None = None,
        optional: bool = False,
        once: bool = False,
        protected: bool = False,
        max_visits: int | None = None,
    ) -> StepDecorator[C, SD]:
        """Code: a body that returns an enum decides, one that returns None just works."""
        spec = Spec(
            kind="step",
            retry=retry,
            timeout=timeout,
            undo=undo,
            optional=optional,
            once=once,
            protected=protected,
            max_visits=max_visits,
        )
        return StepDecorator(self, spec)

    @overload
    def llm(
        self,
        outcome: type[E],
        /,
        *,
        prompt: str | Path,
        answer: type[AD] | None = None,
        **options: Unpack[ModelOptions],
    ) -> Callable[[Callable[[C], Vars]], Llm[C, E, AD]]: ...
    @overload
    def llm(
        self, *, prompt: str | Path, answer: type[A], **options: Unpack[ModelOptions]
    ) -> Callable[[Callable[[C], Vars]], Writer[C, A]]: ...
    @overload
    def llm(
        self, *, prompt: str | Path, **options: Unpack[ModelOptions]
    ) -> Callable[[Callable[[C], Vars]], Writer[C, str]]: ...
    def llm(
        self,
        outcome: type[Enum] | None = None,
        *,
        prompt: str | Path,
        answer: Any = None,
        **options: Unpack[ModelOptions],
    ) -> Any:
        """A model decides, without an enum it writes; the body fills the prompt, a template or the `Path` of one."""
        return self._model_state("llm", outcome, prompt, answer, dict(options))

    @overload
    def react(
        self,
        outcome: type[E],
        /,
        *,
        prompt: str | Path,
        answer: type[AD] | None = None,
        **options: Unpack[ReactOptions],
    ) -> Callable[[Callable[[C], Vars]], Llm[C, E, AD]]: ...
    @overload
    def react(
        self, *, prompt: str | Path, answer: type[A], **options: Unpack[ReactOptions]
    ) -> Callable[[Callable[[C], Vars]], Writer[C, A]]: ...
    @overload
    def react(
        self, *, prompt: str | Path, **options: Unpack[ReactOptions]
    ) -> Callable[[Callable[[C], Vars]], Writer[C, str]]: ...
    def react(
        self,
        outcome: type[Enum] | None = None,
        *,
        prompt: str | Path,
        answer: Any = None,
        **options: Unpack[ReactOptions],
    ) -> Any:
        """A model works with tools, then decides or writes; the body fills the prompt, as in `llm`."""
        chosen = dict(options)
        chosen["tools"] = tuple(options["tools"])
        return self._model_state("react", outcome, prompt, answer, chosen)

    def _model_state(
        self,
        kind: Literal["llm", "react"],
        outcome: type[Enum] | None,
        prompt: str | Path,
        answer: Any,
        options: dict[str, Any],
    ) -> Callable[[Callable[[Any], Vars]], Any]:
        text = str if outcome is None and answer is None else None
        spec = Spec(kind=kind, outcome=outcome, answer=answer or text, prompt=prompt, **options)
        kind_of_state: Any = Llm if outcome is not None else Writer
        return _making(kind_of_state, self, spec)

    @overload
    def human(
        self, outcome: type[E], /, *, answer: type[AD] | None = None, **options: Unpack[WaitOptions]
    ) -> Callable[[Callable[[C], Question]], Human[C, E, AD]]: ...
    @overload
    def human(
        self, outcome: type[E], /, *, expires: timedelta, answer: type[AD] | None = None, **options: Unpack[WaitOptions]
    ) -> Callable[[Callable[[C], Question]], TimedHuman[C, E, AD]]: ...
    def human(
        self,
        outcome: type[Enum],
        /,
        *,
        expires: timedelta | None = None,
        answer: Any = None,
        **options: Unpack[WaitOptions],
    ) -> Any:
        """A person decides; the body returns the question."""
        chosen: dict[str, Any] = dict(options)
        roles = options.get("roles", ())
        chosen["roles"] = (roles,) if isinstance(roles, str) else tuple(roles)  # a lone string is one role
        spec = Spec(kind="human", outcome=outcome, answer=answer, expires=expires, **chosen)
        kind: Any = TimedHuman if expires is not None else Human
        return _making(kind, self, spec)

    @overload
    def signal(
        self, payload: type[M], /, *, correlate: Callable[[M], str] | None = None, **options: Unpack[SignalOptions]
    ) -> Callable[[Callable[[C], str | None]], Signal[C, M]]: ...
    @overload
    def signal(
        self,
        payload: type[M],
        /,
        *,
        expires: timedelta,
        correlate: Callable[[M], str] | None = None,
        **options: Unpack[SignalOptions],
    ) -> Callable[[Callable[[C], str | None]], TimedSignal[C, M]]: ...
    @overload
    def signal(
        self,
        names: type[E],
        /,
        *,
        answer: type[AD] | None = None,
        correlate: Callable[[AD], str] | None = None,
        **options: Unpack[SignalOptions],
    ) -> Callable[[Callable[[C], str | None]], SignalChoice[C, E, AD]]: ...
    @overload
    def signal(
        self,
        names: type[E],
        /,
        *,
        expires: timedelta,
        answer: type[AD] | None = None,
        correlate: Callable[[AD], str] | None = None,
        **options: Unpack[SignalOptions],
    ) -> Callable[[Callable[[C], str | None]], TimedSignalChoice[C, E, AD]]: ...
    @overload
    def signal(
        self,
        names: type[E],
        /,
        *,
        mode: Literal["all"],
        answer: type[AD] | None = None,
        correlate: Callable[[AD], str] | None = None,
        **options: Unpack[SignalOptions],
    ) -> Callable[[Callable[[C], str | None]], Signal[C, Mapping[E, AD]]]: ...
    @overload
    def signal(
        self,
        names: type[E],
        /,
        *,
        mode: Literal["all"],
        expires: timedelta,
        answer: type[AD] | None = None,
        correlate: Callable[[AD], str] | None = None,
        **options: Unpack[SignalOptions],
    ) -> Callable[[Callable[[C], str | None]], TimedSignal[C, Mapping[E, AD]]]: ...
    def signal(
        self,
        payload: Any,
        /,
        *,
        mode: Literal["any", "all"] = "any",
        expires: timedelta | None = None,
        answer: Any = None,
        correlate: Callable[[Any], str] | None = None,
        **options: Unpack[SignalOptions],
    ) -> Any:
        """Another system reports; the body returns the key that the payload must carry, or None."""
        names = payload if issubclass(payload, Enum) and mode == "any" else None
        spec = Spec(kind="signal", outcome=names, answer=answer, expires=expires, max_visits=options.get("max_visits"))
        choice: Any = TimedSignalChoice if expires is not None else SignalChoice
        plain: Any = TimedSignal if expires is not None else Signal
        return _making(choice if names is not None else plain, self, spec)

    def sleep(self) -> Callable[[Callable[[C], timedelta | datetime]], Sleep[C]]:
        """Wait; the body returns how long, or until when."""
        return lambda body: Sleep(self, body, Spec(kind="sleep"))

    def stream(
        self, chunk: type[T], /, *, retry: Retry | None = None, timeout: timedelta | None = None
    ) -> Callable[[Callable[[C, Run[SD]], AsyncIterator[T]]], Stream[C, SD, T]]:
        """Code yields chunks, which `app.stream` shows at once."""
        return lambda body: Stream(self, body, Spec(kind="stream", answer=chunk, retry=retry, timeout=timeout))

    def call(
        self, child: "Workflow[CC, Any]", /, *, timeout: timedelta | None = None, max_visits: int | None = None
    ) -> Callable[[Callable[[C], CC]], Call[C, CC]]:
        """A child workflow decides; the body makes its context."""
        return lambda body: Call(self, body, Spec(kind="call", answer=child, timeout=timeout, max_visits=max_visits))

    def runs(
        self, child: "Workflow[CC, Any]", /, *, mode: Mode = "all", timeout: timedelta | None = None
    ) -> Callable[[Callable[[C], Sequence[str]]], Runs[C, CC]]:
        """Wait for spawned runs; the body returns their ids."""
        return lambda body: Runs(self, body, Spec(kind="runs", answer=child, timeout=timeout))

    def item(
        self,
        kind: type[T],
        /,
        *,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        undo: Callable[[C, Run[SD]], Awaitable[None]] | None = None,
    ) -> Callable[[Callable[[C, T, Run[SD]], Coroutine[Any, Any, None]]], Item[C, SD, T]]:
        """Code works on one item of an `each`."""
        spec = Spec(kind="item", answer=kind, retry=retry, timeout=timeout, undo=undo)
        return lambda body: Item(self, body, spec)

    def end(self, name: str, /, *, failed: bool = False) -> End[C]:
        """A place where runs stop."""
        end: End[C] = End(self, name, failed=failed)
        self.ends.append(end)
        return end

    @property
    def failed(self) -> WorkflowFailed[C]:
        """The exit of failures that no state handles."""
        return WorkflowFailed(Exit(self, None, "failed"))

    def migration(self, *, from_version: int) -> Callable[[Migrate], Migrate]:
        """Say how a run of an older version is stored under the next one; several make a chain.

        The function is pure: it takes a `Stored` and returns another. Raises `DefinitionError` for two of one step.
        """

        def register(function: Migrate) -> Migrate:
            self.migrations.append(Migration(from_version, function, calling_line()))
            if self._definition is not None:
                found = problems_of_migrations(self.migrations, self.version)
                if found:
                    raise DefinitionError(self.name, [f"{one.line}: {problem}" for one, problem in found])
            return function

        return register

    def build(
        self,
        *,
        start: State[C] | Fork[C],
        transitions: Sequence[Transition[C]],
        renamed: Mapping[str, Place[C] | Enum] | None = None,
    ) -> None:
        """Close the definition, or raise one `DefinitionError` with all problems.

        `renamed` says what states, ends and members (`"state.MEMBER"`) of stored runs are called now: a run that
        stands in an old name goes on in the new one.
        """
        draft = Draft(
            workflow=self,
            start=start,
            rows=tuple(transitions),
            line=calling_line(),
            file=Path(sys._getframe(1).f_code.co_filename),  # pyright: ignore[reportPrivateUsage]
            renamed=dict(renamed or {}),
        )
        found = check_draft(draft)
        if found.errors:
            raise DefinitionError(self.name, found.errors)
        self._definition = compile_definition(draft, found)
