"""The lives of a run: one is ended at a chosen point, the next finds what it left, and finishes.

Each is carried out in a process of its own. What the last one found and left is written to a file, as plain data.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from agentflow import Snapshot
from agentflow.errors import StoreBusy
from agentflow.store.protocol import Store
from tests.crash import statements
from tests.crash.hooked import hooked
from tests.crash.journey import Trip, app_over, journey, travel
from tests.crash.log import Log
from tests.crash.points import At, Points, die, stand_still
from tests.crash.stores import Place, open_store

TOLD = ("revision", "event", "source", "outcome", "target", "visit", "difference", "guards", "answer", "failure")


def ended_at(place: Place, number: At, life: str = "first") -> None:
    """A life that is ended at a point of the store, of a body or of an effect; it ends well if there is none."""
    asyncio.run(_live(place, life, number, die))


def ended_in_statement(place: Place, number: int, life: str = "first") -> None:
    """A life that is ended within the work of its database."""
    _live_to_statement(place, life, number, die)


def frozen_in_statement(place: Place, number: At) -> None:
    """A life that stands still within the work of its database, with the write lock in its hands."""
    _live_to_statement(place, "first", number, stand_still)


def _live_to_statement(place: Place, life: str, number: At, act: Callable[[], None]) -> None:
    log = Log(place.log, life)
    with statements.hooked(place.address, Points(log, number, act)):
        asyncio.run(_travel(place, open_store(place.address), log, lambda _: None))


async def _live(place: Place, life: str, number: At, act: Callable[[], None]) -> None:
    log = Log(place.log, life)
    points = Points(log, number, act)
    await _travel(place, hooked(open_store(place.address), points), log, points)


async def _travel(place: Place, store: Store, log: Log, hook: Callable[[str], None]) -> None:
    app = app_over(store, log, hook)
    await asyncio.gather(*(travel(app, run) for run in place.runs))
    await app.close()


def frozen_at(place: Place, number: At) -> None:
    """A life that stands still at a point, and goes on when it is told, as if nothing had happened."""
    asyncio.run(_live(place, "first", number, stand_still))


def finish(place: Place, ahead: timedelta | None = None, frozen: At = None) -> None:
    """The last life: say what was found, finish the run, say what is there now.

    Its clock may be ahead, and it may stand still at a point until it is told to go on.
    """
    asyncio.run(_finish(place, place.until_death_is_known if ahead is None else ahead, frozen))


def be_refused(place: Place) -> None:
    """A life that can read, and not write, for another one has the write lock: it is told so."""
    asyncio.run(_be_refused(place))


async def _be_refused(place: Place) -> None:
    log = Log(place.log, "refused")
    app = app_over(open_store(place.address, patience=0.1), log, lambda _: None)
    log.note("read", (await app.get(place.run)).status)
    try:
        await app.start(journey, Trip(order="another"), id=f"beside-{place.run}")
    except StoreBusy as busy:
        log.note("busy", str(busy))
    await app._store.close()


def look(place: Place) -> None:
    """Say what the store knows now, beside what was said before."""
    asyncio.run(_look(place))


async def _look(place: Place) -> None:
    store = open_store(place.address)
    await store.open()
    told = json.loads(place.report.read_text(encoding="utf-8"))
    for run in place.runs:
        told[run]["later"] = await state_of(store, run)
    await store.close()
    place.report.write_text(json.dumps(told), encoding="utf-8")


async def _finish(place: Place, ahead: timedelta, frozen: At) -> None:
    log = Log(place.log, "second")
    store = open_store(place.address, ahead=ahead)
    points = Points(log, frozen, stand_still)
    await store.open()
    found = [await state_of(store, run) for run in place.runs]
    app = app_over(hooked(store, points), log, points)
    overs = await asyncio.gather(*(travel(app, run) for run in place.runs))
    left = [await ended_state_of(store, over) for over in overs]
    await app.close()
    told = {run: {"found": found[number], "left": left[number]} for number, run in enumerate(place.runs)}
    place.report.write_text(json.dumps(told), encoding="utf-8")


async def ended_state_of(store: Store, over: Snapshot[Trip]) -> dict[str, Any]:
    """The same of a run that has ended, and with which context."""
    left = await state_of(store, over.id)
    assert left is not None  # it has just ended
    return left | {"context": over.context.model_dump(mode="json"), "snapshot_end": str(over.end)}


async def state_of(store: Store, run: str) -> dict[str, Any] | None:
    """All that the store knows of a run; None if there is none."""
    row = await store.run(run)
    if row is None:
        return None
    history = [asdict(line) for line in await store.history(run)]
    return {
        "status": row.standing.status,
        "state": row.standing.state,
        "end": row.standing.end,
        "revision": row.revision,
        "session": row.session,
        "due": row.standing.due_at is not None,
        "history": [{name: line[name] for name in TOLD} for line in history],
        "effects": {effect.key: effect.status for effect in await store.effects(run=run)},
        "results": {effect.key: effect.result for effect in await store.effects(run=run)},
        "attempts": [[line.state, line.visit, line.attempt, line.outcome] for line in await store.attempts(run)],
        "open waits": [wait.id for wait in await store.waits(run=run)],
        "waits": [[wait.id, wait.status, wait.outcome] for wait in await store.waits(run=run, status=None)],
        "stranded": list(await store.stranded(limit=10)),
    }
