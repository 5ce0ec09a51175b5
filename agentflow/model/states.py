"""States, ends and the rows of the table: what the decorators return and what the exits lead to.

Authors meet these classes in completion and in error messages and never construct them. A row is finished by `.to`
(or `.join`); an unfinished one has another type, so a type checker finds it.
"""

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, overload

from typing_extensions import TypeVar

from agentflow.model.context import Context
from agentflow.model.run import Run, SyncRun
from agentflow.model.values import Answer, Question, Retry, Vars

if TYPE_CHECKING:
    from agentflow.model.views import Snapshot  # noqa: F401  named in a base class below, as text

C = TypeVar("C", bound=Context)
CC = TypeVar("CC", bound=Context)
S = TypeVar("S")
E = TypeVar("E", bound=Enum)
O = TypeVar("O")  # noqa: E741  the letter of the typing contract
A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")

Mode: TypeAlias = Literal["all", "any", "settled"] | int
Kind: TypeAlias = Literal[
    "step", "llm", "react", "human", "signal", "sleep", "call", "stream", "runs", "item", "group"
]  # fmt: skip
GroupKind: TypeAlias = Literal["fork", "each", "graph"]
EventKind: TypeAlias = Literal["done", "on", "failed", "expired", "joined"]


@dataclass(frozen=True, slots=True)
class Line:
    """Where something was written."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}"


def calling_line() -> Line:
    """The line outside this package from which the present call came."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("agentflow.model"):
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a decorator was told about a state."""

    kind: Kind
    outcome: type[Enum] | None = None
    answer: Any = None
    retry: Retry | None = None
    timeout: timedelta | None = None
    undo: Callable[..., Any] | None = None
    optional: bool = False
    once: bool = False
    protected: bool = False
    max_visits: int | None = None
    prompt: str | Path | None = None
    model: str | None = None
    max_tokens: int | None = None
    expires: timedelta | None = None
    roles: tuple[str, ...] = ()
    tools: tuple[Any, ...] = ()
    max_turns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Branching:
    """What a group was told about its branches."""

    kind: GroupKind
    heads: tuple[Any, ...]  # where the branches begin: states, or the one item of an `each`
    mode: Mode = "all"
    items: Callable[[Any], Sequence[Any]] | None = None
    key: Callable[[Any], str] | None = None
    max_items: int | None = None
    max_parallel: int | None = None
    needs: "Mapping[Any, Sequence[Any]] | None" = None  # of a graph: the branches that must be done before


@dataclass(frozen=True, slots=True)
class Exit:
    """Where a row starts: a place (None: any state), what happened there, and under which guards."""

    owner: Any
    place: Any
    event: EventKind
    _: KW_ONLY
    outcomes: tuple[Any, ...] = ()
    failures: tuple[type[Exception], ...] = ()
    guards: tuple[Callable[[Any], bool], ...] = ()
    undo: bool = False


# --- rows --------------------------------------------------------------------------------------------------------


class Transition(Generic[C]):
    """One finished row: from here, on this answer, under this guard, to there."""

    def __init__(self, exit: Exit, target: "Place[C]", line: Line | None = None) -> None:
        self.exit = exit
        self.target = target
        self.line = calling_line() if line is None else line
        if line is None:
            exit.owner.made.append(self)

    def __repr__(self) -> str:
        source = self.exit.place.name if self.exit.place is not None else self.exit.owner.name
        return f"<{source} {self.exit.event} -> {self.target.name}>"


class Place(Generic[C]):
    """Where a run can stand: a state, a group or an end."""

    if TYPE_CHECKING:
        _invariant: Callable[[C], C]

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name
        self.line = calling_line()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.owner.name}.{self.name}>"


class Target(Place[C]):
    """What a row can lead to: a state or an end of the same context."""


class End(Target[C]):
    """Where a run stops; prints as its name."""

    def __init__(self, owner: Any, name: str, *, failed: bool) -> None:
        super().__init__(owner, name)
        self.failed = failed


class Groups(Generic[C]):
    """What can open a group of branches: an exit, or the workflow itself for a group that it starts with."""

    if TYPE_CHECKING:

        @property
        def _group_exit(self) -> Exit: ...

    @overload
    def fork(self, first: "State[C]", second: "State[C]", /, *more: "State[C]", mode: Mode = "all") -> "Fork[C]": ...
    @overload
    def fork(
        self, first: "State[C]", second: "State[C]", /, *more: "State[C]", mode: Mode = "all", expires: timedelta
    ) -> "TimedFork[C]": ...
    def fork(
        self,
        first: "State[C]",
        second: "State[C]",
        /,
        *more: "State[C]",
        mode: Mode = "all",
        expires: timedelta | None = None,
    ) -> "Fork[C]":
        """Run the branches side by side; `.join` of the group says where they meet."""
        return _group(self._group_exit, Branching(kind="fork", heads=(first, second, *more), mode=mode), expires)

    @overload
    def each(
        self,
        items: Callable[[C], Sequence[T]],
        body: "Item[C, Any, T]",
        /,
        *,
        max_items: int,
        max_parallel: int | None = None,
        key: Callable[[T], str] | None = None,
        mode: Mode = "all",
    ) -> "Fork[C]": ...
    @overload
    def each(
        self,
        items: Callable[[C], Sequence[T]],
        body: "Item[C, Any, T]",
        /,
        *,
        max_items: int,
        max_parallel: int | None = None,
        key: Callable[[T], str] | None = None,
        mode: Mode = "all",
        expires: timedelta,
    ) -> "TimedFork[C]": ...
    def each(
        self,
        items: Callable[[C], Sequence[T]],
        body: "Item[C, Any, T]",
        /,
        *,
        max_items: int,
        max_parallel: int | None = None,
        key: Callable[[T], str] | None = None,
        mode: Mode = "all",
        expires: timedelta | None = None,
    ) -> "Fork[C]":
        """Run the body for every item, side by side; `.join` of the group says where they meet."""
        branching = Branching(
            kind="each",
            heads=(body,),
            mode=mode,
            items=items,
            key=key,
            max_items=max_items,
            max_parallel=max_parallel,
        )
        return _group(self._group_exit, branching, expires)

    @overload
    def graph(self, needs: "Mapping[State[C], Sequence[State[C]]]", /) -> "Fork[C]": ...
    @overload
    def graph(self, needs: "Mapping[State[C], Sequence[State[C]]]", /, *, expires: timedelta) -> "TimedFork[C]": ...
    def graph(
        self, needs: "Mapping[State[C], Sequence[State[C]]]", /, *, expires: timedelta | None = None
    ) -> "Fork[C]":
        """Run each branch as soon as the branches that it needs are done; `.join` says where they meet."""
        return _group(self._group_exit, Branching(kind="graph", heads=tuple(needs), needs=needs), expires)


def _group(exit: Exit, branching: Branching, expires: timedelta | None) -> "Fork[Any]":
    kind: Any = Fork if expires is None else TimedFork
    group: Fork[Any] = kind(exit, branching, expires)
    exit.owner.groups.append(group)
    return group


class Way(Groups[C]):
    """An exit that still needs its target."""

    def __init__(self, exit: Exit) -> None:
        self._exit = exit

    @property
    def _here(self) -> Exit:
        return self._exit

    @property
    def _group_exit(self) -> Exit:
        return self._here

    def to(self, target: Target[C], /) -> Transition[C]:
        """Go there."""
        return Transition(self._here, target)


class Guarded(Way[C]):
    """An exit that guards can narrow."""

    def when(self, guard: Callable[[C], bool], /) -> "Guarded[C]":
        """Only if the guard, a named pure function of the context, says so; a chain means all of them."""
        return Guarded(replace(self._here, guards=(*self._here.guards, guard)))


class FailedWay(Guarded[C]):
    """The exit of a failure, of any class or of those named."""

    def __call__(self, kind: type[Exception], /, *more: type[Exception]) -> Guarded[C]:
        """Only for failures of these classes."""
        return Guarded(replace(self._here, failures=(kind, *more)))


class Rescue(Guarded[C]):
    """The exit of failures of some classes that no state handled."""

    def undo(self) -> "Undo[C]":
        """First undo the completed steps, newest first."""
        return Undo(replace(self._here, undo=True))


class WorkflowFailed(Rescue[C]):
    """The exit of every failure that no state handled."""

    def __call__(self, kind: type[Exception], /, *more: type[Exception]) -> Rescue[C]:
        """Only for failures of these classes."""
        return Rescue(replace(self._here, failures=(kind, *more)))


class Undo(Generic[C]):
    """The exit after compensation."""

    def __init__(self, exit: Exit) -> None:
        self._exit = exit

    def to(self, end: End[C], /) -> Transition[C]:
        """End there, once everything is undone."""
        return Transition(self._exit, end)


class Timed(Generic[C]):
    """What may expire."""

    @property
    def expired(self) -> Guarded[C]:
        """The exit if nothing came in time."""
        return Guarded(Exit(self.owner, self, "expired"))  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


class Fork(Place[C]):
    """A group of branches, by `fork`, `each` or `graph`; the run stands here until they meet."""

    def __init__(self, exit: Exit, branching: Branching, expires: timedelta | None) -> None:
        name = f"{exit.place.name}.{branching.kind}" if exit.place is not None else branching.kind
        taken = sum(group.name.rstrip("0123456789") == name for group in exit.owner.groups)
        super().__init__(exit.owner, name if taken == 0 else f"{name}{taken + 1}")
        self.opened_by = exit
        self.branching = branching
        self.spec = Spec(kind="group", expires=expires)

    @property
    def failed(self) -> FailedWay[C]:
        """The exit of a failed branch, or of branches that can't be merged."""
        return FailedWay(Exit(self.owner, self, "failed"))

    def join(self, target: Target[C], /) -> Transition[C]:
        """Merge what the branches wrote, then go there."""
        return Transition(Exit(self.owner, self, "joined"), target)


