"""The README and the guides are programs: every Python block runs, top to bottom, in an empty folder."""

import asyncio
import inspect
import re
import shlex
import sys
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from unittest import SkipTest

import pytest
from sybil import Example, Sybil
from sybil.evaluators.python import pad
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_the_examples_of_a_document_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    module = ModuleType("document")  # a real one: classes and their annotations are looked up by module
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with asyncio.Runner() as runner:
        document = Sybil([CodeBlockParser("python", evaluator(runner)), SkipParser()]).parse(path)
        document.namespace = vars(module)
        for example in document.examples():
            run_unless_skipped(example)


def evaluator(runner: asyncio.Runner) -> Callable[[Example], None]:
    """Run a block in its document's namespace; it may await, and all blocks of a document share one event loop."""

    def evaluate(example: Example) -> None:
        source = pad(example.parsed, example.line + example.parsed.line_offset)
        code = compile(source, example.path, "exec", flags=PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, example.namespace))
        else:
            exec(code, example.namespace)

    return evaluate


def run_unless_skipped(example: Example) -> None:
    with suppress(SkipTest):
        example.evaluate()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_skipped_example_says_why(path: Path) -> None:
    marks = re.findall(r"<!---? *skip: *(.*?) *-->", path.read_text(encoding="utf-8"))
    assert [mark for mark in marks if not re.search(r'"[^"]+"|^end$', mark)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_make_target_named_in_a_document_exists(path: Path) -> None:
    named = {target for command, *targets in console_commands(path) if command == "make" for target in targets[:1]}
    assert named - MAKE_TARGETS == set()


def console_commands(path: Path) -> list[list[str]]:
    """The commands after a `$` in the console blocks, as words."""
    blocks = re.findall(r"^```console\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [words for line in lines if (words := shlex.split(line[2:], comments=True))]
