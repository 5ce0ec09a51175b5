"""What is measured: the workloads, and the cells of a whole and of a quick comparison."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

OURS = "agentflow"
LEVELS = ("NORMAL", "FULL")


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of work: how many states a run has, and after how many seconds a measurement gives up."""

    title: str
    steps: int
    seconds: float


WORKLOADS: Mapping[str, Workload] = {
    "w1": Workload("one run of 200 states, a context of 1 KB that each replaces", 200, 20),
    "w2": Workload("many runs of 20 such states at once on one event loop", 20, 40),
    "w3": Workload("one run of 5,000 states, each appends 200 bytes to a list", 5000, 60),
    "w5-start": Workload("a fresh process: import, open, first committed transition", 2, 20),
    "w5-resume": Workload("a fresh process goes on with a run of 5,000 revisions", 5000, 120),
    "w6": Workload("one run of up to 20,000 states without a database, for at most 3 s", 20_000, 3),
    "b76": Workload("one run of 1,000 states, 100 new bytes each beside 200 KB that nobody touches", 1000, 30),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of the comparison: a workload, carried out by one variant of a peer."""

    workload: str
    peer: str
    variant: str
    synchronous: str = "FULL"
    steps: int = 0  # of a run; 0: as many as the workload says
    runs: int = 1

    @property
    def size(self) -> int:
        """How many states a run has."""
        return self.steps or WORKLOADS[self.workload].steps

    @property
    def on_postgres(self) -> bool:
        """Whether it needs a PostgreSQL server."""
        return self.variant == "postgres" or self.peer == "raw_postgres"

    def as_json(self) -> dict[str, Any]:
        """For the process that measures it."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.workload} {self.peer}/{self.variant} {self.synchronous} {self.runs} x {self.size}"


def lone(synchronous: str, peer: str, variant: str) -> Cell:
    """W1."""
    return Cell("w1", peer, variant, synchronous)


def at_once(peer: str, variant: str, runs: int = 500) -> Cell:
    """W2; peers that are too slow for 500 runs get 100, which is no disadvantage: the figure is transitions a second."""
    return Cell("w2", peer, variant, runs=runs)


OURS_GROWING = Cell("w3", OURS, "sqlite")
OURS_HEAVY = Cell("b76", OURS, "sqlite", "NORMAL")
OURS_START = Cell("w5-start", OURS, "sqlite")
OURS_RESUMES = (Cell("w5-resume", OURS, "sqlite"), Cell("w5-resume", OURS, "sqlite-list"))
LONGER = replace(OURS_GROWING, steps=20_000)

LONE = (
    ("raw_sqlite", "single"),
    ("raw_sqlalchemy", "core"),
    ("burr", "sqlite"),
    ("langgraph", "sqlite"),
    ("dbos", "sqlite"),
)
OTHERS_AT_ONCE = (at_once("burr", "aiosqlite"), at_once("langgraph", "aiosqlite", 100), at_once("dbos", "sqlite", 100))
ON_POSTGRES = (at_once(OURS, "postgres"), at_once("raw_postgres", "pool"))


def quick() -> Iterator[Cell]:
    """agentflow beside the floor alone."""
    for synchronous in LEVELS:
        yield lone(synchronous, OURS, "sqlite")
        yield lone(synchronous, "raw_sqlite", "single")
    yield from (at_once(OURS, "sqlite"), at_once("raw_sqlite", "group"), at_once(OURS, "busy-thread"))
    yield from (OURS_GROWING, OURS_HEAVY, OURS_START, *OURS_RESUMES)


def whole() -> Iterator[Cell]:
    """Everything. What is compared with each other stands side by side, so that it meets the same moment."""
    for synchronous in LEVELS:
        yield lone(synchronous, OURS, "sqlite")
        yield from (lone(synchronous, peer, variant) for peer, variant in LONE)
    yield from (at_once(OURS, "sqlite"), at_once("raw_sqlite", "group"), at_once(OURS, "busy-thread"))
    yield from (*OTHERS_AT_ONCE, *ON_POSTGRES)
    yield from (OURS_GROWING, LONGER, Cell("w3", "raw_sqlite", "differences"))
    for peer, variant in LONE:
        if peer != "raw_sqlalchemy":
            yield Cell("w3", peer, variant, steps=1000)  # whole lists in each snapshot: 5,000 would be gigabytes
    yield OURS_HEAVY
    yield OURS_START
    yield from (Cell("w5-start", peer, variant) for peer, variant in LONE)
    yield from OURS_RESUMES
    yield from (Cell("w5-resume", peer, variant) for peer, variant in LONE)
    yield from (Cell("w6", peer, "memory") for peer in (OURS, "burr", "langgraph"))
