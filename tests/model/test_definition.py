"""Shape and code: what tells two versions of a workflow apart, and what does not."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentflow.model.definition import Definition
from agentflow.model.source import code_digest, schema_text

SOURCE = '''
from datetime import timedelta
from enum import StrEnum
from functools import wraps

from pydantic import BaseModel

from agentflow import Answer, Context, Question, Run, Workflow


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


class Case(Context):
    """The case."""

    n: int = 0
    text: str = ""


class Form(BaseModel):
    """The form."""

    note: str = ""
    title: str = ""


flow = Workflow("flow", Case)


@flow.step()
async def work(case: Case, run: Run) -> None:
    """Work."""
    case.n += 1


@flow.llm(Verdict, prompt="yes or no?", model="fast")
def judge(case: Case) -> dict[str, object]:
    return {}


@judge.store
def keep_judged(case: Case, answer: Answer[Verdict, None]) -> None:
    case.text = answer.reason


@flow.human(Verdict, answer=Form, expires=timedelta(days=1))
def ask(case: Case) -> Question:
    return Question("yes?")


def logged(guard):
    @wraps(guard)
    def inside(case):
        return guard(case)

    return inside


def small(case: Case) -> bool:
    return case.n < 5


@logged
def even(case: Case) -> bool:
    return case.n % 2 == 0


def rescued(case: Case) -> bool:
    return case.n > 100


end, bad = flow.end("end"), flow.end("bad", failed=True)
flow.build(
    start=work,
    transitions=[
        work.when(small).to(judge),
        work.when(even).to(end),
        work.to(end),
        judge.on(Verdict.YES).to(end),
        judge.on(Verdict.NO).to(ask),
        ask.on(Verdict.YES, Verdict.NO).to(end),
        ask.expired.to(end),
        flow.failed.when(rescued).to(bad),
        flow.failed.to(bad),
    ],
)
'''


def definition_of(folder: Path, *changes: tuple[str, str]) -> Definition:
    """The workflow of the source after changes, from a file of its own."""
    source = SOURCE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    file = folder / f"flow{len(list(folder.iterdir()))}.py"
    file.write_text(source)
    scope: dict[str, Any] = {"__name__": file.stem}
    exec(compile(source, str(file), "exec"), scope)
    made: Definition = scope["flow"].definition
    return made


def shapes(definition: Definition) -> dict[str, str]:
    return {name: state.shape for name, state in definition.states.items()}


def codes(definition: Definition) -> dict[str, str]:
    return {name: state.code for name, state in definition.states.items()}


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.mark.parametrize(
    "change",
    [
        ('    """Work."""\n', ""),
        ('"""Work."""', '"""Work hard."""'),
        ('"""The case."""', '"""The case, said better."""'),
        ('"""The form."""', '"""The form, said better."""'),
        ("    case.n += 1", "    # one more\n    case.n   +=   1"),
        ("case.n < 5", "(\n        case.n < 5\n    )"),
        ("class Case(Context):", "\n\n\nclass Case(Context):"),
        ("expires=timedelta(days=1)", "expires=timedelta(days=2)"),
    ],
)
def test_prose_layout_and_deadlines_change_neither_shape_nor_code(tmp_path: Path, change: tuple[str, str]) -> None:
    before, after = definition_of(tmp_path), definition_of(tmp_path, change)
    assert (shapes(after), codes(after)) == (shapes(before), codes(before))
    assert (after.shape, after.code) == (before.shape, before.code)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (("case.n += 1", "case.n += 2"), "work"),
        (("case.n < 5", "case.n < 6"), "work"),  # a guard
        (("case.n % 2 == 0", "case.n % 3 == 0"), "work"),  # a guard behind a decorator
        (("case.text = answer.reason", "case.text = answer.reason.strip()"), "judge"),
        (('prompt="yes or no?"', 'prompt="yes, or no?"'), "judge"),
        (('model="fast"', 'model="slow"'), "judge"),
        (('Question("yes?")', 'Question("no?")'), "ask"),
    ],
)
def test_a_change_of_code_changes_the_code_of_its_state_alone_and_no_shape(
    tmp_path: Path, change: tuple[str, str], state: str
) -> None:
    before, after = definition_of(tmp_path), definition_of(tmp_path, change)
    assert differing(codes(before), codes(after)) == {state}
    assert after.code != before.code
    assert (shapes(after), after.shape) == (shapes(before), before.shape)


@pytest.mark.parametrize(
    ("changes", "states"),
    [
        ([('NO = "no"', 'NEVER = "no"'), ("Verdict.NO", "Verdict.NEVER")], {"judge", "ask"}),
        ([('NO = "no"', 'NO = "never"')], {"judge", "ask"}),
        ([("def small", "def tiny"), ("when(small)", "when(tiny)")], {"work"}),
        ([("work.when(small).to(judge),", "work.when(small).to(judge), work.failed.to(bad),")], {"work"}),
        ([("work.when(even).to(end)", "work.when(even).to(ask)")], {"work"}),
        ([("judge.on(Verdict.YES).to(end)", "judge.on(Verdict.YES).to(bad)")], {"judge"}),
        ([('note: str = ""', "note: int = 0")], {"ask"}),
        ([("    title: str", "    subject: str")], {"ask"}),
        ([("async def work(", "async def toil("), ("work.", "toil."), ("start=work", "start=toil")], {"work", "toil"}),
    ],
)
def test_what_a_stored_run_depends_on_changes_the_shape_of_its_state_alone(
    tmp_path: Path, changes: list[tuple[str, str]], states: set[str]
) -> None:
    before, after = definition_of(tmp_path), definition_of(tmp_path, *changes)
    assert differing(shapes(before), shapes(after)) == states
    assert after.shape != before.shape


def test_a_renamed_guard_of_the_same_body_changes_no_code(tmp_path: Path) -> None:
    before = definition_of(tmp_path)
    after = definition_of(tmp_path, ("def small", "def tiny"), ("when(small)", "when(tiny)"))
    assert codes(after) == codes(before)


@pytest.mark.parametrize(
    "change",
    [
        ("    n: int = 0", "    n: int = 0\n    more: str = ''"),
        ("    n: int = 0", "    n: float = 0"),
        ("flow.failed.when(rescued).to(bad),", ""),
        ('"bad", failed=True', '"bad"'),
        ("Case)", "Case, version=2)"),
    ],
)
def test_context_rescues_ends_and_version_belong_to_the_shape_of_the_whole(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    before, after = definition_of(tmp_path), definition_of(tmp_path, change)
    assert shapes(after) == shapes(before)
    assert after.shape != before.shape


def test_the_order_of_fields_is_no_part_of_the_shape(tmp_path: Path) -> None:
    before = definition_of(tmp_path)
    swapped = '    text: str = ""\n    n: int = 0\n'
    after = definition_of(tmp_path, ('    n: int = 0\n    text: str = ""\n', swapped))
    assert after.shape == before.shape


def test_a_guard_of_a_rescue_belongs_to_the_code_of_the_whole(tmp_path: Path) -> None:
    before, after = definition_of(tmp_path), definition_of(tmp_path, ("case.n > 100", "case.n > 101"))
    assert codes(after) == codes(before)
    assert after.code != before.code


def test_a_field_named_like_prose_stays_in_the_text_of_a_schema() -> None:
    schema = {"title": "A", "properties": {"title": {"type": "string", "title": "T"}}, "required": ["b", "a"]}
    assert schema_text(schema) == '{"properties": {"title": {"type": "string"}}, "required": ["a", "b"]}'


# --- without source ----------------------------------------------------------------------------------------------

BARE = """
def f(x):
    "what it does"
    def g(y):
        return y in {"a", "b", "c", "d"} and (lambda z: z + 1)(2)
    return [g(one) for one in x]
"""


def without_source(text: str) -> Any:
    scope: dict[str, Any] = {}
    exec(text, scope)
    return scope["f"]


def test_code_without_source_has_the_same_digest_in_every_process() -> None:
    program = f"from agentflow.model.source import code_digest\nscope = {{}}\nexec({BARE!r}, scope)\n"
    program += "print(code_digest(scope['f']))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert found == {code_digest(without_source(BARE))}


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("what it does", "what it really does", True),
        ("    return [", "\n\n    return [", True),
        ("z + 1", "z + 2", False),
        ('"d"}', '"e"}', False),
        ("y in", "y not in", False),
    ],
)
def test_code_without_source_is_told_apart_by_what_it_does(old: str, new: str, same: bool) -> None:
    before, after = without_source(BARE), without_source(BARE.replace(old, new))
    assert (code_digest(before) == code_digest(after)) is same


def test_what_has_no_code_at_all_has_a_stable_digest() -> None:
    assert code_digest(len) == code_digest(len)
    assert code_digest(len) != code_digest(abs)
    assert code_digest(partial(len)) == code_digest(partial(len))
