"""Drive one claimed run until it waits, ends, or belongs to somebody else: perform, advance, commit, and again.

Every pass of the loop is one commit. A commit that comes too late (`LateResult`) ends the drive without an error: the
run has another owner. A commit that meets a command (`Requested`) is repeated with the finished work and the command
both carried out, so that a cancel never discards what was done.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from agentflow.engine.advance import Advance, advance, next_commands
from agentflow.engine.commands import FailState, Perform, Stop, WaitUntil
from agentflow.engine.events import Answered, BodyFailed, Event, GiveUp
from agentflow.engine.head import Head, failure_to_json
from agentflow.engine.lifecycle import TERMINAL, next_status
from agentflow.engine.limits import limits_of
from agentflow.errors import LeaseLost
from agentflow.failures import CrashLoop, StatementRefused
from agentflow.model.definition import Definition, context_limit
from agentflow.model.values import failure_of
from agentflow.runners.contexts import fold_context
from agentflow.runners.groups import settled_by
from agentflow.runners.perform import Parked, Script, Work, perform
from agentflow.runners.records import check_accepts, head_of, history_row, object_of, standing_of
from agentflow.runners.resources import Resources
from agentflow.store.protocol import Store
from agentflow.store.rows import (
    AttemptRow,
    Commit,
    Committed,
    LateResult,
    Refused,
    Requested,
    RunRow,
    Settled,
    Standing,
    WaitRow,
)
from agentflow.store.segments import LENGTH, is_last_of_segment
from agentflow.store.texts import escaped

log = logging.getLogger("agentflow.runner")

MAX_CRASHES = 5
SHORT_WAIT = timedelta(seconds=2)  # a shorter wait for a retry is slept here, a longer one is a timer of the store
BLOCKED_FOR = timedelta(seconds=60)  # then a worker looks again whether it accepts the run
FAIR_TRANSITIONS = 100
FAIR_SECONDS = 0.01

MANY_DIFFERENCES = 2 * LENGTH + 100  # more than the segments and the rest of a folded run of 25,000 revisions

Ended = Literal["over", "waiting", "later", "lost", "released"]


@dataclass(slots=True, kw_only=True)
class Drive:
    """One run in the hands of this process."""

    store: Store
    definition: Definition
    resources: Resources
    row: RunRow
    strict: bool = False
    script: Script | None = None
    is_stopping: Callable[[], bool] = lambda: False
    on_commit: Callable[[Head], None] = lambda _: None
    on_branches: Callable[[tuple[str, ...]], None] = lambda _: None  # branches were begun
    on_segment: Callable[[str], None] = lambda _: None  # 256 revisions of the run are complete
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    short_wait: timedelta = SHORT_WAIT
    _head: Head | None = None
    _revision: int = 0
    _committed: Standing | None = None
    _since_yield: int = 0
    _yielded_at: float = 0.0
    _time: Callable[[], float] = time.monotonic  # replaced by the clock of the loop
    _half: int = 0  # of the bytes that the context may have
    _carries_out_cancel: bool = False

    def __post_init__(self) -> None:
        self._revision = self.row.revision

    @property
    def state(self) -> str:
        """Where the run stands."""
        return self.row.standing.state if self._head is None else self._head.state

    @property
    def is_cancelled(self) -> bool:
        """Whether there is nothing left to do but to carry out a cancel, for which any code will do."""
        return self.row.standing.status == "cancelling" or self._cancel_wanted()

    @property
    def carries_out_cancel(self) -> bool:
        """Whether it is at that already: there is no body left that could be stopped."""
        return self._carries_out_cancel

    async def run(self) -> Ended:
        """Go on until the run waits, ends, or is somebody else's."""
        try:
            return await self._run()
        except LeaseLost:
            return "lost"

    async def _run(self) -> Ended:
        if self.is_cancelled:
            return await self._cancelled(self._bare_head())
        head = await self._load()
        lost = self._lost_attempts(head)
        if self.row.claims_without_progress > MAX_CRASHES:
            return await self._crash_loop(head, lost)
        head = replace(head, lost=head.lost + len(lost))
        self._head = head
        if (ended := await self._until_retry(head, lost)) is not None:
            return ended
        commands = next_commands(self.definition, head)
        task = asyncio.current_task()
        while True:
            match commands[0]:
                case Perform() | FailState() as command:
                    work = self._work(head)
                    result = await perform(work, command)
                case WaitUntil() | Stop():
                    raise AssertionError("these are carried out where they arise")
            step = await self._take(work, result, lost)
            if isinstance(step, str):
                return step
            head, commands, lost = step.head, step.commands, ()
            self._head = head  # before anything is awaited: a cancel goes on from here
            if self._gives_way(task):
                await asyncio.sleep(0)
                self._since_yield, self._yielded_at = 0, self._time()

    async def _until_retry(self, head: Head, lost: tuple[AttemptRow, ...]) -> Ended | None:
        """Wait for the instant of a retry that an earlier worker did not live to see."""
        if head.attempt == 0:
            return None
        rows = [
            row for row in await self.store.attempts(head.run) if (row.state, row.visit) == (head.state, head.visit)
        ]
        instant = next((row.retry_at for row in reversed(rows) if row.retry_at is not None), None)
        if instant is None or instant <= self.store.now():
            return None
        if instant - self.store.now() <= self.short_wait and not self.is_stopping():
            await self.sleep(max(0.0, (instant - self.store.now()).total_seconds()))
            return None
        later = replace(head, status=next_status(head.status, "defer"))
        ended = await self._commit_standing(later, release=True, attempts=lost, due_at=instant)
        return "later" if ended == "over" else ended

    async def cancel_now(self) -> Ended:
        """Carry out a cancel whose body was stopped; what the body did is discarded."""
        return await self._cancelled(self._head or self._bare_head())

    async def block(self, reason: str, *, again: timedelta | None = BLOCKED_FOR) -> bool:
        """The code or the set-up at hand does not fit the run: leave it as it is, to be looked at again after a while.

        Where `again` is None, only a command wakes it. False if the run is in our hands no longer.
        """
        standing = self.row.standing
        blocked = replace(
            standing,
            status="queued" if standing.status in {"running", "waiting"} else standing.status,
            blocked=escaped(reason),
            due_at=None if again is None else self.store.now() + again,
        )
        if self._head is not None:
            blocked = replace(standing_of(self._head, blocked.due_at), status="queued", blocked=escaped(reason))
        return await self._commit(blocked, release=True) != "lost"

    # --- before the first step ---------------------------------------------------------------------------------

    async def _load(self) -> Head:
        check_accepts(self.definition, self.row)
        differences = await self.store.differences(self.row.id, self.row.revision)
        if len(differences) > MANY_DIFFERENCES:
            self.on_segment(self.row.id)  # whoever completed its segments did not come to fold them
        kept = await fold_context(self.store, self.definition, self.row, differences, self.resources.bases)
        head = head_of(self.row, kept)
        self._time = asyncio.get_running_loop().time
        self._yielded_at = self._time()
        if head.status in {"queued", "waiting"}:
            head = replace(head, status=next_status(head.status, "claim"))
        self._half = context_limit(limits_of(self.definition, head)) // 2
        return replace(head, blocked=None)

    def _bare_head(self) -> Head:
        """Where the run stands, without its context: a cancel needs none."""
        return head_of(self.row, self.definition.context.empty)

    def _cancel_wanted(self) -> bool:
        return "cancel" in object_of(self.row.request)

    def _lost_attempts(self, head: Head) -> tuple[AttemptRow, ...]:
        """Rows of attempts that died with their process: written by whoever claims the run next."""
        return tuple(
            AttemptRow(
                revision=head.revision,
                state=head.state,
                visit=head.visit,
                attempt=number,
                at=self.store.now(),
                outcome="lost",
                failure=None,
            )
            for number in range(head.number, head.number + self.row.claims_without_progress - 1)
        )

    async def _crash_loop(self, head: Head, lost: tuple[AttemptRow, ...]) -> Ended:
        error = CrashLoop(f"the process died {len(lost)} times in state {head.state!r}")
        failed = replace(head, status=next_status(head.status, "fail"), failure=failure_of(error, head.state))
        return await self._commit_standing(failed, release=True, attempts=lost)

    def _work(self, head: Head) -> Work:
        token = self.row.token
        assert token is not None  # a claimed run has one
        return Work(
            store=self.store,
            definition=self.definition,
            resources=self.resources,
            head=head,
            state=self.definition.states[head.state],
            token=token,
            strict=self.strict,
            script=self.script,
            origin=self.row.origin,
            holds_effects=self.row.holds_effects,
        )

    # --- one step ----------------------------------------------------------------------------------------------

    async def _take(self, work: Work, result: Event | Parked, lost: tuple[AttemptRow, ...]) -> Advance | Ended:
        head = work.head
        if isinstance(result, Parked):
            return await self._park(head, result, lost)
        step = advance(self.definition, head, result, strict=self.strict)
        answered = isinstance(result, Answered)
        tried = not answered and step.head.blocked is None  # what a limit forbids was not tried
        attempts = lost + self._failed_attempts(head, result, step) if tried else lost
        if step.move is None:
            return await self._stay(head, step, attempts)
        ended = await self._move(step, attempts, work if answered else None)
        if not isinstance(ended, Refused):
            return ended
        error = StatementRefused(f"statement {ended.number + 1} of run.transaction was refused: {ended.error}")
        failed = BodyFailed(result.at, failure_of(error, head.state, attempts=head.number), GiveUp())
        return await self._take(work, failed, lost)

    def _failed_attempts(self, head: Head, event: Event, step: Advance) -> tuple[AttemptRow, ...]:
        failure = getattr(event, "failure", None)
        if failure is None:
            return ()
        retry_at = step.commands[0].instant if isinstance(step.commands[0], WaitUntil) else None
        facts = getattr(event, "facts", None)
        return (
            AttemptRow(
                revision=head.revision,
                state=head.state,
                visit=head.visit,
                attempt=head.number,
                at=event.at,
                outcome="failed",
                failure=failure_to_json(failure),
                duration_ms=facts.duration_ms if facts is not None else None,
                retry_at=retry_at,
            ),
        )

    async def _move(
        self, step: Advance, attempts: tuple[AttemptRow, ...], answered: Work | None
    ) -> Advance | Ended | Refused:
        assert step.move is not None  # the caller looked
        over = step.head.status in TERMINAL
        stopping = not over and self.is_stopping()
        standing = standing_of(step.head, self.store.now() if stopping else None)
        if stopping:
            standing = replace(standing, status=next_status(step.head.status, "release"))
        history = history_row(self.definition, step.head.revision, step.move)
        reply = await self._commit(
            standing,
            history=history,
            attempts=attempts,
            release=over or stopping,
            answered=answered,
            values=step.move.difference.blobs,
        )
        if isinstance(reply, Refused):
            return reply
        if reply == "lost":
            return "lost"
        self._warn_at_half(step.head)
        self._head = step.head  # a cancel that comes from now on goes on from here
        self.on_commit(step.head)
        if over:
            return "over"
        if isinstance(reply, RunRow):
            return await self._cancelled(step.head)
        return "released" if stopping or reply == "paused" else step

    def _warn_at_half(self, after: Head) -> None:
        """Tell once that the context has grown beyond half of what it may have."""
        half = self._half
        if after.kept.size > half and (self._head is None or self._head.kept.size <= half):
            log.warning(
                "run %s: its context has %s bytes, more than half of context_bytes=%s",
                after.run,
                f"{after.kept.size:,}",
                f"{2 * half:,}",
            )

    async def _stay(self, head: Head, step: Advance, attempts: tuple[AttemptRow, ...]) -> Advance | Ended:
        """A failed attempt that will be tried again, or a run that ends failed where it stands."""
        command = step.commands[0]
        if not isinstance(command, WaitUntil):
            return await self._commit_standing(step.head, release=True, attempts=attempts)
        if command.instant - self.store.now() <= self.short_wait and not self.is_stopping():
            reply = await self._commit(standing_of(step.head, None), attempts=attempts)
            if isinstance(reply, RunRow):
                return await self._cancelled(step.head)
            if reply is not None:
                return "lost" if reply == "lost" else "released"
            self._head = step.head
            await self.sleep(max(0.0, (command.instant - self.store.now()).total_seconds()))
            return Advance(step.head, None, next_commands(self.definition, step.head))
        later = replace(step.head, status=next_status(step.head.status, "defer"))
        ended = await self._commit_standing(later, release=True, attempts=attempts, due_at=command.instant)
        return "later" if ended == "over" else ended

    async def _park(self, head: Head, parked: Parked, lost: tuple[AttemptRow, ...]) -> Ended:
        waiting = replace(head, status=next_status(head.status, "park"))
        opens = (parked.wait,) if parked.wait is not None else ()
        ended = await self._commit_standing(
            waiting, release=True, attempts=lost, due_at=parked.due_at, opens=opens, parked=parked
        )
        if ended == "over" and parked.branches:
            self.on_branches(tuple(new.id for new in parked.branches))
        return "waiting" if ended == "over" else ended

    async def _cancelled(self, head: Head) -> Ended:
        """Carry out a cancel, once the commit that met it is durable; branches are stopped before."""
        self._carries_out_cancel = True
        state = self.definition.states.get(head.state)  # other code may name its states otherwise
        if (state is None or state.kind == "group") and not await self._have_stopped(head):
            stopping = replace(head, status="cancelling", blocked=None)
            reply = await self._commit(standing_of(stopping, None), release=True, cancels=True)
            return "lost" if reply == "lost" else "waiting"
        status = head.status if head.status == "cancelling" else next_status(head.status, "cancel")
        stopped = replace(head, status=next_status(status, "stop") if status == "cancelling" else status)
        waits = await self.store.waits(run=head.run, status="open")
        standing = standing_of(stopped, None)
        reply = await self._commit(standing, release=True, closes=tuple(wait.id for wait in waits), done=True)
        if reply == "lost":
            return "lost"
        self.on_commit(stopped)
        return "over"

    async def _have_stopped(self, head: Head) -> bool:
        """Stop the branches of the group in which the run stands; whether all have settled."""
        token = self.row.token or ""
        row = await self.store.stop_branches(head.run, head.state, head.visit, token=token, expired=False)
        return row is None or row.is_over

    # --- commits -----------------------------------------------------------------------------------------------

    async def _commit_standing(
        self,
        head: Head,
        *,
        release: bool,
        attempts: tuple[AttemptRow, ...] = (),
        due_at: datetime | None = None,
        opens: tuple[WaitRow, ...] = (),
        parked: Parked | None = None,
    ) -> Ended:
        """A commit without a transition that gives the run back."""
        reply = await self._commit(
            standing_of(head, due_at),
            release=release,
            attempts=attempts,
            opens=opens,
            stop_at_request=True,
            parked=parked,
        )
        if reply == "lost":
            return "lost"
        if isinstance(reply, RunRow):
            return await self._cancelled(replace(head, status="running", failure=None, blocked=None))
        self.on_commit(head)
        return "over"

    async def _commit(
        self,
        standing: Standing,
        *,
        history: Any = None,
        attempts: tuple[AttemptRow, ...] = (),
        opens: tuple[WaitRow, ...] = (),
        closes: tuple[str, ...] = (),
        release: bool = False,
        done: bool = False,
        stop_at_request: bool = False,
        answered: Work | None = None,
        values: tuple[tuple[str, bytes], ...] = (),
        cancels: bool = False,
        parked: Parked | None = None,
    ) -> Literal["lost", "paused"] | RunRow | Refused | None:
        """Commit; None if that was all, the run's row if a cancel came in between and is to be carried out now.

        A pause that came in between is carried out by this very commit, which gives the run back.
        """
        asked: RunRow | None = None
        paused = False
        while True:
            reply = await self.store.commit(
                Commit(
                    run=self.row.id,
                    expected_revision=self._revision,
                    token=self.row.token or "",
                    control_seq=self.row.control_seq,
                    standing=standing,
                    history=history,
                    attempts=attempts,
                    opens=opens,
                    closes=closes,
                    settles=answered.settles if answered is not None else (),
                    joined=tuple(answered.joined) if answered is not None else (),
                    values=values,
                    group=parked.group if parked is not None else None,
                    branches=parked.branches if parked is not None else (),
                    settled=self._settled(standing),
                    release=release and (asked is None or standing.status in TERMINAL),
                    goes_on=self._committed is not None and _is_same_place(self._committed, standing),
                    clear_request=done or standing.status in TERMINAL,
                )
            )
            match reply:
                case Committed():
                    self._committed = standing
                    if history is not None:
                        self._revision = history.revision
                        if is_last_of_segment(history.revision):
                            self.on_segment(self.row.id)
                    return asked if asked is not None or not paused else "paused"
                case LateResult():
                    return "lost"
                case Refused():
                    return reply
                case Requested(row):
                    self.row = replace(self.row, control_seq=row.control_seq, request=row.request)
                    if self._cancel_wanted() and not (done or cancels):
                        asked = row
                        if stop_at_request:
                            return asked
                    paused = row.paused and asked is None and standing.status not in TERMINAL
                    standing, release = self._at_rest(standing, release) if paused else (standing, release)

    def _settled(self, standing: Standing) -> Settled | None:
        """What the commit means to a group, if it ends a branch."""
        if self.row.group_state is None or standing.status not in TERMINAL:
            return None
        return settled_by(self.definition, self.row, standing.status)

    def _at_rest(self, standing: Standing, release: bool) -> tuple[Standing, bool]:
        """The standing of a run that is given back where it would have gone on."""
        if release:
            return standing, True
        return replace(standing, status=next_status(standing.status, "release"), due_at=self.store.now()), True

    def _gives_way(self, task: "asyncio.Task[Any] | None") -> bool:
        """Whether other runs get the loop now, or a cancel its due: a commit is not interrupted, after it is time."""
        if self.store.suspends():
            return task is not None and task.cancelling() > 0
        self._since_yield += 1
        return self._since_yield >= FAIR_TRANSITIONS or self._time() - self._yielded_at > FAIR_SECONDS


def _is_same_place(before: Standing, after: Standing) -> bool:
    """Whether the columns that say when a run is looked at are unchanged."""
    return (before.status, before.end, before.blocked, before.due_at) == (
        after.status,
        after.end,
        after.blocked,
        after.due_at,
    )
