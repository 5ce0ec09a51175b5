"""Measure all cells, each in a fresh process, and print the tables with the targets.

    python run.py --python VENV/bin/python --work FOLDER [--reps 3] [--quick] [--pg URL]

`--quick` measures agentflow against raw SQLite alone, once: what a developer looks at after a change.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = {"w1": 10, "w2": 30, "w3": 60, "b76": 20}


@dataclass(frozen=True)
class Cell:
    """One thing to be measured."""

    peer: str
    variant: str
    workload: str
    sync: str = "FULL"
    n: int | None = None

    def __str__(self) -> str:
        size = "" if self.n is None else f" n={self.n}"
        return f"{self.workload} {self.peer}/{self.variant} {self.sync}{size}"


OURS = "agentflow_adapter"
QUICK = [
    *(
        Cell(peer, kind, "w1", sync)
        for sync in ("NORMAL", "FULL")
        for peer, kind in ((OURS, "sqlite"), ("raw_sqlite", "single"))
    ),
    Cell(OURS, "sqlite", "w2"),
    Cell("raw_sqlite", "group", "w2"),
    Cell(OURS, "sqlite", "b76", "NORMAL"),
]
WHOLE = [
    *QUICK,
    *(
        Cell(peer, kind, "w1", sync)
        for sync in ("NORMAL", "FULL")
        for peer, kind in (("burr", "sqlite"), ("langgraph", "sqlite-sync"), ("dbos", "sqlite"))
    ),
    *(
        Cell(peer, kind, "w2")
        for peer, kind in (
            (OURS, "busy-thread"),
            ("burr", "aiosqlite"),
            ("langgraph", "aiosqlite-sync"),
            ("dbos", "sqlite"),
        )
    ),
    Cell(OURS, "sqlite", "w3"),
    Cell(OURS, "sqlite", "w3", n=20_000),
]
POSTGRES = [Cell(OURS, "postgres", "w2"), Cell("raw_postgres", "pool16", "w2")]

START = """
import time, resource
before = time.process_time()
import agentflow, definitions.refund
print(time.process_time() * 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measure(python: str, cell: Cell, work: Path, pg: str | None) -> dict[str, Any]:
    """What one process says of one cell; `error` if it says nothing."""
    folder = work / "cell"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [python, "-W", "ignore", str(HERE / "worker.py"), cell.peer, cell.variant, cell.workload]
    command += ["--dir", str(folder), "--sync", cell.sync, "--cap", str(SECONDS[cell.workload])]
    command += [] if cell.n is None else ["--n", str(cell.n)]
    command += [] if pg is None else ["--pg", pg]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "no result within 120 s"}
    said = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    if not said:
        return {"error": (done.stderr.strip().splitlines() or ["without a word"])[-1][:200]}
    found: dict[str, Any] = json.loads(said[0][2:])
    return found


class Results:
    """Medians of the repetitions."""

    def __init__(self) -> None:
        self.cells: dict[Cell, list[dict[str, Any]]] = defaultdict(list)

    def median(
        self, key: str, peer: str, variant: str, workload: str, sync: str = "FULL", n: int | None = None
    ) -> float:
        found = [one[key] for one in self.cells[Cell(peer, variant, workload, sync, n)] if key in one]
        return statistics.median(found) if found else float("nan")


