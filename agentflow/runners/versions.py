"""Which stored runs the code at hand accepts: outlines of definitions, read and kept, and what follows for one run.

A run carries the shape of the definition that it stands under. Where that is the one at hand there is nothing to ask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentflow.analysis.acceptance import (
    Accepts,
    Depends,
    Refuses,
    Verdict,
    blind,
    judge,
    judge_context,
    judge_reading,
)
from agentflow.errors import IncompatibleDefinition
from agentflow.model.definition import Definition
from agentflow.model.outline import Outline, outline_from, outline_of
from agentflow.store.protocol import Store
from agentflow.store.rows import DefinitionRow, RunRow

Definitions: TypeAlias = Mapping[tuple[str, int], Definition]
Place: TypeAlias = tuple[str, int, str, str]  # workflow, version, shape, state


def candidates(definitions: Definitions, row: RunRow) -> Sequence[Definition]:
    """The definitions under which a run may go on: its own version, then newer ones, the newest first."""
    own = definitions.get((row.workflow, row.version))
    newer = [one for (name, version), one in definitions.items() if name == row.workflow and version > row.version]
    newer.sort(key=lambda one: -one.version)
    return newer if own is None else [own, *newer]


@dataclass(slots=True)
class Versions:
    """Outlines of the definitions under which runs stand, and what was judged by them."""

    store: Store
    definitions: Definitions
    _outlines: dict[tuple[str, int, str], Outline] = field(default_factory=dict[tuple[str, int, str], Outline])
    _recorded: set[str] = field(default_factory=set[str])
    _judged: dict[tuple[Place, int], Verdict] = field(default_factory=dict[tuple[Place, int], Verdict])
    _refused: dict[Place, None] = field(default_factory=dict[Place, None])

    @property
    def refused(self) -> tuple[Place, ...]:
        """Where runs stand that this code does not take, whatever their data."""
        return tuple(self._refused)

    async def record(self, definition: Definition) -> None:
        """Keep the outline of a definition in the store; once in a process is enough."""
        if definition.shape in self._recorded:
            return
        outline = outline_of(definition)
        row = DefinitionRow(
            workflow=outline.name,
            version=outline.version,
            shape=outline.shape,
            outline=outline.text(),
            first_seen=self.store.now(),
        )
        await self.store.record_definition(row)
        self._recorded.add(definition.shape)

    async def outline(self, workflow: str, version: int, shape: str) -> Outline | None:
        """What a definition was; None if nobody recorded it."""
        key = (workflow, version, shape)
        if key not in self._outlines:
            for row in await self.store.definitions(workflow):
                self._outlines[row.workflow, row.version, row.shape] = outline_from(row.outline)
        return self._outlines.get(key)

    # --- one run -----------------------------------------------------------------------------------------------

    async def choose(self, row: RunRow) -> tuple[Definition, Accepts | Refuses]:
        """The definition under which a run goes on, its own version first; where none takes it, why the first does not.

        Raises `IncompatibleDefinition` if there is none of its version or a newer one.
        """
        found = candidates(self.definitions, row)
        if not found:
            raise IncompatibleDefinition(missing(self.definitions, row))
        verdicts = [(definition, await self.judge(definition, row)) for definition in found[:1]]
        for definition in found[1:]:
            if isinstance(verdicts[-1][1], Accepts):
                break
            verdicts.append((definition, await self.judge(definition, row)))
        if isinstance(verdicts[-1][1], Accepts):
            return verdicts[-1]
        if all((place_of(row), definition.version) in self._judged for definition in found):
            self._note_refusal(row, found)
        return next((one for one in verdicts if isinstance(one[1], Refuses) and one[1].migrates), verdicts[0])

    def _note_refusal(self, row: RunRow, found: Sequence[Definition]) -> None:
        place = place_of(row)
        if all(isinstance(self._judged[place, definition.version], Refuses) for definition in found):
            self._refused[place] = None

    async def judge(self, definition: Definition, row: RunRow) -> Accepts | Refuses:
        """Whether a run goes on under this definition of its version, or of a newer one."""
        if row.shape == definition.shape:
            return Accepts(row.standing.state)
        verdict = await self._judged_once(definition, row)
        if isinstance(verdict, Depends):
            differences = await self.store.differences(row.id, row.revision)
            verdict = judge_context(definition, row.version, verdict, differences, self.store.value)
        if isinstance(verdict, Accepts) and verdict.state != row.standing.state and await has_acted(self.store, row):
            return Refuses(
                f"state {row.standing.state!r} is {verdict.state!r} now, and this visit of the run has begun an effect "
                "under the old name, which would be repeated; let the code that has the old name finish it"
            )
        return verdict

    async def _judged_once(self, definition: Definition, row: RunRow) -> Verdict:
        """What holds for every run that stands there; an outline that comes to be known later is looked for again."""
        key = (place_of(row), definition.version)
        if key in self._judged:
            return self._judged[key]
        outline = await self.outline(row.workflow, row.version, row.shape)
        verdict = judge(outline, row.version, row.standing.state, definition)
        if outline is not None:
            self._judged[key] = verdict
        return verdict

    async def check(self, row: RunRow) -> Definition:
        """The definition under which a run goes on. Raises `IncompatibleDefinition` that says why there is none."""
        definition, verdict = await self.choose(row)
        if isinstance(verdict, Refuses):
            raise IncompatibleDefinition(
                f"run {row.id!r} is not accepted by workflow {definition.name!r} version {definition.version} as it is "
                f"now: {verdict.reason}"
            )
        return definition

    async def check_readable(self, definition: Definition, row: RunRow) -> None:
        """Raise `IncompatibleDefinition` if this definition would not show the context of a run as it was stored."""
        if row.shape == definition.shape:
            return
        outline = await self.outline(row.workflow, row.version, row.shape)
        verdict = judge_reading(outline, row.version, row.standing.state, definition)
        await self._check_readable(definition, row, row.revision, verdict)

    async def check_readable_at(self, definition: Definition, row: RunRow, revision: int) -> None:
        """The same for a revision of which nobody knows what it stood under."""
        await self._check_readable(definition, row, revision, blind(definition, row.standing.state))

    async def _check_readable(self, definition: Definition, row: RunRow, revision: int, verdict: Verdict) -> None:
        if isinstance(verdict, Depends):
            differences = await self.store.differences(row.id, revision)
            verdict = judge_context(definition, row.version, verdict, differences, self.store.value)
        if isinstance(verdict, Refuses):
            raise IncompatibleDefinition(
                f"run {row.id!r} cannot be shown by workflow {definition.name!r} version {definition.version} at revision "
                f"{revision}: {verdict.reason}. Its export shows all of it"
            )

    async def adopt(self, definition: Definition, row: RunRow) -> bool:
        """Let a claimed run stand under this definition of its version; False if the claim is lost."""
        await self.record(definition)
        return await self.store.adopt(row.id, row.token or "", definition.shape)


async def has_acted(store: Store, row: RunRow) -> bool:
    """Whether the run has begun an effect, or asked a model, in its present visit."""
    here = (row.standing.state, row.standing.visit)
    return any((effect.state, effect.visit) == here for effect in await store.effects(run=row.id))


def place_of(row: RunRow) -> Place:
    """Where a run stands, and under what."""
    return row.workflow, row.version, row.shape, row.standing.state


def missing(definitions: Definitions, row: RunRow) -> str:
    """That nothing at hand could go on with a run, in words."""
    known = ", ".join(f"{name} v{version}" for name, version in definitions)
    return f"run {row.id!r} is of workflow {row.workflow!r} version {row.version}; this App has {known}"
