"""Reading an answer: the text of a model as a member, data and a reason, or why it is none of these.

Read as it was asked for: one JSON object. Then, and only then, with the one normalisation: without a code fence around
it, and its choice compared as `members.match_member` does. A text that is nothing but the choice is read too.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel, ValidationError

from agentflow.model.members import choice_of, listed, match_member
from agentflow.model.schema import strict_schema
from agentflow.model.shapes import is_object

__all__ = ["Read", "Unreadable", "answer_schema", "read_answer"]

_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Read:
    """An answer that fits; `is_exact` if it needed no normalisation."""

    outcome: Enum | None
    data: Any
    reason: str = ""
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An answer that does not fit, and what to tell the model about it."""

    why: str


def answer_schema(outcome: type[Enum] | None, answer: type[BaseModel] | None) -> dict[str, Any] | None:
    """The strict schema of an answer: {reason, choice} with an enum, and `data` beside; else the answer model itself.

    The reason comes first, since what was written before bears on what is written next.
    """
    data = strict_schema(answer) if answer is not None else None
    if outcome is None:
        return data
    choices = [choice_of(member) for member in outcome]
    fields: dict[str, Any] = {"reason": {"type": "string"}, "choice": {"type": "string", "enum": choices}}
    if data is not None:
        fields["data"] = data
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def read_answer(text: str, outcome: type[Enum] | None, answer: type[BaseModel] | None) -> Read | Unreadable:
    """Read a model's text as the answer that was asked for."""
    if outcome is None and answer is None:
        return Read(None, text)
    bare = _unfenced(text)
    try:
        fields = _fields(bare)
    except _Twice as twice:
        return Unreadable(f"it names {twice.name!r} more than once")
    if outcome is not None:
        found = _read_choice(bare, fields, outcome, answer)
    elif answer is not None and fields is not None:
        found = _read_data(bare, answer)
    else:
        found = Unreadable("it is not one JSON object")
    if isinstance(found, Read) and bare != text.strip():
        return Read(found.outcome, found.data, found.reason, is_exact=False)
    return found


class _Twice(ValueError):
    """A field that stands twice in one object: which of them counts is anyone's guess."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _unfenced(text: str) -> str:
    found = _FENCED.fullmatch(text.strip())
    return found[1].strip() if found and "```" not in found[1] else text.strip()


def _fields(text: str) -> dict[str, Any] | None:
    """The fields of the JSON object that the whole text is; None if it is none."""
    try:
        loaded: Any = json.loads(text, object_pairs_hook=_once)
    except _Twice:
        raise
    except (ValueError, RecursionError):
        return None
    return loaded if is_object(loaded) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict[str, Any]()
    for name, value in pairs:
        if name in fields:
            raise _Twice(name)
        fields[name] = value
    return fields


def _read_choice(
    text: str, fields: dict[str, Any] | None, outcome: type[Enum], answer: type[BaseModel] | None
) -> Read | Unreadable:
    if fields is None:
        member = match_member(text, outcome) if answer is None else None
        return Read(member, None, is_exact=False) if member else Unreadable("it is not one JSON object")
    choice, reason = fields.get("choice"), fields.get("reason")
    if not isinstance(choice, str):
        return Unreadable("'choice' is missing" if choice is None else "'choice' is not a text")
    if not isinstance(reason, str | None):
        return Unreadable("'reason' is not a text")
    exact = next((member for member in outcome if choice_of(member) == choice), None)
    member = exact or match_member(choice, outcome)
    if member is None:
        return Unreadable(f"{_shortened(choice)!r} is none of the choices: {listed(outcome)}")
    found = _read_data(json.dumps(fields.get("data")), answer, "data") if answer is not None else Read(None, None)
    if isinstance(found, Unreadable):
        return found
    is_exact = exact is not None and reason is not None
    # Half a surrogate pair is no text that can be stored.
    return Read(member, found.data, (reason or "").encode(errors="replace").decode(), is_exact)


def _read_data(text: str, answer: type[BaseModel], inside: str = "") -> Read | Unreadable:
    """The data, validated as JSON, in which a date is a text and a set a list."""
    try:
        return Read(None, answer.model_validate_json(text))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        wrong = [f"{'.'.join((inside, *map(str, one['loc']))).strip('.')}: {one['msg']}" for one in found]
        return Unreadable("; ".join(wrong[:5]))


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
