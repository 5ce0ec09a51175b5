"""Kill a worker at a random moment, restart it, and look at what the two lives did together."""

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.acceptance.flows import ToReview

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Life:
    """What one process said before it ended or was killed."""

    lines: Sequence[tuple[str, ...]]

    @property
    def begun(self) -> set[tuple[str, str]]:
        """Bodies that began: run and state."""
        return {(line[1], line[2]) for line in self.lines if line[0] == "S"}

    @property
    def in_flight(self) -> set[tuple[str, str]]:
        """Bodies of steps that had begun and not returned."""
        returned = {(line[1], line[2]) for line in self.lines if line[0] == "E"}
        return {body for body in self.begun - returned if body[1] != "classify"}


@dataclass(frozen=True)
class Killed:
    """A kill and what followed."""

    first: Life
    second: Life
    committed: set[tuple[str, str]]  # bodies whose transition was durable when the first process died
    ends: dict[str, str]
    entries: dict[str, Sequence[tuple[str, str]]]


def kill_and_restart(messages: Sequence[ToReview], folder: Path, moment: int) -> Killed:
    """Kill the worker when its `moment`-th body begins, then run another to the end."""
    database, board, source = folder / "runs.db", folder / "board.jsonl", folder / "messages.json"
    source.write_text(json.dumps([asdict(message) for message in messages]), encoding="utf-8")
    first = life(database, board, source, kill_at=moment)
    committed = committed_bodies(database)
    second = life(database, board, source)
    return Killed(first, second, committed, ends_of(database), entries_of(board))


def life(database: Path, board: Path, messages: Path, *, kill_at: int | None = None) -> Life:
    """Run a worker; kill it without warning when its `kill_at`-th body begins."""
    command = [sys.executable, "-m", "tests.proof.review_worker", str(database), str(board), str(messages)]
    worker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = list(said(worker, kill_at))
    stderr = worker.stderr.read() if worker.stderr else ""
    code = worker.wait()
    if worker.stdout:
        worker.stdout.close()
    if worker.stderr:
        worker.stderr.close()
    if kill_at is None and code != 0:
        raise AssertionError(f"the worker ended with {code}: {stderr[-2_000:]}")
    return Life(lines)


def said(worker: "subprocess.Popen[str]", kill_at: int | None) -> Iterator[tuple[str, ...]]:
    begun = 0
    for line in worker.stdout or ():
        words = tuple(line.split())
        yield words
        begun += words[0] == "S"
        if begun == kill_at:
            worker.kill()
            kill_at = None  # what is still in the pipe was said before the kill


def committed_bodies(database: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("select run, source from history where source is not null").fetchall()
    return {(run, source) for run, source in rows}


def ends_of(database: Path) -> dict[str, str]:
    with closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute('select id, "end" from runs').fetchall())


def entries_of(board: Path) -> dict[str, Sequence[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for line in board.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        found.setdefault(entry["kind"], []).append((entry["message"], entry["key"]))
    return {kind: sorted(entries) for kind, entries in found.items()}


def moments(count: int, messages: int, seed: int) -> list[int]:
    """Random moments in the life of a worker, counted in bodies: a message has four."""
    return sorted(random.Random(seed).sample(range(1, 4 * messages - messages // 10), count))
