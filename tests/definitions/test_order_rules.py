"""What the shop allows: one order of each status, with two equal items."""

from copy import deepcopy
from typing import Any

import pytest

from definitions.order_rules import NotPossible, Shop, cancel, request_exchange, request_return


def make_shop(status: str) -> Shop:
    item: dict[str, Any] = {"name": "Kettle", "product_id": "p1", "item_id": "i1", "price": 32.5, "options": {}}
    order: dict[str, Any] = {
        "order_id": "#W1",
        "user_id": "ada",
        "items": [item, item, {**item, "item_id": "i2", "price": 38.0}],
        "status": status,
        "payment_history": [{"transaction_type": "payment", "amount": 103.0, "payment_method_id": "gift_1"}],
    }
    methods = {
        "gift_1": {"id": "gift_1", "source": "gift_card", "balance": 7},
        "gift_2": {"id": "gift_2", "source": "gift_card", "balance": 0},
        "paypal_1": {"id": "paypal_1", "source": "paypal"},
    }
    variants = {
        "i1": {"item_id": "i1", "available": True, "price": 33.0},
        "i2": {"item_id": "i2", "available": True, "price": 38.1},
        "i3": {"item_id": "i3", "available": False, "price": 41.0},
    }
    products: dict[str, dict[str, Any]] = {
        "p1": {"variants": variants},
        "p2": {"variants": {"j1": {"available": True, "price": 1.0}}},
    }
    return Shop({"#W1": order}, {"ada": {"payment_methods": methods}}, products)


def test_cancelling_pays_back_and_fills_the_gift_card() -> None:
    shop = make_shop("pending")
    cancel(shop, "#W1", "ordered by mistake")
    order = shop.orders["#W1"]
    assert (order["status"], order["cancel_reason"]) == ("cancelled", "ordered by mistake")
    assert order["payment_history"][1:] == [
        {"transaction_type": "refund", "amount": 103.0, "payment_method_id": "gift_1"}
    ]
    assert shop.users["ada"]["payment_methods"]["gift_1"]["balance"] == 110.0


def test_a_return_lists_equal_items_as_often_as_they_come_back() -> None:
    shop = make_shop("delivered")
    request_return(shop, "#W1", ["i2", "i1", "i1"], "gift_2")
    order = shop.orders["#W1"]
    assert (order["status"], order["return_items"]) == ("return requested", ["i1", "i1", "i2"])
    assert order["return_payment_method_id"] == "gift_2"


def test_an_exchange_keeps_both_lists_and_the_difference() -> None:
    shop = make_shop("delivered")
    request_exchange(shop, "#W1", ["i1", "i2"], ["i2", "i1"], payment_method_id="paypal_1")
    order = shop.orders["#W1"]
    assert (order["status"], order["exchange_payment_method_id"]) == ("exchange requested", "paypal_1")
    assert (order["exchange_items"], order["exchange_new_items"]) == (["i1", "i2"], ["i1", "i2"])
    assert order["exchange_price_difference"] == 0.6


def test_an_item_may_be_exchanged_for_a_new_one_of_its_kind() -> None:
    shop = make_shop("delivered")
    request_exchange(shop, "#W1", ["i1"], ["i1"], payment_method_id="paypal_1")
    assert shop.orders["#W1"]["exchange_price_difference"] == 0.5


def test_an_exchange_moves_no_money_yet() -> None:
    shop = make_shop("delivered")
    request_exchange(shop, "#W1", ["i1"], ["i2"], payment_method_id="gift_2")
    assert shop.users == make_shop("delivered").users


@pytest.mark.parametrize(
    ("status", "order_id", "reason", "words"),
    [
        ("pending", "#W2", "no longer needed", "there is no order #W2"),
        ("processed", "#W1", "no longer needed", "order #W1 is processed, not pending"),
        ("pending", "#W1", "too dear", "not because 'too dear'"),
    ],
)
def test_what_can_not_be_cancelled(status: str, order_id: str, reason: str, words: str) -> None:
    shop = make_shop(status)
    with pytest.raises(NotPossible, match=words):
        cancel(shop, order_id, reason)
    assert shop == make_shop(status)


@pytest.mark.parametrize(
    ("status", "item_ids", "method", "words"),
    [
        ("pending", ["i1"], "gift_1", "order #W1 is pending, not delivered"),
        ("delivered", [], "gift_1", "no item of order #W1 is named"),
        ("delivered", ["i1", "i1", "i1", "i9"], "gift_1", "order #W1 has no such items: i1, i9"),
        ("delivered", ["i1"], "paypal_9", "the customer has no payment method 'paypal_9'"),
        ("delivered", ["i1"], "paypal_1", "the money goes back to gift_1 or to a gift card, not to paypal_1"),
    ],
)
def test_what_can_not_be_returned(status: str, item_ids: list[str], method: str, words: str) -> None:
    shop = make_shop(status)
    with pytest.raises(NotPossible, match=words):
        request_return(shop, "#W1", item_ids, method)
    assert shop == make_shop(status)


@pytest.mark.parametrize(
    ("item_ids", "new_item_ids", "method", "words"),
    [
        (["i1", "i1"], ["i2"], "paypal_1", "2 items can't be exchanged for 1"),
        (["i1"], ["j1"], "paypal_1", "j1 is no variant of Kettle"),
        (["i1"], ["i3"], "paypal_1", "Kettle i3 is out of stock"),
        (["i9"], ["i1"], "paypal_1", "order #W1 has no such items: i9"),
        (["i1"], ["i2"], "", "the customer has no payment method ''"),
    ],
)
def test_what_can_not_be_exchanged(item_ids: list[str], new_item_ids: list[str], method: str, words: str) -> None:
    shop = make_shop("delivered")
    before = deepcopy(shop)
    with pytest.raises(NotPossible, match=words):
        request_exchange(shop, "#W1", item_ids, new_item_ids, payment_method_id=method)
    assert shop == before
