"""An order that waits for a person, in several versions; written out, so that each reads as an author would write it."""

from decimal import Decimal
from enum import StrEnum
from typing import Any

from agentflow import Context, Question, Run, Stored, Workflow


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class OrderV1(Context):
    order: str
    amount: int = 0
    note: str = ""


class OrderV2(Context):
    """The amount is in cents and has a currency; nobody read the notes."""

    order: str
    cents: int
    currency: str


class OrderV3(Context):
    order: str
    total: Decimal
    currency: str


def to_cents(old: Stored) -> Stored:
    kept = {name: value for name, value in old.context.items() if name not in {"amount", "note"}}
    return Stored(old.state, {**kept, "cents": old.context["amount"] * 100, "currency": "EUR"})


def to_total(old: Stored) -> Stored:
    kept = {name: value for name, value in old.context.items() if name != "cents"}
    return Stored(old.state, {**kept, "total": str(Decimal(old.context["cents"]) / 100)})


def ordering(kind: Any, version: int, *migrations: Any, shape: str = "", prepare: Any = None) -> Workflow[Any, None]:
    """prepare -> ask -> pay -> paid, with what `shape` changes; the migrations start from version 1, 2, ..."""
    flow: Workflow[Any, None] = Workflow("ordering", kind, version=version)
    for number, migration in enumerate(migrations, version - len(migrations)):
        flow.migration(from_version=number)(migration)

    async def nothing(case: Any, run: Run) -> None: ...

    prepared = prepare or nothing
    prepared.__name__ = "prepare"
    first = flow.step()(prepared)
    verdict: Any = StrEnum("Verdict", {"APPROVE": "approve", "REJECT": "reject", "ASK": "ask"}) if shape else Verdict

    def ask(case: Any) -> Question:
        return Question(f"Pay {case.order}?")

    asked: Any = flow.human(verdict)(ask)

    @flow.step()
    async def pay(case: Any, run: Run) -> None: ...

    paid, refused = flow.end("paid"), flow.end("refused")
    others = [member for member in verdict if member.name != "APPROVE"]
    flow.build(
        start=first,
        transitions=[
            first.to(asked),
            asked.on(verdict.APPROVE).to(pay),
            *[asked.on(member).to(refused) for member in others],
            pay.to(paid),
        ],
    )
    return flow
