"""The table: every fault is found when the workflow is built, on its line, in words that say how to mend it."""

from enum import StrEnum
from typing import Any

import pytest

from agentflow import Run, Workflow
from agentflow.failures import Business, Refused, Retryable, TimedOut
from tests.model.faults import Case, Parts, Verdict, even, line_of, parts, positive, problems, told


class Other(StrEnum):
    YES = "yes"
    MAYBE = "maybe"


def test_the_sound_workflow_has_neither_errors_nor_warnings() -> None:
    sound = parts()
    sound.build()
    assert list(sound.flow.warnings) == []


# --- outcomes ----------------------------------------------------------------------------------------------------


def test_a_member_without_a_route_is_found_at_its_state() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step()  # fault
    async def judge(case: Case, run: Run) -> Verdict:
        return Verdict.YES

    end = flow.end("end")
    assert told(lambda: flow.build(start=judge, transitions=[judge.on(Verdict.YES).to(end)])) == (
        f"{line_of()}: state 'judge': Verdict.NO leads nowhere; add judge.on(Verdict.NO).to(...)"
    )


def test_a_member_whose_last_row_has_a_guard_is_found_at_that_row() -> None:
    p = parts()
    rows = p.rows_without(1)
    rows.append(p.judge.on(Verdict.YES).when(positive).to(p.end))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: state 'judge': Verdict.YES has a guard on its last row; "
        "add one without, for when no guard is true"
    )


def test_a_state_without_an_enum_whose_last_row_has_a_guard_is_found() -> None:
    p = parts()
    rows = p.rows_without(0)
    rows.append(p.work.when(positive).to(p.judge))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: state 'work' has a guard on its last row; add one without, for when no guard is true"
    )


def test_a_row_behind_one_that_is_always_taken_is_found() -> None:
    p = parts()
    rows = [
        *p.rows_without(1),
        p.judge.on(Verdict.YES).to(p.end),  # fault: taken
        p.judge.on(Verdict.YES).when(positive).to(p.ask),  # fault: never
    ]
    assert (
        f"{line_of('taken')}: state 'judge': Verdict.YES always takes this row, so the one at {line_of('never')} "
        in ("\n".join(problems(lambda: p.build(rows))))
    )


def test_a_second_row_without_a_guard_is_found() -> None:
    p = parts()
    rows = p.rows_without(0)
    rows.append(p.work.to(p.judge))  # fault: taken
    rows.append(p.work.to(p.ask))  # fault: never
    assert told(lambda: p.build(rows)) == (
        f"{line_of('taken')}: state 'work' always takes this row, so the one at {line_of('never')} is never reached"
    )


def test_a_row_behind_one_with_the_same_guard_is_found() -> None:
    p = parts()
    rows = p.rows_without(0)
    rows.append(p.work.when(positive).to(p.end))  # fault: taken
    rows.append(p.work.when(even).to(p.ask))
    rows.append(p.work.when(even).when(positive).to(p.ask))  # fault: never
    rows.append(p.work.to(p.judge))
    found = "\n".join(problems(lambda: p.build(rows)))
    assert (
        f"{line_of('never')}: state 'work': the row at {line_of('taken')} has the same guard, so this is never reached"
    ) in found


def test_a_narrower_row_before_a_wider_one_is_right() -> None:
    p = parts()
    rows = p.rows_without(0)
    first = [p.work.when(positive).when(even).to(p.end), p.work.when(positive).to(p.ask), p.work.to(p.judge)]
    p.build([*first, *rows])
    assert list(p.flow.warnings) == []


def test_a_member_of_another_enum_is_found() -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.judge.on(Other.MAYBE).to(p.end))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: state 'judge' answers with Verdict, not with <Other.MAYBE: 'maybe'>"
    )


def test_a_member_of_another_enum_that_equals_one_of_this_is_found() -> None:
    p = parts()
    rows = p.rows_without(1)
    rows.append(p.judge.on(Other.YES).to(p.end))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: state 'judge' answers with Verdict, not with <Other.YES: 'yes'>; did you mean 'YES'?"
    )


def test_a_string_for_a_member_is_found_with_the_nearest_name() -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.judge.on("yess").to(p.end))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: state 'judge' answers with Verdict, not with 'yess'; did you mean 'yes'?"
    )


def test_a_list_of_members_is_found() -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.judge.on([Verdict.YES, Verdict.NO]).to(p.end))  # fault
    assert told(lambda: p.build(rows)).startswith(f"{line_of()}: state 'judge' answers with Verdict, not with [")


