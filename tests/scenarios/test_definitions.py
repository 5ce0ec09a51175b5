"""What is found before a run, and what guards and bodies cannot spoil (B57, B70, B71)."""

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from agentflow import App, Context, DefinitionError, Question, Run, Snapshot, Workflow
from tests.scenarios.desk import ADA

SOON = timedelta(seconds=20)


class Verdict(StrEnum):
    APPROVED = "approved"
    DENIED = "denied"


class Basket(Context):
    items: list[str] = []
    count: int = 0


# --- invalid output (B57) ----------------------------------------------------------------------------------------


def set_none(case: Any) -> None:
    case.items = None


def set_wrong_type(case: Any) -> None:
    case.items = ["a", 7]


def set_another_kind(case: Any) -> None:
    case.count = "many"


def set_unknown(case: Any) -> None:
    case.colour = "red"


def mutate_in_place(case: Any) -> None:
    case.items.append(object())


def set_true_for_one(case: Any) -> None:
    case.count = True


def replace_everything(case: Any) -> None:
    case.__dict__["items"] = ("a",)


SPOILED = [
    (set_none, "items"),
    (set_wrong_type, "items"),
    (set_another_kind, "count"),
    (set_unknown, "colour"),
    (mutate_in_place, "items"),
    (set_true_for_one, "count"),
    (replace_everything, "items"),
]


