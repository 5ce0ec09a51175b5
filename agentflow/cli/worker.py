"""`worker`: a process that drives everything that is due, until it is told to stop."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import click

from agentflow.app.app import App
from agentflow.cli.commands import common
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import note, say, say_json

SWITCH_INTERVAL = 0.0005
GRACE = 2.0  # beyond the drain time, before a worker ends whatever still runs, in seconds
STRAGGLERS = 0.5  # how long threads are waited for once everything is given back, in seconds


@click.command()
@click.option(
    "--concurrency", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Runs at once."
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long a stop waits for bodies at work.",
)
@click.option("--name", metavar="NAME", help="How `workers list` calls it; host and process, if you do not say.")
@click.option("--once", is_flag=True, help="Drive what is due now, and end when nothing is.")
@click.option("-v", "--verbose", "each", is_flag=True, help="Say when a run ends, and how.")
@common
def worker(options: Options, concurrency: int, drain: float, name: str | None, once: bool, each: bool) -> None:
    """Drive everything that is due for the App's workflows, until SIGTERM or Ctrl-C.

    Then no run is taken any more, bodies at work finish and commit within the drain time, all else is given back to other
    workers, and the exit code is 0. A second signal ends at once, with 128 and the signal's number: what was not
    committed is done again by another worker.
    Example: agentflow worker --concurrency 20 --drain 60
    """
    # Several threads share one interpreter here: this loop, the heartbeat, and bodies of authors. One that computes
    # keeps the others from the interpreter for a whole switch interval, and SQLite lets go of it at every row: with the
    # default of 5 ms, a busy thread brought the engine down to a fiftieth of its speed. A library must not change this
    # for a whole program; a worker is the program.
    sys.setswitchinterval(SWITCH_INTERVAL)
    app = load_app(options)
    talk = Talk(options.json)
    on_end = talk.ended if each or options.verbose else None
    app.work_as(concurrency=concurrency, drain=timedelta(seconds=drain), name=name, on_end=on_end)
    asyncio.run(_work(app, talk, Stopping(drain), concurrency, once=once))


class Talk:
    """What a worker says, for a person or for a program."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def ready(self, app: App, concurrency: int) -> None:
        """It takes runs from now on."""
        names = [f"{definition.name} v{definition.version}" for definition in app.definitions]
        if self._as_json:
            said = {"event": "ready", "pid": os.getpid(), "workflows": names, "concurrency": concurrency}
            say_json(said)
        else:
            say(f"ready: process {os.getpid()} drives {', '.join(names)}, up to {concurrency} runs at once")

    def ended(self, run: str, status: str, at: str) -> None:
        """A run is over."""
        with contextlib.suppress(OSError):  # nobody listens any more: no run is to blame for it
            if self._as_json:
                say_json({"event": "ended", "run": run, "status": status, "at": at})
            else:
                say(f"ended: {run} {status} at {at}")


class Stopping:
    """What the signals say: the first to stop, the second to end at once."""

    def __init__(self, drain: float) -> None:
        self.wanted = asyncio.Event()
        self._drain = drain

    def listen(self) -> None:
        """Take the signals, on the loop that runs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take, number)

    def _take(self, number: signal.Signals) -> None:
        if self.wanted.is_set():
            note("ended at once; another worker goes on with the runs that were in hand")
            os._exit(128 + number)
        self.wanted.set()
        last = threading.Timer(self._drain + GRACE, self._give_up, (number,))
        last.daemon = True
        last.start()

    def tell(self) -> None:
        """Say that no run is taken any more."""
        note(f"stopping: bodies at work have {self._drain:g} s to finish; a second signal ends at once")

    @staticmethod
    def _give_up(number: int) -> None:
        """Nothing else helps against a body that blocks the loop, or goes on although it was cancelled."""
        note("a body does not let itself be stopped; ended without it, and another worker does it again")
        os._exit(128 + number)


async def _work(app: App, talk: Talk, stopping: Stopping, concurrency: int, *, once: bool) -> None:
    stopping.listen()
    threads = ThreadPoolExecutor(thread_name_prefix="agentflow-author")
    asyncio.get_running_loop().set_default_executor(threads)  # where bodies call `asyncio.to_thread`
    async with app:
        talk.ready(app, concurrency)
        stop = asyncio.create_task(stopping.wanted.wait())
        rest = asyncio.create_task(app.work_off()) if once else None
        await asyncio.wait({stop, rest} if rest is not None else {stop}, return_when=asyncio.FIRST_COMPLETED)
        if rest is not None and not rest.cancel():
            rest.result()
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0)  # from here on it takes nothing more
        if stopping.wanted.is_set():
            stopping.tell()
        await closing
    threads.shutdown(wait=False, cancel_futures=True)
    if _is_any_left(threading.enumerate()):
        note("a body in a thread did not end in time; its run was given back, and its thread is left behind")
        os._exit(0)  # the interpreter would wait for the thread, for as long as it takes


def _is_any_left(threads: Sequence[threading.Thread]) -> bool:
    """Whether threads still run after a moment that would keep the process alive."""
    until = time.monotonic() + STRAGGLERS
    others = [thread for thread in threads if not thread.daemon and thread is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, until - time.monotonic()))
    return any(thread.is_alive() for thread in others)
