"""A workflow of all kinds of states, changed in one way each, and runs of it that are parked in every state."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, create_model
from tenacity import wait_fixed

from agentflow import App, Context, Model, Question, Retry, Workflow
from agentflow.errors import IncompatibleDefinition
from agentflow.failures import Retryable, Unavailable
from agentflow.llm.client import ModelReply, ModelRequest
from agentflow.store.protocol import Store
from agentflow.testing import Clock
from tests.scenarios.desk import ADA

STATES = ("fetch", "triage", "judge", "review", "pay")
LATER = Retry(attempts=99, wait=wait_fixed(3600))


class Gate:
    """Closed, a body that is told to stand still fails, and is tried again in an hour."""

    def __init__(self) -> None:
        self.is_open = False

    def pass_by(self, case: Any, state: str) -> None:
        if case.park == state and not self.is_open:
            raise Retryable(f"parked in {state}")
        case.log.append(state)


@dataclass
class FakeModel:
    """Answers LOW; or nothing, where it is told that a run stands still."""

    gate: Gate

    async def complete(self, request: ModelRequest) -> ModelReply:
        if "park: judge" in request.messages[-1].content and not self.gate.is_open:
            raise Unavailable("parked in judge")
        return ModelReply(
            json.dumps({"reason": "seen", "choice": "LOW"}), "stop", model="fake", tokens_in=1, tokens_out=1
        )


# --- the workflow ------------------------------------------------------------------------------------------------

Fields = dict[str, Any]
FIELDS: Fields = {
    "order": (str, ...),
    "amount": (int, 40),
    "park": (str, ""),
    "log": (list[str], Field(default_factory=list)),
}


def fields_of(change: str) -> Fields:
    """The context's fields after a change."""
    fields = {**FIELDS}
    match change:
        case "a required field is added":
            fields["region"] = (str, ...)
        case "a field with a default is added":
            fields["region"] = (str, "EU")
        case "a type is narrowed":
            fields["amount"] = (Annotated[int, Field(le=100)], 40)
        case "a text becomes one of few":
            fields["order"] = (Literal["A1", "A2"], ...)
        case "a type is widened":
            fields["amount"] = (int | None, 40)
        case "a number may be a fraction":
            fields["amount"] = (float, 40.0)
        case "a default is another":
            fields["amount"] = (int, 50)
        case "a field has another name":
            fields["order_id"] = fields.pop("order")
        case "a text becomes a number":
            fields["order"] = (int, ...)
    return fields


@dataclass(frozen=True)
class Enums:
    """What states answer."""

    route: Any
    risk: Any
    verdict: Any


def enums_of(change: str) -> Enums:
    verdict = {"APPROVE": "approve", "REJECT": "reject"}
    risk = {"LOW": "low", "HIGH": "high"}
    match change:
        case "a member is added":
            verdict["ASK"] = "ask"
        case "a member is gone":
            del verdict["REJECT"]
        case "a member has another value":
            verdict["REJECT"] = "deny"
        case "a member has another name" | "a member has another name, and the map says so":
            verdict = {"APPROVE": "approve", "DENY": "deny"}
        case "a model gets another answer":
            risk["MIDDLE"] = "middle"
    return Enums(StrEnum("Route", {"FAST": "fast", "FULL": "full"}), StrEnum("Risk", risk), StrEnum("Verdict", verdict))


def form_of(change: str) -> Any:
    kind: Any = int if change == "the form of an answer is another" else str
    return create_model("Paid", reference=(kind, ...))


