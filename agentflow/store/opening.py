"""From the address of a store to the store; loads what that store needs, and nothing of the others."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from agentflow.errors import ConfigurationError
from agentflow.store.protocol import Store

FORMS = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://user@host/database or memory:"


def open_store(url: str, *, clock: Callable[[], datetime] | None = None) -> Store:
    """The store of an address, not connected yet: `open()` does that."""
    if url == "memory:":
        from agentflow.store.memory import MemoryStore  # noqa: PLC0415  only who asks for it loads it

        return MemoryStore(clock=clock)
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        from agentflow.store.sqlite import SqliteStore  # noqa: PLC0415  it loads SQLAlchemy

        return SqliteStore(path, clock=clock)
    if url.startswith(("postgres:", "postgresql:", "postgresql+asyncpg:")):
        try:
            from agentflow.store.postgres import PostgresStore  # noqa: PLC0415  it loads SQLAlchemy and asyncpg
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise ConfigurationError(
                'a store in PostgreSQL needs asyncpg: pip install "agentflow-engine[postgres]"'
            ) from None
        return PostgresStore(url, clock=clock)
    raise ConfigurationError(f"{url!r} is no store; a store is {FORMS}")


def sqlite_path(url: str) -> Path:
    """The file of a `sqlite:` address; a relative one is taken from the working directory of this moment."""
    name = url.removeprefix("sqlite:///")
    if name == url or not name:
        raise ConfigurationError(f"{url!r} names no file; a store is {FORMS}")
    if name == ":memory:":
        raise ConfigurationError(f"{url!r} would forget each run when it is closed; for that, a store is memory:")
    if "?" in name:
        raise ConfigurationError(f"{url!r} has options; a store takes none: {FORMS}")
    return Path(name).absolute()
