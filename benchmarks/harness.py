"""Shared parts of the benchmark: the adapter interface and the measuring context.

One peer = one module in peers/.  A peer module has

    DISTS    = ["pip-name", ...]          # whose versions go into the report
    VENV     = "main" | "pg1"             # which virtualenv it runs in
    VARIANTS = {"name": Variant(...)}     # what can be measured

A Variant names a class (a Peer subclass).  The runner starts ONE NEW PROCESS for
each cell (peer, variant, workload, sync mode, repetition).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import sqlite3.dbapi2
import statistics
import time
from collections.abc import Callable
from typing import Any

PAYLOAD = 1000  # bytes of text in the 1 KB context
MSG = 200  # bytes of one history message (W3)


def payload(i: int) -> str:
    """A 1,000-byte text that differs in every step, so nobody can skip the write."""
    head = f"{i:012d}:"
    return head + "x" * (PAYLOAD - len(head))


def message(i: int) -> str:
    head = f"{i:012d}:"
    return head + "m" * (MSG - len(head))


class Meter:
    """Passed to every peer.  The step body of each peer calls step(i) exactly once."""

    def __init__(self, n: int, cap_s: float, workdir: str, sync: str, journal: str, pg_url: str | None):
        self.n = n
        self.cap_s = cap_s
        self.dir = workdir
        self.sync = sync
        self.journal = journal
        self.pg_url = pg_url
        self.marks: list[float] = []
        self.deadline = float("inf")
        self.t0 = self.t1 = 0.0
        self.c0 = self.c1 = 0.0
        self.done = 0
        self.on_step: Callable[[], None] | None = None

    @property
    def db(self) -> str:
        return os.path.join(self.dir, "bench.db")

    def start(self) -> None:
        self.deadline = time.perf_counter() + self.cap_s
        self.c0 = time.process_time()
        self.t0 = time.perf_counter()

    def stop(self) -> None:
        self.t1 = time.perf_counter()
        self.c1 = time.process_time()

    def step(self) -> None:
        self.marks.append(time.perf_counter())
        self.done += 1
        if self.on_step is not None:
            self.on_step()

    def over(self, i: int) -> bool:
        """True when the run at its i-th finished state has to stop."""
        return i >= self.n or time.perf_counter() > self.deadline


@dataclasses.dataclass
class Variant:
    cls: type
    workloads: str  # "w1 w2 w3 w4 w5 w6"
    durable: bool = True  # snapshot on disk after each transition?
    store: str = "sqlite"  # sqlite | postgres | file | memory | none
    sync: tuple[str, ...] = ("FULL",)  # which PRAGMA synchronous values are measured
    journal: str = "WAL"  # WAL, or "asis": leave what the peer chose itself
    note: str = ""
    w2_runs: int = 500  # lowered only for peers that cannot finish 500 in time
    w4_width: int = 1000
    reps: dict[str, int] = dataclasses.field(default_factory=dict)  # e.g. {"w4": 1} for very slow cells


class Peer:
    """Base class.  Override what the peer can do; leave the rest out."""

    def __init__(self, m: Meter):
        self.m = m

    def open(self) -> None: ...  # build graph / machine / engine, open the store
    def close(self) -> None: ...  # close the store, flush everything
    def w1(self) -> None: ...  # one run, m.n states, 1 KB context
    def w2(self, runs: int) -> None: ...  # `runs` concurrent runs x m.n states, 1 KB context
    def w3(self) -> None: ...  # one run, m.n states, context grows by one message
    def w4(self, width: int) -> int: ...  # 1 state -> width branches -> join; returns the sum
    def w6(self) -> None: ...  # m.n transitions without persistence
    def build(self) -> None: ...  # W5: leave a run with m.n snapshots, resumable
    def resume(self) -> None: ...  # W5: load it and run one further durable transition
    def evidence(self) -> dict[str, Any]:
        return {}


# --- the same durability for everybody --------------------------------------------
SYNC_SEEN: set[str] = set()


def pin_sqlite(sync: str) -> None:
    """Let every SQLite connection that is opened later in this process, by any library, be as durable as this."""
    real = sqlite3.connect

    def connect(*a: Any, **kw: Any) -> Any:
        conn = real(*a, **kw)
        conn.execute(f"PRAGMA synchronous={sync}")
        SYNC_SEEN.add({0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[conn.execute("PRAGMA synchronous").fetchone()[0]])
        return conn

    sqlite3.connect = connect  # aiosqlite, burr, langgraph
    sqlite3.dbapi2.connect = connect  # SQLAlchemy


def make_wal(path: str) -> None:
    c = sqlite3.connect(path)
    c.execute("PRAGMA journal_mode=WAL")
    c.execute("CREATE TABLE IF NOT EXISTS _bench(x)")
    c.commit()
    c.close()


def sqlite_evidence(path: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if not os.path.exists(path):
        return out
    c = sqlite3.connect(path)
    out["synchronous_at_open"] = sorted(SYNC_SEEN)
    out["journal"] = c.execute("PRAGMA journal_mode").fetchone()[0]
    rows = {}
    for (t,) in c.execute(
        "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' AND name!='_bench'"
    ).fetchall():
        k = c.execute(f'SELECT count(*) FROM "{t}"').fetchone()[0]
        if k:
            rows[t] = k
    out["rows"] = rows
    with contextlib.suppress(sqlite3.OperationalError):
        c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    c.close()
    out["bytes"] = sum(os.path.getsize(path + s) for s in ("", "-wal") if os.path.exists(path + s))
    return out


def quantile(xs: list[float], q: float) -> float:
    xs = sorted(xs)
    return xs[min(len(xs) - 1, int(q * len(xs)))] if xs else float("nan")


def summarise(marks: list[float], t1: float) -> dict[str, float]:
    gaps = [b - a for a, b in zip(marks, [*marks[1:], t1], strict=True)]
    k = max(1, len(gaps) // 10)
    return {
        "p50_us": statistics.median(gaps) * 1e6 if gaps else float("nan"),
        "p99_us": quantile(gaps, 0.99) * 1e6,
        "first10_us": statistics.fmean(gaps[:k]) * 1e6 if gaps else float("nan"),
        "last10_us": statistics.fmean(gaps[-k:]) * 1e6 if gaps else float("nan"),
    }


def dump(obj: Any) -> str:
    return json.dumps(obj, default=str)
