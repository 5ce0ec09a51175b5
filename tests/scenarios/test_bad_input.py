"""What callers and their machines get wrong: each is said, nothing is lost, and it goes on once it is mended."""

import logging
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentflow import App, Context, Model, Run, Workflow
from agentflow.errors import (
    ConfigurationError,
    InvalidInput,
    NewerSchema,
    NotOurDatabase,
    StoreError,
    StoreUnavailable,
)
from agentflow.store.rows import Commit, CommitReply
from agentflow.testing.scripted import ScriptedModel, reply
from tests.scenarios.conftest import database

SOON = timedelta(seconds=20)


class Case(Context):
    text: str = ""


def filling(name: str = "filling", size: int = 0) -> Workflow[Case, None]:
    flow = Workflow(name, Case)

    @flow.step()
    async def fill(case: Case, run: Run) -> None:
        case.text += "x" * size

    end = flow.end("end")
    flow.build(start=fill, transitions=[fill.to(end)])
    return flow


async def test_a_workflow_that_the_app_does_not_have_is_refused(store: str) -> None:
    app = App([filling()], store=store)
    with pytest.raises(InvalidInput, match="other"):
        await app.start(filling("other"), Case())
    with pytest.raises(InvalidInput, match="filling"):
        await app.start(filling(), Case())  # of the same name, but not the one
    assert await app.list() == []
    await app.close()


async def test_a_context_of_more_than_a_mebibyte_is_refused_and_no_run_is_made(store: str) -> None:
    flow = filling()
    async with App([flow], store=store) as app:
        with pytest.raises(InvalidInput, match=r"1,048,576.*text"):
            await app.start(flow, Case(text="x" * 1_048_577), id="r")
        assert await app.list() == []
        assert (await app.run(flow, Case(text="x" * 1_000_000), id="r", timeout=SOON)).status == "completed"


async def test_a_context_that_grows_beyond_its_limit_blocks_the_run_which_keeps_its_last_snapshot(
    store: str,
) -> None:
    flow = filling(size=2_000_000)
    async with App([flow], store=store) as app:
        over = await app.run(flow, Case(), id="r", timeout=SOON)

    assert over.failure is not None
    assert (over.status, over.failure.kind, over.context.text) == ("queued", "OverLimit", "")
    assert over.blocked == over.failure.message


@pytest.mark.parametrize("run", ["a b", "a:b", "", "x" * 201, "line\n", "tab\t", "a\x00b"])
async def test_a_run_id_that_could_not_stand_in_a_key_is_refused(store: str, run: str) -> None:
    flow = filling()
    app = App([flow], store=store)
    with pytest.raises(InvalidInput, match="run id"):
        await app.start(flow, Case(), id=run)
    assert await app.list() == []
    await app.close()


@pytest.mark.parametrize("run", ["ticket-7", "a/b", "ünïcode", "x" * 200, "a.b.c", "#1@shop"])
async def test_run_ids_of_other_systems_are_taken(store: str, run: str) -> None:
    flow = filling()
    async with App([flow], store=store) as app:
        assert (await app.run(flow, Case(), id=run, timeout=SOON)).id == run


# --- no key ------------------------------------------------------------------------------------------------------


def writing() -> Workflow[Case, None]:
    flow = Workflow("writing", Case)

    @flow.llm(prompt="Write.")
    def write(case: Case) -> Case:
        return case

    end = flow.end("end")
    flow.build(start=write, transitions=[write.to(end)])
    return flow


