"""What may be done to an order, and what becomes of it: rules over the shop's records, without files.

Each change checks every rule first and raises `NotPossible` before it has touched a record.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from agentflow.failures import Business
from definitions.orders import money

CANCEL_REASONS = ("no longer needed", "ordered by mistake")

Record: TypeAlias = dict[str, Any]


class NotPossible(Business):
    """The shop's rules forbid this change."""


@dataclass(frozen=True, slots=True)
class Shop:
    """All records of the shop, by their ids."""

    orders: dict[str, Record]
    users: dict[str, Record]
    products: dict[str, Record]


def cancel(shop: Shop, order_id: str, reason: str) -> None:
    """Cancel a pending order: every payment goes back to where it came from."""
    order = _order_in(shop, order_id, "pending")
    if reason not in CANCEL_REASONS:
        raise NotPossible(f"an order is cancelled only if {' or '.join(CANCEL_REASONS)}, not because {reason!r}")
    payments = [entry for entry in order["payment_history"] if entry["transaction_type"] == "payment"]
    methods = [_method_of(shop, order, payment["payment_method_id"]) for payment in payments]
    for payment, method in zip(payments, methods, strict=True):
        order["payment_history"].append({**payment, "transaction_type": "refund"})
        if method["source"] == "gift_card":
            method["balance"] = float(money(method["balance"]) + money(payment["amount"]))
    order.update(status="cancelled", cancel_reason=reason)


def request_return(shop: Shop, order_id: str, item_ids: Sequence[str], payment_method_id: str) -> None:
    """Take items of a delivered order back: the money goes to the original payment method or to a gift card."""
    order = _order_in(shop, order_id, "delivered")
    _items_in(order, item_ids)
    method = _method_of(shop, order, payment_method_id)
    original = order["payment_history"][0]["payment_method_id"]
    if payment_method_id != original and method["source"] != "gift_card":
        raise NotPossible(f"the money goes back to {original} or to a gift card, not to {payment_method_id}")
    order.update(
        status="return requested",
        return_items=sorted(item_ids),
        return_payment_method_id=payment_method_id,
    )


def request_exchange(
    shop: Shop, order_id: str, item_ids: Sequence[str], new_item_ids: Sequence[str], *, payment_method_id: str
) -> None:
    """Exchange items of a delivered order, one by one, for other variants of the same products.

    No money moves yet: the difference is settled when the old items have come in. So a gift card that does not cover
    it is no obstacle here; whoever asks for the change may want to look at it first.
    """
    order = _order_in(shop, order_id, "delivered")
    difference = _price_difference(shop, _items_in(order, item_ids), new_item_ids)
    _method_of(shop, order, payment_method_id)
    order.update(
        status="exchange requested",
        exchange_items=sorted(item_ids),
        exchange_new_items=sorted(new_item_ids),
        exchange_payment_method_id=payment_method_id,
        exchange_price_difference=float(difference),
    )


def _order_in(shop: Shop, order_id: str, status: str) -> Record:
    order = shop.orders.get(order_id)
    if order is None:
        raise NotPossible(f"there is no order {order_id}")
    if order["status"] != status:
        raise NotPossible(f"order {order_id} is {order['status']}, not {status}")
    return order


def _items_in(order: Record, item_ids: Sequence[str]) -> list[Record]:
    """The items of those ids; an id may come as often as the order has it."""
    if not item_ids:
        raise NotPossible(f"no item of order {order['order_id']} is named")
    if missing := Counter(item_ids) - Counter(item["item_id"] for item in order["items"]):
        raise NotPossible(f"order {order['order_id']} has no such items: {', '.join(missing.elements())}")
    by_id = {item["item_id"]: item for item in order["items"]}
    return [by_id[item_id] for item_id in item_ids]


def _method_of(shop: Shop, order: Record, payment_method_id: str) -> Record:
    method: Record | None = shop.users[order["user_id"]]["payment_methods"].get(payment_method_id)
    if method is None:
        raise NotPossible(f"the customer has no payment method {payment_method_id!r}")
    return method


def _price_difference(shop: Shop, items: Sequence[Record], new_item_ids: Sequence[str]) -> Decimal:
    """What the new items cost more than the old ones."""
    if len(items) != len(new_item_ids):
        raise NotPossible(f"{len(items)} items can't be exchanged for {len(new_item_ids)}")
    difference = Decimal(0)
    for item, new_item_id in zip(items, new_item_ids, strict=True):
        variant = shop.products[item["product_id"]]["variants"].get(new_item_id)
        if variant is None:
            raise NotPossible(f"{new_item_id} is no variant of {item['name']}")
        if not variant["available"]:
            raise NotPossible(f"{item['name']} {new_item_id} is out of stock")
        difference += money(variant["price"]) - money(item["price"])
    return difference
