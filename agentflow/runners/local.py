"""The local runner: drives many runs at a time on one event loop, over any store.

It holds one worker session. A thread of its own renews the lease, so a long body does not lose its run. When it is
told to drive *everything* it takes whatever is due, its own or left behind by a dead process; otherwise it drives the
runs that it was told about. It stops gracefully: bodies at work finish and commit, then runs are given back.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeAlias

from agentflow.engine.head import Head
from agentflow.errors import AgentflowError, EffectHeld, IncompatibleDefinition, SessionOver, StoreError
from agentflow.model.definition import Definition
from agentflow.runners.carrying import carry_over, must_be_carried
from agentflow.runners.drive import BLOCKED_FOR, SHORT_WAIT, Drive
from agentflow.runners.perform import Script
from agentflow.runners.records import object_of
from agentflow.runners.resources import Resources
from agentflow.runners.upkeep import Upkeep
from agentflow.runners.versions import Place, Versions, candidates, place_of
from agentflow.runners.watchdog import PATIENCE, Watchdog
from agentflow.store.protocol import Store
from agentflow.store.rows import RunRow
from agentflow.store.texts import escaped

log = logging.getLogger("agentflow.runner")

POLL = 0.2  # how often other processes' doings are looked at, in seconds
HEARTBEAT = 10.0
REFUSED_FOR = timedelta(seconds=5)  # a run whose data this code does not take: other code may, in the meantime
TROUBLE = 1.0  # how long to wait before a store in trouble is tried again, in seconds


@dataclass(slots=True, kw_only=True)
class Settings:
    """How a runner works."""

    name: str | None = None  # of its session, as workers are listed; by default host and process
    everything: bool = False
    concurrency: int = 100
    drain: timedelta = timedelta(seconds=30)
    strict: bool = False
    heartbeat: float = HEARTBEAT
    watchdog: float = PATIENCE
    short_wait: timedelta = SHORT_WAIT
    on_commit: Callable[[Head], None] = lambda _: None
    make_heart: "MakeHeart | None" = None  # a test without threads beats by itself


@dataclass(slots=True)
class Task:
    """A run in the hands of this runner."""

    row: RunRow
    drive: Drive
    task: "asyncio.Task[None]"
    begun: bool = False
    cancelled: bool = False
    lost: bool = False  # the drive ended because the run seemed to be somebody else's


@dataclass(frozen=True, slots=True)
class Unreleased:
    """A run that the store did not let us go on with: it is given back after a pause, so that nothing spins."""

    token: str
    not_before: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """What the store refused last, and when."""

    error: Exception
    at: float

    def is_fresh(self, now: float) -> bool:
        return now - self.at < 2 * TROUBLE


@dataclass(slots=True, kw_only=True)
class LocalRunner:
    """Drives runs on the event loop on which it was started."""

    store: Store
    definitions: Mapping[tuple[str, int], Definition]
    resources: Resources
    settings: Settings = field(default_factory=Settings)
    script: Script | None = None
    _session: str | None = None
    _tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    _wanted: set[str] = field(default_factory=set[str])
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _refused: dict[str, Exception] = field(default_factory=dict[str, Exception])
    _changed: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _loop_task: "asyncio.Task[None] | None" = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _heart: "Beating | None" = None
    _stopping: bool = False
    _trouble: "Trouble | None" = None
    _unreleased: dict[str, Unreleased] = field(default_factory=dict[str, Unreleased])
    _lost: bool = False
    _doubtful: bool = False  # whether the session may hold runs that nobody drives
    _beside: "Upkeep | None" = None
    _watchdog: "Watchdog | None" = None
    _versions: "Versions | None" = None
    _told: set[Place] = field(default_factory=set[Place])  # where runs stand that were refused, and it was logged

    # --- what the App calls ------------------------------------------------------------------------------------

    @property
    def session(self) -> str | None:
        """The worker session that it holds, None before it started."""
        return self._session

    async def start(self) -> None:
        """Open a session and begin to look for due runs. Repeating it is harmless."""
        async with self._starting:  # verbs that come at the same time begin one session
            if self._loop_task is not None:
                return
            await self.store.open()
            await self._begin_session()
            if self.settings.make_heart is None:
                self._watchdog = Watchdog(self._work_of, self.settings.watchdog)
                self._watchdog.start()
            self._loop_task = asyncio.create_task(self._look_for_work(), name="agentflow-runner")

    @property
    def _known(self) -> Versions:
        self._versions = self._versions or Versions(self.store, self.definitions)
        return self._versions

    def _upkeep(self) -> Upkeep:
        self._beside = self._beside or Upkeep(self.store)
        return self._beside

    def _work_of(self, task: "asyncio.Task[object]") -> str | None:
        """What a task is at, for a message."""
        for run, held in list(self._tasks.items()):
            if held.task is task:
                return f"state {held.drive.state!r} of run {run!r}"
        return None

    def drive(self, run: str) -> None:
        """See that this run is driven, now and whenever it becomes due, until it ends."""
        self._wanted.add(run)
        self._wake.set()

    def _drive_all(self, runs: tuple[str, ...]) -> None:
        """See that these are driven, too: branches of a run that is."""
        self._wanted.update(runs)
        self._wake.set()

    def forget_refusal(self, run: str) -> None:
        """Do not raise what blocked the run before: it is about to be looked at again."""
        self._refused.pop(run, None)

    async def until_changed(self, run: str) -> None:
        """Return when this process has committed something for the run, or after a moment: others may have."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None and trouble.is_fresh(_clock()):
            raise trouble.error
        if run in self._refused:
            raise self._refused.pop(run)
        event = self._changed.setdefault(run, asyncio.Event())
        if run in self._tasks:  # whatever happens to it, happens here
            await event.wait()
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await event.wait()
        event.clear()

    async def settle(self) -> None:
        """Claim and drive until nothing is at work and nothing is due, for tests with a stopped clock."""
        while True:
            session = self._session
            await self._claim_due()
            if self._tasks:
                await asyncio.wait([held.task for held in self._tasks.values()])
            elif self._session == session:
                return

    def cancel_body(self, run: str) -> None:
        """Stop the body at work for a run whose cancel was requested."""
        held = self._tasks.get(run)
        if held is None or not held.begun or held.cancelled or held.drive.carries_out_cancel:
            return  # one that has not begun is met again in a moment
        held.cancelled = True
        held.task.cancel()

    async def stop(self) -> None:
        """Finish the bodies at work, give all runs back, and end the session."""
        self._stopping = True
        self._wake.set()
        if self._loop_task is not None:
            self._loop_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop_task
            self._loop_task = None
        await self._drain()
        with contextlib.suppress(StoreError):  # whoever loads such a run folds it
            await self._upkeep().fold()
        await self._end_session()

    async def _drain(self) -> None:
        tasks = [held.task for held in self._tasks.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.settings.drain.total_seconds())
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # --- the loop ----------------------------------------------------------------------------------------------

    async def _look_for_work(self) -> None:
        try:
            while True:
                try:
                    await self._look_once()
                except Exception as error:  # noqa: BLE001  a loop that ends would leave every run undriven
                    self._note(error)
                    await asyncio.sleep(TROUBLE)
                await self._sleep()
        except asyncio.CancelledError:
            if not self._stopping:  # the loop is going down without a stop: leave nothing behind
                await self._end_session()
            raise

    async def _look_once(self) -> None:
        if self._lost and self._session is not None:
            await self._begin_another_session(self._session)
        for run, left in list(self._unreleased.items()):
            if _clock() >= left.not_before:
                await self.store.release_run(run, left.token)
                if self._unreleased.get(run) is left:  # else a newer claim of it came into trouble meanwhile
                    del self._unreleased[run]
        if self._doubtful:
            await self._give_up_orphans()
        await self._claim_due()
        await self._look_at_requests()
        await self._upkeep().look(_clock())

    async def _give_up_orphans(self) -> None:
        """Give back what the session holds and nobody here drives: the answer to its claim was lost, or a write was
        refused although the claim stands. Nothing else would ever free it while this process lives.
        """
        self._doubtful = False
        try:
            own = next((row for row in await self.store.sessions() if row.id == self._session), None)
            for run in own.runs if own is not None else ():
                row = await self.store.run(run)
                if (
                    row is not None
                    and row.session == self._session
                    and run not in self._tasks.keys() | self._unreleased
                ):
                    await self.store.release_run(run, row.token or "")
        except StoreError:
            self._doubtful = True
            raise

    def _note(self, error: Exception) -> None:
        """The store is in trouble: verbs that wait raise it, and the runner tries again."""
        if self._trouble is None or not self._trouble.is_fresh(_clock()):
            log.error("store in trouble, trying again: %s", error)
        self._trouble = Trouble(error, _clock())
        for event in self._changed.values():
            event.set()

    async def _begin_session(self) -> None:
        self._session = await self.store.open_session(
            escaped(self.settings.name or f"{socket.gethostname()}:{os.getpid()}")
        )
        self._lost = False
        make_heart = self.settings.make_heart or Heart
        self._heart = make_heart(self.store, self._session, self.settings.heartbeat, self._lose_everything)
        self._heart.start()

    async def _begin_another_session(self, lost: str) -> None:
        async with self._starting:
            if self._session == lost:  # else somebody was quicker
                if self._heart is not None:
                    self._heart.stop()
                await self._begin_session()

    async def _end_session(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        if self._heart is not None:
            self._heart.stop()
            self._heart = None
        if self._session is not None:
            session, self._session = self._session, None
            await self.store.close_session(session)

    async def _sleep(self) -> None:
        if len(self._tasks) >= self.settings.concurrency:
            self._wake.clear()  # a task that ends wakes the loop
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL):
                await self._wake.wait()
        self._wake.clear()

    async def _claim_due(self) -> None:
        async with self._claiming:  # what another task is being given would be due here, and beyond what is free
            await self._claim_what_is_free()

    async def _claim_what_is_free(self) -> None:
        assert self._session is not None  # start() opened it
        free = self.settings.concurrency - len(self._tasks)
        if free <= 0:
            return
        wanted = None if self.settings.everything else [run for run in self._wanted if run not in self._tasks]
        if wanted is None or wanted:
            try:
                rows = await self._claim(self._session, free, wanted)
            except SessionOver as over:  # no heartbeat could know it yet: the machine slept, or a clock was set
                self._lose_everything()
                await self._begin_another_session(over.session)
                return self._wake.set()
            except StoreError:
                self._doubtful = True  # it may have been done all the same
                raise
            for row in rows:
                self._take(row)

    async def _claim(self, session: str, free: int, wanted: Sequence[str] | None) -> Sequence[RunRow]:
        known, refused = sorted(self.definitions), self._known.refused  # of several versions, the newest counts
        if wanted is not None or not refused:
            return await self.store.claim_runs(session, limit=free, runs=wanted, workflows=known)
        rows = [*await self.store.claim_runs(session, limit=free, workflows=known, refused=refused)]
        asked = [run for run in self._wanted if run not in self._tasks]  # somebody waits for these, and shall be told
        if asked and len(rows) < free:
            rows += await self.store.claim_runs(session, limit=free - len(rows), runs=asked, workflows=known)
        return rows

    def _take(self, row: RunRow) -> None:
        definition = candidates(self.definitions, row)[0]
        drive = Drive(
            store=self.store,
            definition=definition,
            resources=self.resources,
            row=row,
            strict=self.settings.strict,
            script=self.script,
            is_stopping=lambda: self._stopping,
            short_wait=self.settings.short_wait,
            on_commit=self.settings.on_commit,
            on_branches=self._drive_all,
            on_segment=self._upkeep().long.add,
        )
        task = asyncio.create_task(self._drive(row, drive), name=f"agentflow-run-{row.id}")
        self._tasks[row.id] = held = Task(row, drive, task)
        task.add_done_callback(lambda _: self._ended(row.id, held))

    def _ended(self, run: str, held: Task) -> None:
        """A run is out of our hands, also if its task was cancelled before it began."""
        if self._tasks.get(run) is held:  # else it was claimed anew while an older drive of it came to its end
            del self._tasks[run]
        self._doubtful = self._doubtful or held.lost
        changed = self._changed.pop(run, None)
        if changed is not None:
            changed.set()
        self._wake.set()

    async def _drive(self, row: RunRow, drive: Drive) -> None:
        held = self._tasks[row.id]
        held.begun = True
        try:
            await self._drive_or_block(row, drive, held)
        except StoreError as error:
            self._unreleased[row.id] = Unreleased(drive.row.token or "", _clock() + TROUBLE)
            self._note(error)

    async def _drive_or_block(self, row: RunRow, drive: Drive, held: Task) -> None:
        try:
            foreign = row.shape != drive.definition.shape and not drive.is_cancelled
            if foreign and not await self._put_under(row, drive, held):
                return
            ended = await drive.run()
            held.lost = ended == "lost"
            if ended == "over":
                self._wanted.discard(row.id)
        except asyncio.CancelledError:
            await self._give_back(row, drive, held)
            raise
        except StoreError:
            raise
        except EffectHeld as refused:
            self._wanted.discard(row.id)
            await drive.block(str(refused), again=None)
        except Exception as error:  # noqa: BLE001  whatever it is, the run must not stay in our hands
            await self._block(row, drive, error)

    async def _put_under(self, row: RunRow, drive: Drive, held: Task) -> bool:
        """Let a run of another shape stand under the definition at hand; False if it is in our hands no longer.

        Raises `IncompatibleDefinition` for one that this code does not accept.
        """
        definition = await self._known.check(row)
        if definition is drive.definition and not must_be_carried(definition, row):
            held.lost = not await self._known.adopt(definition, row)
            return not held.lost
        await self._known.record(definition)
        await self.store.release_run(row.id, row.token or "")
        free = await self.store.run(row.id)
        if free is not None and free.session is None and must_be_carried(definition, free):
            await carry_over(self.store, definition, free)  # if it loses, whoever claims the run next does it
        return False

    async def _give_back(self, row: RunRow, drive: Drive, held: Task) -> None:
        """The body was cancelled: for a cancel command, or because the loop is going down."""
        if held.cancelled:
            held.lost = await drive.cancel_now() == "lost"
        else:
            await self.store.release_run(row.id, drive.row.token or "")

    async def _block(self, row: RunRow, drive: Drive, error: Exception) -> None:
        """The code at hand does not fit the run, or the program is set up wrongly: leave the run as it is."""
        is_known = isinstance(error, IncompatibleDefinition) and place_of(row) in self._told
        if isinstance(error, IncompatibleDefinition):
            self._told.add(place_of(row))
            error.__traceback__ = None  # there may be thousands, kept for whoever asks
        level = logging.INFO if is_known else logging.ERROR  # a deploy may block thousands, all for the same reason
        log.log(level, "run %s: %s", row.id, error, exc_info=None if isinstance(error, AgentflowError) else error)
        self._wanted.discard(row.id)
        reason = str(error) or type(error).__name__
        if await drive.block(reason, again=self._again(row, error, reason)):
            self._refused[row.id] = error  # else it was migrated meanwhile, or taken by others

    def _again(self, row: RunRow, error: Exception, reason: str) -> timedelta:
        """When a blocked run may be claimed anew. What this code refuses, other code may take at once."""
        if not isinstance(error, IncompatibleDefinition):
            return BLOCKED_FOR
        if place_of(row) in self._known.refused:
            return timedelta(0)  # this worker leaves it to others from now on
        return BLOCKED_FOR if row.standing.blocked == reason else REFUSED_FOR

    async def _look_at_requests(self) -> None:
        """Stop the bodies of runs whose cancel was requested, here or by another process."""
        assert self._session is not None  # start() opened it
        for run, request in await self.store.requests(self._session):
            if "cancel" in object_of(request):
                self.cancel_body(run)

    def _lose_everything(self) -> None:
        """The lease is lost: what the bodies at work do would be discarded, so stop them."""
        self._lost = True
        for held in list(self._tasks.values()):
            held.task.get_loop().call_soon_threadsafe(held.task.cancel)


def _clock() -> float:
    """Seconds on the clock of the loop, which a test may replace."""
    return asyncio.get_running_loop().time()


class Beating(Protocol):
    """What keeps a session alive."""

    def start(self) -> None:
        """Begin to renew the lease."""
        ...

    def stop(self) -> None:
        """Renew it no more."""
        ...


MakeHeart: TypeAlias = Callable[[Store, str, float, Callable[[], None]], Beating]


class Heart(threading.Thread):
    """Renews the session's lease, however long the loop is busy."""

    def __init__(self, store: Store, session: str, interval: float, on_loss: Callable[[], None]) -> None:
        super().__init__(name="agentflow-heart", daemon=True)
        self._store = store
        self._session_id = session
        self._interval = interval
        self._on_loss = on_loss
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(self._interval):
            try:
                alive = self._store.renew_session(self._session_id)
            except StoreError as error:
                log.warning("heartbeat failed, trying again: %s", error)
                continue
            if not alive:
                log.error("session %s lost its lease", self._session_id)
                self._on_loss()
                return

    def stop(self) -> None:
        """End the beat and wait for the thread."""
        self._end.set()
        self.join()
