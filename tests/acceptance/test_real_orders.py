"""The order system alone, on the real requests: what it does to the orders is what the oracle says."""

from pathlib import Path

import pytest

from definitions.order_system import OrderSystem
from definitions.wishes import Wish, WishDetails, carry_out
from tests.acceptance.retail import Retail, faults, lay_out, load_messages, with_one_action
from tests.acceptance.scripted import wish_answer

pytestmark = pytest.mark.accept


async def test_every_single_action_changes_the_orders_as_the_oracle_says(retail: Retail, tmp_path: Path) -> None:
    requests = with_one_action(retail)
    assert len(requests) == 132
    for request in requests:
        [action] = request.actions
        folder = lay_out(retail, request, tmp_path / request.id)
        answer = wish_answer(action)
        await carry_out(OrderSystem(folder), Wish(answer["choice"]), WishDetails(**answer["data"]), "k1")
        assert faults(retail, request, action, folder) == [], request.id


def test_the_messages_are_all_there(data: Path) -> None:
    messages = load_messages(data)
    assert len({message.id for message in messages}) == 1500
    assert {message.label for message in messages} == {"ham", "spam"}
