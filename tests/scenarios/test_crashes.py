"""A process is killed at a chosen point, and another goes on (B01, B02, B14, B07)."""

from collections import Counter
from pathlib import Path

import pytest

from agentflow import App
from tests.scenarios.charges import FLOWS, Charge
from tests.scenarios.desk import desk, noted
from tests.scenarios.processes import kill, output, process, says

CHARGES, DESK = "tests.scenarios.charges", "tests.scenarios.desk"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DESK_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


async def killed(store: str, log: Path, flow: str, point: str) -> App:
    """An App over the store of a worker that was killed at that point."""
    with process(CHARGES, store, log, flow, point) as worker:
        assert says(worker) == f"here {point}"
        kill(worker)
    return App(list(FLOWS.values()), store=store)


# The point, how often the body began in all, and how often the shop was called.
POINTS = [
    ("after the start", 1, 1),
    ("in the body", 2, 1),
    ("before the call", 2, 1),
    ("in the call", 2, 2),
    ("after the call", 2, 1),
    ("after commit 1", 1, 1),
    ("after commit 2", 1, 1),
]


@pytest.mark.parametrize(("point", "begun", "called"), POINTS, ids=[point for point, _, _ in POINTS])
async def test_b01_a_kill_repeats_what_was_not_committed_and_nothing_else(
    on_disk: str, log: Path, point: str, begun: int, called: int
) -> None:
    async with await killed(on_disk, log, "retried", point) as app:
        over = await app.result("r", FLOWS["retried"])
        history = await app.history("r")

    assert (str(over.end), over.context.told, over.context.receipt) == ("done", True, "charge r:charge:1:charge")
    counts = Counter(noted(log))
    assert counts["begun", "r"] == begun
    assert counts["charge", "r:charge:1:charge"] == called
    assert len(counts) == 2  # never under another key
    assert [(line.source, line.target) for line in history[1:]] == [("charge", "notify"), ("notify", "done")]


async def test_b02_a_run_that_was_accepted_is_there_after_a_kill_and_runs_once(on_disk: str, log: Path) -> None:
    app = await killed(on_disk, log, "retried", "after the start")
    listed = await app.list()
    assert [(run.id, run.revision) for run in listed] == [("r", 0)]
    async with app:
        await app.result("r")

    assert noted(log) == [("begun", "r"), ("charge", "r:charge:1:charge")]


async def test_a_doubt_after_a_kill_in_the_call_is_asked_about_and_not_acted_upon(on_disk: str, log: Path) -> None:
    async with await killed(on_disk, log, "asked", "in the call") as app:
        over = await app.result("r", FLOWS["asked"])

    assert (str(over.end), over.context.receipt) == ("done", "found r:charge:1:charge")
    assert Counter(name for name, _ in noted(log)) == {"begun": 2, "charge": 1, "asked": 1}


async def test_a_doubt_that_nobody_can_settle_is_routed_as_unclear(on_disk: str, log: Path) -> None:
    async with await killed(on_disk, log, "doubted", "in the call") as app:
        over = await app.run(FLOWS["doubted"], (await app.get("r", FLOWS["doubted"], revision=0)).context, id="r")

    assert (str(over.end), over.status) == ("doubtful", "failed")
    assert over.failure is not None
    assert over.failure.kind == "Unclear"
    assert Counter(name for name, _ in noted(log)) == {"begun": 2, "charge": 1}


async def test_a_result_recorded_before_a_kill_is_replayed_and_not_called_for(on_disk: str, log: Path) -> None:
    async with await killed(on_disk, log, "doubted", "after the call") as app:
        over = await app.result("r", FLOWS["doubted"])

    assert (str(over.end), over.context.receipt) == ("done", "charge r:charge:1:charge")
    assert Counter(name for name, _ in noted(log)) == {"begun": 2, "charge": 1}


async def test_a_body_that_kills_its_process_again_and_again_ends_failed_and_can_be_retried(
    on_disk: str, log: Path
) -> None:
    for _ in range(5):
        (await killed(on_disk, log, "retried", "in the body")).close_sync()
    async with App(list(FLOWS.values()), store=on_disk) as app:
        failed = await app.run(FLOWS["retried"], Charge(order="A1"), id="r")
        assert failed.failure is not None
        assert (failed.status, failed.failure.kind) == ("failed", "CrashLoop")
        assert (await app.retry("r", request="r1")).status == "applied"
        over = await app.result("r", FLOWS["retried"])

    assert str(over.end) == "done"
    assert Counter(name for name, _ in noted(log)) == {"begun": 6, "charge": 1}


async def test_b14_one_process_starts_another_answers_a_third_goes_on(on_disk: str, log: Path) -> None:
    assert output(DESK, on_disk, log, "run", "r") == "waiting r.approval.1"
    app = App([desk], store=on_disk)
    waiting = await app.get("r")
    await app.close()
    assert (str(waiting.state), waiting.waits[0].id) == ("approval", "r.approval.1")

    with process(DESK, on_disk, log, "decide", "r", "approve") as other:
        assert other.communicate("go\n", timeout=30)[0].strip() == "applied"
    assert output(DESK, on_disk, log, "work", "r") == "paid"
    assert noted(log) == [("fetch", "r:fetch:1:fetch"), ("pay", "r:pay:1:pay")]


async def test_everything_unfinished_goes_on_inside_async_with_app(on_disk: str, log: Path) -> None:
    for run in ("r1", "r2"):
        with process(DESK, on_disk, log, "start", run) as worker:
            assert says(worker) == f"started {run}"
            kill(worker)
    async with App([desk], store=on_disk) as app:
        for run in ("r1", "r2"):  # nobody has asked this App for them before
            await runner_drives(app, run)

    assert Counter(name for name, _ in noted(log)) == {"fetch": 2}


async def runner_drives(app: App, run: str) -> None:
    runner = await app._runner()
    while (await app.get(run)).status != "waiting":
        await runner.until_changed(run)
