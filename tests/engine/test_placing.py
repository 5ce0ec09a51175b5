"""A run that is placed past the table: what goes on, and what begins anew."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

from agentflow import Context, Question, Run, Workflow
from agentflow.engine.head import Head, KeptAnswer
from agentflow.engine.placing import place
from agentflow.model.context import EMPTY
from agentflow.model.definition import Definition
from agentflow.model.values import Failure

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=2)


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"


def definition() -> Definition:
    flow = Workflow("placing", Context)

    @flow.step(max_visits=9)
    async def weigh(case: Context, run: Run) -> None: ...

    @flow.human(Verdict)
    def ask(case: Context) -> Question:
        return Question("?")

    done, broken = flow.end("done"), flow.end("broken", failed=True)
    rows = [weigh.to(ask), ask.on(Verdict.YES).to(done), ask.on(Verdict.NO).to(broken)]
    flow.build(start=weigh, transitions=rows, renamed={"measure": weigh, "ask.SURE": Verdict.YES})
    return flow.definition


FAILURE = Failure(kind="ValueError", message="before", bases=(), state="measure", attempts=1)
HEAD = Head(
    run="r",
    revision=7,
    status="queued",
    state="measure",
    visit=3,
    kept=EMPTY,
    started_at=NOON,
    entered_at=NOON,
    attempt=2,
    lost=1,
    cause=FAILURE,
    visits={"measure": 3, "ask": 2, "weigh": 1},
    generation=1,
    answer=KeptAnswer("SURE", "{}", {}),
)


def test_a_visit_that_goes_on_keeps_all_that_belongs_to_it_under_the_names_of_now() -> None:
    after = place(definition(), HEAD, "weigh", kept=EMPTY, at=LATER, stays=True)
    assert (after.revision, after.state, after.entered_at) == (8, "weigh", NOON)
    assert (after.attempt, after.lost, after.generation, after.cause) == (2, 1, 1, FAILURE)


def test_where_two_names_become_one_no_visit_gets_the_number_of_another() -> None:
    after = place(definition(), HEAD, "weigh", kept=EMPTY, at=LATER, stays=True)
    assert (after.visits, after.visit) == ({"weigh": 4, "ask": 2}, 4)
    alone = replace(HEAD, visits={"measure": 3})
    assert place(definition(), alone, "weigh", kept=EMPTY, at=LATER, stays=True).visit == 3


def test_an_answer_that_was_kept_follows_a_member_to_its_new_name() -> None:
    asking = replace(HEAD, state="ask", visit=2)
    after = place(definition(), asking, "ask", kept=EMPTY, at=LATER, stays=True)
    assert after.answer == KeptAnswer("YES", "{}", {})


def test_an_answer_over_other_data_is_dropped() -> None:
    other = replace(EMPTY, size=1)
    assert place(definition(), HEAD, "weigh", kept=other, at=LATER, stays=True).answer is None


def test_a_state_that_is_entered_anew_counts_one_visit_more_and_begins_its_attempts_again() -> None:
    after = place(definition(), HEAD, "ask", kept=EMPTY, at=LATER, stays=False)
    assert (after.revision, after.status, after.state, after.visit) == (8, "queued", "ask", 3)
    assert (after.attempt, after.lost, after.generation, after.cause, after.answer) == (0, 0, 0, None, None)
    assert (after.entered_at, after.visits["ask"]) == (LATER, 3)


@pytest.mark.parametrize(("end", "status"), [("done", "completed"), ("broken", "failed")])
def test_an_end_ends_the_run(end: str, status: str) -> None:
    after = place(definition(), HEAD, end, kept=EMPTY, at=LATER, stays=False)
    assert (after.status, after.end, after.visit, after.failure) == (status, end, 1, None)


def test_a_failed_run_stays_failed_until_it_is_retried() -> None:
    failed = replace(HEAD, status="failed", failure=FAILURE)
    assert place(definition(), failed, "ask", kept=EMPTY, at=LATER, stays=False).status == "failed"
    after = place(definition(), failed, "weigh", kept=EMPTY, at=LATER, stays=True)
    assert (after.status, after.failure) == ("failed", FAILURE)
