"""`effects`: the ledger of what acted on the world, and doubts to be settled by hand."""

import contextlib
import json
from typing import Any, Literal

import click

from agentflow.cli.commands import common
from agentflow.cli.driving import by_of, tell
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import age, note, say_json, say_table
from agentflow.errors import InvalidInput, RunError
from agentflow.model.views import Effect


@click.group()
def effects() -> None:
    """See what acted on the world, and settle what is unclear."""


@effects.command("list")
@click.option("--run", metavar="RUN")
@click.option("--status", type=click.Choice(["unclear", "claimed", "done", "not_happened"]))
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@common
def list_(options: Options, run: str | None, status: Any, limit: int) -> None:
    """Effects in the order in which they were begun.

    Example: agentflow effects list --status unclear
    """
    found = load_app(options).effects_sync(run, status, limit)
    if options.json:
        for effect in found:
            say_json(effect)
        return
    say_table(
        ("status", "begun", "key", "result or error"),
        [(_status(effect), f"{age(effect.begun)} ago", effect.key, _outcome(effect)) for effect in found],
    )


def _status(effect: Effect) -> str:
    return "at work" if effect.at_work else effect.status


def _outcome(effect: Effect) -> str:
    text = effect.error or ("" if effect.result is None else json.dumps(effect.result, ensure_ascii=False))
    flat = " ".join(text.split())
    return flat if len(flat) <= 50 else flat[:47] + "..."


@effects.command()
@click.argument("key")
@click.argument("fate", type=click.Choice(["happened", "not"]), metavar="happened|not")
@click.option("--result", metavar="JSON", help="What the call would have returned; the body gets it.")
@click.option("--evidence", required=True, metavar="TEXT", help="How you know; it is kept for the audit.")
@click.option("--as", "user", metavar="USER", help="Who found it out.")
@click.option("--reason", default="", metavar="TEXT")
@click.option("--request", metavar="ID", help="Repeating a request id does nothing.")
@common
def resolve(
    options: Options,
    key: str,
    fate: Literal["happened", "not"],
    result: str | None,
    evidence: str,
    user: str | None,
    reason: str,
    request: str | None,
) -> int:
    """Say whether an unclear effect took place, so that its run can go on.

    Example: agentflow effects resolve ticket-7:pay:1:pay happened --result '"R-17"' --evidence "bank statement 3/12" --as
    ada
    """
    app = load_app(options)
    by = by_of(user, reason, request)
    reply = app.resolve_effect_sync(key, fate == "happened", _result(result), evidence=evidence, **by)
    code = tell(options, key, reply)
    if not options.json and reply.status != "refused":
        _say_what_next(app, key)
    return code


def _result(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"--result: no JSON: {error.msg} at character {error.pos + 1}; a text has quotes of its own: "
            f"--result '{json.dumps(text)}'"
        ) from None


def _say_what_next(app: Any, key: str) -> None:
    """The command that lets the run go on, where it takes one."""
    run = key.partition(":")[0]
    with contextlib.suppress(RunError):  # of a workflow that this App does not know
        snapshot = app.get_sync(run)
        if snapshot.status == "failed" and snapshot.end is None:
            note(f"next: agentflow runs retry {run}")
