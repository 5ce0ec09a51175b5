"""Migrations: tried on every run before anything is written, and then each is one transition."""

import itertools
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from agentflow import App, Context, Limits, Question, Run, Stored, Workflow
from agentflow.errors import InvalidInput
from agentflow.merge import Append
from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter, RunRow
from tests.scenarios.desk import ADA
from tests.versions.orders import OrderV1, OrderV2, OrderV3, Verdict, ordering, to_cents, to_total

SOON = timedelta(seconds=20)


async def parked(store: Store, *runs: str, kind: Any = OrderV1, **shape: Any) -> list[str]:
    """Runs of version 1 that wait for a person; the ids of their waits."""
    flow = ordering(kind, 1, **shape)
    async with App([flow], store=store) as app:
        asked = [await app.run(flow, kind(order=run, amount=7), id=run, timeout=SOON) for run in runs]
    return [one.waits[0].id for one in asked]


async def row_of(app: App, run: str) -> RunRow:
    return next(row for row in await app.rows(RunFilter()) if row.id == run)


# --- the trial ---------------------------------------------------------------------------------------------------


async def test_a_dry_run_shows_what_would_change_and_writes_nothing(store: Store) -> None:
    await parked(store, "a", "b")
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        before = [await app.export(run) for run in ("a", "b")]
        lines = await app.migrate(flow, dry_run=True)
        assert [await app.export(run) for run in ("a", "b")] == before
    assert [(line.run, line.version, line.to, line.state, line.target, line.applied) for line in lines] == [
        ("a", 1, 2, "ask", "ask", False),
        ("b", 1, 2, "ask", "ask", False),
    ]
    changes = {(change.path, change.one, change.other) for change in lines[0].changes}
    assert changes == {
        ("amount", "7", None),
        ("note", '""', None),
        ("cents", None, "700"),
        ("currency", None, '"EUR"'),
    }


def breaks_on_b(old: Stored) -> Stored:
    if old.context["order"] == "b":
        raise KeyError("tax")
    return to_cents(old)


async def test_where_one_run_has_a_problem_nothing_is_written_unless_it_may_go_partly(store: Store) -> None:
    await parked(store, "a", "b", "c")
    flow = ordering(OrderV2, 2, breaks_on_b)
    async with App([flow], store=store) as app:
        lines = await app.migrate(flow)
        assert [line.applied for line in lines] == [False, False, False]
        assert {row.version for row in await app.rows(RunFilter())} == {1}
        check = await app.deploy_check()
        assert {(one.fate, one.runs) for one in check.prospects} == {("migrate", 2), ("blocked", 1)}
        lines = await app.migrate(flow, partly=True)
        assert [(line.run, line.applied) for line in lines] == [("a", True), ("b", False), ("c", True)]
        assert {row.id: row.version for row in await app.rows(RunFilter())} == {"a": 2, "b": 1, "c": 2}
    told = lines[1].problem or ""
    assert all(part in told for part in ("migration(from_version=1)", "KeyError: 'tax'"))


counter = itertools.count()
WRONG: dict[str, tuple[Any, str]] = {
    "raises": (lambda old: 1 / 0, "raised ZeroDivisionError"),
    "returns nothing": (lambda old: None, "returned None, not a Stored"),
    "gives an unknown field": (
        lambda old: to_cents(replace(old, context={**old.context, "centts": 1})),
        "no field 'centts'",
    ),
    "forgets a field": (lambda old: Stored(old.state, {"order": "x", "cents": 1}), "currency"),
    "gives a value that does not fit": (
        lambda old: Stored(old.state, {"order": "x", "cents": "many", "currency": "EUR"}),
        "context.cents",
    ),
    "gives an unknown state": (
        lambda old: replace(to_cents(old), state="asks"),
        "'asks', which version 2 does not have",
    ),
    "is not pure": (
        lambda old: replace(to_cents(old), context={"order": "x", "cents": next(counter), "currency": "EUR"}),
        "not pure",
    ),
    "is too large": (
        lambda old: Stored(old.state, {"order": "x" * 1_100_000, "cents": 1, "currency": "EUR"}),
        "context_bytes",
    ),
}


