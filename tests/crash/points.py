"""Points in the life of a run, numbered in the order in which it meets them; at one of them something happens.

A point is a call of the store (before and after), the beginning and the end of a body, and the outside call of an
effect. What happens there is up to the test: the process kills itself, stops, or the call raises.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import TypeAlias

from tests.crash.log import Log

Hook: TypeAlias = Callable[[str], None]
At: TypeAlias = int | str | frozenset[int] | None  # a number, how the first name begins, or several numbers


class Points:
    """Counts the points that this process meets, from 1, notes each, and acts where it is told to."""

    def __init__(self, log: Log, at: At = None, act: Callable[[], None] | None = None) -> None:
        self._log = log
        self._at = at
        self._act = act or die
        self._counting = threading.Lock()
        self.met = 0

    def __call__(self, name: str) -> None:
        with self._counting:
            self.met += 1
            self._log.note("point", name)
            acts = self._is_there(name)
        if acts:
            self._act()

    def _is_there(self, name: str) -> bool:
        match self._at:
            case int() as number:
                return self.met == number
            case str() as prefix if name.startswith(prefix):
                self._at = None  # the first of that name
                return True
            case frozenset() as numbers:
                return self.met in numbers
            case _:
                return False


def die() -> None:
    """End this process without warning: nothing of Python runs any more."""
    os.kill(os.getpid(), signal.SIGKILL)


def stand_still() -> None:
    """Stop all threads of this process until somebody sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)
