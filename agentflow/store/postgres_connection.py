"""Connections to one PostgreSQL database: a pool for each event loop, one more for callers without a loop."""

import asyncio
import concurrent.futures
import contextlib
import random
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from sqlalchemy.exc import DBAPIError

from agentflow.errors import ConfigurationError, InvalidInput, StoreError, StoreUnavailable
from agentflow.store.postgres_errors import AGAIN, OURS, in_our_words
from agentflow.store.prepared import Statement

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]
Aside: TypeAlias = Literal["heartbeat", "reads"]

PATIENCE = 10.0  # seconds for a lock
POOL = 16  # connections for a loop
GUESTS = 4  # and for statements of authors on it
CONNECTING = 10.0  # seconds
WITHIN = 30.0  # seconds for the answer to a statement
STANDING_STILL = 5.0  # seconds between two statements of one transaction
CLOSING = 5.0  # seconds for a good end of a loop's connections
TRIES = 5  # of a transaction that the database asks to begin again
PAUSE = 0.005  # seconds before the second try; doubled for each one after it


class Address:
    """Where the database is, in the parts that may be shown and those that may not."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"the address of the PostgreSQL store cannot be read: {error}") from None
        query = dict(parse_qsl(parts.query))
        self.schema = query.pop("schema", None)
        if self.schema is not None and not self.schema.isidentifier():
            raise ConfigurationError(f"schema={self.schema!r} is no name of a PostgreSQL schema")
        self._is_named = "application_name" in query
        self.dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(query, safe="/"), ""))
        host = parts.hostname or query.get("host", "localhost")
        self.shown = f"PostgreSQL {parts.path.lstrip('/') or 'postgres'} at {host}" + (f":{port}" if port else "")

    def settings(self, patience: float) -> Mapping[str, str]:
        """What is asked of the server for each connection, whatever is usual in this database.

        Transactions that lock a row and then read rely on it that each statement sees what is committed by then. Of a
        client that stands still with a lock, the server frees the row in time for whoever takes its run over.
        """
        asked = {
            "default_transaction_isolation": "read committed",
            "lock_timeout": f"{patience * 1000:.0f}",
            "statement_timeout": f"{WITHIN * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{STANDING_STILL * 1000:.0f}",
            "jit": "off",  # it costs more than statements as small as ours
        }
        if not self._is_named:
            asked["application_name"] = "agentflow"
        if self.schema is not None:  # statements of authors find their own tables behind ours
            asked["search_path"] = f'"{self.schema}", "$user", public'
        return asked


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

    async def many(self, statement: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of several rows, in few round trips."""
        prepared = statement.postgres
        await self.raw.executemany(prepared.text, [tuple(prepared.order(row)) for row in values])


