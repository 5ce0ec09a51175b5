"""`demo`: the shipped workflows, offline: real store, real runner, a model that answers from a file."""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from agentflow.app.app import App
from agentflow.cli.commands import common
from agentflow.cli.loading import Options, bundled, bundled_inputs
from agentflow.cli.output import say, say_json, say_table
from agentflow.cli.showing import run_object, show_history
from agentflow.llm.client import ModelReply, ModelRequest
from agentflow.model.values import Actor, Model
from agentflow.model.views import Snapshot

STAY = timedelta(seconds=60)


@click.command()
@click.argument("which", type=click.Choice(["refund", "review"]), default="refund")
@click.option("--approve", type=click.Choice(["auto", "ask"]), default="auto", help="Who decides the first wait.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to keep the demo's files.")
@common
def demo(options: Options, which: str, approve: str, folder: Path | None) -> None:
    """Run the shipped workflows offline, with a scripted model.

    It runs a dozen inputs, stops where a person must decide, shows the commands with which you can decide in another
    terminal, decides one itself, and prints that run's history and why it ended. Example: agentflow demo
    """
    place = folder or Path(tempfile.mkdtemp(prefix="agentflow-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    scene = SCENES[which](place)
    with scene.app as app:
        runs = [_run(app, scene, item) for item in scene.inputs]
        _decide_one(options, scene, app, runs, ask=approve == "ask")


@dataclass(frozen=True, slots=True)
class Scene:
    """One demonstration: an App over fresh files, and what goes through it."""

    title: str
    app: App
    workflow: Any
    inputs: Sequence[Any]
    outcome: Any
    role: str
    variables: Sequence[str]
    program: str


def _run(app: App, scene: Scene, context: Any) -> Snapshot[Any]:
    return app.run_sync(scene.workflow, context, id=context.id, timeout=STAY)


def _decide_one(options: Options, scene: Scene, app: App, runs: Sequence[Snapshot[Any]], *, ask: bool) -> None:
    waiting = [run for run in runs if run.status == "waiting"]
    chosen = waiting[0]
    if not options.json:
        _tell_where_all_are(scene, runs, waiting)
        say(f"A person is asked about {chosen.id}: {chosen.waits[0].question}")
    if ask and not click.confirm("Approve it?", default=True):
        say("It waits on; decide it with the commands above.")
        return
    actor = Actor("ada@shop.example", source="demo", roles=(scene.role,))
    app.decide_sync(chosen.waits[0].id, scene.outcome, actor=actor, comment="the demo says yes")
    done = app.result_sync(chosen.id, timeout=STAY)
    history, why = app.history_sync(chosen.id), app.why_sync(chosen.id)
    if options.json:
        say_json({"runs": [run_object(run) for run in runs], "decided": run_object(done), "why": why.text})
        return
    say(f"{actor.subject} answers {scene.outcome.name}. The history of {chosen.id}:")
    say()
    show_history(history)
    say()
    say(f"Why: {why.text}")


def _tell_where_all_are(scene: Scene, runs: Sequence[Snapshot[Any]], waiting: Sequence[Snapshot[Any]]) -> None:
    say(scene.title)
    say()
    say_table(
        ("run", "status", "at", "transitions"),
        [(run.id, run.status, run.end.name if run.end else run.state.name, run.revision) for run in runs],
    )
    say()
    say("These wait for a person. Decide them from another terminal, now or next week:")
    say()
    for variable in scene.variables:
        say(f"  export {variable}")
    say(f"  {scene.program} approvals list")
    for run in waiting[1:] or waiting:
        say(f"  {scene.program} approvals decide {run.id} {scene.outcome.name} --as you --role {scene.role}")
    say()


# --- scenes ------------------------------------------------------------------------------------------------------


def _refund_scene(place: Path) -> Scene:
    _shipped_importable()
    from definitions.order_system import open_orders  # noqa: PLC0415  shipped beside the package, found just now
    from definitions.refund import Case, Verdict, refund  # noqa: PLC0415

    shop = place / "shop"
    if not shop.exists():
        ignore = shutil.ignore_patterns(".lock", "changes.json", "outbox.json")
        shutil.copytree(bundled_inputs() / "shop", shop, ignore=ignore)
    os.environ["AGENTFLOW_ORDERS"] = str(shop)
    tickets = _lines("tickets.jsonl")
    answers = json.loads((bundled_inputs() / "tickets.answers.json").read_text(encoding="utf-8"))
    model = AnswersFromFile({ticket["request"]: answers[ticket["id"]] for ticket in tickets if ticket["id"] in answers})
    database = f"sqlite:///{place / 'demo.db'}"
    app = App([refund], store=database, services=[open_orders], models={"default": Model("scripted")})
    app.answer_with(model)
    return Scene(
        title=f"{len(tickets)} refund tickets, a scripted model, an SQLite file in {place}",
        app=app,
        workflow=refund,
        inputs=[Case(**ticket) for ticket in tickets],
        outcome=Verdict.APPROVE,
        role="refunds",
        variables=_variables(AGENTFLOW_DB=database, AGENTFLOW_ORDERS=str(shop)),
        program=_program(),
    )


def _review_scene(place: Path) -> Scene:
    _shipped_importable()
    from definitions.board import open_board  # noqa: PLC0415
    from definitions.content_review import Decision, Message, content_review  # noqa: PLC0415

    os.environ["AGENTFLOW_BOARD"] = str(place / "board.jsonl")
    messages = _lines("messages.jsonl")
    answers = json.loads((bundled_inputs() / "messages.answers.json").read_text(encoding="utf-8"))
    model = AnswersFromFile({" ".join(row["text"].split()): answers[row["id"]] for row in messages})
    database = f"sqlite:///{place / 'demo.db'}"
    app = App([content_review], store=database, services=[open_board], models={"default": Model("scripted")})
    app.answer_with(model)
    return Scene(
        title=f"{len(messages)} messages, a scripted model, an SQLite file in {place}",
        app=app,
        workflow=content_review,
        inputs=[Message(**row) for row in messages],
        outcome=Decision.PUBLISH,
        role="moderators",
        variables=_variables(AGENTFLOW_DB=database, AGENTFLOW_BOARD=str(place / "board.jsonl")),
        program=_program(),
    )


SCENES = {"refund": _refund_scene, "review": _review_scene}


def _shipped_importable() -> None:
    if str(bundled()) not in sys.path:
        sys.path.insert(0, str(bundled()))


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (bundled_inputs() / name).read_text(encoding="utf-8").splitlines() if line]


def _variables(**variables: str) -> Sequence[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in variables.items()]


def _program() -> str:
    """A command that works in another terminal, from the folder in which this one was given."""
    installed = Path(sys.executable).parent / "agentflow"
    on_path = shutil.which("agentflow")
    here = Path.cwd()
    shown = installed.relative_to(here) if installed.is_relative_to(here) else installed
    program = "agentflow" if on_path and Path(on_path) == installed else str(shown)
    return f"{shlex.quote(program)} --app definitions.app:app"


@dataclass(frozen=True, slots=True)
class AnswersFromFile:
    """A model that finds the input in its prompt and gives the answer that belongs to it."""

    answers: Mapping[str, Mapping[str, Any]]

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The answer of the longest input that the prompt holds."""
        prompt = "\n".join(message.content for message in request.messages)
        found = max((text for text in self.answers if text in prompt), key=len)
        return ModelReply(
            json.dumps(self.answers[found]),
            finish="stop",
            model="scripted",
            tokens_in=len(prompt) // 4,
            tokens_out=40,
        )
