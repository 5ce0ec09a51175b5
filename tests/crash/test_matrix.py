"""A run is killed at every point of its life, and another process finishes it (B01, B02, B06)."""

from dataclasses import replace

import pytest

from tests.crash.evidence import gathered
from tests.crash.forks import KILLED, run_child
from tests.crash.lives import ended_at, ended_in_statement, finish
from tests.crash.matrix import Life, kill_everywhere, show_count
from tests.crash.stores import Kind

ROUNDS = {"sqlite": 5, "postgres": 2}
STRIDE = {"sqlite": 1, "postgres": 7}  # of the points that `make test` looks at; `make proof` looks at each on both
LEAST: dict[
    tuple[str, Life], int
] = {  # points of a journey; on PostgreSQL a commit is one statement, so that only takeovers and the like have any inside
    ("sqlite", ended_at): 200,
    ("postgres", ended_at): 200,
    ("sqlite", ended_in_statement): 70,
    ("postgres", ended_in_statement): 7,
}


@pytest.fixture(params=[ended_at, ended_in_statement], ids=["methods", "statements"])
def life(request: pytest.FixtureRequest) -> Life:
    """Where a life may end: around the methods of the store, or within the work of its database."""
    chosen: Life = request.param
    return chosen


def test_b01_a_kill_at_any_point_loses_and_doubles_nothing(kind: Kind, life: Life) -> None:
    least = LEAST[kind.name, life]
    stride = min(STRIDE[kind.name], least // 2)
    count = kill_everywhere(kind, life, stride=stride)

    assert not count.wrong, count.told()
    assert count.points == count.runs == count.recovered > least // stride
    assert count.recorded_effects_repeated == 0
    assert count.bodies_repeated <= count.points
    assert count.bodies_repeated or life is ended_in_statement
    if stride == 1:  # or it may have met no doubt
        assert count.doubts_asked > 0
        assert count.doubts_routed > 0


def test_b01_a_kill_takes_nothing_from_any_of_several_runs(kind: Kind, life: Life) -> None:
    count = kill_everywhere(replace(kind, company=2), life, stride=29 * STRIDE[kind.name])

    assert not count.wrong, count.told()
    assert count.runs == count.recovered == 3 * count.points > 0


def test_a_body_that_must_not_be_repeated_and_was_cut_off_is_shown_as_unclear(kind: Kind) -> None:
    place = kind.place("r")
    assert run_child(ended_at, place, "effect r:seal:1:body:after") == KILLED
    run_child(finish, place)
    [evidence] = gathered(place)

    assert (evidence.left["end"], set(evidence.doubted)) == ("arrived", {"seal:1:body"})
    assert evidence.left["effects"]["r:seal:1:body"] == "unclear"  # as of any other effect: an operator looks for these


@pytest.mark.proof
def test_b01_a_kill_at_any_point_takes_nothing_from_any_of_several_runs(kind: Kind, life: Life) -> None:
    count = kill_everywhere(replace(kind, company=2), life, stride={"sqlite": 1, "postgres": 3}[kind.name])

    show_count(f"three runs in one process: {life.__name__} on {kind.name}", count)
    assert not count.wrong, count.told()
    assert count.runs == count.recovered == 3 * count.points


@pytest.mark.proof
def test_b01_every_repetition_of_a_kill_ends_the_same(kind: Kind, life: Life) -> None:
    rounds = ROUNDS[kind.name]
    counts = [kill_everywhere(kind, life, name=f"round{number}-") for number in range(rounds)]

    for number, count in enumerate(counts, 1):
        show_count(f"round {number} of {rounds}: {life.__name__} on {kind.name}", count)
        assert not count.wrong, count.told()
    for place in set.intersection(*(set(count.verdicts) for count in counts)):
        assert len({verdict for count in counts for verdict in count.verdicts[place]}) == 1, place
