"""The board, in memory and in a file that others write as well."""

import asyncio
from pathlib import Path

import pytest

from definitions.board import Board, open_board


@pytest.fixture(params=["memory", "file"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board() if request.param == "memory" else Board(tmp_path / "board.jsonl")


async def test_entries_are_kept_by_kind_in_their_order(board: Board) -> None:
    await board.publish("m1", "hello", key="k1")
    await board.withhold("m2", "advertising", key="k2")
    await board.publish("m3", "don\x92t ü ☕\u2028", key="k3")
    await board.notify("m2", "not published", key="k4")
    assert await board.entries("published") == [("m1", "hello"), ("m3", "don\x92t ü ☕\u2028")]
    assert await board.entries("withheld") == [("m2", "advertising")]
    assert await board.entries("notified") == [("m2", "not published")]


async def test_an_entry_is_taken_once_per_key(board: Board) -> None:
    await board.publish("m1", "hello", key="k1")
    await board.publish("m1", "hello", key="k1")
    assert await board.entries("published") == [("m1", "hello")]


async def test_a_second_board_on_the_same_file_sees_and_respects_what_is_there(tmp_path: Path) -> None:
    first, second = Board(tmp_path / "board.jsonl"), Board(tmp_path / "board.jsonl")
    await asyncio.gather(*(b.publish(f"m{n}", "hello", key=f"k{n}") for n in range(10) for b in (first, second)))
    assert sorted(await first.entries("published")) == [(f"m{n}", "hello") for n in range(10)]
    assert await first.entries("published") == await second.entries("published")


async def test_a_line_that_a_crash_cut_off_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "board.jsonl"
    await Board(path).publish("m1", "hello", key="k1")
    with path.open("ab") as file:
        file.write(b'{"key": "k2", "ki')
    board = Board(path)
    await board.publish("m2", "world", key="k2")
    assert await Board(path).entries("published") == [("m1", "hello"), ("m2", "world")]


async def test_the_file_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFLOW_BOARD", str(tmp_path / "elsewhere.jsonl"))
    async with open_board() as board:
        await board.publish("m1", "hello", key="k1")
    assert (tmp_path / "elsewhere.jsonl").exists()
