"""Migrations while old code drives the runs and people answer: each run ends once and whole, under one version or the other."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from agentflow import App, Context, Question, Run, Stored, Workflow
from agentflow.errors import Conflict, IncompatibleDefinition, NotFound
from tests.scenarios.desk import ADA
from tests.versions.conftest import OpenStore
from tests.versions.orders import Verdict

RUNS = [f"r{number}" for number in range(12)]
ROUNDS = 8


class Steps(Context):
    count: int = 0


class NewSteps(Context):
    count: int = 0
    migrated: bool


def more(case: Any) -> bool:
    return bool(case.count < ROUNDS)


def stepping(kind: Any, version: int, *migrations: Any) -> Workflow[Any, None]:
    """Work and ask in turns."""
    flow: Workflow[Any, None] = Workflow("stepping", kind, version=version)
    for migration in migrations:
        flow.migration(from_version=1)(migration)

    @flow.step(max_visits=50)
    async def go(case: Any, run: Run) -> None:
        await asyncio.sleep(0)
        case.count += 1

    @flow.human(Verdict, max_visits=50)
    def ask(case: Any) -> Question:
        return Question("On?")

    done = flow.end("done")
    rows = [go.when(more).to(ask), go.to(done), ask.on(Verdict.APPROVE).to(go), ask.on(Verdict.REJECT).to(done)]
    flow.build(start=go, transitions=rows)
    return flow


def move(stored: Stored) -> Stored:
    return Stored(stored.state, {**stored.context, "migrated": True})


async def answer_all(old: App, new: App) -> None:
    """Answer every question by the App whose version the run has, as it seemed a moment ago."""
    while True:
        for wait in await old.waits(limit=100):
            version = (await old.export(wait.run))["run"]["version"]
            with contextlib.suppress(IncompatibleDefinition, Conflict, NotFound):
                await (new if version == 2 else old).decide(wait.id, Verdict.APPROVE, actor=ADA)
        await asyncio.sleep(0)


async def migrate_one_by_one(app: App, flow: Workflow[Any, None]) -> None:
    for number in range(len(RUNS)):
        await app.migrate(flow, runs=RUNS[: number + 1], partly=True)
        await asyncio.sleep(0.01)


async def ended(app: App, run: str) -> Any:
    """The export of a run, once it is over."""
    while True:
        export = await app.export(run)
        if export["run"]["status"] == "completed":
            return export
        await asyncio.sleep(0.01)


async def test_runs_that_are_migrated_while_old_code_drives_them_end_once_and_whole(another: OpenStore) -> None:
    flow, changed = stepping(Steps, 1), stepping(NewSteps, 2, move)
    async with App([flow], store=another()) as old, App([changed], store=another()) as new:
        for run in RUNS:
            await old.start(flow, Steps(), id=run)
        await old.follow(RUNS[0], flow)
        await new.migrate(changed, runs=RUNS[:1])  # one at least, however fast the others are
        tasks = [asyncio.create_task(answer_all(old, new)), asyncio.create_task(migrate_one_by_one(new, changed))]
        async with asyncio.timeout(timedelta(seconds=60).total_seconds()):
            exports = [await ended(old, run) for run in RUNS]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for export in exports:
        events = [line["event"] for line in export["history"]]
        assert [line["revision"] for line in export["history"]] == list(range(len(events)))
        assert export["context"]["count"] == ROUNDS
        assert events.count("migrate") == (export["run"]["version"] == 2)
        assert export["context"].get("migrated", False) is (export["run"]["version"] == 2)
        assert len(export["waits"]) == ROUNDS - 1
    assert any(export["run"]["version"] == 2 for export in exports)
