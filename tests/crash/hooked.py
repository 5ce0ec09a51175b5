"""A transparent wrapper of any `Store`: a hook is called before and after each of its methods."""

import inspect
from typing import Any, cast

from agentflow.store.protocol import Store
from agentflow.store.rows import Commit, Decision, EffectClaim
from tests.crash.points import Hook

TOUCHES_NOTHING = frozenset({"now", "suspends"})  # a look at the clock or at a number: no place to die at
METHODS = frozenset(
    name for name, method in vars(Store).items() if inspect.isfunction(method) and not name.startswith("_")
)  # fmt: skip


class HookedStore:
    """A store whose calls are announced: `<method> <what>:before`, and `:after` once it has returned.

    A hook that raises keeps the call from its work (before), or its answer from the caller (after).
    """

    def __init__(self, store: Store, hook: Hook) -> None:
        self._store = store
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in METHODS - TOUCHES_NOTHING:
            return method
        made = self._waiting(name, method) if inspect.iscoroutinefunction(method) else self._plain(name, method)
        setattr(self, name, made)
        return made

    def _waiting(self, name: str, method: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            point = f"{name} {subject_of(args)}".strip()
            self._hook(f"{point}:before")
            answer = await method(*args, **options)
            self._hook(f"{point}:after" if answer is not False else f"{point}:after, refused")
            return answer

        return call

    def _plain(self, name: str, method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self._hook(f"{name}:before")
            answer = method(*args, **options)
            self._hook(f"{name}:after")
            return answer

        return call


def hooked(store: Store, hook: Hook) -> Store:
    """The store with its hook."""
    return cast("Store", HookedStore(store, hook))


def subject_of(args: tuple[Any, ...]) -> str:
    """What a call is about, as far as a reader of the list of points wants to know."""
    match args:
        case [Commit() as commit]:
            return f"{commit.expected_revision}->{commit.revision} {commit.standing.state} {commit.standing.status}"
        case [EffectClaim() as claim]:
            return claim.key
        case [Decision() as decision]:
            return decision.wait
        case [str(), str(), str() as key, str() as status]:
            return f"{key} {status}"
        case _:
            return ""


def method_of(point: str) -> str:
    """The method of a point of the store."""
    return point.partition(":")[0].partition(" ")[0]
