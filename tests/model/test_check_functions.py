"""The author's functions: bodies, `.store`, guards, prompts and effects of the wrong form are found when it is built."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from agentflow import Answer, Context, Question, Run, SyncRun, Workflow
from tests.model.faults import Case, Verdict, built, line_of, parts, positive, problems, told


class Elsewhere(Context):
    x: int = 0


# --- guards ------------------------------------------------------------------------------------------------------


async def later(case: Case) -> bool:
    return True


async def each_later(case: Case) -> AsyncIterator[bool]:
    yield True


def each(case: Case) -> Iterator[bool]:
    yield True


def of_elsewhere(case: Elsewhere) -> bool:
    return True


def nothing_taken() -> bool:
    return True


def two_taken(case: Case, other: int) -> bool:
    return True


class Called:
    def __call__(self, case: Case) -> bool:
        return True


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (lambda case: True, "a guard needs a name, which history shows: write a `def` instead of a lambda"),
        (partial(positive), "a guard needs a name, which history shows: write a `def` instead of a lambda"),
        (Called(), "a guard needs a name, which history shows: write a `def` instead of a lambda"),
        (later, "guard 'later' is async; a guard only looks at the context, so write a plain `def`"),
        (each_later, "guard 'each_later' is async; a guard only looks at the context, so write a plain `def`"),
        (each, "guard 'each' yields; a guard answers once, so write `return`"),
        (of_elsewhere, "guard 'of_elsewhere': of_elsewhere takes Elsewhere, but the workflow's context is Case"),
        (nothing_taken, "guard 'nothing_taken': nothing_taken must take (case)"),
        (two_taken, "guard 'two_taken': two_taken must take (case)"),
        (True, "guard True is no function; pass the function itself, not its result"),
    ],
)
def test_a_guard_that_cannot_serve_is_found_at_its_row(guard: Any, message: str) -> None:
    p = parts()
    rows = p.rows()
    rows.insert(0, p.work.when(guard).to(p.end))  # fault
    assert told(lambda: p.build(rows)) == f"{line_of()}: {message}"


def test_a_guard_of_a_base_class_or_of_anything_is_right() -> None:
    def of_any(case: Any) -> bool:
        return True

    def of_context(case: Context) -> bool:
        return True

    p = parts()
    p.build([p.work.when(of_any).to(p.end), p.work.when(of_context).to(p.end), *p.rows()])
    assert list(p.flow.warnings) == []


# --- bodies ------------------------------------------------------------------------------------------------------


def without_run(case: Case) -> None: ...
async def of_other(case: Elsewhere, run: Run) -> None: ...
async def with_sync(case: Case, run: SyncRun) -> None: ...
async def with_sync_alone(case, run: SyncRun) -> None: ...
def with_async(case: Case, run: Run) -> None: ...
async def worded(case: Case, run: Run) -> str:
    return "low"


async def perhaps(case: Case, run: Run) -> Verdict | None:
    return None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (without_run, "without_run must take (case, run)"),
        (of_other, "of_other takes Elsewhere, but the workflow's context is Case"),
        (with_sync, "async def takes a Run"),
        (with_sync_alone, "async def takes a Run"),
        (with_async, "def takes a SyncRun"),
        (worded, "a step returns None or an enum, not str"),
        (perhaps, "a step returns None or an enum, not tests.model.faults.Verdict | None"),
    ],
)
def test_a_body_of_the_wrong_form_is_found_where_it_was_written(body: Any, message: str) -> None:
    flow: Any = Workflow("flow", Case)
    state = flow.step()(body)
    place = f"test_check_functions.py:{body.__code__.co_firstlineno}"
    assert told(lambda: built(state, flow.end("end"))) == f"{place}: state '{body.__name__}': {message}"


def test_a_lambda_is_no_state() -> None:
    flow: Any = Workflow("flow", Case)
    state = flow.step()(lambda case, run: None)  # fault
    assert told(lambda: built(state, flow.end("end"))) == (
        f"{line_of()}: state '<lambda>': a state is a named function"
    )


def test_an_async_body_that_only_says_what_is_needed_is_found() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.human(Verdict, expires=timedelta(days=1))  # fault: human
    async def ask(case: Case) -> Question:
        return Question("?")

    @flow.llm(Verdict, prompt="?")  # fault: llm
    async def judge(case: Case) -> dict[str, object]:
        return {}

    end = flow.end("end")
    rows = [ask.on(*Verdict).to(judge), ask.expired.to(end), judge.on(*Verdict).to(end)]
    message = "the body only says what is needed, so it must be a plain `def`"
    assert problems(lambda: flow.build(start=ask, transitions=rows)) == [
        f"{line_of('human')}: state 'ask': {message}",
        f"{line_of('llm')}: state 'judge': {message}",
    ]


def test_bodies_that_return_something_else_than_their_kind_needs_are_found() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.human(Verdict, expires=timedelta(days=1))  # fault: human
    def ask(case: Case) -> str:
        return "?"

    @flow.llm(Verdict, prompt="?")  # fault: llm
    def judge(case: Case) -> str:
        return "?"

    end = flow.end("end")
    rows = [ask.on(*Verdict).to(judge), ask.expired.to(end), judge.on(*Verdict).to(end)]
    assert problems(lambda: flow.build(start=ask, transitions=rows)) == [
        f"{line_of('human')}: state 'ask': the body must return a Question, not str",
        f"{line_of('llm')}: state 'judge': the body must return the prompt's variables: a mapping or a model",
    ]


def test_a_timeout_on_a_body_in_a_thread_is_found() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(timeout=timedelta(seconds=1))  # fault
    def work(case: Case, run: SyncRun) -> None: ...

    assert told(lambda: built(work, flow.end("end"))) == (
        f"{line_of()}: state 'work': timeout= needs an `async def`: a thread cannot be stopped"
    )


# --- .store ------------------------------------------------------------------------------------------------------


def test_a_second_store_is_found_with_both_lines() -> None:
    p = parts()

    @p.judge.store  # fault: first
    def _(case: Case, answer: Answer[Verdict, None]) -> None: ...

    @p.judge.store  # fault: second
    def _again(case: Case, answer: Answer[Verdict, None]) -> None: ...

    assert told(p.build) == (
        f"{line_of('second')}: state 'judge' has a .store function already, at {line_of('first')}; "
        "one says how the answer is kept"
    )


def test_a_store_of_the_wrong_form_is_found_at_its_own_line() -> None:
    p = parts()

    @p.judge.store  # fault: async
    async def keep(case: Case, answer: Answer[Verdict, None]) -> None: ...

    @p.ask.store  # fault: short
    def put(case: Case) -> None: ...

    assert problems(p.build) == [
        f"{line_of('async')}: state 'judge': its .store function must be a plain `def`",
        f"{line_of('short')}: state 'ask': .store: put must take (case, answer)",
    ]


def test_a_store_for_another_context_is_found() -> None:
    p = parts()

    @p.judge.store  # fault
    def keep(case: Elsewhere, answer: Answer[Verdict, None]) -> None: ...

    assert told(p.build) == (
        f"{line_of()}: state 'judge': .store: keep takes Elsewhere, but the workflow's context is Case"
    )


# --- prompts -----------------------------------------------------------------------------------------------------


class Texts(TypedDict):
    text: str
    spare: str


class Filled(BaseModel):
    text: str = ""


def texts(case: Case) -> Texts:
    return {"text": "", "spare": ""}


def filled(case: Case) -> Filled:
    return Filled()


def whole(case: Case) -> Case:
    return case


def anything(case: Case) -> dict[str, object]:
    return {}


def asking(prompt: str | Path, body: Any, outcome: type[Enum] = Verdict, **options: Any) -> tuple[Any, Any]:
    flow: Any = Workflow("flow", Case)
    return flow.llm(outcome, prompt=prompt, **options)(body), flow.end("end")


@pytest.mark.parametrize(
    ("prompt", "body", "message"),
    [
        ("{{ txt }} {{ spare }}", texts, "uses {{ txt }}, which Texts does not have; did you mean 'text'?"),
        ("{{ txt }}", filled, "uses {{ txt }}, which Filled does not have; did you mean 'text'?"),
        ("{{ m }}", whole, "uses {{ m }}, which Case does not have"),
        ("{% for x in items %}{{ x }}{% endfor %}", whole, "uses {{ items }}, which Case does not have"),
    ],
)
def test_a_prompt_that_uses_an_unknown_variable_is_found_with_the_nearest(prompt: str, body: Any, message: str) -> None:
    state, end = asking(prompt, body)
    line = body.__code__.co_firstlineno
    assert told(lambda: built(state, end)) == (
        f"test_check_functions.py:{line}: state '{body.__name__}': prompt inline {message}"
    )


@pytest.mark.parametrize(
    ("prompt", "body"),
    [
        ("{{ n }} {{ failure }} {{ choices }}", whole),
        ("{{ text }}", filled),
        ("{{ whatever }}", anything),  # a bare mapping is known only when it runs
        ("{% set own = 1 %}{{ own }}", whole),
    ],
)
def test_a_prompt_that_is_filled_is_right(prompt: str, body: Any) -> None:
    state, end = asking(prompt, body)
    built(state, end)
    assert list(state.owner.warnings) == []


def test_a_variable_that_the_prompt_never_uses_is_a_warning() -> None:
    state, end = asking("{{ text }}", texts)
    built(state, end)
    [warning] = state.owner.warnings
    assert warning.endswith(": state 'texts': prompt inline never uses 'spare'")


def test_a_prompt_that_is_no_template_is_found() -> None:
    state, end = asking("{{ n", whole)
    assert "state 'whole': prompt inline, line 1: " in told(lambda: built(state, end))


def test_a_prompt_file_that_does_not_exist_is_found_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "judge.md").write_text("{{ n }}")
    source = "build = lambda flow, state, end: flow.build(start=state, transitions=[state.on(*V).to(end)])\n"
    scope: dict[str, Any] = {"V": Verdict}
    exec(compile(source, str(tmp_path / "flows.py"), "exec"), scope)
    state, end = asking(Path("jugde.md"), whole)
    assert told(lambda: scope["build"](state.owner, state, end)).endswith(
        f": state 'whole': prompt jugde.md: no such file in {tmp_path / 'prompts'}; did you mean 'judge.md'?"
    )


class Alike(Enum):
    ON_HOLD = "on hold"
    HELD = "on-hold"


def test_b21_two_members_that_a_model_could_not_tell_apart_are_found() -> None:
    state, end = asking("{{ n }}", whole, Alike)
    assert told(lambda: built(state, end)).endswith(
        ": state 'whole': a model's answer could mean Alike.ON_HOLD or Alike.HELD; their names are too alike"
    )


class Open(BaseModel):
    anything: dict[str, Any]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Open, "answer Open cannot be asked for: Open.anything"),
        (list[str], "answer=list: name a class derived from pydantic.BaseModel"),
        (str, "answer=str: name a class derived from pydantic.BaseModel"),
        (Filled(), "name a class derived from pydantic.BaseModel"),
    ],
)
def test_an_answer_that_a_model_cannot_fill_is_found(answer: Any, message: str) -> None:
    state, end = asking("{{ n }}", whole, answer=answer)
    assert message in told(lambda: built(state, end))


def test_a_form_that_is_no_model_is_found_for_a_person_too() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.human(Verdict, answer=dict, expires=timedelta(days=1))  # fault
    def ask(case: Case) -> Question:
        return Question("?")

    assert told(lambda: built(ask, flow.end("end"))) == (
        f"{line_of()}: state 'ask': answer=dict: name a class derived from pydantic.BaseModel"
    )


@pytest.mark.parametrize("options", [{}, {"answer": str}, {"answer": Filled}])
def test_a_model_that_writes_may_answer_with_text_or_a_form(options: dict[str, Any]) -> None:
    flow: Any = Workflow("flow", Case)
    state = flow.llm(prompt="{{ n }}", **options)(whole)
    built(state, flow.end("end"))
    assert list(flow.warnings) == []


# --- effects -----------------------------------------------------------------------------------------------------


async def revoke(case: Case, run: Run) -> None: ...


def test_an_effect_name_used_twice_is_a_warning_on_the_second_use() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step()
    async def pay(case: Case, run: Run) -> None:
        await run.effect("pay", charge)
        await run.effect("tell", charge)
        await run.effect("pay", charge)  # fault

    built(pay, flow.end("end"))
    assert list(flow.warnings) == [
        f"{line_of()}: state 'pay' names the effect 'pay' twice; a visit may use a name once"
    ]


async def charge(key: str) -> None: ...


def test_an_effect_name_used_for_several_items_is_right() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step()
    async def pay(case: Case, run: Run) -> None:
        await run.effect("pay", charge, item="a")
        await run.effect("pay", charge, item="b")

    built(pay, flow.end("end"))
    assert list(flow.warnings) == []


def test_an_undo_of_a_body_without_an_effect_is_a_warning() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(undo=revoke)  # fault
    async def work(case: Case, run: Run) -> None:
        case.n = 1

    built(work, flow.end("end"))
    assert list(flow.warnings) == [
        f"{line_of()}: state 'work' has undo=, but its body has no run.effect: what would be undone?"
    ]


def test_an_undo_of_a_body_with_an_effect_is_right() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(undo=revoke)
    async def work(case: Case, run: Run) -> None:
        await run.effect("pay", charge)

    built(work, flow.end("end"))
    assert list(flow.warnings) == []
