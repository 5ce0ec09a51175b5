"""Every way through `refund`, played in memory with a scripted model and person."""

import json
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from agentflow import End
from agentflow.failures import Filtered, Invalid, ModelFailure, Refused, Truncated, Unavailable, Unclear
from agentflow.testing import Line, Played, expires, fails, play, says
from definitions.order_system import OrderSystem
from definitions.orders import Customer, Order, PaymentMethod
from definitions.refund import (
    Case,
    Verdict,
    applied,
    apply,
    approval,
    broken,
    covered,
    hand_over,
    handed_over,
    identify,
    notify,
    possible,
    refund,
    refused,
    small,
    understand,
)
from definitions.wishes import Wish, WishDetails
from tests.acceptance.own_inputs import INPUTS, Ticket, load_shop, load_tickets
from tests.acceptance.retail import faults, lay_out

TICKETS = {ticket.request.id: ticket for ticket in load_tickets()}
SMALL, LARGE, UNKNOWN = TICKETS["ticket-01"], TICKETS["ticket-04"], TICKETS["ticket-09"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(INPUTS / "shop", tmp_path / "shop"))


def case_of(ticket: Ticket) -> Case:
    return Case(id=ticket.request.id, user_id=ticket.request.user_id, request=ticket.request.text)


def understands(ticket: Ticket) -> list[Line[Case]]:
    """The model's line for this ticket."""
    if ticket.answer is None:
        return []
    answer = ticket.answer
    return [says(understand, Wish(answer["choice"]), WishDetails(**answer["data"]), reason=answer["reason"])]


def played(ticket: Ticket, folder: Path, *lines: Line[Case]) -> Played[Case]:
    return play(refund, case_of(ticket), OrderSystem(folder), script=lines)


def sent(folder: Path) -> list[tuple[str, str]]:
    """The messages that were sent: to whom, and what."""
    outbox = json.loads((folder / "outbox.json").read_text(encoding="utf-8"))
    return [(message["to"], message["text"]) for message in outbox.values()]


@pytest.mark.parametrize("ticket", TICKETS.values(), ids=list(TICKETS))
def test_each_ticket_reaches_its_end_and_leaves_the_orders_as_the_oracle_says(ticket: Ticket, tmp_path: Path) -> None:
    shop = load_shop()
    folder = lay_out(shop, ticket.request, tmp_path / "shop")
    decides = [says(approval, Verdict(ticket.verdict))] if ticket.verdict else []
    run = played(ticket, folder, *understands(ticket), *decides)
    assert str(run.end) == ticket.end
    assert faults(shop, ticket.request, ticket.action, folder) == []


def test_a_small_wish_is_done_at_once(folder: Path) -> None:
    run = played(SMALL, folder, *understands(SMALL))
    assert run.path == [identify, understand, apply, notify, applied]
    assert run.context.receipt == "#W1000001 cancelled"
    assert run.context.amount == Decimal("39.75")


def test_a_large_wish_waits_for_a_person(folder: Path) -> None:
    run = played(LARGE, folder, *understands(LARGE), says(approval, Verdict.APPROVE))
    assert run.path == [identify, understand, approval, apply, notify, applied]
    assert run.context.amount == Decimal(685)


def test_the_customer_hears_that_it_is_done(folder: Path) -> None:
    played(SMALL, folder, *understands(SMALL))
    assert sent(folder) == [("ada_lindqvist_1001", "Done: #W1000001 cancelled.")]


def test_the_customer_hears_that_it_is_declined(folder: Path) -> None:
    played(LARGE, folder, *understands(LARGE), says(approval, Verdict.REJECT))
    assert sent(folder) == [("dana_weiss_1004", "We are sorry: your request was declined.")]


def test_the_support_team_gets_the_request_and_the_reasons(folder: Path) -> None:
    ticket = TICKETS["ticket-14"]
    played(ticket, folder, *understands(ticket))
    [(to, text)] = sent(folder)
    assert to == "support"
    assert text.splitlines() == [
        "dana_weiss_1004 asks: Cancel #W1000013, the corner shop sells it for less.",
        "The order is to be cancelled since it is cheaper elsewhere.",
        "an order is cancelled only if no longer needed or ordered by mistake, not because 'cheaper elsewhere'",
    ]


def test_an_unknown_customer_costs_no_model_call(folder: Path) -> None:
    assert played(UNKNOWN, folder).path == [identify, hand_over, handed_over]


@pytest.mark.parametrize(
    ("line", "path", "end"),
    [
        (says(approval, Verdict.REJECT), [notify, refused], refused),
        (says(approval, Verdict.HAND_OVER), [hand_over, handed_over], handed_over),
        (expires(approval), [hand_over, handed_over], handed_over),
    ],
)
def test_what_is_not_approved_changes_nothing(
    line: Line[Case], path: Sequence[object], end: End[Case], folder: Path
) -> None:
    before = (folder / "orders.json").read_bytes()
    run = played(LARGE, folder, *understands(LARGE), line)
    assert run.path == [identify, understand, approval, *path]
    assert run.end is end
    assert (folder / "orders.json").read_bytes() == before
    assert run.context.receipt is None