def targets(of: Results) -> Iterator[tuple[str, float, str, float]]:
    """Each target: what, our figure, how it is compared, the bound."""
    for sync, raw, burr, langgraph, dbos in (("NORMAL", 2.0, 1.0, 1 / 6, 1 / 12), ("FULL", 1.6, 1.05, 1 / 4.5, 1 / 6)):
        ours = of.median("cpu_us", OURS, "sqlite", "w1", sync)
        for name, bound, peer, variant in (
            ("raw sqlite3", raw, "raw_sqlite", "single"),
            ("Burr", burr, "burr", "sqlite"),
            ("LangGraph sync", langgraph, "langgraph", "sqlite-sync"),
            ("DBOS", dbos, "dbos", "sqlite"),
        ):
            yield f"W1 {sync}: CPU against {name}", ours / of.median("cpu_us", peer, variant, "w1", sync), "<=", bound
    rate = of.median("rate", OURS, "sqlite", "w2")
    for name, bound, peer, variant in (
        ("raw group commit", 0.6, "raw_sqlite", "group"),
        ("Burr", 4, "burr", "aiosqlite"),
        ("LangGraph sync", 25, "langgraph", "aiosqlite-sync"),
        ("DBOS", 30, "dbos", "sqlite"),
    ):
        yield f"W2 FULL: rate against {name}", rate / of.median("rate", peer, variant, "w2"), ">=", bound
    yield (
        "W2 beside a busy thread, against undisturbed",
        of.median("rate", OURS, "busy-thread", "w2") / rate,
        ">=",
        0.15,
    )
    postgres = of.median("rate", OURS, "postgres", "w2") / of.median("rate", "raw_postgres", "pool16", "w2")
    yield "W2 on PostgreSQL, against a raw pool of 16", postgres, ">=", 0.5
    for n in (None, 20_000):
        last, first = (of.median(key, OURS, "sqlite", "w3", n=n) for key in ("last10_us", "first10_us"))
        yield f"W3 last tenth against first, {n or 5_000} transitions", last / first, "<=", 1.15
    yield "W3 database of 5,000 transitions, MB", of.median("bytes", OURS, "sqlite", "w3") / 1e6, "<=", 3
    yield "B76 database, MB", of.median("bytes", OURS, "sqlite", "b76", "NORMAL") / 1e6, "<=", 10
    yield "B76 CPU of a transition, µs", of.median("cpu_us", OURS, "sqlite", "b76", "NORMAL"), "<=", 150


def starting(python: str) -> tuple[float, float]:
    """CPU in ms and memory in MB of a process that imports agentflow and builds the refund workflow."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    runs = [
        subprocess.run(
            [python, "-c", START], capture_output=True, text=True, env=environment, check=True
        ).stdout.split()
        for _ in range(3)
    ]
    return statistics.median(float(run[0]) for run in runs), statistics.median(float(run[1]) for run in runs)


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pg")
    options = parser.parse_args()
    cells = QUICK if options.quick else WHOLE + (POSTGRES if options.pg else [])
    results = Results()
    for _ in range(1 if options.quick else options.reps):
        for cell in cells:
            found = measure(options.python, cell, options.work, options.pg)
            found.update({"bytes": found.get("evidence", {}).get("bytes", 0)} if "error" not in found else {})
            results.cells[cell].append(found)
    shutil.rmtree(options.work / "cell", ignore_errors=True)
    show(results, starting(options.python))


def show(results: Results, started: tuple[float, float]) -> None:
    """The measured cells, then the targets."""
    sqlite = {one["sqlite"] for found in results.cells.values() for one in found if "sqlite" in one}
    print(f"SQLite {', '.join(sorted(sqlite))}; {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n")
    print("| cell | CPU µs | p50 µs | per second |\n|---|---|---|---|")
    for cell, found in results.cells.items():
        errors = [one["error"] for one in found if "error" in one]
        figures = [
            results.median(key, cell.peer, cell.variant, cell.workload, cell.sync, cell.n)
            for key in ("cpu_us", "p50_us", "rate")
        ]
        print(f"| {cell} | " + (errors[0] if errors else " | ".join(f"{figure:,.1f}" for figure in figures)) + " |")
    print("\n| target | reached | bound | |\n|---|---|---|---|")
    start = [
        ("W5 import and refund, CPU ms", started[0], "<=", 200),
        ("W5 import and refund, MB", started[1], "<=", 40),
    ]
    for what, figure, sign, bound in (*targets(results), *start):
        if figure == figure:  # else a peer of it was not measured
            reached = figure <= bound if sign == "<=" else figure >= bound
            print(f"| {what} | {figure:.2f} | {sign} {bound:.2f} | {'yes' if reached else 'NO'} |")


main()
