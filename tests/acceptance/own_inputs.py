"""The inputs in `examples/inputs`, in the same form as the real ones, with the end that each must reach."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.oracle import Action
from tests.acceptance.retail import Request, Retail
from tests.acceptance.scripted import JsonAnswer, wished_action

INPUTS = Path(__file__).parents[2] / "examples" / "inputs"

REFUNDS = {  # the end, and what a person says if one is asked
    "ticket-01": ("applied", None),
    "ticket-02": ("applied", "approve"),
    "ticket-03": ("applied", None),
    "ticket-04": ("applied", "approve"),
    "ticket-05": ("applied", None),
    "ticket-06": ("applied", None),
    "ticket-07": ("handed_over", None),
    "ticket-08": ("handed_over", None),
    "ticket-09": ("handed_over", None),
    "ticket-10": ("handed_over", None),
    "ticket-11": ("handed_over", None),
    "ticket-12": ("refused", "reject"),
    "ticket-13": ("applied", "approve"),
    "ticket-14": ("handed_over", None),
    "ticket-15": ("handed_over", None),
}
REVIEWS = {"message-07": "publish", "message-11": "withhold"}  # what a person says where the model is unsure


@dataclass(frozen=True)
class Ticket:
    """A refund request with the model's answer, the person's verdict and the end; None where nobody is asked."""

    request: Request
    answer: JsonAnswer | None
    verdict: str | None
    end: str

    @property
    def action(self) -> Action:
        """What must have happened to the orders."""
        return self.request.actions[0]


@dataclass(frozen=True)
class Post:
    """A message with the model's answer, the person's decision and the end."""

    id: str
    text: str
    answer: JsonAnswer
    decision: str | None
    end: str


def load_shop() -> Retail:
    """The records of the example shop, with its tickets as requests."""
    orders, users, products = (_json(f"shop/{name}.json") for name in ("orders", "users", "products"))
    return Retail(orders, users, products, tuple(ticket.request for ticket in load_tickets()))


def load_tickets() -> Sequence[Ticket]:
    """All tickets."""
    answers = _json("tickets.answers.json")
    return [_ticket(row, answers.get(row["id"])) for row in _rows("tickets.jsonl")]


def load_posts() -> Sequence[Post]:
    """All messages."""
    answers = _json("messages.answers.json")
    return [_post(row, answers[row["id"]]) for row in _rows("messages.jsonl")]


def _ticket(row: dict[str, Any], answer: JsonAnswer | None) -> Ticket:
    end, verdict = REFUNDS[row["id"]]
    action = wished_action(answer) if answer and end == "applied" else Action("none", {})
    return Ticket(Request(row["id"], row["user_id"], row["request"], (action,)), answer, verdict, end)


def _post(row: dict[str, Any], answer: JsonAnswer) -> Post:
    decision = REVIEWS.get(row["id"])
    is_public = decision == "publish" or answer["choice"] == "allow"
    return Post(row["id"], row["text"], answer, decision, "published" if is_public else "withheld")


def _json(name: str) -> Any:
    return json.loads((INPUTS / name).read_text(encoding="utf-8"))


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (INPUTS / name).read_text(encoding="utf-8").splitlines()]
