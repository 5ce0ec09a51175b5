"""What a customer may wish of an order, what it is worth, and how the order system does it."""

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel

from definitions.order_rules import NotPossible
from definitions.order_system import OrderSystem
from definitions.orders import Order, Variant, total


class Wish(StrEnum):
    CANCEL = "cancel"
    RETURN = "return"
    EXCHANGE = "exchange"
    OTHER = "other"


class WishDetails(BaseModel, frozen=True):
    """What the model reads out of a request; empty where the customer says nothing."""

    order_id: str
    item_ids: tuple[str, ...]
    new_item_ids: tuple[str, ...]
    payment_method_id: str
    reason: str


def amount_of(wish: Wish, details: WishDetails, order: Order) -> Decimal:
    """What is at stake: all that was paid for a cancelled order, else the price of the items that come back."""
    return order.paid if wish is Wish.CANCEL else total(order.items, details.item_ids)


def surcharge_of(wish: Wish, details: WishDetails, order: Order, variants: Iterable[Variant]) -> Decimal:
    """What the new items of an exchange cost more than the old ones."""
    if wish is not Wish.EXCHANGE:
        return Decimal(0)
    return total(variants, details.new_item_ids) - total(order.items, details.item_ids)


def business_key(wish: Wish | None, details: WishDetails | None) -> str:
    """The same for two tickets that want the same change of the same order."""
    if details is None:
        return "nothing"
    items = [*details.item_ids, "for", *details.new_item_ids] if details.new_item_ids else details.item_ids
    return " ".join([str(wish), details.order_id, *items])


async def carry_out(shop: OrderSystem, wish: Wish | None, details: WishDetails | None, key: str) -> str:
    """Change the order as wished; return the receipt."""
    if wish is Wish.CANCEL and details:
        return await shop.apply_cancel(details.order_id, details.reason, key=key)
    if wish is Wish.RETURN and details:
        return await shop.apply_return(details.order_id, details.item_ids, details.payment_method_id, key=key)
    if wish is Wish.EXCHANGE and details:
        return await shop.apply_exchange(
            details.order_id, details.item_ids, details.new_item_ids, details.payment_method_id, key=key
        )
    raise NotPossible("nothing is wished that changes an order")
