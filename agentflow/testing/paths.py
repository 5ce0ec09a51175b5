"""Every way through a machine, for parametrized tests."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import TypeVar

from agentflow.model.context import Context
from agentflow.model.states import Place
from agentflow.model.workflow import Workflow

C = TypeVar("C", bound=Context)


def paths(workflow: Workflow[C, Any], /, *, max_visits: int = 1) -> Sequence[Sequence[Place[C]]]:
    """Every way through the machine, for a parametrized test.

    A way begins at the start, ends at an end, and enters no state more than `max_visits` times. Failures that no state
    handles (`workflow.failed`) are not among them: they could happen anywhere.
    """
    definition = workflow.definition
    ways: dict[str, list[str]] = {
        name: list(dict.fromkeys(row.target.name for row in state.rows)) for name, state in definition.states.items()
    }
    found = _walk(definition.start, ways, (), max_visits)
    return [[definition.place(name) for name in way] for way in found]


def _walk(
    name: str, ways: Mapping[str, list[str]], before: tuple[str, ...], max_visits: int
) -> Iterator[tuple[str, ...]]:
    here = (*before, name)
    if name not in ways:
        yield here
    elif here.count(name) <= max_visits:
        for target in ways[name]:
            yield from _walk(target, ways, here, max_visits)
