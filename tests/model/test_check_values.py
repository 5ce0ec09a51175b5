"""Values that make no sense, fields that cannot come back, and kinds that cannot run yet, found when it is built."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import pytest
from pydantic import BaseModel, Field, PrivateAttr

from agentflow import Context, Limits, Question, Retry, Run, Workflow
from agentflow.failures import Business
from agentflow.merge import Append
from tests.model.faults import Case, Verdict, built, line_of, parts, problems, told

# --- context -----------------------------------------------------------------------------------------------------


class Counted(BaseModel):
    count: int = 0
    hidden: int = Field(default=0, exclude=True)
    _memory: int = PrivateAttr(default=0)


@dataclass
class Loose:
    x: int = 0


class Tuples(Enum):
    PAIR = (1, 2)


class Holder(Context):
    good: int = 0
    anything: Any = None
    handle: object = None
    call: Callable[[], int] | None = None
    mixed: int | str = 0
    nested: dict[str, list[complex]] = {}
    bare: list = []
    log: Append[list[str]] = Append()
    keys: dict[tuple[int, int], str] = {}
    loose: Loose = Loose()
    pairs: Tuples = Tuples.PAIR
    inner: list[Counted] = []
    lost: "Nowhere | None" = None  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


STORED = (
    "use bool, int, float, str, bytes, Decimal, aware datetime, date, timedelta, UUID, Blob, an enum, list, tuple, set, "
    "frozenset, dict, a frozen dataclass, a pydantic model, Literal or X | None"
)
FIELDS = {
    "anything": "Holder.anything: Any cannot be stored; name the type",
    "handle": "Holder.handle: object cannot be stored; name the type",
    "call": "Holder.call: Callable cannot be stored; " + STORED,
    "mixed": "Holder.mixed: int | str is an untagged union; use X | None, or Field(discriminator=...)",
    "nested": "Holder.nested[][]: complex cannot be stored; " + STORED,
    "bare": "Holder.bare: list cannot be stored; say what it holds, such as list[str]",
    "log": "Holder.log: items of Append must be immutable, list is not; use a frozen model, a tuple or a frozenset",
    "keys": "Holder.keys: dict keys must be str, int or an enum, not tuple",
    "loose": "Holder.loose: dataclass Loose must be frozen=True, or a pydantic model",
    "pairs": "Holder.pairs: Tuples.PAIR has the value (1, 2); use a str or an int",
    "inner": "Holder.inner[]: Counted has private attributes (_memory), which are not stored",
    "lost": "Holder.lost: ForwardRef('Nowhere | None') cannot be stored; "
    "it names something that is not defined where the class was written",
}


def test_every_field_that_cannot_come_back_is_found_on_its_own_line() -> None:
    found = problems(parts(Holder).build)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    first = lines.index("class Holder(Context):")
    for name, message in FIELDS.items():
        number = next(n for n, text in enumerate(lines, 1) if n > first and text.startswith(f"    {name}: "))
        assert [text for text in found if text.startswith(f"test_check_values.py:{number}: ") and message in text], name
    assert [text for text in found if "Holder.inner[].hidden: exclude=True keeps it out of what is stored" in text]
    assert len(found) == len(FIELDS) + 1


class Open(Context, extra="allow"):
    n: int = 0


class Hiding(Context):
    n: int = 0
    _cache: int = PrivateAttr(default=0)


def test_what_a_context_holds_beside_its_fields_is_found() -> None:
    assert told(parts(Open).build).endswith(
        "context field Open: extra='allow' lets in fields that are not stored; leave it out"
    )
    assert told(parts(Hiding).build).endswith("context field Hiding._cache: a private attribute is not stored")


@pytest.mark.parametrize("context", [BaseModel, dict, None, Case()])
def test_a_context_that_is_no_context_class_is_found(context: Any) -> None:
    p = parts(context)
    assert any(
        text.endswith(f": context {context!r} must be a class derived from agentflow.Context")
        for text in problems(p.build)
    )


# --- numbers and names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry": Retry(attempts=0)}, "Retry(attempts)=0: it must be at least 1"),
        ({"max_visits": 0}, "max_visits=0: it must be at least 1"),
        ({"max_visits": -1}, "max_visits=-1: it must be at least 1"),
        ({"timeout": timedelta(0)}, "timeout=0:00:00: it must be above 0"),
        (
            {"once": True, "retry": Retry(attempts=2)},
            "once=True and retry= contradict each other; leave one of them out",
        ),
    ],
)
def test_a_value_that_makes_no_sense_on_a_step_is_found(options: dict[str, Any], message: str) -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(**options)  # fault
    async def work(case: Case, run: Run) -> None: ...

    assert told(lambda: built(work, flow.end("end"))) == f"{line_of()}: state 'work': {message}"


def test_values_that_make_no_sense_on_a_model_and_a_person_are_found() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.llm(Verdict, prompt="?", max_tokens=0, timeout=timedelta(seconds=-1))  # fault: model
    def judge(case: Case) -> Case:
        return case

    @flow.human(Verdict, expires=timedelta(0))  # fault: person
    def ask(case: Case) -> Question:
        return Question("?")

    end = flow.end("end")
    rows = [judge.on(*Verdict).to(ask), ask.on(*Verdict).to(end), ask.expired.to(end)]
    assert problems(lambda: flow.build(start=judge, transitions=rows)) == [
        f"{line_of('model')}: state 'judge': max_tokens=0: it must be at least 1",
        f"{line_of('model')}: state 'judge': timeout=-1 day, 23:59:59: it must be above 0",
        f"{line_of('person')}: state 'ask': expires=0:00:00: it must be above 0",
    ]


def test_an_optional_step_that_decides_is_found() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(optional=True)  # fault
    async def judge(case: Case, run: Run) -> Verdict:
        return Verdict.YES

    assert told(lambda: built(judge, flow.end("end"))) == (
        f"{line_of()}: state 'judge': optional=True fits no deciding step: which way would it take?"
    )


class Empty(Enum): ...


def test_an_enum_without_members_is_found() -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step()  # fault
    async def judge(case: Case, run: Run) -> Empty:
        raise NotImplementedError

    flow.end("end")
    assert f"{line_of()}: state 'judge': enum Empty has no members" in problems(
        lambda: flow.build(start=judge, transitions=[])
    )


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(llm_calls=0), "Limits(llm_calls=0)"),
        (Limits(cost=Decimal("-0.5")), "Limits(cost=-0.5)"),
        (Limits(wall_time=timedelta(0)), "Limits(wall_time=0:00:00)"),
        (Limits(transitions=-1), "Limits(transitions=-1)"),
        (Limits(context_bytes=0), "Limits(context_bytes=0)"),
    ],
)
def test_a_limit_that_lets_nothing_through_is_found(limits: Limits, message: str) -> None:
    assert told(parts(limits=limits).build).endswith(f": {message}: a limit must be above 0; leave it out for none")


@pytest.mark.parametrize("name", ["a flow", "", "1st", "a/b", "flow.x", "-a"])
def test_a_name_that_is_none_is_found_for_workflows_and_ends(name: str) -> None:
    flow: Any = Workflow(name, Case)  # fault: flow

    @flow.step()
    async def work(case: Case, run: Run) -> None: ...

    end = flow.end(name)  # fault: end
    assert problems(lambda: built(work, end)) == [
        f"{line_of('flow')}: workflow {name!r}: a name is letters, digits, '_' and '-', from a letter",
        f"{line_of('end')}: end {name!r}: a name is letters, digits, '_' and '-', from a letter",
    ]


def test_a_version_below_one_is_found() -> None:
    assert told(parts(version=0).build).endswith(": version=0: versions count from 1")


class Shop(Protocol):
    def order(self) -> str: ...


def test_services_that_no_factory_could_match_are_found() -> None:
    assert "services=Shop: a Protocol cannot be matched to a factory; name a class" in told(parts(services=Shop).build)
    assert "name the class, not an object" in told(parts(services=Business("x")).build)


# --- not yet -----------------------------------------------------------------------------------------------------


def named(name: str) -> Any:
    def body(case: Case) -> Any: ...

    body.__name__ = name
    return body


def test_kinds_that_cannot_run_yet_are_refused_by_name() -> None:
    flow: Any = Workflow("flow", Case)
    made = [
        flow.react(Verdict, prompt="x", tools=[], max_turns=1)(named("react")),
        flow.signal(Counted)(named("signal")),
        flow.sleep()(named("sleep")),
        flow.call(flow)(named("call")),
        flow.stream(str)(named("stream")),
        flow.runs(flow)(named("runs")),
    ]
    found = problems(lambda: flow.build(start=made[0], transitions=[]))
    for state in made:
        assert any(f"state {state.name!r}: a `{state.name}` state cannot run yet" in text for text in found)


def test_an_undo_row_is_refused_until_it_can_run() -> None:
    p = parts()
    rows = p.rows()
    rows.insert(5, p.flow.failed(Business).undo().to(p.bad))  # fault
    assert told(lambda: p.build(rows)) == f"{line_of()}: row flow.failed -> bad: undo() cannot run yet"
