"""Processes that cost milliseconds: forked from a process of their own that has imported everything and has no thread.

A child opens its stores itself, after the fork. What it raises is written to a file and raised again where it was
waited for; one that does not end in time is killed, by its id alone.
"""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.crash.ready"])
WITHIN = 60.0  # seconds for a child that ends by itself
KILLED = -signal.SIGKILL


class ChildFailed(AssertionError):
    """A child raised, or did not end."""


class Child:
    """A process that carries out one function."""

    def __init__(self, act: Callable[..., None], *args: Any) -> None:
        handle, name = tempfile.mkstemp(prefix="crash-child-", suffix=".trouble")
        os.close(handle)
        self._trouble = Path(name)
        self._process: ForkServerProcess = CONTEXT.Process(target=_carry_out, args=(act, args, name))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None  # it was started
        return self._process.pid

    def end(self, within: float = WITHIN) -> int:
        """Wait for its end: 0, or the signal that killed it, negated. Raises `ChildFailed`."""
        self._process.join(within)
        code = self._process.exitcode
        if code is None:
            self.kill()
            raise ChildFailed(f"process {self.pid} did not end within {within:g} s")
        trouble = self._trouble.read_text(encoding="utf-8")
        self._trouble.unlink()
        if trouble or code > 0:
            raise ChildFailed(f"a child ended with {code}:\n{trouble}")
        return code

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without warning, and what it has forked; harmless if it has ended."""
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()  # if it had no time to lead a group
        self._process.join(WITHIN)
        self._trouble.unlink(missing_ok=True)


def run_child(act: Callable[..., None], *args: Any) -> int:
    """Carry out a function in a process of its own."""
    return Child(act, *args).end()


class Fork:
    """The same from a child, which has no threads and is as well prepared: its own fork costs least."""

    def __init__(self, act: Callable[..., None], *args: Any) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            os._exit(_tell(writer, act, args))
        os.close(writer)
        self._told = reader

    def stops(self) -> bool:
        """Wait until it stands still, or ends: then False."""
        status = os.waitpid(self.pid, os.WUNTRACED)[1]
        if os.WIFSTOPPED(status):
            return True
        self._check(status)
        return False

    def go_on(self) -> None:
        """Let one that stands still go on."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> int:
        """Wait for its end: 0, or the signal that killed it, negated. Raises `ChildFailed`."""
        return self._check(os.waitpid(self.pid, 0)[1])

    def _check(self, status: int) -> int:
        with os.fdopen(self._told, encoding="utf-8") as told:
            trouble = told.read()
        code = os.waitstatus_to_exitcode(status)
        if trouble or code not in {0, KILLED}:
            raise ChildFailed(f"a fork ended with {code}:\n{trouble}")
        return code


def fork(act: Callable[..., None], *args: Any) -> int:
    """Carry out a function in a fork; how it ended."""
    return Fork(act, *args).end()


def _tell(writer: int, act: Callable[..., None], args: tuple[Any, ...]) -> int:
    signal.alarm(round(WITHIN))  # the end of one that hangs
    try:
        act(*args)
    except BaseException:  # noqa: BLE001  told to the parent, whatever it is
        os.write(writer, traceback.format_exc()[-8_000:].encode())
        return 1
    return 0


@contextmanager
def child(act: Callable[..., None], *args: Any) -> Iterator[Child]:
    """A process beside the test; killed at the end of the block if it still lives."""
    started = Child(act, *args)
    try:
        yield started
    finally:
        started.kill()


def _carry_out(act: Callable[..., None], args: tuple[Any, ...], trouble: str) -> None:
    os.setpgid(0, 0)  # a group of its own, so that nothing is left of it when it is killed
    try:
        act(*args)
    except BaseException:
        Path(trouble).write_text(traceback.format_exc(), encoding="utf-8")
        raise
