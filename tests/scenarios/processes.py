"""Other processes of a scenario: started, spoken with line by line, ended or killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHIN = 30.0


@contextmanager
def process(module: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs a module; killed at the end of the block if it still lives."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    started = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate(timeout=WITHIN)


def says(started: "subprocess.Popen[str]") -> str:
    """The next line that it prints; what it complained about if it prints none."""
    assert started.stdout is not None
    line = started.stdout.readline().strip()
    if not line:
        assert started.stderr is not None
        raise AssertionError(f"the process ended without a word: {started.stderr.read()[-3_000:]}")
    return line


def kill(started: "subprocess.Popen[str]") -> None:
    """Kill it without warning."""
    started.kill()
    started.wait(timeout=WITHIN)


def tell(started: "subprocess.Popen[str]", word: str = "go") -> None:
    """Send it a line."""
    assert started.stdin is not None
    started.stdin.write(word + "\n")
    started.stdin.flush()


def output(module: str, *arguments: object) -> str:
    """What a process prints until it ends well."""
    with process(module, *arguments) as started:
        out, err = started.communicate(timeout=WITHIN)
        assert started.returncode == 0, err[-3_000:]
        return out.strip()
