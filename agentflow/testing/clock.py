"""A clock for tests of a whole App: it stands still until it is told."""

from datetime import datetime, timedelta

from agentflow.app.app import App


class Clock:
    """A clock that stands still until it is told.

    Make it before the first verb of the App; from then on the App's store knows no other time.
    """

    def __init__(self, app: App, /) -> None:
        self._app = app
        self._now = app.stop_clock(self.now)

    def now(self) -> datetime:
        """The instant that the App sees."""
        return self._now

    async def advance(self, by: timedelta, /) -> None:
        """Move on, and let everything that became due happen, in the order in which it was due."""
        until = self._now + by
        while (due := await self._app.settle()) is not None and self._now < due <= until:
            self._now = due  # what was due before and still is, is not this App's to do
        self._now = until
        await self._app.settle()
