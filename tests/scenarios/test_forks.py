"""Forks: a new run where another one stood, with other data; effects are replayed or held, people asked anew (D9, D16)."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from agentflow import Actor, App, Context, Question, Run, Workflow
from agentflow.errors import Conflict, InvalidInput, NotFound, RunFailed
from agentflow.failures import Business
from agentflow.merge import Append
from agentflow.model.views import Snapshot

ADA = Actor("ada@shop.example", source="tests")
SOON = timedelta(seconds=20)


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class Case(Context):
    order: str = "A1"
    amount: Decimal = Decimal(40)
    tries: int = 0
    notes: Append[str] = Append()
    receipt: str | None = None
    told: str | None = None


class World:
    """What acted, in order, under which key."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.fails: Exception | None = None

    async def act(self, name: str, key: str) -> str:
        self.calls.append((name, key))
        if self.fails is not None:
            raise self.fails
        return f"{name} done"


def refund(world: World, *, protected: bool = False) -> Workflow[Case, None]:
    """`collect (twice) -> approval -> pay -> paid`, and a letter where the amount is large."""
    flow = Workflow("refund", Case)

    @flow.step(max_visits=3)
    async def collect(case: Case, run: Run) -> None:
        case.tries += 1
        case.notes.append(await run.effect("collect", lambda key: world.act("collect", key)))

    @flow.human(Verdict, protected=protected)
    def approval(case: Case) -> Question:
        return Question(f"Pay {case.amount} for {case.order}?")

    @flow.step()
    async def pay(case: Case, run: Run) -> None:
        case.receipt = await run.effect("pay", lambda key: world.act("pay", key))
        if case.amount > 100:
            case.told = await run.effect("letter", lambda key: world.act("letter", key))

    @flow.step()
    async def look(case: Case, run: Run) -> None:
        case.told = case.failure.message if case.failure is not None else "nothing failed"

    def enough(case: Case) -> bool:
        return case.tries >= 2

    paid, refused = flow.end("paid"), flow.end("refused")
    flow.build(
        start=collect,
        transitions=[
            collect.when(enough).to(approval),
            collect.to(collect),
            approval.on(Verdict.APPROVE).to(pay),
            approval.on(Verdict.REJECT).to(refused),
            pay.failed(Business).to(look),
            look.to(refused),
            pay.to(paid),
        ],
    )
    return flow


async def paid_run(app: App, flow: Workflow[Case, None]) -> Snapshot[Case]:
    """A run that went through: 1 and 2 collect, 3 approval, 4 pay."""
    await app.run(flow, Case(), id="r", timeout=SOON)
    await app.decide("r.approval.1", Verdict.APPROVE, actor=ADA)
    return await app.result("r", flow, timeout=SOON)


async def stored(app: App, run: str) -> Any:
    """All that is stored of a run, without the commands to it."""
    document = dict(await app.export(run))
    document.pop("commands")
    return document


# --- where it stands and what it knows ---------------------------------------------------------------------------


