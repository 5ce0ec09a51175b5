"""`workers`: the processes that drive runs; and `worker`, which is one."""

import click

from agentflow.cli.commands import common
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import age, say_json, say_table
from agentflow.model.views import Worker


@click.group()
def workers() -> None:
    """See the processes that drive runs."""


@workers.command("list")
@common
def list_(options: Options) -> None:
    """Worker sessions that have not ended: since when, what is left of their lease, and the runs they hold.

    One whose lease is lost is dead or cut off; its runs are taken over by the next worker that looks for work.
    Example: agentflow workers list
    """
    found = load_app(options).workers_sync()
    if options.json:
        for worker in found:
            say_json(_object(worker))
        return
    say_table(
        ("name", "since", "lease", "runs", "session"),
        [(one.name, f"{age(one.since)} ago", _lease(one), _runs(one), one.id) for one in found],
    )


def _object(worker: Worker) -> dict[str, object]:
    return {
        "id": worker.id,
        "name": worker.name,
        "since": worker.since,
        "alive": worker.alive,
        "lease_seconds": round(worker.lease.total_seconds(), 3),
        "runs": list(worker.runs),
    }


def _lease(worker: Worker) -> str:
    return f"alive, {worker.lease.total_seconds():.0f} s" if worker.alive else "lost"


def _runs(worker: Worker) -> str:
    shown = ", ".join(worker.runs[:2])
    more = len(worker.runs) - 2
    return f"{shown} and {more} more" if more > 0 else shown