@pytest.mark.parametrize("how", WRONG)
async def test_a_migration_that_goes_wrong_is_told_and_leaves_the_run_alone(store: Store, how: str) -> None:
    migration, problem = WRONG[how]
    await parked(store, "a")
    flow = ordering(OrderV2, 2, migration)
    async with App([flow], store=store) as app:
        before = await app.export("a")
        [line] = await app.migrate(flow)
        assert await app.export("a") == before
    assert line.problem is not None
    assert (problem in line.problem, line.target, line.applied) == (True, None, False)


async def test_a_gap_in_the_chain_is_told(store: Store) -> None:
    await parked(store, "a")
    flow = ordering(OrderV3, 3, to_total)  # from 2 to 3 alone
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
        [prospect] = (await app.deploy_check()).prospects
    assert line.problem == "there is no migration from version 1"
    assert (prospect.fate, "migration(from_version=1)" in prospect.reason) == ("blocked", True)


async def test_a_migration_may_change_what_it_is_given_without_harm(store: Store) -> None:
    def in_place(old: Stored) -> Stored:
        old.context["cents"] = old.context.pop("amount") * 100
        del old.context["note"]
        old.context["currency"] = "EUR"
        return old

    await parked(store, "a")
    flow = ordering(OrderV2, 2, in_place)
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
        assert (await app.get("a", flow)).context == OrderV2(order="a", cents=700, currency="EUR")
    assert ("amount", "7", None) in {(one.path, one.one, one.other) for one in line.changes}


async def test_a_migration_is_told_how_often_each_state_was_entered(store: Store) -> None:
    seen: list[Any] = []

    def look(old: Stored) -> Stored:
        seen.append((old.state, dict(old.visits)))
        return to_cents(old)

    await parked(store, "a")
    flow = ordering(OrderV2, 2, look)
    async with App([flow], store=store) as app:
        await app.migrate(flow, dry_run=True)
    assert seen[0] == ("ask", {"prepare": 1, "ask": 1})


async def test_a_workflow_that_the_app_does_not_have_is_refused(store: Store) -> None:
    async with App([ordering(OrderV1, 1)], store=store) as app:
        with pytest.raises(InvalidInput, match="is not among"):
            await app.migrate(ordering(OrderV2, 2, to_cents))


# --- what is written ---------------------------------------------------------------------------------------------


async def test_a_migration_is_one_transition_with_who_and_why_and_is_done_once(store: Store) -> None:
    await parked(store, "a")
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        await app.migrate(flow, actor=ADA, reason="cents now", request="m1")
        assert await app.migrate(flow, actor=ADA, reason="cents now", request="m1") == []
        lines, document = await app.history("a"), await app.export("a")
    assert [(line.event, line.source, line.target) for line in lines][-1] == ("migrate", "ask", "ask")
    assert (lines[-1].actor, lines[-1].reason, lines[-1].difference["whole"]) == (ADA, "cents now", True)
    assert [(one["command"], one["status"], one["request"]) for one in document["commands"]] == [
        ("migrate", "applied", "m1")
    ]
    assert (document["run"]["version"], document["run"]["revision"]) == (2, 2)
    assert document["context"] == {"order": "a", "cents": 700, "currency": "EUR"}


async def test_only_the_named_runs_are_migrated(store: Store) -> None:
    await parked(store, "a", "b")
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        assert [line.run for line in await app.migrate(flow, runs=["b"])] == ["b"]
        assert {row.id: row.version for row in await app.rows(RunFilter())} == {"a": 1, "b": 2}


async def test_a_question_whose_state_is_as_before_stays_open_under_its_id(store: Store) -> None:
    [wait] = await parked(store, "a")
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
        assert not line.asks_anew
        assert [one.id for one in (await app.get("a", flow)).waits] == [wait]
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        assert (await app.result("a", flow, timeout=SOON)).status == "completed"


async def test_a_question_whose_state_changed_is_closed_and_asked_anew(store: Store) -> None:
    [wait] = await parked(store, "a")
    flow = ordering(OrderV2, 2, to_cents, shape="other members")
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
        assert line.asks_anew
        asked = await app.follow("a", flow, timeout=SOON)
        waits = {one["id"]: one["status"] for one in (await app.export("a"))["waits"]}
    assert [one.outcomes for one in asked.waits] == [("APPROVE", "REJECT", "ASK")]
    assert waits == {wait: "closed", "a.ask.2": "open"}


