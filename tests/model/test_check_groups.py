"""What `build` finds wrong with groups: whole messages, with the line of the fault."""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from agentflow import Context, Run, Workflow
from tests.model.faults import line_of, problems, told


class Case(Context):
    names: tuple[str, ...] = ()


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


def names_of(case: Case) -> Sequence[str]:
    return case.names


class Parts:
    """begin, three states for branches, an item, finish and an end; nothing is joined yet."""

    def __init__(self) -> None:
        flow: Any = Workflow("flow", Case)

        @flow.step()
        async def begin(case: Case, run: Run) -> None: ...

        @flow.step()
        async def one(case: Case, run: Run) -> None: ...

        @flow.step()
        async def two(case: Case, run: Run) -> None: ...

        @flow.step()
        async def finish(case: Case, run: Run) -> None: ...

        self.flow, self.begin, self.one, self.two, self.finish = flow, begin, one, two, finish
        self.end = flow.end("end")

    def item(self) -> Any:
        @self.flow.item(str)
        async def look(case: Case, item: str, run: Run) -> None: ...

        return look

    def build(self, *rows: Any, start: Any = None) -> None:
        self.flow.build(start=start or self.begin, transitions=[*rows, self.finish.to(self.end)])


def test_a_sound_fork_is_built_and_its_group_is_a_place_of_the_machine() -> None:
    p = Parts()
    group = p.begin.fork(p.one, p.two)
    p.build(group.join(p.finish))
    assert list(p.flow.definition.states) == ["begin", "one", "two", "finish", "begin.fork"]
    assert [repr(row) for row in p.flow.definition.rows] == [
        "<begin done -> begin.fork>",
        "<begin.fork joined -> finish>",
        "<finish done -> end>",
    ]


def test_a_workflow_may_begin_with_a_group() -> None:
    p = Parts()
    p.flow.states.remove(p.begin)
    group = p.flow.fork(p.one, p.two)
    p.build(group.join(p.finish), start=group)
    assert p.flow.definition.start == "fork"


def test_groups_of_one_state_have_names_of_their_own() -> None:
    p = Parts()
    first, second = p.begin.fork(p.one, p.two), p.begin.fork(p.one, p.two)
    assert (first.name, second.name) == ("begin.fork", "begin.fork2")


def test_a_group_without_a_join_leads_nowhere() -> None:
    p = Parts()
    group = p.begin.fork(p.one, p.two)  # fault
    found = problems(lambda: p.build(group.failed.to(p.finish)))
    assert f"{line_of()}: group 'begin.fork' leads nowhere; add its row .join(...) to the table" in found


def test_a_group_that_expires_must_lead_somewhere_then() -> None:
    p = Parts()
    group = p.begin.fork(p.one, p.two, expires=timedelta(hours=1))  # fault
    assert told(lambda: p.build(group.join(p.finish))) == (
        f"{line_of()}: group 'begin.fork' expires, but leads nowhere then; add .expired.to(...)"
    )


def test_b45_a_branch_that_leads_out_of_its_group_is_named_with_where_it_leads() -> None:
    p = Parts()
    group = p.begin.fork(p.one, p.two)
    row = p.two.to(p.finish)  # fault
    assert told(lambda: p.build(group.join(p.finish), row)) == (
        f"{line_of()}: branch 'two' of 'begin.fork' leads to 'finish', which belongs to the main flow; "
        "branches meet at .join only"
    )


def test_b45_a_branch_that_leads_to_an_end_is_named() -> None:
    p = Parts()
    group = p.begin.fork(p.one, p.two)
    row = p.two.to(p.end)  # fault
    assert told(lambda: p.build(group.join(p.finish), row)) == (
        f"{line_of()}: branch 'two' of 'begin.fork' leads to the end 'end'; "
        "a branch ends at a state without a way out, the run at .join"
    )


def test_b45_two_branches_may_not_share_a_state() -> None:
    p = Parts()

    @p.flow.step()
    async def shared(case: Case, run: Run) -> None: ...

    group = p.begin.fork(p.one, p.two)
    rows = [p.one.to(shared), p.two.to(shared)]  # fault
    assert told(lambda: p.build(group.join(p.finish), *rows)) == (
        f"{line_of()}: branch 'two' of 'begin.fork' leads to 'shared', which belongs to branch 'one' of 'begin.fork'; "
        "branches meet at .join only"
    )


