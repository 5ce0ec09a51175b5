"""How the result of an effect is stored, and proved to come back as it was.

Without `result=` it must consist of plain JSON values; with a type, of what that type says. The first call and every
replay give the body the same: what is read back from storage.
"""

from dataclasses import is_dataclass
from typing import Any

import pydantic_core
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from agentflow.errors import InvalidContext
from agentflow.model.notation import CLOSED, OPENED, Notation, notation_of
from agentflow.model.places import short, told
from agentflow.model.sameness import TOO_DEEP, Unlike, unlike, unwritable
from agentflow.record import record
from agentflow.store.rows import EffectRow

NOT_REPEATED = "The effect is recorded as done and is not repeated"


@record
class ResultNotation:
    """How the result of one `run.effect(...)` call is written and read."""

    name: str
    notation: Notation | None  # None: plain JSON values

    def encode(self, value: Any) -> tuple[str, Any]:
        """The stored text, and the value as it will be read from it. Raises `InvalidContext` with the path."""
        try:
            if self.notation is None:
                return self._plain(value)
            text, back = self.notation.settle(value, self.notation.dump(value))
        except InvalidContext as error:
            raise InvalidContext(error.path, f"{error.why}. {NOT_REPEATED}") from None
        return text.decode(), back

    def decode(self, row: EffectRow) -> Any:
        """The recorded result. Raises `InvalidContext` if there is none, or one of another form."""
        if row.result is None:
            raise InvalidContext(f"effect {self.name!r}", row.error or "was recorded without its result")
        if self.notation is None:
            return pydantic_core.from_json(row.result)
        try:
            return self.notation.load(row.result)
        except pydantic_core.ValidationError as error:
            raise self.notation.invalid(error) from None

    def _plain(self, value: Any) -> tuple[str, Any]:
        found: Unlike | None
        try:
            text = pydantic_core.to_json(value)
            back = pydantic_core.from_json(OPENED + text + CLOSED)
            for _ in OPENED:
                (back,) = back
            found = unlike(value, back)
        except (ValueError, RecursionError) as error:
            found = unwritable(value) or Unlike((), TOO_DEEP if "recursion" in str(error) else str(error))
        else:
            if found is None:
                return text.decode(), back
        place = told(where_of(self.name), value, found.place)
        raise InvalidContext(place.path, f"{found.why if place.is_open else found.bare}; {_advice(value)}")


def _advice(value: object) -> str:
    if isinstance(value, BaseModel) or is_dataclass(value):
        return f"pass result={type(value).__name__}"
    return "pass result= with the type of the result, or return plain JSON values"


def where_of(name: str) -> str:
    """What a path into the result of an effect begins with."""
    return f"effect {name!r} result"


def result_notation(name: str, result: Any) -> ResultNotation:
    """How a result is stored. Raises `InvalidContext` if its type cannot be: before the call, not after it."""
    if result is None:
        return ResultNotation(name, None)
    try:
        return ResultNotation(name, notation_of(result, where_of(name)))
    except (PydanticUserError, NameError, TypeError) as error:
        why = f"result={short(result)} is no type that can be stored: {str(error).splitlines()[0]}"
        raise InvalidContext(f"effect {name!r}", why) from None
