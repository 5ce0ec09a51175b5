"""What a runner does beside driving: fold long histories, and look for runs that nothing would ever wake."""

import logging
from dataclasses import dataclass, field

from agentflow.store.protocol import Store

log = logging.getLogger("agentflow.runner")

SWEEP = 60.0  # seconds between two looks for stranded runs
NAMED = 10  # of them at most, in one line


@dataclass(slots=True)
class Upkeep:
    """The upkeep of one runner, over its store."""

    store: Store
    long: set[str] = field(default_factory=set[str])  # runs of which a segment is complete
    swept_at: float = float("-inf")
    told: frozenset[str] = frozenset()

    async def look(self, now: float) -> None:
        """Do what there is to do at this instant of the loop's clock."""
        await self.fold()
        if now - self.swept_at >= SWEEP:
            self.swept_at = now
            await self._sweep()

    async def fold(self) -> None:
        """Fold the segments that are complete."""
        while self.long:
            await self.store.condense(self.long.pop())

    async def _sweep(self) -> None:
        """Name the runs that are not over and have no session, no due time and no open wait: there should be none."""
        stranded = frozenset(await self.store.stranded(limit=NAMED))
        if stranded - self.told:
            log.error(
                "nothing will ever wake %s: no worker holds it, no time is set and nobody is asked; "
                "`agentflow runs why RUN` shows where it stands, please report it",
                ", ".join(sorted(stranded)),
            )
        self.told = stranded
