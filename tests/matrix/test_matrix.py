"""Killed at every point: recovered, nothing lost, nothing doubled, and doubt told as doubt."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.flow import TRANSITIONS
from tests.matrix.lives import Lives, Nursery, all_points, nurseries, problems


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


@pytest.mark.proof
def test_the_matrix_three_times_with_its_counts(free: Any, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for repetition in range(3):
        folder = tmp_path / str(repetition)
        folder.mkdir()
        whole = whole_life(free, database(folder)("whole"), folder)
        lives = all_points(free, database(folder), folder, range(1, len(whole["points"]) + 1))
        found = [problem for one in lives for problem in problems(one, whole)]
        assert found == []
        counts["points"] += len(lives)
        counts["killed there"] += sum(one.killed is not None for one in lives)
        counts["recovered"] += sum(one.seen["status"] == "completed" for one in lives)
        counts["bodies repeated"] += sum(one.repeated_bodies for one in lives)
        counts["calls repeated under their key"] += sum(len(one.calls("repeated")) - 1 for one in lives)
        counts["doubts told"] += sum(len(one.doubts) for one in lives)
    print("\nsqlite:", ", ".join(f"{what} {count}" for what, count in counts.items()))
