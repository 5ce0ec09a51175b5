"""The verbs against a small model, in any order that hypothesis can think of.

After each step every run is what the model says: status, state, revision, history, open question, and what reached the
outside, which is each time what the model has counted, never more.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tenacity import wait_fixed

from agentflow import Actor, App, Context, Limits, Question, Retry, Run, Workflow
from agentflow.errors import Conflict, InvalidInput
from agentflow.failures import Business, Retryable
from agentflow.store.memory import MemoryStore
from agentflow.store.opening import open_store
from agentflow.store.protocol import Store
from agentflow.testing import Clock
from tests.stateful.model import ATTEMPTS, PAUSE, VISITS, WAIT, Expected, Plan

ADA = Actor("ada", source="tests")
NAMES = ("a", "b")
WORK = st.lists(st.sampled_from(["again", "again", "ok", "broken"]), max_size=4).map(tuple)
PAY = st.lists(st.sampled_from(["ok", "doubt", "refused"]), max_size=2).map(tuple)
REQUESTS = st.sampled_from([None, None, None, "q1", "q2"])


class Pick(StrEnum):
    YES = "yes"
    NO = "no"


class Case(Context):
    work: tuple[str, ...] = ()
    pay: tuple[str, ...] = ()


class World:
    """How often each run has tried, and been paid for."""

    def __init__(self) -> None:
        self.worked: dict[str, int] = {}
        self.paid: dict[str, int] = {}

    def count(self, counts: dict[str, int], run: str) -> int:
        counts[run] = counts.get(run, 0) + 1
        return counts[run] - 1

    async def pay(self, case: Case, run: str) -> str:
        word = Plan().said(case.pay, self.count(self.paid, run))
        if word == "doubt":
            raise TimeoutError("the bank did not answer")
        if word == "refused":
            raise Business("no money")
        return "paid"


def flow_of(world: World) -> Workflow[Case, None]:
    """work -> ask -> act -> done; a no goes back to work."""
    flow = Workflow("flow", Case)

    @flow.step(retry=Retry(attempts=ATTEMPTS, wait=wait_fixed(PAUSE)), max_visits=VISITS)
    async def work(case: Case, run: Run) -> None:
        word = Plan().said(case.work, world.count(world.worked, run.id))
        if word == "again":
            raise Retryable("again")
        if word == "broken":
            raise ValueError("broken")

    @flow.human(Pick, expires=WAIT)
    def ask(case: Case) -> Question:
        return Question("Pay?")

    @flow.step()
    async def act(case: Case, run: Run) -> None:
        await run.effect("pay", lambda key: world.pay(case, run.id))

    done, stale = flow.end("done"), flow.end("stale")
    rows = [work.to(ask), ask.on(Pick.YES).to(act), ask.on(Pick.NO).to(work), ask.expired.to(stale), act.to(done)]
    flow.build(start=work, transitions=rows)
    return flow


class Verbs(RuleBasedStateMachine):
    """All verbs, on two runs and their forks."""

    make_store: Callable[[str], Store] = staticmethod(lambda _: MemoryStore())
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.world = World()
        self.flow = flow_of(self.world)
        self.store = self.make_store(self.folder.name)
        self.expected: dict[str, Expected] = {}

    @initialize()
    def begin(self) -> None:
        self._open()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def _open(self) -> None:
        self.app = App([self.flow], store=self.store)
        self.clock = Clock(self.app)
        self._do(self.app.__aenter__())

    def teardown(self) -> None:
        self._do(self.app.close())
        self.loop.close()
        self.folder.cleanup()

    def _drive(self) -> None:
        """Everything that is due happens, here and in the model."""
        self._do(self.app.settle())
        for run in self.expected.values():
            run.drive(self.clock.now())

    def _asked(self, run: Expected, request: str | None, verb: Callable[[], str]) -> str:
        """What a command is answered: a request id that was carried out is not carried out again."""
        if request is not None and request in run.requests:
            return "already"
        answer = verb()
        if request is not None and answer == "applied":
            run.requests.add(request)
        return answer

    def _told(self, work: Coroutine[Any, Any, Any], expected: str) -> None:
        reply = self._do(work)
        note(f"{reply.status}: {reply.why}")
        self._drive()
        assert reply.status == expected, reply.why

    # --- the verbs -----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), work=WORK, pay=PAY)
    def start(self, name: str, work: tuple[str, ...], pay: tuple[str, ...]) -> None:
        run = self.expected.get(name)
        case = Case(work=work, pay=pay)
        if run is not None and (run.plan.work, run.plan.pay) != (work, pay):
            with pytest.raises(Conflict, match="another input"):
                self._do(self.app.start(self.flow, case, id=name))
            return
        if run is None:
            self.expected[name] = Expected(name, Plan(work, pay), self.clock.now())
        self._do(self.app.start(self.flow, case, id=name))
        self._drive()

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), pick=st.sampled_from(Pick), stale=st.sampled_from([False, False, False, True]))
    def decide(self, data: st.DataObject, pick: Pick, stale: bool) -> None:
        run = self._one(data)
        asked = [f"{run.id}.ask.{visit}" for visit in range(1, run.visits.get("ask", 0) + 1)]
        known = [one for one in asked if one in run.answers or one == run.question]
        if not known:
            return
        question = known[0] if stale else known[-1]
        expected = run.decide(question, pick.name, self.clock.now())
        self._told(self.app.decide(question, pick, actor=ADA), expected)

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), request=REQUESTS)
    def pause(self, data: st.DataObject, request: str | None) -> None:
        run = self._one(data)
        self._told(self.app.pause(run.id, **_by(request)), self._asked(run, request, run.pause))

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), request=REQUESTS, visits=st.sampled_from([None, None, 1, 2, 3]))
    def resume(self, data: st.DataObject, request: str | None, visits: int | None) -> None:
        run = self._one(data)
        now = self.clock.now()
        limits = None if visits is None else Limits(visits=visits)
        expected = self._asked(run, request, lambda: run.resume(now, visits))
        self._told(self.app.resume(run.id, limits=limits, **_by(request)), expected)

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), request=REQUESTS)
    def cancel(self, data: st.DataObject, request: str | None) -> None:
        run = self._one(data)
        self._told(self.app.cancel(run.id, **_by(request)), self._asked(run, request, run.cancel))

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), request=REQUESTS)
    def retry(self, data: st.DataObject, request: str | None) -> None:
        run = self._one(data)
        now = self.clock.now()
        self._told(self.app.retry(run.id, **_by(request)), self._asked(run, request, lambda: run.retry(now)))

    @precondition(lambda self: 0 < len(self.expected) < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        run = self._one(data)
        revision = data.draw(st.integers(0, run.revision), label="revision")
        if run.lines[revision].target == "act":
            return  # which of its effects are replayed is what the scenarios of forks look at
        name = f"f{len(self.expected)}"
        forked = run.fork(revision, name, self.clock.now())
        if forked is None:
            with pytest.raises(InvalidInput, match="nothing to run"):
                self._do(self.app.fork(run.id, revision, id=name, effects="live"))
            return
        self.expected[name] = forked
        self._do(self.app.fork(run.id, revision, id=name, effects="live"))
        self._drive()

    @rule(span=st.sampled_from([timedelta(seconds=30), PAUSE, timedelta(minutes=59), WAIT]))
    def time_goes_on(self, span: timedelta) -> None:
        """In small steps, as what becomes due on the way happens then."""
        until = self.clock.now() + span
        self._do(self.clock.advance(span))
        for run in self.expected.values():
            while (due := _next(run)) is not None and due <= until:
                run.drive(due)
            run.drive(until)

    @rule()
    def the_process_is_replaced(self) -> None:
        if not isinstance(self.store, MemoryStore):
            self._do(self.app.close())
            self.store = self.make_store(self.folder.name)
        else:
            self._do(self.app.close())
        now = self.clock.now()
        self._open()
        self.clock._now = now
        self._drive()

    def _one(self, data: st.DataObject) -> Expected:
        return self.expected[data.draw(st.sampled_from(sorted(self.expected)), label="run")]

    # --- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def every_run_is_what_the_model_says(self) -> None:
        for run in self.expected.values():
            Verbs.steps += 1
            found = self._do(self.app.get(run.id, self.flow))
            assert (found.status, found.state.name, found.revision) == (run.status, run.state, run.revision), run
            assert (found.end and found.end.name, found.paused) == (run.end, run.paused), run
            assert (found.blocked is not None, [wait.id for wait in found.waits]) == (
                run.blocked,
                [] if run.question is None else [run.question],
            ), run
            assert self.world.worked.get(run.id, 0) == run.worked, run
            assert self.world.paid.get(run.id, 0) == run.paid, run

    @invariant()
    def every_history_is_without_gap_and_every_run_has_a_waker(self) -> None:
        for run in self.expected.values():
            lines = self._do(self.app.history(run.id))
            assert [(line.number, line.target) for line in lines] == [
                (number, line.target) for number, line in enumerate(run.lines)
            ]
            assert self._do(self.app.why(run.id)).text
        assert list(self._do(self.store.stranded(limit=10))) == []


def _by(request: str | None) -> Any:
    return {} if request is None else {"request": request}


def _next(run: Expected) -> Any:
    """The instant at which the run goes on by itself."""
    if run.over or run.paused or run.blocked:
        return None
    return run.retry_at if run.state == "work" else run.due


def play(machine: type[Verbs], examples: int, steps: int) -> int:
    """Play so many games of so many steps; how many runs were looked at."""
    Verbs.steps = 0
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
    return Verbs.steps


class OnDisk(Verbs):
    """The same over SQLite, where a new process finds only what was written."""

    make_store = staticmethod(lambda folder: open_store(f"sqlite:///{Path(folder) / 'runs.db'}"))


def test_the_verbs_do_what_the_model_says() -> None:
    assert play(Verbs, 250, 30) > 1_000


def test_the_verbs_do_so_on_disk_too() -> None:
    assert play(OnDisk, 25, 25) > 100


@pytest.mark.proof
@pytest.mark.parametrize("machine", [Verbs, OnDisk])
def test_the_verbs_do_so_over_many_games(machine: type[Verbs]) -> None:
    looked = play(machine, 1_000 if machine is Verbs else 100, 50)
    sys.stdout.write(f"{machine.__name__}: looked at {looked:,} runs, each as the model says\n")
    assert looked > 1_000
