"""LangGraph: two nodes that hand over to each other by a conditional edge, with its SQLite savers.

`durability="sync"` is its mode in which a step is on disk before the next one begins, as everybody else's here.
"""

import asyncio
import operator
import sqlite3
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.harness import Peer, Variant, message, payload


class Flat(TypedDict, total=False):
    n: int
    resumed: int
    payload: str


class Growing(TypedDict, total=False):
    n: int
    messages: Annotated[list[str], operator.add]


class Sync(Peer):
    """The synchronous saver."""

    saver: Any = None
    options: dict[str, Any] = {"durability": "sync"}  # noqa: RUF012  nobody changes it
    is_async = False

    def open(self) -> None:
        self.connection = sqlite3.connect(self.meter.database, check_same_thread=False)
        self.saver = SqliteSaver(self.connection)

    def close(self) -> None:
        self.connection.close()

    def graph(self, schema: type = Flat) -> Any:
        made = StateGraph(schema)
        for name, other in (("a", "b"), ("b", "a")):
            made.add_node(name, self.body(grows=schema is Growing))
            made.add_conditional_edges(name, self.way_on(other), [other, END])
        made.add_edge(START, "a")
        return made.compile(checkpointer=self.saver)

    def body(self, *, grows: bool) -> Callable[[dict[str, Any]], Any]:
        def body(state: dict[str, Any]) -> dict[str, Any]:
            self.meter.step()
            number = state.get("n", 0) + 1
            return {"n": number, **({"messages": [message(number)]} if grows else {"payload": payload(number)})}

        async def body_async(state: dict[str, Any]) -> dict[str, Any]:
            return body(state)

        return body_async if self.is_async else body

    def way_on(self, other: str) -> Callable[[dict[str, Any]], str]:
        return lambda state: END if self.meter.is_enough(state["n"]) else other

    def settings(self, run: str = "r") -> dict[str, Any]:
        return {"configurable": {"thread_id": run}, "recursion_limit": 10_000_000}

    def one_run(self) -> None:
        self.graph().invoke({"n": 0}, self.settings(), **self.options)

    leave_run = one_run

    def growing_run(self) -> None:
        self.graph(Growing).invoke({"n": 0}, self.settings(), **self.options)

    def resume_run(self) -> None:
        self.graph().invoke({"resumed": 1}, self.settings(), **self.options)


class InMemory(Sync):
    """Without a saver."""

    options: dict[str, Any] = {}  # noqa: RUF012  nobody changes it

    def open(self) -> None: ...

    def close(self) -> None: ...


class Async(Sync):
    """The asynchronous saver."""

    is_async = True

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.connect())

    async def connect(self) -> None:
        self.connecting = AsyncSqliteSaver.from_conn_string(str(self.meter.database))
        self.saver = await self.connecting.__aenter__()

    def close(self) -> None:
        self.loop.run_until_complete(self.connecting.__aexit__(None, None, None))

    def many_runs(self, runs: int) -> None:
        graph = self.graph()

        async def main() -> None:
            names = [f"r{number}" for number in range(runs)]
            await asyncio.gather(*(graph.ainvoke({"n": 0}, self.settings(name), **self.options) for name in names))

        self.loop.run_until_complete(main())


VARIANTS = {
    "sqlite": Variant(Sync),
    "aiosqlite": Variant(Async),
    "memory": Variant(InMemory, store="none"),
}
