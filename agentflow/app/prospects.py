"""What the code at hand makes of every stored run, before it is let loose on them: the question of a deploy.

It judges as a worker does that claims the run, and changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentflow.analysis.acceptance import Accepts
from agentflow.app.migrating import plan_of_run
from agentflow.app.open_runs import open_runs
from agentflow.model.views import DeployCheck, Prospect
from agentflow.record import record
from agentflow.runners.versions import Versions, candidates
from agentflow.store.rows import RunRow

EXAMPLES = 3
Fate = Literal["continue", "migrate", "blocked"]


@record
class Fortune:
    """What becomes of one run; equal ones are counted together."""

    workflow: str
    version: int
    shape: str
    state: str
    failed: bool
    fate: Fate
    to: int | None = None
    reason: str = ""


@dataclass(slots=True)
class Counted:
    """Runs of one fortune."""

    runs: int = 0
    targets: set[str] = field(default_factory=set[str])
    examples: list[str] = field(default_factory=list[str])


async def check_deploy(known: Versions, workflows: Collection[str]) -> DeployCheck:
    """The fate of all runs that are not over, or failed and may be retried; of some workflows, or of all in the store."""
    found: dict[Fortune, Counted] = {}
    seen: set[str] = set()
    names: Sequence[str | None] = sorted(set(workflows)) or [None]
    for name in names:
        async for row in open_runs(known.store, name, failed=True):
            if row.id not in seen:
                seen.add(row.id)
                fortune, target = await _fortune(known, row)
                _count(found.setdefault(fortune, Counted()), row, target)
    return DeployCheck([_prospect(fortune, found[fortune]) for fortune in sorted(found, key=_order)])


def _count(counted: Counted, row: RunRow, target: str | None) -> None:
    counted.runs += 1
    if target is not None:
        counted.targets.add(target)
    if len(counted.examples) < EXAMPLES:
        counted.examples.append(row.id)


def _order(fortune: Fortune) -> tuple[str, int, str, str, bool, str]:
    return fortune.workflow, fortune.version, fortune.state, fortune.fate, fortune.failed, fortune.reason


def _prospect(fortune: Fortune, counted: Counted) -> Prospect:
    return Prospect(
        workflow=fortune.workflow,
        version=fortune.version,
        shape=fortune.shape,
        state=fortune.state,
        fate=fortune.fate,
        runs=counted.runs,
        failed=fortune.failed,
        to=fortune.to,
        target=counted.targets.pop() if len(counted.targets) == 1 else None,
        reason=fortune.reason,
        examples=tuple(counted.examples),
    )


async def _fortune(known: Versions, row: RunRow) -> tuple[Fortune, str | None]:
    """The fate of a run, and the state in which it goes on."""

    def told(fate: Fate, to: int | None = None, reason: str = "") -> Fortune:
        failed = row.standing.status == "failed"
        return Fortune(row.workflow, row.version, row.shape, row.standing.state, failed, fate, to, reason)

    if not candidates(known.definitions, row):
        return told("blocked", reason=_missing(known, row)), None
    definition, verdict = await known.choose(row)
    if isinstance(verdict, Accepts):
        return told("continue", definition.version), verdict.state
    if not verdict.migrates:
        return told("blocked", reason=verdict.reason), None
    plan = await plan_of_run(known, definition, row)
    if plan.outcome is None or plan.problem is not None:
        return told("blocked", reason=f"its migration: {plan.problem}"), None
    return told("migrate", definition.version, f"agentflow deploy migrate {definition.name}"), plan.outcome.target


def _missing(known: Versions, row: RunRow) -> str:
    versions = sorted(version for name, version in known.definitions if name == row.workflow)
    if not versions:
        return f"this App has no workflow {row.workflow!r}; pass it to App([...])"
    return f"this App has version {', '.join(map(str, versions))} of it; pass version {row.version}, too"
