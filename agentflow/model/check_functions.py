"""Checks of the author's functions: bodies, `.store`, guards, prompts and their variables, effects."""

# This module looks into types and functions of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from pydantic import BaseModel

from agentflow.model.check import Draft, Found, nearest
from agentflow.model.context import Context
from agentflow.model.members import ambiguous_members
from agentflow.model.prompts import Prompt, PromptProblem, load_prompt, placeholders, prompts_root
from agentflow.model.run import Run, SyncRun
from agentflow.model.schema import UnsupportedSchema, strict_schema
from agentflow.model.source import effect_calls
from agentflow.model.states import Line, State, Transition
from agentflow.model.values import Question


def check_functions(draft: Draft, found: Found) -> None:
    """All problems of the functions."""
    for state in draft.workflow.states:
        _check_body(draft, state, found)
        _check_keeps(draft, state, found)
        _check_effects(state, found)
        _check_answer(state, found)
        if state.spec.prompt is not None:
            _check_prompt(draft, state, found)
            _check_words(state, found)
    for row in draft.rows:
        if isinstance(row, Transition):
            for guard in row.exit.guards:
                _check_guard(draft, guard, row, found)


# --- bodies ------------------------------------------------------------------------------------------------------


def _check_body(draft: Draft, state: State[Any], found: Found) -> None:
    title = f"state {state.name!r}"
    if not state.name.isidentifier() or state.name == "_":
        found.error(state.line, f"{title}: a state is a named function")
        return
    if state.spec.kind == "step":
        _check_step(draft, state, found)
        return
    if inspect.iscoroutinefunction(state.body):
        found.error(state.line, f"{title}: the body only says what is needed, so it must be a plain `def`")
    _check_parameters(draft, state.body, ["case"], title, state.line, found)
    returned = _hints(state.body).get("return")
    if state.spec.kind == "human" and returned is not None and returned is not Question:
        found.error(state.line, f"{title}: the body must return a Question, not {_show(returned)}")
    if state.spec.kind == "llm" and not _is_variables(returned):
        found.error(state.line, f"{title}: the body must return the prompt's variables: a mapping or a model")


def _check_step(draft: Draft, state: State[Any], found: Found) -> None:
    title = f"state {state.name!r}"
    _check_parameters(draft, state.body, ["case", "run"], title, state.line, found)
    is_async = inspect.iscoroutinefunction(state.body)
    handle = _second(state.body)
    wrong = SyncRun if is_async else Run
    if handle is not None and (typing.get_origin(handle) or handle) is wrong:
        found.error(state.line, f"{title}: {'async def takes a Run' if is_async else 'def takes a SyncRun'}")
    if state.spec.timeout is not None and not is_async:
        found.error(state.line, f"{title}: timeout= needs an `async def`: a thread cannot be stopped")
    returned = _hints(state.body).get("return", inspect.Signature.empty)
    if state.spec.outcome is None and returned not in {None, type(None), inspect.Signature.empty}:
        found.error(state.line, f"{title}: a step returns None or an enum, not {_show(returned)}")


def _check_parameters(
    draft: Draft, function: Callable[..., Any], names: list[str], title: str, line: Line, found: Found
) -> None:
    wanted = f"({', '.join(names)})"
    try:
        signature = inspect.signature(function)
        signature.bind(*names)
    except TypeError:
        found.error(line, f"{title}: {_function_name(function)} must take {wanted}")
        return
    except ValueError:
        return  # a built-in without a signature: nothing to compare
    first = next(iter(signature.parameters), "")
    annotated = _hints(function).get(first)
    context = draft.workflow.context
    if annotated is Any:
        return  # a class, too, but one that says nothing
    if isinstance(annotated, type) and isinstance(context, type) and not issubclass(context, annotated):
        found.error(
            line,
            f"{title}: {_function_name(function)} takes {annotated.__name__}, "
            f"but the workflow's context is {context.__name__}",
        )


def _second(function: Callable[..., Any]) -> Any:
    names = list(inspect.signature(function).parameters)
    return _hints(function).get(names[1]) if len(names) > 1 else None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001  annotations are author code and may raise anything; then there is nothing to compare
        return {}


def _function_name(function: Any) -> str:
    return getattr(function, "__name__", None) or repr(function)


