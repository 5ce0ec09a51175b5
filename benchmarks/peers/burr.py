"""Apache Burr: two actions that hand over to each other."""

from __future__ import annotations

import asyncio
from typing import Any

from burr.core import ApplicationBuilder, State, action
from burr.core.parallelism import MapStates
from burr.core.persistence import SQLitePersister
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister
from harness import Meter, Peer, Variant, message, payload

DISTS = ["apache-burr"]
VENV = "main"


def make_actions(m: Meter, grow: bool, is_async: bool) -> dict[str, Any]:
    w = ["n", "messages"] if grow else ["n", "payload"]

    def body(state: State) -> State:
        m.step()
        i = state["n"] + 1
        return state.update(n=i).append(messages=message(i)) if grow else state.update(n=i, payload=payload(i))

    if is_async:

        @action(reads=["n"], writes=w)
        async def a(state: State) -> State:
            return body(state)

        @action(reads=["n"], writes=w)
        async def b(state: State) -> State:
            return body(state)
    else:

        @action(reads=["n"], writes=w)
        def a(state: State) -> State:
            return body(state)

        @action(reads=["n"], writes=w)
        def b(state: State) -> State:
            return body(state)

    return {"a": a, "b": b}


class Sync(Peer):
    persist = True

    def open(self) -> None:
        self.p = None
        if self.persist:
            self.p = SQLitePersister(self.m.db, connect_kwargs={"check_same_thread": False})
            self.p.initialize()

    def close(self) -> None:
        if self.p:
            self.p.connection.close()

    def app(self, grow: bool = False) -> Any:
        b = (
            ApplicationBuilder()
            .with_actions(**make_actions(self.m, grow, False))
            .with_transitions(("a", "b"), ("b", "a"))
        )
        b = b.with_identifiers(app_id="r").with_entrypoint("a").with_state(n=0, messages=[])
        return (b.with_state_persister(self.p) if self.p else b).build()

    def _go(self, app: Any) -> None:
        while not self.m.over(app.state["n"]):
            app.step()

    def w1(self) -> None:
        self._go(self.app())

    w6 = w1
    build = w1

    def w3(self) -> None:
        self._go(self.app(True))

    def resume(self) -> None:
        b = (
            ApplicationBuilder()
            .with_actions(**make_actions(self.m, False, False))
            .with_transitions(("a", "b"), ("b", "a"))
        )
        app = (
            b.with_identifiers(app_id="r")
            .initialize_from(self.p, resume_at_next_action=True, default_state={"n": 0}, default_entrypoint="a")
            .with_state_persister(self.p)
            .build()
        )
        app.step()

    def w4(self, width: int) -> int:
        m = self.m

        @action(reads=["k"], writes=["v"])
        def branch(state: State) -> State:
            m.step()
            return state.update(v=state["k"])

        class Fan(MapStates):
            def action(self, state: State, inputs: dict) -> Any:
                return branch

            def states(self, state: State, context: Any, inputs: dict) -> Any:
                for k in range(width):
                    yield state.update(k=k)

            def reduce(self, state: State, states: Any) -> State:
                return state.update(total=sum(s["v"] for s in states))

            reads = property(lambda s: [])
            writes = property(lambda s: ["total"])

        b = (
            ApplicationBuilder()
            .with_actions(fan=Fan())
            .with_identifiers(app_id="r")
            .with_entrypoint("fan")
            .with_state(n=0)
        )
        app = (b.with_state_persister(self.p) if self.p else b).build()
        _, _, st = app.step()
        return st["total"]


class NoPersist(Sync):
    persist = False


class Aio(Peer):
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()

        async def go() -> None:
            self.p = await AsyncSQLitePersister.from_values(self.m.db)
            await self.p.initialize()

        self.loop.run_until_complete(go())

    def close(self) -> None:
        self.loop.run_until_complete(self.p.connection.close())

    async def _run(self, r: str) -> None:
        b = (
            ApplicationBuilder()
            .with_actions(**make_actions(self.m, False, True))
            .with_transitions(("a", "b"), ("b", "a"))
        )
        app = (
            await b.with_identifiers(app_id=r)
            .with_entrypoint("a")
            .with_state(n=0)
            .with_state_persister(self.p)
            .abuild()
        )
        while not self.m.over(app.state["n"]):
            await app.astep()

    def w1(self) -> None:
        self.loop.run_until_complete(self._run("r"))

    def w2(self, runs: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(self._run(f"r{k}") for k in range(runs)))

        self.loop.run_until_complete(main())


BOTH = ("FULL", "NORMAL")
VARIANTS = {
    "sqlite": Variant(Sync, "w1 w3 w4 w5", sync=BOTH),
    "sqlite-asis": Variant(Sync, "w1", journal="asis", sync=("asis",), note="the journal the persister itself chose"),
    "aiosqlite": Variant(Aio, "w1 w2", sync=BOTH),
    "no-persister": Variant(NoPersist, "w4 w6", durable=False, store="none"),
}
