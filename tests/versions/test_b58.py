"""A stored context meets a new schema (B58)."""

from datetime import timedelta
from typing import Any, Literal

import pytest

from agentflow import App, Context, DefinitionError, Stored, Workflow
from agentflow.errors import IncompatibleDefinition
from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter
from tests.scenarios.desk import ADA
from tests.versions.orders import OrderV1, OrderV2, OrderV3, Verdict, ordering, to_cents, to_total

SOON = timedelta(seconds=20)


class WithDefault(Context):
    order: str
    amount: int = 0
    note: str = ""
    currency: str = "EUR"


class WithRequired(Context):
    order: str
    amount: int = 0
    note: str = ""
    currency: str


class WithNewName(Context):
    number: str
    amount: int = 0
    note: str = ""


class WithNarrowType(Context):
    order: Literal["A1", "B1"]
    amount: int = 0
    note: str = ""


def required(old: Stored) -> Stored:
    return Stored(old.state, {**old.context, "currency": "EUR"})


def new_name(old: Stored) -> Stored:
    return Stored(old.state, {"number" if name == "order" else name: value for name, value in old.context.items()})


def as_it_is(old: Stored) -> Stored:
    return old


async def waiting(store: Store, kind: Any = OrderV1, **shape: Any) -> tuple[str, Any]:
    """A run of version 1 that waits; the id of its wait and its export."""
    flow = ordering(kind, 1, **shape)
    async with App([flow], store=store) as app:
        asked = await app.run(flow, kind(order="A1", amount=7), id="r", timeout=SOON)
        return asked.waits[0].id, await app.export("r")


async def approve(app: App, wait: str, flow: Workflow[Any, None]) -> Any:
    [asked] = await app.waits(wait)
    state = await app.state_of(asked)
    assert state.spec.outcome is not None
    await app.decide(wait, next(iter(state.spec.outcome)), actor=ADA)
    return await app.result("r", flow, timeout=SOON)


@pytest.mark.parametrize("version", [1, 2])
async def test_b58_1_a_run_continues_where_a_field_with_a_default_was_added(store: Store, version: int) -> None:
    wait, _ = await waiting(store)
    flow = ordering(WithDefault, version)
    async with App([flow], store=store) as app:
        assert (await app.deploy_check()).count("continue") == 1
        over = await approve(app, wait, flow)
        events = [(line.event, line.answer and line.answer.get("version")) for line in await app.history("r")]
    assert (over.end.name, over.context.currency, over.context.amount) == ("paid", "EUR", 7)
    adopted = [("adopt", 1)] if version == 2 else []
    assert [event for event in events if event[0] == "adopt"] == adopted


CASES = {
    "2 a required field was added": (WithRequired, "", required, "'currency' is new and has no default"),
    "3 a field was renamed": (WithNewName, "", new_name, "'order' is gone"),
    "4 a member was added": (OrderV1, "other members", as_it_is, "ASK is new"),
    "5 a type was narrowed": (WithNarrowType, "", as_it_is, "'order' takes less than before"),
}


@pytest.mark.parametrize("case", CASES)
async def test_b58_a_run_that_the_new_schema_does_not_take_stands_unchanged_until_a_migration(
    store: Store, case: str
) -> None:
    kind, shape, migration, reason = CASES[case]
    wait, before = await waiting(store)
    bare = ordering(kind, 2, shape=shape)
    async with App([bare], store=store) as app:
        await refused_and_unchanged(app, bare, wait, before, reason)
    await migrated_and_continued(store, ordering(kind, 2, migration, shape=shape), before)


async def test_b58_4_a_removed_member_stands_unchanged_until_a_migration(store: Store) -> None:
    wait, before = await waiting(store, shape="other members")
    bare = ordering(OrderV1, 2)
    async with App([bare], store=store) as app:
        await refused_and_unchanged(app, bare, wait, before, "ASK is gone")
    await migrated_and_continued(store, ordering(OrderV1, 2, as_it_is), before)


async def refused_and_unchanged(app: App, flow: Workflow[Any, None], wait: str, before: Any, reason: str) -> None:
    check = await app.deploy_check()
    assert [(one.fate, one.runs, reason in one.reason) for one in check.prospects] == [("blocked", 1, True)]
    assert not check.ok
    [asked] = await app.waits(wait)
    state = await app.state_of(asked)
    assert state.spec.outcome is not None
    with pytest.raises(IncompatibleDefinition, match="migration"):
        await app.decide(wait, next(iter(state.spec.outcome)), actor=ADA)
    assert [row.id for row in await app.rows(RunFilter())] == ["r"]
    assert reason in (await app.why("r")).text
    after = await app.export("r")
    assert {**after, "commands": []} == {**before, "definition": after["definition"]}
    assert after["context"] == {"order": "A1", "amount": 7, "note": ""}


