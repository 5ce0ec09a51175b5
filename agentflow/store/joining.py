"""Statements of authors that join a commit: SQLAlchemy executes them, with all its types, in a transaction of ours."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql.base import Executable

from agentflow.errors import InvalidInput
from agentflow.store.rows import Joined


class StatementRefused(Exception):
    """The database refused a statement; the transaction that it was to join is to be rolled back."""

    def __init__(self, number: int, error: str) -> None:
        super().__init__(error)
        self.number = number


def joined(statement: Any, parameters: Mapping[str, object] | None, dialect: Any) -> Joined:
    """The statement as data. Raises `InvalidInput` for what is none, or what the dialect cannot express."""
    if not isinstance(statement, Executable):
        raise InvalidInput(f"run.transaction takes statements of SQLAlchemy Core, not {type(statement).__name__}")
    compiled: Any = statement
    try:
        compiled.compile(dialect=dialect)
    except SQLAlchemyError as error:
        raise InvalidInput(f"run.transaction: {error}") from None
    return Joined(statement, parameters)


def execute_on_sqlite(raw: sqlite3.Connection, statements: Sequence[Joined]) -> None:
    """Run them in the transaction that is open on the connection. Raises `StatementRefused`."""
    guest = _Guest(raw)
    engine = create_engine("sqlite://", creator=lambda: guest, poolclass=StaticPool)
    with engine.connect() as connection:
        for number, one in enumerate(statements):
            try:
                connection.execute(one.statement, one.parameters)
            except (SQLAlchemyError, sqlite3.Error, OverflowError) as error:
                raise StatementRefused(number, str(getattr(error, "orig", None) or error)) from error


class _Guest:
    """The connection as it is lent to SQLAlchemy, which must not end a transaction that is not its own."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def commit(self) -> None:
        """Whoever began the transaction commits it."""

    def rollback(self) -> None:
        """Whoever began the transaction rolls it back."""

    def close(self) -> None:
        """It goes on."""


async def execute_on_postgres(raw: Any, statements: Sequence[Joined]) -> None:
    """Run them in the transaction that is open on asyncpg's connection. Raises `StatementRefused`."""
    from asyncpg import InterfaceError, PostgresError  # noqa: PLC0415  who stays with SQLite does not have it

    from agentflow.store.prepared import postgres_dialect  # noqa: PLC0415

    dialect = postgres_dialect()
    for number, one in enumerate(statements):
        statement: Any = one.statement
        compiled = statement.compile(dialect=dialect, column_keys=list(one.parameters or ()) or None)
        given = compiled.construct_params(dict(one.parameters or {}))
        types = compiled._bind_processors
        values = [types[name](given[name]) if name in types else given[name] for name in compiled.positiontup or ()]
        try:
            await raw.execute(str(compiled), *values)
        except (PostgresError, InterfaceError, OverflowError) as error:
            raise StatementRefused(number, str(error)) from error
