"""The verbs of a deploy: what becomes of stored runs under the code at hand, and migrations."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Unpack

from agentflow.app.commands import By
from agentflow.errors import InvalidInput
from agentflow.model.definition import Definition
from agentflow.model.outline import Outline, outline_of
from agentflow.model.views import DeployCheck, MigratedRun, Version
from agentflow.model.workflow import Workflow
from agentflow.runners.versions import Versions
from agentflow.store.protocol import Store


class DeployVerbs:
    """What an App does about runs that were started under other code."""

    _store: Store
    _known: Versions
    _definitions: dict[tuple[str, int], Definition]

    def _definition_of(self, workflow: Workflow[Any, Any]) -> Definition:
        raise AssertionError("App knows it")

    async def deploy_check(self, *workflows: str) -> DeployCheck:
        """What becomes of all runs in the store if this code drives them; nothing is changed.

        Of the named workflows, or of all in the store, also those that this App does not have. It judges as a worker
        does, and tries the migrations with the data of each run that needs one.
        """
        from agentflow.app.prospects import check_deploy  # noqa: PLC0415  here as below: loaded when it is asked for

        await self._store.open()
        return await check_deploy(self._known, workflows)

    async def migrate(
        self,
        workflow: Workflow[Any, Any],
        /,
        *,
        runs: Sequence[str] | None = None,
        dry_run: bool = False,
        partly: bool = False,
        **by: Unpack[By],
    ) -> Sequence[MigratedRun]:
        """Put runs of older versions under this one by its migrations, oldest run first: a line for each.

        Every run is tried before anything is written, and if one of them has a problem nothing is, unless `partly`
        lets the others go. With `dry_run` it stays at the trial. `runs` names those that are meant, else all that are
        not over or that failed and may be retried. Repeating it does what is left to do. Raises `InvalidInput` for a
        workflow that this App does not have.
        """
        from agentflow.app.migrating import migrate_runs  # noqa: PLC0415

        definition = self._definition_of(workflow)
        await self._store.open()
        return await migrate_runs(self._known, definition, by, runs=runs, dry_run=dry_run, partly=partly)

    async def versions(self, workflow: str | None = None, /) -> Sequence[Version]:
        """The definitions that this App has, and those under which runs of the store stand or stood, by age."""
        from agentflow.app.open_runs import open_runs  # noqa: PLC0415

        await self._store.open()
        standing = Counter(
            [(row.workflow, row.version, row.shape) async for row in open_runs(self._store, workflow, failed=False)]
        )
        stored = await self._store.definitions(workflow)
        seen = {(row.workflow, row.version, row.shape): row.first_seen for row in stored}
        own = {(one.name, one.version, one.shape): None for one in self._definitions.values()}
        own = {key: None for key in own if workflow in {None, key[0]}}
        keys = sorted(own.keys() | seen, key=lambda key: (key[0], key[1], key in own))
        return [Version(*key, at_hand=key in own, first_seen=seen.get(key), runs=standing[key]) for key in keys]

    async def outline(self, version: Version, /) -> Outline:
        """What a definition is, or was: its states, their ways out and its context, also without its code."""
        definition = self._definitions.get((version.workflow, version.version))
        if definition is not None and definition.shape == version.shape:
            return outline_of(definition)
        await self._store.open()
        found = await self._known.outline(version.workflow, version.version, version.shape)
        if found is None:
            raise InvalidInput(f"nobody recorded {version.workflow}@{version.version} with shape {version.shape}")
        return found
