"""What is printed: data on standard output, messages on standard error, JSON where it was asked for."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import pydantic_core

if TYPE_CHECKING:
    from agentflow.analysis.outlines import Line


def say(text: str = "") -> None:
    """One line of data."""
    click.echo(text)


def note(text: str) -> None:
    """One line for the person who watches, never for a program."""
    click.echo(text, err=True)


def say_json(value: Any) -> None:
    """One object, with the version of its form."""
    plain: Any = pydantic_core.to_jsonable_python(value, fallback=str, inf_nan_mode="strings", bytes_mode="base64")
    click.echo(json.dumps({"v": 1, **plain} if isinstance(plain, dict) else plain, ensure_ascii=False))


def say_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table: with rich on a terminal, aligned text elsewhere."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _say_rich_table(headers, cells)
        return
    widths = [max(len(line[number]) for line in [list(headers), *cells]) for number in range(len(headers))]
    for line in [[header.upper() for header in headers], *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _say_rich_table(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415  only a terminal needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*headers, box=None, header_style="bold", pad_edge=False)
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)


COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def say_marked(lines: "Iterable[Line]") -> None:
    """Lines with their marks; on a terminal those that differ are coloured."""
    if not sys.stdout.isatty():
        for line in lines:
            click.echo(f"{line.mark} {line.text}".rstrip())
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    for line in lines:
        console.print(Text(f"{line.mark} {line.text}", style=COLOURS.get(line.mark, "")))


def instant(value: datetime | None) -> str:
    """An instant as people read it."""
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def age(since: datetime | None) -> str:
    """How long ago, in the largest fitting unit."""
    if since is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def fields(pairs: Mapping[str, object]) -> None:
    """Names and values, one a line; empty ones are left out."""
    shown = {name: str(value) for name, value in pairs.items() if value not in (None, "", (), [], {})}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        say(f"{name.ljust(width)}  {value}")
