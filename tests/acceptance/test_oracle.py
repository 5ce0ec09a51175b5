"""The oracle and the scripted answers, judged by small records of their own."""

from typing import Any

import pytest

from tests.acceptance.oracle import Action, differences, orders_after, users_after
from tests.acceptance.own_inputs import load_posts, load_shop, load_tickets
from tests.acceptance.scripted import label_answer, refund_end, review_end, wish_answer, wished_action

CANCEL = Action("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
RETURN = Action(
    "return_delivered_order_items",
    {"order_id": "#W1", "item_ids": ["3", "1", "1"], "payment_method_id": "gift_card_1"},
)
EXCHANGE = Action(
    "exchange_delivered_order_items",
    {"order_id": "#W1", "item_ids": ["1", "1"], "new_item_ids": ["2", "1"], "payment_method_id": "paypal_1"},
)
MODIFY = Action("modify_pending_order_address", {"order_id": "#W1", "city": "Oldbridge"})


def orders() -> dict[str, Any]:
    payment = {"transaction_type": "payment", "amount": 20.3, "payment_method_id": "gift_card_1"}
    items = [{"item_id": "1", "price": 10.1}, {"item_id": "1", "price": 10.1}, {"item_id": "3", "price": 0.1}]
    return {
        "#W1": {"user_id": "ada", "status": "any", "items": items, "payment_history": [payment]},
        "#W2": {"user_id": "ada", "status": "pending"},
    }


def users() -> dict[str, Any]:
    return {"ada": {"payment_methods": {"gift_card_1": {"balance": 3}, "paypal_1": {}}}}


def products() -> dict[str, Any]:
    return {"kettle": {"variants": {"1": {"price": 11.0}, "2": {"price": 12.5}}}}


def after(action: Action) -> dict[str, Any]:
    changed: dict[str, Any] = orders_after(orders(), users(), products(), action)["#W1"]
    return changed


def test_a_cancelled_order_pays_every_payment_back() -> None:
    payments = orders()["#W1"]["payment_history"]
    refund = {**payments[0], "transaction_type": "refund"}
    assert after(CANCEL) == {
        **orders()["#W1"],
        "status": "cancelled",
        "cancel_reason": "no longer needed",
        "payment_history": [*payments, refund],
    }


def test_a_cancelled_order_fills_the_gift_card_that_paid_it() -> None:
    assert users_after(orders(), users(), CANCEL)["ada"]["payment_methods"]["gift_card_1"] == {"balance": 23.3}


@pytest.mark.parametrize("action", [RETURN, EXCHANGE, MODIFY])
def test_no_other_action_moves_money(action: Action) -> None:
    assert users_after(orders(), users(), action) == users()


def test_a_return_names_its_items_and_where_the_money_goes() -> None:
    assert after(RETURN) == {
        **orders()["#W1"],
        "status": "return requested",
        "return_items": ["3", "1", "1"],
        "return_payment_method_id": "gift_card_1",
    }


def test_an_exchange_is_priced_at_what_was_paid_and_what_the_new_items_cost_today() -> None:
    assert after(EXCHANGE) == {
        **orders()["#W1"],
        "status": "exchange requested",
        "exchange_items": ["1", "1"],
        "exchange_new_items": ["2", "1"],
        "exchange_payment_method_id": "paypal_1",
        "exchange_price_difference": 3.3,
    }


def test_any_other_action_leaves_the_orders_alone() -> None:
    assert orders_after(orders(), users(), products(), MODIFY) == orders()


@pytest.mark.parametrize("action", [CANCEL, RETURN, EXCHANGE])
def test_the_other_orders_and_the_input_stay_as_they_are(action: Action) -> None:
    before = orders()
    assert orders_after(before, users(), products(), action)["#W2"] == before["#W2"]
    assert before == orders()


def test_item_lists_are_compared_without_their_order() -> None:
    assert differences({"#W1": {"return_items": ["1", "3", "1"]}}, {"#W1": {"return_items": ["3", "1", "1"]}}) == []


@pytest.mark.parametrize(
    ("actual", "line"),
    [
        ({"#W1": {"return_items": ["1", "3"]}}, "#W1.return_items: ['1', '3'] != ['1', '1', '3']"),
        ({"#W1": {"return_items": ["1", "1", "3"], "status": "x"}}, "#W1.status: 'x' != None"),
        ({"#W1": {"return_items": ["1", "1", "3"]}, "#W2": {}}, "#W2: only in one"),
    ],
)
def test_a_difference_is_named(actual: dict[str, Any], line: str) -> None:
    assert differences(actual, {"#W1": {"return_items": ["1", "1", "3"]}}) == [line]


@pytest.mark.parametrize(
    ("action", "choice", "end"),
    [
        (CANCEL, "cancel", "applied"),
        (RETURN, "return", "applied"),
        (EXCHANGE, "exchange", "applied"),
        (MODIFY, "other", "handed_over"),
    ],
)
def test_the_scripted_model_chooses_what_the_action_is(action: Action, choice: str, end: str) -> None:
    answer = wish_answer(action)
    assert (answer["choice"], refund_end(action)) == (choice, end)
    assert answer["data"].keys() == {"order_id", "item_ids", "new_item_ids", "payment_method_id", "reason"}


@pytest.mark.parametrize("action", [CANCEL, RETURN, EXCHANGE])
def test_an_answer_leads_back_to_its_action(action: Action) -> None:
    assert wished_action(wish_answer(action)) == action


@pytest.mark.parametrize(("label", "choice", "end"), [("ham", "allow", "published"), ("spam", "reject", "withheld")])
def test_the_scripted_model_goes_by_the_label(label: str, choice: str, end: str) -> None:
    assert (label_answer(label)["choice"], review_end(label)) == (choice, end)


def test_own_inputs_reach_every_end_by_every_wish() -> None:
    tickets, posts = load_tickets(), load_posts()
    assert len(tickets) >= 12
    assert {ticket.end for ticket in tickets} == {"applied", "refused", "handed_over"}
    assert {t.answer["choice"] for t in tickets if t.answer} == {"cancel", "return", "exchange", "other"}
    assert len(posts) >= 12
    assert {(post.answer["choice"], post.end) for post in posts} == {
        ("allow", "published"),
        ("reject", "withheld"),
        ("unsure", "published"),
        ("unsure", "withheld"),
    }


def test_own_customers_and_orders_name_each_other() -> None:
    shop = load_shop()
    assert {o: order["user_id"] for o, order in shop.orders.items()} == {
        o: user_id for user_id, user in shop.users.items() for o in user["orders"]
    }
