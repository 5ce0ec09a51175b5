"""Workflows around a generated context class, and what is seen of its values on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from agentflow import App, Context, Run, Workflow
from agentflow.merge import Append
from agentflow.store.protocol import Store
from tests.fidelity.kinds import Made
from tests.fidelity.zoo import context_class, exact, text_of

SOON = timedelta(seconds=60)


@dataclass
class Journey:
    """One run: it begins with some values, a body replaces them in place, and another one looks at them."""

    made: Made
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = context_class(self.made.types)
        self.flow = flow = Workflow[Context, None]("zoo", self.kind)

        @flow.step()
        async def change(case: Context, run: Run) -> None:
            self.seen.append(text_of(case))
            put(case, self.made.then)

        @flow.step()
        async def look(case: Context, run: Run) -> None:
            self.seen.append(text_of(case))

        flow.build(start=change, transitions=[change.to(look), look.to(flow.end("end"))])

    @property
    def wanted(self) -> tuple[str, str]:
        """The fields in words, at the two moments."""
        return words(self.made.first), words(after(self.made))

    async def travel(self, store: str | Store, run: str) -> str:
        """Start the run and follow it to its end; what it is then."""
        async with App([self.flow], store=store) as app:
            over = await app.run(self.flow, self.made.context(self.kind), id=run, timeout=SOON)
            assert (over.status, over.failure) == ("completed", None)
            return text_of(over.context)

    async def read_again(self, store: str | Store, run: str) -> tuple[str, str]:
        """By another App: the run at its first revision, and at its last."""
        app = App([self.flow], store=store)
        early, late = await app.get(run, revision=0), await app.get(run)
        found = text_of(early.context), text_of(late.context)
        await app.close()
        return found


def put(case: Any, values: Mapping[str, Any]) -> None:
    """Write values into a context: into its own lists where it has some, as authors do."""
    for name, value in values.items():
        mine = getattr(case, name)
        if isinstance(mine, Append) and isinstance(value, Append):
            mine.extend(value)
        elif type(mine) is list and isinstance(value, list):
            mine[:] = value
        elif type(mine) is dict and isinstance(value, dict):
            mine.clear()
            mine.update(value)
        elif type(mine) is set and isinstance(value, set):
            mine.clear()
            mine |= value
        else:
            setattr(case, name, value)


def after(made: Made) -> dict[str, Any]:
    """What the fields hold once `then` was put into them."""
    grown = {
        name: Append([*value, *made.then[name]])
        for name, value in made.first.items()
        if isinstance(value, Append) and isinstance(made.then[name], Append)
    }
    return {**made.then, **grown}


def words(values: Mapping[str, Any]) -> str:
    """As `text_of`, of values."""
    return repr({name: exact(value) for name, value in values.items()})
