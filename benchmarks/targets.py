"""What agentflow must reach beside the others: ratios of figures that were measured in the same run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benchmarks.cells import (
    LONGER,
    ON_POSTGRES,
    OTHERS_AT_ONCE,
    OURS,
    OURS_GROWING,
    OURS_HEAVY,
    OURS_RESUMES,
    OURS_START,
    at_once,
    lone,
)
from benchmarks.results import NAN, Results

Sign = Literal["<=", ">="]

OURS_AT_ONCE = at_once(OURS, "sqlite")
LONE_AT_MOST = {  # CPU of a lone durable transition, as a share of that of the other
    "NORMAL": (
        ("raw_sqlite", "single", 2.0),
        ("burr", "sqlite", 1.0),
        ("langgraph", "sqlite", 1 / 6),
        ("dbos", "sqlite", 1 / 12),
    ),
    "FULL": (
        ("raw_sqlite", "single", 1.6),
        ("burr", "sqlite", 1.05),
        ("langgraph", "sqlite", 1 / 4.5),
        ("dbos", "sqlite", 1 / 6),
    ),
}
AT_ONCE_AT_LEAST = ((at_once("raw_sqlite", "group"), 0.6), *zip(OTHERS_AT_ONCE, (4.0, 25.0, 30.0), strict=True))


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, and what it must not exceed or fall below. `missing` says why there is no figure."""

    what: str
    figure: float
    sign: Sign
    bound: float
    missing: str | None = None

    @property
    def is_reached(self) -> bool:
        """Whether it was measured and keeps to its bound."""
        return self.figure <= self.bound if self.sign == "<=" else self.figure >= self.bound


def targets(of: Results) -> Iterator[Target]:
    """All targets, in the order of the workloads."""
    yield from lone_targets(of)
    yield from at_once_targets(of)
    yield from growing_targets(of)
    yield from start_targets(of)
    yield from heavy_targets(of)


def lone_targets(of: Results) -> Iterator[Target]:
    """W1: CPU, since a lone run waits for its own fsync."""
    for synchronous, rivals in LONE_AT_MOST.items():
        ours = lone(synchronous, OURS, "sqlite")
        for peer, variant, bound in rivals:
            theirs = lone(synchronous, peer, variant)
            share = of.median(ours, "cpu_us") / of.median(theirs, "cpu_us")
            missing = of.trouble(ours) or of.trouble(theirs)
            yield Target(f"W1 {synchronous}: CPU / that of {peer}", share, "<=", bound, missing)


def at_once_targets(of: Results) -> Iterator[Target]:
    """W2: transitions a second."""
    rate = of.median(OURS_AT_ONCE, "rate")
    for theirs, bound in AT_ONCE_AT_LEAST:
        missing = of.trouble(OURS_AT_ONCE) or of.trouble(theirs)
        yield Target(
            f"W2 FULL: rate / that of {theirs.peer} {theirs.variant}",
            rate / of.median(theirs, "rate"),
            ">=",
            bound,
            missing,
        )
    busy = at_once(OURS, "busy-thread")
    share = of.median(busy, "rate") / rate
    yield Target("W2 FULL: rate beside a busy thread / without", share, ">=", 0.15, of.trouble(busy))
    ours, raw = ON_POSTGRES
    share = of.median(ours, "rate") / of.median(raw, "rate")
    missing = of.trouble(ours) or of.trouble(raw)
    yield Target("W2 PostgreSQL: rate / that of a raw pool of 16", share, ">=", 0.5, missing)


def growing_targets(of: Results) -> Iterator[Target]:
    """W3: the length of a run costs nothing."""
    for cell in (OURS_GROWING, LONGER):
        share = of.median(cell, "last_cpu_us") / of.median(cell, "first_cpu_us")
        yield Target(f"W3 {cell.size:,}: CPU of the last tenth / of the first", share, "<=", 1.15, of.trouble(cell))
        share = of.median(cell, "last_p50_us") / of.median(cell, "first_p50_us")
        yield Target(f"W3 {cell.size:,}: p50 of the last tenth / of the first", share, "<=", 1.15, of.trouble(cell))
    size = of.evidence(OURS_GROWING).get("bytes", NAN) / 1e6
    yield Target(f"W3 {OURS_GROWING.size:,}: database, MB", size, "<=", 3, of.trouble(OURS_GROWING))


def start_targets(of: Results) -> Iterator[Target]:
    """W5."""
    yield Target("W5 import and build refund: CPU, ms", of.import_median("cpu_ms"), "<=", 200)
    yield Target("W5 import and build refund: peak memory, MB", of.import_median("peak_mb"), "<=", 40)
    figure = of.median(OURS_START, "first_commit_cpu_ms")
    yield Target("W5 process start to first commit: CPU, ms", figure, "<=", 700, of.trouble(OURS_START))
    for cell, kind in zip(OURS_RESUMES, ("1 KB", "a list of 5,000"), strict=True):
        figure = of.median(cell, "first_step_ms")
        what = f"W5 5,000 revisions, {kind}: first step after opening, ms"
        yield Target(what, figure, "<=", 10, of.trouble(cell))


def heavy_targets(of: Results) -> Iterator[Target]:
    """B76: what nobody touches costs nothing."""
    size = of.evidence(OURS_HEAVY).get("bytes", NAN) / 1e6
    yield Target("B76 database, MB", size, "<=", 10, of.trouble(OURS_HEAVY))
    yield Target("B76 CPU of a transition, µs", of.median(OURS_HEAVY, "cpu_us"), "<=", 150, of.trouble(OURS_HEAVY))
