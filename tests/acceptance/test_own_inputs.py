"""The shipped workflows on the shipped inputs, end to end: real client over mocked HTTP, real store, real runner."""

from pathlib import Path

import pytest

from tests.acceptance.flows import ToReview, refund_run, review_runs
from tests.acceptance.own_inputs import Ticket, load_posts, load_shop, load_tickets
from tests.acceptance.retail import faults, lay_out


@pytest.mark.parametrize("ticket", load_tickets(), ids=lambda ticket: ticket.request.id)
async def test_a_ticket_ends_where_it_must_and_the_orders_are_right(ticket: Ticket, tmp_path: Path) -> None:
    shop = load_shop()
    folder = lay_out(shop, ticket.request, tmp_path / "shop")
    run, faults_of_history = await refund_run(ticket.request, ticket.answer, ticket.verdict, folder)
    assert str(run.end) == ticket.end
    assert faults_of_history == []
    assert faults(shop, ticket.request, ticket.action, folder) == []


async def test_all_messages_end_where_they_must(tmp_path: Path) -> None:
    posts = load_posts()
    messages = [ToReview(post.id, post.text, post.answer, post.decision) for post in posts]
    done = await review_runs(messages, f"sqlite:///{tmp_path / 'runs.db'}")
    assert done["ends"] == {post.id: post.end for post in posts}
    assert done["faults"] == []
    assert sorted(done["published"]) == sorted(post.id for post in posts if post.end == "published")
