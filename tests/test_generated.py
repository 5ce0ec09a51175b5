"""What is generated is what its generator writes today."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_blocking_verbs_are_those_of_the_app() -> None:
    written = subprocess.run(
        [sys.executable, "tools/generate_blocking.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", "agentflow/app/blocking.py", "-"],
        cwd=ROOT,
        input=written,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    checked_in = (ROOT / "agentflow" / "app" / "blocking.py").read_text(encoding="utf-8")
    assert checked_in == formatted, "run: python tools/generate_blocking.py | ruff format - > agentflow/app/blocking.py"
