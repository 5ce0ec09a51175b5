"""Another process that reads runs: `python -m tests.fidelity.reading`, and how a test asks it.

It gets JSON on standard input, the address of a store and the types of each run's context; it answers with the fields
of each in words, at its first revision and at its last.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.fidelity.journeys import Journey
from tests.fidelity.kinds import Made

ROOT = Path(__file__).parents[2]


class Readers:
    """Reads in a process of its own each time."""

    def read(self, address: str, types: Mapping[str, Mapping[str, str]]) -> Mapping[str, list[str]]:
        """What each run holds, for another process."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.fidelity.reading"],
            input=json.dumps({"address": address, "types": types}),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found: Mapping[str, list[str]] = json.loads(done.stdout)
        return found


async def answer() -> None:
    asked = json.load(sys.stdin)
    found = {
        run: await Journey(Made(types, {}, {})).read_again(asked["address"], run)
        for run, types in asked["types"].items()
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    asyncio.run(answer())
