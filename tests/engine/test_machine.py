"""The `transitions` machine against a plain table, for random workflows and random events."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import Context, Question, Run, Workflow
from agentflow.engine.advance import advance, begin
from agentflow.engine.events import Answered, BodyFailed, Expired, GiveUp
from agentflow.engine.machine import DefinitionMachine, Token, machine_of
from agentflow.errors import GuardFailed
from agentflow.model.context import Difference
from agentflow.model.values import Failure, failure_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


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
CLASSES: list[tuple[type[Exception], ...]] = [(Worse,), (Trouble,), (ValueError,), (ValueError, Worse), ()]
ERRORS = [Trouble("x"), Worse("x"), ValueError("x"), UnicodeDecodeError("a", b"", 0, 0, "x"), KeyError("x")]


@dataclass(frozen=True)
class Row:
    """One row of the plain table: source (None: any state), event, guards by number, classes, target."""

    source: str | None
    event: str
    guards: tuple[int, ...]
    failures: tuple[type[Exception], ...]
    target: str


@dataclass(frozen=True)
class Made:
    workflow: Any
    rows: list[Row]


# --- random workflows --------------------------------------------------------------------------------------------


@st.composite
def workflows(draw: st.DrawFn) -> Made:
    """A random workflow that `build` accepts, and its table."""
    flow: Any = Workflow("random", Case)
    states = [make_state(flow, number, draw(st.sampled_from(["step", "human"]))) for number in range(draw(COUNTS))]
    end, bad = flow.end("end"), flow.end("bad", failed=True)
    places = [*states, end]
    rows: list[Row] = []
    made: list[Any] = []

    def add(exit: Any, source: str | None, events: str, guards: Any, failures: Any, target: Any) -> None:
        new = [Row(source, event, guards, failures, target.name) for event in events.split("|")]
        if any(is_shadowed(row, rows) for row in new):
            return
        for number in guards:
            exit = exit.when(GUARDS[number])
        made.append(exit.to(target))
        rows.extend(new)

    for number, state in enumerate(states):
        following = places[number + 1]  # so that every state is reached
        for exit, events in exits_of(state):
            for guards in draw(GUARD_LISTS):
                add(exit, state.name, events, guards, (), draw(st.sampled_from(places)))
            add(exit, state.name, events, (), (), following)
        for failures, guards in draw(FAILED_ROWS):
            exit = state.failed(*failures) if failures else state.failed
            add(exit, state.name, "failed", guards, failures, draw(st.sampled_from([*states, bad])))
    for failures, guards in draw(FAILED_ROWS):
        add(flow.failed(*failures) if failures else flow.failed, None, "failed", guards, failures, bad)
    if not any(row.target == "bad" for row in rows):
        add(flow.failed(KeyError), None, "failed", (), (KeyError,), bad)
    flow.build(start=states[0], transitions=made)
    return Made(flow, rows)


COUNTS = st.integers(1, 4)
GUARD_SETS = st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple)
GUARD_LISTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True).map(tuple), max_size=3)
FAILED_ROWS = st.lists(st.tuples(st.sampled_from(CLASSES), GUARD_SETS), max_size=4)


def exits_of(state: Any) -> list[tuple[Any, str]]:
    if state.spec.outcome is None:
        return [(state, "done")]
    return [(state.on(Answer.A, Answer.B), "on:A|on:B"), (state.on(Answer.C), "on:C"), (state.expired, "expired")]


def is_shadowed(row: Row, earlier: Sequence[Row]) -> bool:
    """Whether the earlier rows leave nothing to this one, so that `build` would refuse it."""
    before = [
        other
        for other in earlier
        if (other.source, other.event) == (row.source, row.event) and set(other.guards) <= set(row.guards)
    ]
    return all(
        any(issubclass(kind, other.failures or (Exception,)) for other in before)
        for kind in row.failures or (Exception,)
    )


def make_state(flow: Any, number: int, kind: str) -> Any:
    if kind == "human":

        def ask(case: Case) -> Question:
            return Question("?")

        ask.__name__ = f"state{number}"
        return flow.human(Answer, max_visits=99, expires=timedelta(days=1))(ask)

    async def work(case: Case, run: Run) -> None: ...

    work.__name__ = f"state{number}"
    return flow.step(max_visits=99)(work)


# --- the plain table ---------------------------------------------------------------------------------------------


def by_hand(rows: Sequence[Row], state: str, event: str, bits: int, error: Exception | None, rescued: bool) -> Any:
    """What the table says: the row, and the guards that were looked at; no row if none takes the event."""
    looked: list[tuple[str, bool]] = []
    own = [row for row in rows if row.source == state]
    rescues = [row for row in rows if row.source is None and not rescued]
    for row in [*own, *rescues]:
        if row.event != event or (row.failures and not isinstance(error, row.failures)):
            continue
        holds = True
        for number in row.guards:
            holds = bool(bits >> number & 1)
            looked.append((f"bit{number}", holds))
            if not holds:
                break
        if holds:
            return row, tuple(looked)
    return None, tuple(looked)


EVENTS = ["done", "on:A", "on:B", "on:C", "failed", "expired"]


@given(
    workflows(),
    st.integers(0, 3),
    st.sampled_from(EVENTS),
    st.integers(0, 15),
    st.sampled_from(ERRORS),
    st.booleans(),
)
def test_the_machine_goes_where_the_table_says_and_looks_at_the_same_guards(
    made: Made, number: int, event: str, bits: int, error: Exception, rescued: bool
) -> None:
    definition = made.workflow.definition
    state = f"state{number % len(definition.states)}"
    kept, _ = definition.context.start(Case(bits=bits))
    failure = failure_of(error, state) if event == "failed" else None
    token = Token(state, lambda: definition.context.copy(kept), failure, rescued, None)
    fired = DefinitionMachine(definition).fire(event, token)
    row, looked = by_hand(made.rows, state, event, bits, error, rescued)
    assert tuple(token.guards) == looked
    if row is None:
        assert fired is None
        assert token.state == state
    else:
        assert fired is not None
        assert (fired.target, fired.guards, token.state) == (row.target, looked, row.target)
        assert fired.row.exit.place is None if row.source is None else fired.row.exit.place.name == row.source


@given(
    workflows(),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 15), st.sampled_from(ERRORS)), min_size=1, max_size=8),
)
def test_a_whole_run_walks_as_the_table_says_and_is_rescued_at_most_once(
    made: Made, steps: list[tuple[int, int, Exception]]
) -> None:
    definition = made.workflow.definition
    head = replace(begin(definition, "r", definition.context.start(Case())[0], NOON).head, status="running")
    visits = {head.state: 1}
    rescues = 0
    for choice, bits, error in steps:
        state = definition.states[head.state]
        event = (
            ["done", "failed"][choice % 2]
            if state.spec.outcome is None
            else ["on:A", "on:B", "on:C", "failed", "expired"][choice]
        )
        kept, _ = definition.context.start(Case(bits=bits))
        head = replace(head, kept=kept)
        row, looked = by_hand(made.rows, state.name, event, bits, error, rescues > 0)
        step = advance(definition, head, event_of(event, head, failure_of(error, state.name)))
        if row is None:
            assert (step.move, step.head.status, step.head.state) == (None, "failed", state.name)
            return
        rescues += row.source is None
        assert step.move is not None
        assert (step.move.source, step.move.target, step.move.guards) == (state.name, row.target, looked)
        assert (step.head.revision, step.head.state) == (head.revision + 1, row.target)
        if step.head.end is not None:
            assert step.head.status == ("failed" if row.target == "bad" else "completed")
            return
        visits[row.target] = visits.get(row.target, 0) + 1
        assert (step.head.visits, step.head.visit) == (visits, visits[row.target])
        head = step.head
    assert rescues <= 1


def event_of(name: str, head: Any, failure: Failure) -> Any:
    if name == "failed":
        return BodyFailed(NOON, failure, GiveUp())
    if name == "expired":
        return Expired(NOON)
    return Answered(NOON, name.partition(":")[2] or None, head.kept, Difference({}, {}))


# --- by name -----------------------------------------------------------------------------------------------------


def one_state(*guards: Any) -> Any:
    flow: Any = Workflow("flow", Case)

    @flow.step()
    async def work(case: Case, run: Run) -> None: ...

    ends = [flow.end(f"end{number}") for number in range(len(guards) + 1)]
    rows = [work.when(guard).to(end) for guard, end in zip(guards, ends, strict=False)]
    flow.build(start=work, transitions=[*rows, work.to(ends[-1])])
    return flow.definition


def fire(definition: Any, bits: int, unchanged: Any = None) -> Any:
    kept, _ = definition.context.start(Case(bits=bits))
    token = Token("work", lambda: definition.context.copy(kept), None, False, unchanged)
    return DefinitionMachine(definition).fire("done", token)


@pytest.mark.parametrize(
    ("bits", "target", "guards"),
    [
        (0b11, "end0", (("bit0", True),)),
        (0b01, "end0", (("bit0", True),)),
        (0b10, "end1", (("bit0", False), ("bit1", True))),
        (0b00, "end2", (("bit0", False), ("bit1", False))),
    ],
)
def test_b71_of_two_true_guards_the_first_in_the_table_wins(bits: int, target: str, guards: Any) -> None:
    fired = fire(one_state(GUARDS[0], GUARDS[1]), bits)
    assert (fired.target, fired.guards) == (target, guards)


def test_each_guard_gets_a_copy_of_its_own() -> None:
    def meddles(case: Case) -> bool:
        case.bits = 0b1
        return False

    fired = fire(one_state(meddles, GUARDS[0]), 0)
    assert fired.guards == (("meddles", False), ("bit0", False))


async def nothing() -> bool:
    return False


def promises(case: Case) -> Any:
    return nothing()


def divides(case: Case) -> bool:
    return 1 // case.bits > 0


class Unsure:
    def __bool__(self) -> bool:
        raise LookupError("neither")


def unsure(case: Case) -> Any:
    return Unsure()


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (promises, "guard 'promises' returned something to await; a guard answers True or False at once"),
        (divides, "guard 'divides' raised ZeroDivisionError: integer division or modulo by zero"),
        (unsure, "guard 'unsure' raised LookupError: neither"),
    ],
)
def test_b71_a_guard_that_cannot_say_is_an_error_and_no_answer(guard: Any, message: str) -> None:
    with pytest.raises(GuardFailed) as caught:
        fire(one_state(guard), 0)
    assert str(caught.value) == message


def test_a_machine_is_compiled_once_for_a_definition() -> None:
    definition = one_state()
    assert machine_of(definition) is machine_of(definition)
