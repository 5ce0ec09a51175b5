"""The simulation finds deliberate faults: a checker that never finds anything proves nothing."""

import sys
from statistics import median

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.simulate import simulate

OFFSETS = (0, 10_000, 20_000, 30_000, 40_000)
AT_MOST = 500
SOON = 300  # as many are tried by every `make test`


def seeds_until_found(name: str, offset: int, at_most: int) -> tuple[int, str]:
    """How many seeds it takes, and what is broken; a seed counts only if it is whole without the mutant."""
    for number in range(at_most):
        with MUTANTS[name]():
            report = simulate(offset + number)
        if report.broken and not simulate(offset + number).broken:
            return number + 1, report.broken[0]
    return at_most + 1, "not found"


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found_soon(name: str) -> None:
    seeds, broken = seeds_until_found(name, 0, SOON)
    assert seeds <= SOON, broken


@pytest.mark.proof
def test_each_mutant_is_found_within_500_seeds_wherever_one_begins() -> None:
    medians: dict[str, float] = {}
    lines = [f"{'mutant':28}" + "".join(f"{offset:>8}" for offset in OFFSETS) + "  median  first found as"]
    for name in MUTANTS:
        found = [seeds_until_found(name, offset, AT_MOST) for offset in OFFSETS]
        medians[name] = median(seeds for seeds, _ in found)
        rule = found[0][1].split(": ")[1] if ": " in found[0][1] else found[0][1]
        lines.append(f"{name:28}" + "".join(f"{seeds:>8}" for seeds, _ in found) + f"{medians[name]:>8}  {rule}")
    sys.stdout.write("\n".join(lines) + "\n")
    assert {name: seeds for name, seeds in medians.items() if seeds > AT_MOST} == {}
