"""B54 on every way a value takes: effects, answers of people and models, forks, exports, copies, folded histories."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model
from tenacity import wait_none

from agentflow import Actor, Answer, App, Context, Model, Question, Retry, Run, Workflow
from agentflow.failures import Retryable
from agentflow.model.context import plan_of
from agentflow.store.copying import copy_store
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from agentflow.store.segments import LENGTH, fold
from agentflow.testing.scripted import ScriptedModel, reply
from tests.fidelity.conftest import file_in, schema
from tests.fidelity.everything import EVERYTHING
from tests.fidelity.journeys import SOON, Journey, after, put, words
from tests.fidelity.kinds import KINDS, Kind, Made, contexts
from tests.fidelity.reading import Readers
from tests.fidelity.test_round_trip import examples
from tests.fidelity.zoo import KEEPS_ALL, Colour, Money, context_class, exact, text_of, type_of

FreshId = Callable[[], str]
KINDS_WITH_VALUES = KINDS.flatmap(lambda kind: st.tuples(st.just(kind), kind.values))


class Told(Context):
    text: str = ""


class Word(StrEnum):
    YES = "yes"


# --- everything at once ------------------------------------------------------------------------------------------


def test_b54_a_context_of_every_type_comes_back_on_every_store(kept: str | Store, fresh_id: FreshId) -> None:
    journey, run = Journey(EVERYTHING), fresh_id()
    assert asyncio.run(journey.travel(kept, run)) == journey.wanted[1]
    assert tuple(journey.seen) == journey.wanted
    assert asyncio.run(journey.read_again(kept, run)) == journey.wanted


def test_b54_a_context_of_every_type_is_read_by_a_new_process(tmp_path: Path, readers: Readers) -> None:
    journey, address = Journey(EVERYTHING), file_in(tmp_path)
    asyncio.run(journey.travel(address, "r"))
    assert tuple(readers.read(address, {"r": EVERYTHING.types})["r"]) == journey.wanted


def test_b54_a_context_of_every_type_is_loaded_from_folded_histories(kept: str | Store, fresh_id: FreshId) -> None:
    """A run of more than 256 revisions, in which every field changes again and again."""
    looked_at, turns = (0, LENGTH - 1, LENGTH, LENGTH + 20), LENGTH + 20
    flow = Workflow("long", context_class({**EVERYTHING.types, "n": "int"}))

    @flow.step(max_visits=turns + 1)
    async def turn(case: Any, run: Run) -> Way:
        case.n += 1
        put(case, {name: value for name, value in at(case.n).items() if name not in GROWN})
        return Way.OUT if case.n == turns else Way.ON

    flow.build(start=turn, transitions=[turn.on(Way.ON).to(turn), turn.on(Way.OUT).to(flow.end("end"))])

    async def go() -> list[str]:
        run, first = fresh_id(), flow.context.model_construct(**EVERYTHING.first, n=0)
        async with App([flow], store=kept) as app:
            over = await app.run(flow, first, id=run, timeout=SOON)
            assert (over.status, over.failure) == ("completed", None)
            return [text_of((await app.get(run, revision=number)).context) for number in looked_at]

    assert asyncio.run(go()) == [words({**at(number), "n": number}) for number in looked_at]


class Way(StrEnum):
    ON = "on"
    OUT = "out"


GROWN = {name for name, text in EVERYTHING.types.items() if text.startswith("Append")}


def at(number: int) -> dict[str, Any]:
    """What the fields hold at a revision: everything at even ones, nothing where nothing can be at odd ones."""
    if number % 2 == 0:
        return dict(EVERYTHING.first)
    return {
        name: type(value)() if isinstance(value, list | dict | set) else value
        for name, value in EVERYTHING.first.items()
    }


@given(contexts())
@examples(30)
def test_b54_a_folded_history_means_what_its_differences_mean(made: Made) -> None:
    kind = context_class(made.types)
    plan = plan_of(kind)
    blobs: dict[str, bytes] = {}
    kept, start = plan.start(made.context(kind))
    texts = [start.text()]
    blobs.update(start.blobs)
    for values in (made.then, made.first, made.then):
        case = plan.copy(plan.load(texts, blobs.get))
        put(case, values)
        kept, difference = plan.keep(plan.load(texts, blobs.get), case)
        blobs.update(difference.blobs)
        texts.append(difference.text())
    live, folded = plan.copy(plan.load(texts, blobs.get)), plan.load([fold(texts[:3]), texts[3]], blobs.get)
    assert text_of(plan.copy(folded)) == text_of(live)
    assert (folded.texts, folded.lengths, folded.size) == (kept.texts, kept.lengths, kept.size)


# --- forks, exports, copies --------------------------------------------------------------------------------------


@given(contexts())
@examples(8)
def test_b54_a_fork_begins_with_what_its_origin_had(kept: str | Store, fresh_id: FreshId, made: Made) -> None:
    journey, run, fork = Journey(made), fresh_id(), fresh_id()

    async def go() -> tuple[str, str, str]:
        await journey.travel(kept, run)
        async with App([journey.flow], store=kept) as app:
            forked = await app.fork(run, 0, id=fork)
            over = await app.result(fork, timeout=SOON)
            late = await app.fork(run, 1, id=fork + "-late", change=made.then)
            return text_of(forked.context), text_of(over.context), text_of(late.context)

    begun, over, changed = asyncio.run(go())
    assert (begun, over) == journey.wanted
    assert changed == words({**after(made), **made.then})
    assert journey.seen[2:4] == [*journey.wanted]


@given(contexts())
@examples(8)
def test_b54_an_export_says_the_whole_context(kept: str | Store, fresh_id: FreshId, made: Made) -> None:
    journey, run = Journey(made), fresh_id()

    async def go() -> Any:
        await journey.travel(kept, run)
        async with App([journey.flow], store=kept) as app:
            return pydantic_core.to_json(await app.export(run), inf_nan_mode="strings"), app._store.value

    document, value = asyncio.run(go())
    lines = json.loads(document)["history"]
    plan = plan_of(journey.kind)
    told = plan.load([json.dumps(line["difference"]) for line in lines], None if isinstance(kept, str) else value)
    assert (
        plan.load([json.dumps({"set": {name: json.loads(text) for name, text in told.texts.items()}})]).texts
        == told.texts
    )
    if "Blob" not in str(made.types):
        assert text_of(plan.copy(told)) == journey.wanted[1]


@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_b54_a_copied_database_holds_the_same_values(tmp_path: Path, to: str) -> None:
    journey, source = Journey(EVERYTHING), file_in(tmp_path)
    asyncio.run(journey.travel(source, "r"))
    for target in targets(to, tmp_path):

        async def copy(target: str = target) -> None:
            one, other = open_store(source), open_store(target)
            await copy_store(one, other)
            await one.close()
            await other.close()

        asyncio.run(copy())
        assert asyncio.run(journey.read_again(target, "r")) == journey.wanted


def targets(kind: str, folder: Path) -> Iterator[str]:
    if kind == "postgres":
        yield from schema()
    else:
        yield f"sqlite:///{folder / 'copy.db'}"


# --- effects -----------------------------------------------------------------------------------------------------


def effect_flow(kind: Kind, value: Any, seen: list[Any]) -> Workflow[Told, None]:
    """A body whose first attempt fails after its effect, so that the second one is told what was recorded."""
    flow = Workflow("effects", Told)

    async def call(key: str) -> Any:
        seen.append("called")
        return value

    @flow.step(retry=Retry(attempts=2, wait=wait_none()))
    async def act(case: Told, run: Run) -> None:
        seen.append(exact(await run.effect("act", call, result=type_of(kind.text))))
        if run.attempt == 1:
            raise Retryable("once more")

    flow.build(start=act, transitions=[act.to(flow.end("end"))])
    return flow


@given(KINDS_WITH_VALUES)
@examples(25)
def test_b54_the_result_of_an_effect_is_replayed_as_it_was(
    kept: str | Store, fresh_id: FreshId, drawn: tuple[Kind, Any]
) -> None:
    kind, value = drawn
    seen: list[Any] = []
    flow = effect_flow(kind, value, seen)

    async def go() -> Any:
        async with App([flow], store=kept) as app:
            return await app.run(flow, Told(), id=fresh_id(), timeout=SOON)

    over = asyncio.run(go())
    assert (over.status, over.failure) == ("completed", None)
    assert seen == ["called", exact(value), exact(value)]


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (
            "list[str]",
            ["a", Colour.RED],
            r"effect 'act' result\[1\]: <Colour\.RED: 'red'> of type Colour would come back",
        ),
        ("tuple[int, ...]", (True,), r"effect 'act' result\[0\]: True of type bool would come back as 1 of type int"),
        ("dict[str, Money]", {"a": Money(Decimal("NaN"))}, r"effect 'act' result\['a'\]\.amount: "),
        ("float", "1", "effect 'act' result: "),
        (None, {"a": [{"b": (1,)}]}, r"effect 'act' result\['a'\]\[0\]\['b'\]: \(1,\) of type tuple would come back"),
        (None, {1: 2}, r"effect 'act' result\[key 1\]: 1 of type int would come back as '1' of type str"),
        (None, [1, {"x": object()}], "effect 'act' result.*"),
        (None, ["\ud800"], r"effect 'act' result\[0\]: '\\ud800' holds half of a character"),
        (None, [Decimal(1)], r"effect 'act' result\[0\]: Decimal\('1'\) of type Decimal"),
    ],
)
async def test_b57_a_result_that_would_not_come_back_is_named_with_its_path_and_not_called_for_again(
    kept: str | Store, fresh_id: FreshId, kind: str | None, value: Any, path: str
) -> None:
    flow = Workflow("effects", Told)
    calls: list[str] = []

    async def call(key: str) -> Any:
        calls.append(key)
        return value

    @flow.step(retry=Retry(attempts=3, wait=wait_none(), on=[Exception]))
    async def act(case: Told, run: Run) -> None:
        await run.effect("act", call, result=None if kind is None else type_of(kind))

    flow.build(start=act, transitions=[act.to(flow.end("end"))])
    async with App([flow], store=kept) as app:
        over = await app.run(flow, Told(), id=fresh_id(), timeout=SOON)
    assert over.failure is not None
    assert (over.status, over.failure.kind, len(calls)) == ("failed", "InvalidContext", 1)
    assert re.search(path, over.failure.message), over.failure.message


# --- people ------------------------------------------------------------------------------------------------------


def asking(kind: Kind) -> tuple[Workflow[Any, None], type[BaseModel]]:
    """A run that asks for a value, and keeps the answer in its context."""
    value: Any = type_of(kind.text)
    form: Any = create_model("Form", __config__=KEEPS_ALL, value=(value, ...))
    optional: Any = value if kind.text == "Choice" else value | None
    case: Any = create_model("Case", __base__=Context, value=(optional, None))
    flow: Workflow[Any, None] = Workflow("asking", case)

    @flow.human(Word, answer=form)
    def ask(case: Any) -> Question:
        return Question("What is it?")

    @ask.store
    def _(case: Any, answer: Answer[Word, Any]) -> None:
        case.value = answer.data.value

    flow.build(start=ask, transitions=[ask.on(Word.YES).to(flow.end("end"))])
    return flow, form


@given(
    KINDS.filter(lambda kind: "None" not in kind.text and "Append" not in kind.text and "Pet" not in kind.text).flatmap(
        lambda kind: st.tuples(st.just(kind), kind.values)
    )
)
@examples(25)
def test_b54_a_persons_answer_reaches_the_context_as_it_was(
    kept: str | Store, fresh_id: FreshId, drawn: tuple[Kind, Any]
) -> None:
    kind, value = drawn
    flow, form = asking(kind)

    async def go() -> Any:
        async with App([flow], store=kept) as app:
            waiting = await app.run(flow, flow.context(), id=fresh_id(), timeout=SOON)
            await app.decide(waiting.waits[0].id, Word.YES, form.model_construct(value=value), actor=Actor("ada"))
            over: Any = await app.result(waiting.id, timeout=SOON)
            return exact(over.context.value)

    assert asyncio.run(go()) == exact(value)


# --- models ------------------------------------------------------------------------------------------------------


class Item(BaseModel):
    name: str
    colour: Colour
    price: Decimal
    since: timedelta


async def test_b54_a_models_answer_reaches_the_context_as_it_was(kept: str | Store, fresh_id: FreshId) -> None:
    class Case(Context):
        items: list[Item] = []
        pair: tuple[int, str] = (0, "")
        whole: int = 0

    flow = Workflow("model", Case)

    class Filled(BaseModel):
        items: list[Item]
        pair: list[str]
        whole: int

    @flow.llm(Word, prompt="What is it?", answer=Filled)
    def judge(case: Case) -> Case:
        return case

    @judge.store
    def _(case: Case, answer: Answer[Word, Filled]) -> None:
        case.items = answer.data.items
        case.pair = (answer.data.whole, answer.data.pair[0])
        case.whole = answer.data.whole

    flow.build(start=judge, transitions=[judge.on(Word.YES).to(flow.end("end"))])
    item = {"name": "\x00 é", "colour": "pale blue", "price": "1.10", "since": "-P1DT0.000001S"}
    data = {"items": [item], "pair": ["x"], "whole": 2**70}
    with ScriptedModel([reply(Word.YES, data=data)]) as model:
        models = {"default": Model("m", base_url=model.base_url, api_key="test")}
        async with App([flow], store=kept, models=models) as app:
            over = await app.run(flow, Case(), id=fresh_id(), timeout=SOON)
    assert (over.status, over.failure) == ("completed", None)
    wanted = Item(
        name="\x00 é", colour=Colour.PALE_BLUE, price=Decimal("1.10"), since=timedelta(days=-1, microseconds=-1)
    )
    assert exact(over.context) == exact(Case(items=[wanted], pair=(2**70, "x"), whole=2**70))