class TimedFork(Fork[C], Timed[C]):
    """A group whose branches must meet in time."""


# --- states ------------------------------------------------------------------------------------------------------


class State(Target[C]):
    """One place in the machine."""

    def __init__(self, owner: Any, body: Callable[..., Any], spec: Spec) -> None:
        super().__init__(owner, body.__name__)
        self.body = body
        self.spec = spec
        self.keeps: list[Callable[..., Any]] = []
        code = getattr(body, "__code__", None)
        if code is not None:
            self.line = Line(code.co_filename, code.co_firstlineno)
        owner.states.append(self)

    @property
    def failed(self) -> FailedWay[C]:
        """The exit of failures, taken once no attempt is left."""
        return FailedWay(Exit(self.owner, self, "failed"))


class Body(Generic[P, T]):
    """The author's function."""

    body: Callable[P, T]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the body, as a unit test does."""
        return self.body(*args, **kwargs)


class Stored(Generic[C, O, A]):
    """What has an answer to keep."""

    if TYPE_CHECKING:
        keeps: list[Callable[..., Any]]

    def store(self, keep: Callable[[C, Answer[O, A]], None], /) -> Callable[[C, Answer[O, A]], None]:
        """Say how the answer enters the context."""
        self.keeps.append(keep)
        return keep


class Plain(State[C], Guarded[C]):
    """A state without an outcome, so with a single way on."""

    @property
    def _here(self) -> Exit:
        return Exit(self.owner, self, "done")


class Choice(State[C], Stored[C, E, A], Generic[C, E, A]):
    """A state whose outcome routes the run."""

    def on(self, outcome: E, /, *more: E) -> Guarded[C]:
        """On one of these outcomes."""
        return Guarded(Exit(self.owner, self, "on", outcomes=(outcome, *more)))


class Step(Plain[C], Body[[C, Run[S]], Coroutine[Any, Any, None]], Generic[C, S]):
    """Asynchronous code with a single way on."""


class SyncStep(Plain[C], Body[[C, SyncRun[S]], None], Generic[C, S]):
    """Synchronous code, run in a thread, with a single way on."""


class Decision(Choice[C, E, None], Body[[C, Run[S]], Coroutine[Any, Any, E]], Generic[C, S, E]):
    """Asynchronous code that decides."""


class SyncDecision(Choice[C, E, None], Body[[C, SyncRun[S]], E], Generic[C, S, E]):
    """Synchronous code, run in a thread, that decides."""


class Llm(Choice[C, E, A], Body[[C], Vars]):
    """A model that decides, with or without tools."""


class Writer(Plain[C], Stored[C, None, A], Body[[C], Vars]):
    """A model that writes text or fills `answer=`, with or without tools; no outcome."""


class Human(Choice[C, E, A], Body[[C], Question]):
    """A person who decides."""


class TimedHuman(Human[C, E, A], Timed[C]):
    """A person who decides in time."""


class Signal(Plain[C], Stored[C, None, A], Body[[C], str | None]):
    """Another system that reports."""


class TimedSignal(Signal[C, A], Timed[C]):
    """Another system that reports in time."""


class SignalChoice(Choice[C, E, A], Body[[C], str | None]):
    """Another system that reports one of several things."""


class TimedSignalChoice(SignalChoice[C, E, A], Timed[C]):
    """Another system that reports one of several things in time."""


class Sleep(Plain[C], Body[[C], timedelta | datetime]):
    """A wait for the clock."""


class Stream(
    Plain[C],
    Stored[C, None, Sequence[T]],
    Body[[C, Run[S]], AsyncIterator[T]],
    Generic[C, S, T],
):
    """Code that yields chunks."""


class Call(State[C], Stored[C, End[CC], CC], Body[[C], CC], Generic[C, CC]):
    """A child workflow; its end is the outcome."""

    def on(self, end: End[CC], /, *more: End[CC]) -> Guarded[C]:
        """On one of these ends of the child."""
        return Guarded(Exit(self.owner, self, "on", outcomes=(end, *more)))


class Runs(
    Plain[C],
    Stored[C, None, "Sequence[Snapshot[CC]]"],
    Body[[C], Sequence[str]],
    Generic[C, CC],
):
    """Independent runs that are waited for."""


class Item(Guarded[C], Body[[C, T, Run[S]], Coroutine[Any, Any, None]], Generic[C, S, T]):
    """What `each` does with one item; the way on leads through the item's own branch."""

    def __init__(self, owner: Any, body: Callable[..., Any], spec: Spec) -> None:
        super().__init__(Exit(owner, self, "done"))
        self.owner = owner
        self.name = body.__name__
        self.body = body
        self.spec = spec
        self.line = calling_line()
        owner.items.append(self)

    @property
    def failed(self) -> FailedWay[C]:
        """The exit of failures, taken once no attempt is left."""
        return FailedWay(Exit(self.owner, self, "failed"))
