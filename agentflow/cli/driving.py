"""What commands to runs share: which run was meant, who commands, what became of it, and driving the run on."""

from datetime import timedelta
from typing import Any

from agentflow.app.app import App
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options
from agentflow.cli.output import note, say, say_json
from agentflow.cli.showing import run_object, standing
from agentflow.errors import InvalidInput, NotFound
from agentflow.model.values import Actor
from agentflow.model.views import Reply, Snapshot


def named_revision(app: App, typed: str) -> tuple[str, int | None]:
    """The run and the revision that were typed as RUN@REVISION; an id may hold an @ of its own."""
    name, mark, revision = typed.rpartition("@")
    if not mark or not revision.isdigit():
        return typed, None
    try:
        app.why_sync(typed)
    except NotFound:
        return name, int(revision)
    return typed, None


def by_of(user: str | None, reason: str, request: str | None) -> Any:
    """Who commands, as verbs take it."""
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


def drive_on(options: Options, app: App, run: str, *, seconds: float | None = None) -> int:
    """Drive a run until it ends or waits, and say where it stands."""
    snapshot: Snapshot[Any] = app.follow_sync(run, timeout=None if seconds is None else timedelta(seconds=seconds))
    if options.json:
        say_json(run_object(snapshot))
    else:
        say(standing(snapshot))
    return exit_of(snapshot)


def exit_of(run: Snapshot[Any]) -> int:
    """The exit code for where a run was left."""
    if run.status in {"failed", "cancelled"}:
        return ExitCode.RUN_FAILED
    return ExitCode.WAITS if run.status == "waiting" or run.blocked is not None else ExitCode.OK


def one_wait(app: App, target: str) -> Any:
    """The wait of that id, or the only one of that run. Raises `InvalidInput` if it has several."""
    waits = app.waits_sync(target)
    if len(waits) > 1:
        ids = ", ".join(wait.id for wait in waits)
        raise InvalidInput(f"run {target!r} has several open waits; name one: {ids}")
    return waits[0]