async def test_a_decision_that_was_not_acted_upon_is_kept_where_the_state_is_as_before(store: Store) -> None:
    [wait] = await parked(store, "a")
    old = App([ordering(OrderV1, 1)], store=store)
    old.leave_to_workers()
    await old.decide(wait, Verdict.REJECT, actor=ADA)
    await old.close()
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
        assert line.problem is None
        over = await app.result("a", flow, timeout=SOON)
    assert str(over.end) == "refused"


async def test_whoever_waits_for_a_run_that_was_refused_and_then_migrated_gets_its_result(store: Store) -> None:
    [wait] = await parked(store, "a")
    old = App([ordering(OrderV1, 1)], store=store)
    old.leave_to_workers()
    await old.decide(wait, Verdict.APPROVE, actor=ADA)
    await old.close()
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        await app.settle()  # the worker has refused it
        await app.migrate(flow)
        assert (await app.result("a", flow, timeout=SOON)).status == "completed"


async def test_a_decision_that_would_be_lost_keeps_a_run_from_being_migrated(store: Store) -> None:
    [wait] = await parked(store, "a")
    old = App([ordering(OrderV1, 1)], store=store)
    old.leave_to_workers()
    await old.decide(wait, Verdict.REJECT, actor=ADA)
    await old.close()
    flow = ordering(OrderV2, 2, to_cents, shape="other members")
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
    assert line.problem is not None
    assert "ada@shop.example has decided REJECT" in line.problem


def into(state: str) -> Any:
    return lambda old: replace(to_cents(old), state=state)


async def test_a_migration_may_put_runs_into_another_state_which_is_entered_anew(store: Store) -> None:
    [wait] = await parked(store, "a")
    flow = ordering(OrderV2, 2, into("prepare"))
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
        assert (line.state, line.target, line.asks_anew) == ("ask", "prepare", True)
        asked = await app.follow("a", flow, timeout=SOON)
        waits = {one["id"]: one["status"] for one in (await app.export("a"))["waits"]}
    assert (asked.state.name, waits) == ("ask", {wait: "closed", "a.ask.2": "open"})


@pytest.mark.parametrize(("end", "status"), [("refused", "completed"), ("paid", "completed")])
async def test_a_migration_may_end_a_run(store: Store, end: str, status: str) -> None:
    await parked(store, "a")
    flow = ordering(OrderV2, 2, into(end))
    async with App([flow], store=store) as app:
        await app.migrate(flow)
        over = await app.get("a", flow)
    assert (over.status, str(over.end), list(over.waits)) == (status, end, [])


async def test_a_failed_run_stays_failed_and_is_retried_under_the_new_version(store: Store) -> None:
    async def breaks(case: Any, run: Run) -> None:
        raise ValueError("broken")

    flow = ordering(OrderV1, 1, prepare=breaks)
    async with App([flow], store=store) as app:
        assert (await app.run(flow, OrderV1(order="a", amount=7), id="a", timeout=SOON)).status == "failed"
    mended = ordering(OrderV2, 2, to_cents)
    async with App([mended], store=store) as app:
        check = await app.deploy_check()
        assert [(one.fate, one.failed, one.runs) for one in check.prospects] == [("migrate", True, 1)]
        assert check.count("migrate") == 0
        await app.migrate(mended)
        failed = await app.get("a", mended)
        assert (failed.status, failed.context) == ("failed", OrderV2(order="a", cents=700, currency="EUR"))
        await app.retry("a")
        asked = await app.follow("a", mended, timeout=SOON)
    assert (asked.status, asked.state.name) == ("waiting", "ask")


async def test_a_paused_run_stays_paused(store: Store) -> None:
    await parked(store, "a")
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        await app.pause("a")
        await app.migrate(flow)
        assert (await app.get("a", flow)).paused
        await app.resume("a")
        assert len((await app.get("a", flow)).waits) == 1


