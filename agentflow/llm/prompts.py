"""Filling prompts: a template and its variables become the messages for a model."""

import functools
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from pydantic import BaseModel

from agentflow.llm.client import Message
from agentflow.model.members import choice_of
from agentflow.model.prompts import Prompt, PromptProblem, environment, load_prompt

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["choices_of", "render"]


def choices_of(outcome: type[Enum], descriptions: Mapping[Enum, str] | None = None) -> list[tuple[str, str]]:
    """The choices of an enum, each with its description or an empty one."""
    return [(choice_of(member), (descriptions or {}).get(member, "")) for member in outcome]


def render(
    prompt: Prompt | str,
    variables: Mapping[str, object] | BaseModel,
    *,
    choices: Sequence[tuple[str, str]] | None = None,
) -> tuple[Message, ...]:
    """Fill a prompt. Raises `PromptProblem` if a variable is missing or an expression can't be worked out.

    The list of choices goes where the template says `{{ choices }}`. A template that does not say it, and does not
    name each choice in its own words, gets the list appended to its last message.
    """
    template = load_prompt(prompt, None) if isinstance(prompt, str) else prompt
    listing = "\n".join(f"- {name}: {words}" if words else f"- {name}" for name, words in choices or ())
    given = _values(variables) | {"choices": listing}
    messages = [Message(block.role, _filled(template.source, block.template, given)) for block in template.blocks]
    if choices and not template.uses_choices and not _names_all(template.text, choices):
        last = messages.pop()
        messages.append(Message(last.role, f"{last.content}\n\nChoose exactly one of:\n{listing}"))
    return tuple(messages)


def _values(variables: Mapping[str, object] | BaseModel) -> dict[str, object]:
    if isinstance(variables, BaseModel):
        return {name: getattr(variables, name) for name in type(variables).model_fields}
    return dict(variables)


def _filled(source: str, template: str, values: Mapping[str, object]) -> str:
    from jinja2 import TemplateError  # noqa: PLC0415  loaded already, since the template was parsed

    try:
        return _compiled(template).render(values)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise PromptProblem(f"prompt {source}: {error}") from error


@functools.lru_cache(maxsize=256)
def _compiled(template: str) -> "Template":
    return environment().from_string(template)


def _names_all(template: str, choices: Sequence[tuple[str, str]]) -> bool:
    """Whether the template's own words, not what it is filled with, name each choice."""
    return all(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", template, re.IGNORECASE) for name, _ in choices)
