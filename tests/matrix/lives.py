"""Two lives of one run, the first of which is killed at a point, and what must be true of them together."""

import json
import queue
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.matrix.flow import TRANSITIONS

ROOT = Path(__file__).parents[2]
NURSERIES = 2
BEFORE_THE_RECORD = frozenset({"after_the_call_acted", "before_settle_effect"})


@dataclass(frozen=True)
class Lives:
    """What was left behind: lines of the world's log, and what the life that came to the end saw."""

    point: int
    killed: str | None  # the name of the point, None if the first life came to its end
    lines: Sequence[Sequence[str]]
    seen: dict[str, Any]

    def calls(self, state: str) -> list[str]:
        return [words[1] for words in self.lines if words[0] == "acted" and words[1].startswith(f"r:{state}:")]

    @property
    def repeated_bodies(self) -> int:
        begun = Counter((words[1], words[2]) for words in self.lines if words[0] == "begun")
        return sum(count - (2 if state == "flaky" else 1) for (state, _), count in begun.items() if count > 1)

    @property
    def doubts(self) -> list[str]:
        return [source for _, source, _, failure in self.seen["history"] if failure == "Unclear"]


class Nursery:
    """A process that has children for us, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.matrix.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def life(self, address: str, log: Path, at: int, report: Path) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{address} {log} {at} {report}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            assert self._process.stderr is not None
            raise AssertionError(self._process.stderr.read()[-3_000:])
        return int(answer)

    def close(self) -> None:
        self._process.communicate(timeout=30)


@contextmanager
def nurseries() -> Iterator["queue.SimpleQueue[Nursery]"]:
    """Some of them, to be taken and put back."""
    free: queue.SimpleQueue[Nursery] = queue.SimpleQueue()
    with ExitStack() as stack:
        for _ in range(NURSERIES):
            nursery = Nursery()
            stack.callback(nursery.close)
            free.put(nursery)
        yield free


def two_lives(nursery: Nursery, address: str, folder: Path, at: int) -> Lives:
    """Kill the first life at a point, let another come to the end."""
    log, report = folder / f"{at}.log", folder / f"{at}.json"
    log.touch()
    for number in (at, 0):
        code = nursery.life(address, log, number, report)
        if code == 0:
            break
        assert (code, number) == (-9, at), f"a life ended with {code}; its complaint is on the nursery's stderr"
    lines = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    killed = next((words[1] for words in lines if words[0] == "killed"), None)
    return Lives(at, killed, lines, json.loads(report.read_text(encoding="utf-8")))


def all_points(
    free: "queue.SimpleQueue[Nursery]", address_of: Callable[[int], str], folder: Path, points: Sequence[int]
) -> Sequence[Lives]:
    """Two lives for each point, as many at a time as there are nurseries."""

    def lives(at: int) -> Lives:
        nursery = free.get()
        try:
            return two_lives(nursery, address_of(at), folder, at)
        finally:
            free.put(nursery)

    with ThreadPoolExecutor(NURSERIES) as pool:
        return list(pool.map(lives, points))


def problems(lives: Lives, whole: dict[str, Any]) -> list[str]:
    """What is wrong with two lives, compared with one that nothing interrupted."""
    found: list[str] = []

    def expect(what: str, left: object, right: object) -> None:
        if left != right:
            found.append(f"point {lives.point} ({lives.killed}): {what}: {left} instead of {right}")

    history, doubts = lives.seen["history"], lives.doubts
    expect("the end", (lives.seen["status"], lives.seen["end"]), ("completed", "over"))
    expect("revisions", [row[0] for row in history], list(range(TRANSITIONS + 1)))
    expect("the path", [row[1:3] for row in history], [row[1:3] for row in whole["history"]])
    expect("the context", lives.seen["context"], without(whole["context"], doubts))
    expect("bodies repeated, at most one", max(lives.repeated_bodies, 1), 1)
    attempts = [tuple(row[:3]) for row in lives.seen["attempts"]]
    expect("numbers of attempts", len(set(attempts)), len(attempts))
    expect("doubts, at most one and only where nobody can be asked", set(doubts) <= {"doubted", "once"}, True)
    found += effect_problems(lives)
    return found


def without(context: dict[str, Any], doubts: Sequence[str]) -> dict[str, Any]:
    """The context of a run that went on without what was in doubt."""
    left_out = {f"receipt r:{state}:1:{state}" for state in doubts} | set(doubts)
    return {**context, "log": [line for line in context["log"] if line not in left_out]}


def effect_problems(lives: Lives) -> list[str]:
    """A second call only in doubt, under the same key; none where somebody could be asked, or nobody could."""
    unrecorded = lives.killed is not None and (
        lives.killed in BEFORE_THE_RECORD or lives.killed.startswith("settle_effect:_")
    )
    found: list[str] = []
    for state in ("repeated", "asked", "doubted"):
        calls = lives.calls(state)
        allowed = 2 if state == "repeated" and unrecorded else 1
        if len(calls) > allowed or len(set(calls)) > 1:
            found.append(f"point {lives.point} ({lives.killed}): {state} was called {calls}")
        if not calls and state not in lives.doubts:
            found.append(f"point {lives.point} ({lives.killed}): {state} was never called")
    return found
