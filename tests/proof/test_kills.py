"""A worker is killed without warning and restarted: the result is the same, and no committed body is repeated."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acceptance.flows import ToReview
from tests.acceptance.retail import load_messages
from tests.acceptance.scripted import label_answer, review_end
from tests.proof.kills import Killed, kill_and_restart, moments


def invented(count: int) -> list[ToReview]:
    """Short messages, every fifth of them spam."""
    labels = ["spam" if number % 5 == 0 else "ham" for number in range(count)]
    texts = [f"{'You won prize' if label == 'spam' else 'See you at'} {n}" for n, label in enumerate(labels)]
    return [
        ToReview(f"m{n}", text, label_answer(label)) for n, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


def check(killed: Killed, messages: Sequence[ToReview]) -> None:
    expected = {
        message.id: review_end("ham" if message.answer["choice"] == "allow" else "spam") for message in messages
    }
    assert killed.ends == expected
    assert killed.committed & killed.second.begun == set()
    shown = [message for message, _ in killed.entries.get("published", ())]
    assert shown == sorted(run for run, end in expected.items() if end == "published")  # each once
    told = [message for message, _ in killed.entries["notified"]]
    assert told == sorted(expected)


@pytest.mark.parametrize("moment", moments(3, 100, seed=7))
def test_a_killed_review_of_100_messages_goes_on_where_it_was(moment: int, tmp_path: Path) -> None:
    messages = invented(100)
    check(kill_and_restart(messages, tmp_path, moment), messages)


@pytest.mark.proof
def test_twenty_kills_of_the_whole_review_change_nothing(tmp_path: Path) -> None:
    folder = os.environ.get("AGENTFLOW_DATA", "")
    messages = (
        [ToReview(row.id, row.text, label_answer(row.label)) for row in load_messages(Path(folder))]
        if folder
        else invented(1_500)
    )
    in_flight = 0
    for number, moment in enumerate(moments(20, len(messages), seed=20)):
        place = tmp_path / str(number)
        place.mkdir()
        killed = kill_and_restart(messages, place, moment)
        check(killed, messages)
        in_flight += bool(killed.first.in_flight)
        print(f"kill {number + 1:2} at body {moment:4}: {len(killed.first.in_flight):3} bodies in flight, same result")
    print(f"{in_flight} of 20 kills met a body in flight")
    assert in_flight >= 15
