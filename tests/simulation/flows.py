"""The workflows of the simulation: one of each shape that exists. What happens in them is drawn by the world.

Every body counts, and writes its name and visit into the context's log, so that a transition that is lost, repeated or
taken from a stale context shows.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Any

from tenacity import wait_fixed

from agentflow import Context, Question, Retry, Run, Workflow
from agentflow.effects import Fate
from agentflow.failures import OverLimit, Unclear
from agentflow.merge import Append
from tests.simulation.world import Desk

SHORT, LONG = wait_fixed(0.1), wait_fixed(1.3)
LEFT_TO_THE_KEY: set[tuple[str, str]] = set()  # states whose effect says `unclear="retry"`, by workflow


class Case(Context):
    order: str = ""
    n: int = 0
    log: Append[str] = Append()
    notes: list[str] = []
    receipts: dict[str, str] = {}
    verdict: str | None = None


class Way(StrEnum):
    ONWARD = "onward"
    AGAIN = "again"


class Verdict(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    REWORK = "rework"


def few(case: Case) -> bool:
    return case.n < 6


def even(case: Case) -> bool:
    return case.n % 2 == 0


async def work(case: Case, run: Run[Desk], state: str) -> None:
    """What each body does."""
    await run.services.begin(case, run, state)
    case.n += 1
    case.log.append(f"{state}:{run.visit}")
    case.notes = [*case.notes[-2:], state]


async def find(case: Case, run: Run[Desk], key: str) -> Fate[str]:
    return await run.services.find(key)


Flow = Workflow[Case, Desk]


def new_flow(name: str) -> Flow:
    return Workflow(name, Case, services=Desk)


def plain(flow: Flow, name: str, **options: Any) -> Any:
    """A step that just works."""

    async def body(case: Case, run: Run[Desk]) -> None:
        await work(case, run, name)

    body.__name__ = name
    return flow.step(**options)(body)


def shaky(flow: Flow, name: str, **options: Any) -> Any:
    """A step that fails a few times."""

    async def body(case: Case, run: Run[Desk]) -> None:
        await work(case, run, name)
        run.services.shake(run, name)

    body.__name__ = name
    return flow.step(**options)(body)


def paying(flow: Flow, name: str, unclear: Any, *, once: bool = False, attempts: int = 4) -> Any:
    """A step with an effect."""

    async def body(case: Case, run: Run[Desk]) -> None:
        await work(case, run, name)
        case.receipts[name] = await run.effect(
            "pay",
            lambda key: run.services.pay(run, name, "pay", key),
            once_per=case.order if once else None,
            unclear=unclear,
        )

    body.__name__ = name
    if unclear == "retry":
        LEFT_TO_THE_KEY.add((flow.name, name))
    return flow.step(retry=Retry(attempts=attempts, wait=SHORT))(body)


def asking(flow: Flow, name: str, **options: Any) -> Any:
    """A person decides."""

    def body(case: Case) -> Question:
        return Question(f"{name} after {case.n}?", evidence=case.notes)

    body.__name__ = name
    state: Any = flow.human(Verdict, **options)(body)

    @state.store
    def keep(case: Case, answer: Any) -> None:
        case.verdict = f"{answer.outcome.name} by {answer.actor.subject if answer.actor else '?'}"

    return state


def deciding(flow: Flow, name: str, **options: Any) -> Any:
    """Code decides."""

    async def body(case: Case, run: Run[Desk]) -> Way:
        await work(case, run, name)
        return Way.AGAIN if run.services.world.weather.happens(0.6) else Way.ONWARD

    body.__name__ = name
    return flow.step(**options)(body)


# --- shapes ------------------------------------------------------------------------------------------------------


def chain(length: int) -> Flow:
    flow = new_flow(f"chain{length}")
    steps = [plain(flow, f"s{number}") for number in range(length)]
    done = flow.end("done")
    flow.build(
        start=steps[0],
        transitions=[step.to(following) for step, following in zip(steps, [*steps[1:], done], strict=True)],
    )
    return flow


def loop() -> Flow:
    """A loop that a guard, a decision or the limit of visits ends."""
    flow = new_flow("loop")
    draft = plain(flow, "draft", max_visits=4)
    judge = deciding(flow, "judge")
    polish = shaky(flow, "polish", optional=True, retry=Retry(attempts=2, wait=SHORT))
    done, tired = flow.end("done"), flow.end("tired", failed=True)
    flow.build(
        start=draft,
        transitions=[
            draft.failed(OverLimit).to(tired),
            draft.to(judge),
            judge.on(Way.AGAIN).when(few).to(draft),
            judge.on(Way.AGAIN).when(even).to(polish),
            judge.on(Way.AGAIN).to(draft),
            judge.on(Way.ONWARD).to(polish),
            polish.to(done),
        ],
    )
    return flow


def flaky(name: str, wait: Any) -> Flow:
    """Retries, short or long; where they are used up the run fails, and an operator may retry it."""
    flow = new_flow(name)
    first = shaky(flow, "first", retry=Retry(attempts=3, wait=wait), timeout=timedelta(seconds=0.5))
    second = shaky(flow, "second", retry=Retry(attempts=4, wait=wait))
    third = shaky(flow, "third")
    done, broken = flow.end("done"), flow.end("broken", failed=True)
    flow.build(start=first, transitions=[first.to(second), second.to(third), third.to(done), third.failed.to(broken)])
    return flow


def effect(name: str, unclear: Any, *, once: bool = False) -> Flow:
    """A payment between two steps; what cannot be known goes to a person."""
    flow = new_flow(name)
    ready, pay, told = plain(flow, "ready"), paying(flow, "pay", unclear, once=once), plain(flow, "told")
    look = asking(flow, "look", max_visits=2)
    done, refused = flow.end("done"), flow.end("refused")
    flow.build(
        start=ready,
        transitions=[
            ready.to(pay),
            pay.to(told),
            pay.failed(Unclear).to(look),
            look.on(Verdict.APPROVE).to(told),
            look.on(Verdict.REJECT, Verdict.REWORK).to(refused),
            told.to(done),
        ],
    )
    return flow


def two_effects() -> Flow:
    """Two effects in one body, and one more in the state after it."""
    flow = new_flow("two_effects")

    async def body(case: Case, run: Run[Desk]) -> None:
        await work(case, run, "pay")
        for item in ("a", "b"):
            case.receipts[f"pay {item}"] = await run.effect(
                "pay", lambda key: run.services.pay(run, "pay", "pay", key), item=item, unclear=find
            )

    body.__name__ = "pay"
    pay: Any = flow.step(retry=Retry(attempts=3, wait=LONG))(body)
    ship = paying(flow, "ship", "retry")
    done, failed = flow.end("done"), flow.end("failed", failed=True)
    flow.build(start=pay, transitions=[pay.to(ship), ship.to(done), flow.failed.to(failed)])
    return flow


def review(name: str, expires: timedelta | None) -> Flow:
    """A person in a loop: approve, reject, or have it drawn up again."""
    flow = new_flow(name)
    draft = plain(flow, "draft", max_visits=3)
    options = {} if expires is None else {"expires": expires}
    approval = asking(flow, "approval", **options)
    publish = paying(flow, "publish", find)
    done, refused, tired = flow.end("done"), flow.end("refused"), flow.end("tired", failed=True)
    late = [] if expires is None else [approval.expired.to(flow.end("stale"))]
    flow.build(
        start=draft,
        transitions=[
            draft.failed(OverLimit).to(tired),
            draft.to(approval),
            approval.on(Verdict.APPROVE).when(even).to(publish),
            approval.on(Verdict.APPROVE).to(publish),
            approval.on(Verdict.REJECT).to(refused),
            approval.on(Verdict.REWORK).to(draft),
            *late,
            publish.to(done),
        ],
    )
    return flow


def killer() -> Flow:
    """Its second body ends every process in which it begins."""
    flow = new_flow("killer")
    first, second = plain(flow, "first"), plain(flow, "second")
    done = flow.end("done")
    flow.build(start=first, transitions=[first.to(second), second.to(done)])
    return flow
