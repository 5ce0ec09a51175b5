"""What a workflow sees of the order system: small frozen values, made from the records in its files."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from pydantic import BaseModel


class Article(BaseModel, frozen=True):
    """What items and variants have in common."""

    item_id: str
    product_id: str
    name: str
    options: str
    price: Decimal

    def __str__(self) -> str:
        return f"item {self.item_id}: {self.name} ({self.options}), {self.price}"


class Item(Article, frozen=True):
    """One item of an order, at the price that was paid."""


class Order(BaseModel, frozen=True):
    """An order with its items, and how it was paid."""

    order_id: str
    status: str
    items: tuple[Item, ...]
    paid: Decimal
    paid_by: str

    def __str__(self) -> str:
        head = f"order {self.order_id}, {self.status}, {self.paid} paid by {self.paid_by}"
        return "\n".join([head, *(f"  {item}" for item in self.items)])


class Variant(Article, frozen=True):
    """A version of a product that can be had in exchange, at today's price."""


class PaymentMethod(BaseModel, frozen=True):
    """A way to pay; only a gift card has a balance."""

    id: str
    source: str
    balance: Decimal | None

    def __str__(self) -> str:
        return self.id if self.balance is None else f"{self.id}, balance {self.balance}"


class Customer(BaseModel, frozen=True):
    """A customer, with the ways in which they pay."""

    user_id: str
    name: str
    payment_methods: tuple[PaymentMethod, ...]

    def balance_of(self, payment_method_id: str) -> Decimal | None:
        """What is on that gift card; None for what is no gift card of this customer."""
        return next((method.balance for method in self.payment_methods if method.id == payment_method_id), None)


def total(articles: Iterable[Article], item_ids: Iterable[str]) -> Decimal:
    """What the articles of these ids cost, each as often as it is named; an id that none of them has costs nothing."""
    prices = {article.item_id: article.price for article in articles}
    return sum((prices.get(item_id, Decimal(0)) for item_id in item_ids), Decimal(0))


def money(amount: float) -> Decimal:
    """An amount from a file, exact to the cent."""
    return Decimal(str(amount)).quantize(Decimal("0.01"))


def lines(values: Iterable[object]) -> str:
    """One value a line, as a prompt or a message shows them."""
    return "\n".join(map(str, values)) or "none"


def customer_of(user_id: str, record: Mapping[str, Any]) -> Customer:
    name = record["name"]
    return Customer(
        user_id=user_id,
        name=f"{name['first_name']} {name['last_name']}",
        payment_methods=tuple(_method_of(method) for method in record["payment_methods"].values()),
    )


def order_of(record: Mapping[str, Any]) -> Order:
    payments = [payment for payment in record["payment_history"] if payment["transaction_type"] == "payment"]
    return Order(
        order_id=record["order_id"],
        status=record["status"],
        items=tuple(Item(**_described(item), name=item["name"]) for item in record["items"]),
        paid=sum((money(payment["amount"]) for payment in payments), Decimal(0)),
        paid_by=payments[0]["payment_method_id"],
    )


def variants_of(product: Mapping[str, Any]) -> Iterable[Variant]:
    """The versions of a product that are in stock."""
    for variant in product["variants"].values():
        if variant["available"]:
            yield Variant(**_described({**variant, "product_id": product["product_id"]}), name=product["name"])


def _method_of(record: Mapping[str, Any]) -> PaymentMethod:
    balance = money(record["balance"]) if "balance" in record else None
    return PaymentMethod(id=record["id"], source=record["source"], balance=balance)


def _described(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "item_id": record["item_id"],
        "product_id": record["product_id"],
        "options": ", ".join(f"{name} {value}" for name, value in record["options"].items()),
        "price": money(record["price"]),
    }
