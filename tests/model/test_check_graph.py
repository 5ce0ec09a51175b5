"""The graph: states that cannot be reached or left, cycles without a bound, and what is worth a warning."""

import re
from pathlib import Path
from typing import Any

import pytest

from agentflow import Context, DefinitionError, Question, Run, Workflow
from agentflow.failures import Refused
from tests.model.faults import Case, Verdict, built, even, line_of, parts, positive, problems, told


def test_a_state_that_is_never_reached_is_found() -> None:
    p = parts()

    @p.flow.step()  # fault
    async def lonely(case: Case, run: Run) -> None: ...

    assert told(lambda: p.build([*p.rows(), lonely.to(p.end)])) == (
        f"{line_of()}: state 'lonely' is never reached from 'work'"
    )


def test_an_end_that_is_never_reached_is_found() -> None:
    p = parts()
    p.flow.end("nowhere")  # fault
    assert told(p.build) == f"{line_of()}: end 'nowhere' is never reached from 'work'"


def test_a_trap_is_found_at_every_state_of_it() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step()
    async def work(case: Case, run: Run) -> None: ...

    @flow.step(max_visits=3)  # fault: one
    async def one(case: Case, run: Run) -> None: ...

    @flow.step()  # fault: two
    async def two(case: Case, run: Run) -> None: ...

    end = flow.end("end")
    rows = [work.when(positive).to(one), work.to(end), one.to(two), two.to(one)]
    assert problems(lambda: flow.build(start=work, transitions=rows)) == [
        f"{line_of('one')}: state 'one' is a trap: no way from it leads to an end",
        f"{line_of('two')}: state 'two' is a trap: no way from it leads to an end",
    ]


def test_a_loop_that_a_failure_leaves_is_no_trap() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(max_visits=3)
    async def spin(case: Case, run: Run) -> None: ...

    bad = flow.end("bad", failed=True)
    flow.build(start=spin, transitions=[spin.to(spin), spin.failed.to(bad)])
    assert list(flow.warnings) == []


def test_a_workflow_without_an_end_is_found() -> None:
    flow: Any = Workflow("flow", Case)  # fault

    @flow.step(max_visits=3)
    async def spin(case: Case, run: Run) -> None: ...

    found = problems(lambda: flow.build(start=spin, transitions=[spin.to(spin)]))
    assert f"{line_of()}: workflow 'flow' has no end; add flow.end(...)" in found


def ring(*bounds: int | None, exit: bool = False) -> list[str]:
    """The problems of states in a ring, with the `max_visits` given."""
    flow: Any = Workflow("flow", Case)
    states: list[Any] = []
    for number, bound in enumerate(bounds):

        async def body(case: Case, run: Run) -> None: ...

        body.__name__ = f"s{number}"
        states.append(flow.step(max_visits=bound)(body))
    end = flow.end("end")
    rows = [states[0].when(positive).to(end)]
    rows += [state.to(states[(number + 1) % len(states)]) for number, state in enumerate(states)]
    try:
        flow.build(start=states[0], transitions=rows)
    except DefinitionError as error:
        return list(error.problems)
    return []


def test_a_cycle_without_a_bound_is_found_and_its_states_are_named() -> None:
    [problem] = ring(None, None, None)
    assert problem.endswith(": the cycle s0 -> s1 -> s2 -> s0 has no bound; give one of its states max_visits=")
    [alone] = ring(None)
    assert ": the cycle s0 -> s0 has no bound" in alone


@pytest.mark.parametrize("bounds", [(2, None, None), (None, 2, None), (None, None, 2)])
def test_one_bound_anywhere_on_a_cycle_is_enough(bounds: tuple[int | None, ...]) -> None:
    assert ring(*bounds) == []


def test_an_inner_cycle_that_goes_round_the_bound_is_found() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(max_visits=2)
    async def outer(case: Case, run: Run) -> None: ...

    @flow.step()  # fault
    async def inner(case: Case, run: Run) -> None: ...

    end = flow.end("end")
    rows = [outer.to(inner), inner.when(positive).to(inner), inner.when(even).to(outer), inner.to(end)]
    assert told(lambda: flow.build(start=outer, transitions=rows)) == (
        f"{line_of()}: the cycle inner -> inner has no bound; give one of its states max_visits="
    )


def test_a_cycle_by_way_of_a_failure_or_an_expiry_needs_a_bound_too() -> None:
    p = parts()
    rows = [*p.rows_without(4), p.ask.expired.to(p.work)]
    assert "the cycle work -> judge -> ask -> work has no bound" in told(lambda: p.build(rows))
    q = parts()
    assert "the cycle work -> work has no bound" in told(lambda: q.build([*q.rows(), q.work.failed.to(q.work)]))


def test_a_rescue_of_the_workflow_makes_no_cycle_for_it_is_taken_once() -> None:
    p = parts()
    rows = [*p.rows_without(5), p.flow.failed(Refused).to(p.ask), p.flow.failed.to(p.bad)]
    p.build(rows)
    assert list(p.flow.warnings) == []


# --- warnings ----------------------------------------------------------------------------------------------------


def test_a_failure_that_ends_as_business_is_a_warning_on_its_row() -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.work.failed(Refused).to(p.end))  # fault
    rows.append(p.work.failed.to(p.ask))  # a person decides: no warning
    p.build(rows)
    [warning] = p.flow.warnings
    assert warning == (
        f"{line_of()}: row work.failed -> end: a failure reaches the end 'end', which is not failed=True, "
        "and neither a person nor a model decides in between"
    )


def test_a_failure_that_reaches_business_by_way_of_code_is_a_warning() -> None:
    p = parts()

    @p.flow.step()
    async def tidy(case: Case, run: Run) -> None: ...

    p.build([*p.rows(), p.judge.failed.to(tidy), tidy.to(p.end)])
    [warning] = p.flow.warnings
    assert "row judge.failed -> tidy: a failure reaches the end 'end'" in warning


def test_a_wait_without_expiry_is_a_warning_at_the_state() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.human(Verdict)  # fault
    def ask(case: Case) -> Question:
        return Question("yes?")

    built(ask, flow.end("end"))
    assert list(flow.warnings) == [
        f"{line_of()}: state 'ask' may wait for ever; give it expires=... and an .expired row"
    ]


# --- all at once -------------------------------------------------------------------------------------------------


class Loose(Context):
    n: int = 0
    handle: object = None  # fault: all field


def test_all_problems_come_in_one_error_in_the_order_of_the_source() -> None:
    flow: Any = Workflow("flow", Loose, version=0)  # fault: all version

    @flow.step(max_visits=0)  # fault: all number
    async def work(case: Loose, run: Run) -> None: ...

    @flow.llm(Verdict, prompt="{{ m }}")  # fault: all prompt
    def judge(case: Loose) -> Loose:
        return case

    end = flow.end("end")
    flow.end("unused")  # fault: all end
    guard: Any = lambda case: True  # noqa: E731  the fault
    rows = [
        work.when(guard).to(end),  # fault: all guard
        work.to(judge),
        judge.on(Verdict.YES).to("edn"),  # fault: all target
        judge.on(Verdict.NO).to(end),
    ]
    with pytest.raises(DefinitionError) as caught:
        flow.build(start=work, transitions=rows)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    planted = [number for number, text in enumerate(lines, 1) if re.search(r"# fault: all \w+$", text)]
    assert [int(problem.split(":")[1]) for problem in caught.value.problems] == planted
    assert len(planted) == 7
    assert str(caught.value).startswith("workflow 'flow' has 7 problems:\n  - test_check_graph.py:")
