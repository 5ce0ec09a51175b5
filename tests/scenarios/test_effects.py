"""What acts on the world: called once, replayed after, and never called again in doubt."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tenacity import wait_fixed, wait_none

from agentflow import App, Context, Retry, Run, Snapshot, SyncRun, Workflow
from agentflow.effects import NOT_HAPPENED, STILL_UNCLEAR, Fate, Happened
from agentflow.failures import Business, Retryable, TimedOut, Unclear

TRIES = Retry(attempts=4, wait=wait_none(), on=[Exception])
WITHIN = timedelta(seconds=20)


class Order(Context):
    order: str = "A1"
    receipt: str = ""
    failed: str = ""


class Shop:
    """The outside: does what it is told in turn, and remembers the keys."""

    def __init__(self, *turns: object) -> None:
        self.turns = list(turns)
        self.keys: list[str] = []

    async def pay(self, key: str) -> Any:
        self.keys.append(key)
        turn = self.turns.pop(0) if self.turns else f"paid {len(self.keys)}"
        if isinstance(turn, Exception):
            raise turn
        return turn


class HttpError(Exception):
    """What a client library raises for a status."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code


@dataclass
class Paying:
    """A workflow of one payment, whose body may be given."""

    flow: Workflow[Order, None]

    async def run(self, store: str, id: str = "r") -> Snapshot[Order]:
        async with App([self.flow], store=store) as app:
            return await app.run(self.flow, Order(), id=id, timeout=WITHIN)


def paying(body: Callable[[Order, Run], Awaitable[None]], retry: Retry = TRIES) -> Paying:
    flow = Workflow("paying", Order)

    @flow.step(retry=retry)
    async def pay(case: Order, run: Run) -> None:
        await body(case, run)

    @flow.step()
    async def look(case: Order, run: Run) -> None:
        case.failed = case.failure.kind if case.failure else ""

    paid, doubtful = flow.end("paid"), flow.end("doubtful", failed=True)
    flow.build(start=pay, transitions=[pay.failed(Unclear).to(look), look.to(doubtful), pay.to(paid)])
    return Paying(flow)


def one_payment(shop: Shop, **options: Any) -> Paying:
    async def body(case: Order, run: Run) -> None:
        case.receipt = await run.effect("pay", shop.pay, **options)

    return paying(body)


# --- what an exception of the call means -------------------------------------------------------------------------


class TooOld(Business):
    pass


@pytest.mark.parametrize(
    "error",
    [TooOld("no"), HttpError(404), HttpError(422), ConnectionRefusedError()],
    ids=["business", "404", "422", "refused"],
)
async def test_what_did_not_happen_is_called_again_under_the_same_key(store: str, error: Exception) -> None:
    shop = Shop(error, "paid")
    over = await one_payment(shop).run(store)

    assert (str(over.end), over.context.receipt) == ("paid", "paid")
    assert shop.keys == ["r:pay:1:pay"] * 2


@pytest.mark.parametrize(
    "error",
    [HttpError(500), HttpError(408), HttpError(409), HttpError(429), TimeoutError(), ValueError("?"), Retryable("?")],
    ids=["500", "408", "409", "429", "timeout", "any", "retryable"],
)
async def test_what_may_have_happened_is_unclear_and_no_retry_calls_again(store: str, error: Exception) -> None:
    shop = Shop(error)
    over = await one_payment(shop).run(store)

    assert (str(over.end), over.context.failed) == ("doubtful", "Unclear")
    assert len(shop.keys) == 1


async def test_unclear_retry_calls_again_under_the_same_key(store: str) -> None:
    shop = Shop(HttpError(500), TimeoutError(), "paid")
    over = await one_payment(shop, unclear="retry").run(store)

    assert (str(over.end), over.context.receipt) == ("paid", "paid")
    assert shop.keys == ["r:pay:1:pay"] * 3