class Held:
    """The connections of one loop, and what closes them when the loop ends."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], pool: Any) -> None:
        self._connect = connect
        self.pool = pool
        self._engine: AsyncEngine | None = None
        self.life = self._until_the_loop_ends()

    @property
    def engine(self) -> "AsyncEngine":
        """Connections of SQLAlchemy's, for statements of authors: who joins none needs none."""
        if self._engine is None:
            from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415  it needs greenlet, others do not

            self._engine = create_async_engine(
                "postgresql+asyncpg://",
                async_creator=self._connect,
                pool_size=GUESTS,
                max_overflow=0,
                pool_pre_ping=True,
            )
        return self._engine

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes its asynchronous generators, and so its connections, whoever forgot to."""
        try:
            yield
        finally:
            with contextlib.suppress(TimeoutError):  # the pool cuts off what does not answer
                async with asyncio.timeout(CLOSING):
                    await self.pool.close()
            if self._engine is not None:
                await self._engine.dispose()


class Pools:
    """The connections of one store, by event loop. Any thread may use it."""

    def __init__(self, address: Address, patience: float) -> None:
        self.address = address
        self._options: dict[str, Any] = {
            "dsn": address.dsn,
            "server_settings": address.settings(patience),
            "timeout": CONNECTING,
            "command_timeout": WITHIN,
        }
        self._lock = threading.Lock()
        self._held: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Held] = weakref.WeakKeyDictionary()
        self._asides: dict[Aside, Blocking] = {}
        self.is_open = False

    async def _own(self) -> Held:
        """The connections of the loop that runs."""
        if not self.is_open:
            raise StoreUnavailable(f"{self.address.shown} is not open; call open() first")
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            pool = asyncpg.create_pool(**self._options, min_size=0, max_size=POOL, reset=_leave_as_it_is)
            held = Held(self._connect, pool)
            with self._lock:
                self._forget_loops_that_are_closed()
                self._held[loop] = held
            await anext(held.life)
        await held.pool  # once: it is harmless after that
        return held

    async def _connect(self) -> Any:
        return await asyncpg.connect(**self._options)

    @asynccontextmanager
    async def using(self) -> AsyncGenerator[Using, None]:
        """A connection, each statement on it a transaction of its own. Raises `StoreError`."""
        try:
            held = await self._own()
            async with held.pool.acquire() as raw:
                yield Using(raw)
        except OURS as error:
            raise self.ours(error) from error

    async def transaction(self, act: Callable[[Using], Awaitable[T]]) -> T:
        """Carry it out in one transaction; begun again a few times if the database asks for that."""

        async def once() -> T:
            async with self.using() as connection, connection.raw.transaction():
                return await act(connection)

        return await self._persistently(once)

    async def with_core(self, act: "Callable[[AsyncConnection], Awaitable[T]]") -> T:
        """The same with a connection of SQLAlchemy's; where its transaction begins and ends is the caller's affair."""

        async def once() -> T:
            try:
                held = await self._own()
                async with held.engine.connect() as connection:
                    return await act(connection)
            except OURS as error:
                raise self.ours(error) from error
            except DBAPIError as error:
                cause = cause_of(error)
                raise self.ours(cause) from cause

        return await self._persistently(once)

    async def _persistently(self, once: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(TRIES - 1):
            try:
                return await once()
            except StoreError as error:
                if not isinstance(error.__cause__, AGAIN):
                    raise
            await asyncio.sleep(PAUSE * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311  jitter, no secret
        return await once()

    async def close(self) -> None:
        """Let go of the connections of this loop; with the last loop, of all that is left."""
        await self._close_own()
        with self._lock:
            self._forget_loops_that_are_closed()
            asides = tuple(self._asides.values())
            if any(not any(aside.is_of(loop) for aside in asides) for loop in self._held):
                return  # somebody is at work on another loop
            self.is_open, self._asides = False, {}
        for aside in asides:
            aside.stop(self._close_own())

    async def _close_own(self) -> None:
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held.life.aclose()

    def _forget_loops_that_are_closed(self) -> None:
        for loop in [loop for loop in self._held if loop.is_closed()]:
            del self._held[loop]  # its connections ended with it

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, T]], aside: Aside, within: float = WITHIN) -> T:
        """The result of work on a loop of its own, which depends on nobody's; raises `StoreUnavailable` after `within`
        seconds.
        """
        with self._lock:
            if aside not in self._asides:
                self._asides[aside] = Blocking(aside)
            loop = self._asides[aside]
        try:
            return loop.wait_for(work(), within)
        except concurrent.futures.TimeoutError as error:
            raise self.ours(TimeoutError(f"no answer within {within:g} s")) from error

    def ours(self, error: BaseException) -> StoreError | InvalidInput:
        """The driver's error in our words."""
        return in_our_words(self.address.shown, error)


def cause_of(error: DBAPIError) -> BaseException:
    """What asyncpg raised before SQLAlchemy put it into its own classes."""
    inner = error.orig
    return error if inner is None else inner.__cause__ or inner


async def _leave_as_it_is(_connection: Any) -> None:
    """Nothing of a connection is changed by its user, so nothing has to be reset: that would be a round trip."""


class Blocking:
    """A loop on a thread of its own, so that no caller depends on a loop that may be busy."""

    def __init__(self, aside: Aside) -> None:
        self._loop = asyncio.new_event_loop()
        name = f"agentflow-postgres-{aside}"
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T], within: float) -> T:
        """Its result; raises `TimeoutError` and cancels it after so many seconds."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(within)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it is this loop."""
        return loop is self._loop

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Do one more thing, then end the loop."""
        asyncio.run_coroutine_threadsafe(last, self._loop).result(WITHIN)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
