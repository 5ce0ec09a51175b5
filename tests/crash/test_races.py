"""Two verbs at the same moment from two processes: exactly one wins, or both agree (T7, B10)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tests.crash.matrix import show
from tests.crash.races import DUE, finished, prepared, race
from tests.crash.stores import Kind

Fair = Callable[[str, str, dict[str, Any]], bool]  # both answers, and the run as it is afterwards
ROUNDS, MANY_ROUNDS = 12, 250


@dataclass(frozen=True)
class Pair:
    """Two verbs, where their run rests before, and which results are right."""

    first: str
    second: str
    state: str
    is_right: Fair

    def __str__(self) -> str:
        return f"{self.first} and {self.second}"


def one_decision(yes: str, no: str, run: dict[str, Any]) -> bool:
    """One person decided, and the run went their way."""
    won = {("applied", "refused"): ("yes", "YES"), ("refused", "applied"): ("no", "NO")}
    return (run["end"], run["outcome"]) == won.get((yes, no)) and run["wait"] == "decided"


def same_decision(first: str, second: str, run: dict[str, Any]) -> bool:
    return {first, second} == {"applied", "already"} and run["end"] == "yes"


def decision_or_cancel(yes: str, cancel: str, run: dict[str, Any]) -> bool:
    """A decision is no transition yet, so a cancel may follow it; it never comes after a cancel."""
    wait = {"applied": "decided", "refused": "closed"}.get(yes)
    return cancel == "applied" and (run["status"], run["wait"]) == ("cancelled", wait)


def one_cancel(first: str, second: str, run: dict[str, Any]) -> bool:
    return {first, second} == {"applied", "already"} and (run["status"], run["commands"]) == ("cancelled", ["cancel"])


def cancel_after_retry(cancel: str, retry: str, run: dict[str, Any]) -> bool:
    """A failed run is not cancelled, one that is retried is; a retry never revives what was cancelled."""
    outcome = {"applied": ("cancelled", ["retry", "cancel"]), "refused": ("waiting", ["retry"])}.get(cancel)
    return retry == "applied" and (run["status"], run["commands"]) == outcome


def one_retry(first: str, second: str, run: dict[str, Any]) -> bool:
    return {first, second} == {"applied", "refused"} and (run["status"], run["commands"]) == ("waiting", ["retry"])


def same_retry(first: str, second: str, run: dict[str, Any]) -> bool:
    return {first, second} == {"applied", "already"} and (run["status"], run["commands"]) == ("waiting", ["retry"])


def same_start(first: str, second: str, run: dict[str, Any]) -> bool:
    return first == second == "applied first" and (run["status"], run["revisions"]) == ("waiting", [0])


def one_start(first: str, second: str, run: dict[str, Any]) -> bool:
    won = {("applied first", "refused"): "first", ("refused", "applied other"): "other"}
    return run["text"] == won.get((first, second)) and run["revisions"] == [0]


def decision_or_expiry(expire: str, yes: str, run: dict[str, Any]) -> bool:
    won = {("applied", "refused"): ("late", "expired"), ("refused", "applied"): ("yes", "decided")}
    return (run["end"], run["wait"]) == won.get((expire, yes))


PAIRS = [
    Pair("yes", "no", "asked", one_decision),
    Pair("yes", "yes", "asked", same_decision),
    Pair("yes", "cancel", "asked", decision_or_cancel),
    Pair("cancel", "cancel", "asked", one_cancel),
    Pair("cancel", "retry", "failed", cancel_after_retry),
    Pair("retry", "retry", "failed", one_retry),
    Pair("retry once", "retry once", "failed", same_retry),
    Pair("start", "start", "none", same_start),
    Pair("start", "start other", "none", one_start),
    Pair("expire", "yes", "asked", decision_or_expiry),
]


def run_rounds(kind: Kind, pair: Pair, rounds: int) -> tuple[Counter[tuple[str, str]], list[Any]]:
    """Race so many times; how often each pair of answers came, and all rounds that are wrong."""
    place = kind.place("race")
    runs = [f"{pair.state}{number}" for number in range(rounds)]
    asyncio.run(prepared(place.address, pair.state, runs))
    answers = race(place.address, place.log.parent, (pair.first, pair.second), runs)
    ends = asyncio.run(finished(place.address, runs, 3 * DUE if pair.first == "expire" else timedelta(0)))
    wrong = [
        (run, answer, end)
        for run, answer, end in zip(runs, answers, ends, strict=True)
        if not pair.is_right(*answer, end)
    ]
    return Counter(answers), wrong


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_of_two_verbs_at_the_same_moment_one_wins_or_both_agree(kind: Kind, pair: Pair) -> None:
    _, wrong = run_rounds(kind, pair, ROUNDS)
    assert wrong == []


@pytest.mark.proof
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_of_many_verbs_at_the_same_moment_one_wins_or_both_agree(kind: Kind, pair: Pair) -> None:
    counts, wrong = run_rounds(kind, pair, MANY_ROUNDS)

    show(f"{pair} on {kind.name}", [(" / ".join(answers), count) for answers, count in counts.most_common()])
    assert wrong == []
