"""A run of its own for each call of the store, each in a folder of its own, until a run makes no further call."""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.stores import quick_folder

Live = Callable[[Path, int], Awaitable[tuple[str | None, list[str]]]]  # where it happened, and what was wrong then


@dataclass
class Tried:
    """At how many calls something happened, and where that was one too much."""

    calls: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def told(self) -> str:
        return "\n".join(f"{where}: {found}" for where, found in self.wrong.items())


async def at_each_call(live: Live) -> Tried:
    """Let it happen at each call in turn."""
    tried = Tried()
    with quick_folder() as parent:
        for number in itertools.count(1):
            folder = parent / str(number)
            folder.mkdir()
            where, found = await live(folder, number)
            if where is None:
                break
            tried.calls += 1
            if found:
                tried.wrong[f"{number}: {where}"] = found
    return tried
