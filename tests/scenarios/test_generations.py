"""After an operator's retry: what is recorded is replayed, what did not happen gets a new key, doubt stays doubt."""

from datetime import timedelta
from typing import Any

from agentflow import App, Context, Run, Workflow
from agentflow.failures import Business, Unclear
from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from tests.store.making import Clock

WITHIN = timedelta(seconds=20)


class Order(Context):
    receipt: str = ""


class World:
    """What was called under which key; each name does what it is told in turn."""

    def __init__(self, **turns: list[Any]) -> None:
        self.turns = turns
        self.calls: list[tuple[str, str]] = []

    async def call(self, name: str, key: str) -> str:
        self.calls.append((name, key))
        turns = self.turns.get(name, [])
        turn = turns.pop(0) if turns else f"{name} done"
        if isinstance(turn, Exception):
            raise turn
        return str(turn)


def ordering(world: World, **options: Any) -> Workflow[Order, None]:
    flow = Workflow("ordering", Order)

    @flow.step()
    async def buy(case: Order, run: Run) -> None:
        await run.effect("reserve", lambda key: world.call("reserve", key))
        case.receipt = await run.effect("pay", lambda key: world.call("pay", key), item="card:1", **options)

    bought = flow.end("bought")
    flow.build(start=buy, transitions=[buy.to(bought)])
    return flow


async def test_d8_what_did_not_happen_is_called_under_a_new_key_and_what_happened_is_replayed(store: str) -> None:
    world = World(pay=[Business("card refused"), Business("refused again")])
    flow = ordering(world)
    async with App([flow], store=store) as app:
        found = await app.run(flow, Order(), id="r", timeout=WITHIN)
        for _ in range(2):
            await app.retry("r")
            found = await app.follow("r", flow, timeout=WITHIN)
    assert (found.status, found.context.receipt) == ("completed", "pay done")
    assert world.calls == [
        ("reserve", "r:buy:1:reserve"),
        ("pay", "r:buy:1:pay:card:1"),
        ("pay", "r:buy:1.g1:pay:card:1"),
        ("pay", "r:buy:1.g2:pay:card:1"),
    ]


async def test_d8_a_doubt_outlives_an_operators_retry_under_its_own_key(store: str) -> None:
    world = World(pay=[TimeoutError("no answer")])
    flow = ordering(world)
    async with App([flow], store=store) as app:
        await app.run(flow, Order(), id="r", timeout=WITHIN)
        await app.retry("r")
        found = await app.follow("r", flow, timeout=WITHIN)
    assert found.failure is not None
    assert (found.failure.kind, world.calls[1:]) == (Unclear.__name__, [("pay", "r:buy:1:pay:card:1")])


async def test_d8_with_retry_for_doubts_the_second_call_has_the_same_key_also_after_an_operators_retry(
    store: str,
) -> None:
    world = World(pay=[TimeoutError("no answer")])
    flow = ordering(world, unclear="retry")
    async with App([flow], store=store) as app:
        await app.run(flow, Order(), id="r", timeout=WITHIN)
        await app.retry("r")
        found = await app.follow("r", flow, timeout=WITHIN)
    assert (found.status, world.calls[1:]) == ("completed", [("pay", "r:buy:1:pay:card:1")] * 2)


async def test_a_name_with_marks_of_a_generation_has_a_key_of_its_own(store: str) -> None:
    world = World()
    flow = Workflow("keys", Order)

    @flow.step()
    async def buy(case: Order, run: Run) -> None:
        for name, item in (("a", None), ("a", ""), ("a:b", None), ("a", "b"), ("a%3Ab", None), ("1.g1", None)):
            await run.effect(name, lambda key: world.call("any", key), item=item)

    flow.build(start=buy, transitions=[buy.to(flow.end("bought"))])
    async with App([flow], store=store) as app:
        assert (await app.run(flow, Order(), id="r", timeout=WITHIN)).status == "completed"
    keys = [key for _, key in world.calls]
    assert len(set(keys)) == len(keys) == 6


async def test_b06_deaths_and_failures_of_a_visit_are_numbered_one_after_the_other() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock.now)
    world = World(pay=[Business("card refused")])
    flow = ordering(world)
    async with App([flow], store=store) as app:
        app.leave_to_workers()
        await app.start(flow, Order(), id="r")
    for _ in range(2):  # two workers take it and die
        session = await store.open_session("dies")
        assert len(await store.claim_runs(session, limit=1)) == 1
        clock.advance(minutes=1)
    async with App([flow], store=store) as app:
        await app.follow("r", flow, timeout=WITHIN)
        await app.retry("r")
        found = await app.follow("r", flow, timeout=WITHIN)
    assert found.status == "completed"
    rows = [(row.attempt, row.outcome) for row in await store.attempts("r")]
    assert rows == [(1, "lost"), (2, "lost"), (3, "failed")]
    assert [line.attempt for line in await store.history("r", after=0)] == [1]  # an operator's retry counts anew


async def test_keys_are_the_same_whatever_the_store(store: str) -> None:
    world = World()
    flow = ordering(world)
    opened = open_store(store)
    async with App([flow], store=opened) as app:
        await app.run(flow, Order(), id="r", timeout=WITHIN)
        rows = await opened.effects(run="r")
    assert [(row.key, row.item, row.generation, row.status) for row in rows] == [
        ("r:buy:1:reserve", None, 0, "done"),
        ("r:buy:1:pay:card:1", "card:1", 0, "done"),
    ]
