"""The lines of a script: what states do on their visits, instead of asking a model or a person."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from agentflow.model.context import Context
from agentflow.model.definition import StateDefinition
from agentflow.model.states import Choice, Signal, State, Timed, Writer
from agentflow.runners.perform import ScriptedAnswer, Work

C = TypeVar("C", bound=Context)
E = TypeVar("E", bound=Enum)
A = TypeVar("A")


class ScriptError(AssertionError):
    """A script does not fit what the workflow did: a line is missing or left over."""


class Line(Generic[C]):
    """One line of a script: what a state does on a visit."""

    def __init__(self, state: Any, answer: ScriptedAnswer | Exception, text: str) -> None:
        self.state = state
        self.answer = answer
        self.text = text

    def __repr__(self) -> str:
        return self.text


@overload
def says(state: Choice[C, E, None], outcome: E, /, *, reason: str = "") -> Line[C]: ...
@overload
def says(state: Choice[C, E, A], outcome: E, data: A, /, *, reason: str = "") -> Line[C]: ...
@overload
def says(state: Writer[C, A], data: A, /) -> Line[C]: ...
@overload
def says(state: Signal[C, A], data: A, /) -> Line[C]: ...
def says(state: Any, first: Any, data: Any = None, /, *, reason: str = "") -> Line[Any]:
    """This state answers so; several lines for one state are taken in turn."""
    if state.spec.outcome is None:
        return Line(state, ScriptedAnswer(None, first, reason), f"says({state.name}, {first!r})")
    if not isinstance(first, state.spec.outcome):
        raise ScriptError(f"says({state.name}, {first!r}): {state.name} answers with {state.spec.outcome.__name__}")
    answer = state.spec.answer
    if answer is not None and not isinstance(data, answer):
        raise ScriptError(f"says({state.name}, {first!r}, ...): its answer carries a {answer.__name__}, not {data!r}")
    return Line(state, ScriptedAnswer(first, data, reason), f"says({state.name}, {first!r})")


def expires(state: Timed[C], /) -> Line[C]:
    """Nobody answers in time."""
    place: Any = state
    return Line(state, ScriptedAnswer(None, None, expires=True), f"expires({place.name})")


def fails(state: State[C], failure: Exception, /) -> Line[C]:
    """This state fails so on a visit, with no attempt left."""
    return Line(state, failure, f"fails({state.name}, {failure!r})")


@dataclass(slots=True)
class LineScript:
    """A script that hands out its lines, each state's in turn."""

    lines: Sequence[Line[Any]]
    taken: set[int] = field(default_factory=set[int])

    def take(self, work: Work, state: StateDefinition) -> ScriptedAnswer | Exception | None:
        """The next line of the state; None lets a step do its own work. Raises `ScriptError` if one is missing."""
        for number, line in enumerate(self.lines):
            if number not in self.taken and line.state is state.place:
                self.taken.add(number)
                return line.answer
        if state.kind == "step":
            return None
        head = work.head
        raise ScriptError(
            f"the script has no line left for {state.kind} state {state.name!r} "
            f"(visit {head.visit}); add says({state.name}, ...)"
        )

    def check_all_taken(self) -> None:
        """Raise `ScriptError` if a line is left over."""
        left = [repr(line) for number, line in enumerate(self.lines) if number not in self.taken]
        if left:
            raise ScriptError(f"the run ended and these lines of the script were left over: {', '.join(left)}")
