"""Two runs side by side, as they are or were at a revision."""

from collections.abc import Sequence

from agentflow.analysis.compare import differing_fields, shared_length, spent_on
from agentflow.app.lineage import lineage
from agentflow.app.reading import revision_of
from agentflow.errors import NotFound
from agentflow.model.folding import stored_context
from agentflow.model.views import Compared, Revision
from agentflow.store.protocol import Store
from agentflow.store.rows import RunRow


async def compare_runs(store: Store, one: RunRow, other: RunRow, at: tuple[int | None, int | None]) -> Compared:
    """Two runs as they are, or were at a revision. Raises `NotFound` for a revision that there is not."""
    first, second = _revision(one, at[0]), _revision(other, at[1])
    path, path_of_other = await _path(store, one, first), await _path(store, other, second)
    shared = shared_length(path, path_of_other)
    context = stored_context(await store.differences(one.id, first))
    context_of_other = stored_context(await store.differences(other.id, second))
    return Compared(
        one=f"{one.id}@{first}",
        other=f"{other.id}@{second}",
        shared=shared,
        parts=(_at(path, shared), _at(path_of_other, shared)),
        fields=differing_fields(context, context_of_other),
        spent=(spent_on(path), spent_on(path_of_other)),
    )


def _revision(row: RunRow, wanted: int | None) -> int:
    if wanted is None:
        return row.revision
    if not 0 <= wanted <= row.revision:
        raise NotFound(f"run {row.id!r} has the revisions 0 to {row.revision}, not {wanted}")
    return wanted


async def _path(store: Store, row: RunRow, revision: int) -> Sequence[Revision]:
    """The transitions that led to a revision, without the start."""
    return [revision_of(passed.row) for passed in (await lineage(store, row, revision))[1:]]


def _at(path: Sequence[Revision], number: int) -> Revision | None:
    return path[number] if number < len(path) else None
