"""`runs`: look at runs and command them."""

from typing import Any

import click

from agentflow.app.app import App
from agentflow.cli.commands import common
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import age, note, say, say_json, say_table
from agentflow.cli.showing import run_object, show_run
from agentflow.errors import InvalidInput, NotFound
from agentflow.model.values import Actor
from agentflow.model.views import Reply
from agentflow.store.rows import RunFilter

STATUSES = ["queued", "running", "waiting", "cancelling", "compensating", "completed", "failed", "cancelled"]


@click.group()
def runs() -> None:
    """Look at runs and command them."""


@runs.command("list")
@click.option("--status", type=click.Choice(STATUSES))
@click.option("--workflow", metavar="NAME")
@click.option("--batch", metavar="NAME")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--after", metavar="RUN", help="Go on after this run, the last of the page before.")
@common
def list_(options: Options, status: Any, workflow: Any, batch: Any, limit: int, after: Any) -> None:
    """Runs, newest first, also of workflows that this App does not know.

    Example: agentflow runs list --status failed
    """
    app = load_app(options)
    wanted = RunFilter(workflow=workflow, status=status, batch=batch, after=after, limit=limit)
    rows = app.rows_sync(wanted)
    if options.json:
        for row in rows:
            standing = row.standing
            say_json(
                {
                    "id": row.id,
                    "workflow": row.workflow,
                    "version": row.version,
                    "status": standing.status,
                    "state": standing.state,
                    "end": standing.end,
                    "blocked": standing.blocked,
                    "revision": row.revision,
                    "batch": row.batch,
                    "updated": row.updated_at,
                }
            )
        return
    say_table(
        ("id", "workflow", "status", "state", "revision", "changed"),
        [
            (
                row.id,
                row.workflow,
                row.standing.status + (" (blocked)" if row.standing.blocked else ""),
                row.standing.state,
                row.revision,
                age(row.updated_at) + " ago",
            )
            for row in rows
        ],
    )


@runs.command()
@click.argument("run", metavar="RUN[@REVISION]")
@common
def show(options: Options, run: str) -> None:
    """A run with its context and history, or as it was at a revision.

    Example: agentflow runs show ticket-7@2
    """
    app = load_app(options)
    name, revision = _split(app, run)
    snapshot = app.get_sync(name, revision=int(revision) if revision else None)
    history = [line for line in app.history_sync(name) if not revision or line.number <= int(revision)]
    if options.json:
        say_json({**run_object(snapshot), "history": history})
    else:
        show_run(snapshot, history)


def _split(app: App, run: str) -> tuple[str, str]:
    """The run and the revision that were typed; an id may hold an @ of its own."""
    name, mark, revision = run.rpartition("@")
    if not mark or not revision.isdigit():
        return run, ""
    try:
        app.get_sync(run)
    except NotFound:
        return name, revision
    return run, ""


@runs.command()
@click.argument("run")
@common
def why(options: Options, run: str) -> None:
    """What a run waits for, or why it ended as it did.

    Example: agentflow runs why ticket-7
    """
    found = load_app(options).why_sync(run)
    if options.json:
        say_json({"run": run, "text": found.text, "waker": found.waker})
    else:
        say(found.text)


@runs.command()
@click.argument("run")
@click.option("--as", "user", metavar="USER", help="Who commands.")
@click.option("--reason", default="", metavar="TEXT")
@click.option("--request", metavar="ID", help="Repeating a request id does nothing.")
@click.option("--no-drive", is_flag=True, help="Leave the run to a worker.")
@common
def retry(options: Options, run: str, user: Any, reason: str, request: Any, no_drive: bool) -> int:
    """Go on with a failed run, from the state that failed.

    Example: agentflow runs retry ticket-7 --reason "the provider is back"
    """
    app = load_app(options)
    if no_drive:
        app.leave_to_workers()
    reply = app.retry_sync(run, **_by(user, reason, request))
    code = tell(options, run, reply)
    if reply.status == "refused" or no_drive:
        return code
    return drive_on(options, app, run)


@runs.command()
@click.argument("run")
@click.option("--as", "user", metavar="USER", help="Who commands.")
@click.option("--reason", default="", metavar="TEXT")
@click.option("--request", metavar="ID", help="Repeating a request id does nothing.")
@common
def cancel(options: Options, run: str, user: Any, reason: str, request: Any) -> int:
    """Stop a run at its next commit.

    Example: agentflow runs cancel ticket-7 --reason "the customer withdrew"
    """
    return tell(options, run, load_app(options).cancel_sync(run, **_by(user, reason, request)))


def _by(user: str | None, reason: str, request: str | None) -> Any:
    by: dict[str, Any] = {"reason": reason}
    if user is not None:
        by["actor"] = Actor(user, source="cli")
    if request is not None:
        by["request"] = request
    return by


def tell(options: Options, subject: str, reply: Reply) -> int:
    """What became of a command, and its exit code."""
    if options.json:
        say_json({"subject": subject, "status": reply.status, "why": reply.why})
    elif reply.status == "refused":
        note(f"agentflow: refused: {reply.why}")
    else:
        note(f"{reply.status}: {reply.why}")
    return ExitCode.CONFLICT if reply.status == "refused" else ExitCode.OK


def drive_on(options: Options, app: Any, run: str, *, seconds: float | None = None) -> int:
    """Drive a run until it ends or waits, and say where it stands."""
    from datetime import timedelta  # noqa: PLC0415

    from agentflow.cli.showing import standing  # noqa: PLC0415

    snapshot = app.follow_sync(run, timeout=None if seconds is None else timedelta(seconds=seconds))
    if options.json:
        say_json(run_object(snapshot))
    else:
        say(standing(snapshot))
    return exit_of(snapshot.status)


def exit_of(status: str) -> int:
    """The exit code for the status in which a run was left."""
    if status in {"failed", "cancelled"}:
        return ExitCode.RUN_FAILED
    return ExitCode.WAITS if status == "waiting" else ExitCode.OK


def one_wait(app: Any, target: str) -> Any:
    """The wait of that id, or the only one of that run. Raises `InvalidInput` if it has several."""
    waits = app.waits_sync(target)
    if len(waits) > 1:
        ids = ", ".join(wait.id for wait in waits)
        raise InvalidInput(f"run {target!r} has several open waits; name one: {ids}")
    return waits[0]