async def migrated_and_continued(store: Store, flow: Workflow[Any, None], before: Any) -> None:
    async with App([flow], store=store) as app:
        check = await app.deploy_check()
        assert [(one.fate, one.to, one.runs) for one in check.prospects] == [("migrate", 2, 1)]
        assert check.ok
        [line] = await app.migrate(flow, actor=ADA)
        assert (line.applied, line.problem, line.version, line.to) == (True, None, 1, 2)
        asked = await app.follow("r", flow, timeout=SOON)
        over = await approve(app, asked.waits[0].id, flow)
        assert over.end.name == "paid"
        after = await app.export("r")
    assert after["history"][:2] == before["history"]


async def test_b58_migrations_make_a_chain(store: Store) -> None:
    wait, before = await waiting(store)
    flow = ordering(OrderV3, 3, to_cents, to_total)
    async with App([flow], store=store) as app:
        [line] = await app.migrate(flow)
        assert (line.version, line.to, line.problem) == (1, 3, None)
        over = await approve(app, wait, flow)
    assert over.context.model_dump(mode="json") == {"order": "A1", "total": "7", "currency": "EUR"}
    assert before["context"] == {"order": "A1", "amount": 7, "note": ""}


async def test_b58_the_history_of_the_old_version_stays_readable(store: Store) -> None:
    wait, before = await waiting(store)
    old, new = ordering(OrderV1, 1), ordering(OrderV2, 2, to_cents)
    async with App([new], store=store) as app:
        await app.migrate(new, actor=ADA, reason="cents")
        await approve(app, wait, new)
        lines = await app.history("r")
        exported = await app.export("r")
        with pytest.raises(IncompatibleDefinition, match="Its export shows all of it"):
            await app.get("r", revision=1)
    assert [(line.source, line.event, line.target) for line in lines] == [
        ("", "start", "prepare"),
        ("prepare", "done", "ask"),
        ("ask", "migrate", "ask"),
        ("ask", "on", "pay"),
        ("pay", "done", "paid"),
    ]
    assert (lines[2].actor, lines[2].reason) == (ADA, "cents")
    assert exported["history"][:2] == before["history"]
    async with App([old, new], store=store) as app:
        then = await app.get("r", old, revision=1)
        now = await app.get("r", new)
        assert (then.context, then.state.name) == (OrderV1(order="A1", amount=7), "ask")
        assert now.context == OrderV2(order="A1", cents=700, currency="EUR")
        forked = await app.fork("r", 1, id="again")
        assert (forked.state.owner.version, forked.context.model_dump()["amount"]) == (1, 7)


def test_b58_two_migrations_for_one_step_are_an_error() -> None:
    flow: Workflow[Any, None] = Workflow("ordering", OrderV2, version=2)
    flow.migration(from_version=1)(to_cents)
    flow.migration(from_version=1)(as_it_is)
    end = flow.end("paid")

    @flow.step()
    async def pay(case: Any, run: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"from_version=1.*there is one already"):
        flow.build(start=pay, transitions=[pay.to(end)])


def test_b58_two_migrations_for_one_step_are_an_error_after_the_build_too() -> None:
    flow = ordering(OrderV2, 2, to_cents)
    with pytest.raises(DefinitionError, match="there is one already"):
        flow.migration(from_version=1)(as_it_is)


@pytest.mark.parametrize(
    ("steps", "told"), [([1], "none goes on from there"), ([0], "from 1"), ([3], "leads to version 4")]
)
def test_b58_a_migration_that_leads_nowhere_is_an_error(steps: list[int], told: str) -> None:
    flow: Workflow[Any, None] = Workflow("ordering", OrderV3, version=3)
    for step in steps:
        flow.migration(from_version=step)(as_it_is)
    end = flow.end("paid")

    @flow.step()
    async def pay(case: Any, run: Any) -> None: ...

    with pytest.raises(DefinitionError, match=told):
        flow.build(start=pay, transitions=[pay.to(end)])


async def test_b58_a_decision_is_taken_by_the_code_that_asked_until_the_migration(store: Store) -> None:
    wait, _ = await waiting(store)
    old, new = ordering(OrderV1, 1), ordering(OrderV2, 2, to_cents)
    async with App([old, new], store=store) as app:
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        over = await app.result("r", old, timeout=SOON)
        version = (await app.rows(RunFilter()))[0].version
    assert (over.context, version) == (OrderV1(order="A1", amount=7), 1)
