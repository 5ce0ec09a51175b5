"""Measure one cell in this fresh process, and print one line of JSON after `@@`: python -m benchmarks.worker CELL FOLDER

`--leave` carries out the first half of W5: it leaves a run behind in FOLDER that a later process resumes.
"""

import argparse
import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks import durability
from benchmarks.cells import WORKLOADS, Cell
from benchmarks.harness import Meter, Peer, Variant

METHODS = {"w1": "one_run", "w3": "growing_run", "w5-start": "one_run", "w6": "one_run", "b76": "heavy_run"}


def memory() -> dict[str, float]:
    """Resident memory of this process in MB: now, and the most so far."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {key: int(found[name].split()[0]) / 1024 for key, name in (("memory_mb", "VmRSS"), ("peak_mb", "VmHWM"))}


def carry_out(peer: Peer, meter: Meter, cell: Cell) -> None:
    """The workload between the two clocks."""
    meter.start()
    if cell.workload == "w2":
        peer.many_runs(cell.runs)
    elif cell.workload == "w5-resume":
        peer.resume_run()
    else:
        getattr(peer, METHODS[cell.workload])()
    meter.stop()


def figures(meter: Meter, cell: Cell) -> dict[str, float]:
    """What the meter says, in µs for each transition, in transitions a second, or in ms."""
    began = meter.began_at
    count = len(began)
    found = {
        "transitions": count,
        "wall_us": meter.wall / count * 1e6,
        "cpu_us": meter.cpu / count * 1e6,
        "rate": count / meter.wall,
    }
    if cell.workload == "w5-start":
        return {**found, "first_commit_cpu_ms": meter.cpu_at[1] * 1e3}  # the second body begins: the first is committed
    if cell.workload == "w5-resume":
        return {**found, "first_step_ms": (began[0] - (meter.ended_at - meter.wall)) * 1e3}
    if cell.workload != "w2":
        found |= latencies(meter)
    return found


def latencies(meter: Meter) -> dict[str, float]:
    """Of one run: quantiles of a transition, and its first and last tenth."""
    ends = [*meter.began_at[1:], meter.ended_at]
    took = [end - begin for begin, end in zip(meter.began_at, ends, strict=True)]
    tenth = max(1, len(took) // 10)
    found = {"p50_us": quantile(took, 0.5), "p99_us": quantile(took, 0.99)}
    found |= {"first_p50_us": quantile(took[:tenth], 0.5), "last_p50_us": quantile(took[-tenth:], 0.5)}
    cpu = [*meter.cpu_at, meter.cpu_ended_at]
    if meter.done == meter.steps:  # else the tenths do not say where they lie
        found["first_cpu_us"] = (cpu[1] - cpu[0]) / tenth * 1e6
        found["last_cpu_us"] = (cpu[10] - cpu[9]) / tenth * 1e6
    return found


def quantile(seconds: list[float], part: float) -> float:
    """In µs."""
    ranked = sorted(seconds)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))] * 1e6


def evidence(variant: Variant, meter: Meter) -> dict[str, Any]:
    """What the database says when all is over."""
    return dict(durability.file_evidence(meter.database)) if variant.store == "sqlite" else {}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cell", type=json.loads)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--postgres")
    parser.add_argument("--leave", action="store_true")
    options = parser.parse_args()
    cell = Cell(**options.cell)
    sqlite = durability.replace_sqlite()
    begun = time.process_time()
    variant: Variant = importlib.import_module(f"benchmarks.peers.{cell.peer}").VARIANTS[cell.variant]
    found: dict[str, Any] = {"import_cpu_ms": (time.process_time() - begun) * 1e3, **memory()}
    meter = Meter(cell.size, WORKLOADS[cell.workload].seconds, options.folder, cell.synchronous, options.postgres)
    if variant.store == "sqlite":
        durability.pin_synchronous(cell.synchronous)
        durability.prepare_file(meter.database)
    peer = variant.make(meter)
    peer.open()
    if options.leave:
        peer.leave_run()
    else:
        carry_out(peer, meter, cell)
        found |= figures(meter, cell)
    peer.close()
    proof = {**evidence(variant, meter), **peer.evidence()}
    found |= {"evidence": proof, "sqlite": sqlite}
    if variant.store == "sqlite" and (different := durability.what_differs(proof, cell.synchronous)):
        found = {"error": different}
    print("@@" + json.dumps(found), flush=True)
    os._exit(0)  # some peers leave threads behind that never end


main()
