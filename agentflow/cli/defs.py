"""`defs`: what workflows are and were, also without their code, and how two of them differ."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pydantic_core

from agentflow.analysis.outlines import Line, is_same, mermaid_difference, named, outline_difference, told
from agentflow.app.app import App
from agentflow.cli.commands import common
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import instant, note, say, say_json, say_marked, say_table
from agentflow.errors import InvalidInput, NotFound
from agentflow.model.check import nearest
from agentflow.model.outline import Outline
from agentflow.model.views import Version

HOW = "NAME is the code at hand; NAME@2 a version, NAME@stored what runs stood under before, NAME@4f2a a shape."


@click.group()
def defs() -> None:
    """See what workflows are and were, and how they differ."""


@defs.command("list")
@click.argument("workflow", required=False)
@common
def list_(options: Options, workflow: str | None) -> None:
    """The workflows of the App, and what runs of the database stand or stood under.

    Example: agentflow defs list refund
    """
    found = load_app(options).versions_sync(workflow)
    if options.json:
        for one in found:
            say_json(one)
        return
    say_table(
        ("workflow", "version", "shape", "at hand", "first seen", "open runs"),
        [
            (one.workflow, one.version, one.shape, "yes" if one.at_hand else "", instant(one.first_seen), one.runs)
            for one in found
        ],
    )


@defs.command(epilog=HOW)
@click.argument("which", metavar="NAME[@WHICH]")
@common
def show(options: Options, which: str) -> None:
    """A workflow as it is, or was: states, ways out and context.

    Example: agentflow defs show refund@stored
    """
    outline = _outline(load_app(options), which)
    if options.json:
        say_json(pydantic_core.from_json(outline.text()))
    else:
        say(told(outline))


@defs.command(epilog=HOW)
@click.argument("one", metavar="NAME[@WHICH]")
@click.argument("other", metavar="[NAME[@WHICH]]", required=False)
@click.option("--mermaid", is_flag=True, help="Draw both as one flowchart, with the differences in colours.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it into a file.")
@click.option("--exit-code", is_flag=True, help="Exit with 11 if they differ.")
@common
def diff(options: Options, one: str, other: str | None, mermaid: bool, output: Path | None, exit_code: bool) -> int:
    """How two definitions differ: of one name alone, what runs stand under against the code at hand.

    Example: agentflow defs diff refund@1 refund@2 --mermaid -o refund.mmd
    """
    app = load_app(options)
    before = _outline(app, one if other is not None else f"{one.partition('@')[0]}@stored")
    after = _outline(app, other or one)
    lines = outline_difference(before, after)
    head = f"{_told(before)} -> {_told(after)}"
    if options.json:
        marked = [{"mark": line.mark, "text": line.text.strip()} for line in lines if line.mark != " "]
        say_json({"one": _told(before), "other": _told(after), "same": is_same(lines), "lines": marked})
    elif mermaid:
        _put(mermaid_difference(before, after), output)
    elif output is not None:
        _put("\n".join([head, *(f"{line.mark} {line.text}" for line in lines)]) + "\n", output)
    else:
        say_marked([Line(" ", head), Line(" ", ""), *lines])
    return ExitCode.DIFFERS if exit_code and not is_same(lines) else ExitCode.OK


def _put(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--output {output}: {error.strerror}") from None
    note(f"wrote {output}")


def _told(outline: Outline) -> str:
    return f"{named(outline)} ({outline.shape[:8]})"


def _outline(app: App, typed: str) -> Outline:
    """The outline that was typed as NAME[@WHICH]. Raises `NotFound`."""
    name, _, which = typed.partition("@")
    found = app.versions_sync(name)
    if not found:
        known = sorted({one.workflow for one in app.versions_sync()})
        raise NotFound(f"there is no workflow {name!r}{nearest(name, known) or '; there are ' + ', '.join(known)}")
    chosen = _chosen(found, which)
    if chosen is None:
        shapes = ", ".join(f"{one.version} ({one.shape[:8]})" for one in found)
        raise NotFound(f"{typed}: there is no such version; there are {shapes}")
    return app.outline_sync(chosen)


def _chosen(found: Sequence[Version], which: str) -> Version | None:
    own = [one for one in found if one.at_hand]
    stored = sorted((one for one in found if one.first_seen is not None), key=lambda one: str(one.first_seen))
    if which == "stored":
        before = [one for one in stored if not one.at_hand] or stored
        return before[-1] if before else None
    if which in {"", "code"}:
        return (own or stored)[-1]
    if which.isdigit():
        fits = [one for one in [*stored, *own] if one.version == int(which)]
        return fits[-1] if fits else None
    shapes = {one.shape: one for one in found if one.shape.startswith(which)}
    if len(shapes) > 1:
        raise InvalidInput(f"{which}: {len(shapes)} shapes begin so; write more of it")
    return next(iter(shapes.values()), None)
