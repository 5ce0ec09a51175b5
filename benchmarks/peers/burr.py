"""Apache Burr: two actions that hand over to each other, with its SQLite persisters."""

import asyncio
from typing import Any

from burr.core import ApplicationBuilder, State, action
from burr.core.persistence import SQLitePersister
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister

from benchmarks.harness import Meter, Peer, Variant, message, payload


def builder(meter: Meter, *, grows: bool = False, is_async: bool = False) -> ApplicationBuilder[Any]:
    """The machine, without a place to keep it."""
    writes = ["n", "messages"] if grows else ["n", "payload"]

    def body(state: State) -> State:
        meter.step()
        number = state["n"] + 1
        if grows:
            return state.update(n=number).append(messages=message(number))
        return state.update(n=number, payload=payload(number))

    async def body_async(state: State) -> State:
        return body(state)

    made = action(reads=["n"], writes=writes)(body_async if is_async else body)
    return ApplicationBuilder().with_actions(a=made, b=made).with_transitions(("a", "b"), ("b", "a"))


class Sync(Peer):
    """The synchronous persister, one commit for each action."""

    def open(self) -> None:
        self.persister = SQLitePersister(str(self.meter.database), connect_kwargs={"check_same_thread": False})
        self.persister.initialize()

    def close(self) -> None:
        self.persister.connection.close()

    def kept(self, made: ApplicationBuilder[Any]) -> ApplicationBuilder[Any]:
        return made.with_state_persister(self.persister)

    def fresh(self, *, grows: bool = False) -> Any:
        made = builder(self.meter, grows=grows).with_identifiers(app_id="r").with_entrypoint("a")
        return self.kept(made.with_state(n=0, messages=[])).build()

    def go(self, application: Any) -> None:
        while not self.meter.is_enough(application.state["n"]):
            application.step()

    def one_run(self) -> None:
        self.go(self.fresh())

    leave_run = one_run

    def growing_run(self) -> None:
        self.go(self.fresh(grows=True))

    def resume_run(self) -> None:
        made = builder(self.meter).with_identifiers(app_id="r")
        found = made.initialize_from(
            self.persister, resume_at_next_action=True, default_state={"n": 0}, default_entrypoint="a"
        )
        self.kept(found).build().step()


class InMemory(Sync):
    """Without a persister."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def kept(self, made: ApplicationBuilder[Any]) -> ApplicationBuilder[Any]:
        return made


class Async(Peer):
    """The asynchronous persister. All runs share its one connection, and with it one open transaction at a time."""

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.connect())

    async def connect(self) -> None:
        self.persister = await AsyncSQLitePersister.from_values(str(self.meter.database))
        await self.persister.initialize()

    def close(self) -> None:
        self.loop.run_until_complete(self.persister.connection.close())

    async def run_to_its_end(self, run: str) -> None:
        made = builder(self.meter, is_async=True).with_identifiers(app_id=run).with_entrypoint("a").with_state(n=0)
        application = await made.with_state_persister(self.persister).abuild()
        while not self.meter.is_enough(application.state["n"]):
            await application.astep()

    def many_runs(self, runs: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(self.run_to_its_end(f"r{number}") for number in range(runs)))

        self.loop.run_until_complete(main())


VARIANTS = {
    "sqlite": Variant(Sync),
    "aiosqlite": Variant(Async),
    "memory": Variant(InMemory, store="none"),
}
