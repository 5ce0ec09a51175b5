"""B57: what a body leaves behind is validated before the commit; the last snapshot stays, and mended code goes on."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import Actor, Answer, App, Context, Question, Run, Workflow
from agentflow.merge import Append
from agentflow.store.protocol import Store
from tests.fidelity.journeys import SOON
from tests.fidelity.zoo import Money, text_of

FreshId = Callable[[], str]
Fault = Callable[[Any], None]


class Word(StrEnum):
    YES = "yes"


class Part(BaseModel):
    tags: list[str] = []


class Case(Context):
    items: list[str] = ["a"]
    count: int = 0
    by_key: dict[str, list[Money]] = {}
    pair: tuple[int, ...] = (1,)
    part: Part = Part()
    log: Append[str] = Append(["begun"])


def spoil(name: str, value: Any) -> Fault:
    return lambda case: setattr(case, name, value)


FAULTS: dict[str, tuple[Fault, str, str]] = {
    "none for a list": (spoil("items", None), "InvalidContext", r"context\.items: .*got None"),
    "another type": (spoil("count", "7"), "InvalidContext", r"context\.count: .*got '7'"),
    "an unknown field": (spoil("cuont", 7), "ValueError", r"\"Case\" object has no field \"cuont\""),
    "in place": (lambda case: case.items.append(7), "InvalidContext", r"context\.items\[2\]: .*got 7"),
    "in place, deep": (
        lambda case: case.part.tags.append(None), "InvalidContext", r"context\.part\.tags\[0\]: .*got None",
    ),
    "a naive instant": (
        lambda case: case.by_key.update(k=[Money(amount=1, at=datetime(2030, 1, 1))]),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # noqa: DTZ001
        "InvalidContext", r"context\.by_key\['k'\]\[0\]\.",
    ),
    "a list for a tuple": (spoil("pair", [1]), "InvalidContext", r"context\.pair: .*got \[1\]"),
    "a lambda": (spoil("items", lambda: None), "InvalidContext", r"context\.items: .*function"),
    "not a list that grows": (spoil("log", ["begun"]), "InvalidContext", r"context\.log: an Append field only grows"),
    "a bad item": (lambda case: case.log.extend(["x", 3]), "InvalidContext", r"context\.log\[4\]: .*got 3"),
    "a field gone": (lambda case: case.__dict__.pop("items"), "InvalidContext", r"context\.items: is missing"),
    "too deep": (spoil("part", "x" * 100_000), "InvalidContext", r"context\.part: .*xxx\.\.\."),
}  # fmt: skip


@dataclass
class Switch:
    """The code of a body, which is mended while its run stands failed."""

    fault: Fault | None


def working(switch: Switch) -> Workflow[Case, None]:
    flow = Workflow("working", Case)

    @flow.step()
    async def first(case: Case, run: Run) -> None:
        case.items.append("first")
        case.log.append("first")

    @flow.step()
    async def second(case: Case, run: Run) -> None:
        case.count = 1
        case.log.append("second")
        if switch.fault is not None:
            switch.fault(case)

    @flow.step()
    async def third(case: Case, run: Run) -> None:
        case.items.append("third")

    flow.build(start=first, transitions=[first.to(second), second.to(third), third.to(flow.end("end"))])
    return flow


@pytest.mark.parametrize(("fault", "kind", "message"), FAULTS.values(), ids=FAULTS.keys())
async def test_b57_an_invalid_output_fails_the_step_and_mended_code_goes_on(
    kept: str | Store, fresh_id: FreshId, fault: Fault, kind: str, message: str
) -> None:
    switch, run = Switch(fault), fresh_id()
    flow = working(switch)
    async with App([flow], store=kept) as app:
        over = await app.run(flow, Case(), id=run, timeout=SOON)
        assert over.failure is not None
        assert (over.status, over.state.name, over.failure.kind) == ("failed", "second", kind)
        assert re.search(message, over.failure.message), over.failure.message
        assert len(over.failure.message) < 300
    async with App([flow], store=kept) as later:  # another App, that loads what is stored
        left = await later.get(run)
        assert text_of(left.context) == text_of(Case(items=["a", "first"], log=Append(["begun", "first"])))
        assert left.revision == 1
        switch.fault = None
        assert (await later.retry(run)).status == "applied"
        done = await later.result(run, flow, timeout=SOON)
        assert (done.status, done.context.items, list(done.context.log)) == (
            "completed", ["a", "first", "third"], ["begun", "first", "second"],
        )  # fmt: skip
        assert [line.number for line in await later.history(run)] == [0, 1, 2, 3]


async def test_b57_what_a_store_function_leaves_is_validated_too(kept: str | Store, fresh_id: FreshId) -> None:
    flow, broken = Workflow("stored", Case), Switch(spoil("items", None))

    @flow.human(Word)
    def ask(case: Case) -> Question:
        return Question("?")

    @ask.store
    def _(case: Case, answer: Answer[Word, None]) -> None:
        case.count = 1
        if broken.fault is not None:
            broken.fault(case)

    flow.build(start=ask, transitions=[ask.on(Word.YES).to(flow.end("end"))])
    async with App([flow], store=kept) as app:
        waiting = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
        await app.decide(waiting.waits[0].id, Word.YES, actor=Actor("ada"))
        over = await app.follow(waiting.id, timeout=SOON)
        assert over.failure is not None
        assert over.status == "failed"
        assert "context.items: " in over.failure.message
        assert text_of((await app.get(waiting.id)).context) == text_of(Case())
        broken.fault = None
        await app.retry(waiting.id)
        done = await app.result(waiting.id, flow, timeout=SOON)
    assert (done.status, done.context.count, done.context.items) == ("completed", 1, ["a"])
