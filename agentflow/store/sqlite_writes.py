"""Two ways into the writer: inline when a run is alone, together once per tick of the loop when it has company.

A write that is alone is one short transaction on the caller's thread. With company, whatever the tasks of one tick of
the loop want written goes into one transaction (group commit): one `fsync` for all. No member can harm another: a
surprise (a lost comparison, an error) rolls the group back, and its members are written again one by one, each behind
a savepoint. A cancel that comes while a task waits for its group takes nothing back: all is written first, and the
reply to a commit reaches its run before the cancel does.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from agentflow.errors import StoreError
from agentflow.store import statements as sql
from agentflow.store.instants import with_instants_in_utc
from agentflow.store.joining import StatementRefused
from agentflow.store.mapping import row_of
from agentflow.store.rows import Commit, CommitReply, Committed, HistoryRow
from agentflow.store.sqlite_commits import is_plain, write_commit, write_plain_commits
from agentflow.store.sqlite_connection import Connection, Writing

T = TypeVar("T")
Act: TypeAlias = Callable[[Writing], Any]


@dataclass(slots=True)
class Member:
    """One write of a group, and what became of it."""

    act: Act | None  # None: it is the commit
    commit: Commit | None
    plain: bool  # a commit that may be written together with others of its kind
    done: "asyncio.Future[None]"
    result: Any = None  # an exception is raised where the write was asked for


class Surprise(Exception):
    """A member of a group must be looked at by itself."""


class Writes:
    """The writes of one store. `held` are the runs that it drives: more than one is company."""

    def __init__(self, writer: Connection, now: Callable[[], int]) -> None:
        self._writer = writer
        self._now = now
        self._groups: dict[asyncio.AbstractEventLoop, list[Member]] = {}
        self._last: int | None = None  # the task that wrote last, other than by a commit
        self.held: dict[str, str] = {}  # and by which session

    async def do(self, act: Callable[[Writing], T]) -> T:
        """Carry out a write; it is durable when this returns."""
        loop = self._loop_of_company() or self._loop_of_others()
        if loop is None:
            with self._writer as writing:
                return act(writing)
        result: T = await self._join(loop, act, None)
        return result

    async def commit(self, commit: Commit) -> CommitReply:
        """Write a commit. Raises `StatementRefused`."""
        loop = self._loop_of_company()
        if loop is not None:
            reply: CommitReply = await self._join(loop, None, commit)
            return reply
        now = self._now()
        try:
            with self._writer as writing:
                return write_commit(writing, commit, now)
        except StoreError as error:
            return self._unless_written(error, commit)

    @property
    def has_company(self) -> bool:
        """Whether several runs are driven."""
        return len(self.held) > 1

    def _loop_of_company(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which others write too, None for a caller that is alone."""
        if not self.has_company:
            return None
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return None

    def _loop_of_others(self) -> asyncio.AbstractEventLoop | None:
        """The loop, if another task wrote last: tasks that write in turn, as in many starts at once, write together."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return None
        before, self._last = self._last, None if task is None else id(task)
        return asyncio.get_running_loop() if before is not None and before != self._last else None

    async def _join(self, loop: asyncio.AbstractEventLoop, act: Act | None, commit: Commit | None) -> Any:
        group = self._groups.get(loop)
        if group is None:
            group = self._groups[loop] = []
            loop.call_soon(self._write_group, loop)  # after the tasks that are ready now, which may join
        member = Member(act, commit, commit is not None and is_plain(commit), loop.create_future())
        group.append(member)
        try:
            await member.done
        except asyncio.CancelledError:
            self._write_group(loop)
            if commit is None:
                raise  # it is written; what would follow it, such as the call of an effect, must not begin
            task = asyncio.current_task()
            assert task is not None  # whoever awaits is a task
            loop.call_soon(task.cancel)  # delivered where it waits next; until then `cancelling()` tells of it
        if isinstance(member.result, Exception):
            raise member.result
        return member.result

    def _write_group(self, loop: asyncio.AbstractEventLoop) -> None:
        members = self._groups.pop(loop, [])
        if not members:
            return  # somebody could not wait for it
        try:
            with self._writer as writing:
                results = self._write_together(writing, members)
        except Surprise:
            results = self._write_singly(members)
        except Exception as error:  # noqa: BLE001  each member learns of it
            results = [self._failed(member, error) for member in members]
        for member, result in zip(members, results, strict=True):
            member.result = result
            if not member.done.done():  # its task was cancelled, and looks for itself
                member.done.set_result(None)

    def _write_together(self, writing: Writing, members: Sequence[Member]) -> list[Any]:
        """Raises `Surprise` where one of them stops the others."""
        plain = [member.commit for member in members if member.plain and member.commit is not None]
        try:
            if plain and not write_plain_commits(writing, plain, self._now()):
                raise Surprise
            return [Committed() if member.plain else self._write(writing, member) for member in members]
        except (sqlite3.Error, OverflowError, UnicodeEncodeError, StatementRefused, StoreError) as error:
            raise Surprise from error

    def _write(self, writing: Writing, member: Member) -> Any:
        if member.act is not None:
            return member.act(writing)
        assert member.commit is not None  # a member has one of the two
        return write_commit(writing, member.commit, self._now())

    def _write_singly(self, members: Sequence[Member]) -> list[Any]:
        try:
            with self._writer as writing:
                return [self._behind_savepoint(writing, member) for member in members]
        except Exception as error:  # noqa: BLE001  as above
            return [self._failed(member, error) for member in members]

    def _behind_savepoint(self, writing: Writing, member: Member) -> Any:
        writing.raw.execute("SAVEPOINT member")
        try:
            result = self._write(writing, member)
        except Exception as error:  # noqa: BLE001  the other members go on
            writing.raw.execute("ROLLBACK TO member")
            result = self._writer.as_ours(error)
        writing.raw.execute("RELEASE member")
        return result

    def _failed(self, member: Member, error: Exception) -> Any:
        if member.commit is None or not isinstance(error, StoreError):
            return error
        try:
            return self._unless_written(error, member.commit)
        except StoreError as same:
            return same

    def _unless_written(self, error: StoreError, commit: Commit) -> CommitReply:
        """Raise the error, unless the transition is there: a COMMIT that fails may have been carried out."""
        if commit.history is None:
            raise error
        try:
            rows = self._writer.query(sql.history_after, {"run": commit.run, "after": commit.revision - 1, "limit": 1})
        except StoreError:
            raise error from None
        if not rows or row_of(HistoryRow, rows[0]) != with_instants_in_utc(commit.history, "at"):
            raise error
        return Committed()
