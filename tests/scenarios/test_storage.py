"""What a run costs on disk: constant data and attachments are stored once, and every revision still loads (B76)."""

from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from agentflow import App, Blob, Context, Limits, Run, Snapshot, Workflow
from agentflow.merge import Append

WITHIN = timedelta(seconds=60)
ATTACHMENT = bytes(range(256)) * 20_000  # 5 MB


class Go(StrEnum):
    ON = "on"
    ENOUGH = "enough"


class Case(Context):
    n: int = 0
    tail: str = ""
    constant: list[dict[str, str]] = []
    scan: Blob | None = None
    seen: Append[Blob] = Append()


def rounds(count: int, *, attach: bool = False) -> Workflow[Case, None]:
    flow = Workflow("rounds", Case, limits=Limits(transitions=10_000))

    @flow.step(max_visits=10_000)
    async def turn(case: Case, run: Run) -> Go:
        case.n += 1
        case.tail = f"{case.n:0100d}"
        if attach:
            assert case.scan is not None
            case.seen.append(Blob(case.scan.read()))  # the same bytes, made anew each time
        return Go.ENOUGH if case.n == count else Go.ON

    flow.build(start=turn, transitions=[turn.on(Go.ON).to(turn), turn.on(Go.ENOUGH).to(flow.end("done"))])
    return flow


async def finished(flow: Workflow[Case, None], folder: Path, start: Case) -> Snapshot[Case]:
    async with App([flow], store=f"sqlite:///{folder / 'runs.db'}") as app:
        return await app.run(flow, start, id="r", timeout=WITHIN)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


async def test_b76_constant_data_beside_a_thousand_small_steps_is_stored_once(tmp_path: Path) -> None:
    flow = rounds(1_000)
    constant = [{"text": f"{number:090d}"} for number in range(2_000)]
    found = await finished(flow, tmp_path, Case(constant=constant))
    assert (found.status, found.revision) == ("completed", 1_000)
    assert size_of(tmp_path) < 10_000_000
    async with App([flow], store=f"sqlite:///{tmp_path / 'runs.db'}") as app:
        for revision in (0, 1, 255, 256, 511, 512, 999, 1_000):
            then = await app.get("r", flow, revision=revision)
            assert (then.context.n, then.context.constant == constant) == (revision, True)
        assert len(await app.history("r")) == 1_001


async def test_b76_an_attachment_that_fifty_steps_refer_to_is_stored_once(tmp_path: Path) -> None:
    flow = rounds(50, attach=True)
    found = await finished(flow, tmp_path, Case(scan=Blob(ATTACHMENT, media_type="image/png")))
    assert found.status == "completed"
    assert size_of(tmp_path) < 2 * len(ATTACHMENT)
    async with App([flow], store=f"sqlite:///{tmp_path / 'runs.db'}") as app:
        then = await app.get("r", flow, revision=25)
        assert (len(then.context.seen), then.context.seen[24].read() == ATTACHMENT) == (25, True)
        assert then.context.scan is not None
        assert (then.context.scan.media_type, then.context.scan.size) == ("image/png", len(ATTACHMENT))


async def test_a_snapshot_reads_its_blobs_from_the_store_in_memory_too() -> None:
    flow = rounds(2, attach=True)
    async with App([flow], store="memory:") as app:
        found = await app.run(flow, Case(scan=Blob(b"bytes")), timeout=WITHIN)
    assert [blob.read() for blob in found.context.seen] == [b"bytes"] * 2
