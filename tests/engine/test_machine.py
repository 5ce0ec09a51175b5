"""The `transitions` machine against a plain table, for random workflows and random events."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentflow import Context, Question, Run, Workflow
from agentflow.engine.machine import DefinitionMachine, Token
from agentflow.model.values import Failure, failure_of


class Case(Context):
    bits: int = 0


class Answer(Enum):
    A = "a"
    B = "b"
    C = "c"


class Trouble(Exception): ...


class Worse(Trouble): ...


def bit(number: int) -> Any:
    def guard(case: Case) -> bool:
        return bool(case.bits >> number & 1)

    guard.__name__ = f"bit{number}"
    return guard


GUARDS = [bit(number) for number in range(4)]
FAILURES: list[tuple[type[Exception], ...]] = [(Worse,), (Trouble,), (ValueError, Worse)]


@dataclass(frozen=True)
class Row:
    """One row of the plain table."""

    source: str | None
    event: str
    guards: tuple[int, ...]
    failures: tuple[type[Exception], ...]
    target: str


@dataclass(frozen=True)
class Made:
    workflow: Any
    rows: list[Row]


@st.composite
def workflows(draw: st.DrawFn) -> Made:
    """A random workflow that `build` accepts, and its table."""
    flow: Any = Workflow("random", Case)
    count = draw(st.integers(1, 4))
    states: list[Any] = [make_state(flow, number, draw(st.booleans())) for number in range(count)]
    end = flow.end("end")
    places = [*states, end]
    rows: list[Row] = []
    made: list[Any] = []

    def add(exit: Any, source: str | None, event: str, guards: tuple[int, ...], failures: Any, target: Any) -> None:
        for number in guards:
            exit = exit.when(GUARDS[number])
        made.append(exit.to(target))
        rows.extend(Row(source, name, guards, failures, target.name) for name in event.split("|"))

    guard_lists = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple), max_size=2)
    for number, state in enumerate(states):
        following = places[number + 1]  # so that every state is reached
        exits = [state.on(member) for member in Answer] if state.spec.outcome else [state]
        names = [f"on:{member.name}" for member in Answer] if state.spec.outcome else ["done"]
        for exit, name in zip(exits, names, strict=True):
            for guards in without_shadows(draw(guard_lists)):
                add(exit, state.name, name, guards, (), draw(st.sampled_from(places)))
            add(exit, state.name, name, (), (), following)
        for failures in draw(st.lists(st.sampled_from(FAILURES[:1]), max_size=1)):
            add(state.failed(*failures), state.name, "failed", draw(st.sampled_from([(), (0,)])), failures, following)
    if draw(st.booleans()):
        add(flow.failed(Trouble), None, "failed", (), (Trouble,), end)
    flow.build(start=states[0], transitions=made)
    return Made(flow, rows)


def without_shadows(guard_lists: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The lists without those that an earlier one takes already, which `build` refuses."""
    kept: list[tuple[int, ...]] = []
    for guards in guard_lists:
        if not any(set(earlier) <= set(guards) for earlier in kept):
            kept.append(guards)
    return kept


def make_state(flow: Any, number: int, decides: bool) -> Any:
    if decides:

        def ask(case: Case) -> Question:
            return Question("?")

        ask.__name__ = f"state{number}"
        return flow.human(Answer, max_visits=9)(ask)

    async def work(case: Case, run: Run) -> None: ...

    work.__name__ = f"state{number}"
    return flow.step(max_visits=9)(work)


def by_hand(rows: list[Row], state: str, event: str, bits: int, failure: Failure | None, rescued: bool) -> Any:
    """What the table says: the target and the guards that were looked at, or None."""
    looked: list[tuple[str, bool]] = []
    own = [row for row in rows if row.source == state]
    rescues = [row for row in rows if row.source is None and not rescued]
    for row in [*own, *rescues]:
        if row.event != event:
            continue
        if row.failures and not (failure and any(failure.matches(kind) for kind in row.failures)):
            continue
        holds = True
        for number in row.guards:
            holds = bool(bits >> number & 1)
            looked.append((f"bit{number}", holds))
            if not holds:
                break
        if holds:
            return row.target, tuple(looked)
    return None


@given(
    workflows(),
    st.integers(0, 3),
    st.sampled_from(["done", "on:A", "on:B", "on:C", "failed", "expired"]),
    st.integers(0, 15),
    st.sampled_from([Trouble("x"), Worse("x"), ValueError("x"), KeyError("x")]),
    st.booleans(),
)
def test_the_machine_goes_where_the_table_says(
    made: Made, number: int, event: str, bits: int, error: Exception, rescued: bool
) -> None:
    definition = made.workflow.definition
    state = f"state{number % len(definition.states)}"
    kept, _ = definition.context.start(Case(bits=bits))
    failure = failure_of(error, state) if event == "failed" else None
    token = Token(state, lambda: definition.context.copy(kept), failure, rescued, None)
    fired = DefinitionMachine(definition).fire(event, token)
    expected = by_hand(made.rows, state, event, bits, failure, rescued)
    assert (None if fired is None else (fired.target, fired.guards)) == expected
    if fired is None:
        assert token.state == state
