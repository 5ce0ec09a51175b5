"""What everybody saw in one simulation: the trace for people, and the facts for the checker.

Nothing here asks the engine for its opinion. Facts are noted where a call reaches the store, where its answer reaches
a worker, where a body begins, and where the outside world is acted upon; each has its number in one order of all.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agentflow.store.rows import CommandRow, Commit, Decision


@dataclass(frozen=True, slots=True)
class Claim:
    """A run was handed to a worker."""

    number: int
    worker: str
    session: str
    token: str
    run: str
    revision: int
    life: int  # how often an operator had retried the run by then
    takes_over: bool  # from a holder that never gave it back


@dataclass(frozen=True, slots=True)
class Accepted:
    """The store answered `Committed`."""

    number: int
    worker: str
    commit: Commit


@dataclass(frozen=True, slots=True)
class Begun:
    """A body began: what it saw of its context."""

    number: int
    at: datetime
    worker: str
    run: str
    state: str
    visit: int
    attempt: int
    token: str  # of the claim under which it began
    seen: str  # JSON


@dataclass(slots=True)
class Records:
    """All that is known of one simulation."""

    clock: Callable[[], int]
    lines: list[tuple[int, str, str, tuple[Any, ...]]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    over: bool = False
    claims: list[Claim] = field(default_factory=list)
    held: dict[str, Claim] = field(default_factory=dict)
    accepted: list[Accepted] = field(default_factory=list)
    acknowledged: list[Commit] = field(default_factory=list)
    shown: list[tuple[str, int, dict[str, bytes]]] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    excuses: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    decided: list[Decision] = field(default_factory=list)
    commands: list[tuple[int, CommandRow]] = field(default_factory=list)
    lives: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _names: dict[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of the latest fact."""
        return len(self.lines)

    def tell(self, who: str, what: str, *details: Any) -> int:
        """One more line of the trace; its number."""
        if not self.over:
            self.lines.append((self.clock(), who, what, details))
        return len(self.lines)

    def excuse(self, who: str, why: str, *details: Any) -> None:
        """Something happened to a worker after which its bodies may begin again."""
        self.counts[why] += 1
        self.excuses[who].append(self.tell(who, f"* {why}", *details))

    def breaks(self, run: str, rule: str, *details: Any) -> None:
        """A guarantee does not hold."""
        if not self.over:
            told = " ".join(str(detail) for detail in details)
            self.broken.append(f"{run}: {rule}: {told}")
            self.tell("checker", f"BROKEN {rule}", run, told)

    def short(self, secret: str | None) -> str:
        """A name for a session or token that is the same in every run of a seed."""
        if secret is None:
            return "-"
        return self._names.setdefault(secret, f"#{len(self._names)}")

    def trace(self, last: int | None = None) -> str:
        """The trace as text."""
        lines = self.lines if last is None else self.lines[-last:]
        return "\n".join(
            f"{micros / 1e6:10.6f} {who:<8} {what} {' '.join(map(str, details))}".rstrip()
            for micros, who, what, details in lines
        )
