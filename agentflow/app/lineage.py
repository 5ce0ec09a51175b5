"""The whole way that led to a revision: of a fork, first what its origin did before it, then its own transitions."""

from collections import Counter
from collections.abc import Sequence

from agentflow.engine.head import failure_from_json
from agentflow.model.definition import Definition
from agentflow.record import record
from agentflow.runners.carrying import CARRIES
from agentflow.runners.records import from_json, object_of
from agentflow.store.protocol import Store
from agentflow.store.rows import HistoryRow, RunRow


@record
class Passed:
    """A transition on the way, and the run that made it."""

    run: str
    row: HistoryRow


async def lineage(store: Store, row: RunRow, revision: int) -> Sequence[Passed]:
    """All that lies between the very start and a revision of a run, the start included, the rows of forks left out."""
    own = [Passed(row.id, line) for line in await store.history(row.id) if line.revision <= revision]
    if row.origin is None or row.origin_revision is None:
        return own
    origin = await store.run(row.origin)
    if origin is None:  # it is kept no longer
        return own
    return [*await lineage(store, origin, row.origin_revision), *own[1:]]


def visits_of(definition: Definition, path: Sequence[Passed]) -> dict[str, int]:
    """How often each state was entered on the way, by the names of now."""
    entered = (definition.renames.place(passed.row.target) for passed in path if not goes_on(passed.row))
    return dict(Counter(name for name in entered if name not in definition.ends))


def goes_on(row: HistoryRow) -> bool:
    """Whether a visit goes on: the run came under another definition where it stood."""
    return row.event in CARRIES and bool(object_of(row.answer).get("stays"))


def was_rescued(definition: Definition, path: Sequence[Passed]) -> bool:
    """Whether the workflow's own `.failed` row was taken on the way, which happens at most once."""
    return any(passed.row.event == "failed" and not _own_row_led(definition, passed.row) for passed in path)


def _own_row_led(definition: Definition, row: HistoryRow) -> bool:
    """Whether a failure was caught by a row of the state itself."""
    state = definition.states.get(row.source or "")
    failure = failure_from_json(row.failure)
    if state is None or failure is None:
        return False
    passed = {name for name, result in from_json(row.guards) or () if result}
    return any(
        way.target.name == row.target
        and (not way.exit.failures or any(failure.matches(kind) for kind in way.exit.failures))
        and all(guard.__name__ in passed for guard in way.exit.guards)
        for way in state.rows_on("failed")
    )