async def test_without_a_key_the_run_is_blocked_and_goes_on_once_there_is_one(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    flow = writing()
    with ScriptedModel([reply(text="a poem")]) as model:
        models = {"default": Model("m", base_url=model.base_url)}
        async with App([flow], store=store, models=models) as app:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
                    await app.run(flow, Case(), id="r", timeout=SOON)
            blocked, why = await app.get("r"), await app.why("r")
            monkeypatch.setenv("OPENAI_API_KEY", "test")
            over = await app.result("r", timeout=SOON)
            attempts = await app._store.attempts("r")

    assert blocked.status == "queued"
    assert "OPENAI_API_KEY" in (blocked.blocked or "")
    assert why.text.startswith("blocked in write")
    assert (over.status, over.blocked, attempts) == ("completed", None, [])


async def test_without_a_model_name_too(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    flow = writing()
    async with App([flow], store=store) as app:
        await app.start(flow, Case(), id="r")
        with pytest.raises(ConfigurationError, match="OPENAI_MODEL"):
            await app.result("r", timeout=SOON)
        assert (await app.get("r")).status == "queued"


# --- databases ---------------------------------------------------------------------------------------------------


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("create table customers (id integer)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("update meta set value = '999' where name = 'schema'")
        other.commit()


def garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [(foreign, NotOurDatabase), (garbage, NotOurDatabase), (newer, NewerSchema)],
    ids=["foreign", "garbage", "newer"],
)
async def test_a_database_that_is_not_ours_is_refused_by_every_verb_and_left_as_it_is(
    tmp_path: Path, spoil: Any, error: type[StoreError]
) -> None:
    flow, path = filling(), tmp_path / "runs.db"
    if spoil is newer:
        before = App([flow], store=database(tmp_path))
        await before.list()
        await before.close()
    spoil(path)
    content = path.read_bytes()
    app = App([flow], store=database(tmp_path))
    for verb in (app.start(flow, Case()), app.list(), app.get("r"), app.history("r"), app.cancel("r")):
        with pytest.raises(error, match=r"runs\.db"):
            await verb
    with pytest.raises(error):
        async with app:
            pass
    await app.close()
    assert path.read_bytes() == content


async def test_a_database_in_a_folder_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    app = App([filling()], store=f"sqlite:///{tmp_path / 'nowhere' / 'runs.db'}")
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await app.list()
    await app.close()


async def test_a_body_is_not_run_again_and_again_while_the_database_takes_nothing(
    on_disk: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, begun = Workflow("spinning", Case), list[str]()

    @flow.step()
    async def work(case: Case, run: Run) -> None:
        begun.append(run.id)

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(end)])
    app = App([flow], store=on_disk)
    refusing = [True]
    commit = app._store.commit

    async def refuse(asked: Commit) -> CommitReply:
        if refusing[0]:
            raise StoreUnavailable("full")
        return await commit(asked)

    monkeypatch.setattr(app._store, "commit", refuse)
    with caplog.at_level(logging.CRITICAL), pytest.raises(StoreUnavailable):
        await app.run(flow, Case(), id="r", timeout=SOON)
    runner = await app._runner()
    for _ in range(5):
        await runner._look_once()
    assert begun == ["r"]

    refusing[0] = False
    assert (await app.result("r", timeout=SOON)).end is end
    assert begun == ["r", "r"]
    await app.close()


async def test_a_full_database_loses_nothing_and_the_run_goes_on_when_there_is_room(
    on_disk: str, caplog: pytest.LogCaptureFixture
) -> None:
    flow = filling(size=500_000)
    app = App([flow], store=on_disk)
    await app._store.open()
    await app.start(flow, Case(), id="r")
    connection: Any = app._store
    raw = connection._writer.raw()
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count = {pages + 8}")
    with caplog.at_level(logging.CRITICAL), pytest.raises(StoreUnavailable, match="full"):
        await app.result("r", timeout=SOON)
    with pytest.raises(StoreUnavailable, match="full"):
        await app.start(flow, Case(text="y" * 500_000), id="other")
    assert [(run.id, run.revision) for run in await app.list()] == [("r", 0)]

    raw.execute("PRAGMA max_page_count = 1000000")
    over = await app.result("r", flow, timeout=SOON)
    await app.close()
    assert (over.status, len(over.context.text)) == ("completed", 500_000)
