"""After a run: follow it, export it, compare it with another, and judge it by today's code (D11, D12, D20)."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pydantic_core
import pytest

from agentflow import Actor, App, Context, Model, Question, Run, Workflow
from agentflow.analysis.compare import differing_fields
from agentflow.errors import NotFound, RequestError
from agentflow.failures import Business
from agentflow.merge import Append
from agentflow.model.views import Replayed
from agentflow.store.opening import open_store
from agentflow.testing.scripted import ScriptedModel, reply
from tests.scenarios.desk import Case as DeskCase
from tests.scenarios.desk import desk
from tests.scenarios.processes import process, says, tell

ADA = Actor("ada@shop.example", source="tests")
SOON = timedelta(seconds=20)
DESK = "tests.scenarios.desk"


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class Case(Context):
    amount: int = 40
    tries: int = 0
    notes: Append[str] = Append()
    wrong: bool = False


def small(limit: int) -> Callable[[Case], bool]:
    def small(case: Case) -> bool:
        return case.amount < limit

    return small


def refund(
    limit: int = 50, *, max_visits: int = 3, third: str = "look", members: Any = Verdict
) -> Workflow[Case, None]:
    """`collect (twice) -> approval -> paid`, small amounts without the person; a wrong one fails into `look`."""
    flow = Workflow("refund", Case)

    @flow.step(max_visits=max_visits)
    async def collect(case: Case, run: Run) -> None:
        case.tries += 1
        case.notes.append(f"note {case.tries}")
        if case.wrong:
            raise Business("that is wrong")

    @flow.human(members, expires=timedelta(days=1))
    def approval(case: Case) -> Question:
        return Question(f"Pay {case.amount}?")

    async def look(case: Case, run: Run) -> None:
        case.notes.append("looked")

    look.__name__ = third
    looking = flow.step()(look)

    def again(case: Case) -> bool:
        return case.tries < 2

    is_small = small(limit)
    paid, refused = flow.end("paid"), flow.end("refused")
    answers = [approval.on(member).to(refused if member.name == "REJECT" else paid) for member in members]
    flow.build(
        start=collect,
        transitions=[
            collect.when(again).to(collect),
            collect.when(is_small).to(paid),
            collect.to(approval),
            collect.failed(Business).to(looking),
            looking.to(refused),
            *answers,
            approval.expired.to(refused),
        ],
    )
    return flow


async def recorded(store: Any, flow: Workflow[Case, None], case: Case, *, decide: bool = True) -> None:
    """A run `r`, decided if it waits."""
    async with App([flow], store=store) as app:
        found = await app.run(flow, case, id="r", timeout=SOON)
        if decide and found.waits:
            await app.decide("r.approval.1", Verdict.APPROVE, actor=ADA)
            await app.result("r", timeout=SOON)


async def judged(store: Any, flow: Workflow[Case, None]) -> Replayed:
    app = App([flow], store=store)
    try:
        return await app.replay("r")
    finally:
        await app.close()


# --- following ---------------------------------------------------------------------------------------------------


async def test_a_stream_shows_what_was_and_what_comes_and_ends_with_the_run(store: str) -> None:
    flow = refund()
    async with App([flow], store=store) as app:
        await app.run(flow, Case(amount=90), id="r", timeout=SOON)
        seen: list[tuple[int, str]] = []
        async for line in app.stream("r"):
            seen.append((line.number, line.target))
            if line.target == "approval":
                await app.decide("r.approval.1", Verdict.APPROVE, actor=ADA)
    assert seen == [(0, "collect"), (1, "collect"), (2, "approval"), (3, "paid")]


async def test_a_stream_follows_a_run_that_another_process_drives(
    on_disk: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("DESK_LOG", str(log))
    app = App([desk], store=on_disk)
    await app.run(desk, DeskCase(order="A1"), id="r")
    seen: list[str] = []
    with process(DESK, on_disk, log, "decide", "r") as person, process(DESK, on_disk, log, "work", "r") as worker:
        async with asyncio.timeout(30):
            async for line in app.stream("r"):
                seen.append(line.target)
                if line.target == "approval":
                    tell(person)
        assert says(worker) == "paid"
    await app.close()
    assert seen == ["fetch", "approval", "pay", "paid"]


async def test_a_stream_of_an_unknown_run_and_of_chunks_is_refused(store: str) -> None:
    app = App([refund()], store=store)
    with pytest.raises(NotFound, match="there is no run 'nowhere'"):
        await anext(app.stream("nowhere"))
    any_state: Any = object()
    with pytest.raises(RequestError, match=r"app.stream\(run, state\)"):
        app.stream("r", any_state)
    await app.close()


# --- exporting ---------------------------------------------------------------------------------------------------


async def test_an_export_holds_all_of_a_run_in_a_stable_order(store: str) -> None:
    flow = refund()
    opened = open_store(store)
    await recorded(opened, flow, Case(amount=90))
    app = App([flow], store=opened)
    document = json.loads(pydantic_core.to_json(await app.export("r")))
    await app.close()
    assert list(document) == [
        "v", "run", "definition", "context", "history", "attempts", "effects", "waits", "commands",
        "branches",
    ]  # fmt: skip
    assert document["v"] == 1
    assert (document["run"]["id"], document["run"]["status"], document["run"]["end"]) == ("r", "completed", "paid")
    assert document["context"] == {"amount": 90, "tries": 2, "wrong": False, "notes": ["note 1", "note 2"]}
    assert [line["target"] for line in document["history"]] == ["collect", "collect", "approval", "paid"]
    assert document["waits"][0]["actor"]["subject"] == ADA.subject
    assert document["definition"]["shape"] == document["definition"]["at_hand"]["shape"]
    assert "token" not in document["run"]


async def test_a_run_of_another_workflow_can_be_exported_all_the_same(store: str) -> None:
    opened = open_store(store)
    await recorded(opened, refund(), Case(amount=1))
    stranger = Workflow("stranger", Case)

    @stranger.step()
    async def a(case: Case, run: Run) -> None: ...

    stranger.build(start=a, transitions=[a.to(stranger.end("b"))])
    app = App([stranger], store=opened)
    document = await app.export("r")
    await app.close()
    assert (document["definition"]["workflow"], document["definition"]["at_hand"]) == ("refund", None)
    assert document["context"]["notes"] == ["note 1", "note 2"]


# --- comparing ---------------------------------------------------------------------------------------------------


async def test_two_runs_part_at_the_first_transition_that_differs(store: str) -> None:
    flow = refund()
    async with App([flow], store=store) as app:
        await app.run(flow, Case(amount=1), id="a", timeout=SOON)
        await app.run(flow, Case(amount=90), id="b", timeout=SOON)
        found = await app.compare("a", "b")
    one, other = found.parts
    assert (found.equal, found.shared) == (False, 1)
    assert (one is not None and one.target, other is not None and other.target) == ("paid", "approval")
    assert [(field.path, field.one, field.other) for field in found.fields] == [("amount", "1", "90")]


async def test_a_run_is_equal_to_itself_and_shorter_at_an_earlier_revision(store: str) -> None:
    flow = refund()
    async with App([flow], store=store) as app:
        await app.run(flow, Case(amount=1), id="a", timeout=SOON)
        same = await app.compare("a", "a")
        earlier = await app.compare("a", "a", revision=1)
    assert (same.equal, same.shared, same.parts) == (True, 2, (None, None))
    assert (earlier.one, earlier.other, earlier.shared, earlier.parts[0]) == ("a@1", "a@2", 1, None)
    assert [(field.path, field.one, field.other) for field in earlier.fields] == [
        ("tries", "1", "2"), ("notes.1", None, '"note 2"'),
    ]  # fmt: skip


async def test_a_fork_is_compared_from_its_very_start(store: str) -> None:
    flow = refund()
    async with App([flow], store=store) as app:
        await app.run(flow, Case(amount=90), id="a", timeout=SOON)
        await app.fork("a", 1, change={"amount": 1}, id="b")
        await app.follow("b", timeout=SOON)
        found = await app.compare("a", "b")
    assert found.shared == 1
    assert [None if part is None else part.target for part in found.parts] == ["approval", "paid"]
    assert [spent.transitions for spent in found.spent] == [2, 2]


async def test_calls_tokens_and_cost_of_a_path_are_counted(store: str) -> None:
    class Ask(Context):
        text: str

    flow = Workflow("ask", Ask)

    @flow.llm(Verdict, prompt="{{ text }}")
    def judge(case: Ask) -> Ask:
        return case

    fine, bad = flow.end("fine"), flow.end("bad")
    flow.build(start=judge, transitions=[judge.on(Verdict.APPROVE).to(fine), judge.on(Verdict.REJECT).to(bad)])
    with ScriptedModel(lambda _: reply("APPROVE")) as model:
        models = {"default": Model("scripted", base_url=model.base_url, api_key="test")}
        async with App([flow], store=store, models=models) as app:
            await app.run(flow, Ask(text="a"), id="a", timeout=SOON)
            spent, _ = (await app.compare("a", "a")).spent
            [line] = (await app.history("a"))[1:]
    assert (spent.model_calls, spent.tokens, spent.cost) == (1, line.tokens, line.cost or Decimal(0))
    assert spent.tokens > 0


async def test_a_revision_that_there_is_not_cannot_be_compared(store: str) -> None:
    flow = refund()
    async with App([flow], store=store) as app:
        await app.run(flow, Case(amount=1), id="a", timeout=SOON)
        with pytest.raises(NotFound, match="run 'a' has the revisions 0 to 2, not 3"):
            await app.compare("a", "a", other_revision=3)


FIELDS: list[tuple[Any, Any, list[tuple[str, str | None, str | None]]]] = [
    ({"a": 1}, {"a": 1}, []),
    ({"a": 1}, {"a": True}, [("a", "1", "true")]),
    ({"a": 1}, {"a": 1.0}, [("a", "1", "1.0")]),
    ({"a": None}, {}, [("a", "null", None)]),
    ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}, 4]}}, [("a.b.1.c", "2", "3"), ("a.b.2", None, "4")]),
    ({"a": [1]}, {"a": {"0": 1}}, [("a", "[1]", '{"0": 1}')]),
]


@pytest.mark.parametrize(("one", "other", "found"), FIELDS)
def test_fields_differ_by_their_innermost_path_and_by_type(one: Any, other: Any, found: Any) -> None:
    assert [(field.path, field.one, field.other) for field in differing_fields(one, other)] == found


# --- judging anew ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [Case(amount=1), Case(amount=90), Case(wrong=True)], ids=["small", "large", "wrong"])
async def test_the_same_code_leads_the_same_way(store: str, case: Case) -> None:
    opened = open_store(store)
    await recorded(opened, refund(), case)
    found = await judged(opened, refund())
    assert (found.same, found.difference, found.guards, found.gone) == (True, None, (), ())
    assert found.checked > 0


async def test_bodies_and_effects_stay_untouched_by_a_replay(store: str) -> None:
    opened, ran = open_store(store), []
    flow = Workflow("touching", Case)

    @flow.step()
    async def act(case: Case, run: Run) -> None:
        ran.append(run.id)

        async def call(key: str) -> int:
            ran.append(key)
            return 1

        await run.effect("act", call)

    flow.build(start=act, transitions=[act.to(flow.end("done"))])
    async with App([flow], store=opened) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        before, document = list(ran), await app.export("r")
        assert (await app.replay("r")).same
        assert (ran, await app.export("r")) == (before, document)


async def test_a_guard_that_answers_otherwise_is_shown_as_then_and_now(store: str) -> None:
    opened = open_store(store)
    await recorded(opened, refund(limit=50), Case(amount=40))
    found = await judged(opened, refund(limit=10))
    assert (found.same, found.checked) == (False, 1)
    assert found.difference is not None
    assert (found.difference.then.number, found.difference.then.target, found.difference.target) == (
        2, "paid", "approval",
    )  # fmt: skip
    assert (found.difference.then.guards, found.difference.guards) == (
        {"again": False, "small": True}, {"again": False, "small": False},
    )  # fmt: skip


async def test_a_guard_that_answers_otherwise_and_leads_the_same_way_is_told_beside(store: str) -> None:
    opened = open_store(store)
    first, second = Workflow("two", Case), Workflow("two", Case)
    for flow, limit in ((first, 50), (second, 10)):

        @flow.step()
        async def act(case: Case, run: Run) -> None: ...

        done = flow.end("done")
        flow.build(start=act, transitions=[act.when(small(limit)).to(done), act.to(done)])
    await recorded(opened, first, Case(amount=40))
    found = await judged(opened, second)
    assert found.same
    assert [(one.then.guards, one.guards) for one in found.guards] == [({"small": True}, {"small": False})]


async def test_states_that_are_gone_are_named(store: str) -> None:
    opened = open_store(store)
    await recorded(opened, refund(third="look"), Case(wrong=True))
    found = await judged(opened, refund(third="inspect"))
    assert (found.same, found.gone) == (False, ("look",))
    assert found.difference is not None
    assert (found.difference.then.target, found.difference.target) == ("look", "inspect")


async def test_members_that_are_gone_are_named(store: str) -> None:
    class Renamed(StrEnum):
        ACCEPT = "accept"
        REJECT = "reject"

    opened = open_store(store)
    await recorded(opened, refund(), Case(amount=90))
    found = await judged(opened, refund(members=Renamed))
    assert (found.same, found.gone) == (False, ("approval.APPROVE",))
    assert found.difference is not None
    assert found.difference.why == "state 'approval' no longer answers APPROVE"


async def test_a_tighter_bound_on_visits_is_another_path(store: str) -> None:
    opened = open_store(store)
    await recorded(opened, refund(max_visits=3), Case(amount=1))
    found = await judged(opened, refund(max_visits=1))
    assert (found.same, found.checked) == (False, 1)
    assert found.difference is not None
    assert "entered 2 times, max_visits is 1" in found.difference.why


async def test_a_field_that_is_gone_is_named(store: str) -> None:
    class Fewer(Context):
        amount: int = 40

    opened = open_store(store)
    await recorded(opened, refund(), Case(amount=1))
    flow = Workflow("refund", Fewer)

    @flow.step(max_visits=3)
    async def collect(case: Fewer, run: Run) -> None: ...

    flow.build(start=collect, transitions=[collect.to(flow.end("paid"))])
    app = App([flow], store=opened)
    found = await app.replay("r")
    await app.close()
    assert found.same is False
    assert found.difference is not None
    assert "the class has no such field any more" in found.difference.why


async def test_code_that_changed_since_is_named_and_does_not_count_as_another_path(store: str) -> None:
    opened = open_store(store)
    first, second = Workflow("code", Case), Workflow("code", Case)

    @first.step()
    async def act(case: Case, run: Run) -> None:
        case.tries = 1

    first.build(start=act, transitions=[act.to(first.end("done"))])

    async def changed(case: Case, run: Run) -> None:
        case.tries = 2

    changed.__name__ = "act"
    acting = second.step()(changed)
    second.build(start=acting, transitions=[acting.to(second.end("done"))])
    await recorded(opened, first, Case())
    assert (await judged(opened, first)).changed == ()
    found = await judged(opened, second)
    assert (found.same, found.changed) == (True, ("act",))


async def test_a_fork_is_judged_with_the_visits_of_its_origin(store: str) -> None:
    opened = open_store(store)
    flow = refund()
    async with App([flow], store=opened) as app:
        await app.run(flow, Case(amount=1), id="a", timeout=SOON)
        await app.fork("a", 1, id="r")
        await app.follow("r", timeout=SOON)
    assert (await judged(opened, flow)).same
    found = await judged(opened, refund(max_visits=1))
    assert found.difference is not None
    assert "entered 2 times" in found.difference.why
