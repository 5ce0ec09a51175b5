"""What is stored of one run, and what was seen around it: the material of all checks."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentflow.model.definition import Definition
from agentflow.store.rows import AttemptRow, HistoryRow, RunRow, WaitRow
from tests.simulation.people import Promise
from tests.simulation.records import Begun, Claim, Records
from tests.simulation.watch import Watch
from tests.simulation.world import World

Broken: TypeAlias = Iterator[tuple[Any, ...]]  # a rule, and what shows that it does not hold


@dataclass(slots=True)
class Story:
    """All that is stored of one run, and the contexts that its differences fold into."""

    row: RunRow
    definition: Definition
    history: Sequence[HistoryRow]
    attempts: Sequence[AttemptRow]
    waits: Sequence[WaitRow]
    folds: list[dict[str, Any]] = field(default_factory=list)
    entries: dict[tuple[str, int], int] = field(default_factory=dict)  # (state, visit): revision that entered it

    def __post_init__(self) -> None:
        visits: Counter[str] = Counter()
        fold: dict[str, Any] = {"log": []}  # an Append field without items is not written
        for line in self.history:
            fold = folded(fold, line.difference)
            self.folds.append(fold)
            visits[line.target] += 1
            self.entries[line.target, visits[line.target]] = line.revision


def folded(before: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A context after a stored difference, by the rule in the design and not by the engine's code."""
    difference = json.loads(text)
    after = {**before, **difference.get("set", {})}
    for name, items in difference.get("add", {}).items():
        after[name] = [*after.get(name, []), *items]
    return after


@dataclass(slots=True)
class Facts:
    """What was seen in a simulation."""

    records: Records
    watch: Watch
    world: World
    promises: Sequence[Promise]
    definitions: Mapping[tuple[str, int], Definition]

    def story(self, run: str) -> Story | None:
        """What is stored of a run; None if its start never reached the store."""
        ask, store = self.watch.ask, self.watch.store
        row = self.watch.row(run)
        if row is None:
            return None
        return Story(
            row,
            self.definitions[row.workflow, row.version],
            ask(store.history(run)),
            ask(store.attempts(run)),
            ask(store.waits(run=run, status=None, limit=1_000)),
        )

    def claim(self, begun: Begun) -> Claim:
        """The claim under which a body began."""
        return next(claim for claim in self.records.claims if claim.token == begun.token)

    def bodies(self, run: str) -> list[Begun]:
        """Every body of a run that began."""
        return [begun for begun in self.records.begun if begun.run == run]


Check: TypeAlias = Callable[[Facts, Story], Broken]
