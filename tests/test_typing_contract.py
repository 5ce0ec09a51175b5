"""The authoring API as the type checkers see it: `tests/typing` holds right programs and planted mistakes.

An ignore comment that nothing needs is an error in both checkers. So a clean run says two things: the right programs
are accepted, and every planted mistake is found by both.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "typing"
MISTAKES = (FOLDER / "mistakes.py").read_text(encoding="utf-8").splitlines()
PLANTED = [line for line in MISTAKES if "# type: ignore[" in line or "# pyright: ignore[" in line]
ENOUGH = 140


def test_mypy_accepts_the_samples_and_finds_every_mistake(tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.mktemp("mypy")
    check("mypy", "--cache-dir", str(cache), str(FOLDER))


def test_pyright_accepts_the_samples_and_finds_every_mistake() -> None:
    check("pyright", "--pythonpath", sys.executable, str(FOLDER))


def check(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_enough_planted_mistakes() -> None:
    assert len(PLANTED) >= ENOUGH


@pytest.mark.parametrize("line", PLANTED)
def test_a_planted_mistake_is_expected_of_both_checkers_and_explained(line: str) -> None:
    assert re.search(r"# type: ignore\[[\w, -]+\]  # pyright: ignore\[[\w, ]+\]  # \S", line)
