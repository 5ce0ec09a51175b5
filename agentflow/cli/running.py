"""`run`: one run from one input, or a whole batch from a file."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from agentflow.app.app import App
from agentflow.cli.commands import common
from agentflow.cli.driving import drive_on
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options, find_workflow, load_app
from agentflow.cli.output import note, say, say_json, say_table
from agentflow.cli.showing import run_object, standing
from agentflow.cli.typed import json_object, named_values
from agentflow.errors import InvalidInput
from agentflow.model.context import Context, describe
from agentflow.model.definition import Definition
from agentflow.model.views import Snapshot


@click.command()
@click.argument("workflow")
@click.option("-c", "pairs", multiple=True, metavar="NAME=VALUE", help="A field of the context; JSON, else text.")
@click.option("--context", "given", metavar="JSON|@FILE", help="The whole context.")
@click.option("--id", "run_id", metavar="RUN", help="The run's id; starting it again goes on with it.")
@click.option("--wait/--no-wait", default=True, help="Follow the run until it ends or waits for a person.")
@click.option("--timeout", type=float, metavar="SECONDS", help="How long to follow it.")
@click.option("--inputs", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A context a line.")
@click.option("--batch", metavar="NAME", help="The batch's name; running it again retries what failed.")
@common
def run(options: Options, workflow: str, **chosen: Any) -> int:
    """Start a run and follow it, or a whole batch.

    Examples: agentflow run refund -c id=t1 -c user_id=u1 -c request="Cancel my order";
    agentflow run content_review --inputs messages.jsonl --batch monday
    """
    app = load_app(options)
    definition = find_workflow(app, workflow)
    if chosen["inputs"] is not None or chosen["batch"] is not None:
        return _run_batch(options, app, definition, chosen)
    context = context_of(definition, chosen["given"], chosen["pairs"])
    if not chosen["wait"]:
        app.leave_to_workers()
    started = app.start_sync(definition.workflow, context, id=chosen["run_id"])
    if not chosen["wait"]:
        say_json(run_object(started)) if options.json else say(standing(started))
        return ExitCode.OK
    note(f"run {started.id}")
    return drive_on(options, app, started.id, seconds=chosen["timeout"])


def context_of(definition: Definition, given: str | None, pairs: Sequence[str]) -> Context:
    """The context that was typed. Raises `InvalidInput` that names each field."""
    values: dict[str, Any] = {}
    if given is not None:
        values.update(json_object(_text_of(given), "--context"))
    values.update(named_values(definition.context.kind, tuple(pairs), "-c"))
    return validated(definition, values)


def _text_of(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--context {given}: {error.strerror}") from None


def validated(definition: Definition, values: dict[str, Any]) -> Context:
    """A context of these values. Raises `InvalidInput` that names each field."""
    try:
        found: Context = definition.context.kind.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise InvalidInput(f"{definition.context.kind.__name__}: {describe(error)}") from None
    return found


# --- a batch -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchInput:
    """One line of an input file."""

    run: str
    context: Context


def _run_batch(options: Options, app: App, definition: Definition, chosen: dict[str, Any]) -> int:
    if chosen["inputs"] is None or chosen["batch"] is None:
        raise InvalidInput("a batch needs both --inputs FILE and --batch NAME")
    if chosen["pairs"] or chosen["given"] or chosen["run_id"]:
        raise InvalidInput("a batch takes its contexts from --inputs alone; leave out -c, --context and --id")
    inputs = read_inputs(definition, chosen["inputs"], chosen["batch"])
    done = asyncio.run(_follow_all(app, definition, inputs, chosen["batch"], quiet=options.json))
    return _summary(options, chosen["batch"], done)


def read_inputs(definition: Definition, file: Path, batch: str) -> list[BatchInput]:
    """All lines of an input file. Raises `InvalidInput` with every bad line; nothing was started then."""
    found: list[BatchInput] = []
    problems: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = json_object(line, "line")
            key = str(values.get("id", number))
            if "id" not in definition.context.kind.model_fields:
                values.pop("id", None)
            found.append(BatchInput(f"{batch}/{key}", validated(definition, values)))
        except InvalidInput as error:
            problems.append(f"line {number}: {str(error).removeprefix('line: ')}")
    repeated = [run for run, count in Counter(item.run for item in found).items() if count > 1]
    problems += [f"the id of {run!r} stands in several lines" for run in repeated]
    if problems:
        raise InvalidInput(f"{file} cannot be run, nothing was started: " + "; ".join(problems))
    return found


async def _follow_all(
    app: App, definition: Definition, inputs: Sequence[BatchInput], batch: str, *, quiet: bool
) -> list[Snapshot[Any]]:
    """Start or go on with all runs; those that failed before are retried."""
    done: list[Snapshot[Any]] = []
    async with app:
        for item in inputs:
            started = await app.start(definition.workflow, item.context, id=item.run, batch=batch)
            if started.status == "failed" and started.end is None:
                await app.retry(item.run, reason=f"batch {batch} was run again")
        for number, item in enumerate(inputs, 1):
            done.append(await app.follow(item.run))
            if not quiet and (number % 100 == 0 or number == len(inputs)):
                note(f"{number} of {len(inputs)} runs are done or wait")
    return done


def _summary(options: Options, batch: str, done: Sequence[Snapshot[Any]]) -> int:
    counts = Counter((run.status, run.end.name if run.end else run.state.name) for run in done)
    rows = [(status, place, count) for (status, place), count in sorted(counts.items())]
    failed = [run for run in done if run.status in {"failed", "cancelled"}]
    if options.json:
        said = [{"status": status, "at": place, "runs": count} for status, place, count in rows]
        say_json({"batch": batch, "runs": len(done), "summary": said, "failed": [run.id for run in failed]})
    else:
        say_table(("status", "at", "runs"), rows)
        for run in failed[:10]:
            note(standing(run))
    if failed:
        return ExitCode.RUN_FAILED
    return ExitCode.WAITS if any(run.status == "waiting" for run in done) else ExitCode.OK
