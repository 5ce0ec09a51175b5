"""LangGraph: two nodes that hand over to each other by a conditional edge."""

from __future__ import annotations

import asyncio
import operator
import sqlite3
from typing import Annotated, Any, TypedDict

from harness import Peer, Variant, message, payload
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

DISTS = ["langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite"]
VENV = "main"


class S(TypedDict, total=False):
    n: int
    turn: int
    payload: str


def add_all(state: list, writes: Any) -> list:
    out = list(state)
    for w in writes:
        out.extend(w)
    return out


class Hist(TypedDict, total=False):
    n: int
    messages: Annotated[list, operator.add]


class HistDelta(TypedDict, total=False):
    n: int
    messages: Annotated[list, DeltaChannel(add_all)]


class Fan(TypedDict, total=False):
    got: Annotated[list, operator.add]
    sum: int


class Base(Peer):
    durability: str | None = "sync"
    is_async = False
    hist: type = Hist

    def cfg(self, r: str = "r") -> dict[str, Any]:
        return {"configurable": {"thread_id": r}, "recursion_limit": 10_000_000}

    def saver(self) -> Any:
        self.conn = sqlite3.connect(self.m.db, check_same_thread=False)
        return SqliteSaver(self.conn)

    def open(self) -> None:
        self.cp = self.saver()

    def close(self) -> None:
        if hasattr(self, "conn"):
            self.conn.close()

    def kw(self) -> dict[str, Any]:
        return {"durability": self.durability} if self.durability else {}

    def loopgraph(self, schema: type = S) -> Any:
        m, grow = self.m, schema is not S

        def body(s: dict) -> dict:
            m.step()
            i = s.get("n", 0) + 1
            return {"n": i, "messages": [message(i)]} if grow else {"n": i, "payload": payload(i)}

        async def abody(s: dict) -> dict:
            return body(s)

        def route(other: str) -> Any:
            return lambda s: END if m.over(s["n"]) else other

        g = StateGraph(schema)
        f = abody if self.is_async else body
        g.add_node("a", f)
        g.add_node("b", f)
        g.add_edge(START, "a")
        g.add_conditional_edges("a", route("b"), ["b", END])
        g.add_conditional_edges("b", route("a"), ["a", END])
        return g.compile(checkpointer=self.cp)

    def _invoke(self, g: Any, x: Any, r: str = "r") -> Any:
        return g.invoke(x, self.cfg(r), **self.kw())

    def w1(self) -> None:
        self._invoke(self.loopgraph(), {"n": 0})

    w6 = w1
    build = w1

    def w3(self) -> None:
        self._invoke(self.loopgraph(self.hist), {"n": 0})

    def resume(self) -> None:
        g = self.loopgraph()
        g.get_state(self.cfg())
        self._invoke(g, {"turn": 2})

    def fangraph(self, width: int) -> Any:
        m = self.m

        def branch(k: int) -> dict:
            m.step()
            return {"got": [k]}

        async def abranch(k: int) -> dict:
            return branch(k)

        g = StateGraph(Fan)
        g.add_node("src", lambda s: {})
        g.add_node("branch", abranch if self.is_async else branch)
        g.add_node("join", lambda s: {"sum": sum(s["got"])})
        g.add_edge(START, "src")
        g.add_conditional_edges("src", lambda s: [Send("branch", k) for k in range(width)], ["branch"])
        g.add_edge("branch", "join")
        g.add_edge("join", END)
        return g.compile(checkpointer=self.cp)

    def w4(self, width: int) -> int:
        return self._invoke(self.fangraph(width), {"sum": 0})["sum"]


class Delta(Base):
    hist = HistDelta


class Exit(Base):
    durability = "exit"


class Asynch(Base):
    is_async = True

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

        async def go() -> None:
            self.cm = AsyncSqliteSaver.from_conn_string(self.m.db)
            self.cp = await self.cm.__aenter__()

        self.loop.run_until_complete(go())

    def close(self) -> None:
        self.loop.run_until_complete(self.cm.__aexit__(None, None, None))

    def _invoke(self, g: Any, x: Any, r: str = "r") -> Any:
        return self.loop.run_until_complete(g.ainvoke(x, self.cfg(r), **self.kw()))

    def resume(self) -> None:
        g = self.loopgraph()
        self.loop.run_until_complete(g.aget_state(self.cfg()))
        self._invoke(g, {"turn": 2})

    def w2(self, runs: int) -> None:
        g = self.loopgraph()

        async def main() -> None:
            await asyncio.gather(*(g.ainvoke({"n": 0}, self.cfg(f"r{k}"), **self.kw()) for k in range(runs)))

        self.loop.run_until_complete(main())


class AsynchAsync(Asynch):
    durability = "async"


class AsynchExit(Asynch):
    durability = "exit"


class Mem(Asynch):
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.cp = InMemorySaver()

    def close(self) -> None: ...

    def evidence(self) -> dict[str, Any]:
        st = self.cp
        return {
            "rows": {
                "checkpoints": sum(len(y) for x in st.storage.values() for y in x.values())
                if hasattr(st, "storage")
                else -1
            }
        }


class Nothing(Mem):
    durability = None

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.cp = None

    def evidence(self) -> dict[str, Any]:
        return {}


class NothingSync(Base):
    durability = None

    def saver(self) -> Any:
        return None


BOTH = ("FULL", "NORMAL")
VARIANTS = {
    "sqlite-sync": Variant(Base, "w1 w3 w4 w5", sync=BOTH, note="SqliteSaver, durability=sync"),
    "sqlite-delta": Variant(Delta, "w3", note="SqliteSaver, history in a DeltaChannel (beta)"),
    "sqlite-exit": Variant(
        Exit, "w1", durable=False, note="SqliteSaver, durability=exit: only the last state is saved"
    ),
    "aiosqlite-sync": Variant(Asynch, "w1 w2 w4", sync=BOTH, w2_runs=100, note="AsyncSqliteSaver, durability=sync"),
    "aiosqlite-async": Variant(
        AsynchAsync,
        "w1 w2",
        durable=False,
        w2_runs=100,
        note="AsyncSqliteSaver, durability=async (the default): saved while the next step runs",
    ),
    "aiosqlite-exit": Variant(AsynchExit, "w2", durable=False, w2_runs=100, note="AsyncSqliteSaver, durability=exit"),
    "memory-saver": Variant(Mem, "w1 w2 w3 w6", w2_runs=100, reps={"w3": 1}, durable=False, store="memory"),
    "no-saver": Variant(Nothing, "w4 w6", durable=False, store="none"),
    "no-saver-sync": Variant(NothingSync, "w6", durable=False, store="none"),
}
