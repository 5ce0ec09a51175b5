"""Seeded simulations of whole clusters: whatever dies, freezes, fails or comes late, the guarantees hold."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.simulation.simulate import Report, simulate

CHUNK = 50
ROOT = Path(__file__).parents[2]

# What 300 seeds must have met: a simulation in which nothing happens proves nothing.
MET = (
    "dies", "freezes", "stops", "loses its lease", "clock jumps", "fail_before", "fail_after", "takeover",
    "LateResult", "Requested", "CrashLoop", "expired", "decision applied", "decision conflict", "decision already",
    "decision late", "cancel requested", "cancel at rest", "retry at rest", "look again requested",
    "effect EffectFound claimed", "effect EffectFound unclear", "effect EffectFound done", "effect lease lost",
)  # fmt: skip


def played(seeds: Iterable[int]) -> tuple[list[Report], Counter[str]]:
    """The seeds in which something broke, and what all of them met."""
    broken: list[Report] = []
    met: Counter[str] = Counter()
    for seed in seeds:
        report = simulate(seed)
        met.update(report.counts)
        if report.broken:
            broken.append(report)
    return broken, met


def told(broken: list[Report]) -> str:
    """The first three in full, the others by their seeds."""
    seeds = [report.seed for report in broken]
    return f"{len(seeds)} seeds are broken: {seeds}\n\n" + "\n\n".join(str(report) for report in broken[:3])


@pytest.fixture(scope="module")
def met() -> Counter[str]:
    return Counter()


@pytest.mark.parametrize("first", range(0, 300, CHUNK))
def test_every_guarantee_holds_while_workers_die_freeze_and_fail(first: int, met: Counter[str]) -> None:
    broken, seen = played(range(first, first + CHUNK))
    met.update(seen)
    assert not broken, told(broken)


def test_the_simulations_meet_every_kind_of_trouble(met: Counter[str]) -> None:
    if not met:  # it runs alone
        met.update(played(range(300))[1])
    assert [kind for kind in MET if not met[kind]] == []


@pytest.mark.parametrize("seed", [7, 23, 101])
def test_the_same_seed_plays_the_same_simulation(seed: int) -> None:
    first, second = simulate(seed), simulate(seed)
    assert first.trace == second.trace
    assert first.trace != simulate(seed + 1).trace


def test_a_seed_plays_the_same_in_another_process_whatever_its_hashes() -> None:
    command = [sys.executable, "-m", "tests.simulation.simulate", "23"]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    other = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert simulate(23).trace in other.stdout


@pytest.mark.proof
def test_ten_thousand_seeds_keep_every_guarantee() -> None:
    began = time.process_time()
    broken, seen = played(range(10_000))
    took = time.process_time() - began
    counted = ", ".join(f"{count:,} x {kind}" for kind, count in sorted(seen.items()))
    sys.stdout.write(f"10,000 seeds, {10_000 / took:.0f} a second of CPU, {len(broken)} broken\n{counted}\n")
    assert not broken, told(broken)
