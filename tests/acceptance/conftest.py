"""The real input, for `make accept`; without it those tests say what is missing."""

import os
from pathlib import Path

import pytest

from tests.acceptance.retail import Retail, load_retail


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the real input."""
    folder = os.environ.get("AGENTFLOW_DATA", "")
    if not folder:
        pytest.skip("AGENTFLOW_DATA names no folder with the real input: use `make accept DATA=...`")
    return Path(folder)


@pytest.fixture(scope="session")
def retail(data: Path) -> Retail:
    """The order system of the real input, with its requests."""
    return load_retail(data)
