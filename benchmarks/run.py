"""Measure all cells, each in a fresh process, and print the tables: python -m benchmarks.run --work FOLDER [--quick]

The cells are repeated as a whole, so that a busy minute of the machine does not hit all repetitions of one cell. What
was measured is left in FOLDER as results.json and results.md.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.cells import OURS, WORKLOADS, Cell, quick, whole
from benchmarks.report import report
from benchmarks.results import Results
from benchmarks.server import Server, postgres

ROOT = Path(__file__).resolve().parents[1]
SYNCS = 50
BEYOND = 60  # seconds for start and end of a process, beyond what its workload may take
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def measure(cell: Cell, work: Path, server: Server) -> Mapping[str, Any]:
    """What a process of its own says about a cell; `error` if it says nothing."""
    if cell.on_postgres and server.address is None:
        return {"error": server.missing}
    folder = work / "cell"
    shutil.rmtree(folder, ignore_errors=True)
    if cell.workload == "w5-resume":
        left = work / f"left-{cell.peer}-{cell.variant}"
        if not left.exists():
            left.mkdir()
            said = ask_worker(cell, left, "--leave")
            if "error" in said:
                return said
        shutil.copytree(left, folder)
    else:
        folder.mkdir(parents=True)
    return ask_worker(cell, folder, *(["--postgres", server.address] if cell.on_postgres and server.address else []))


def ask_worker(cell: Cell, folder: Path, *options: str) -> Mapping[str, Any]:
    """Run it and read its line."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.worker", json.dumps(cell.as_json()), str(folder)]
    seconds = WORKLOADS[cell.workload].seconds + BEYOND
    try:
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=seconds, env=ENVIRONMENT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no result within {seconds:.0f} s"}
    said = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    if not said:
        return {"error": (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:200]}
    found: Mapping[str, Any] = json.loads(said[-1][2:])
    return found


def import_alone() -> Mapping[str, float]:
    """CPU and memory of a process that imports agentflow and builds the refund workflow."""
    command = [sys.executable, "-m", "benchmarks.cold_import"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    found: Mapping[str, float] = json.loads(done.stdout)
    return found


def sync_us(work: Path) -> float:
    """What the disk takes to make 4 KB durable; a disk that others keep busy hides every difference with FULL."""
    took: list[float] = []
    path = work / "sync"
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - begun) * 1e6)
    path.unlink()
    return statistics.median(took)


def repeat(cells: Sequence[Cell], repetitions: int, work: Path, server: Server) -> Results:
    """All cells, so many times."""
    results = Results()
    import_alone()  # whoever imports for the first time compiles
    for repetition in range(repetitions):
        results.imports.append(import_alone())
        results.syncs.append(sync_us(work))
        for cell in cells:
            found = measure(cell, work, server)
            results.add(cell, found)
            print(f"{repetition + 1}/{repetitions} {cell}: {found.get('error', 'done')}", file=sys.stderr, flush=True)
    return results


def main() -> int:
    """Measure and print. The exit code says whether agentflow could be measured, not whether it is fast."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True, help="folder for databases and results")
    parser.add_argument("--repetitions", type=int, help="3; with --quick 1")
    parser.add_argument("--quick", action="store_true", help="agentflow beside raw SQLite alone")
    parser.add_argument("--only", default="", help="cells whose description holds this text, such as 'w2 agentflow'")
    parser.add_argument("--postgres", default=os.environ.get("AGENTFLOW_BENCH_PG"), help="address of a database")
    options = parser.parse_args()
    cells = [cell for cell in (quick() if options.quick else whole()) if options.only in str(cell)]
    work = options.work.absolute()
    for left in work.glob("left-*"):
        shutil.rmtree(left)
    wants_server = any(cell.on_postgres for cell in cells)
    with postgres(work, options.postgres) if wants_server else nullcontext(Server(None)) as server:
        results = repeat(cells, options.repetitions or (1 if options.quick else 3), work, server)
    for left in (*work.glob("left-*"), work / "cell"):
        shutil.rmtree(left, ignore_errors=True)
    results.write(work / "results.json")
    (work / "results.md").write_text(text := report(results))
    print(text)
    return int(any(results.trouble(cell) for cell in cells if cell.peer == OURS and not cell.on_postgres))


if __name__ == "__main__":
    sys.exit(main())
