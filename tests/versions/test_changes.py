"""What a deploy check says of each change of a definition is what then happens to the runs (D20)."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentflow.app.app import App
from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from agentflow.testing import Clock
from tests.versions.claims import (
    CHANGES,
    STATES,
    Stage,
    app_with,
    claim,
    counted,
    let_loose,
    park,
    what_stands,
)


async def predicted(app: App) -> tuple[Counter[tuple[str, str]], dict[str, str]]:
    """How many runs of each state have which fate, and the reasons by state."""
    found: Counter[tuple[str, str]] = Counter()
    check = await app.deploy_check()
    for one in check.prospects:
        found[one.state, one.fate] += one.runs
    reasons = {one.state: one.reason for one in check.prospects if one.fate == "blocked"}
    assert all(reasons.values())
    return found, reasons


async def deploy_and_compare(stage: Stage, change: str, *, each: int) -> None:
    """Check the deploy of a change, deploy it, and hold the one against the other."""
    flow = claim(change, gate=stage.gate)
    async with app_with(stage.store, stage.gate, flow) as app:
        clock = Clock(app)
        foreseen, reasons = await predicted(app)
        assert foreseen == Counter({(state, CHANGES[change].get(state, "continue")): each for state in STATES})
        fates = await let_loose(app, clock, stage, flow)
        assert counted(fates, stage) == foreseen
        for run, fate in fates.items():
            before, after = stage.exports[run], await app.export(run)
            if fate == "blocked":
                assert what_stands(after) == what_stands(before)
                assert reasons[stage.runs[run]] in (await app.why(run)).text
            else:
                went_on_from_where_it_stood(flow, before, after)


def went_on_from_where_it_stood(flow: Any, before: Any, after: Any) -> None:
    """A run that continues takes its next transition from its own state, and ends at the end of the workflow."""
    definition = flow.definition
    place = definition.renames.place(before["run"]["state"])
    new = [line for line in after["history"] if line["revision"] > before["run"]["revision"]]
    moves = [line for line in new if line["event"] not in {"rename", "adopt"}]
    assert moves[0]["source"] == place
    assert after["run"]["status"] == "completed"
    assert after["history"][: len(before["history"])] == before["history"]
    effects = Counter(effect["name"] for effect in after["effects"])
    assert effects["pay"] == 1


@pytest.mark.parametrize("change", CHANGES)
async def test_a_deploy_check_of_a_change_says_what_then_happens_in_memory(change: str) -> None:
    stage = await park(MemoryStore(), each=2)
    await deploy_and_compare(stage, change, each=2)


@pytest.fixture(scope="module")
def parked_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parked")


async def stage_on_disk(folder: Path, tmp_path: Path, *, each: int) -> Stage:
    """The runs of one parking for every change: they are parked once, and each change gets a copy of the file."""
    parked = folder / f"{each}.db"
    if not parked.exists():
        store = open_store(f"sqlite:///{parked}")
        STAGES[parked] = await park(store, each=each)
    first = STAGES[parked]
    shutil.copy(parked, tmp_path / "runs.db")
    copy = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    stands_at = first.store.now()
    copy.use_clock(lambda: stands_at)
    first.gate.is_open = False
    return Stage(copy, first.runs, first.gate, first.exports)


STAGES: dict[Path, Stage] = {}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_deploy_check_of_a_change_says_what_then_happens_on_disk(
    change: str, parked_runs: Path, tmp_path: Path
) -> None:
    stage = await stage_on_disk(parked_runs, tmp_path, each=2)
    await deploy_and_compare(stage, change, each=2)


@pytest.mark.proof
@pytest.mark.parametrize("change", CHANGES)
async def test_a_deploy_check_of_a_change_says_what_then_happens_to_a_hundred_runs_in_every_state(
    change: str, parked_runs: Path, tmp_path: Path
) -> None:
    stage = await stage_on_disk(parked_runs, tmp_path, each=100)
    await deploy_and_compare(stage, change, each=100)
    print(f"{change}: {100 * len(STATES)} runs, {CHANGES[change] or 'all continue'}")