@pytest.mark.parametrize(("spoil", "path"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
async def test_b57_what_a_body_leaves_is_validated_before_it_is_committed(
    store: str, spoil: Callable[[Any], None], path: str
) -> None:
    flow = Workflow("basket", Basket)
    spoils = [spoil]

    @flow.step()
    async def fill(case: Basket, run: Run) -> None:
        case.items.append("first")

    @flow.step()
    async def break_it(case: Basket, run: Run) -> None:
        case.items.append("second")
        for each in spoils:
            each(case)

    end = flow.end("end")
    flow.build(start=fill, transitions=[fill.to(break_it), break_it.to(end)])
    async with App([flow], store=store) as app:
        failed = await app.run(flow, Basket(), id="r", timeout=SOON)
        assert failed.failure is not None
        assert (failed.status, failed.context.model_dump(), failed.revision) == (
            "failed",
            {"items": ["first"], "count": 0},
            1,
        )
        assert path in failed.failure.message
        spoils.clear()  # the code is mended
        await app.retry("r")
        over = await app.result("r", flow, timeout=SOON)

    assert (over.end, over.context.items) == (end, ["first", "second"])


async def test_b57_a_body_that_returns_what_is_no_outcome_fails(store: str) -> None:
    flow = Workflow("returning", Basket)

    @flow.step()
    async def decide(case: Basket, run: Run) -> Verdict:
        return "approved"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    yes, no = flow.end("yes"), flow.end("no")
    flow.build(start=decide, transitions=[decide.on(Verdict.APPROVED).to(yes), decide.on(Verdict.DENIED).to(no)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Basket(), id="r", timeout=SOON)

    assert over.failure is not None
    assert (over.status, over.failure.kind) == ("failed", "InvalidContext")


# --- build (B70) -------------------------------------------------------------------------------------------------


def test_b70_all_problems_come_at_once_with_state_line_and_nearest_name() -> None:
    flow = Workflow("broken", Basket)

    @flow.human(Verdict)
    def review(case: Basket) -> Question:
        return Question("?")

    @flow.step()
    async def stuck(case: Basket, run: Run) -> None: ...

    @flow.step()
    async def island(case: Basket, run: Run) -> None: ...

    def second_review(case: Basket) -> Question:
        return Question("?")

    second_review.__name__ = "review"
    flow.human(Verdict)(second_review)

    @flow.llm(Verdict, prompt="{{ itmes }}")
    def judge(case: Basket) -> Basket:
        return case

    end = flow.end("end")
    with pytest.raises(DefinitionError) as raised:
        flow.build(
            start=review,
            transitions=[
                review.on(Verdict.APPROVED).to(judge),
                judge.on(Verdict.APPROVED).to(end),
                judge.on(Verdict.APPROVED).to(stuck),
                judge.on(Verdict.DENIED).to(end),
            ],
        )

    text = str(raised.value)
    for named in ("DENIED", "'island'", "'stuck'", "'review'", "itmes", "'items'"):
        assert named in text, text
    assert len(raised.value.problems) >= 5
    assert all("test_definitions.py:" in problem for problem in raised.value.problems)


async def test_b70_a_workflow_that_was_not_built_is_refused_by_the_app(store: str) -> None:
    flow = Workflow("unbuilt", Basket)
    with pytest.raises(DefinitionError, match="build"):
        App([flow], store=store)


# --- guards (B71) ------------------------------------------------------------------------------------------------


def guarded(guard: Callable[[Basket], bool]) -> Workflow[Basket, None]:
    flow = Workflow("guarded", Basket)

    @flow.step()
    async def fill(case: Basket, run: Run) -> None:
        case.count += 1

    first, other = flow.end("first"), flow.end("other")
    flow.build(start=fill, transitions=[fill.when(guard).to(first), fill.to(other)])
    return flow


async def ended(flow: Workflow[Basket, None], store: str) -> Snapshot[Basket]:
    async with App([flow], store=store) as app:
        return await app.run(flow, Basket(), id="r", timeout=SOON)


async def test_b71_a_guard_that_raises_ends_the_run_failed_unchanged_and_it_goes_on_once_mended(store: str) -> None:
    divisors = [0]

    def divides(case: Basket) -> bool:
        return 1 / divisors[0] > 0

    flow = guarded(divides)
    async with App([flow], store=store) as app:
        failed = await app.run(flow, Basket(), id="r", timeout=SOON)
        assert failed.failure is not None
        assert (failed.status, failed.failure.kind, failed.context.count) == ("failed", "GuardFailed", 0)
        assert all(word in failed.failure.message for word in ("divides", "ZeroDivisionError"))
        divisors[0] = 1
        await app.retry("r", actor=ADA)
        over = await app.result("r", flow, timeout=SOON)

    assert (str(over.end), over.context.count) == ("first", 1)


async def test_b71_a_guard_that_reads_what_is_not_there_is_a_guard_error_too(store: str) -> None:
    def missing(case: Basket) -> bool:
        return case.colour == "red"  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

    over = await ended(guarded(missing), store)
    assert over.failure is not None
    assert (over.status, over.failure.kind) == ("failed", "GuardFailed")


async def test_b71_what_a_guard_changes_is_discarded(store: str) -> None:
    def meddles(case: Basket) -> bool:
        case.items.append("meddled")
        case.count = 99
        return case.count == 99

    over = await ended(guarded(meddles), store)
    assert (str(over.end), over.context.items, over.context.count) == ("first", [], 1)


async def test_b71_of_two_guards_that_are_true_the_first_row_of_the_table_wins_and_history_says_so(store: str) -> None:
    def one(case: Basket) -> bool:
        return True

    def two(case: Basket) -> bool:
        return True

    flow = Workflow("both", Basket)

    @flow.step()
    async def fill(case: Basket, run: Run) -> None: ...

    first, second, rest = flow.end("first"), flow.end("second"), flow.end("rest")
    flow.build(start=fill, transitions=[fill.when(one).to(first), fill.when(two).to(second), fill.to(rest)])
    async with App([flow], store=store) as app:
        over = await app.run(flow, Basket(), id="r", timeout=SOON)
        line = (await app.history("r"))[1]

    assert (over.end, dict(line.guards)) == (first, {"one": True})


def test_b71_a_table_without_a_last_row_a_lambda_or_an_async_guard_is_refused_by_build() -> None:
    async def later(case: Basket) -> bool:
        return True

    def small(case: Basket) -> bool:
        return case.count < 5

    rows: list[tuple[Any, bool, str]] = [
        (later, True, "async"),
        (lambda case: True, True, "lambda"),
        (small, False, "guard"),
    ]
    for guard, has_last, named in rows:
        flow = Workflow("guards", Basket)

        @flow.step()
        async def fill(case: Basket, run: Run) -> None: ...

        end = flow.end("end")
        last = [fill.to(end)] if has_last else []
        with pytest.raises(DefinitionError, match=named):
            flow.build(start=fill, transitions=[fill.when(guard).to(end), *last])
