"""`play`: a workflow in memory, by a script, with the engine and the runner that production uses."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic

from typing_extensions import TypeVar

from agentflow.app.starting import new_run
from agentflow.engine.head import failure_from_json
from agentflow.model.context import Context
from agentflow.model.definition import Definition
from agentflow.model.states import End, Place
from agentflow.model.values import Failure
from agentflow.model.workflow import Workflow
from agentflow.runners.contexts import load_context
from agentflow.runners.drive import Drive
from agentflow.runners.resources import Resources
from agentflow.store.memory import MemoryStore
from agentflow.testing.script import Line, LineScript, ScriptError

C = TypeVar("C", bound=Context)
SD = TypeVar("SD", default=None)
T = TypeVar("T")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Played(Generic[C]):
    """What a played run did."""

    path: Sequence[Place[C]]
    end: End[C] | None
    context: C
    failure: Failure | None


def play(
    workflow: Workflow[C, SD], context: C, services: SD | None = None, /, *, script: Sequence[Line[C]] = ()
) -> Played[C]:
    """Run a workflow in memory, by a script; a line that is missing or left over is an error.

    Steps run their bodies, with `services`. Models and people are replaced by the script's lines, but their bodies run:
    a broken question is found. Waits pass at once. Guards, prompt bodies and questions that change the context fail.
    """
    return _outside_of_loops(_play(workflow, context, services, script))


async def _play(workflow: Workflow[Any, Any], context: Any, services: Any, script: Sequence[Line[Any]]) -> Played[Any]:
    definition = workflow.definition
    if definition.services is not None and services is None:
        raise ScriptError(f"workflow {workflow.name!r} needs a {definition.services.__name__}; pass one to play()")
    clock = StoppedClock()
    store = MemoryStore(clock=clock.now)
    lines = LineScript(script)
    await store.open()
    session = await store.open_session("play")
    await store.create_run(new_run(definition, context, run="played", now=clock.now(), batch=None))
    resources = GivenServices(services)
    try:
        await _drive_to_the_end(store, session, definition, resources, lines, clock)
    finally:
        await resources.close()
    played = await _read(store, definition)
    lines.check_all_taken()
    return played


async def _drive_to_the_end(
    store: MemoryStore,
    session: str,
    definition: Definition,
    resources: Resources,
    script: LineScript,
    clock: "StoppedClock",
) -> None:
    while True:
        rows = await store.claim_runs(session, limit=1)
        if not rows:
            due = await store.next_due()
            if due is None:
                return
            clock.instant = max(due, clock.instant)
            continue
        drive = Drive(
            store=store,
            definition=definition,
            resources=resources,
            row=rows[0],
            strict=True,
            script=script,
            sleep=clock.sleep,
        )
        if await drive.run() == "over":
            return


async def _read(store: MemoryStore, definition: Definition) -> Played[Any]:
    row = await store.run("played")
    assert row is not None  # it was created above
    kept = await load_context(store, definition, row)
    history = await store.history(row.id)
    standing = row.standing
    failure = failure_from_json(standing.failure)
    return Played(
        path=[definition.place(line.target) for line in history],
        end=None if standing.end is None else definition.ends[standing.end],
        context=definition.context.copy(kept, failure),
        failure=failure,
    )


class GivenServices(Resources):
    """The services that a test hands over."""

    def __init__(self, services: Any) -> None:
        super().__init__({}, {})
        self._given = services

    async def services(self, definition: Definition) -> Any:
        """What the test handed over, for whatever workflow."""
        return self._given


@dataclass(slots=True)
class StoppedClock:
    """A clock that moves only when somebody would wait."""

    instant: datetime = EPOCH

    def now(self) -> datetime:
        return self.instant

    async def sleep(self, seconds: float) -> None:
        self.instant += timedelta(seconds=seconds)


def _outside_of_loops(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, also where the caller is on a loop: then on a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _on_a_thread(lambda: asyncio.run(work))


def _on_a_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  carried over to the caller, whatever it is
            errors.append(error)

    thread = threading.Thread(target=run, name="agentflow-play")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
