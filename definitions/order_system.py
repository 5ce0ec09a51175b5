"""The order system of a small shop: a service over JSON files in one folder.

`orders.json`, `users.json` and `products.json` are the shop's records. `changes.json` holds the receipt of every change
by its key, so that a change asked for twice happens once; `outbox.json` holds the messages that were sent.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from definitions.json_files import locked, read_json, write_json
from definitions.order_rules import Record, Shop, cancel, request_exchange, request_return
from definitions.orders import Customer, Order, Variant, customer_of, order_of, variants_of


class OrderSystem:
    """Looks customers and orders up, and changes an order once per key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def customer(self, user_id: str) -> Customer | None:
        """The customer of that id, if there is one."""
        record = (await self._read()).users.get(user_id)
        return customer_of(user_id, record) if record else None

    async def orders_of(self, user_id: str) -> tuple[Order, ...]:
        """All orders of a customer."""
        records = (await self._read()).orders.values()
        return tuple(order_of(record) for record in records if record["user_id"] == user_id)

    async def order(self, order_id: str) -> Order | None:
        """The order of that id, if there is one."""
        record = (await self._read()).orders.get(order_id)
        return order_of(record) if record else None

    async def variants_for(self, orders: Iterable[Order]) -> tuple[Variant, ...]:
        """What the items of these orders can be exchanged for."""
        products = (await self._read()).products
        wanted = dict.fromkeys(item.product_id for order in orders for item in order.items)
        return tuple(variant for product_id in wanted for variant in variants_of(products[product_id]))

    async def apply_cancel(self, order_id: str, reason: str, *, key: str) -> str:
        """Cancel a pending order; return the receipt."""
        change = partial(cancel, order_id=order_id, reason=reason)
        return await self._change(order_id, change, f"{order_id} cancelled", key)

    async def apply_return(self, order_id: str, item_ids: Sequence[str], payment_method_id: str, *, key: str) -> str:
        """Take items of a delivered order back; return the receipt."""
        change = partial(request_return, order_id=order_id, item_ids=item_ids, payment_method_id=payment_method_id)
        return await self._change(order_id, change, f"{order_id} return requested", key)

    async def apply_exchange(
        self, order_id: str, item_ids: Sequence[str], new_item_ids: Sequence[str], payment_method_id: str, *, key: str
    ) -> str:
        """Exchange items of a delivered order; return the receipt."""
        change = partial(
            request_exchange,
            order_id=order_id,
            item_ids=item_ids,
            new_item_ids=new_item_ids,
            payment_method_id=payment_method_id,
        )
        return await self._change(order_id, change, f"{order_id} exchange requested", key)

    async def receipt(self, key: str) -> str | None:
        """The receipt of the change with that key, if it took place."""
        changes = await asyncio.to_thread(self._changes)
        receipt: str | None = changes["receipts"].get(key)
        return receipt

    async def notify(self, to: str, text: str, *, key: str) -> None:
        """Send a message, once per key."""
        await asyncio.to_thread(self._send, to, text, key)

    async def messages(self) -> Sequence[tuple[str, str]]:
        """The messages sent so far, oldest first: to whom, and what."""
        outbox = await asyncio.to_thread(read_json, self._folder / "outbox.json", missing={})
        return [(message["to"], message["text"]) for message in outbox.values()]

    async def _read(self) -> Shop:
        return await asyncio.to_thread(self._read_now)

    def _read_now(self) -> Shop:
        with self._opened() as shop:
            return shop

    async def _change(self, order_id: str, change: Callable[[Shop], None], receipt: str, key: str) -> str:
        return await asyncio.to_thread(self._change_now, order_id, change, receipt, key)

    def _change_now(self, order_id: str, change: Callable[[Shop], None], receipt: str, key: str) -> str:
        with self._opened() as shop:
            receipts: dict[str, str] = self._changes()["receipts"]
            if key in receipts:
                return receipts[key]
            change(shop)
            order = shop.orders[order_id]
            # This one write makes the change and its key happen together; what follows can be repeated.
            self._write_changes({**receipts, key: receipt}, order, shop.users[order["user_id"]])
            self._finish(shop)
        return receipt

    @contextmanager
    def _opened(self) -> Generator[Shop, None, None]:
        """The records, locked, and with the change that a crash may have interrupted."""
        with locked(self._folder):
            shop = Shop(*(read_json(self._folder / f"{name}.json") for name in ("orders", "users", "products")))
            self._finish(shop)
            yield shop

    def _finish(self, shop: Shop) -> None:
        """Write the records of the last change, unless that is done."""
        changes = self._changes()
        if last := changes.get("last"):
            shop.orders[last["order"]["order_id"]] = last["order"]
            shop.users[last["order"]["user_id"]] = last["user"]
            write_json(self._folder / "orders.json", shop.orders)
            write_json(self._folder / "users.json", shop.users)
            self._write_changes(changes["receipts"])

    def _changes(self) -> Record:
        changes: Record = read_json(self._folder / "changes.json", missing={"receipts": {}})
        return changes

    def _write_changes(self, receipts: dict[str, str], order: Record | None = None, user: Record | None = None) -> None:
        last = {"last": {"order": order, "user": user}} if order else {}
        write_json(self._folder / "changes.json", {"receipts": receipts, **last})

    def _send(self, to: str, text: str, key: str) -> None:
        path = self._folder / "outbox.json"
        with locked(self._folder):
            outbox: Record = read_json(path, missing={})
            if key not in outbox:
                write_json(path, {**outbox, key: {"to": to, "text": text}})


@asynccontextmanager
async def open_orders() -> AsyncGenerator[OrderSystem, None]:
    """The order system in the folder that `AGENTFLOW_ORDERS` names, else the one of the examples."""
    yield OrderSystem(Path(os.environ.get("AGENTFLOW_ORDERS", "examples/inputs/shop")))
