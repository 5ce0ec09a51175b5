"""A statement of SQLAlchemy Core, compiled once to the text and the order of parameters that a driver takes."""

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from operator import itemgetter
from typing import Any

from sqlalchemy import BigInteger, BindParameter, ClauseElement, ColumnElement, Insert, Table, bindparam
from sqlalchemy import insert as insert_into
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import Executable, SyntaxExtension
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

Arguments = tuple[Any, ...]

SQLITE = sqlite.dialect(paramstyle="qmark")
PREFIX = "_"  # Core keeps the plain names of columns for itself

# PostgreSQL's own clock in microseconds. It stands still within a statement, so that an index may be searched by it,
# and not within a transaction, so that whoever waited for a lock does not act on the time at which it began to wait.
SERVER_NOW = "(extract(epoch FROM statement_timestamp()) * 1000000)::BIGINT"


# --- what statements are made of ---------------------------------------------------------------------------------


def given(name: str, kind: TypeEngine[Any] | None = None) -> BindParameter[Any]:
    """A value that the caller gives under this name; `kind` where it stands beside no column that tells its type."""
    return bindparam(PREFIX + name, type_=kind)


def given_for(column: ColumnElement[Any], prefix: str = "") -> BindParameter[Any]:
    """A value for a column, given under the column's name, or that with a prefix."""
    return given(f"{prefix}{column.key}", column.type)


class _Now(ColumnElement[int]):
    """The clock of the store, in microseconds: what is given as `now`, else that of the server."""

    inherit_cache = True
    type = BigInteger()


@compiles(_Now)
def _given_now(_element: _Now, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(given("now"), **options)


@compiles(_Now, "postgresql")
def _given_or_own_now(_element: _Now, compiler: SQLCompiler, **options: Any) -> str:
    return f"coalesce({compiler.process(given('now', BigInteger()), **options)}, {SERVER_NOW})"


NOW: ColumnElement[int] = _Now()


class _UnlessThere(SyntaxExtension, ClauseElement):
    """`ON CONFLICT DO NOTHING`, in the words that both databases know."""

    _traverse_internals: Any = []  # noqa: RUF012  as SQLAlchemy declares it

    def apply_to_insert(self, insert_stmt: Insert) -> None:
        """Put it behind the values."""
        insert_stmt.apply_syntax_extension_point(lambda existing: [*existing, self], "post_values")


@compiles(_UnlessThere)
def _do_nothing(_element: _UnlessThere, _compiler: SQLCompiler, **_options: Any) -> str:
    return "ON CONFLICT DO NOTHING"


def insert(table: Table, *, unless_there: bool = False) -> Insert:
    """A row for a table; with `unless_there`, none where a unique index has it already."""
    row = insert_into(table).inline()  # nobody asks for the row's number
    return row.ext(_UnlessThere()) if unless_there else row


# --- what drivers take -------------------------------------------------------------------------------------------


class Prepared:
    """The text of a statement for one driver, and how to order the values for it."""

    def __init__(self, text: str, names: tuple[str, ...], constants: Mapping[str, Any]) -> None:
        self.text = text
        self._constants = dict(constants)
        self._pick: Callable[[Mapping[str, Any]], Any] = itemgetter(*names) if names else _nothing
        self._is_single = len(names) == 1

    def order(self, values: Mapping[str, Any]) -> Arguments:
        """The values in the order of the text's parameters; those that it does not use are passed over."""
        if self._constants:
            values = {**values, **self._constants}
        picked = self._pick(values)
        return (picked,) if self._is_single else picked


class Statement:
    """A statement by its meaning; compiled for a driver when it is first used there."""

    def __init__(self, build: Callable[[], Executable]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @cached_property
    def sqlite(self) -> Prepared:
        """With question marks, for `sqlite3`."""
        return _compiled(self._build(), SQLITE)

    @cached_property
    def postgres(self) -> Prepared:
        """With `$1`, for asyncpg; a value that is used twice is one parameter."""
        return _compiled(self._build(), postgres_dialect())


@cache
def postgres_dialect() -> Any:
    """PostgreSQL as SQLAlchemy speaks it to asyncpg: the type of each parameter is written beside it."""
    from sqlalchemy.dialects.postgresql import asyncpg  # noqa: PLC0415  who stays with SQLite does not load it

    make: Any = asyncpg.dialect
    return make()


def _compiled(statement: Any, dialect: Any) -> Prepared:
    compiled = statement.compile(dialect=dialect)  # what can be executed can be compiled, but its type does not say so
    assert isinstance(compiled, SQLCompiler)
    order = compiled.positiontup or []
    constants = {name: value for name, value in compiled.params.items() if not name.startswith(PREFIX)}
    return Prepared(str(compiled), tuple(name.removeprefix(PREFIX) for name in order), constants)


def _nothing(_values: Mapping[str, Any]) -> Arguments:
    return ()