async def test_a_fork_stands_where_its_origin_stood_with_the_data_of_then_and_the_changes(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        forked = await app.fork("r", 2, change={"amount": Decimal(7)}, id="f", actor=ADA)
        first = await app.get("f", flow, revision=0)
    assert (forked.id, forked.revision, str(forked.state)) == ("f", 0, "approval")
    assert first.context == Case(amount=Decimal(7), tries=2, notes=Append(["collect done", "collect done"]))


async def test_the_origin_is_not_touched_and_keeps_who_forked_it_and_why(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        before = await stored(app, "r")
        await app.fork("r", 1, change={"order": "B"}, id="f", actor=ADA, reason="what if it were B?")
        await app.follow("f", timeout=SOON)
        assert await stored(app, "r") == before
        [command] = (await app.export("r"))["commands"]
    assert (command["command"], command["actor"]["subject"], command["reason"], command["status"]) == (
        "fork", ADA.subject, "what if it were B?", "applied",
    )  # fmt: skip
    assert "run 'f' from revision 1 with another order" in command["why"]


async def test_the_first_line_of_a_fork_says_whose_it_is_and_what_was_changed(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        await app.fork("r", 2, change={"tries": 5, "amount": 7}, id="f", actor=ADA, reason="a test")
        first = (await app.history("f"))[0]
    assert (first.event, first.source, first.target, first.actor) == ("fork", "", "approval", ADA)
    assert first.answer == {"run": "r", "revision": 2, "changed": ["amount", "tries"], "reason": "a test"}
    assert first.reason == "fork of r@2, changed amount, tries: a test"


async def test_visits_are_counted_on_so_that_a_fork_cannot_go_round_a_bound(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        forked = await app.fork("r", 1, change={"tries": -10}, id="f", effects="live")
        over = await app.follow(forked.id, flow, timeout=SOON)
        visits = [(line.source, line.visit) for line in (await app.history("f"))[1:]]
    assert over.blocked == "state 'collect' was entered 4 times, max_visits is 3"
    assert visits == [("collect", 2), ("collect", 3)]


async def test_a_fork_of_a_fork_counts_the_visits_of_both_before_it(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        await app.fork("r", 1, id="f")
        await app.follow("f", timeout=SOON)
        await app.fork("f", 1, id="g")
        waits = (await app.follow("g", timeout=SOON)).waits
        document = await app.export("g")
    assert [wait.id for wait in waits] == ["g.approval.1"]
    assert document["run"]["memory"]["visits"] == {"collect": 2, "approval": 1}
    assert (document["run"]["origin"], document["run"]["origin_revision"]) == ("f", 1)


async def test_the_failure_that_led_into_a_state_is_known_to_a_fork_from_there(store: str) -> None:
    world = World()
    flow = refund(world)
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        world.fails = Business("the card is closed")
        await app.decide("r.approval.1", Verdict.APPROVE, actor=ADA)
        await app.follow("r", timeout=SOON)
        assert [line.target for line in await app.history("r")][-2:] == ["look", "refused"]
        await app.fork("r", 4, id="f")
        over = await app.follow("f", flow, timeout=SOON)
        first = await app.get("f", flow, revision=0)
    assert over.context.told == "the card is closed"
    assert first.context.failure is not None
    assert first.context.failure.kind == "Business"


# --- effects -----------------------------------------------------------------------------------------------------


async def test_d9_what_the_origin_recorded_is_replayed_and_nothing_acts_twice(store: str) -> None:
    world = World()
    flow = refund(world)
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        before = list(world.calls)
        await app.fork("r", 0, id="f")
        await app.follow("f", timeout=SOON)
        await app.decide("f.approval.1", Verdict.APPROVE, actor=ADA)
        over = await app.result("f", flow, timeout=SOON)
    assert (over.end is not None, over.context.receipt) == (True, "pay done")
    assert world.calls == before


async def test_d9_what_the_origin_did_not_record_is_held_and_the_run_says_so(store: str) -> None:
    world = World()
    flow = refund(world)
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        await app.fork("r", 3, change={"amount": Decimal(500)}, id="f")
        held = await app.follow("f", flow, timeout=SOON)
        why = await app.why("f")
        with pytest.raises(RunFailed, match="effect 'letter' is held back"):
            await app.result("f", timeout=SOON)
    assert "letter" not in [name for name, _ in world.calls]
    assert held.blocked is not None
    assert held.blocked.startswith("effect 'letter' is held back")
    assert "effects='live'" in held.blocked
    assert (why.text.startswith("blocked in pay: effect 'letter' is held back"), why.waker) == (True, None)


async def test_d9_a_live_fork_replays_what_was_recorded_and_carries_out_what_is_new(store: str) -> None:
    world = World()
    flow = refund(world)
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        await app.fork("r", 3, change={"amount": Decimal(500)}, effects="live", id="f")
        over = await app.result("f", flow, timeout=SOON)
    assert (over.context.receipt, over.context.told) == ("pay done", "letter done")
    assert [call for call in world.calls if call[0] in {"pay", "letter"}] == [
        ("pay", "r:pay:1:pay"), ("letter", "f:pay:1:letter"),
    ]  # fmt: skip


async def test_d9_a_body_that_must_run_once_is_not_run_again_by_a_held_fork(store: str) -> None:
    ran: list[str] = []
    flow = Workflow("once", Case)

    @flow.step(once=True)
    async def act(case: Case, run: Run) -> None:
        ran.append(run.id)

    flow.build(start=act, transitions=[act.to(flow.end("done"))])
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        await app.fork("r", 0, id="f")
        await app.follow("f", timeout=SOON)
    assert ran == ["r"]


# --- people ------------------------------------------------------------------------------------------------------


async def test_a_person_is_asked_anew_over_the_changed_data_and_the_old_answer_does_not_count(store: str) -> None:
    flow = refund(World(), protected=True)
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        await app.fork("r", 2, change={"amount": Decimal(9)}, id="f")
        waiting = await app.follow("f", flow, timeout=SOON)
    assert [(wait.id, wait.question) for wait in waiting.waits] == [("f.approval.1", "Pay 9 for A1?")]


async def test_d16_data_that_a_protected_state_was_decided_over_cannot_be_changed_behind_it(store: str) -> None:
    flow = refund(World(), protected=True)
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        with pytest.raises(InvalidInput, match=r"protected state 'approval' was decided before .* fork r@2"):
            await app.fork("r", 3, change={"amount": Decimal(9)}, id="f")
        await app.fork("r", 3, id="f")  # as they were, they were approved
        over = await app.result("f", flow, timeout=SOON)
    assert over.context.amount == Decimal(40)


async def test_d16_a_fork_of_a_fork_cannot_do_it_in_two_steps(store: str) -> None:
    flow = refund(World(), protected=True)
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        await app.fork("r", 3, id="f")
        await app.follow("f", timeout=SOON)
        with pytest.raises(InvalidInput, match="fork r@2"):
            await app.fork("f", 0, change={"amount": Decimal(9)}, id="g")


# --- what is refused ---------------------------------------------------------------------------------------------

BAD: list[tuple[Mapping[str, object], tuple[str, ...]]] = [
    ({"ammount": 1}, ("ammount: Case has no such field; did you mean 'amount'?",)),
    ({"amount": "much", "tries": "x"}, ("amount: ", "tries: ")),
    ({"xyz": 1, "amount": "much"}, ("xyz: Case has no such field", "amount: ")),
    ({"notes": [1]}, ("notes.0: ",)),
]


@pytest.mark.parametrize(("change", "named"), BAD)
async def test_every_change_that_does_not_fit_is_named_and_nothing_is_created(
    store: str, change: Mapping[str, object], named: tuple[str, ...]
) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await app.run(flow, Case(), id="r", timeout=SOON)
        with pytest.raises(InvalidInput) as refused:
            await app.fork("r", 1, change=change, id="f")
        with pytest.raises(NotFound):
            await app.get("f")
    assert [part for part in named if part not in str(refused.value)] == []


async def test_an_end_has_nothing_to_run_and_the_refusal_is_kept(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        over = await paid_run(app, flow)
        with pytest.raises(InvalidInput, match=r"ended at 'paid' with revision 4.*fork an earlier one, 0 to 3"):
            await app.fork("r", over.revision, id="f")
        commands = (await app.export("r"))["commands"]
    assert [(command["command"], command["status"]) for command in commands] == [("fork", "refused")]


@pytest.mark.parametrize("revision", [-1, 5])
async def test_a_revision_that_there_is_not_is_not_found(store: str, revision: int) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        with pytest.raises(NotFound, match="revisions 0 to 4"):
            await app.fork("r", revision)


async def test_the_same_fork_again_is_the_same_run_and_another_under_its_id_is_a_conflict(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        one = await app.fork("r", 2, change={"amount": 5}, id="f")
        same = await app.fork("r", 2, change={"amount": 5}, id="f")
        with pytest.raises(Conflict, match="not this fork"):
            await app.fork("r", 2, change={"amount": 6}, id="f")
        with pytest.raises(Conflict, match="not this fork"):
            await app.fork("r", 2, id="r")
        applied = [c for c in (await app.export("r"))["commands"] if c["status"] == "applied"]
    assert one.id == same.id
    assert len(applied) == 1


async def test_d22_a_request_that_is_repeated_finds_the_fork_that_it_made(store: str) -> None:
    flow = refund(World())
    async with App([flow], store=store) as app:
        await paid_run(app, flow)
        one = await app.fork("r", 2, request="q-1")
        same = await app.fork("r", 2, request="q-1")
        other = await app.fork("r", 2, request="q-2")
    assert one.id == same.id != other.id
