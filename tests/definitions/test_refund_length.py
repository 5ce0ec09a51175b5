"""An author's machine fits on a screen: what `refund` needs beside the bodies is counted."""

import ast
from pathlib import Path

import pytest

from definitions import json_files

REFUND = Path(json_files.__file__).with_name("refund.py")


def lines_of_the_machine(source: str) -> int:
    """Lines of the workflow, of decorators and signatures of all functions, of ends and of the table."""
    return sum(_lines(statement) for statement in ast.parse(source).body)


def _lines(statement: ast.stmt) -> int:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            first = min(line.lineno for line in (statement, *statement.decorator_list))
            return statement.body[0].lineno - first
        case ast.Assign(value=value) | ast.Expr(value=value) if _calls(value) & {"Workflow", "end", "build"}:
            return _height(statement)
        case _:
            return 0


def _calls(value: ast.expr) -> set[str]:
    """The names of what an expression calls at its top, or in the parts of a tuple."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    functions = [part.func for part in parts if isinstance(part, ast.Call)]
    return {
        f.attr if isinstance(f, ast.Attribute) else f.id for f in functions if isinstance(f, ast.Attribute | ast.Name)
    }


def _height(statement: ast.stmt) -> int:
    return (statement.end_lineno or statement.lineno) - statement.lineno + 1


def test_the_machine_of_refund_takes_45_lines_at_most() -> None:
    assert 20 < lines_of_the_machine(REFUND.read_text(encoding="utf-8")) <= 45


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("LARGE = Decimal(500)\nclass Case(Context):\n    id: str\n", 0),
        ('w = Workflow("w", Case)\n', 1),
        (
            "@w.step(\n    retry=Retry(attempts=4),\n)\nasync def a(case: Case) -> None:\n    case.x = 1\n    case.y = 2\n",
            4,
        ),
        ('def small(case: Case) -> bool:\n    """Doc."""\n    return True\n', 1),
        ('one, two = w.end("one"), w.end("two")\nthree = w.end("three")\n', 2),
        ("w.build(\n    start=a,\n    transitions=[\n        a.to(one),\n    ],\n)\n", 6),
    ],
)
def test_lines_are_counted_as_an_author_sees_them(source: str, lines: int) -> None:
    assert lines_of_the_machine(source) == lines
