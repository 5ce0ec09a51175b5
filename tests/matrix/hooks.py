"""A store that says when it is called and when it has answered; what is around it may die there."""

import inspect
from collections.abc import Callable
from typing import Any

from agentflow.store.protocol import Store

METHODS = frozenset(name for name, member in vars(Store).items() if callable(member) and not name.startswith("_")) - {
    "now",
    "suspends",
    "renew_session",
}  # the clock, a property, and what the heartbeat's thread calls


class HookedStore:
    """Any store, with `reach` called before and after each of its methods."""

    def __init__(self, store: Store, reach: Callable[[str], None]) -> None:
        self._store = store
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        if name not in METHODS:
            return member
        reach = self._reach
        if inspect.iscoroutinefunction(member):

            async def suspended(*arguments: Any, **options: Any) -> Any:
                reach(f"before {name}")
                answer = await member(*arguments, **options)
                reach(f"after {name}")
                return answer

            return suspended

        def called(*arguments: Any, **options: Any) -> Any:
            reach(f"before {name}")
            answer = member(*arguments, **options)
            reach(f"after {name}")
            return answer

        return called
