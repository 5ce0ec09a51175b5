"""The real input, read and laid out: requests of customers, their orders in a fresh folder, messages."""

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from definitions.order_system import OrderSystem
from tests.acceptance.oracle import Action, differences, orders_after, users_after


@dataclass(frozen=True)
class Request:
    """What a customer asks for, with the actions that a right agent takes."""

    id: str
    user_id: str
    text: str
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Retail:
    """The records of the shop and the requests."""

    orders: dict[str, Any]
    users: dict[str, Any]
    products: dict[str, Any]
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class LabelledMessage:
    """A message, with what a right reviewer says of it."""

    id: str
    label: str
    text: str


def load_retail(data: Path) -> Retail:
    """Everything in the `retail` folder."""
    folder = data / "retail"
    orders, users, products = (_json(folder / f"{name}.json") for name in ("orders", "users", "products"))
    return Retail(orders, users, products, tuple(_request(row) for row in _rows(folder / "requests.jsonl")))


def load_messages(data: Path) -> Sequence[LabelledMessage]:
    """All messages of the `messages` folder."""
    return [LabelledMessage(**row) for row in _rows(data / "messages" / "messages.jsonl")]


def with_one_action(retail: Retail) -> Sequence[Request]:
    """The requests with exactly one expected action."""
    return [request for request in retail.requests if len(request.actions) == 1]


def with_a_modification(retail: Retail) -> Sequence[tuple[Request, Action]]:
    """The requests in which an order is to be modified, each with its first such action; none has just that one."""
    changes = ((r, next((a for a in r.actions if a.name.startswith("modify_")), None)) for r in retail.requests)
    return [(request, action) for request, action in changes if action]


def lay_out(retail: Retail, request: Request, folder: Path) -> Path:
    """Fill a folder with this customer's orders, the customer and the products, for an order system of its own."""
    folder.mkdir(parents=True)
    for name, records in (
        ("orders", orders_of(retail, request)),
        ("users", user_of(retail, request)),
        ("products", retail.products),
    ):
        (folder / f"{name}.json").write_text(json.dumps(records), encoding="utf-8")
    return folder


def orders_of(retail: Retail, request: Request) -> dict[str, Any]:
    """The orders of the customer who asks."""
    return {key: order for key, order in retail.orders.items() if order["user_id"] == request.user_id}


def user_of(retail: Retail, request: Request) -> dict[str, Any]:
    """The record of the customer who asks; empty for somebody unknown."""
    return {key: user for key, user in retail.users.items() if key == request.user_id}


def faults(retail: Retail, request: Request, action: Action, folder: Path) -> list[str]:
    """Where the folder is not as the oracle says it must be after the action."""
    orders, users = orders_of(retail, request), user_of(retail, request)
    return [
        *differences(_json(folder / "orders.json"), orders_after(orders, users, retail.products, action)),
        *differences(_json(folder / "users.json"), users_after(orders, users, action)),
    ]


def orders_in(folder: Path) -> Callable[[], AbstractAsyncContextManager[OrderSystem]]:
    """A service factory for `App(services=[...])`, over this folder."""

    @asynccontextmanager
    async def open_folder() -> AsyncGenerator[OrderSystem, None]:
        yield OrderSystem(folder)

    return open_folder


def _request(row: dict[str, Any]) -> Request:
    actions = tuple(Action(action["name"], action["kwargs"]) for action in row["expected_actions"])
    return Request(row["id"], row["user_id"], row["request"], actions)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
