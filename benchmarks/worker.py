"""Measure one cell in this fresh process and print one line of JSON, after `@@`."""

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:  # one recent SQLite for everybody
    import pysqlite3
    import pysqlite3.dbapi2

    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
except ImportError:
    pass

import harness

SIZES = {"w1": 200, "w2": 20, "w3": 5000, "b76": 1000}


def measured(peer: harness.Peer, variant: harness.Variant, meter: harness.Meter, workload: str) -> dict[str, Any]:
    """Run the workload between the two clocks."""
    peer.open()
    meter.start()
    if workload == "w2":
        peer.w2(variant.w2_runs)
    else:
        getattr(peer, workload)()
    meter.stop()
    count, wall, cpu = max(1, meter.done), meter.t1 - meter.t0, meter.c1 - meter.c0
    figures = {"n": count, "per_us": wall / count * 1e6, "cpu_us": cpu / count * 1e6, "rate": count / wall}
    if workload != "w2":
        figures |= harness.summarise(meter.marks, meter.t1)
    peer.close()
    return figures


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser()
    for name in ("peer", "variant", "workload"):
        parser.add_argument(name)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--sync", default="FULL")
    parser.add_argument("--cap", type=float, default=30.0)
    parser.add_argument("--n", type=int)
    parser.add_argument("--pg")
    options = parser.parse_args()
    variant = importlib.import_module(f"peers.{options.peer}").VARIANTS[options.variant]
    size = options.n or SIZES[options.workload]
    meter = harness.Meter(size, options.cap, options.dir, options.sync, variant.journal, options.pg)
    if variant.store == "sqlite":
        harness.pin_sqlite(options.sync)
        harness.make_wal(meter.db)
    peer = variant.cls(meter)
    found: dict[str, Any] = measured(peer, variant, meter, options.workload)
    found["sqlite"] = harness.sqlite3.sqlite_version
    evidence = harness.sqlite_evidence(meter.db) if variant.store == "sqlite" else {}
    found["evidence"] = evidence | peer.evidence()
    print("@@" + harness.dump(found), flush=True)
    os._exit(0)  # some peers leave threads behind that never end


main()
