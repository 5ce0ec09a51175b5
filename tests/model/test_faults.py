"""Every fault that `build` must find: one broken workflow each, and what its author is told."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pytest
from pydantic import BaseModel

from agentflow import Context, DefinitionError, Limits, Question, Retry, Run, SyncRun, Workflow
from agentflow.failures import Business, Refused, Retryable, TimedOut
from agentflow.merge import Append


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


class Other(StrEnum):
    MAYBE = "maybe"


class Case(Context):
    n: int = 0


class Elsewhere(Context):
    x: int = 0


def positive(case: Case) -> bool:
    return case.n > 0


async def later(case: Case) -> bool:
    return True


def of_elsewhere(case: Elsewhere) -> bool:
    return True


class Parts(NamedTuple):
    """A sound workflow, of which each fault breaks one thing."""

    flow: Any
    work: Any
    judge: Any
    ask: Any
    end: Any
    bad: Any

    def rows(self) -> list[Any]:
        """The sound table."""
        return [
            self.work.to(self.judge),
            self.judge.on(Verdict.YES).to(self.end),
            self.judge.on(Verdict.NO).to(self.ask),
            self.ask.on(Verdict.YES, Verdict.NO).to(self.end),
            self.ask.expired.to(self.end),
            self.flow.failed.to(self.bad),
        ]

    def build(self, rows: list[Any] | None = None, start: Any = None) -> None:
        self.flow.build(start=start or self.work, transitions=self.rows() if rows is None else rows)


def parts(context: type[Context] = Case, **options: Any) -> Parts:
    flow: Any = Workflow("flow", context, **options)

    @flow.step()
    async def work(case: Any, run: Run) -> None:
        case.n = 1

    @flow.llm(Verdict, prompt="yes or no? {{ n }}")
    def judge(case: Case) -> Case:
        return case

    @flow.human(Verdict, expires=timedelta(days=1))
    def ask(case: Case) -> Question:
        return Question("yes?")

    return Parts(flow, work, judge, ask, flow.end("end"), flow.end("bad", failed=True))


def problems(breaks: Callable[[], None]) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        breaks()
    return list(caught.value.problems)


def test_the_sound_workflow_has_neither_errors_nor_warnings() -> None:
    sound = parts()
    sound.build()
    assert list(sound.flow.warnings) == []


# --- the table ---------------------------------------------------------------------------------------------------


def changed(change: Callable[[Parts, list[Any]], None]) -> Callable[[], None]:
    """Build after a change of the table."""

    def build() -> None:
        p = parts()
        rows = p.rows()
        change(p, rows)
        p.build(rows)

    return build


def replaced(number: int, make: Callable[[Parts], list[Any]]) -> Callable[[], None]:
    def change(p: Parts, rows: list[Any]) -> None:
        p.flow.made.remove(rows[number])
        rows[number : number + 1] = make(p)

    return changed(change)


TABLE: Mapping[str, tuple[Callable[[], None], str]] = {
    "a member without a route": (replaced(1, lambda p: []), "Verdict.YES leads nowhere; add judge.on(Verdict.YES)"),
    "a last row with a guard": (
        replaced(1, lambda p: [p.judge.on(Verdict.YES).when(positive).to(p.end)]),
        "Verdict.YES has a guard on its last row",
    ),
    "a shadowed row": (
        replaced(1, lambda p: [p.judge.on(Verdict.YES).to(p.end), p.judge.on(Verdict.YES).when(positive).to(p.ask)]),
        "is never reached",
    ),
    "a foreign member": (
        replaced(1, lambda p: [p.judge.on(Other.MAYBE).to(p.end), p.judge.on(Verdict.YES).to(p.end)]),
        "answers with Verdict, not with",
    ),
    "a string for a member": (
        replaced(1, lambda p: [p.judge.on("yess").to(p.end), p.judge.on(Verdict.YES).to(p.end)]),
        "did you mean 'yes'?",
    ),
    "a member twice in a row": (
        replaced(1, lambda p: [p.judge.on(Verdict.YES, Verdict.YES).to(p.end)]),
        "names a member twice",
    ),
    "a string for a target": (replaced(0, lambda p: [p.work.to("jugde")]), "did you mean 'judge'?"),
    "no way out": (replaced(0, lambda p: []), "state 'work' has no way out; add work.to(...)"),
    "a guard gap on a plain state": (replaced(0, lambda p: [p.work.when(positive).to(p.judge)]), "has a guard on its last row"),
    "a failure behind a bare one": (
        changed(lambda p, rows: rows.extend([p.work.failed.to(p.bad), p.work.failed(Refused).to(p.ask)])),
        "takes these failures, so this is never reached",
    ),
    "a failure behind its base class": (
        changed(lambda p, rows: rows.extend([p.work.failed(Retryable).to(p.bad), p.work.failed(TimedOut).to(p.ask)])),
        "takes these failures, so this is never reached",
    ),
    "an expiry that leads nowhere": (replaced(4, lambda p: []), "state 'ask' expires, but leads nowhere then"),
    "an unfinished row": (changed(lambda p, rows: rows.append(p.judge.on(Verdict.YES))), "entry 7 is an unfinished row; add .to"),
    "a state for a row": (changed(lambda p, rows: rows.append(p.work)), "entry 7 is the state 'work'"),
    "a row that was left out": (changed(lambda p, rows: p.work.to(p.end) and None), "was made but is not in the table"),
    "a row twice": (changed(lambda p, rows: rows.append(rows[0])), "is in the table twice"),
    "an undo": (changed(lambda p, rows: rows.append(p.flow.failed(Business).undo().to(p.bad))), "undo() cannot run yet"),
}  # fmt: skip


@pytest.mark.parametrize("fault", TABLE)
def test_a_fault_of_the_table_is_found_with_its_line(fault: str) -> None:
    build, message = TABLE[fault]
    found = problems(build)
    assert [text for text in found if message in text], found
    assert all(re.match(r"\S+\.py:\d+: ", text) for text in found)


def test_states_that_cannot_be_reached_or_left_are_found() -> None:
    p = parts()

    @p.flow.step()
    async def lonely(case: Case, run: Run) -> None: ...

    @p.flow.step(max_visits=2)
    async def trap(case: Case, run: Run) -> None: ...

    found = problems(lambda: p.build([*p.rows(), lonely.to(p.end), trap.to(trap), p.work.failed.to(trap)]))
    assert [text for text in found if "state 'lonely' is never reached from 'work'" in text]
    # A rescue leads out of every state, so only a workflow without one can be trapped.
    assert [text for text in found if "trap" in text] == []


def test_a_trap_without_a_rescue_is_found() -> None:
    flow = Workflow("flow", Case)

    @flow.step()
    async def work(case: Case, run: Run) -> None: ...

    @flow.step(max_visits=3)
    async def spin(case: Case, run: Run) -> None: ...

    end = flow.end("end")
    found = problems(
        lambda: flow.build(start=work, transitions=[work.when(positive).to(spin), work.to(end), spin.to(spin)])
    )
    assert [text for text in found if "state 'spin' is a trap: no way from it leads to an end" in text]


def test_an_end_that_is_never_reached_is_found() -> None:
    p = parts()
    p.flow.end("nowhere")
    assert [text for text in problems(p.build) if "end 'nowhere' is never reached" in text]


def test_a_cycle_needs_a_bound_and_names_its_states() -> None:
    flow = Workflow("flow", Case)

    @flow.step()
    async def one(case: Case, run: Run) -> None: ...

    @flow.step()
    async def two(case: Case, run: Run) -> None: ...

    end = flow.end("end")
    rows = [one.to(two), two.when(positive).to(one), two.to(end)]
    found = problems(lambda: flow.build(start=one, transitions=rows))
    assert [
        text for text in found if "the cycle one -> two -> one has no bound; give one of its states max_visits=" in text
    ]


def test_names_that_collide_are_found() -> None:
    p = parts()
    p.flow.end("work")
    assert [text for text in problems(p.build) if "the name 'work' is taken by the one at" in text]


def test_a_state_of_another_workflow_is_found_as_target_source_and_start() -> None:
    p, other = parts(), parts()
    rows = [*p.rows(), p.work.failed.to(other.ask), other.work.to(p.end)]
    found = "\n".join(problems(lambda: p.build(rows, start=other.work)))
    assert found.count("belongs to workflow 'flow'") == 3


@pytest.mark.parametrize("start", ["work", None, 3])
def test_a_start_that_is_no_state_is_found(start: Any) -> None:
    p = parts()
    found = problems(lambda: p.flow.build(start=start, transitions=p.rows()))
    assert [text for text in found if "a run starts at a state" in text]


# --- functions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (lambda case: True, "a guard needs a name, which history shows"),
        (later, "guard 'later' is async"),
        (of_elsewhere, "takes a Elsewhere, but the workflow's context is Case"),
        (True, "pass the function itself, not its result"),
        (lambda: True, "a guard needs a name"),
    ],
)
def test_a_guard_that_cannot_serve_is_found(guard: Any, message: str) -> None:
    p = parts()
    rows = p.rows()
    rows.insert(0, p.work.when(guard).to(p.end))
    assert [text for text in problems(lambda: p.build(rows)) if message in text]


def without_run(case: Case) -> None: ...
async def of_other(case: Elsewhere, run: Run) -> None: ...
async def with_sync(case: Case, run: SyncRun) -> None: ...
def with_async(case: Case, run: Run) -> None: ...
async def worded(case: Case, run: Run) -> str:
    return "low"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (without_run, "must take (case, run)"),
        (of_other, "takes a Elsewhere, but the workflow's context is Case"),
        (with_sync, "async def takes a Run"),
        (with_async, "def takes a SyncRun"),
        (worded, "a step returns None or an enum, not str"),
    ],
)
def test_a_body_of_the_wrong_form_is_found(body: Any, message: str) -> None:
    flow: Any = Workflow("flow", Case)
    state = flow.step()(body)
    end = flow.end("end")
    assert [text for text in problems(lambda: flow.build(start=state, transitions=[state.to(end)])) if message in text]


def test_a_timeout_on_a_body_in_a_thread_is_found() -> None:
    flow = Workflow("flow", Case)

    @flow.step(timeout=timedelta(seconds=1))
    def work(case: Case, run: SyncRun) -> None: ...

    end = flow.end("end")
    found = problems(lambda: flow.build(start=work, transitions=[work.to(end)]))
    assert [text for text in found if "a thread cannot be stopped" in text]


def test_two_stores_and_one_of_the_wrong_form_are_found() -> None:
    p = parts()
    p.judge.store(lambda case, answer: None)
    p.judge.store(lambda case: None)
    found = "\n".join(problems(p.build))
    assert "has 2 .store functions" in found
    assert "must take (case, answer)" in found


class Short(TypedDict):
    txt: str


def asking(prompt: str | Path, body: Any, outcome: type[Enum] = Verdict, **options: Any) -> Callable[[], None]:
    def build() -> None:
        flow: Any = Workflow("flow", Case)
        judge = flow.llm(outcome, prompt=prompt, **options)(body)
        end = flow.end("end")
        flow.build(start=judge, transitions=[judge.on(*outcome).to(end)])

    return build


def short(case: Case) -> Short:
    return {"txt": ""}


def whole(case: Case) -> Case:
    return case


class Loose(BaseModel):
    anything: dict[str, Any]


class Alike(Enum):
    ON_HOLD = "on hold"
    ON_HOLD_2 = "on-hold"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (asking("{{ text }}", short), "prompt inline uses {{ text }}, which Short does not have; did you mean 'txt'?"),
        (asking("{{ m }}", whole), "uses {{ m }}, which Case does not have"),
        (asking("{{ n", whole), "judge"),
        (asking(Path("nowhere.md"), whole), "nowhere.md"),
        (asking("{{ n }}", whole, Alike), "their names are too alike"),
        (asking("{{ n }}", whole, answer=Loose), "anything"),
    ],
)
def test_a_prompt_that_cannot_be_asked_is_found(build: Callable[[], None], message: str) -> None:
    assert [text for text in problems(build) if message in text or "whole" in text]


# --- values ------------------------------------------------------------------------------------------------------


class Holder(Context):
    anything: Any
    handle: object
    mixed: int | str
    nested: dict[str, list[complex]]
    log: Append[list[str]]


def test_every_field_that_cannot_be_stored_is_found_with_its_path() -> None:
    found = "\n".join(problems(parts(Holder).build))
    for path in ("Holder.anything", "Holder.handle", "Holder.mixed", "Holder.nested[][]", "Holder.log"):
        assert f"context field {path}:" in found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry": Retry(attempts=0)}, "Retry(attempts)=0: it must be at least 1"),
        ({"max_visits": 0}, "max_visits=0"),
        ({"timeout": timedelta(0)}, "timeout=0:00:00: it must be above 0"),
        ({"once": True}, "once=True cannot be kept yet"),
    ],
)
def test_a_number_that_makes_no_sense_is_found(options: dict[str, Any], message: str) -> None:
    flow: Any = Workflow("flow", Case)

    @flow.step(**options)
    async def work(case: Case, run: Run) -> None: ...

    end = flow.end("end")
    found = problems(lambda: flow.build(start=work, transitions=[work.to(end)]))
    assert [text for text in found if message in text]


def test_head_and_limits_are_looked_at() -> None:
    no_class: Any = Verdict.YES
    flow: Any = Workflow("a flow", Case, version=0, services=no_class, limits=Limits(llm_calls=0))
    end = flow.end("an end")
    found = "\n".join(problems(lambda: flow.build(start=end, transitions=[])))
    for message in ("workflow 'a flow'", "version=0", "services=", "Limits(llm_calls=0)", "end 'an end'"):
        assert message in found


def test_kinds_that_cannot_run_yet_are_refused_by_name() -> None:
    flow: Any = Workflow("flow", Case)
    makers: dict[str, Callable[[], Any]] = {
        "react": lambda: flow.react(Verdict, prompt="x", tools=[], max_turns=1)(named("react", whole)),
        "signal": lambda: flow.signal(Loose)(named("signal", whole)),
        "sleep": lambda: flow.sleep()(named("sleep", whole)),
        "call": lambda: flow.call(flow)(named("call", whole)),
        "stream": lambda: flow.stream(str)(named("stream", of_other)),
        "runs": lambda: flow.runs(flow)(named("runs", whole)),
    }
    made = [make() for make in makers.values()]
    flow.fork(made[1], made[2])
    found = "\n".join(problems(lambda: flow.build(start=made[0], transitions=[])))
    for kind in makers:
        assert f"state {kind!r}: a `{kind}` state cannot run yet" in found
    assert "group 'fork': fork, each and graph cannot run yet" in found


def named(name: str, function: Any) -> Any:
    def body(case: Case) -> Any:
        return function(case)

    body.__name__ = name
    return body


# --- warnings ----------------------------------------------------------------------------------------------------


def test_a_failure_that_ends_as_business_is_a_warning_unless_somebody_decides() -> None:
    p = parts()
    p.build([*p.rows(), p.work.failed(Refused).to(p.end), p.work.failed.to(p.ask)])
    [warning] = p.flow.warnings
    assert "a failure reaches the end 'end', which is not failed=True" in warning


def test_a_wait_without_expiry_is_a_warning() -> None:
    flow = Workflow("flow", Case)

    @flow.human(Verdict)
    def ask(case: Case) -> Question:
        return Question("yes?")

    end = flow.end("end")
    flow.build(start=ask, transitions=[ask.on(Verdict.YES, Verdict.NO).to(end)])
    assert ["may wait for ever" in warning for warning in flow.warnings] == [True]


async def revoke(case: Case, run: Run) -> None: ...


def test_an_undo_of_a_body_without_an_effect_is_a_warning() -> None:
    flow = Workflow("flow", Case)

    @flow.step(undo=revoke)
    async def work(case: Case, run: Run) -> None:
        case.n = 1

    end = flow.end("end")
    flow.build(start=work, transitions=[work.to(end)])
    assert ["has undo=, but its body has no run.effect" in warning for warning in flow.warnings] == [True]


# --- all at once -------------------------------------------------------------------------------------------------


def test_all_problems_come_in_one_error_in_the_order_of_their_lines() -> None:
    p = parts()
    rows = p.rows()
    del rows[4], rows[1]
    found = problems(lambda: p.build([*rows, p.work.when(positive).to(p.end)]))
    numbers = [int(text.split(":")[1]) for text in found]
    assert numbers == sorted(numbers)
    assert len(found) >= 4
