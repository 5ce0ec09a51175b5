"""`db`: look after the database."""

import asyncio
from collections.abc import Mapping

import click

from agentflow.cli.commands import common
from agentflow.cli.loading import Options
from agentflow.cli.output import say, say_json


@click.group()
def db() -> None:
    """Look after the database."""


@db.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@common
def copy(options: Options, source: str, target: str) -> None:
    """Copy everything into an empty database, of the same kind or another; stop all workers before.

    The source is left as it is. Runs that were in the hands of a worker that died arrive due.
    Example: agentflow db copy sqlite:///agentflow.db postgresql://localhost/flows
    """
    copied = asyncio.run(_copy(source, target))
    if options.json:
        say_json({"source": source, "target": target, "rows": dict(copied)})
    else:
        runs = copied["runs"]
        say(f"copied {runs} run{'' if runs == 1 else 's'}, {sum(copied.values())} rows in all")


async def _copy(source: str, target: str) -> Mapping[str, int]:
    from agentflow.store.copying import copy_store  # noqa: PLC0415  it loads SQLAlchemy
    from agentflow.store.opening import open_store  # noqa: PLC0415

    stores = open_store(source), open_store(target)
    try:
        return await copy_store(*stores)
    finally:
        for store in stores:
            await store.close()
