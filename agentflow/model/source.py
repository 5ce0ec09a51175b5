"""What the author's code says: digests of functions and of schemas, and the effects that a body names."""

import ast
import dis
import hashlib
import json
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias

from agentflow.model.shapes import is_list, is_object

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class EffectCall:
    """One `run.effect(...)` in a body."""

    name: str | None  # None if it is not written as a literal
    has_item: bool
    line: int


def digest(*parts: str | bytes) -> str:
    """A short stable digest of texts, each kept apart from the next."""
    hashed = hashlib.blake2b(digest_size=12)
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        hashed.update(len(raw).to_bytes(8, "big") + raw)
    return hashed.hexdigest()


def code_digest(function: Callable[..., Any]) -> str:
    """A digest of what the function does: its syntax tree without docstring; its bytecode where there is no source.

    Comments, layout and docstrings do not count, so reformatting a file changes nothing.
    """
    return digest(*(_code_of(layer) for layer in _layers(function)))


def _layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The function, and what its decorators wrap: the code of the innermost is the author's."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        yield function
        function = getattr(function, "__wrapped__", function)


def _code_of(function: Callable[..., Any]) -> str:
    node = function_node(function)
    if node is not None:
        return _dump(node)
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return _instructions(code)


def _instructions(code: CodeType) -> str:
    """The bytecode as text that is the same in every process: no addresses, no order of sets, no docstring."""
    return "\n".join(f"{one.opname} {_constant(one.argval)}" for one in dis.get_instructions(code))


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _instructions(value)
    parts: Any = value
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(_constant, parts))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, parts))})"
    return repr(value)


PROSE = frozenset({"title", "description", "examples"})


def schema_text(schema: Mapping[str, Any] | None) -> str:
    """A JSON schema as text, without what is said to readers alone and without an order of its fields."""
    return json.dumps(_without_prose(schema), sort_keys=True, default=str)


def _without_prose(schema: Any) -> Any:
    if is_list(schema):
        return [_without_prose(part) for part in schema]
    if not is_object(schema):
        return schema
    return {key: _part_without_prose(key, part) for key, part in schema.items() if key not in PROSE}


def _part_without_prose(key: str, part: Any) -> Any:
    if key in {"properties", "$defs"} and is_object(part):  # its keys are the author's names: one may be `title`
        return {name: _without_prose(inner) for name, inner in part.items()}
    if key == "required" and is_list(part):
        return sorted(part)
    return _without_prose(part)


def effect_calls(function: Callable[..., Any]) -> list[EffectCall] | None:
    """The effects that the body itself begins, in order; None where there is no source to read."""
    node = function_node(function)
    return None if node is None else list(_effects(node))


def function_node(function: Callable[..., Any]) -> FunctionNode | None:
    """The syntax tree of a function without docstrings, None where there is no source."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    lines = tuple(linecache.getlines(code.co_filename, getattr(function, "__globals__", None)))
    return _functions("".join(lines)).get((code.co_firstlineno, code.co_name)) if lines else None


@lru_cache(maxsize=64)
def _functions(text: str) -> dict[tuple[int, str], FunctionNode]:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the file was edited after it was imported
        return {}
    found: list[FunctionNode] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _take_docstring_out(node)
            if not isinstance(node, ast.ClassDef):
                found.append(node)
    return {(_first_line(node), node.name): node for node in found}


def _first_line(node: FunctionNode) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _dump(node: FunctionNode) -> str:
    return "\n".join([type(node).__name__, ast.dump(node.args), *(ast.dump(statement) for statement in node.body)])


def _take_docstring_out(node: FunctionNode | ast.ClassDef) -> None:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]


def _effects(node: FunctionNode) -> Iterator[EffectCall]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "effect":
            first = inner.args[0] if inner.args else None
            name = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            yield EffectCall(name, any(keyword.arg == "item" for keyword in inner.keywords), inner.lineno)
