"""The verbs of operators: follow and export runs, fork, compare and judge them, settle effects, see workers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from agentflow.app.commands import By
from agentflow.app.following import transitions_of
from agentflow.app.later import not_yet
from agentflow.app.reading import read_snapshot, read_workers
from agentflow.model.context import Context
from agentflow.model.definition import Definition
from agentflow.model.states import Stream
from agentflow.model.values import Limits
from agentflow.model.views import Compared, Effect, Replayed, Reply, Revision, Snapshot, Worker
from agentflow.model.workflow import T, Workflow
from agentflow.runners.versions import Versions
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, EffectStatus, RunRow


class OperatingVerbs:
    """What an App does for whoever operates it."""

    _store: Store
    _known: Versions
    _definitions: dict[tuple[str, int], Definition]

    async def _row(self, run: str) -> RunRow:
        raise AssertionError("App finds it")

    def _definition_for(self, row: RunRow, workflow: Workflow[Any, Any] | None) -> Definition:
        raise AssertionError("App knows it")

    async def _drive(self, run: str) -> None:
        raise AssertionError("App drives it")

    @overload
    def stream(self, run: str, /) -> AsyncIterator[Revision]: ...
    @overload
    def stream(self, run: str, state: Stream[Any, Any, T], /) -> AsyncIterator[T]: ...
    def stream(self, run: str, state: Any = None, /) -> AsyncIterator[Any]:
        """Follow a run, whichever process drives it: its history from the start, then each transition, to its end.

        The iterator raises `NotFound` for an unknown run. Chunks of a stream state cannot be followed yet.
        """
        if state is not None:
            not_yet("stream(run, state)")
        return transitions_of(self._store, run)

    async def pause(self, run: str, /, **by: Unpack[By]) -> Reply:
        """Stand still once the body at work is done, which is kept; `resume` goes on. A wait may be answered meanwhile."""
        from agentflow.app.pausing import pause_run  # noqa: PLC0415  here as below: what operators do is loaded when they do it

        return await pause_run(self._store, await self._row(run), by)

    async def resume(self, run: str, /, *, limits: Limits | None = None, **by: Unpack[By]) -> Reply:
        """Go on after a pause or a block, with raised limits if given: they hold for this run from now on.

        What the run used and did is kept, and an answer that met a limit is not asked for again. Raised `visits` count
        for a state's own `max_visits` too. Raises `InvalidInput` for a limit that is not above 0.
        """
        from agentflow.app.pausing import resume_run  # noqa: PLC0415

        row = await self._row(run)
        reply = await resume_run(self._store, self._definition_for(row, None), row, limits, by)
        if reply.status != "refused":
            await self._drive(run)
        return reply

    async def export(self, run: str, /) -> Mapping[str, Any]:
        """All that is stored about a run as one JSON document, also of a workflow that this App does not know."""
        from agentflow.app.exporting import export_run  # noqa: PLC0415

        row = await self._row(run)
        return await export_run(self._store, self._definitions.get((row.workflow, row.version)), row)

    async def fork(
        self,
        run: str,
        revision: int,
        /,
        *,
        change: Mapping[str, object] | None = None,
        effects: Literal["held", "live"] = "held",
        id: str | None = None,
        **by: Unpack[By],
    ) -> Snapshot[Context]:
        """Start a new run from an earlier revision, with changes; the run itself is not touched.

        The fork begins in the state that the revision led to, with the visits counted until then, and with limits of
        its own; under the version that the run had then, else under a newer one that shows its data as they were. Effects that its origin recorded there are replayed; others are held back, which blocks the fork, unless
        `effects="live"`. A person is asked anew. Changes are refused after a `protected=True` state was decided: fork
        at that state's revision, and it is decided over them. Raises `NotFound`, `InvalidInput`, `Conflict`.
        """
        from agentflow.app.forking import Asked, fork_run  # noqa: PLC0415
        from agentflow.app.versions import revision_under  # noqa: PLC0415

        row = await self._row(run)
        asked = Asked(id, revision, change or {}, effects, by)
        definition = await revision_under(self._known, self._definition_for(row, None), row, revision)
        await self._known.record(definition)
        forked = await fork_run(self._store, definition, row, asked)
        if forked.standing.status not in TERMINAL:
            await self._drive(forked.id)
        return await read_snapshot(self._store, definition, forked)

    async def compare(
        self, run: str, other: str, /, *, revision: int | None = None, other_revision: int | None = None
    ) -> Compared:
        """Where the ways of two runs part, and how their contexts differ, as they are or were at a revision."""
        from agentflow.app.comparing import compare_runs  # noqa: PLC0415

        one, two = await self._row(run), await self._row(other)
        return await compare_runs(self._store, one, two, (revision, other_revision))

    async def replay(self, run: str, /) -> Replayed:
        """What the code at hand makes of the recorded answers; nothing is run, asked or executed.

        Judged by the workflow's version of the run, or by its newest if this App no longer has that one.
        """
        from agentflow.app.replaying import replay_run  # noqa: PLC0415

        row = await self._row(run)
        return await replay_run(self._store, self._definition_or_newest(row), row)

    async def effects(
        self, run: str | None = None, status: EffectStatus | None = None, limit: int = 50
    ) -> Sequence[Effect]:
        """The ledger of effects, in the order in which they were begun. Raises `NotFound` for an unknown run."""
        from agentflow.app.effects import list_effects  # noqa: PLC0415

        await self._store.open()
        return await list_effects(self._store, run=run, status=status, limit=limit)

    async def resolve_effect(
        self, key: str, /, happened: bool, result: object = None, *, evidence: str, **by: Unpack[By]
    ) -> Reply:
        """Settle by hand an effect of which nobody knows whether it happened; the evidence is kept for the audit.

        The body gets `result` (JSON values) from it, None if none is given. What is settled or at work is refused.
        Raises `NotFound` for an unknown key and `InvalidInput` for a result that cannot be stored or missing evidence.
        """
        from agentflow.app.effects import effect_named, settle_by_hand  # noqa: PLC0415

        await self._store.open()
        row = await effect_named(self._store, key)
        run = await self._row(row.run)
        definition = self._definitions.get((run.workflow, run.version))
        state = None if definition is None else definition.states.get(row.state)
        return await settle_by_hand(self._store, row, happened, result, evidence=evidence, by=by, state=state)

    async def workers(self) -> Sequence[Worker]:
        """Processes that drive runs, oldest first; one that lost its lease stands there until another looks for work."""
        await self._store.open()
        return await read_workers(self._store)

    def _definition_or_newest(self, row: RunRow) -> Definition:
        versions = [definition for (name, _), definition in self._definitions.items() if name == row.workflow]
        if not versions or (row.workflow, row.version) in self._definitions:
            return self._definition_for(row, None)
        return max(versions, key=lambda definition: definition.version)