async def test_a_run_that_is_over_is_left_alone(store: Store) -> None:
    [wait] = await parked(store, "a")
    old = ordering(OrderV1, 1)
    async with App([old], store=store) as app:
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        await app.result("a", old, timeout=SOON)
    flow = ordering(OrderV2, 2, to_cents)
    async with App([flow], store=store) as app:
        assert await app.migrate(flow) == []
        assert (await app.deploy_check()).prospects == []
        assert (await row_of(app, "a")).version == 1


# --- long runs, and lists that only grow -------------------------------------------------------------------------


class Log(Context):
    count: int = 0
    lines: Append[str] = Append()
    gone: int = 0


class ShortLog(Context):
    count: int = 0
    lines: Append[str] = Append()


def counting(kind: Any, version: int, *migrations: Any, until: int) -> Workflow[Any, None]:
    flow: Workflow[Any, None] = Workflow("counting", kind, version=version, limits=Limits(visits=2000))
    for number, migration in enumerate(migrations, version - len(migrations)):
        flow.migration(from_version=number)(migration)

    def more(case: Any) -> bool:
        return bool(case.count % until)

    @flow.step(max_visits=2000)
    async def count(case: Any, run: Run) -> None:
        case.count += 1
        case.lines.append(str(case.count))

    @flow.human(Verdict, max_visits=2000)
    def ask(case: Any) -> Question:
        return Question("More?")

    end = flow.end("end")
    rows = [
        count.when(more).to(count),
        count.to(ask),
        ask.on(Verdict.APPROVE).to(count),
        ask.on(Verdict.REJECT).to(end),
    ]
    flow.build(start=count, transitions=rows)
    return flow


async def test_a_long_run_loads_exactly_before_and_after_a_migration(store: Store) -> None:
    def even_lines(old: Stored) -> Stored:
        return Stored(old.state, {"count": old.context["count"], "lines": old.context["lines"][1::2]})

    until = 300
    old, new = counting(Log, 1, until=until), counting(ShortLog, 2, even_lines, until=until)
    async with App([old], store=store) as app:
        asked = await app.run(old, Log(), id="a", timeout=SOON)
    async with App([old, new], store=store) as app:
        await app.migrate(new)
        now = await app.get("a", new)
        assert list(now.context.lines) == [str(number) for number in range(2, until + 1, 2)]
        await app.decide(asked.waits[0].id, Verdict.APPROVE, actor=ADA)
        later = await app.follow("a", new, timeout=SOON)
        expected = [
            *(str(number) for number in range(2, until + 1, 2)),
            *(str(until + number) for number in range(1, until + 1)),
        ]
        assert (later.context.count, list(later.context.lines)) == (2 * until, expected)
        then = await app.get("a", old, revision=until)
        assert list(then.context.lines) == [str(number) for number in range(1, until + 1)]
    async with App([new], store=store) as app:  # from its segments
        assert list((await app.get("a", new)).context.lines) == expected
        assert (await app.export("a"))["context"] == {"count": 2 * until, "lines": expected}


async def test_a_run_that_a_limit_blocked_stays_blocked_by_it(store: Store) -> None:
    old = counting(Log, 1, until=300)
    object.__setattr__(old.definition, "limits", Limits(transitions=20, visits=2000))
    new = counting(ShortLog, 2, lambda stored: replace(stored, context={"count": 5, "lines": []}), until=300)
    async with App([old], store=store) as app:
        blocked = await app.follow((await app.start(old, Log(), id="a")).id, old, timeout=SOON)
        assert blocked.blocked is not None
    async with App([new], store=store) as app:
        await app.migrate(new)
        still = await app.get("a", new)
        assert (still.blocked, still.context.count) == (blocked.blocked, 5)
        await app.resume("a", limits=Limits(transitions=5000))
        assert (await app.follow("a", new, timeout=SOON)).status == "waiting"


async def test_money_and_dates_are_text_to_a_migration_and_come_back_as_they_are(store: Store) -> None:
    await parked(store, "a")
    flow = ordering(OrderV3, 3, to_cents, to_total)
    async with App([flow], store=store) as app:
        await app.migrate(flow)
        found = await app.get("a", flow)
    assert (found.context.total, str(found.context.total)) == (Decimal(7), "7")
