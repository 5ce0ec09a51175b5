"""The `App`: workflows, store, services and models, and the verbs over them.

Asynchronous verbs run on the caller's loop; their `_sync` twins (in the generated `blocking.py`) on one background
loop that the App owns. Each loop gets a runner at the first verb that needs one. A runner drives the runs that this
App was asked about; inside `async with app` it drives everything that is due in the store, and resumes what an earlier
process left behind.
"""

import asyncio
import atexit
import contextlib
import secrets
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from pydantic import BaseModel

from agentflow.app.background import Background
from agentflow.app.blocking import BlockingVerbs
from agentflow.app.commands import By, cancel_run, decide_wait, retry_run, told_decision, wake_run
from agentflow.app.deploying import DeployVerbs
from agentflow.app.later import LaterVerbs
from agentflow.app.operating import OperatingVerbs
from agentflow.app.reading import (
    place_of,
    read_revision,
    read_snapshot,
    read_why,
    revision_of,
    unsettled_branches,
    wait_of,
)
from agentflow.app.setting_up import check_models, definitions_of
from agentflow.app.starting import check_run_id, new_run
from agentflow.app.versions import (
    accepted_wait,
    is_same_start,
    others_may_take,
    revision_under,
    wait_named,
    with_doubts,
)
from agentflow.engine.head import Head
from agentflow.errors import Conflict, IncompatibleDefinition, InvalidInput, NotFound, RunError, RunFailed
from agentflow.model.definition import Definition, StateDefinition
from agentflow.model.values import Actor, Model
from agentflow.model.views import Reply, Revision, Snapshot, Status, Wait, Why
from agentflow.model.workflow import CD, C, Workflow
from agentflow.runners.carrying import seen_as
from agentflow.runners.local import LocalRunner, Settings
from agentflow.runners.perform import Script
from agentflow.runners.records import is_over_limit
from agentflow.runners.resources import Resources, match_services
from agentflow.runners.versions import Versions, candidates, missing
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from agentflow.store.rows import TERMINAL, Existing, RunFilter, RunRow
from agentflow.store.texts import is_storable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from agentflow.llm.client import ModelClient

A_MOMENT = 0.02  # in seconds
AT_EXIT = timedelta(seconds=1)  # how long an interpreter that ends waits for bodies at work


