"""What the source of an author's function says: a digest of its code, and the effects that it names."""

import ast
import hashlib
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

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
    node = function_node(function)
    if node is not None:
        return digest(_dump(node))
    code = getattr(function, "__code__", None)
    if code is None:
        return digest(f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}")
    return digest(code.co_code, repr(code.co_names), repr([const for const in code.co_consts if const is not None]))


def effect_calls(function: Callable[..., Any]) -> list[EffectCall] | None:
    """The effects that the body itself begins, in order; None where there is no source to read."""
    node = function_node(function)
    return None if node is None else list(_effects(node))


def function_node(function: Callable[..., Any]) -> FunctionNode | None:
    """The syntax tree of a function, None where there is no source."""
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
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {(_first_line(node), node.name): node for node in found}


def _first_line(node: FunctionNode) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _dump(node: FunctionNode) -> str:
    body = node.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        body = body[1:]
    return "\n".join([ast.dump(node.args), *(ast.dump(statement) for statement in body)])


def _effects(node: FunctionNode) -> Iterator[EffectCall]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "effect":
            first = inner.args[0] if inner.args else None
            name = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            yield EffectCall(name, any(keyword.arg == "item" for keyword in inner.keywords), inner.lineno)
