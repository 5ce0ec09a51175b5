"""The helpers of the acceptance run, on the example shop: the order system must do what the oracle says."""

from pathlib import Path

import pytest

from definitions.order_system import OrderSystem
from definitions.wishes import Wish, WishDetails, carry_out
from tests.acceptance.oracle import Action
from tests.acceptance.own_inputs import Ticket, load_shop, load_tickets
from tests.acceptance.retail import Request, Retail, faults, lay_out, orders_in, with_a_modification, with_one_action
from tests.acceptance.scripted import wish_answer

APPLIED = [ticket for ticket in load_tickets() if ticket.end == "applied"]


def ids(ticket: Ticket) -> str:
    return ticket.request.id


@pytest.mark.parametrize("ticket", APPLIED, ids=ids)
async def test_the_order_system_does_what_the_oracle_says(ticket: Ticket, tmp_path: Path) -> None:
    shop = load_shop()
    folder = lay_out(shop, ticket.request, tmp_path / "shop")
    assert faults(shop, ticket.request, ticket.action, folder)
    answer = wish_answer(ticket.action)
    async with orders_in(folder)() as system:
        await carry_out(system, Wish(answer["choice"]), WishDetails(**answer["data"]), "k1")
    assert faults(shop, ticket.request, ticket.action, folder) == []


@pytest.mark.parametrize("ticket", load_tickets(), ids=ids)
async def test_a_laid_out_folder_holds_one_customer(ticket: Ticket, tmp_path: Path) -> None:
    shop = load_shop()
    system = OrderSystem(lay_out(shop, ticket.request, tmp_path / "shop"))
    others = [user_id for user_id in shop.users if user_id != ticket.request.user_id]
    assert [await system.customer(user_id) for user_id in others] == [None] * len(others)
    assert len(await system.orders_of(ticket.request.user_id)) == len(
        shop.users.get(ticket.request.user_id, {"orders": []})["orders"]
    )
    assert faults(shop, ticket.request, Action("none", {}), tmp_path / "shop") == []


def test_requests_are_chosen_by_their_actions() -> None:
    cancel, modify = Action("cancel_pending_order", {}), Action("modify_pending_order_items", {})
    one, both, two = (
        Request(str(len(actions)), "ada", "", actions) for actions in [(cancel,), (cancel, modify), (cancel, cancel)]
    )
    retail = Retail({}, {}, {}, (one, both, two))
    assert with_one_action(retail) == [one]
    assert with_a_modification(retail) == [(both, modify)]