def claim(change: str = "", *, gate: Gate | None = None, version: int = 1) -> Workflow[Any, None]:
    """The workflow after a change."""
    gate = gate or Gate()
    case_class: Any = create_model("Case", __base__=Context, **fields_of(change))
    flow: Workflow[Any, None] = Workflow("claim", case_class, version=version)
    enums, form = enums_of(change), form_of(change)
    states: dict[str, Any] = {}

    async def fetch(case: Any, run: Any) -> None:
        gate.pass_by(case, "fetch")

    async def fetch_otherwise(case: Any, run: Any) -> None:
        case.amount += 1
        gate.pass_by(case, "fetch")

    body = fetch_otherwise if change == "a body is another" else fetch
    body.__name__ = "collect" if "a step has another name" in change else "fetch"
    states["fetch"] = flow.step(retry=LATER)(body)

    async def triage(case: Any, run: Any) -> Any:
        gate.pass_by(case, "triage")
        return enums.route.FAST if case.park == "pay" else enums.route.FULL

    triage.__annotations__["return"] = enums.route
    states["triage"] = flow.step(retry=LATER)(triage)

    def judge(case: Any) -> dict[str, object]:
        return {"amount": case.amount, "park": case.park}

    if change == "a model's state becomes code":

        async def judge_by_code(case: Any, run: Any) -> Any:
            gate.pass_by(case, "judge")
            return enums.risk.LOW

        judge_by_code.__annotations__["return"] = enums.risk
        judge_by_code.__name__ = "judge"
        states["judge"] = flow.step(retry=LATER)(judge_by_code)
    else:
        polite = "Please judge" if change == "a prompt is another" else "Judge"
        prompt = f"{polite} {{{{ amount }}}}, park: {{{{ park }}}}"
        states["judge"] = flow.llm(enums.risk, prompt=prompt, model="fast", retry=LATER)(judge)

    def review(case: Any) -> Question:
        return Question(f"Pay {case.amount}?")

    review.__name__ = "approval" if "a question has another name" in change else "review"
    expires: Any = None if change == "a question no longer expires" else timedelta(days=90)
    states["review"] = flow.human(enums.verdict, answer=form, expires=expires)(review)

    async def pay(case: Any, run: Any) -> None:
        gate.pass_by(case, "pay")
        await run.effect("pay", paying)

    pay.__name__ = "payout" if change == "a state is gone" else "pay"
    states["pay"] = flow.step(retry=LATER)(pay)
    _build(flow, change, enums, states, gate)
    return flow


async def paying(key: str) -> str:
    return key


def _build(flow: Workflow[Any, None], change: str, enums: Enums, states: dict[str, Any], gate: Gate) -> None:
    fetch, triage, judge, review, pay = (states[name] for name in STATES)
    paid = flow.end("paid")
    refused = flow.end("denied" if "an end has another name" in change else "refused")

    def small(case: Any) -> bool:
        return bool(case.amount < 50)

    def small_now(case: Any) -> bool:
        return bool(case.amount < 60)

    def tiny(case: Any) -> bool:
        return bool(case.amount < 50)

    small_now.__name__ = "small"
    guard: Any = {"a guard's body is another": small_now, "a guard has another name": tiny}.get(change, small)
    before_review = review
    if change == "a state comes in before a question":

        async def weigh(case: Any, run: Any) -> None:
            gate.pass_by(case, "weigh")

        before_review = flow.step()(weigh)
    rows = [
        fetch.to(triage),
        triage.on(enums.route.FAST).when(guard).to(pay),
        triage.on(enums.route.FAST).to(judge),
        triage.on(enums.route.FULL).to(judge),
        *[judge.on(member).to(before_review) for member in enums.risk],
        review.on(enums.verdict.APPROVE).to(pay),
        *[review.on(member).to(refused) for member in enums.verdict if member is not enums.verdict.APPROVE],
        pay.to(paid),
    ]
    if change != "a question no longer expires":
        rows.append(review.expired.to(refused))
    if before_review is not review:
        rows.append(before_review.to(review))
    flow.build(start=fetch, transitions=rows, renamed=_renamed(change, enums, review, refused, fetch))


def _renamed(change: str, enums: Enums, review: Any, refused: Any, fetch: Any) -> dict[str, Any] | None:
    if "and the map says so" not in change:
        return None
    if change.startswith("a member"):
        return {"review.REJECT": enums.verdict.DENY}
    if change.startswith("a question"):
        return {"review": review}
    return {"fetch": fetch} if change.startswith("a step") else {"refused": refused}


# --- what is expected --------------------------------------------------------------------------------------------

