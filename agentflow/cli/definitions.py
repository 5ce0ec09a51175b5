"""`check` and `graph`: what can be said about workflows without running them."""

from pathlib import Path
from typing import Any

import click

from agentflow.analysis.draw import NOWHERE, Trail, mermaid, spine
from agentflow.app.app import App
from agentflow.cli.commands import common
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options, find_workflow, load_app
from agentflow.cli.output import note, say, say_json
from agentflow.errors import NotFound
from agentflow.model.definition import Definition


@click.command()
@click.argument("workflow", required=False)
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@common
def check(options: Options, workflow: str | None, strict: bool) -> int:
    """List all problems of the workflows, with source lines.

    Importing the App builds its workflows, so their errors show here all at once; warnings follow for those that can
    run. Example: agentflow check --strict
    """
    app = load_app(options)
    found = [find_workflow(app, workflow)] if workflow else list(app.definitions)
    warned = [warning for definition in found for warning in definition.warnings]
    if options.json:
        say_json({"workflows": [_described(definition) for definition in found]})
    else:
        for definition in found:
            for warning in definition.warnings:
                say(f"warning: {warning}")
            rows, states = len(definition.rows), len(definition.states)
            counts = f"{_counted(states, 'state')}, {_counted(rows, 'row')}"
            say(f"{definition.name} v{definition.version}: {counts}, {_verdict(definition)}")
    return ExitCode.DEFINITION if strict and warned else ExitCode.OK


def _verdict(definition: Definition) -> str:
    count = len(definition.warnings)
    return _counted(count, "warning") if count else "no problems"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _described(definition: Definition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "version": definition.version,
        "states": len(definition.states),
        "rows": len(definition.rows),
        "shape": definition.shape,
        "code": definition.code,
        "warnings": list(definition.warnings),
        "errors": [],
    }


@click.command()
@click.argument("target", metavar="WORKFLOW|RUN")
@click.option("-f", "--format", "form", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it into a file.")
@common
def graph(options: Options, target: str, form: str, output: Path | None) -> None:
    """Draw a workflow, or where a run is in it.

    Example: agentflow graph refund -f mermaid -o refund.mmd
    """
    app = load_app(options)
    definition, trail = _subject(app, target)
    drawn = mermaid(definition, trail) if form == "mermaid" else spine(definition, trail)
    if output is not None:
        output.write_text(drawn, encoding="utf-8")
        note(f"wrote {output}")
    elif options.json:
        say_json({"workflow": definition.name, "format": form, "text": drawn})
    else:
        say(drawn.rstrip("\n"))


def _subject(app: App, target: str) -> tuple[Definition, Trail]:
    try:
        return find_workflow(app, target), NOWHERE
    except NotFound as unknown:
        try:
            snapshot = app.get_sync(target)
        except NotFound:
            raise NotFound(f"{unknown}; and there is no run {target!r}") from None
    visits: dict[str, int] = {}
    for line in app.history_sync(target):
        visits[line.target] = visits.get(line.target, 0) + 1
    return snapshot.state.owner.definition, Trail(visits, snapshot.state.name)