def test_one_state_is_no_two_branches() -> None:
    p = Parts()
    group = p.begin.fork(p.one, p.one)  # fault
    p.flow.states.remove(p.two)
    assert f"{line_of()}: group 'begin.fork': 'one' is two of its branches" in problems(
        lambda: p.build(group.join(p.finish))
    )


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (0, "mode=0: of 2 branches, 1 to 2 can be asked for"),
        (3, "mode=3: of 2 branches, 1 to 2 can be asked for"),
        (True, "mode=True: of 2 branches, 1 to 2 can be asked for"),
        ("most", "mode='most': it is 'all', 'any', 'settled' or a number"),
    ],
)
def test_a_mode_that_cannot_be_reached_is_refused(mode: Any, why: str) -> None:
    p = Parts()
    group = p.begin.fork(p.one, p.two, mode=mode)  # fault
    assert told(lambda: p.build(group.join(p.finish))) == f"{line_of()}: group 'begin.fork': {why}"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_items": 0}, "max_items=0: it must be at least 1"),
        ({"max_items": 9, "max_parallel": -1}, "max_parallel=-1: it must be at least 1"),
        ({"max_items": 9, "key": 7}, "key= must be a function that takes (item)"),
        ({"max_items": 9, "mode": 10}, "mode=10: of 9 branches, 1 to 9 can be asked for"),
    ],
)
def test_numbers_and_functions_of_an_each_are_checked(options: Any, why: str) -> None:
    p = Parts()
    p.flow.states.remove(p.one)
    p.flow.states.remove(p.two)
    group = p.begin.each(names_of, p.item(), **options)  # fault
    assert told(lambda: p.build(group.join(p.finish))) == f"{line_of()}: group 'begin.each': {why}"


def test_a_state_is_no_item_and_an_item_no_branch_of_a_fork() -> None:
    p = Parts()
    group = p.begin.each(names_of, p.one, max_items=3)  # fault: each
    other = p.finish.fork(p.two, p.item())  # fault: fork
    found = problems(lambda: p.build(group.join(p.finish), other.join(p.finish)))
    assert f"{line_of('each')}: group 'begin.each': 'one' must be an item, made by @workflow.item(...)" in found
    assert f"{line_of('fork')}: group 'finish.fork': 'look' must be a state" in found


def test_an_item_that_no_each_names_is_named() -> None:
    p = Parts()
    p.item()
    group = p.begin.fork(p.one, p.two)
    assert "item 'look' is the body of no `each`" in told(lambda: p.build(group.join(p.finish)))


def test_a_graph_in_a_circle_is_refused_and_so_is_a_need_that_is_none_of_its_branches() -> None:
    p = Parts()
    group = p.begin.graph({p.one: [p.two], p.two: [p.one]})  # fault: circle
    assert told(lambda: p.build(group.join(p.finish))) == (
        f"{line_of('circle')}: group 'begin.graph': the branches need each other in a circle: one, two"
    )
    q = Parts()
    other = q.begin.graph({q.one: [q.finish], q.two: []})  # fault: stranger
    assert told(lambda: q.build(other.join(q.finish))) == (
        f"{line_of('stranger')}: group 'begin.graph': 'one' needs 'finish', which is none of its branches"
    )


def test_a_loop_through_a_group_needs_a_bound() -> None:
    p = Parts()

    @p.flow.step()
    async def decide(case: Case, run: Run) -> Verdict:
        return Verdict.YES

    group = p.begin.fork(p.one, p.two)
    rows = [group.join(decide), decide.on(Verdict.YES).to(p.finish), decide.on(Verdict.NO).to(p.begin)]
    assert "the cycle begin -> begin.fork -> decide -> begin has no bound" in told(lambda: p.build(*rows))


def test_a_deciding_state_without_rows_ends_a_branch_and_one_with_some_must_have_all() -> None:
    p = Parts()

    @p.flow.step()
    async def judge(case: Case, run: Run) -> Verdict:
        return Verdict.YES

    group = p.begin.fork(judge, p.one)
    p.flow.states.remove(p.two)
    p.build(group.join(p.finish))
    q = Parts()

    @q.flow.step()
    async def half(case: Case, run: Run) -> Verdict:
        return Verdict.YES

    other = q.begin.fork(half, q.one)
    found = told(lambda: q.build(other.join(q.finish), half.on(Verdict.YES).to(q.two)))
    assert "state 'half': Verdict.NO leads nowhere" in found
