"""What people type for a field: text, a number, or JSON; the field's type decides."""

import json
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from agentflow.errors import InvalidInput
from agentflow.model.check import nearest
from agentflow.model.shapes import is_object
from agentflow.model.values import Limits


def named_values(form: type[BaseModel], pairs: tuple[str, ...], option: str) -> dict[str, Any]:
    """The fields that were typed as NAME=VALUE. Raises `InvalidInput` that names the field."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark:
            raise InvalidInput(f"{option} {pair!r}: write NAME=VALUE")
        if name not in form.model_fields:
            known = nearest(name, [*form.model_fields]) or f"; it has {', '.join(form.model_fields)}"
            raise InvalidInput(f"{option} {name}: {form.__name__} has no such field{known}")
        values[name] = typed_value(form.model_fields[name].annotation, text)
    return values


def typed_limits(pairs: tuple[str, ...]) -> Limits | None:
    """The limits that were typed as NAME=VALUE, None for none. Raises `InvalidInput` that names the limit."""
    raised = Limits()
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or name not in vars(raised):
            known = nearest(name, [*vars(raised)]) or f"; there are {', '.join(vars(raised))}"
            raise InvalidInput(f"--limit {pair!r}: write NAME=VALUE with the name of a limit{known}")
        try:
            one = TypeAdapter(Limits).validate_python({name: text})
        except ValidationError as error:
            raise InvalidInput(f"--limit {pair}: {error.errors()[0]['msg']}") from None
        raised = raised.raised(one)
    return raised if pairs else None


def typed_value(annotation: Any, text: str) -> Any:
    """The text itself where the field takes it (4.50 stays 4.50), else what it says as JSON."""
    if text == "null" or not _takes(annotation, text):
        return json_value(text)
    return text


def _takes(annotation: Any, text: str) -> bool:
    try:
        TypeAdapter(annotation).validate_python(text)
    except ValidationError:
        return False
    return True


def json_value(text: str) -> Any:
    """What was typed, as JSON if it is some, else as text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def json_object(text: str, where: str) -> dict[str, Any]:
    """The object of JSON that was typed. Raises `InvalidInput`."""
    try:
        found: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{where}: no JSON: {error.msg} at character {error.pos + 1}") from None
    if not is_object(found):
        raise InvalidInput(f'{where}: a JSON object is needed, such as {{"name": 1}}')
    return found
