"""People: one decision is applied, to the question that was asked, in the shape that it takes (B03, B10 to B12, B19)."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import Actor, Answer, App, Context, Question, Run, Workflow
from agentflow.errors import Conflict, InvalidInput, NotFound
from tests.scenarios.desk import ADA, Amount, Case, Verdict, desk, noted
from tests.scenarios.processes import process, says, tell

MODULE = "tests.scenarios.desk"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DESK_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


# --- entry actions (B03) -----------------------------------------------------------------------------------------


class More(StrEnum):
    AGAIN = "again"
    DONE = "done"


class Mails(Context):
    sent: int = 0


async def test_b03_a_wait_repeats_nothing_that_came_before_it(store: str) -> None:
    mails: list[str] = []
    asking = Workflow("asking", Mails)

    async def mail(key: str) -> None:
        mails.append(key)

    @asking.step(max_visits=5)
    async def email(case: Mails, run: Run) -> None:
        await run.effect("mail", mail)
        case.sent += 1

    @asking.human(More)
    def ask(case: Mails) -> Question:
        return Question(f"{case.sent} sent: another?")

    done = asking.end("done")
    asking.build(start=email, transitions=[email.to(ask), ask.on(More.AGAIN).to(email), ask.on(More.DONE).to(done)])

    async with App([asking], store=store) as app:
        for outcome in (More.AGAIN, More.AGAIN, More.DONE):
            waiting = await app.run(asking, Mails(), id="r")
            assert (await app.decide(waiting.waits[0].id, outcome, actor=ADA)).status == "applied"
        over = await app.result("r", asking)

    assert (over.end, over.context.sent) == (done, 3)
    assert mails == ["r:email:1:mail", "r:email:2:mail", "r:email:3:mail"]


# --- many at once (B10) ------------------------------------------------------------------------------------------


async def test_b10_of_many_decisions_at_once_exactly_one_is_applied(store: str, log: Path) -> None:
    app = App([desk], store=store)
    async with app:
        waiting = await app.run(desk, Case(order="A1"), id="r")
        replies: list[tuple[Verdict, str, str]] = []
        together = threading.Barrier(8)

        def click(number: int) -> None:
            verdict = [Verdict.APPROVE, Verdict.REJECT][number % 2]
            together.wait(10)
            reply = app.decide_sync(waiting.waits[0].id, verdict, actor=Actor(f"person {number}"))
            replies.append((verdict, reply.status, reply.why))

        with ThreadPoolExecutor(8) as people:
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(people, click, number) for number in range(8)))
        over = await app.result("r")
        decided = (await app.history("r"))[2]
    app.close_sync()

    applied = [verdict for verdict, status, _ in replies if status == "applied"]
    assert len(applied) == 1
    assert {status for verdict, status, _ in replies if verdict is not applied[0]} == {"refused"}
    assert all(f"{applied[0].name} by person" in why for _, status, why in replies if status == "refused")
    assert decided.outcome == applied[0].name
    assert Counter(name for name, _ in noted(log))["pay"] == (1 if applied == [Verdict.APPROVE] else 0)
    assert str(over.end) == ("paid" if applied == [Verdict.APPROVE] else "refused")


async def test_b10_of_two_processes_that_decide_at_once_one_wins(on_disk: str, log: Path) -> None:
    app = App([desk], store=on_disk)
    await app.run(desk, Case(order="A1"), id="r")
    with (
        process(MODULE, on_disk, log, "decide", "r", "approve") as one,
        process(MODULE, on_disk, log, "decide", "r", "reject") as other,
    ):
        tell(one)
        tell(other)
        statuses = {"approve": says(one), "reject": says(other)}
    over = await app.result("r")
    await app.close()
    assert sorted(statuses.values()) == ["applied", "refused"]
    assert str(over.end) == ("paid" if statuses["approve"] == "applied" else "refused")
    assert Counter(name for name, _ in noted(log))["pay"] == (1 if statuses["approve"] == "applied" else 0)


async def test_b10_a_decision_sent_twice_under_one_request_id_gets_the_first_response(store: str, log: Path) -> None:
    async with App([desk], store=store) as app:
        wait = (await app.run(desk, Case(order="A1"), id="r")).waits[0]
        first = await app.decide(wait.id, Verdict.APPROVE, actor=ADA, request="click-1")
        await app.result("r")
        again = await app.decide(wait.id, Verdict.APPROVE, actor=ADA, request="click-1")

    assert (first.status, again.status) == ("applied", "already")
    assert [name for name, _ in noted(log)] == ["fetch", "pay"]


# --- an old page (B11) -------------------------------------------------------------------------------------------


class Nothing(Context):
    pass


async def test_b11_an_answer_to_an_old_question_does_not_reach_the_next_one(store: str) -> None:
    gates = Workflow("gates", Nothing)

    @gates.human(Verdict)
    def first(case: Nothing) -> Question:
        return Question("First?")

    @gates.human(Verdict)
    def second(case: Nothing) -> Question:
        return Question("Second?")

    yes, no = gates.end("yes"), gates.end("no")
    gates.build(
        start=first,
        transitions=[
            first.on(Verdict.APPROVE).to(second),
            first.on(Verdict.REJECT).to(no),
            second.on(Verdict.APPROVE).to(yes),
            second.on(Verdict.REJECT).to(no),
        ],
    )
    async with App([gates], store=store) as app:
        old = (await app.run(gates, Nothing(), id="r")).waits[0]
        await app.decide(old.id, Verdict.APPROVE, actor=ADA)
        new = await app.run(gates, Nothing(), id="r")
        stale = await app.decide(old.id, Verdict.REJECT, actor=ADA)
        after = await app.get("r", gates)

    assert stale.status == "refused"
    assert "APPROVE by ada@shop.example" in stale.why
    assert (after.state, after.status, after.revision) == (second, "waiting", new.revision)
    assert [wait.id for wait in after.waits] == [new.waits[0].id] != [old.id]


# --- a wrong answer (B12) ----------------------------------------------------------------------------------------


class Paid(Context):
    amount: Decimal | None = None


class Large(BaseModel):
    amount: Decimal
    text: str = ""


class Foreign(StrEnum):
    APPROVE = "approve"


payment = Workflow("payment", Paid)


@payment.human(Verdict, answer=Amount)
def gate(case: Paid) -> Question:
    return Question("How much?")


@gate.store
def keep_amount(case: Paid, answer: Answer[Verdict, Amount]) -> None:
    case.amount = answer.data.amount


payment_paid, payment_refused = payment.end("paid"), payment.end("refused")
payment.build(
    start=gate,
    transitions=[gate.on(Verdict.APPROVE).to(payment_paid), gate.on(Verdict.REJECT).to(payment_refused)],
)
FORTY = Amount(amount=Decimal(40))


class Wider(Amount):
    extra: str = "more"


WRONG: dict[str, tuple[Any, Any, str]] = {
    "a word": ("banana", FORTY, "APPROVE, REJECT"),
    "no": ("no", FORTY, "APPROVE, REJECT"),
    "true": (True, FORTY, "APPROVE, REJECT"),
    "null": (None, FORTY, "APPROVE, REJECT"),
    "an enum of the same names": (Foreign.APPROVE, FORTY, "APPROVE, REJECT"),
    "no data": (Verdict.APPROVE, None, "Amount"),
    "an empty object": (Verdict.APPROVE, {}, "Amount"),
    "another form": (Verdict.APPROVE, Large(amount=Decimal(40)), "Amount"),
    "too much, never validated": (Verdict.APPROVE, Amount.model_construct(amount=Decimal(1000)), "amount"),
    "a field too many": (Verdict.APPROVE, Wider(amount=Decimal(1)), "extra"),
    "10 MB": (Verdict.APPROVE, Amount.model_construct(amount="9" * 10_000_000), "bytes"),
}


@pytest.mark.parametrize(("outcome", "data", "named"), WRONG.values(), ids=WRONG.keys())
async def test_b12_a_wrong_answer_is_refused_and_the_run_still_waits(
    store: str, outcome: Any, data: Any, named: str
) -> None:
    async with App([payment], store=store) as app:
        waiting = await app.run(payment, Paid(), id="r")
        with pytest.raises(InvalidInput, match=named):
            await app.decide(waiting.waits[0].id, outcome, data, actor=ADA)
        after = await app.run(payment, Paid(), id="r")
        assert (after.status, after.revision, after.waits) == ("waiting", 0, waiting.waits)

        await app.decide(waiting.waits[0].id, Verdict.APPROVE, FORTY, actor=ADA)
        over = await app.result("r", payment)

    assert (over.end, over.context.amount) == (payment_paid, Decimal(40))


async def test_b12_data_that_nobody_asked_for_is_refused(store: str, log: Path) -> None:
    async with App([desk], store=store) as app:
        wait = (await app.run(desk, Case(order="A1"), id="r")).waits[0]
        with pytest.raises(InvalidInput, match="takes no data"):
            await app.decide(wait.id, Verdict.APPROVE, FORTY, actor=ADA)
        with pytest.raises(NotFound):
            await app.decide("r.approval.2", Verdict.APPROVE, actor=ADA)
        assert (await app.get("r")).status == "waiting"
    assert [name for name, _ in noted(log)] == ["fetch"]


# --- fresh input to a waiting run (B19) --------------------------------------------------------------------------


async def test_b19_another_input_under_a_live_id_is_a_conflict_and_the_same_one_is_the_run(
    store: str, log: Path
) -> None:
    async with App([desk], store=store) as app:
        waiting = await app.run(desk, Case(order="A1"), id="r")
        with pytest.raises(Conflict, match="another input"):
            await app.start(desk, Case(order="B2"), id="r")
        with pytest.raises(Conflict, match="another input"):
            await app.run(desk, Case(order="B2"), id="r")
        again = await app.start(desk, Case(order="A1"), id="r")
        on = await app.run(desk, Case(order="A1"), id="r")

    assert again.context == on.context == waiting.context
    assert on.waits == waiting.waits
    assert (on.status, on.revision) == ("waiting", waiting.revision)
    assert [name for name, _ in noted(log)] == ["fetch"]
