"""Seeing workers, stopping a watch, and the help of every command, from a terminal."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from agentflow.cli import main
from agentflow.store.opening import open_store
from tests.cli.conftest import Give

WITHIN = 30.0


async def sessions_of(url: str) -> None:
    """A worker that is there, and one whose lease ran out an hour ago."""
    now = datetime.now(UTC)
    clock = {"now": now - timedelta(hours=1)}
    store = open_store(url, clock=lambda: clock["now"])
    await store.open()
    await store.open_session("old:1")
    clock["now"] = now
    await store.open_session("new:2")
    await store.close()


def test_workers_are_listed_with_what_is_left_of_their_lease(give: Give, project: Path) -> None:
    asyncio.run(sessions_of(f"sqlite:///{project / 'agentflow.db'}"))
    old, new = give("workers", "list", "--json").lines
    assert (old["name"], old["alive"], old["lease_seconds"], old["runs"]) == ("old:1", False, 0, [])
    assert (new["name"], new["alive"], new["runs"]) == ("new:2", True, [])
    header, first, second = give("workers", "list").out.splitlines()
    assert header.split() == ["NAME", "SINCE", "LEASE", "RUNS", "SESSION"]
    assert ("old:1" in first, "lost" in first, "alive, " in second) == (True, True, True)


def test_there_may_be_no_workers(give: Give) -> None:
    assert give("workers", "list", "--json").out == ""


# --- interrupted -------------------------------------------------------------------------------------------------


@contextmanager
def command(project: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A command in a process of its own."""
    root = Path(__file__).parents[2]
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "  # it may be ignored around us
        f"sys.path.insert(0, {str(root)!r}); from agentflow.cli import main; main()"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate(timeout=WITHIN)


def test_ctrl_c_ends_a_watch_with_130_and_not_the_run(give: Give, project: Path) -> None:
    give("run", "flow", "-c", "n=50", "--id", "a")
    with command(project, "runs", "watch", "a") as watch:
        assert watch.stdout is not None
        lines = [watch.stdout.readline() for _ in range(2)]
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=WITHIN)
    assert lines[1].endswith("look -> ask  (not small)\n")
    assert (watch.returncode, err) == (130, "agentflow: interrupted; runs stay where they are\n")
    assert give("runs", "show", "a", "--json").json["status"] == "waiting"


# --- help --------------------------------------------------------------------------------------------------------


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from every_command(found, (*path, name))
        else:
            yield (*path, name), found


COMMANDS = dict(every_command(main))
OF_HISTORY = [
    ("effects", "list"), ("effects", "resolve"), ("runs", "diff"), ("runs", "export"), ("runs", "fork"),
    ("runs", "replay"), ("runs", "watch"), ("worker",), ("workers", "list"),
]  # fmt: skip


@pytest.mark.parametrize("path", OF_HISTORY, ids=" ".join)
def test_the_help_of_a_command_has_an_example_and_fits_a_terminal(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*path, "--help"], terminal_width=100)
    assert done.exit_code == 0
    assert f"Example: agentflow {' '.join(path)}" in " ".join(done.output.split())
    assert "--json" in done.output
    assert max(map(len, done.output.splitlines())) <= 100


def test_every_command_is_in_the_overview() -> None:
    overview = CliRunner().invoke(main, ["--help"]).output
    assert [path[0] for path in COMMANDS if f"  {path[0]} " not in overview] == []