class App(BlockingVerbs, OperatingVerbs, DeployVerbs, LaterVerbs):
    """The one object that a program holds: workflows, store, services, models.

    The default store is the file `agentflow.db` in the working directory; `memory:` keeps nothing. Without `models`,
    states ask the model of the variable OPENAI_MODEL through the client's own variables (OPENAI_API_KEY,
    OPENAI_BASE_URL). Raises `ConfigurationError` where services or models do not fit the workflows.
    """

    def __init__(
        self,
        workflows: Sequence[Workflow[Any, Any]],
        /,
        *,
        store: str | Store = "sqlite:///agentflow.db",
        services: Sequence[Callable[[], AbstractAsyncContextManager[object]]] = (),
        models: Mapping[str, Model] | None = None,
    ) -> None:
        self._definitions = definitions_of(workflows)
        self._store: Store = open_store(store) if isinstance(store, str) else store
        self._known = Versions(self._store, self._definitions)
        self._factories = match_services(list(self._definitions.values()), services)
        self._models = dict(models or {})
        check_models(self._definitions.values(), self._models)
        self._settings = Settings()
        self._drives = True
        self._script: Script | None = None
        self._client: ModelClient | None = None
        self._runners: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LocalRunner] = weakref.WeakKeyDictionary()
        self._background: Background | None = None
        self._closing = 0  # loops that are letting go
        self._lock = threading.Lock()

    @property
    def definitions(self) -> Sequence[Definition]:
        """The closed definitions of this App's workflows."""
        return tuple(self._definitions.values())

    def use_store(self, url: str) -> None:
        """Keep runs in another store; before the first verb alone."""
        self._store = open_store(url)
        self._known = Versions(self._store, self._definitions)

    def answer_with(self, client: "ModelClient") -> None:
        """Let this client answer for every model; before the first verb alone."""
        self._client = client

    def work_as(
        self,
        *,
        concurrency: int,
        drain: timedelta,
        name: str | None = None,
        on_end: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """How this App works as a worker: how many runs at once, and how long a stop waits for bodies at work.

        `name` is how it is listed among the workers. `on_end` is told the run, its status and where it ended. Before
        the first verb alone.
        """
        self._settings.name = name
        self._settings.concurrency = concurrency
        self._settings.drain = drain
        if on_end is not None:
            self._settings.on_commit = _told_of_ends(on_end)

    def leave_to_workers(self) -> None:
        """Do not drive the runs that are started, decided or retried here; before the first verb alone."""
        self._drives = False

    # --- lifetime ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Drive everything that is due, from now on."""
        runner = await self._runner()
        runner.settings = replace(runner.settings, everything=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop gracefully on this loop: bodies at work finish and commit, runs are given back, services are left."""
        self._closing += 1  # another loop that lets go of the App at this moment must not take the store away
        try:
            runner = self._runners.pop(asyncio.get_running_loop(), None)
            if runner is not None:
                await runner.stop()
                await runner.resources.close()
        finally:
            self._closing -= 1
        for loop in [loop for loop in self._runners if loop.is_closed()]:
            del self._runners[loop]  # it ended with its loop
        if not self._runners and not self._closing:
            await self._store.close()

    def hurry(self) -> None:
        """Let a stop wait a moment only for bodies at work: what they have not committed is done again later."""
        for runner in self._runners.values():
            runner.settings.drain = AT_EXIT

    def close_sync(self) -> None:
        """The same for the background loop that the `_sync` verbs use."""
        with self._lock:
            background, self._background = self._background, None
        if background is not None:
            background.stop(self.close())

    def __enter__(self) -> Self:
        """Drive everything that is due on the background loop, for programs without a loop."""
        self._wait_for(self.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close_sync()

    async def _runner(self) -> LocalRunner:
        loop = asyncio.get_running_loop()
        runner = self._runners.get(loop)
        if runner is None:
            runner = self._runners[loop] = LocalRunner(
                store=self._store,
                definitions=self._definitions,
                resources=Resources(self._factories, self._models, self._client),
                settings=replace(self._settings),
                script=self._script,
            )
        await runner.start()
        return runner

    async def _drive(self, run: str) -> None:
        if self._drives:
            (await self._runner()).drive(run)

    async def _drive_for_caller(self, row: RunRow) -> RunRow:
        """Drive a run that somebody waits for: a blocked one is looked at now, what blocked it may be mended."""
        runner = await self._runner()
        runner.forget_refusal(row.id)  # it is of before: the run may have been migrated since
        if row.standing.blocked is not None and not is_over_limit(row.standing):  # that changes by `resume` alone
            await wake_run(self._store, row.id)
            row = await self._row(row.id)
        await self._drive_all(runner, row)
        return row

    async def _drive_all(self, runner: LocalRunner, row: RunRow) -> None:
        """See that a run is driven, and so are the branches that it waits for."""
        runner.drive(row.id)
        for branch in await unsettled_branches(self._store, row):
            await self._drive_all(runner, branch)

    async def _drive_parents(self, row: RunRow) -> None:
        """See that those are driven, too, who wait for a branch."""
        while row.group_state is not None and row.parent is not None:
            await self._drive(row.parent)
            row = await self._row(row.parent)

    def _wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a verb on the background loop and wait for it."""
        with self._lock:
            if self._background is None:
                self._background = Background()
                atexit.register(_close_at_exit, weakref.ref(self))
            background = self._background
        return background.wait_for(work)

    # --- for tests with a stopped clock (agentflow.testing.Clock) -----------------------------------------------

    def stop_clock(self, now: Callable[[], datetime]) -> datetime:
        """Let the store ask `now` for the time, and no wait be slept; return the instant at which it stands."""
        stands_at = self._store.now()
        self._store.use_clock(now)
        self._settings.short_wait = timedelta(0)
        return stands_at

    async def settle(self) -> datetime | None:
        """Let everything happen that is due; return the instant at which something is due next."""
        await (await self._runner()).settle()
        return await self._store.next_due()

    async def work_off(self) -> None:
        """Drive until nothing is due, and nothing is in this App's hands; inside `async with app`."""
        runner = await self._runner()
        while True:
            await runner.settle()
            session = runner.session
            if not any(row.runs for row in await self._store.sessions() if row.id == session):
                return
            await asyncio.sleep(A_MOMENT)  # the runner's own loop has just taken another one

    # --- verbs -------------------------------------------------------------------------------------------------

    async def start(
        self,
        workflow: Workflow[C, Any],
        context: C,
        /,
        *,
        id: str | None = None,
        connection: "AsyncConnection | None" = None,
        batch: str | None = None,
    ) -> Snapshot[C]:
        """Create a run; it is committed when this returns.

        Starting an existing `id` again with the same input returns that run; with another input it raises `Conflict`
        and changes nothing. Raises `InvalidInput` for a context that cannot be stored or is too large.
        """
        if connection is not None:
            raise InvalidInput("connection=: a start cannot join your transaction yet; leave it out")
        row = await self._started(workflow, context, id, batch)
        if row.standing.status not in TERMINAL:
            await self._drive(row.id)
        return await self._read(self._definition_for(row, workflow), row)

    async def _started(self, workflow: Workflow[C, Any], context: C, id: str | None, batch: str | None) -> RunRow:
        """The row of the run, created now or before."""
        definition = self._definition_of(workflow)
        await self._store.open()
        run = check_run_id(id) if id is not None else secrets.token_hex(8)
        new = new_run(definition, context, run=run, now=self._store.now(), batch=batch)
        await self._known.record(definition)
        reply = await self._store.create_run(new)
        if isinstance(reply, Existing) and not await is_same_start(self._known, definition, reply.row, new):
            raise Conflict(
                f"run {run!r} exists with another input (workflow {reply.row.workflow!r}, "
                f"{reply.row.standing.status} in {reply.row.standing.state!r}); start under another id"
            )
        return reply.row

    async def run(
        self, workflow: Workflow[C, Any], context: C, /, *, id: str | None = None, timeout: timedelta | None = None
    ) -> Snapshot[C]:
        """Start a run and stay until it ends or waits.

        A run that failed is returned, not raised. Raises `TimeoutError` after `timeout`; the run goes on.
        """
        return await self._follow(await self._started(workflow, context, id, None), workflow, timeout)

    async def follow(
        self, run: str, workflow: Workflow[CD, Any] | None = None, /, *, timeout: timedelta | None = None
    ) -> Snapshot[CD]:
        """Drive a run, and stay until it ends or waits. Raises `TimeoutError` after `timeout`; the run goes on."""
        return await self._follow(await self._row(run), workflow, timeout)

    async def _follow(self, row: RunRow, workflow: Workflow[CD, Any] | None, timeout: timedelta | None) -> Snapshot[CD]:
        definition = self._definition_for(row, workflow)
        row = await self._drive_for_caller(row)
        async with asyncio.timeout(timeout.total_seconds() if timeout is not None else None):
            row = await self._until(row, self._has_come_back)
        return await self._read(definition, row)

    async def result(
        self, run: str, workflow: Workflow[CD, Any] | None = None, /, *, timeout: timedelta | None = None
    ) -> Snapshot[CD]:
        """Wait until the run ends. Raises `TimeoutError` after `timeout`; the run goes on.

        Raises `RunFailed` if it ended failed or cancelled, or is blocked until somebody acts.
        """
        row = await self._row(run)
        definition = self._definition_for(row, workflow)
        row = await self._drive_for_caller(row)
        async with asyncio.timeout(timeout.total_seconds() if timeout is not None else None):
            row = await self._until(row, _is_over_or_stuck)
        snapshot: Snapshot[CD] = await self._read(definition, row)
        if snapshot.status != "completed":
            raise RunFailed((await read_why(self._store, row)).text, snapshot)
        return snapshot

    async def get(
        self, run: str, workflow: Workflow[CD, Any] | None = None, /, *, revision: int | None = None
    ) -> Snapshot[CD]:
        """The run as it is now, or was at a revision. Raises `NotFound`."""
        row = await self._row(run)
        definition = self._definition_for(row, workflow)
        if revision is not None:
            then = await revision_under(self._known, definition, row, revision)
            return await read_revision(self._store, then, row, revision)
        return await self._read(definition, row)

    async def list(
        self,
        workflow: Workflow[CD, Any] | None = None,
        /,
        *,
        status: Status | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Sequence[Snapshot[CD]]:
        """Runs that this App's workflows can read, newest first; `after` is the id of the last one before the page."""
        rows = await self.rows(
            RunFilter(workflow=workflow.name if workflow else None, status=status, after=after, limit=limit)
        )
        found: list[Snapshot[CD]] = []
        for row in rows:
            with contextlib.suppress(RunError):  # of another code's shape: it must not hide the others
                found.append(await self._read(self._definition_for(row, workflow), row))
        return found

    async def history(self, run: str, /) -> Sequence[Revision]:
        """Every transition of a run, with its reasons; the first line, number 0, is its start."""
        row = await self._row(run)
        return [revision_of(line) for line in await self._store.history(row.id)]

    async def why(self, run: str, /) -> Why:
        """What the run waits for, or why it ended as it did."""
        row = await self._row(run)
        found = await read_why(self._store, row)
        return await with_doubts(found, self._known, row)

    async def waits(self, of: str | None = None, /, *, limit: int = 50) -> Sequence[Wait]:
        """Open questions, oldest first; `of` is the id of a wait or of a run. Raises `NotFound` if it has none."""
        await self._store.open()
        if of is None:
            return [wait_of(row) for row in await self._store.waits(limit=limit)]
        if not is_storable(of):
            raise NotFound(f"there is no wait and no run {of!r}")
        rows = await self._store.waits(run=of, limit=limit)
        if not rows and (row := await self._store.wait(of)) is not None:
            if row.status != "open":
                raise Conflict(f"wait {of!r} is {row.status}{f': {told_decision(row)}' if row.outcome else ''}")
            rows = [row]
        if not rows:
            known = await self._store.run(of)
            what = f"run {of!r} waits for nobody" if known is not None else f"there is no wait and no run {of!r}"
            raise NotFound(what)
        return [wait_of(row) for row in rows]

    async def decide(
        self,
        wait_id: str,
        outcome: Enum,
        data: BaseModel | None = None,
        *,
        actor: Actor,
        comment: str = "",
        request: str | None = None,
    ) -> Reply:
        """Answer the open wait of that id (`Snapshot.waits`), as a person.

        Exactly one decision is applied; repeating it is `already`, another one is `refused` and shows the first.
        Raises `NotFound` for an unknown wait and `InvalidInput` for an answer that does not fit; the run still waits.
        """
        await self._store.open()
        wait = await wait_named(self._store, self._definitions, wait_id)
        row = await self._row(wait.run)
        definition, wait = await accepted_wait(self._known, self._definition_for(row, None), row, wait)
        reply = await decide_wait(
            self._store, definition, wait, outcome, data, actor=actor, comment=comment, request=request
        )
        if reply.status != "refused":
            await self._drive(wait.run)
            await self._drive_parents(await self._row(wait.run))
        return reply

    async def cancel(self, run: str, /, *, undo: bool = False, **by: Unpack[By]) -> Reply:
        """Stop at the next commit; a body at work is stopped and discarded. A run that rests is cancelled at once."""
        if undo:
            raise InvalidInput("cancel(undo=True): compensation cannot run yet; cancel without it")
        row = await self._row(run)
        reply, at_work = await cancel_run(self._store, row, by, self._definitions.get((row.workflow, row.version)))
        if at_work:
            runner = await self._runner()
            runner.cancel_body(run)
            await self._drive_all(runner, row)
        await self._drive_parents(row)
        return reply

    async def retry(self, run: str, /, **by: Unpack[By]) -> Reply:
        """Go on with a failed run, from the state that failed; its recorded effects are replayed, not repeated."""
        row = await self._row(run)
        definition = self._definition_for(row, None)
        if row.standing.status == "failed" and row.standing.end is None:
            definition = await self._known.check(row)
        reply = await retry_run(self._store, definition, row, by)
        if reply.status != "refused":
            await self._drive(run)
        return reply

    # --- for the command line ----------------------------------------------------------------------------------

    async def rows(self, wanted: RunFilter, /) -> Sequence[RunRow]:
        """Runs as they are stored, also those of workflows that this App does not know."""
        await self._store.open()
        names = (wanted.workflow, wanted.batch, wanted.after)
        return await self._store.runs(wanted) if all(is_storable(name or "") for name in names) else ()

    async def state_of(self, wait: Wait, /) -> StateDefinition:
        """The state that asks. Raises `IncompatibleDefinition` if this App does not have it."""
        row = await self._row(wait.run)
        definition = self._definition_for(row, None)
        return definition.states[place_of(definition, row.id, definition.renames.place(wait.state)).name]

    async def ping(self) -> str:
        """Open the store; say where it is."""
        await self._store.open()
        return str(getattr(self._store, "path", "memory"))

    # --- below the verbs ---------------------------------------------------------------------------------------

    def _rests(self, row: RunRow) -> bool:
        """Whether the run waits for somebody, and nobody has answered yet; or is blocked until somebody acts."""
        due = row.standing.due_at
        waits = row.standing.status == "waiting" and row.session is None and (due is None or due > self._store.now())
        return waits or _is_stuck(row) or (row.paused and row.session is None)

    async def _has_come_back(self, row: RunRow) -> bool:
        """Whether a run has ended, or nothing happens to it until somebody acts: to it and to all its branches."""
        if row.standing.status in TERMINAL:
            return True
        if not self._rests(row):
            return False
        branches = await unsettled_branches(self._store, row)
        if not branches and await self._store.group(row.id, row.standing.state, row.standing.visit) is not None:
            return row.paused or _is_stuck(row)  # they have settled since the row was read: it is about to go on
        for branch in branches:
            if branch.awaits == 0 and not await self._has_come_back(branch):
                return False
        return True

    async def _until(self, row: RunRow, reached: Callable[[RunRow], Awaitable[bool]]) -> RunRow:
        while not await reached(row):
            runner = await self._runner()
            try:
                await runner.until_changed(row.id)
            except IncompatibleDefinition:
                if not await others_may_take(self._store, row.id, runner.session):
                    raise
            row = await self._row(row.id)
        return row

    async def _read(self, definition: Definition, row: RunRow) -> Snapshot[Any]:
        await self._known.check_readable(definition, row)
        return await read_snapshot(self._store, definition, seen_as(definition, row))

    async def _row(self, run: str) -> RunRow:
        await self._store.open()
        row = await self._store.run(run) if is_storable(run) else None
        if row is None:
            raise NotFound(f"there is no run {run!r}")
        return row

    def _definition_of(self, workflow: Workflow[Any, Any]) -> Definition:
        definition = self._definitions.get((workflow.name, workflow.version))
        if definition is None or definition.workflow is not workflow:
            raise InvalidInput(f"{workflow!r} is not among App([...]); pass it there")
        return definition

    def _definition_for(self, row: RunRow, workflow: Workflow[Any, Any] | None) -> Definition:
        if workflow is not None and workflow.name != row.workflow:
            raise InvalidInput(f"run {row.id!r} is of workflow {row.workflow!r}, not {workflow.name!r}")
        found = candidates(self._definitions, row)
        if not found:
            raise IncompatibleDefinition(missing(self._definitions, row))
        wanted = [one for one in found if workflow is not None and one.workflow is workflow]
        return wanted[0] if wanted else found[0]


async def _is_over_or_stuck(row: RunRow) -> bool:
    return row.standing.status in TERMINAL or _is_stuck(row)


def _is_stuck(row: RunRow) -> bool:
    """Whether a run is blocked, and nothing but a command wakes it."""
    return row.session is None and row.standing.blocked is not None and row.standing.due_at is None


def _told_of_ends(on_end: Callable[[str, str, str], None]) -> Callable[[Head], None]:
    def look(head: Head) -> None:
        if head.status in TERMINAL:
            on_end(head.run, head.status, head.state)

    return look


def _close_at_exit(app: "weakref.ref[App]") -> None:
    living = app()
    if living is not None:
        living.hurry()
        living.close_sync()