def _show(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


def _check_keeps(draft: Draft, state: State[Any], found: Found) -> None:
    title = f"state {state.name!r}"
    for keep in state.keeps:
        line = _line_of(keep) or state.line
        if keep is not state.keeps[0]:
            first = _line_of(state.keeps[0]) or state.line
            found.error(line, f"{title} has a .store function already, at {first}; one says how the answer is kept")
        if inspect.iscoroutinefunction(keep):
            found.error(line, f"{title}: its .store function must be a plain `def`")
        _check_parameters(draft, keep, ["case", "answer"], f"{title}: .store", line, found)


def _line_of(function: Any, number: int | None = None) -> Line | None:
    """Where a function was written, or a line inside it."""
    code = getattr(function, "__code__", None)
    return None if code is None else Line(code.co_filename, number or code.co_firstlineno)


# --- effects -----------------------------------------------------------------------------------------------------


def _check_effects(state: State[Any], found: Found) -> None:
    calls = effect_calls(state.body) if state.spec.kind == "step" else []
    seen: dict[str, int] = {}
    for call in calls or []:
        if call.name is not None and not call.has_item and seen.setdefault(call.name, call.line) != call.line:
            line = _line_of(state.body, call.line) or state.line
            found.warn(line, f"state {state.name!r} names the effect {call.name!r} twice; a visit may use a name once")
    if state.spec.undo is not None and calls == []:
        found.warn(state.line, f"state {state.name!r} has undo=, but its body has no run.effect: what would be undone?")


# --- guards ------------------------------------------------------------------------------------------------------


def _check_guard(draft: Draft, guard: Any, row: Transition[Any], found: Found) -> None:
    title = f"guard {_function_name(guard)!r}"
    if not callable(guard):
        found.error(row.line, f"guard {guard!r} is no function; pass the function itself, not its result")
    elif getattr(guard, "__name__", "<lambda>") == "<lambda>":
        found.error(row.line, "a guard needs a name, which history shows: write a `def` instead of a lambda")
    elif inspect.iscoroutinefunction(guard) or inspect.isasyncgenfunction(guard):
        found.error(row.line, f"{title} is async; a guard only looks at the context, so write a plain `def`")
    elif inspect.isgeneratorfunction(guard):
        found.error(row.line, f"{title} yields; a guard answers once, so write `return`")
    else:
        _check_parameters(draft, guard, ["case"], title, row.line, found)


# --- prompts -----------------------------------------------------------------------------------------------------


def _check_prompt(draft: Draft, state: State[Any], found: Found) -> None:
    wanted: Any = state.spec.prompt
    try:
        prompt = load_prompt(wanted, prompts_root(draft.file))
        used = placeholders(prompt)
    except PromptProblem as problem:
        found.error(state.line, f"state {state.name!r}: {problem}")
        return
    found.prompts[state.name] = prompt
    _check_variables(state, prompt, used, found)


def _check_answer(state: State[Any], found: Found) -> None:
    """The data beside an outcome come as JSON and are shown as a form, so their class must be a pydantic model."""
    answer, kind = state.spec.answer, state.spec.kind
    text = kind != "human" and state.spec.outcome is None and answer is str
    if kind in {"llm", "react", "human"} and answer is not None and not text and not _is_model(answer):
        found.error(
            state.line, f"state {state.name!r}: answer={_show(answer)}: name a class derived from pydantic.BaseModel"
        )


def _is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _check_words(state: State[Any], found: Found) -> None:
    """A model must be able to say every member, and to fill the form."""
    if state.spec.outcome is not None:
        for one, other in ambiguous_members(state.spec.outcome):
            found.error(
                state.line,
                f"state {state.name!r}: a model's answer could mean {one} or {other}; their names are too alike",
            )
    answer = state.spec.answer
    if _is_model(answer):
        try:
            strict_schema(answer)
        except UnsupportedSchema as problem:
            found.error(state.line, f"state {state.name!r}: answer {answer.__name__} cannot be asked for: {problem}")


def _check_variables(state: State[Any], prompt: Prompt, used: frozenset[str], found: Found) -> None:
    returned = _hints(state.body).get("return")
    given = _variables(returned)
    if given is None:
        return  # a bare mapping: known only when it runs, and refused then
    for name in sorted(used - given - {"choices"}):
        found.error(
            state.line,
            f"state {state.name!r}: prompt {prompt.source} uses {{{{ {name} }}}}, which {_show(returned)} does not have"
            f"{nearest(name, sorted(given))}",
        )
    if typing.is_typeddict(returned):
        for name in sorted(given - used):
            found.warn(state.line, f"state {state.name!r}: prompt {prompt.source} never uses {name!r}")


def _is_variables(returned: Any) -> bool:
    if returned is None or typing.is_typeddict(returned):
        return True
    kind = typing.get_origin(returned) or returned
    return not isinstance(kind, type) or issubclass(kind, BaseModel | Mapping)


def _variables(returned: Any) -> frozenset[str] | None:
    if typing.is_typeddict(returned):
        return frozenset(typing.get_type_hints(returned))
    if isinstance(returned, type) and issubclass(returned, BaseModel):
        computed = returned.model_computed_fields
        extra = {"failure"} if issubclass(returned, Context) else set[str]()
        return frozenset(returned.model_fields) | frozenset(computed) | extra
    return None