def test_a_member_that_a_row_names_twice_is_found() -> None:
    p = parts()
    rows = p.rows_without(1)
    rows.append(p.judge.on(Verdict.YES, Verdict.YES).to(p.end))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: row judge.on(Verdict.YES, Verdict.YES) -> end names a member twice"
    )


def test_two_deciders_in_one_table_do_not_mix_their_members() -> None:
    p = parts()
    rows = p.rows_without(1)
    rows.append(p.ask.on(Verdict.YES).to(p.end))
    assert [text for text in problems(lambda: p.build(rows)) if "judge" in text and "Verdict.YES leads nowhere" in text]


# --- failures and expiry -----------------------------------------------------------------------------------------


def failing(p: Parts, *kinds: Any) -> Any:
    return p.work.failed(*kinds) if kinds else p.work.failed


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ((), (Refused,)),
        ((), ()),
        ((Exception,), ()),
        ((Retryable,), (TimedOut,)),
        ((TimedOut, Refused), (Refused,)),
        ((TimedOut, Refused), (Refused, TimedOut)),
    ],
)
def test_a_failed_row_behind_one_that_takes_its_failures_is_found(earlier: Any, later: Any) -> None:
    p = parts()
    rows = p.rows()
    rows.append(failing(p, *earlier).to(p.bad))  # fault: taken
    rows.append(failing(p, *later).to(p.ask))  # fault: never
    assert told(lambda: p.build(rows)) == (
        f"{line_of('never')}: work.failed: the row at {line_of('taken')} takes these failures, so this is never reached"
    )


def test_a_failed_row_behind_several_that_take_its_failures_together_is_found() -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.work.failed(Refused).to(p.bad))  # fault: one
    rows.append(p.work.failed(TimedOut).to(p.bad))  # fault: two
    rows.append(p.work.failed(Refused, TimedOut).to(p.ask))  # fault: never
    assert told(lambda: p.build(rows)) == (
        f"{line_of('never')}: work.failed: the rows at {line_of('one')}, {line_of('two')} take these failures, "
        "so this is never reached"
    )


@pytest.mark.parametrize(
    ("earlier", "later"),
    [((Refused,), ()), ((TimedOut,), (Retryable,)), ((Refused,), (Refused, TimedOut)), ((Refused,), (Business,))],
)
def test_a_wider_failed_row_behind_a_narrower_one_is_right(earlier: Any, later: Any) -> None:
    p = parts()
    p.build([*p.rows(), failing(p, *earlier).to(p.bad), failing(p, *later).to(p.ask)])
    assert list(p.flow.warnings) == []


def test_a_failed_row_behind_a_guarded_one_is_right_unless_the_guard_is_the_same() -> None:
    p = parts()
    p.build([*p.rows(), p.work.failed.when(positive).to(p.bad), p.work.failed(Refused).to(p.ask)])
    q = parts()
    rows = [*q.rows(), q.work.failed.when(positive).to(q.bad), q.work.failed(Refused).when(positive).to(q.ask)]
    assert "is never reached" in told(lambda: q.build(rows))


def test_a_shadowed_rescue_of_the_workflow_is_found() -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.flow.failed(Refused).to(p.bad))  # fault
    assert told(lambda: p.build(rows)).startswith(f"{line_of()}: flow.failed: the row at faults.py:")


@pytest.mark.parametrize("kind", ["Refused", KeyboardInterrupt, 3])
def test_a_failure_that_is_no_class_of_exceptions_is_found(kind: Any) -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.work.failed(kind).to(p.bad))  # fault
    assert told(lambda: p.build(rows)) == f"{line_of()}: row work.failed -> bad: {kind!r} is no class of exceptions"


def test_a_wait_that_expires_but_leads_nowhere_then_is_found() -> None:
    p = parts()
    [problem] = problems(lambda: p.build(p.rows_without(4)))
    assert problem.endswith(": state 'ask' expires, but leads nowhere then; add ask.expired.to(...)")


def test_an_expiry_whose_last_row_has_a_guard_is_found() -> None:
    p = parts()
    rows = p.rows_without(4)
    rows.append(p.ask.expired.when(positive).to(p.end))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: state 'ask': expiry has a guard on its last row; add one without, for when no guard is true"
    )


# --- rows --------------------------------------------------------------------------------------------------------


