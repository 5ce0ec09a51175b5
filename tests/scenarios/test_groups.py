"""Groups of branches: opened together, at work side by side, met once, and nothing of one lost for another."""

import asyncio
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from tenacity import wait_fixed

from agentflow import Actor, App, Context, Limits, Question, Retry, Run, Workflow
from agentflow.failures import Business, MergeConflict, OverLimit, Retryable
from agentflow.merge import Add, Append, Unite, Update
from agentflow.testing import Clock

SOON = timedelta(seconds=20)
ADA = Actor("ada", source="test")


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


class Case(Context):
    items: tuple[str, ...] = ()
    log: Append[str] = Append()
    total: Add[int] = 0
    tags: Unite[str] = set()
    found: Update[str, int] = {}
    left: str = ""
    right: str = ""


class World:
    """What bodies did, in order; some are told to stand or to fail."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: dict[str, asyncio.Event] = {}
        self.at_work = 0
        self.most = 0

    async def until_begun(self, *names: str) -> None:
        """Return once these bodies stand at their gates."""
        async with asyncio.timeout(10):
            for name in names:
                await self.begun.setdefault(name, asyncio.Event()).wait()

    async def work(self, name: str) -> None:
        self.done.append(name)
        self.begun.setdefault(name, asyncio.Event()).set()
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        try:
            if name in self.gates:
                await self.gates[name].wait()
            await asyncio.sleep(0)
            if name in self.fails:
                raise self.fails[name]
        finally:
            self.at_work -= 1


def forked(world: World, *, mode: Any = "all", expires: timedelta | None = None, retry: Retry | None = None) -> Any:
    """begin, then left (two states), middle and right side by side, then finish."""
    flow = Workflow("forked", Case)

    @flow.step()
    async def begin(case: Case, run: Run) -> None:
        case.log.append("begin")

    @flow.step()
    async def left(case: Case, run: Run) -> None:
        await world.work("left")
        case.left = "from left"

    @flow.step()
    async def further(case: Case, run: Run) -> None:
        await world.work("further")
        case.log.append(f"further after {case.left}")

    @flow.step(retry=retry)
    async def middle(case: Case, run: Run) -> None:
        await world.work("middle")
        case.total += 5
        case.tags.add("middle")

    @flow.step()
    async def right(case: Case, run: Run) -> None:
        await world.work("right")
        case.right = "from right"
        case.total += 7
        case.found["right"] = 1
        case.log.append("right")

    @flow.step()
    async def finish(case: Case, run: Run) -> None:
        case.log.append("finish")

    done, broken = flow.end("done"), flow.end("broken", failed=True)
    rows: list[Any] = [left.to(further), finish.to(done)]
    if expires is None:
        group = begin.fork(left, middle, right, mode=mode)
    else:
        timed = group = begin.fork(left, middle, right, mode=mode, expires=expires)
        rows.append(timed.expired.to(flow.end("late")))
    rows += [group.join(finish), group.failed(Business, MergeConflict).to(broken)]
    flow.build(start=begin, transitions=rows)
    return flow


# --- fork --------------------------------------------------------------------------------------------------------


async def test_branches_work_side_by_side_and_what_they_wrote_meets_by_the_rule_of_each_field(store: str) -> None:
    world = World()
    flow = forked(world)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        lines = await app.history("r")
    case = over.context
    assert (over.status, case.left, case.right, case.total) == ("completed", "from left", "from right", 12)
    assert list(case.log) == ["begin", "further after from left", "right", "finish"]
    assert (case.tags, case.found) == ({"middle"}, {"right": 1})
    assert sorted(world.done) == ["further", "left", "middle", "right"]
    assert [(line.source, line.target) for line in lines[1:]] == [
        ("begin", "begin.fork"), ("begin.fork", "finish"), ("finish", "done"),
    ]  # fmt: skip
    assert lines[2].answer == {"branches": {"completed": 3}}


async def test_a_branch_is_a_run_with_a_history_of_its_own(store: str) -> None:
    flow = forked(World())
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        branch = await app.get("r:begin.fork:1:left", flow)
        lines = await app.history("r:begin.fork:1:left")
        listed = [run.id for run in await app.list()]
    assert (branch.status, branch.state.name, branch.context.left, branch.context.right) == (
        "completed", "begin.fork", "from left", "",
    )  # fmt: skip
    assert [(line.source, line.target) for line in lines] == [
        ("", "left"), ("left", "further"), ("further", "begin.fork"),
    ]  # fmt: skip
    assert listed == ["r"]


async def test_uneven_branches_meet_when_the_last_is_done(store: str) -> None:
    world = World()
    world.gates["further"] = asyncio.Event()
    flow = forked(world)
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await world.until_begun("further")
        waits = await app.get("r", flow)
        world.gates["further"].set()
        over = await app.result("r", flow, timeout=SOON)
    assert (waits.status, waits.state.name, list(waits.context.log)) == ("waiting", "begin.fork", ["begin"])
    assert over.status == "completed"


@pytest.mark.parametrize(
    ("error", "end"), [(Business("no"), "broken"), (ValueError("no"), None)], ids=["a row takes it", "no row does"]
)
async def test_b40_a_branch_that_fails_stops_the_others_and_is_the_failure_of_the_group(
    store: str, error: Exception, end: str | None
) -> None:
    world = World()
    world.fails["middle"] = error
    world.gates["right"] = asyncio.Event()
    flow = forked(world)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        branches = {
            name: (await app.get(f"r:begin.fork:1:{name}", flow)).status for name in ("left", "middle", "right")
        }
    assert (over.status, over.end and over.end.name) == ("failed", end)
    assert over.failure is not None
    assert (over.failure.kind, over.failure.message) == (
        type(error).__name__,
        "branch 'middle' failed in 'middle': no",
    )
    assert (branches["middle"], branches["right"]) == ("failed", "cancelled")
    assert world.at_work == 0


async def test_b40_a_retry_runs_what_was_not_done_and_nothing_else(store: str) -> None:
    world = World()
    world.fails["middle"] = ValueError("once")
    wide = forked(world)
    async with App([wide], store=store) as app:
        world.gates["right"] = asyncio.Event()
        failed = await app.run(wide, Case(), id="r", timeout=SOON)
        world.fails.clear()
        world.gates.clear()
        assert failed.status == "failed"
        assert (await app.retry("r")).status == "applied"
        over = await app.result("r", wide, timeout=SOON)
    assert (over.status, over.context.total, list(over.context.log)) == (
        "completed", 12, ["begin", "further after from left", "right", "finish"],
    )  # fmt: skip
    assert (world.done.count("middle"), world.done.count("right")) == (2, 2)
    assert world.done.count("left") + world.done.count("further") <= 3  # stopped where it was, never begun anew


async def test_b40_settled_waits_for_all_and_tells_who_failed(store: str) -> None:
    world = World()
    world.fails["middle"] = Business("no")
    flow = forked(world, mode="settled")
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        joined = (await app.history("r"))[2]
    assert (over.status, over.context.left, over.context.total) == ("completed", "from left", 7)
    assert joined.answer == {
        "branches": {"completed": 2, "failed": 1},
        "failures": {"middle": "Business: no"},
    }


@pytest.mark.parametrize(("mode", "total"), [("any", 5), (1, 5), (2, 12)])
async def test_as_many_as_are_asked_for_decide_and_the_rest_is_stopped(store: str, mode: Any, total: int) -> None:
    world = World()
    world.gates["left"] = asyncio.Event()
    if total == 5:
        world.gates["right"] = asyncio.Event()
    flow = forked(world, mode=mode)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        left = await app.get("r:begin.fork:1:left", flow)
    assert (over.status, over.context.total, over.context.left) == ("completed", total, "")
    assert (left.status, world.at_work) == ("cancelled", 0)


async def test_any_fails_when_all_have_failed(store: str) -> None:
    world = World()
    world.fails = {name: Business(name) for name in ("left", "middle", "right")}
    flow = forked(world, mode="any")
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
    assert (over.end and over.end.name, over.failure and over.failure.kind) == ("broken", "Business")


async def test_a_group_that_takes_too_long_expires_and_its_branches_are_stopped(store: str) -> None:
    world = World()
    world.gates["right"] = asyncio.Event()
    flow = forked(world, expires=timedelta(hours=1))
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await world.until_begun("right")
        later = app._store.now() + timedelta(hours=2)
        app.stop_clock(lambda: later)
        over = await app.result("r", flow, timeout=SOON)
        right = await app.get("r:begin.fork:1:right", flow)
    assert (over.end and over.end.name, right.status, world.at_work) == ("late", "cancelled", 0)


async def test_a_retry_of_a_body_in_a_branch_is_the_branchs_own(store: str) -> None:
    world = World()
    world.fails["middle"] = Retryable("again")
    flow = forked(world, retry=Retry(attempts=3, wait=wait_fixed(0)))
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
    assert (over.status, world.done.count("middle"), world.done.count("left")) == ("failed", 3, 1)


async def test_a_cancel_stops_all_branches_before_the_run_is_cancelled(store: str) -> None:
    world = World()
    world.gates = {"left": asyncio.Event(), "right": asyncio.Event()}
    flow = forked(world)
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        await world.until_begun("left", "right")
        reply = await app.cancel("r", actor=ADA)
        over = await app.follow("r", flow, timeout=SOON)
        statuses = [(await app.get(f"r:begin.fork:1:{name}", flow)).status for name in ("left", "right")]
    assert (reply.status, over.status, statuses, world.at_work) == ("applied", "cancelled", ["cancelled"] * 2, 0)


async def test_two_branches_that_write_one_field_without_a_rule_are_a_conflict_that_names_them(store: str) -> None:
    flow = Workflow("clash", Case)

    @flow.step()
    async def one(case: Case, run: Run) -> None:
        case.left = "one"

    @flow.step()
    async def two(case: Case, run: Run) -> None:
        case.left = "two"

    done, broken = flow.end("done"), flow.end("broken", failed=True)
    group = flow.fork(one, two)
    tidy = flow.step()(_tidy)
    flow.build(start=group, transitions=[group.join(tidy), group.failed(MergeConflict).to(broken), tidy.to(done)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
    assert over.failure is not None
    assert (over.end and over.end.name, over.failure.message) == (
        "broken",
        "field 'left' was written by several branches and has no merge rule: one, two",
    )
    assert over.context.left == ""


async def _tidy(case: Case, run: Run) -> None:
    """Nothing to do."""


# --- each --------------------------------------------------------------------------------------------------------


def items_of(case: Case) -> tuple[str, ...]:
    return case.items


def each(world: World, *, asks: bool = False, rounds: int = 1, limits: Limits | None = None, **options: Any) -> Any:
    """load, then an item for each, maybe with a question, then finish, maybe once more."""
    flow = Workflow("each", Case, limits=limits)

    @flow.step(max_visits=5)
    async def load(case: Case, run: Run) -> None: ...

    @flow.item(str)
    async def look(case: Case, item: str, run: Run) -> None:
        await world.work(item)
        case.log.append(item)
        case.total += len(item)

    @flow.step()
    async def noted(case: Case, run: Run) -> None:
        case.log.append("noted")

    @flow.step()
    async def finish(case: Case, run: Run) -> Verdict:
        return Verdict.YES if run.visit >= rounds else Verdict.NO

    done, broken = flow.end("done"), flow.end("broken", failed=True)
    told: dict[str, Any] = {"max_items": 20, **options}
    group: Any = load.each(items_of, look, **told)
    rows: list[Any] = [
        group.join(finish), group.failed(OverLimit).to(broken), finish.on(Verdict.YES).to(done),
        finish.on(Verdict.NO).to(load),
    ]  # fmt: skip
    if asks:

        @flow.human(Verdict, expires=timedelta(days=1))
        def ask(case: Case) -> Question:
            return Question(f"Is {case.log[-1]} fine?")

        rows += [look.to(ask), ask.on(Verdict.YES, Verdict.NO).to(noted), ask.expired.to(noted)]
    else:
        rows += [look.to(noted)]
    flow.build(start=load, transitions=rows)
    return flow


def plain_each(world: World, **options: Any) -> Any:
    """load, an item for each, finish."""
    flow = Workflow("each", Case, limits=options.pop("limits", None))

    @flow.step(max_visits=5)
    async def load(case: Case, run: Run) -> None: ...

    @flow.item(str)
    async def look(case: Case, item: str, run: Run) -> None:
        await world.work(item)
        case.log.append(item)
        case.total += len(item)

    @flow.step()
    async def finish(case: Case, run: Run) -> None: ...

    done, broken = flow.end("done"), flow.end("broken", failed=True)
    told: dict[str, Any] = {"max_items": 20, **options}
    group: Any = load.each(items_of, look, **told)
    flow.build(
        start=load,
        transitions=[group.join(finish), group.failed(OverLimit).to(broken), finish.to(done)],
    )
    return flow


async def test_every_item_is_worked_on_once_and_the_results_come_in_the_order_of_the_items(store: str) -> None:
    world = World()
    flow = plain_each(world)
    items = tuple(f"item{number}" for number in range(20))
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(items=items), id="r", timeout=SOON)
    assert (over.status, tuple(over.context.log), over.context.total) == ("completed", items, sum(map(len, items)))
    assert sorted(world.done) == sorted(items)


async def test_no_items_meet_at_once(store: str) -> None:
    flow = plain_each(World())
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
    assert (over.status, over.context.total) == ("completed", 0)


async def test_no_more_than_max_parallel_items_are_at_work_at_a_time(store: str) -> None:
    world = World()
    flow = plain_each(world, max_parallel=3)
    items = tuple(f"item{number:02}" for number in range(12))
    world.gates = {item: asyncio.Event() for item in items}
    async with App([flow], store=store) as app:
        await app.start(flow, Case(items=items), id="r")
        await world.until_begun(*items[:3])
        for number, item in enumerate(items):
            await world.until_begun(item)
            assert sorted(world.done) == list(items[: number + 3])  # the next begins when one is done
            world.gates[item].set()
            if number + 3 < len(items):
                await world.until_begun(items[number + 3])
        over = await app.result("r", flow, timeout=SOON)
    assert (over.status, tuple(over.context.log), world.most) == ("completed", items, 3)


async def test_more_items_than_are_allowed_create_nothing_and_are_a_failure(store: str) -> None:
    world = World()
    flow = plain_each(world, max_items=2)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(items=("a", "b", "c")), id="r", timeout=SOON)
        branches = await app._store.branches("r", "load.each", 1)
    assert over.failure is not None
    assert (over.end and over.end.name, over.failure.message) == (
        "broken", "group 'load.each' has 3 items, at most 2 may be",
    )  # fmt: skip
    assert (list(branches), world.done) == ([], [])


async def test_two_items_of_one_key_are_refused_by_name(store: str) -> None:
    flow = plain_each(World(), key=str.lower)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(items=("a", "b", "A")), id="r", timeout=SOON)
    assert over.failure is not None
    assert (over.status, "items 0 and 2 have one key, 'a'" in over.failure.message) == ("failed", True)


async def test_b44_items_that_ask_are_answered_each_by_itself_also_after_a_restart(on_disk: str) -> None:
    world = World()
    flow = each(world, asks=True, max_parallel=3)
    items = ("a", "b", "c", "d", "e")
    async with App([flow], store=on_disk) as app:
        asked = await app.run(flow, Case(items=items), id="r", timeout=SOON)
        assert [wait.question for wait in asked.waits] == [f"Is {item} fine?" for item in "abc"]
        await app.decide(asked.waits[1].id, Verdict.YES, actor=ADA)
        asked = await app.follow("r", flow, timeout=SOON)
        assert [wait.question for wait in asked.waits] == [f"Is {item} fine?" for item in "acd"]
    async with App([flow], store=on_disk) as app:
        asked = await app.follow("r", flow, timeout=SOON)
        pending: list[list[str]] = []
        while asked.waits:
            pending.append([wait.question[3] for wait in asked.waits])
            await app.decide(asked.waits[0].id, Verdict.YES, actor=ADA)
            asked = await app.follow("r", flow, timeout=SOON)
        over = asked
    assert pending == [["a", "c", "d"], ["c", "d", "e"], ["d", "e"], ["e"]]
    assert (over.status, sorted(world.done)) == ("completed", list(items))
    assert [line for line in over.context.log if line != "noted"] == list(items)


async def test_b41_gates_of_several_branches_are_answered_in_any_order_and_the_list_shrinks(store: str) -> None:
    flow = each(World(), asks=True)
    async with App([flow], store=store) as app:
        asked = await app.run(flow, Case(items=("a", "b", "c")), id="r", timeout=SOON)
        for number in (2, 0, 0):
            count = len(asked.waits)
            await app.decide(asked.waits[number].id, Verdict.NO, actor=ADA)
            asked = await app.follow("r", flow, timeout=SOON)
            assert len(asked.waits) == count - 1
    assert asked.status == "completed"


async def test_a_join_in_a_loop_opens_new_branches_each_time(store: str) -> None:
    world = World()
    flow = each(world, rounds=3)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(items=("a", "b")), id="r", timeout=SOON)
    assert (over.status, world.done.count("a"), over.context.total) == ("completed", 3, 6)


async def test_questions_of_branches_expire_by_themselves(store: str) -> None:
    flow = each(World(), asks=True)
    async with App([flow], store=store) as app:
        clock = Clock(app)
        await app.run(flow, Case(items=("a", "b")), id="r", timeout=SOON)
        await clock.advance(timedelta(days=2))
        over = await app.get("r", flow)
    assert (over.status, list(over.context.log)) == ("completed", ["a", "noted", "b", "noted"])


# --- graph -------------------------------------------------------------------------------------------------------


async def test_branches_of_a_graph_begin_when_those_they_need_are_done_and_see_what_they_wrote(store: str) -> None:
    order: list[str] = []
    flow = Workflow("graph", Case)

    @flow.step()
    async def start(case: Case, run: Run) -> None: ...

    @flow.step()
    async def summary(case: Case, run: Run) -> None:
        order.append("summary")
        case.left = "summary"
        case.log.append("s")

    @flow.step()
    async def keywords(case: Case, run: Run) -> None:
        order.append("keywords")
        case.right = "keywords"
        case.log.append("k")

    @flow.step()
    async def report(case: Case, run: Run) -> None:
        order.append("report")
        case.left = f"{case.left} and {case.right}: {list(case.log)}"

    @flow.step()
    async def send(case: Case, run: Run) -> None: ...

    sent = flow.end("sent")
    group = start.graph({report: [summary, keywords], summary: [], keywords: []})
    flow.build(start=start, transitions=[group.join(send), send.to(sent)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
    assert (over.status, order[-1], sorted(order)) == ("completed", "report", ["keywords", "report", "summary"])
    assert over.context.left == "summary and keywords: ['s', 'k']"
    assert list(over.context.log) == ["s", "k"]


async def test_a_graph_stops_where_a_branch_that_others_need_fails(store: str) -> None:
    begun: list[str] = []
    flow = Workflow("graph", Case)

    @flow.step()
    async def start(case: Case, run: Run) -> None: ...

    @flow.step()
    async def first(case: Case, run: Run) -> None:
        begun.append("first")
        raise ValueError("no")

    @flow.step()
    async def second(case: Case, run: Run) -> None:
        begun.append("second")

    end = flow.end("end")
    group = start.graph({first: [], second: [first]})
    send = flow.step()(_tidy)
    flow.build(start=start, transitions=[group.join(send), send.to(end)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
    assert (over.status, begun) == ("failed", ["first"])


# --- nested ------------------------------------------------------------------------------------------------------


async def test_groups_may_stand_in_branches(store: str) -> None:
    flow = Workflow("nested", Case)

    @flow.step()
    async def start(case: Case, run: Run) -> None: ...

    @flow.step()
    async def outer(case: Case, run: Run) -> None:
        case.items = ("x", "y")

    @flow.item(str)
    async def inner(case: Case, item: str, run: Run) -> None:
        case.total += 1
        case.log.append(item)

    @flow.step()
    async def after(case: Case, run: Run) -> None:
        case.log.append(f"after {case.total}")

    @flow.step()
    async def beside(case: Case, run: Run) -> None:
        case.total += 10

    end = flow.end("end")
    wide = start.fork(outer, beside)
    deep = outer.each(items_of, inner, max_items=5)
    finish = flow.step()(_tidy)
    flow.build(start=start, transitions=[wide.join(finish), deep.join(after), finish.to(end)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)
        again = await app.get("r:start.fork:1:outer:outer.each:1:1", flow)
    assert (over.status, over.context.total, list(over.context.log)) == ("completed", 12, ["x", "y", "after 2"])
    assert (again.status, list(again.context.log)) == ("completed", ["y"])


# --- what a branch is not ----------------------------------------------------------------------------------------


async def test_a_branch_is_neither_retried_nor_forked_by_itself(store: str) -> None:
    world = World()
    world.fails["middle"] = ValueError("no")
    flow = forked(world)
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        retried = await app.retry("r:begin.fork:1:middle")
    assert (retried.status, "is a branch of run 'r'; retry that" in retried.why) == ("refused", True)