@pytest.mark.parametrize("failure", [Refused("no"), Invalid("what?"), Truncated("too long"), Filtered("withheld")])
@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.HAND_OVER])
def test_what_no_model_can_read_goes_through_a_person_to_the_support_team(
    failure: ModelFailure, verdict: Verdict, folder: Path
) -> None:
    run = played(SMALL, folder, fails(understand, failure), says(approval, verdict))
    assert run.path == [identify, understand, approval, hand_over, handed_over]


def test_a_model_that_is_away_leaves_the_run_to_be_retried(folder: Path) -> None:
    run = played(SMALL, folder, fails(understand, Unavailable("busy")))
    assert run.end is None
    assert run.failure is not None
    assert run.failure.matches(Unavailable)


def test_a_rule_of_the_shop_hands_the_case_over_with_the_reason(folder: Path) -> None:
    ticket = TICKETS["ticket-10"]
    run = played(ticket, folder, *understands(ticket))
    assert run.path == [identify, understand, apply, hand_over, handed_over]
    assert run.context.notes[-1] == "Tea Kettle 5100000013 is out of stock"


def test_an_unclear_change_is_tried_again_only_if_a_person_says_so(folder: Path) -> None:
    unclear = fails(apply, Unclear("who knows"))
    run = played(SMALL, folder, *understands(SMALL), unclear, says(approval, Verdict.APPROVE))
    assert run.path == [identify, understand, apply, approval, apply, notify, applied]


def test_nobody_is_asked_more_than_three_times(folder: Path) -> None:
    again = [fails(apply, Unclear("who knows")), says(approval, Verdict.APPROVE)] * 3
    run = played(SMALL, folder, *understands(SMALL), *again, fails(apply, Unclear("who knows")))
    assert run.end is broken


def test_a_message_that_can_not_be_sent_does_not_undo_what_was_done(folder: Path) -> None:
    run = played(SMALL, folder, *understands(SMALL), fails(notify, Unclear("who knows")))
    assert run.end is applied


def test_the_person_sees_the_wish_and_why_they_are_asked() -> None:
    asked = approval(case_of(LARGE))
    assert asked.text == "dana_weiss_1004: a request that no model read?"
    wished = case_of(LARGE).model_copy(
        update={
            "wish": Wish.RETURN,
            "details": wish_details(order_id="#W1000004"),
            "amount": Decimal(685),
        }
    )
    assert approval(wished).text == "dana_weiss_1004: return #W1000004 for 685?"


@pytest.mark.parametrize(
    ("wish", "status", "answer"),
    [
        (Wish.CANCEL, "pending", True),
        (Wish.CANCEL, "delivered", False),
        (Wish.CANCEL, "processed", False),
        (Wish.RETURN, "delivered", True),
        (Wish.RETURN, "return requested", False),
        (Wish.EXCHANGE, "delivered", True),
        (Wish.EXCHANGE, "pending", False),
    ],
)
def test_a_wish_needs_an_order_of_the_right_status(wish: Wish, status: str, answer: bool) -> None:
    order = Order(order_id="#W1", status=status, items=(), paid=Decimal(1), paid_by="paypal_1")
    assert possible(case_of(SMALL).model_copy(update={"wish": wish, "order": order})) is answer


def test_no_wish_is_possible_without_an_order_of_the_customer() -> None:
    assert not possible(case_of(SMALL).model_copy(update={"wish": Wish.CANCEL}))


@pytest.mark.parametrize(("amount", "answer"), [("0", True), ("499.99", True), ("500", False)])
def test_small_ends_below_500(amount: str, answer: bool) -> None:
    assert small(case_of(SMALL).model_copy(update={"amount": Decimal(amount)})) is answer


@pytest.mark.parametrize(
    ("method", "surcharge", "answer"),
    [
        ("gift_1", "5.00", True),
        ("gift_1", "5.01", False),
        ("gift_1", "-1", True),
        ("paypal_1", "900", True),
    ],
)
def test_only_a_gift_card_may_be_short_of_money(method: str, surcharge: str, answer: bool) -> None:
    methods = (
        PaymentMethod(id="gift_1", source="gift_card", balance=Decimal(5)),
        PaymentMethod(id="paypal_1", source="paypal", balance=None),
    )
    case = case_of(SMALL).model_copy(
        update={
            "customer": Customer(user_id="ada", name="Ada", payment_methods=methods),
            "details": wish_details(payment_method_id=method),
            "surcharge": Decimal(surcharge),
        }
    )
    assert covered(case) is answer


def wish_details(*, order_id: str = "", payment_method_id: str = "") -> WishDetails:
    return WishDetails(order_id=order_id, item_ids=(), new_item_ids=(), payment_method_id=payment_method_id, reason="")
