"""Texts with a NUL or half of a character: no store takes what another refuses, and no run stands still for one."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import Actor, App, Context, Question, Run, Workflow
from agentflow.errors import InvalidInput, NotFound
from agentflow.failures import Business
from agentflow.store.protocol import Store
from tests.fidelity.journeys import SOON

FreshId = Callable[[], str]
NUL, HALF = "a\x00b", "a\ud800b"
ESCAPED = {NUL: "a\\x00b", HALF: "a\\ud800b"}
BAD = pytest.mark.parametrize("bad", [NUL, HALF], ids=["nul", "half"])


class Word(StrEnum):
    YES = "yes"


class Form(BaseModel):
    text: str = ""


class Case(Context):
    text: str = ""
    by_key: dict[str, str] = {}


def asking(bad: str) -> Workflow[Case, None]:
    flow = Workflow("asking", Case)

    @flow.human(Word, answer=Form)
    def ask(case: Case) -> Question:
        return Question(f"What of {bad}?", evidence={"text": bad}, suggest=None)

    flow.build(start=ask, transitions=[ask.on(Word.YES).to(flow.end("end"))])
    return flow


def acting(body: Callable[[Run], Awaitable[Any]]) -> Workflow[Case, None]:
    flow = Workflow("acting", Case)

    @flow.step()
    async def act(case: Case, run: Run) -> None:
        await body(run)

    flow.build(start=act, transitions=[act.to(flow.end("end"))])
    return flow


async def test_b54_a_nul_is_kept_in_a_context_and_asked_about(kept: str | Store, fresh_id: FreshId) -> None:
    flow = asking(NUL)
    async with App([flow], store=kept) as app:
        run = await app.run(flow, Case(text=NUL, by_key={NUL: "\x00"}), id=fresh_id(), timeout=SOON)
        assert (run.context.text, run.context.by_key) == (NUL, {NUL: "\x00"})
        await app.decide(run.waits[0].id, Word.YES, Form(text=NUL), actor=Actor("ada"))
        over = await app.result(run.id, timeout=SOON)
        [_, line] = await app.history(run.id)
    assert over.status == "completed"
    assert line.answer is not None
    assert line.answer["data"] == {"text": NUL}


@BAD
async def test_a_question_and_its_answer_show_such_a_character_escaped(
    kept: str | Store, fresh_id: FreshId, bad: str
) -> None:
    flow = asking(bad)
    async with App([flow], store=kept) as app:
        run = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
        [wait] = run.waits
        assert wait.question == f"What of {ESCAPED[bad]}?"
        reply = await app.decide(wait.id, Word.YES, Form(), actor=Actor(bad), comment=bad)
        assert (reply.status, (await app.result(run.id, timeout=SOON)).status) == ("applied", "completed")
        [_, line] = await app.history(run.id)
    assert line.reason == ESCAPED[bad]


@BAD
async def test_a_failure_that_says_such_a_character_fails_the_run_and_nothing_else(
    kept: str | Store, fresh_id: FreshId, bad: str
) -> None:
    async def body(run: Run) -> None:
        raise Business(f"no {bad}")

    flow = acting(body)
    async with App([flow], store=kept) as app:
        over = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
        assert over.failure is not None
        assert (over.status, over.failure.kind) == ("failed", "Business")
        reply = await app.retry(over.id, reason=bad, actor=Actor(bad))
        assert reply.status == "applied"
        assert (await app.follow(over.id, timeout=SOON)).status == "failed"
        commands = await app._store.commands(over.id)
    assert [command.reason for command in commands if command.command == "retry"] == [ESCAPED[bad]]


@BAD
async def test_a_doubt_that_says_such_a_character_is_recorded(kept: str | Store, fresh_id: FreshId, bad: str) -> None:
    async def call(key: str) -> str:
        raise OSError(bad)

    async def body(run: Run) -> None:
        await run.effect("pay", call)

    flow = acting(body)
    async with App([flow], store=kept) as app:
        over = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
        [effect] = await app.effects(over.id)
    assert over.failure is not None
    assert (over.failure.kind, effect.status, effect.error) == ("Unclear", "unclear", f"OSError: {ESCAPED[bad]}")


@BAD
@pytest.mark.parametrize("what", ["name", "item", "once_per"])
async def test_an_effect_of_such_a_name_is_refused_before_its_call(
    kept: str | Store, fresh_id: FreshId, bad: str, what: str
) -> None:
    calls: list[str] = []

    async def call(key: str) -> None:
        calls.append(key)

    async def body(run: Run) -> None:
        given: dict[str, Any] = {"item": None, "once_per": None} | ({what: bad} if what != "name" else {})
        await run.effect(bad if what == "name" else "pay", call, **given)

    flow = acting(body)
    async with App([flow], store=kept) as app:
        over = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
        effects = await app.effects(over.id)
    assert over.failure is not None
    assert (over.status, over.failure.kind, calls, effects) == ("failed", "InvalidInput", [], [])


@BAD
async def test_names_that_a_caller_gives_are_refused(kept: str | Store, fresh_id: FreshId, bad: str) -> None:
    flow, run = asking("it"), fresh_id()
    async with App([flow], store=kept) as app:
        waiting = await app.run(flow, Case(), id=run, timeout=SOON)
        for call in (
            app.start(flow, Case(), id=f"x{bad}"),
            app.start(flow, Case(), batch=bad),
            app.decide(waiting.waits[0].id, Word.YES, Form(), actor=Actor("ada"), request=bad),
            app.cancel(run, request=bad),
            app.pause(run, request=bad),
            app.resume(run, request=bad),
            app.fork(run, 0, request=bad),
        ):
            with pytest.raises(InvalidInput):
                await call
        assert (await app.get(run)).status == "waiting"


@BAD
async def test_nothing_is_found_under_such_a_name(kept: str | Store, bad: str) -> None:
    flow = asking("it")
    async with App([flow], store=kept) as app:
        for call in (
            app.get(bad),
            app.history(bad),
            app.why(bad),
            app.waits(bad),
            app.result(bad),
            app.cancel(bad),
            app.export(bad),
            app.effects(bad),
            app.decide(bad, Word.YES, Form(), actor=Actor("ada")),
            app.resolve_effect(bad, happened=True, evidence="seen"),
            anext(aiter(app.stream(bad))),
        ):
            with pytest.raises(NotFound):
                await call
        assert await app.list(after=bad) == []


async def test_half_of_a_character_in_an_answer_is_refused_and_the_run_still_waits(
    kept: str | Store, fresh_id: FreshId
) -> None:
    flow = asking("it")
    async with App([flow], store=kept) as app:
        run = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
        with pytest.raises(InvalidInput, match=r"data\.text: 'a\\ud800b' holds half of a character"):
            await app.decide(run.waits[0].id, Word.YES, Form(text=HALF), actor=Actor("ada"))
        assert (await app.get(run.id)).waits == run.waits


async def test_evidence_that_cannot_be_shown_is_named(kept: str | Store, fresh_id: FreshId) -> None:
    flow = Workflow("showing", Case)

    @flow.human(Word)
    def ask(case: Case) -> Question:
        return Question("?", evidence={"what": object()})

    flow.build(start=ask, transitions=[ask.on(Word.YES).to(flow.end("end"))])
    async with App([flow], store=kept) as app:
        over = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
    assert over.failure is not None
    assert (over.status, over.failure.kind) == ("failed", "InvalidContext")
    assert over.failure.message.startswith("state 'ask': evidence: {'what': <object object")