def test_a_state_without_a_way_out_is_found_at_the_state() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step()  # fault
    async def work(case: Case, run: Run) -> None: ...

    flow.end("end")
    found = problems(lambda: flow.build(start=work, transitions=[]))
    assert f"{line_of()}: state 'work' has no way out; add work.to(...)" in found


def test_an_unfinished_row_is_found_at_the_table() -> None:
    p = parts()
    rows = [*p.rows(), p.judge.on(Verdict.YES)]
    found = told(lambda: p.flow.build(start=p.work, transitions=rows))  # fault
    assert found == f"{line_of()}: transitions: entry 7 is an unfinished row; add .to(...)"


def test_a_state_in_place_of_a_row_is_found() -> None:
    p = parts()
    assert told(lambda: p.build([*p.rows(), p.work])).endswith(
        ": transitions: entry 7 is the state 'work'; a row is written work.to(...) or work.on(...).to(...)"
    )


def test_a_row_that_was_made_but_left_out_of_the_table_is_found() -> None:
    p = parts()
    p.work.to(p.end)  # fault
    assert told(p.build) == f"{line_of()}: row work -> end was made but is not in the table"


def test_a_row_that_stands_twice_in_the_table_is_found() -> None:
    p = parts()
    rows = p.rows()
    assert "row work -> judge is in the table twice" in "\n".join(problems(lambda: p.build([*rows, rows[0]])))


def test_b70_a_string_for_a_target_is_found_with_the_nearest_name() -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.work.failed.to("jugde"))  # fault
    assert told(lambda: p.build(rows)) == (
        f"{line_of()}: target 'jugde' is a string; pass the state or end itself; did you mean 'judge'?"
    )


@pytest.mark.parametrize("target", [None, 3, Verdict.YES])
def test_a_target_that_is_neither_a_state_nor_an_end_is_found(target: Any) -> None:
    p = parts()
    rows = p.rows()
    rows.append(p.work.failed.to(target))  # fault
    assert told(lambda: p.build(rows)) == f"{line_of()}: target {target!r} is neither a state nor an end"


def test_a_state_of_another_workflow_is_found_as_target_source_and_start() -> None:
    p, other = parts(), parts()
    other.flow.name = "elsewhere"
    rows = p.rows()
    rows.append(p.work.failed.to(other.ask))  # fault: target
    rows.append(other.work.to(p.end))  # fault: source
    found = problems(lambda: p.flow.build(start=other.work, transitions=rows))  # fault: start
    assert found == [
        f"{line_of('target')}: row work.failed -> ask: 'ask' belongs to workflow 'elsewhere'",
        f"{line_of('source')}: row work -> end: state 'work' belongs to workflow 'elsewhere'",
        f"{line_of('start')}: start='work' belongs to workflow 'elsewhere'",
    ]


@pytest.mark.parametrize(
    ("start", "told_of"), [("wrk", "'wrk'"), (None, "None"), (3, "3"), (Verdict.YES, "<Verdict.YES: 'yes'>")]
)
def test_a_start_that_is_no_state_is_found(start: Any, told_of: str) -> None:
    p = parts()
    found = told(lambda: p.flow.build(start=start, transitions=p.rows()))  # fault
    hint = "; did you mean 'work'?" if start == "wrk" else ""
    assert found == f"{line_of()}: start={told_of}: a run starts at a state; pass the state itself{hint}"


def test_a_start_at_an_end_is_found() -> None:
    p = parts()
    assert ": start=end 'end': a run starts at a state" in told(lambda: p.build(start=p.end))


def test_two_places_of_one_name_are_found_with_both_lines_and_no_further_guesses() -> None:
    flow: Any = Workflow("flow", Case)

    async def review(case: Case, run: Run) -> None: ...  # fault: first

    first = flow.step()(review)

    async def again(case: Case, run: Run) -> None: ...  # fault: second

    again.__name__ = "review"
    second = flow.step()(again)
    end = flow.end("end")
    assert told(lambda: flow.build(start=first, transitions=[first.to(second), second.to(end)])) == (
        f"{line_of('second')}: the name 'review' is taken by the one at {line_of('first')}"
    )


def test_a_state_and_an_end_of_one_name_are_found() -> None:
    p = parts()
    p.flow.end("work")  # fault
    taken = f"{line_of()}: the name 'work' is taken by the one at faults.py:"
    assert [text for text in problems(p.build) if text.startswith(taken)]
