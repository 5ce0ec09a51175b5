"""The order system over its files: look-ups, changes that happen once, crashes in between."""

import asyncio
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from definitions import order_system
from definitions.json_files import write_json
from definitions.order_rules import NotPossible
from definitions.order_system import OrderSystem, open_orders
from definitions.orders import lines
from tests.acceptance.own_inputs import INPUTS

BRUNO, GIFT_CARD = "bruno_maas_1002", "gift_card_7002"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(INPUTS / "shop", tmp_path / "shop"))


def read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return content


def balance(folder: Path) -> float:
    found: float = read(folder, "users")[BRUNO]["payment_methods"][GIFT_CARD]["balance"]
    return found


async def test_a_customer_is_found_with_payment_methods(folder: Path) -> None:
    customer = await OrderSystem(folder).customer(BRUNO)
    assert customer is not None
    assert customer.name == "Bruno Maas"
    assert lines(customer.payment_methods) == "gift_card_7002, balance 40.00\npaypal_7003"
    assert (customer.balance_of(GIFT_CARD), customer.balance_of("paypal_7003")) == (Decimal(40), None)


async def test_nobody_is_found_under_an_unknown_id(folder: Path) -> None:
    system = OrderSystem(folder)
    assert await system.customer("gus") is None
    assert await system.orders_of("gus") == ()
    assert await system.order("#W0") is None


async def test_orders_come_with_items_and_what_was_paid(folder: Path) -> None:
    orders = await OrderSystem(folder).orders_of(BRUNO)
    assert [order.order_id for order in orders] == ["#W1000002", "#W1000011"]
    assert str(orders[0]) == (
        "order #W1000002, pending, 669.00 paid by gift_card_7002\n"
        "  item 5100000051: Mountain Tent (persons 2, color green), 540.00\n"
        "  item 5100000041: Camp Stove (burners 1), 129.00"
    )
    assert await OrderSystem(folder).order("#W1000002") == orders[0]


async def test_only_variants_in_stock_are_offered_each_once(folder: Path) -> None:
    system = OrderSystem(folder)
    variants = await system.variants_for([order for order in [await system.order("#W1000005")] * 2 if order])
    assert [variant.item_id for variant in variants] == ["5100000011", "5100000012"]


async def test_a_change_with_the_same_key_happens_once(folder: Path) -> None:
    system = OrderSystem(folder)
    receipt = await system.apply_cancel("#W1000002", "no longer needed", key="k1")
    assert await system.apply_cancel("#W1000002", "no longer needed", key="k1") == receipt == "#W1000002 cancelled"
    assert balance(folder) == 709.0
    assert len(read(folder, "orders")["#W1000002"]["payment_history"]) == 2


async def test_a_change_with_another_key_meets_the_rules(folder: Path) -> None:
    system = OrderSystem(folder)
    await system.apply_cancel("#W1000002", "no longer needed", key="k1")
    with pytest.raises(NotPossible, match="is cancelled, not pending"):
        await system.apply_cancel("#W1000002", "no longer needed", key="k2")
    assert await system.receipt("k2") is None


async def test_many_at_once_happen_once_each(folder: Path) -> None:
    systems = [OrderSystem(folder) for _ in range(4)]
    cancels = [system.apply_cancel("#W1000002", "no longer needed", key="k1") for system in systems]
    returns = [s.apply_return("#W1000003", ["5100000022"], "paypal_7004", key="k2") for s in systems]
    await asyncio.gather(*cancels, *returns)
    assert balance(folder) == 709.0
    assert {read(folder, "orders")[order]["status"] for order in ("#W1000002", "#W1000003")} == {
        "cancelled",
        "return requested",
    }


async def test_a_receipt_is_found_by_its_key(folder: Path) -> None:
    system = OrderSystem(folder)
    assert await system.receipt("k1") is None
    await system.apply_exchange("#W1000005", ["5100000011"], ["5100000012"], "paypal_7007", key="k1")
    assert await OrderSystem(folder).receipt("k1") == "#W1000005 exchange requested"


async def test_a_refused_change_leaves_no_trace(folder: Path) -> None:
    before = read(folder, "orders")
    with pytest.raises(NotPossible, match="out of stock"):
        await OrderSystem(folder).apply_exchange("#W1000009", ["5100000012"], ["5100000013"], "paypal_7007", key="k1")
    assert read(folder, "orders") == before
    assert not (folder / "changes.json").exists()


@pytest.mark.parametrize("written", [0, 1, 2, 3])
async def test_a_crash_at_any_write_leaves_a_change_done_or_not_done(
    folder: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(written))

    def write_or_die(path: Path, content: object) -> None:
        if next(left, None) is None:
            raise SystemError("the process dies here")
        write_json(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(order_system, "write_json", write_or_die)
        with pytest.raises(SystemError):
            await OrderSystem(folder).apply_cancel("#W1000002", "no longer needed", key="k1")

    survivor = OrderSystem(folder)
    assert await survivor.receipt("k1") == ("#W1000002 cancelled" if written else None)
    await survivor.apply_cancel("#W1000002", "no longer needed", key="k1")
    assert balance(folder) == 709.0
    assert read(folder, "orders")["#W1000002"]["status"] == "cancelled"
    assert read(folder, "changes") == {"receipts": {"k1": "#W1000002 cancelled"}}


async def test_a_message_is_sent_once_per_key(folder: Path) -> None:
    system = OrderSystem(folder)
    await system.notify(BRUNO, "Done.", key="k1")
    await system.notify(BRUNO, "Done.", key="k1")
    await system.notify("support", "Please look.", key="k2")
    assert await system.messages() == [(BRUNO, "Done."), ("support", "Please look.")]


async def test_the_folder_comes_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFLOW_ORDERS", str(folder))
    async with open_orders() as system:
        assert await system.customer(BRUNO) is not None
