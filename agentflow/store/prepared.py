"""A statement of SQLAlchemy Core, compiled once to the text and the order of parameters that a driver takes."""

from collections.abc import Callable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any

from sqlalchemy import BindParameter, bindparam
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler

Arguments = tuple[Any, ...]

SQLITE = sqlite.dialect(paramstyle="qmark")
PREFIX = "_"  # Core keeps the plain names of columns for itself


def given(name: str) -> BindParameter[Any]:
    """A value that the caller gives under this name."""
    return bindparam(PREFIX + name)


class Prepared:
    """The text of a statement for one driver, and how to order the values for it."""

    def __init__(self, text: str, names: tuple[str, ...], constants: Mapping[str, Any]) -> None:
        self.text = text
        self._constants = dict(constants)
        self._pick: Callable[[Mapping[str, Any]], Any] = itemgetter(*names) if names else _nothing
        self._is_single = len(names) == 1

    def order(self, values: Mapping[str, Any]) -> Arguments:
        """The values in the order of the text's question marks; those that it does not use are passed over."""
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
        statement: Any = self._build()  # what can be executed can be compiled, but its type does not say so
        compiled = statement.compile(dialect=SQLITE)
        assert isinstance(compiled, SQLCompiler)
        order = compiled.positiontup or []
        constants = {name: value for name, value in compiled.params.items() if not name.startswith(PREFIX)}
        return Prepared(str(compiled), tuple(name.removeprefix(PREFIX) for name in order), constants)


def _nothing(_values: Mapping[str, Any]) -> Arguments:
    return ()
