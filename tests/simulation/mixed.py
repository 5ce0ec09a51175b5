"""Workflows whose states and rows are drawn: one for each number, always the same."""

import random
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from agentflow import Retry
from agentflow.failures import OverLimit, Unclear
from tests.simulation.flows import (
    LONG,
    SHORT,
    Flow,
    Verdict,
    Way,
    asking,
    deciding,
    even,
    few,
    find,
    new_flow,
    paying,
    plain,
    shaky,
)  # fmt: skip


def mixed(number: int) -> Flow:
    """A workflow whose states are drawn: they follow one another, some lead back, some to an end."""
    rng = random.Random(number)
    flow = new_flow(f"mixed{number}")
    kinds = [rng.choice(("plain", "plain", "shaky", "paying", "deciding", "asking")) for _ in range(rng.randint(4, 9))]
    states = [drawn_state(flow, kind, f"{kind}{place}", rng) for place, kind in enumerate(kinds)]
    done = flow.end("done")

    @cache  # an end exists only if a row leads to it
    def end(name: str) -> Any:
        return flow.end(name, failed=name == "tired")

    rows: list[Any] = []
    for place, (kind, state) in enumerate(zip(kinds, states, strict=True)):
        following = states[place + 1] if place + 1 < len(states) else done
        rows += rows_of(kind, state, following, states[rng.randint(0, place)], end)
    if rng.random() < 0.5:
        rows.append(flow.failed.to(end("tired")))
    flow.build(start=states[0], transitions=rows)
    return flow


def drawn_state(flow: Flow, kind: str, name: str, rng: random.Random) -> Any:
    match kind:
        case "shaky":
            retry = Retry(attempts=rng.randint(2, 4), wait=rng.choice((SHORT, LONG)))
            return shaky(flow, name, retry=retry, optional=rng.random() < 0.5)
        case "paying":
            return paying(flow, name, rng.choice(("retry", find, None)), once=rng.random() < 0.3)
        case "deciding":
            return deciding(flow, name, max_visits=3)
        case "asking":
            expires = rng.choice((0.7, 3, 9, None))
            return asking(flow, name, **{} if expires is None else {"expires": timedelta(seconds=expires)})
        case _:
            return plain(flow, name)


def rows_of(kind: str, state: Any, following: Any, earlier: Any, end: Callable[[str], Any]) -> list[Any]:
    """The rows of a drawn state."""
    match kind:
        case "deciding":
            return [
                state.failed(OverLimit).to(end("tired")),
                state.on(Way.AGAIN).when(few).to(earlier),
                state.on(Way.AGAIN, Way.ONWARD).to(following),
            ]
        case "asking":
            return [
                state.on(Verdict.REJECT).when(even).to(end("refused")),
                state.on(Verdict.REJECT, Verdict.APPROVE, Verdict.REWORK).to(following),
                *([] if state.spec.expires is None else [state.expired.to(following)]),
            ]
        case "paying":
            return [state.failed(Unclear).to(end("refused")), state.to(following)]
        case _:
            return [state.to(following)]