ALL: Mapping[str, str] = dict.fromkeys(STATES, "blocked")
CHANGES: Mapping[str, Mapping[str, str]] = {
    "nothing changes": {},
    "a guard's body is another": {},
    "a guard has another name": {"triage": "blocked"},
    "a prompt is another": {},
    "a body is another": {},
    "a model gets another answer": {"judge": "blocked"},
    "a model's state becomes code": {"judge": "blocked"},
    "a member is gone": {"review": "blocked"},
    "a member is added": {"review": "blocked"},
    "a member has another value": {"review": "blocked"},
    "a member has another name": {"review": "blocked"},
    "a member has another name, and the map says so": {},
    "a question has another name": {"judge": "blocked", "review": "blocked"},
    "a question has another name, and the map says so": {},
    "a question no longer expires": {"review": "blocked"},
    "a step has another name": {"fetch": "blocked"},
    "a step has another name, and the map says so": {},
    "the form of an answer is another": {"review": "blocked"},
    "a state comes in before a question": {"judge": "blocked"},
    "a state is gone": {"triage": "blocked", "review": "blocked", "pay": "blocked"},
    "an end has another name": {"review": "blocked"},
    "an end has another name, and the map says so": {},
    "a required field is added": ALL,
    "a field with a default is added": {},
    "a type is narrowed": ALL,
    "a text becomes one of few": ALL,
    "a text becomes a number": ALL,
    "a type is widened": {},
    "a number may be a fraction": {},
    "a default is another": {},
    "a field has another name": ALL,
}
"""What each change comes to for the runs that stand in a state; those that are not named continue."""


# --- parked runs -------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """A store with runs of the first version, parked in every state."""

    store: Store
    runs: Mapping[str, str]  # by id, the state
    gate: Gate
    exports: Mapping[str, Any] = field(default_factory=dict[str, Any])


def app_with(store: Store, gate: Gate, *flows: Workflow[Any, None]) -> App:
    app = App([*flows], store=store, models={"fast": Model("fake")})
    app.answer_with(FakeModel(gate))
    return app


def counted(fates: Mapping[str, str], stage: Stage) -> Mapping[tuple[str, str], int]:
    """How many runs of each state have which fate."""
    return Counter((stage.runs[run], fate) for run, fate in fates.items())


async def park(store: Store, *, each: int) -> Stage:
    """Start runs and let each go on until it stands in its state."""
    gate = Gate()
    flow = claim(gate=gate)
    kind = flow.definition.context.kind
    runs = {f"{state}{number}": state for state in STATES for number in range(each)}
    async with app_with(store, gate, flow) as app:
        clock = Clock(app)
        for run, state in runs.items():
            await app.start(flow, kind(order="A1", park=state), id=run)
        await clock.advance(timedelta(seconds=1))
        rows = {run: await store.run(run) for run in runs}
        assert {run: row.standing.state for run, row in rows.items() if row is not None} == runs
        exports = {run: await app.export(run) for run in runs}
    return Stage(store, runs, gate, exports)


# --- what becomes of them ----------------------------------------------------------------------------------------


async def let_loose(app: App, clock: Clock, stage: Stage, flow: Workflow[Any, None]) -> Mapping[str, str]:
    """Drive everything that is due by the code of the App, answer every question; the fate of each run."""
    stage.gate.is_open = True
    refused: set[str] = set()
    await clock.advance(timedelta(hours=2))
    for wait in await app.waits(limit=10_000):
        try:
            await answer(app, flow, wait.id)
        except IncompatibleDefinition:
            refused.add(wait.run)
    await clock.advance(timedelta(seconds=1))
    fates: dict[str, str] = {}
    for run in stage.runs:
        row = await stage.store.run(run)
        assert row is not None
        fates[run] = "blocked" if row.standing.blocked is not None or run in refused else "continue"
    return fates


async def answer(app: App, flow: Workflow[Any, None], wait: str) -> None:
    """Answer a question with the first of its outcomes."""
    [asked] = await app.waits(wait)
    state = await app.state_of(asked)
    assert state.spec.outcome is not None
    form: Any = state.spec.answer
    reference = 7 if form.model_fields["reference"].annotation is int else "R7"
    await app.decide(wait, next(iter(state.spec.outcome)), form(reference=reference), actor=ADA)


def what_stands(export: Any) -> Any:
    """What must not change of a run that does not continue: all but that it was looked at."""
    run = {name: value for name, value in export["run"].items() if name in UNTOUCHED}
    return {"run": run} | {name: export[name] for name in ("context", "history", "effects", "attempts", "waits")}


UNTOUCHED = frozenset(
    {"id", "workflow", "version", "shape", "revision", "state", "visit", "attempt", "end", "memory", "fingerprint"}
)
