"""The server's time, told between two questions by this machine's monotonic clock, which nobody sets."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from agentflow.store.instants import EPOCH

DRIFT = 2e-4  # what two clocks may run apart, in seconds per second


class ServerClock:
    """The clock of a server that was asked now and then.

    An answer is older than it looks by the time that it took to arrive. So what is told here is behind the server's
    clock, by no more than the round trip of the best answer, and never ahead of it by more than the clocks drift
    between two answers: what is due by this clock is due on the server. Before the first answer it is the machine's
    own clock. Any thread may use it.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._best: tuple[datetime, float, float] | None = None  # the server's time at zero; exactness; when measured

    def asks(self) -> float:
        """Call it before the question; what it returns goes into `learn`."""
        return self._monotonic()

    def learn(self, asked: float, answer: int) -> None:
        """An answer of the server has arrived: microseconds since 1970."""
        arrived = self._monotonic()
        zero = EPOCH + timedelta(microseconds=answer) - timedelta(seconds=arrived)
        exactness = arrived - asked
        if self._is_better(zero, exactness, arrived):
            self._best = zero, exactness, arrived

    def _is_better(self, zero: datetime, exactness: float, now: float) -> bool:
        """Whether an answer is more exact than the best one is by now, or cannot be true beside it."""
        if self._best is None:
            return True
        best, at_first, measured = self._best
        drift = DRIFT * (now - measured)
        ahead = (zero - best).total_seconds()
        was_set = ahead > at_first + drift or ahead < -(exactness + drift)
        return was_set or exactness <= at_first + drift

    def now(self) -> datetime:
        """The server's time, aware UTC."""
        best = self._best
        return datetime.now(UTC) if best is None else best[0] + timedelta(seconds=self._monotonic())
