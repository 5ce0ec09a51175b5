"""Connections to one PostgreSQL database: a pool for each event loop, one more for callers without a loop."""

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from agentflow.errors import ConfigurationError, InvalidInput, StoreBusy, StoreError, StoreUnavailable
from agentflow.record import record
from agentflow.store.prepared import Statement

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]

POOL = 16
WITHIN = 30.0  # seconds that a caller without a loop waits for its answer
TRIES = 5  # of a transaction that the database asks to begin again

GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
)
AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError)
UNFIT = (asyncpg.DataError, asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)


class Address:
    """Where the database is, in the parts that may be shown and those that may not."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        self.schema = query.pop("schema", None)
        if self.schema is not None and not self.schema.isidentifier():
            raise ConfigurationError(f"schema={self.schema!r} is no name of a PostgreSQL schema")
        self.dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(query, safe="/"), ""))
        host = parts.hostname or query.get("host", "localhost")
        self.shown = f"PostgreSQL {parts.path.lstrip('/') or 'postgres'} at {host}" + (
            f":{parts.port}" if parts.port else ""
        )


class Using:
    """A connection in somebody's hands."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def rows(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        """Run a statement that returns rows."""
        prepared = statement.postgres
        return [tuple(row) for row in await self.raw.fetch(prepared.text, *prepared.order(values))]

    async def row(self, statement: Statement, values: Mapping[str, Any]) -> Row | None:
        """The one row of a statement, if it returns any."""
        rows = await self.rows(statement, values)
        return rows[0] if rows else None

    async def change(self, statement: Statement, values: Mapping[str, Any]) -> int:
        """Run a statement; the number of rows that it changed."""
        prepared = statement.postgres
        said: str = await self.raw.execute(prepared.text, *prepared.order(values))
        return int(said.rpartition(" ")[2])


@record
class Held:
    """The pool of a loop, and what closes it when the loop ends."""

    pool: Any
    life: AsyncGenerator[None, None]


class Pools:
    """The pools of one store."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Held] = weakref.WeakKeyDictionary()
        self._making = threading.Lock()
        self._blocking: Blocking | None = None
        self.is_open = False

    async def _pool(self) -> Any:
        loop = asyncio.get_running_loop()
        held = self._pools.get(loop)
        if held is None:
            settings = {} if self.address.schema is None else {"search_path": self.address.schema}
            pool = asyncpg.create_pool(
                self.address.dsn, min_size=0, max_size=POOL, server_settings=settings, reset=_leave_as_it_is
            )
            held = self._pools[loop] = Held(pool, self._until_the_loop_ends(pool))
            await anext(held.life)
        await held.pool  # once: it is harmless after that
        return held.pool

    async def _until_the_loop_ends(self, pool: Any) -> AsyncGenerator[None, None]:
        """A loop that ends closes its asynchronous generators, and so this pool, whoever forgot to."""
        try:
            yield
        finally:
            await pool.close()

    @asynccontextmanager
    async def using(self) -> AsyncGenerator[Using, None]:
        """A connection, each statement on it a transaction of its own. Raises `StoreError`."""
        if not self.is_open:
            raise StoreUnavailable(f"{self.address.shown} is not open; call open() first")
        try:
            pool = await self._pool()
            async with pool.acquire() as raw:
                yield Using(raw)
        except (asyncpg.PostgresError, *GONE, OverflowError, UnicodeEncodeError) as error:
            raise self.ours(error) from error

    async def transaction(self, act: Callable[[Using], Awaitable[T]]) -> T:
        """Carry it out in one transaction; begun again a few times if the database asks for that."""
        for attempt in range(TRIES):
            try:
                async with self.using() as connection, connection.raw.transaction():
                    return await act(connection)
            except StoreError as error:
                if not isinstance(error.__cause__, AGAIN) or attempt == TRIES - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Let go of the connections of this loop, and of those of loops that are gone."""
        await self._close_own()
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            del self._pools[loop]  # its pool ended with it
        blocking = self._blocking
        if all(blocking is not None and blocking.is_of(loop) for loop in self._pools):
            self.is_open, self._blocking = False, None
            if blocking is not None:
                blocking.stop(self._close_own())

    async def _close_own(self) -> None:
        held = self._pools.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held.life.aclose()

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a loop of its own: for the heartbeat's thread, and for reads from any thread."""
        with self._making:
            self._blocking = self._blocking or Blocking()
        return self._blocking.wait_for(work(), self)

    def ours(self, error: BaseException) -> StoreError | InvalidInput:
        """The driver's error in our words: which database, what, and how to mend it."""
        shown = self.address.shown
        if isinstance(error, UNFIT) and "0x00" in str(error):
            return InvalidInput(f"{shown} cannot store a text with a NUL character; take it out")
        if isinstance(error, (*UNFIT, OverflowError, UnicodeEncodeError)):
            return InvalidInput(f"a value cannot be stored: {error}")
        if isinstance(error, asyncpg.LockNotAvailableError):
            return StoreBusy(f"{shown}: somebody holds a lock for too long; nothing was written, try again")
        if isinstance(error, GONE):
            return StoreUnavailable(f"{shown} cannot be reached or went away: {str(error) or type(error).__name__}")
        return StoreError(f"{shown} refused a statement and nothing was written: {error}")


async def _leave_as_it_is(_connection: Any) -> None:
    """Nothing of a connection is changed by its user, so nothing has to be reset: that would be a round trip."""


class Blocking:
    """A loop on a thread of its own, so that no caller depends on a loop that may be busy."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentflow-postgres", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T], pools: Pools) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(WITHIN)
        except concurrent.futures.TimeoutError as error:
            future.cancel()
            raise pools.ours(TimeoutError(f"no answer within {WITHIN:g} s")) from error

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it is this loop."""
        return loop is self._loop

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Do one more thing, then end the loop."""
        asyncio.run_coroutine_threadsafe(last, self._loop).result(WITHIN)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
