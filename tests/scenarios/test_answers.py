"""Routing on what a model says: only a member routes, and a fallback is recorded as one (B20, B21)."""

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

import pytest

from agentflow import Answer, App, Context, DefinitionError, Limits, Model, Snapshot, Workflow
from agentflow.failures import Invalid, Refused, Truncated
from agentflow.model.views import Revision
from agentflow.testing.scripted import ScriptedModel, ScriptedReply, cut, refusal, reply

SOON = timedelta(seconds=20)


class Route(StrEnum):
    REFUND = "refund"
    REJECT = "reject"
    ESCALATE = "escalate"


class Ticket(Context):
    text: str = "My parcel never came"
    reason: str = ""


def routing(*, fallback: bool, limits: Limits | None = None) -> Workflow[Ticket, None]:
    flow = Workflow("routing", Ticket, limits=limits)

    @flow.llm(Route, prompt="What now?\n\n{{ text }}")
    def decide(case: Ticket) -> Ticket:
        return case

    @decide.store
    def keep(case: Ticket, answer: Answer[Route, None]) -> None:
        case.reason = answer.reason

    refunded, rejected, escalated = flow.end("refunded"), flow.end("rejected"), flow.end("escalated")
    rows = [decide.failed(Invalid, Refused, Truncated).to(flow.end("unread", failed=True))] if fallback else []
    flow.build(
        start=decide,
        transitions=[
            decide.on(Route.REFUND).to(refunded),
            decide.on(Route.REJECT).to(rejected),
            decide.on(Route.ESCALATE).to(escalated),
            *rows,
        ],
    )
    return flow


async def routed(
    flow: Workflow[Ticket, None], store: str, answers: list[ScriptedReply]
) -> tuple[Snapshot[Ticket], list[Revision], ScriptedModel]:
    with ScriptedModel(answers) as model:
        models = {"default": Model("m", base_url=model.base_url, api_key="test")}
        async with App([flow], store=store, models=models) as app:
            run = await app.run(flow, Ticket(), id="r", timeout=SOON)
            return run, list(await app.history("r")), model


async def test_b20_an_unknown_label_is_asked_about_once_and_then_fails_with_the_raw_text(store: str) -> None:
    over, history, model = await routed(routing(fallback=False), store, [reply("approve"), reply("approve")])

    assert over.failure is not None
    assert (over.status, over.end, over.failure.kind) == ("failed", None, "Invalid")
    assert "approve" in over.failure.detail
    assert len(history) == 1
    again = model.requests[1].prompt
    assert all(label in again for label in ("refund", "reject", "escalate"))


async def test_b20_a_declared_fallback_is_taken_and_recorded_as_a_failure_not_as_an_answer(store: str) -> None:
    over, history, _ = await routed(routing(fallback=True), store, [reply("approve"), reply("approve")])

    line = history[1]
    assert (str(over.end), over.status, over.context.reason) == ("unread", "failed", "")
    assert (line.event, line.outcome) == ("failed", None)
    assert line.failure is not None
    assert (line.failure.kind, "approve" in line.failure.detail) == ("Invalid", True)


async def test_b20_a_second_answer_that_fits_is_taken_and_recorded_as_asked_again(store: str) -> None:
    over, history, _ = await routed(routing(fallback=False), store, [reply("approve"), reply("refund", reason="ok")])

    line = history[1]
    assert (str(over.end), over.context.reason, line.outcome) == ("refunded", "ok", "REFUND")
    assert line.answer is not None
    assert (line.answer["how"], line.answer["turns"]) == ("re-asked", 2)


@pytest.mark.parametrize("text", [" Refund\n", '"REFUND"', '```json\n{"reason": "r", "choice": "refund"}\n```'])
async def test_b21_one_normalisation_takes_blanks_case_quotes_and_a_fence(store: str, text: str) -> None:
    over, history, _ = await routed(routing(fallback=True), store, [reply(text=text)])

    assert (str(over.end), history[1].outcome) == ("refunded", "REFUND")
    assert history[1].answer is not None
    assert history[1].answer["how"] == "normalised"


UNUSABLE = {
    "label": "Category: refund",
    "negation": "not refund",
    "two": "refund or reject",
    "full-width": "\uff32\uff45\uff46\uff55\uff4e\uff44",
    "period": "refund.",
    "zero-width": "refund\u200b",
}


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_b21_what_names_no_label_several_or_denies_one_never_routes(store: str, text: str) -> None:
    over, history, model = await routed(routing(fallback=True), store, [reply(text=text), reply(text=text)])

    assert (str(over.end), history[1].event, len(model.requests)) == ("unread", "failed", 2)


@pytest.mark.parametrize("text", ["", "   "])
async def test_an_empty_answer_is_no_answer_of_the_model_but_a_fault_of_its_server(store: str, text: str) -> None:
    over, history, model = await routed(routing(fallback=True), store, [reply(text=text)])

    assert over.failure is not None
    assert (over.status, over.failure.kind, len(history), len(model.requests)) == ("failed", "Unavailable", 1, 1)


def test_b21_two_members_that_read_alike_are_refused_by_build() -> None:
    class Twins(StrEnum):
        YES = "yes"
        ALSO_YES = "Yes "

    flow = Workflow("twins", Ticket)

    @flow.llm(Twins, prompt="Yes?\n\n{{ text }}")
    def decide(case: Ticket) -> Ticket:
        return case

    end = flow.end("end")
    with pytest.raises(DefinitionError, match="too alike"):
        flow.build(start=decide, transitions=[decide.on(Twins.YES, Twins.ALSO_YES).to(end)])


@pytest.mark.parametrize("answer", [refusal("I can't help"), cut("refund")], ids=["refusal", "cut off"])
async def test_a_refusal_or_a_cut_answer_is_not_asked_again_and_never_an_answer(
    store: str, answer: ScriptedReply
) -> None:
    over, history, model = await routed(routing(fallback=True), store, [answer])

    assert (str(over.end), history[1].outcome, len(model.requests)) == ("unread", None, 1)


async def test_what_failed_answers_cost_counts_towards_the_limit(store: str) -> None:
    flow = routing(fallback=False, limits=Limits(llm_calls=2))
    with ScriptedModel([reply("approve"), reply("approve")]) as model:
        priced = Model("m", base_url=model.base_url, api_key="test", input_price=Decimal(1), output_price=Decimal(2))
        async with App([flow], store=store, models={"default": priced}) as app:
            await app.run(flow, Ticket(), id="r", timeout=SOON)
            await app.retry("r")
            over = await app.run(flow, Ticket(), id="r", timeout=SOON)

    assert over.failure is not None
    assert (over.failure.kind, len(model.requests)) == ("OverLimit", 2)
