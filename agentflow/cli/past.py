"""Commands of `runs` about its history: watch it grow, export it, fork from it, compare it, judge it anew."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import click
import pydantic_core
from pydantic import ValidationError

from agentflow.app.app import App
from agentflow.cli.commands import common
from agentflow.cli.driving import by_of, drive_on, exit_of, named_revision
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import instant, note, say, say_json, say_table
from agentflow.cli.showing import run_object, standing, told
from agentflow.cli.typed import named_values
from agentflow.errors import InvalidInput
from agentflow.model.context import ContextPlan, plan_of
from agentflow.model.views import Compared, Judged, Replayed, Revision, Snapshot

# --- watch -------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("run")
@common
def watch(options: Options, run: str) -> int:
    """Show a run's transitions as they happen, whichever process drives it, until it ends.

    What has happened before comes first; --json prints an object a line. Ctrl-C ends the watching and not the run. Exits
    with 0 for a completed run, with 6 for a failed or cancelled one. Example: agentflow runs watch ticket-7
    """
    return asyncio.run(_watch(options, load_app(options), run))


async def _watch(options: Options, app: App, run: str) -> int:
    try:
        async for line in app.stream(run):
            _show(options, line)
        snapshot: Snapshot[Any] = await app.get(run)
    finally:
        await app.close()
    if not options.json:
        say(standing(snapshot))
    return exit_of(snapshot)


def _show(options: Options, line: Revision) -> None:
    if options.json:
        say_json(line)
    else:
        say(f"{line.number:>4}  {instant(line.at)[11:]}  {told(line)}")


# --- export ------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("run")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it into a file.")
@common
def export(options: Options, run: str, output: Path | None) -> None:
    """Print all that is stored about a run as one JSON document: history, effects, questions, commands, context.

    It needs no workflow, so that runs of any version can be kept or sent along with a bug report.
    Example: agentflow runs export ticket-7 -o ticket-7.json
    """
    document = pydantic_core.to_json(load_app(options).export_sync(run), indent=2, inf_nan_mode="strings").decode()
    if output is None:
        say(document)
        return
    try:
        output.write_text(document + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--output {output}: {error.strerror}") from None
    note(f"wrote {output}")


# --- fork --------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("run", metavar="RUN@REVISION")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Another value for a field; JSON, else text.")
@click.option("--id", "new", metavar="ID", help="The id of the new run; forking it again goes on with it.")
@click.option(
    "--effects",
    type=click.Choice(["held", "live"]),
    default="held",
    show_default=True,
    help="Whether effects may act that the run did not record.",
)
@click.option("--as", "user", metavar="USER", help="Who commands.")
@click.option("--reason", default="", metavar="TEXT")
@click.option("--request", metavar="ID", help="Repeating a request id finds the fork that it made.")
@click.option("--no-drive", is_flag=True, help="Leave the new run to a worker.")
@common
def fork(
    options: Options,
    run: str,
    pairs: tuple[str, ...],
    new: str | None,
    effects: Literal["held", "live"],
    user: str | None,
    reason: str,
    request: str | None,
    no_drive: bool,
) -> int:
    """Start a new run where another one stood, with other data if you like; the old run is not touched.

    Effects that the run recorded are replayed. Others are held back, which blocks the new run, unless you say
    `--effects live`. A person who was asked there is asked anew.
    Example: agentflow runs fork ticket-7@2 --set amount=40 --id ticket-7b --as ada --reason "what if it were less?"
    """
    app = load_app(options)
    if no_drive:
        app.leave_to_workers()
    name, revision = named_revision(app, run)
    if revision is None:
        snapshot: Snapshot[Any] = app.get_sync(name)
        raise InvalidInput(f"{run}: say from which revision, such as {name}@{max(0, snapshot.revision - 1)}")
    change = _change(app, name, pairs)
    by = by_of(user, reason, request)
    started = app.fork_sync(name, revision, change=change, effects=effects, id=new, **by)
    note(f"run {started.id} is a fork of {name}@{revision}, effects {effects}")
    if no_drive:
        say_json(run_object(started)) if options.json else say(standing(started))
        return ExitCode.OK
    return drive_on(options, app, started.id)


def _change(app: App, run: str, pairs: tuple[str, ...]) -> dict[str, Any]:
    """What was typed as NAME=VALUE, as values of the fields. Raises `InvalidInput` for a field that there is not."""
    snapshot: Any = app.get_sync(run)
    plan: ContextPlan[Any] = plan_of(snapshot.context.__class__)
    return {name: _value(plan, name, typed) for name, typed in named_values(plan.kind, pairs, "--set").items()}


def _value(plan: ContextPlan[Any], name: str, typed: Any) -> Any:
    """The value of a field as JSON gives it; what does not fit is left as it was typed, to be refused with the rest."""
    field = plan.fields[name]
    if field.append:
        return typed
    try:
        return field.load(pydantic_core.to_json(typed))
    except ValidationError:
        return typed


# --- diff --------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("one", metavar="RUN[@REVISION]")
@click.argument("other", metavar="RUN[@REVISION]")
@click.option("--exit-code", is_flag=True, help="Exit with 11 if path or context differ.")
@common
def diff(options: Options, one: str, other: str, exit_code: bool) -> int:
    """Say where the paths of two runs part, which fields of their contexts differ, and what each has used.

    A fork is compared from the very start, with what its origin did before it.
    Example: agentflow runs diff ticket-7 ticket-7b
    """
    app = load_app(options)
    (run, revision), (run_of_other, revision_of_other) = named_revision(app, one), named_revision(app, other)
    found = app.compare_sync(run, run_of_other, revision=revision, other_revision=revision_of_other)
    if options.json:
        say_json(_compared(found))
    else:
        _show_compared(found)
    return ExitCode.DIFFERS if exit_code and not found.equal else ExitCode.OK


def _compared(found: Compared) -> dict[str, Any]:
    return {
        "one": found.one,
        "other": found.other,
        "equal": found.equal,
        "shared": found.shared,
        "parts": {"one": found.parts[0], "other": found.parts[1]},
        "fields": [
            {"path": field.path, "one": _json(field.one), "other": _json(field.other)} for field in found.fields
        ],
        "spent": {"one": found.spent[0], "other": found.spent[1]},
    }


def _json(text: str | None) -> dict[str, Any] | None:
    """A side of a difference; None where the field is missing, which is not the same as null."""
    return None if text is None else {"value": pydantic_core.from_json(text)}


def _show_compared(found: Compared) -> None:
    if found.parts == (None, None):
        say(f"{found.one} and {found.other} took the same path: {_count(found.shared, 'transition')}")
    else:
        say(f"{found.one} and {found.other} share {_count(found.shared, 'transition')}, then part:")
        for name, line in zip((found.one, found.other), found.parts, strict=True):
            say(f"  {name}  {'is over or stands still' if line is None else told(line)}")
    say()
    say(f"fields that differ, {found.one} -> {found.other}" if found.fields else "their contexts are the same")
    width = max((len(field.path) for field in found.fields), default=0)
    for field in found.fields:
        say(f"  {field.path.ljust(width)}  {_side(field.one)} -> {_side(field.other)}")
    say()
    sides = zip((found.one, found.other), found.spent, strict=True)
    say_table(
        ("run", "transitions", "model calls", "tokens", "cost"),
        [(name, spent.transitions, spent.model_calls, spent.tokens, spent.cost) for name, spent in sides],
    )


def _side(text: str | None) -> str:
    if text is None:
        return "(missing)"
    return text if len(text) <= 36 else text[:33] + "..."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# --- replay ------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("run")
@common
def replay(options: Options, run: str) -> int:
    """Say whether the code at hand would lead a run's recorded answers the same way.

    Nothing is run: bodies, models and effects stay untouched; the table and the guards of today decide over what was
    answered then. Exits with 0 for the same path, with 11 for another one.
    Example: agentflow runs replay ticket-7
    """
    found = load_app(options).replay_sync(run)
    if options.json:
        say_json(found)
    else:
        _show_replayed(found)
    return ExitCode.OK if found.same else ExitCode.DIFFERS


def _show_replayed(found: Replayed) -> None:
    if found.difference is None:
        say(f"{found.run}: the same path, {_count(found.checked, 'transition')} by version {found.version}")
    else:
        number = found.difference.then.number
        say(f"{found.run}: another path from transition {number} on, by version {found.version}")
        say(f"  then  {told(found.difference.then)}")
        say(f"  now   {_now(found.difference)}")
    for judged in found.guards:
        say(f"  transition {judged.then.number} leads to the same place past other guards: {_guards(judged)}")
    if found.gone:
        say(f"  no longer in the workflow: {', '.join(found.gone)}")
    if found.changed:
        say(f"  code changed since: {', '.join(found.changed)}")


def _now(judged: Judged) -> str:
    guards = f"  ({_guards(judged)})" if judged.guards else ""
    way = f"{judged.then.source} -> {judged.target}{guards}" if judged.target is not None else "nowhere"
    return f"{way}: {judged.why}" if judged.why else way


def _guards(judged: Judged) -> str:
    return ", ".join(f"{'' if result else 'not '}{name}" for name, result in judged.guards.items()) or "none"
