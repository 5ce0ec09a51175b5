"""A customer wants money or other goods: a model reads the wish, rules check it, a person approves what is large.

The table at the end is the whole story. Whatever is no refund matter, or is not possible by the shop's rules, is handed
over to the support team; nothing is refused unless a person says so.
"""

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TypedDict

from agentflow import Answer, Context, Limits, Question, Retry, Run, Workflow
from agentflow.effects import NOT_HAPPENED, Fate, Happened
from agentflow.failures import Filtered, Invalid, OverLimit, Refused, Truncated, Unclear
from agentflow.merge import Append
from definitions.order_rules import NotPossible
from definitions.order_system import OrderSystem
from definitions.orders import Customer, Order, Variant, lines
from definitions.wishes import Wish, WishDetails, amount_of, business_key, carry_out, surcharge_of

LARGE = Decimal(500)


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    HAND_OVER = "hand over"


class Change(StrEnum):
    DONE = "done"
    IMPOSSIBLE = "impossible"


class Case(Context):
    """One request of one customer, and what became known of it."""

    id: str
    user_id: str
    request: str
    customer: Customer | None = None
    orders: tuple[Order, ...] = ()
    variants: tuple[Variant, ...] = ()
    wish: Wish | None = None
    details: WishDetails | None = None
    order: Order | None = None
    amount: Decimal = Decimal(0)
    surcharge: Decimal = Decimal(0)
    notes: Append[str] = Append()
    receipt: str | None = None


class UnderstandVars(TypedDict):
    request: str
    orders: str
    payment_methods: str
    variants: str


refund = Workflow("refund", Case, services=OrderSystem, version=1, limits=Limits(llm_calls=6))


@refund.step(retry=Retry(attempts=4), timeout=timedelta(seconds=30))
async def identify(case: Case, run: Run[OrderSystem]) -> None:
    case.customer = await run.services.customer(case.user_id)
    case.orders = await run.services.orders_of(case.user_id)
    case.variants = await run.services.variants_for(order for order in case.orders if order.status == "delivered")


@refund.llm(Wish, prompt=Path("refund/understand.md"), answer=WishDetails, max_tokens=800, retry=Retry(attempts=3))
def understand(case: Case) -> UnderstandVars:
    return {
        "request": case.request,
        "orders": lines(case.orders),
        "payment_methods": lines(case.customer.payment_methods if case.customer else ()),
        "variants": lines(case.variants),
    }


@understand.store
def keep_wish(case: Case, answer: Answer[Wish, WishDetails]) -> None:
    case.wish, case.details = answer.outcome, answer.data
    case.order = next((order for order in case.orders if order.order_id == answer.data.order_id), None)
    if case.order:  # else it is nobody's order, or another customer's
        case.amount = amount_of(case.wish, case.details, case.order)
        case.surcharge = surcharge_of(case.wish, case.details, case.order, case.variants)
    case.notes.append(answer.reason)


@refund.human(Verdict, expires=timedelta(days=3), roles=["refunds"], max_visits=3)
def approval(case: Case) -> Question:
    wish = f"{case.wish} {case.details.order_id} for {case.amount}" if case.details else "a request that no model read"
    why = f" ({case.failure.message})" if case.failure else ""
    return Question(
        f"{case.user_id}: {wish}?{why}",
        evidence={
            "request": case.request,
            "wish": case.details.model_dump(mode="json") if case.details else None,
            "surcharge": str(case.surcharge),
            "notes": list(case.notes),
        },
    )


@refund.step(retry=Retry(attempts=4), timeout=timedelta(seconds=30))
async def apply(case: Case, run: Run[OrderSystem]) -> Change:
    try:
        case.receipt = await run.effect(
            "apply",
            lambda key: carry_out(run.services, case.wish, case.details, key),
            once_per=business_key(case.wish, case.details),  # a second ticket for the same wish finds it done
            unclear=find_receipt,
        )
    except NotPossible as rule:  # a rule that says no is an answer, not an accident
        case.notes.append(str(rule))
        return Change.IMPOSSIBLE
    return Change.DONE


async def find_receipt(case: Case, run: Run[OrderSystem], key: str) -> Fate[str]:
    """After a crash in the middle of `apply`: the order system knows whether the change took place."""
    receipt = await run.services.receipt(key)
    return Happened(receipt) if receipt else NOT_HAPPENED


@refund.step(retry=Retry(attempts=4), optional=True)
async def notify(case: Case, run: Run[OrderSystem]) -> None:
    text = f"Done: {case.receipt}." if case.receipt else "We are sorry: your request was declined."
    await run.effect("notify", lambda key: run.services.notify(case.user_id, text, key=key), unclear="retry")


@refund.step(retry=Retry(attempts=4))
async def hand_over(case: Case, run: Run[OrderSystem]) -> None:
    text = lines([f"{case.user_id} asks: {case.request}", *case.notes])
    await run.effect("hand over", lambda key: run.services.notify("support", text, key=key), unclear="retry")


def known(case: Case) -> bool:
    return case.customer is not None


def possible(case: Case) -> bool:
    return case.order is not None and case.order.status == ("pending" if case.wish is Wish.CANCEL else "delivered")


def small(case: Case) -> bool:
    return case.amount < LARGE


def covered(case: Case) -> bool:
    method = case.details.payment_method_id if case.details else ""
    balance = case.customer.balance_of(method) if case.customer else None
    return balance is None or balance >= case.surcharge  # only a gift card may be short of money


def changed(case: Case) -> bool:
    return case.receipt is not None


applied, refused, handed_over = refund.end("applied"), refund.end("refused"), refund.end("handed_over")
broken = refund.end("broken", failed=True)

refund.build(
    start=identify,
    transitions=[
        identify.when(known).to(understand),
        identify.to(hand_over),
        understand.on(Wish.CANCEL, Wish.RETURN, Wish.EXCHANGE).when(possible).when(small).when(covered).to(apply),
        understand.on(Wish.CANCEL, Wish.RETURN, Wish.EXCHANGE).when(possible).to(approval),
        understand.on(Wish.CANCEL, Wish.RETURN, Wish.EXCHANGE, Wish.OTHER).to(hand_over),
        understand.failed(Refused, Invalid, Truncated, Filtered).to(approval),
        approval.on(Verdict.APPROVE).when(possible).to(apply),
        approval.on(Verdict.APPROVE, Verdict.HAND_OVER).to(hand_over),
        approval.on(Verdict.REJECT).to(notify),
        approval.expired.to(hand_over),
        approval.failed(OverLimit).to(broken),
        apply.on(Change.DONE).to(notify),
        apply.on(Change.IMPOSSIBLE).to(hand_over),
        apply.failed(Unclear).to(approval),
        notify.when(changed).to(applied),
        notify.to(refused),
        hand_over.to(handed_over),
    ],
)
