"""Everything that `build` can find wrong with a workflow, all of it in one go.

`check_draft` runs the checks of the table (`check_table`), of the functions (`check_functions`) and of the values
(here), and returns the problems in the order of their source lines. An *error* would go wrong in some run; a
*warning* is worth a look.
"""

# This module looks into types and functions of authors, of which checkers know nothing:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnnecessaryIsInstance=false

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentflow.model.context import Context, plan_of
from agentflow.model.migrations import Renames
from agentflow.model.prompts import Prompt
from agentflow.model.states import Line
from agentflow.model.values import Limits

if TYPE_CHECKING:
    from agentflow.model.states import Item, State
    from agentflow.model.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Draft:
    """A workflow as its author wrote it, before it is closed."""

    workflow: "Workflow[Any, Any]"
    start: Any
    rows: tuple[Any, ...]
    line: Line
    file: Path
    renamed: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def state_named(self, name: str) -> "State[Any] | None":
        return next((state for state in self.workflow.states if state.name == name), None)


@dataclass(slots=True)
class Found:
    """What a check found, and what it loaded on the way."""

    problems: list[tuple[str, int, str, bool]] = field(default_factory=list[tuple[str, int, str, bool]])
    prompts: dict[str, Prompt] = field(default_factory=dict[str, Prompt])
    renames: Renames = field(default_factory=Renames)

    def error(self, line: Line, text: str) -> None:
        """Something that would go wrong in some run."""
        self.problems.append((line.file, line.number, f"{line}: {text}", True))

    def warn(self, line: Line, text: str) -> None:
        """Something worth a look."""
        self.problems.append((line.file, line.number, f"{line}: {text}", False))

    @property
    def errors(self) -> list[str]:
        return self._texts(is_error=True)

    @property
    def warnings(self) -> list[str]:
        return self._texts(is_error=False)

    def _texts(self, *, is_error: bool) -> list[str]:
        return list(dict.fromkeys(text for _, _, text, error in sorted(self.problems) if error is is_error))


def nearest(name: str, known: list[str]) -> str:
    """A hint at the name that was probably meant, empty if none is near."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_draft(draft: Draft) -> Found:
    """All problems of a workflow."""
    from agentflow.model.check_functions import check_functions  # noqa: PLC0415  they import Draft and Found from here
    from agentflow.model.check_table import check_table  # noqa: PLC0415
    from agentflow.model.check_versions import check_versions  # noqa: PLC0415

    found = Found()
    _check_head(draft, found)
    _check_context(draft, found)
    for state in draft.workflow.states:
        _check_numbers(state, found)
        _check_not_yet(state, found)
    for item in draft.workflow.items:
        _check_numbers(item, found)
    check_functions(draft, found)
    check_table(draft, found)
    check_versions(draft, found)
    return found


def limit_problems(limits: Limits) -> list[str]:
    """What is wrong with the numbers of limits."""
    return [
        f"Limits({name}={value}): a limit must be above 0; leave it out for none"
        for name, value in vars(limits).items()
        if value is not None and value <= (timedelta(0) if isinstance(value, timedelta) else 0)
    ]


def _check_head(draft: Draft, found: Found) -> None:
    workflow = draft.workflow
    if not _is_name(workflow.name):
        found.error(workflow.line, f"workflow {workflow.name!r}: a name is letters, digits, '_' and '-', from a letter")
    if workflow.version < 1:
        found.error(workflow.line, f"version={workflow.version}: versions count from 1")
    for end in workflow.ends:
        if not _is_name(end.name):
            found.error(end.line, f"end {end.name!r}: a name is letters, digits, '_' and '-', from a letter")
    for problem in limit_problems(workflow.limits):
        found.error(workflow.line, problem)
    services: Any = workflow.services
    if services is not None and not isinstance(services, type):
        found.error(workflow.line, f"services={services!r}: name the class, not an object")
    elif services is not None and getattr(services, "_is_protocol", False):
        found.error(
            workflow.line, f"services={services.__name__}: a Protocol cannot be matched to a factory; name a class"
        )


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name[:1].isalpha() and name.replace("_", "").replace("-", "").isalnum()


def _check_context(draft: Draft, found: Found) -> None:
    kind: Any = draft.workflow.context
    if not (isinstance(kind, type) and issubclass(kind, Context)):
        found.error(draft.workflow.line, f"context {kind!r} must be a class derived from agentflow.Context")
        return
    try:
        problems = plan_of(kind).problems()
    except (TypeError, NameError) as error:
        found.error(draft.workflow.line, f"context {kind.__name__}: its annotations cannot be read: {error}")
        return
    for problem in problems:
        line = _field_line(kind, problem.path.partition(".")[2]) or draft.workflow.line
        found.error(line, f"context field {problem.path}: {problem.why}")


def _field_line(kind: type[Context], path: str) -> Line | None:
    """Where the field at the root of the path is declared, None where there is no source to look into."""
    name = re.split(r"[.\[]", path)[0]
    owner = next((one for one in kind.__mro__ if name in inspect.get_annotations(one)), kind)
    try:
        lines, first = inspect.getsourcelines(owner)
        file = inspect.getsourcefile(owner)
    except (OSError, TypeError):
        return None
    found = (number for number, text in enumerate(lines, first) if re.match(rf"\s+{re.escape(name)}\s*:", text))
    return Line(file or "", next(found, first))


def _check_numbers(state: "State[Any] | Item[Any, Any, Any]", found: Found) -> None:
    spec = state.spec
    counts = {"max_visits": spec.max_visits, "max_tokens": spec.max_tokens, "max_turns": spec.max_turns}
    if spec.retry is not None:
        counts["Retry(attempts)"] = spec.retry.attempts
    for name, count in counts.items():
        if count is not None and count < 1:
            found.error(state.line, f"state {state.name!r}: {name}={count}: it must be at least 1")
    for name, span in {"timeout": spec.timeout, "expires": spec.expires}.items():
        if span is not None and span <= timedelta(0):
            found.error(state.line, f"state {state.name!r}: {name}={span}: it must be above 0")
    if spec.optional and spec.outcome is not None:
        found.error(state.line, f"state {state.name!r}: optional=True fits no deciding step: which way would it take?")
    if spec.outcome is not None and not list(spec.outcome):
        found.error(state.line, f"state {state.name!r}: enum {spec.outcome.__name__} has no members")


NOT_YET = {
    "react": "a `react` state",
    "signal": "a `signal` state",
    "sleep": "a `sleep` state",
    "call": "a `call` state",
    "stream": "a `stream` state",
    "runs": "a `runs` state",
}


def _check_not_yet(state: "State[Any]", found: Found) -> None:
    if state.spec.kind in NOT_YET:
        found.error(state.line, f"state {state.name!r}: {NOT_YET[state.spec.kind]} cannot run yet")
    if state.spec.once and state.spec.retry is not None:
        found.error(
            state.line, f"state {state.name!r}: once=True and retry= contradict each other; leave one of them out"
        )
