"""`new`: a small project to begin with, whose checks and tests pass as they are."""

import shutil
from pathlib import Path

import click

from agentflow.cli.commands import common
from agentflow.cli.loading import Options, bundled, bundled_inputs
from agentflow.cli.output import say, say_json
from agentflow.errors import Conflict

TEMPLATES = {
    "minimal": "one model state, two ends, a test",
    "refund": "the shipped refund agent with its prompts, inputs and a test",
    "review": "the shipped content review with its prompts, inputs and a test",
}
SOURCES = Path(__file__).parent / "templates"


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
@click.option("--template", type=click.Choice(list(TEMPLATES)), default="minimal", show_default=True)
@click.option("--list", "only_list", is_flag=True, help="Say which templates there are.")
@common
def new(options: Options, folder: Path | None, template: str, only_list: bool) -> None:
    """Write a small project to begin with.

    Example: agentflow new inbox && cd inbox && agentflow check
    """
    if only_list:
        for name, what in TEMPLATES.items():
            say_json({"template": name, "what": what}) if options.json else say(f"{name}: {what}")
        return
    if folder is None:
        raise click.UsageError("name the folder to write, such as: agentflow new inbox")
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty; name a new folder")
    written = write_project(folder, template)
    if options.json:
        say_json({"folder": str(folder), "files": written})
        return
    for name in written:
        say(f"  {folder / name}")
    say(f"Next: cd {folder} && agentflow check && agentflow graph {GRAPHED[template]}")


GRAPHED = {"minimal": "inbox", "refund": "refund", "review": "content_review"}


def write_project(folder: Path, template: str) -> list[str]:
    """Write the files of a template; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    source = SOURCES / template
    for file in sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        target = folder / str(file.relative_to(source)).removesuffix(".txt")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    if template != "minimal":
        _copy_shipped(folder)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _copy_shipped(folder: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", ".lock", "changes.json", "outbox.json")
    for name in ("definitions", "prompts"):
        shutil.copytree(bundled() / name, folder / name, ignore=ignore)
    shutil.copytree(bundled_inputs(), folder / "examples" / "inputs", ignore=ignore)
