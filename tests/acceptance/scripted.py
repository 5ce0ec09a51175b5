"""The answers of a model that is always right, made from the labels of the input."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from tests.acceptance.oracle import Action

JsonAnswer: TypeAlias = dict[str, Any]

CHOICES = {
    "cancel_pending_order": "cancel",
    "return_delivered_order_items": "return",
    "exchange_delivered_order_items": "exchange",
}
LABELS = {"ham": "allow", "spam": "reject"}
ENDS = {"allow": "published", "reject": "withheld"}


def wish_answer(action: Action) -> JsonAnswer:
    """What the model of `understand` says where this action is right; `other` for everything but the three."""
    kwargs = action.kwargs
    return {
        "reason": f"The customer asks for {action.name}.",
        "choice": CHOICES.get(action.name, "other"),
        "data": {
            "order_id": kwargs.get("order_id", ""),
            "item_ids": list(kwargs.get("item_ids", ())),
            "new_item_ids": list(kwargs.get("new_item_ids", ())),
            "payment_method_id": kwargs.get("payment_method_id", ""),
            "reason": kwargs.get("reason", ""),
        },
    }


def wished_action(answer: Mapping[str, Any]) -> Action:
    """The action that such an answer stands for: the way back, for inputs that come with an answer."""
    names = {choice: name for name, choice in CHOICES.items()}
    name = names.get(answer["choice"], "none")
    fields = {
        "cancel_pending_order": ("order_id", "reason"),
        "return_delivered_order_items": ("order_id", "item_ids", "payment_method_id"),
        "exchange_delivered_order_items": ("order_id", "item_ids", "new_item_ids", "payment_method_id"),
    }.get(name, ())
    return Action(name, {field: answer["data"][field] for field in fields})


def refund_end(action: Action) -> str:
    """Where a run with this one action ends, if the rules allow it and a person approves it."""
    return "applied" if action.name in CHOICES else "handed_over"


def label_answer(label: str) -> JsonAnswer:
    """What the model of `classify` says about a message with this label."""
    return {"reason": f"It reads like {label}.", "choice": LABELS[label]}


def review_end(label: str) -> str:
    """Where a message with this label ends."""
    return ENDS[LABELS[label]]
