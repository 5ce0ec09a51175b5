"""The command group: options that every command takes, and what becomes of an error."""

import dataclasses
import functools
import json
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click

from agentflow.cli.exits import ExitCode, code_of, error_object
from agentflow.cli.loading import Options

LAZY = {
    "check": "agentflow.cli.definitions",
    "graph": "agentflow.cli.definitions",
    "run": "agentflow.cli.running",
    "runs": "agentflow.cli.runs",
    "approvals": "agentflow.cli.approvals",
    "effects": "agentflow.cli.effects",
    "deploy": "agentflow.cli.deploy",
    "defs": "agentflow.cli.defs",
    "worker": "agentflow.cli.worker",
    "workers": "agentflow.cli.workers",
    "db": "agentflow.cli.db",
    "doctor": "agentflow.cli.doctor",
    "new": "agentflow.cli.new",
    "demo": "agentflow.cli.demo",
}
HELP = {
    "check": "List all problems of the workflows, with source lines.",
    "graph": "Draw a workflow, or where a run is in it.",
    "run": "Start a run and follow it, or a whole batch.",
    "runs": "Look at runs and command them.",
    "approvals": "See what waits for a person, and decide it.",
    "effects": "See what acted on the world, and settle what is unclear.",
    "deploy": "Say what becomes of stored runs under this code, and migrate them.",
    "defs": "See what workflows are and were, and how they differ.",
    "worker": "Drive everything that is due, until told to stop.",
    "workers": "See the processes that drive runs.",
    "db": "Copy the database into another one.",
    "doctor": "Say what is missing on this machine.",
    "new": "Write a small project to begin with.",
    "demo": "Run the shipped workflows offline, with a scripted model.",
}


class Commands(click.Group):
    """The commands, each loaded when it is used: `--help` loads no engine."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LAZY:
            return None
        module = __import__(LAZY[cmd_name], fromlist=[cmd_name])
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0], list(LAZY), n=1)
            hint = f" Did you mean {close[0]!r}?" if close and "Did you mean" not in error.message else ""
            raise click.UsageError(error.message + hint, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(HELP.items()))


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take `--app`, `--db` and `--json` after its name too, and hand it one `Options`."""

    @click.option("--app", metavar="MODULE:OBJECT", help="The App; else [tool.agentflow] app of pyproject.toml.")
    @click.option("--db", metavar="URL", envvar="AGENTFLOW_DB", help="Another store than the App's.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.pass_context
    @functools.wraps(command)
    def run(ctx: click.Context, /, app: str | None, db: str | None, as_json: bool, **rest: Any) -> Any:
        outer = ctx.find_object(Options) or Options()
        options = Options(app, db, as_json).over(outer)
        with_errors(functools.partial(command, options, **rest), options)

    return run


def with_errors(command: Callable[[], Any], options: Options) -> None:
    """Run a command; end with the exit code of what it returns or raises."""
    try:
        done = command()
    except (click.ClickException, BrokenPipeError):  # click knows what to do where nobody reads on
        raise
    except KeyboardInterrupt:
        click.echo("agentflow: interrupted; runs stay where they are", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        if options.verbose:
            raise
        sys.exit(report(error, options))
    sys.exit(done if isinstance(done, int) else ExitCode.OK)


def report(error: Exception, options: Options) -> int:
    """Say what went wrong, in one line or as JSON; the exit code."""
    found = code_of(error)
    code, word = found if found is not None else (ExitCode.INTERNAL, "internal")
    if options.json:
        click.echo(json.dumps(error_object(error, word), ensure_ascii=False), err=True)
    elif found is None:
        click.echo(f"agentflow: internal error: {type(error).__name__}: {error} (-v shows where)", err=True)
    else:
        click.echo(f"agentflow: error: {str(error) or type(error).__name__}", err=True)
    return int(code)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="agentflow-engine", prog_name="agentflow")
@click.option("--app", metavar="MODULE:OBJECT", help="The App; else [tool.agentflow] app of pyproject.toml.")
@click.option("--db", metavar="URL", help="Another store than the App's, such as sqlite:///runs.db.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show where an internal error arose.")
@click.pass_context
def main(ctx: click.Context, app: str | None, db: str | None, as_json: bool, verbose: bool) -> None:
    """Agent workflows as explicit state machines: check them, run them, decide in them, ask them why."""
    ctx.obj = dataclasses.replace(Options(), app=app, db=db, json=as_json, verbose=verbose)
