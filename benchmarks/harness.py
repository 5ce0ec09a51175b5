"""What every peer of the comparison shares: the work to do, the meter that watches it, and the shape of a peer.

Few imports on purpose: a fresh process that measures how long a start takes loads this module too.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PAYLOAD = 1000  # bytes of the text that each transition replaces
MESSAGE = 200  # bytes of the text that each transition appends
TAIL = 100  # bytes that each transition writes beside the large constant

Store = Literal["sqlite", "postgres", "none"]


def payload(number: int) -> str:
    """The text of the 1 KB context, different in each state, so that nobody can skip the write."""
    return f"{number:012d}:".ljust(PAYLOAD, "x")


def message(number: int) -> str:
    """The text that a growing history gets from one state."""
    return f"{number:012d}:".ljust(MESSAGE, "m")


def large_constant() -> list[dict[str, dict[str, str]]]:
    """About 200 KB of JSON in nested lists and dicts, which no state touches."""
    return [{"part": {"number": str(number), "text": "c" * 60}} for number in range(2000)]


class Meter:
    """Counts the states of one workload and notes when each began. A body calls `step()` once, before its work.

    The time between two steps is one whole transition of a peer: its body, whatever the peer does around it, and the
    commit. Wall time is noted for each step; time of the process for each tenth, since asking for it costs more.
    """

    def __init__(self, steps: int, seconds: float, folder: Path, synchronous: str, postgres: str | None) -> None:
        self.steps = steps
        self.folder = folder
        self.synchronous = synchronous
        self.postgres = postgres
        self.done = 0
        self.began_at: list[float] = []
        self.cpu_at: list[float] = []
        self.wall = self.cpu = 0.0
        self.ended_at = self.cpu_ended_at = 0.0
        self._seconds = seconds
        self._tenth = max(1, steps // 10)
        self._give_up_at = float("inf")

    @property
    def database(self) -> Path:
        """The SQLite file of this measurement, already in WAL mode."""
        return self.folder / "bench.db"

    def start(self) -> None:
        """The workload begins."""
        self._give_up_at = time.perf_counter() + self._seconds
        self.cpu = time.process_time()
        self.wall = time.perf_counter()

    def stop(self) -> None:
        """The workload is over and everything that it wrote is committed."""
        self.ended_at, self.cpu_ended_at = time.perf_counter(), time.process_time()
        self.wall, self.cpu = self.ended_at - self.wall, self.cpu_ended_at - self.cpu

    def step(self) -> None:
        """A body begins."""
        if self.done % self._tenth == 0:
            self.cpu_at.append(time.process_time())
        self.done += 1
        self.began_at.append(time.perf_counter())

    def is_enough(self, number: int) -> bool:
        """Whether a run ends with its state of this number: it has all of them, or the time is up."""
        return number >= self.steps or time.perf_counter() > self._give_up_at


class Peer:
    """One way to carry the workloads out. A peer overrides what its variant lists; the meter says how much is wanted."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def open(self) -> None:
        """Open the store and build the workflow; outside the measured time."""

    def close(self) -> None:
        """Write what is left, and let go of the store."""

    def one_run(self) -> None:
        """W1, W5 and W6: one run, whose context is a text of 1 KB that every state replaces."""
        raise NotImplementedError

    def many_runs(self, runs: int) -> None:
        """W2: so many of these runs at once on one event loop."""
        raise NotImplementedError

    def growing_run(self) -> None:
        """W3: one run, whose context is a list to which every state appends 200 bytes."""
        raise NotImplementedError

    def heavy_run(self) -> None:
        """B76: one run that writes 100 bytes in every state, beside 200 KB that nobody touches."""
        raise NotImplementedError

    def leave_run(self) -> None:
        """W5: leave one run behind that stands after its last state and can go on."""
        raise NotImplementedError

    def resume_run(self) -> None:
        """W5: load that run and let one more state begin."""
        raise NotImplementedError

    def evidence(self) -> Mapping[str, Any]:
        """What the store can prove about the work, once it is closed: rows, bytes, settings."""
        return {}


@dataclass(frozen=True)
class Variant:
    """A way in which a peer is measured."""

    make: type[Peer]
    store: Store = "sqlite"
