"""What the shop's records must be after an action: pure functions, written apart from the service that they judge."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

Records: TypeAlias = Mapping[str, Any]

ITEM_LISTS = ("return_items", "exchange_items", "exchange_new_items")


@dataclass(frozen=True)
class Action:
    """What a right agent does, as the requests have it in `expected_actions`."""

    name: str
    kwargs: Mapping[str, Any]


def orders_after(orders: Records, users: Records, products: Records, action: Action) -> dict[str, Any]:
    """All orders once the action is done; an action that is no cancel, return or exchange leaves them as they are."""
    after = deepcopy(dict(orders))
    order_id = action.kwargs.get("order_id", "")
    if action.name == "cancel_pending_order":
        after[order_id] |= _cancelled(after[order_id], action.kwargs["reason"])
    elif action.name == "return_delivered_order_items":
        after[order_id] |= _returned(**action.kwargs)
    elif action.name == "exchange_delivered_order_items":
        after[order_id] |= _exchanged(after[order_id], products, **action.kwargs)
    return after


def users_after(orders: Records, users: Records, action: Action) -> dict[str, Any]:
    """All customers once the action is done: a cancelled order's gift cards have their money back."""
    after = deepcopy(dict(users))
    if action.name == "cancel_pending_order":
        order = orders[action.kwargs["order_id"]]
        methods = after[order["user_id"]]["payment_methods"]
        for payment in order["payment_history"]:
            method = methods[payment["payment_method_id"]]
            if "balance" in method:
                method["balance"] = round(method["balance"] + payment["amount"], 2)
    return after


def differences(actual: Records, expected: Records) -> list[str]:
    """Where two sets of records differ, one line for each; the order within item lists does not count."""
    found = [f"{key}: only in one" for key in sorted(actual.keys() ^ expected.keys())]
    for key in sorted(actual.keys() & expected.keys()):
        left, right = _with_sorted_items(actual[key]), _with_sorted_items(expected[key])
        fields = sorted(left.keys() | right.keys())
        found += [f"{key}.{f}: {left.get(f)!r} != {right.get(f)!r}" for f in fields if left.get(f) != right.get(f)]
    return found


def _cancelled(order: Records, reason: str) -> dict[str, Any]:
    refunds = [
        {"transaction_type": "refund", "amount": p["amount"], "payment_method_id": p["payment_method_id"]}
        for p in order["payment_history"]
    ]
    return {
        "status": "cancelled",
        "cancel_reason": reason,
        "payment_history": [*order["payment_history"], *refunds],
    }


def _returned(order_id: str, item_ids: Iterable[str], payment_method_id: str) -> dict[str, Any]:
    return {
        "status": "return requested",
        "return_items": list(item_ids),
        "return_payment_method_id": payment_method_id,
    }


def _exchanged(
    order: Records,
    products: Records,
    *,
    order_id: str,
    item_ids: Sequence[str],
    new_item_ids: Sequence[str],
    payment_method_id: str,
) -> dict[str, Any]:
    old = sum(next(i["price"] for i in order["items"] if i["item_id"] == item_id) for item_id in item_ids)
    prices = {item_id: v["price"] for product in products.values() for item_id, v in product["variants"].items()}
    new = sum(prices[item_id] for item_id in new_item_ids)
    return {
        "status": "exchange requested",
        "exchange_items": list(item_ids),
        "exchange_new_items": list(new_item_ids),
        "exchange_payment_method_id": payment_method_id,
        "exchange_price_difference": round(new - old, 2),
    }


def _with_sorted_items(record: Records) -> dict[str, Any]:
    return {key: sorted(value) if key in ITEM_LISTS else value for key, value in record.items()}
