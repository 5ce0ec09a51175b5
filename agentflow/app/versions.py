"""What verbs do about runs that stand under another version or shape than the definition at hand."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from agentflow.analysis.acceptance import Refuses
from agentflow.app.reading import place_of
from agentflow.errors import Conflict, IncompatibleDefinition, NotFound
from agentflow.model.definition import Definition
from agentflow.model.views import Why
from agentflow.runners.carrying import CARRIES, carry_over, must_be_carried, waits_here
from agentflow.runners.records import object_of
from agentflow.runners.versions import Versions, candidates, missing
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, NewRun, RunRow, WaitRow
from agentflow.store.texts import is_storable

OTHERS = 5.0  # how long other workers get to take a run that this code refused, in seconds
POLL = 0.2


async def with_doubts(found: Why, known: Versions, row: RunRow) -> Why:
    """Why a run is where it is, and that the code at hand will not go on with it, if so."""
    if row.session is not None or row.standing.blocked is not None or row.standing.status in TERMINAL:
        return found
    if not candidates(known.definitions, row):
        return Why(
            f"{found.text}. The code at hand will not go on with it: {missing(known.definitions, row)}", found.waker
        )
    _, verdict = await known.choose(row)
    if not isinstance(verdict, Refuses):
        return found
    return Why(f"{found.text}. The code at hand will not go on with it: {verdict.reason}", found.waker)


async def others_may_take(store: Store, run: str, own: str | None) -> bool:
    """Whether a run that this code refused goes on after all: it was claimed anew, or migrated, or will be in a moment.

    As long as other workers live, they get that moment.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + OTHERS
    while True:
        row = await store.run(run)
        if row is None or row.session is not None or row.standing.blocked is None:
            return True
        now = store.now()
        others = any(session.id != own and session.lease_until > now for session in await store.sessions())
        if not others or loop.time() > until:
            return False
        await asyncio.sleep(POLL)


async def revision_under(known: Versions, definition: Definition, row: RunRow, revision: int) -> Definition:
    """The definition by which a revision is shown. Raises `IncompatibleDefinition` if none at hand can show it."""
    version = await _version_at(known.store, row, revision)
    then = known.definitions.get((row.workflow, version))
    if then is None or (then is definition and row.shape != definition.shape):
        await known.check_readable_at(then or definition, row, revision)
    return then or definition


async def _version_at(store: Store, row: RunRow, revision: int) -> int:
    if not any(command.command in CARRIES for command in await store.commands(row.id)):
        return row.version
    later = (line for line in await store.history(row.id, after=revision) if line.event in CARRIES)
    first = next(later, None)
    return row.version if first is None else int(object_of(first.answer).get("version", row.version))


async def is_same_start(known: Versions, definition: Definition, row: RunRow, new: NewRun) -> bool:
    """Whether a run was started with this input, perhaps when its context had fewer fields."""
    if row.fingerprint == new.fingerprint or row.workflow != new.workflow:
        return row.fingerprint == new.fingerprint
    try:
        await known.check_readable_at(definition, row, 0)
    except IncompatibleDefinition:
        return False
    plan = definition.context
    kept = plan.load(await known.store.differences(row.id, 0), known.store.value)
    _, difference = plan.start(plan.copy(kept))
    return difference.text() == new.history.difference


async def wait_named(store: Store, definitions: Mapping[tuple[str, int], Definition], name: str) -> WaitRow:
    """The wait of that id, also if its state has got another name since the id was given. Raises `NotFound`."""
    if not is_storable(name):
        raise NotFound(f"there is no wait {name!r}")
    found = await store.wait(name)
    if found is not None:
        return found
    start, _, visit = name.rpartition(".")
    for definition in definitions.values():
        for old, new in definition.renames.places.items():
            if start.endswith(f".{old}"):
                found = await store.wait(f"{start.removesuffix(old)}{new}.{visit}")
                if found is not None and found.workflow == definition.name:
                    return found
    raise NotFound(f"there is no wait {name!r}")


async def accepted_wait(
    known: Versions, definition: Definition, row: RunRow, wait: WaitRow
) -> tuple[Definition, WaitRow]:
    """The wait as it is to be answered, under the names of now, and the definition that says how.

    Raises `IncompatibleDefinition` where the code at hand would not go on from the answer; nothing is changed then.
    """
    is_here = (wait.state, wait.visit) == (row.standing.state, row.standing.visit)
    if row.shape == definition.shape:
        return definition, wait
    if row.standing.status in TERMINAL or not is_here:
        state = place_of(definition, row.id, definition.renames.place(wait.state))
        return definition, replace(wait, state=state.name)
    definition = await known.check(row)
    if row.session is not None or not _has_new_names(definition, row):
        return definition, wait
    await known.record(definition)
    await carry_over(known.store, definition, row)  # a worker may have been quicker
    carried = await known.store.run(row.id)
    renamed = None if carried is None else await waits_here(known.store, carried)
    if not renamed or carried is None or carried.shape != definition.shape:
        raise Conflict(f"run {row.id!r} is just being claimed by other code; try again")
    return definition, renamed[0]


def _has_new_names(definition: Definition, row: RunRow) -> bool:
    name = definition.renames.place(row.standing.state)
    return must_be_carried(definition, row) and (name != row.standing.state or name in definition.renames.members)
