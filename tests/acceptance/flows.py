"""Whole runs over the real client, store and runner, with a model that answers from the labels of the input."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from agentflow import Actor, App, Context, Model, Snapshot, Workflow
from agentflow.engine.head import Head
from agentflow.model.prompts import fenced
from agentflow.testing.scripted import ScriptedModel, ScriptedReply, ScriptedRequest, reply
from definitions.board import Board
from definitions.content_review import WHITE_SPACE, Decision, Message, content_review
from definitions.refund import Case, Verdict, refund
from tests.acceptance.retail import Request, orders_in
from tests.acceptance.scripted import JsonAnswer

PERSON = Actor("ada@shop.example", source="tests", roles=("refunds", "moderators"))
WITHIN = timedelta(seconds=60)


def say(answer: JsonAnswer) -> ScriptedReply:
    """The reply of a model that answers so."""
    return reply(answer["choice"], reason=answer["reason"], data=answer.get("data"))


@dataclass
class Seen:
    """The contexts of all runs as they were committed, by run and revision."""

    contexts: dict[tuple[str, int], Context] = field(default_factory=dict[tuple[str, int], Context])
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self, app: App, workflow: Workflow[Any, Any]) -> None:
        plan = workflow.definition.context

        def keep(head: Head) -> None:
            self.contexts[head.run, head.revision] = plan.copy(head.kept, head.cause)
            self._more.set()

        app._settings.on_commit = keep

    async def until_seen(self, run: Snapshot[Any]) -> None:
        """Whoever reads a commit may be a turn of the loop ahead of the one who made it."""
        async with asyncio.timeout(WITHIN.total_seconds()):
            while (run.id, run.revision) not in self.contexts:
                self._more.clear()
                await self._more.wait()


async def refund_run(
    request: Request, answer: JsonAnswer | None, verdict: str | None, folder: Path
) -> tuple[Snapshot[Case], Sequence[str]]:
    """Drive one request through `refund` over the orders in `folder`; also all faults of its history."""
    answers = [say(answer)] if answer is not None else []
    with ScriptedModel(answers) as model:
        app = App(
            [refund],
            store=f"sqlite:///{folder / 'runs.db'}",
            services=[orders_in(folder)],
            models={"default": Model("scripted", base_url=model.base_url, api_key="test")},
        )
        seen = Seen()
        seen.watch(app, refund)
        async with app:
            case = Case(id=request.id, user_id=request.user_id, request=request.text)
            run = await app.run(refund, case, id=request.id, timeout=WITHIN)
            while run.status == "waiting":
                await app.decide(run.waits[0].id, Verdict(verdict or "approve"), actor=PERSON)
                run = await app.run(refund, case, id=request.id, timeout=WITHIN)  # the same start: it goes on
            return run, await faults_of_history(app, refund, run, seen)


async def faults_of_history(app: App, workflow: Workflow[Any, Any], run: Snapshot[Any], seen: Seen) -> Sequence[str]:
    """What is wrong with a run's history: a missing row, or a revision that is not what was seen live."""
    await seen.until_seen(run)
    history = await app.history(run.id)
    faults = [] if len(history) == run.revision + 1 else [f"{len(history)} rows for {run.revision} transitions"]
    for number in range(1, run.revision + 1):
        stored = await app.get(run.id, workflow, revision=number)
        if stored.context != seen.contexts[run.id, number]:
            faults.append(f"revision {number} of {run.id} is not what was seen")
    return faults


@dataclass(frozen=True)
class ToReview:
    """A message, what the model says about it, and what a person decides if one is asked."""

    id: str
    text: str
    answer: JsonAnswer
    decision: str | None = None


def model_of(messages: Sequence[ToReview]) -> Callable[[ScriptedRequest], ScriptedReply]:
    """A model that finds the message in its prompt and answers from the label."""
    known = {fenced(cleaned(message.text)): message.answer for message in messages}

    def answer(request: ScriptedRequest) -> ScriptedReply:
        mark = request.prompt.rindex("</data-")
        block = request.prompt[request.prompt.index("<data-" + request.prompt[mark + 7 :].split(">")[0]) :]
        return say(known[block.strip()])

    return answer


def cleaned(text: str) -> str:
    """What `clean` makes of a text."""
    return WHITE_SPACE.sub(" ", text).strip(" ")


async def review_runs(messages: Sequence[ToReview], store: str, board: Board | None = None) -> Mapping[str, Any]:
    """Review all messages, 100 at a time; where each ended, and the faults of the histories."""
    shown = board or Board()
    ends: dict[str, str] = {}
    faults: list[str] = []
    with ScriptedModel(model_of(messages)) as model:
        app = App(
            [content_review],
            store=store,
            services=[board_at(shown)],
            models={"default": Model("scripted", base_url=model.base_url, api_key="test")},
        )
        seen = Seen()
        seen.watch(app, content_review)
        async with app:
            for message in messages:
                await app.start(content_review, Message(id=message.id, text=message.text), id=message.id)
            for message in messages:
                run = await reviewed(app, message)
                ends[message.id] = str(run.end)
                faults += await faults_of_history(app, content_review, run, seen)
    return {"ends": ends, "faults": faults, "published": [id for id, _ in await shown.entries("published")]}


async def reviewed(app: App, message: ToReview) -> Snapshot[Message]:
    """The run of a message, once it has ended; a person decides if one is asked."""
    start = Message(id=message.id, text=message.text)
    run = await app.run(content_review, start, id=message.id, timeout=WITHIN)
    if run.status == "waiting":
        await app.decide(run.waits[0].id, Decision(message.decision or "publish"), actor=PERSON)
        run = await app.run(content_review, start, id=message.id, timeout=WITHIN)
    return run


def board_at(board: Board) -> Callable[[], AbstractAsyncContextManager[Board]]:
    """A service factory that gives this board."""

    @asynccontextmanager
    async def make_board() -> AsyncGenerator[Board, None]:
        yield board

    return make_board
