"""What was measured: all repetitions of all cells, and their medians."""

import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell

PACKAGES = (
    "agentflow-engine",
    "aiosqlite",
    "apache-burr",
    "asyncpg",
    "dbos",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "psycopg",
    "pydantic",
    "pysqlite3-binary",
    "SQLAlchemy",
    "transitions",
)
NAN = float("nan")
NOT_MEASURED = "not measured"


@dataclass(slots=True)
class Results:
    """The repetitions of each cell, in the order in which they were measured first."""

    cells: dict[Cell, list[Mapping[str, Any]]] = field(default_factory=dict)
    imports: list[Mapping[str, float]] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    syncs: list[float] = field(default_factory=list)  # µs that the disk took for one, each a median of many

    def add(self, cell: Cell, found: Mapping[str, Any]) -> None:
        """One repetition."""
        self.cells.setdefault(cell, []).append(found)
        self.loads.append(os.getloadavg()[0])

    def median(self, cell: Cell, key: str) -> float:
        """The median of the repetitions; not a number if there are none."""
        return median([one[key] for one in self.cells.get(cell, ()) if key in one])

    def import_median(self, key: str) -> float:
        """Of the imports of agentflow alone."""
        return median([one[key] for one in self.imports])

    def trouble(self, cell: Cell) -> str | None:
        """Why there is no figure; None if there is one."""
        found = self.cells.get(cell)
        if found is None:
            return NOT_MEASURED
        return found[0]["error"] if all("error" in one for one in found) else None

    def evidence(self, cell: Cell) -> Mapping[str, Any]:
        """What the database of the first repetition said."""
        return next((one["evidence"] for one in self.cells.get(cell, ()) if one.get("evidence")), {})

    def surroundings(self) -> str:
        """Interpreter, database, machine and packages, in one paragraph."""
        sqlite = sorted({one["sqlite"] for found in self.cells.values() for one in found if "sqlite" in one})
        packages = [f"{name} {version_of(name)}" for name in PACKAGES]
        return (
            f"{platform.python_implementation()} {platform.python_version()}, SQLite {', '.join(sqlite)}, "
            f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load average {min(self.loads):.1f} to "
            f"{max(self.loads):.1f} while measuring, fdatasync of 4 KB {min(self.syncs):,.0f} to {max(self.syncs):,.0f} µs.\n"
            f"Packages: {', '.join(packages)}."
        )

    def write(self, path: Path) -> None:
        """All figures as JSON."""
        cells = [{**cell.as_json(), "repetitions": found} for cell, found in self.cells.items()]
        path.write_text(
            json.dumps({"cells": cells, "imports": self.imports, "loads": self.loads, "syncs": self.syncs}, indent=1)
        )


def median(figures: Sequence[float]) -> float:
    """Not a number if there are none."""
    return statistics.median(figures) if figures else NAN


def version_of(name: str) -> str:
    """Of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(missing)"