@pytest.mark.parametrize(
    ("fate", "receipt", "calls"),
    [(Happened("found"), "found", 1), (NOT_HAPPENED, "second", 2), (STILL_UNCLEAR, "", 1)],
    ids=["happened", "not happened", "still unclear"],
)
async def test_the_unclear_function_decides_what_becomes_of_a_doubt(
    store: str, fate: Fate[str], receipt: str, calls: int
) -> None:
    asked: list[str] = []
    shop = Shop(HttpError(500), "second")

    async def look(case: Order, run: Run, key: str) -> Fate[str]:
        asked.append(key)
        return fate

    over = await one_payment(shop, unclear=look).run(store)

    assert (over.context.receipt, len(shop.keys)) == (receipt, calls)
    assert set(asked) == {"r:pay:1:pay"}
    assert over.context.failed == ("Unclear" if fate is STILL_UNCLEAR else "")


async def test_an_unclear_function_that_raises_leaves_the_doubt(store: str) -> None:
    shop = Shop(HttpError(500))

    async def look(case: Order, run: Run, key: str) -> Fate[str]:
        raise RuntimeError("the shop is down")

    over = await one_payment(shop, unclear=look).run(store)
    assert (over.context.failed, len(shop.keys)) == ("Unclear", 1)


async def test_a_timeout_in_the_middle_of_a_call_leaves_a_doubt(store: str) -> None:
    flow = Workflow("slow", Order)
    keys: list[str] = []

    async def never(key: str) -> None:
        keys.append(key)
        await asyncio.Event().wait()

    @flow.step(timeout=timedelta(milliseconds=50), retry=Retry(attempts=3, wait=wait_none()))
    async def pay(case: Order, run: Run) -> None:
        await run.effect("pay", never)

    paid, doubtful, late = flow.end("paid"), flow.end("doubtful", failed=True), flow.end("late", failed=True)
    flow.build(start=pay, transitions=[pay.failed(Unclear).to(doubtful), pay.failed(TimedOut).to(late), pay.to(paid)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Order(), id="r", timeout=WITHIN)

    assert (over.end, len(keys)) == (doubtful, 1)


# --- replay ------------------------------------------------------------------------------------------------------


async def test_recorded_effects_are_replayed_by_the_next_attempt(store: str) -> None:
    shop, attempts = Shop(), list[int]()

    async def body(case: Order, run: Run) -> None:
        attempts.append(run.attempt)
        first = await run.effect("first", shop.pay)
        if run.attempt < 3:
            raise Retryable("not yet")
        case.receipt = f"{first}, {await run.effect('second', shop.pay)}"

    over = await paying(body).run(store)

    assert over.context.receipt == "paid 1, paid 2"
    assert shop.keys == ["r:pay:1:first", "r:pay:1:second"]
    assert attempts == [1, 2, 3]


async def test_once_per_holds_across_runs(store: str) -> None:
    shop = Shop()
    paid = one_payment(shop, once_per="order A1")
    async with App([paid.flow], store=store) as app:
        receipts = [(await app.run(paid.flow, Order(), id=run)).context.receipt for run in ("r1", "r2", "r3")]

    assert receipts == ["paid 1"] * 3
    assert shop.keys == ["r1:pay:1:pay"]


async def test_an_effect_at_work_in_another_run_is_waited_for_and_not_asked_about(store: str) -> None:
    shop, begun, go, asked = Shop(), asyncio.Event(), asyncio.Event(), list[str]()

    async def slowly(key: str) -> Any:
        begun.set()
        await go.wait()
        return await shop.pay(key)

    async def look(case: Order, run: Run, key: str) -> Fate[str]:
        asked.append(key)
        return NOT_HAPPENED

    async def body(case: Order, run: Run) -> None:
        if run.attempt == 3:
            go.set()
        case.receipt = await run.effect("pay", slowly, once_per="order A1", unclear=look)

    flow = paying(body, Retry(attempts=40, wait=wait_fixed(0.01))).flow
    async with App([flow], store=store) as app:
        await app.start(flow, Order(), id="first")
        await asyncio.wait_for(begun.wait(), 5)
        second = await app.run(flow, Order(), id="second", timeout=WITHIN)
        first = await app.result("first", flow, timeout=WITHIN)

    assert first.context.receipt == second.context.receipt == "paid 1"
    assert (shop.keys, asked) == (["first:pay:1:pay"], [])


async def test_one_name_twice_in_a_visit_is_refused_and_items_tell_calls_apart(store: str) -> None:
    shop = Shop()

    async def twice(case: Order, run: Run) -> None:
        await run.effect("pay", shop.pay)
        await run.effect("pay", shop.pay)

    async def items(case: Order, run: Run) -> None:
        for item in ("a", "b"):
            case.receipt += await run.effect("pay", shop.pay, item=item)

    refused = await paying(twice, Retry()).run(store)
    assert refused.failure is not None
    assert refused.failure.kind == "EffectNameReused"
    assert len(shop.keys) == 1
    over = await paying(items).run(store, id="other")
    assert over.context.receipt == "paid 2paid 3"


async def test_a_colon_in_a_name_makes_no_two_effects_one(store: str) -> None:
    shop = Shop()

    async def body(case: Order, run: Run) -> None:
        item = await run.effect("pay", shop.pay, item="b")
        case.receipt = f"{item}, {await run.effect('pay:b', shop.pay)}"

    over = await paying(body).run(store)
    assert over.context.receipt == "paid 1, paid 2"


# --- results -----------------------------------------------------------------------------------------------------


class Receipt(Context):
    number: int


UNSTORABLE: dict[str, tuple[Any, Any]] = {
    "an object": (object(), None),
    "a tuple": ((1, 2), None),
    "another type than it says": ("text", int),
    "no value of its model": ("text", Receipt),
}


@pytest.mark.parametrize(("value", "kind"), UNSTORABLE.values(), ids=UNSTORABLE.keys())
async def test_a_result_that_cannot_be_stored_counts_as_done_and_is_not_called_for_again(
    store: str, value: Any, kind: Any
) -> None:
    shop = Shop(value)
    over = await one_payment(shop, result=kind).run(store)

    assert (over.status, len(shop.keys)) == ("failed", 1)
    assert over.failure is not None
    assert over.failure.kind == "InvalidContext"
    assert "'pay'" in over.failure.message


async def test_a_result_type_that_cannot_be_stored_is_found_before_the_call(store: str) -> None:
    shop = Shop()
    over = await one_payment(shop, result=Shop).run(store)

    assert (over.status, shop.keys) == ("failed", [])
    assert over.failure is not None
    assert over.failure.kind == "InvalidContext"


async def test_a_typed_result_comes_back_as_its_type(store: str) -> None:
    shop = Shop(Receipt(number=7))
    seen: list[Any] = []

    async def body(case: Order, run: Run) -> None:
        seen.append(await run.effect("pay", shop.pay, result=Receipt))
        if run.attempt == 1:
            raise Retryable("once more")

    await paying(body).run(store)
    assert seen == [Receipt(number=7)] * 2


# --- synchronous bodies ------------------------------------------------------------------------------------------


async def test_a_synchronous_body_calls_in_its_own_thread_and_is_replayed(store: str) -> None:
    flow = Workflow("threads", Order)
    calls: list[tuple[str, bool]] = []

    @flow.step(retry=TRIES)
    def pay(case: Order, run: SyncRun) -> None:
        mine = threading.get_ident()

        def call(key: str) -> str:
            calls.append((key, threading.get_ident() == mine))
            return "paid"

        case.receipt = run.effect("pay", call)
        if run.attempt == 1:
            raise Retryable("once more")

    paid = flow.end("paid")
    flow.build(start=pay, transitions=[pay.to(paid)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Order(), id="r", timeout=WITHIN)

    assert (over.end, over.context.receipt) == (paid, "paid")
    assert calls == [("r:pay:1:pay", True)]
