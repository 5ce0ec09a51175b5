"""`deploy`: what becomes of stored runs under the code at hand, before it is let loose on them, and migrations."""

from typing import Any

import click

from agentflow.cli.commands import common
from agentflow.cli.driving import by_of
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options, find_workflow, load_app
from agentflow.cli.output import say, say_json, say_table
from agentflow.model.views import DeployCheck, MigratedRun, Prospect


@click.group()
def deploy() -> None:
    """Say what becomes of stored runs under this code, and migrate them."""


@deploy.command()
@click.argument("workflows", nargs=-1, metavar="[WORKFLOW]...")
@click.option("--strict", is_flag=True, help="Runs that wait for their migration count as blocked ones.")
@common
def check(options: Options, workflows: tuple[str, ...], strict: bool) -> int:
    """How many stored runs go on under this code, which are blocked, and why; nothing is changed.

    Without names it looks at all runs of the database, also those of workflows that this App does not have. Exits with 3
    if a run is blocked that is not over, else with 0; failed runs are told and do not count.
    Example: agentflow deploy check refund && ./deploy.sh
    """
    found = load_app(options).deploy_check_sync(*workflows)
    if options.json:
        say_json(_check_object(found))
    else:
        _show_check(found)
    is_fine = found.ok and not (strict and found.count("migrate"))
    return ExitCode.OK if is_fine else ExitCode.DEFINITION


def _check_object(found: DeployCheck) -> dict[str, Any]:
    counts = {fate: found.count(fate) for fate in ("continue", "migrate", "blocked")}
    return {"ok": found.ok, **counts, "prospects": list(found.prospects)}


def _show_check(found: DeployCheck) -> None:
    if found.prospects:
        say_table(
            ("workflow", "version", "shape", "state", "runs", "fate", "goes on in"),
            [
                (
                    one.workflow,
                    one.version,
                    one.shape[:8],
                    one.state,
                    f"{one.runs}{' failed' if one.failed else ''}",
                    one.fate,
                    _goes_on(one),
                )
                for one in found.prospects
            ],
        )
        say()
    for one in found.prospects:
        if one.fate == "blocked":
            say(f"blocked in {one.state} of {one.workflow} v{one.version}, such as {', '.join(one.examples)}:")
            say(f"  {one.reason}")
    say(f"{found.count('continue')} continue, {found.count('migrate')} migrate, {found.count('blocked')} blocked")


def _goes_on(one: Prospect) -> str:
    if one.fate == "blocked":
        return ""
    place = one.target or "several states"
    return place if one.to == one.version else f"{place} of version {one.to}"


@deploy.command()
@click.argument("workflow")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="This run, and not all; may be repeated.")
@click.option("--partly", is_flag=True, help="Migrate those that can be, although others cannot.")
@click.option("--as", "user", metavar="USER", help="Who commands.")
@click.option("--reason", default="", metavar="TEXT")
@click.option("--request", metavar="ID", help="Repeating a request id does nothing.")
@common
def migrate(
    options: Options,
    workflow: str,
    dry_run: bool,
    runs: tuple[str, ...],
    partly: bool,
    user: str | None,
    reason: str,
    request: str | None,
) -> int:
    """Put runs of older versions under the newest one of this App, by its migrations.

    Each run is tried before anything is written; if one has a problem, nothing is, unless `--partly`. Exits with 3 if a
    run has a problem. Example: agentflow deploy migrate refund --dry-run
    """
    app = load_app(options)
    definition = find_workflow(app, workflow)
    by = by_of(user, reason, request)
    found = app.migrate_sync(definition.workflow, runs=runs or None, dry_run=dry_run, partly=partly, **by)
    if options.json:
        for line in found:
            say_json(line)
    else:
        _show_migrated(found, dry_run=dry_run)
    return ExitCode.DEFINITION if any(line.problem for line in found) else ExitCode.OK


def _show_migrated(found: Any, *, dry_run: bool) -> None:
    if found:
        say_table(
            ("run", "version", "state", "context", "done"),
            [
                (line.run, f"{line.version} -> {line.to}", _way(line), _changes(line), "yes" if line.applied else "")
                for line in found
            ],
        )
        say()
    problems = sum(line.problem is not None for line in found)
    done = sum(line.applied for line in found)
    would = f"{len(found) - problems} would be migrated" if dry_run else f"{done} migrated"
    nothing = "; nothing was written" if problems and not done and not dry_run else ""
    say(f"{would}, {problems} cannot be{nothing}")


def _way(line: MigratedRun) -> str:
    if line.problem is not None:
        return line.state
    anew = ", asked anew" if line.asks_anew else ""
    return (line.state if line.state == line.target else f"{line.state} -> {line.target}") + anew


def _changes(line: MigratedRun) -> str:
    if line.problem is not None:
        return f"problem: {line.problem}"
    parts = [f"{change.path}: {_side(change.one)} -> {_side(change.other)}" for change in line.changes]
    return "; ".join(parts) or "as it is"


def _side(text: str | None) -> str:
    if text is None:
        return "(none)"
    return text if len(text) <= 24 else text[:21] + "..."
