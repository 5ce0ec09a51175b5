"""`runs`: look at runs and command them."""

from typing import Any

import click

from agentflow.cli.commands import common
from agentflow.cli.driving import by_of, drive_on, named_revision, tell
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import age, say, say_json, say_table
from agentflow.cli.past import diff, export, fork, replay, watch
from agentflow.cli.showing import raw_object, run_object, show_raw, show_run
from agentflow.cli.typed import typed_limits
from agentflow.errors import IncompatibleDefinition, InvalidContext
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
                    "paused": row.paused,
                    "blocked": standing.blocked,
                    "revision": row.revision,
                    "batch": row.batch,
                    "updated": row.updated_at,
                }
            )
        return
    say_table(
        ("id", "workflow", "version", "status", "state", "revision", "changed"),
        [
            (
                row.id,
                row.workflow,
                row.version,
                row.standing.status + (" (paused)" if row.paused else " (blocked)" if row.standing.blocked else ""),
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
    """A run with its context and history, or as it was at a revision; as it is stored where the App has other code.

    Example: agentflow runs show ticket-7@2
    """
    app = load_app(options)
    name, revision = named_revision(app, run)
    history = [line for line in app.history_sync(name) if revision is None or line.number <= revision]
    try:
        snapshot = app.get_sync(name, revision=revision)
    except (IncompatibleDefinition, InvalidContext) as error:  # of other code: it is shown as it is stored
        document = app.export_sync(name)
        if options.json:
            say_json({**raw_object(document, history, str(error)), "history": history})
        else:
            show_raw(document, history, str(error))
        return
    if options.json:
        say_json({**run_object(snapshot), "history": history})
    else:
        show_run(snapshot, history)


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
    reply = app.retry_sync(run, **by_of(user, reason, request))
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
    return tell(options, run, load_app(options).cancel_sync(run, **by_of(user, reason, request)))


@runs.command()
@click.argument("run")
@click.option("--as", "user", metavar="USER", help="Who commands.")
@click.option("--reason", default="", metavar="TEXT")
@click.option("--request", metavar="ID", help="Repeating a request id does nothing.")
@common
def pause(options: Options, run: str, user: Any, reason: str, request: Any) -> int:
    """Let a run stand still once the body at work is done.

    Example: agentflow runs pause ticket-7 --reason "the shop is down"
    """
    return tell(options, run, load_app(options).pause_sync(run, **by_of(user, reason, request)))


@runs.command()
@click.argument("run")
@click.option("--limit", "limits", multiple=True, metavar="NAME=VALUE", help="Raise a limit for this run: visits=20.")
@click.option("--as", "user", metavar="USER", help="Who commands.")
@click.option("--reason", default="", metavar="TEXT")
@click.option("--request", metavar="ID", help="Repeating a request id does nothing.")
@click.option("--no-drive", is_flag=True, help="Leave the run to a worker.")
@common
def resume(
    options: Options, run: str, limits: tuple[str, ...], user: Any, reason: str, request: Any, no_drive: bool
) -> int:
    """Go on with a run that is paused or blocked, with raised limits if given.

    Example: agentflow runs resume ticket-7 --limit cost=2.50 --limit wall_time=P7D
    """
    raised = typed_limits(limits)
    app = load_app(options)
    if no_drive:
        app.leave_to_workers()
    reply = app.resume_sync(run, limits=raised, **by_of(user, reason, request))
    code = tell(options, run, reply)
    if reply.status == "refused" or no_drive:
        return code
    return drive_on(options, app, run)


for command in (watch, export, fork, diff, replay):
    runs.add_command(command)
