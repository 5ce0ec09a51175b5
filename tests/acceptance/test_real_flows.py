"""The real input through the shipped workflows, end to end: `make accept DATA=folder`."""

from pathlib import Path

import pytest

from tests.acceptance.flows import ToReview, refund_run, review_runs
from tests.acceptance.oracle import Action
from tests.acceptance.retail import (
    Retail,
    faults,
    lay_out,
    load_messages,
    with_a_modification,
    with_one_action,
)
from tests.acceptance.scripted import label_answer, refund_end, review_end, wish_answer

pytestmark = pytest.mark.accept


async def test_every_request_with_one_action_is_applied_as_the_oracle_says(retail: Retail, tmp_path: Path) -> None:
    requests = with_one_action(retail)
    assert len(requests) == 132
    for request in requests:
        [action] = request.actions
        folder = lay_out(retail, request, tmp_path / request.id)
        run, faults_of_history = await refund_run(request, wish_answer(action), "approve", folder)
        assert str(run.end) == refund_end(action) == "applied", request.id
        assert faults_of_history == [], request.id
        assert faults(retail, request, action, folder) == [], request.id


async def test_every_modification_is_handed_over_and_changes_no_order(retail: Retail, tmp_path: Path) -> None:
    requests = with_a_modification(retail)
    assert len(requests) == 38
    for request, action in requests:
        folder = lay_out(retail, request, tmp_path / request.id)
        run, faults_of_history = await refund_run(request, wish_answer(action), None, folder)
        assert str(run.end) == refund_end(action) == "handed_over", request.id
        assert faults_of_history == [], request.id
        assert faults(retail, request, Action("none", {}), folder) == [], request.id


async def test_every_message_ends_where_its_label_says(data: Path, tmp_path: Path) -> None:
    rows = load_messages(data)
    assert len(rows) == 1_500
    messages = [ToReview(row.id, row.text, label_answer(row.label)) for row in rows]
    done = await review_runs(messages, f"sqlite:///{tmp_path / 'runs.db'}")
    assert done["ends"] == {row.id: review_end(row.label) for row in rows}
    assert done["faults"] == []
    assert sorted(done["published"]) == sorted(row.id for row in rows if review_end(row.label) == "published")
