"""Old and new code at work on one database: who takes which run, and what becomes of those that nobody takes (D6)."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from agentflow import App, Context, Question, Run, Workflow
from agentflow.analysis.acceptance import judge
from agentflow.errors import ConfigurationError, IncompatibleDefinition, StoreUnavailable
from agentflow.runners.versions import Versions
from agentflow.store.protocol import Store
from agentflow.store.rows import RunFilter
from tests.scenarios.desk import ADA
from tests.versions.conftest import OpenStore
from tests.versions.orders import OrderV1, OrderV2, Verdict, ordering, to_cents

SOON = timedelta(seconds=20)


class Kept(Context):
    """As version 1, with one field more."""

    order: str
    amount: int = 0
    note: str = ""
    currency: str = "EUR"


class WithoutDefault(Context):
    """What no run of version 1 fits."""

    order: str
    amount: int = 0
    note: str = ""
    currency: str


async def waiting(another: OpenStore, run: str = "a", **shape: Any) -> str:
    flow = ordering(OrderV1, 1, **shape)
    async with App([flow], store=another()) as app:
        return (await app.run(flow, OrderV1(order=run, amount=7), id=run, timeout=SOON)).waits[0].id


async def decided(another: OpenStore, wait: str) -> None:
    """Decide by code that drives nothing."""
    app = App([ordering(OrderV1, 1)], store=another())
    app.leave_to_workers()
    await app.decide(wait, Verdict.APPROVE, actor=ADA)
    await app.close()


async def version_of(store: Store, run: str = "a") -> int:
    row = await store.run(run)
    assert row is not None
    return row.version


async def blocked_reason(store: Store, run: str = "a") -> str:
    """Why the run is blocked, once it is."""
    async with asyncio.timeout(10):
        while True:
            row = await store.run(run)
            if row is not None and row.session is None and row.standing.blocked is not None:
                return row.standing.blocked
            await asyncio.sleep(0.02)


# --- several versions in one App ---------------------------------------------------------------------------------


async def test_runs_go_on_under_their_own_version_and_new_ones_start_on_the_one_that_is_named(
    another: OpenStore, store: Store
) -> None:
    wait = await waiting(another)
    old, new = ordering(OrderV1, 1), ordering(Kept, 2)
    async with App([new, old], store=another()) as app:
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        over = await app.result("a", old, timeout=SOON)
        started = await app.run(new, Kept(order="b"), id="b", timeout=SOON)
    assert (over.context, await version_of(store)) == (OrderV1(order="a", amount=7), 1)
    assert (started.context.currency, await version_of(store, "b")) == ("EUR", 2)


async def test_a_run_whose_own_version_does_not_take_it_goes_on_under_a_newer_one_that_does(
    another: OpenStore, store: Store
) -> None:
    wait = await waiting(another)
    changed, new = ordering(OrderV1, 1, shape="other members"), ordering(OrderV1, 2)
    async with App([changed, new], store=another()) as app:
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        over = await app.result("a", new, timeout=SOON)
    assert (over.status, await version_of(store)) == ("completed", 2)


async def test_the_newest_of_several_versions_that_take_it_is_chosen_where_its_own_is_gone(
    another: OpenStore, store: Store
) -> None:
    wait = await waiting(another)
    async with App([ordering(OrderV1, 2), ordering(Kept, 4), ordering(OrderV1, 3, shape="x")], store=another()) as app:
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        await app.result("a", timeout=SOON)
    assert await version_of(store) == 4


async def test_a_run_does_not_pass_by_a_migration(another: OpenStore, store: Store) -> None:
    wait = await waiting(another)
    async with App([ordering(OrderV1, 2, lambda old: old)], store=another()) as app:  # it would be taken as it is
        with pytest.raises(IncompatibleDefinition, match="which it must not miss: agentflow deploy migrate ordering"):
            await app.decide(wait, Verdict.APPROVE, actor=ADA)
        [prospect] = (await app.deploy_check()).prospects
    assert (prospect.fate, prospect.to) == ("migrate", 2)


async def test_a_run_of_a_newer_version_is_left_alone_and_said_to_be_so(another: OpenStore, store: Store) -> None:
    new = ordering(OrderV1, 2)
    starter = App([new], store=another())
    starter.leave_to_workers()
    await starter.start(new, OrderV1(order="a"), id="a")
    async with App([ordering(OrderV1, 1)], store=another()) as app:
        await app.settle()
        row = await store.run("a")
        assert row is not None
        assert (row.standing.status, row.standing.blocked, row.version) == ("queued", None, 2)
        with pytest.raises(IncompatibleDefinition, match="version 2; this App has ordering v1"):
            await app.result("a", timeout=SOON)
        assert "this App has ordering v1" in (await app.why("a")).text
        [prospect] = (await app.deploy_check()).prospects
        assert (prospect.fate, prospect.state) == ("blocked", "prepare")
    await starter.close()


def test_two_workflows_of_one_name_and_version_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two workflows 'ordering' of version 1"):
        App([ordering(OrderV1, 1), ordering(OrderV1, 1)], store="memory:")


# --- a rolling deploy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", [1, 2])
async def test_a_run_that_new_code_refuses_is_carried_on_by_old_code_beside_it(
    another: OpenStore, store: Store, newer: int
) -> None:
    wait = await waiting(another)
    await decided(another, wait)
    new = App([ordering(OrderV1, newer, shape="other members")], store=another())
    async with new:
        assert "ASK is new" in await blocked_reason(store)
        old = ordering(OrderV1, 1)
        async with App([old], store=another()) as app:
            over = await app.result("a", old, timeout=SOON)
        assert (over.status, over.end and over.end.name, await version_of(store)) == ("completed", "paid", 1)


async def test_who_waits_for_a_run_is_not_told_of_a_refusal_while_other_code_carries_it_on(
    another: OpenStore, store: Store
) -> None:
    wait = await waiting(another)
    await decided(another, wait)
    old = ordering(OrderV1, 1)
    async with (
        App([old], store=another()) as _,
        App([ordering(OrderV1, 1, shape="other members")], store=another()) as new,
    ):
        assert (await new.result("a", timeout=SOON)).status == "completed"


async def test_a_run_that_nobody_takes_is_blocked_and_whoever_waits_is_told_why(
    another: OpenStore, store: Store
) -> None:
    wait = await waiting(another)
    await decided(another, wait)
    async with App([ordering(OrderV1, 1, shape="other members")], store=another()) as app:
        with pytest.raises(IncompatibleDefinition, match=r"ASK is new.*migration"):
            await app.result("a", timeout=SOON)
        why = await app.why("a")
        snapshot = await app.get("a")
    assert "ASK is new" in why.text
    assert (snapshot.status, "ASK is new" in (snapshot.blocked or "")) == ("queued", True)


async def test_a_blocked_run_goes_on_once_code_comes_that_takes_it(another: OpenStore, store: Store) -> None:
    wait = await waiting(another)
    await decided(another, wait)
    async with App([ordering(OrderV1, 1, shape="other members")], store=another()) as app:
        await blocked_reason(store)
    flow = ordering(OrderV1, 1)
    async with App([flow], store=another()) as app:
        over = await app.result("a", flow, timeout=SOON)
    assert (over.status, over.blocked) == ("completed", None)


async def test_a_worker_leaves_what_it_refused_alone_and_drives_the_rest(another: OpenStore, store: Store) -> None:
    await decided(another, await waiting(another))
    flow = ordering(OrderV1, 1, shape="other members")
    async with App([flow], store=another()) as app:
        await blocked_reason(store)
        before = await store.run("a")
        for number in range(5):
            await app.run(flow, OrderV1(order="new"), id=f"n{number}", timeout=SOON)
        assert await store.run("a") == before  # nobody has claimed it again


async def test_a_run_that_is_cancelled_needs_no_code_that_takes_it(another: OpenStore, store: Store) -> None:
    await decided(another, await waiting(another))
    async with App([ordering(OrderV1, 1, shape="other members")], store=another()) as app:
        await blocked_reason(store)
        assert (await app.cancel("a")).status == "applied"
        assert (await app.get("a")).status == "cancelled"


async def test_a_run_that_was_to_be_cancelled_when_its_worker_ended_is_cancelled_by_any_code(
    another: OpenStore, store: Store
) -> None:
    old = ordering(OrderV1, 1)
    starter = App([old], store=another())
    starter.leave_to_workers()
    await starter.start(old, OrderV1(order="a"), id="a")
    session = await store.open_session("a worker with other code")
    assert await store.claim_runs(session, limit=1)
    assert (await starter.cancel("a")).status == "applied"
    await starter.close()
    await store.close_session(session)
    async with App([ordering(WithoutDefault, 1)], store=another()) as app:
        await app.work_off()
    row = await store.run("a")
    assert row is not None
    assert row.standing.status == "cancelled"


# --- once for each shape -----------------------------------------------------------------------------------------


async def test_a_definition_is_kept_when_a_run_first_stands_under_it(another: OpenStore, store: Store) -> None:
    await waiting(another, "a")
    await waiting(another, "b")
    flow = ordering(Kept, 1)
    async with App([flow], store=another()) as app:
        assert [row.version for row in await store.definitions("ordering")] == [1]
        await app.start(flow, Kept(order="c"), id="c")
        assert len(await store.definitions("ordering")) == 2


async def test_acceptance_is_judged_once_for_all_runs_of_a_shape_and_state(
    another: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in "abcdef":
        await decided(another, await waiting(another, run))
    judged: Counter[str] = Counter()

    def counting(outline: Any, version: int, state: str, definition: Any) -> Any:
        judged[state] += 1
        return judge(outline, version, state, definition)

    monkeypatch.setattr("agentflow.runners.versions.judge", counting)
    flow = ordering(Kept, 1)
    async with App([flow], store=another()) as app:
        for run in "abcdef":
            assert (await app.result(run, timeout=SOON)).status == "completed"
    assert judged == Counter({"ask": 1})


async def test_a_run_of_the_code_at_hand_is_not_judged_at_all(
    another: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError("nothing to judge")

    monkeypatch.setattr(Versions, "choose", never)
    monkeypatch.setattr(Versions, "judge", never)
    flow = ordering(OrderV1, 1)
    async with App([flow], store=another()) as app:
        wait = (await app.run(flow, OrderV1(order="a"), id="a", timeout=SOON)).waits[0]
        await app.decide(wait.id, Verdict.APPROVE, actor=ADA)
        assert (await app.result("a", timeout=SOON)).status == "completed"


# --- what else is asked about old runs ---------------------------------------------------------------------------


async def test_a_start_that_is_repeated_after_a_deploy_finds_its_run(another: OpenStore, store: Store) -> None:
    await waiting(another)
    for version in (1, 2):
        flow = ordering(Kept, version)
        async with App([flow], store=another()) as app:
            again = await app.start(flow, Kept(order="a", amount=7), id="a")
            assert (again.id, again.state.name) == ("a", "ask")


async def test_a_fork_of_an_old_run_begins_under_code_that_shows_its_data_as_they_were(
    another: OpenStore, store: Store
) -> None:
    await waiting(another)
    new = ordering(Kept, 2)
    async with App([new], store=another()) as app:
        forked = await app.fork("a", 1, id="b")
        assert (forked.state.owner.version, forked.state.name) == (2, "ask")
        assert forked.context == Kept(order="a", amount=7)
    unlike = ordering(OrderV2, 2, to_cents)
    async with App([unlike], store=another()) as app:
        with pytest.raises(IncompatibleDefinition, match="cannot be shown"):
            await app.fork("a", 1, id="c")


async def test_a_list_leaves_out_what_cannot_be_shown_and_shows_what_can(another: OpenStore, store: Store) -> None:
    await waiting(another)
    async with App([ordering(Kept, 2)], store=another()) as app:
        assert [one.context for one in await app.list()] == [Kept(order="a", amount=7)]
    async with App([ordering(OrderV2, 2, to_cents)], store=another()) as app:
        assert list(await app.list()) == []
        assert [row.id for row in await app.rows(RunFilter())] == ["a"]


async def test_a_run_that_ended_under_an_old_version_is_shown_by_a_new_one_that_takes_its_context(
    another: OpenStore, store: Store
) -> None:
    wait = await waiting(another)
    old = ordering(OrderV1, 1)
    async with App([old], store=another()) as app:
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        await app.result("a", old, timeout=SOON)
    new = ordering(Kept, 2)
    async with App([new], store=another()) as app:
        over = await app.result("a", new, timeout=SOON)
        assert (over.status, over.context) == ("completed", Kept(order="a", amount=7))


# --- names -------------------------------------------------------------------------------------------------------


def renaming(*, renamed: bool, acts: bool = False) -> Workflow[Context, None]:
    """weigh (may act) -> ask or approval -> done."""
    flow = Workflow("renaming", Context)

    async def weigh(case: Context, run: Run) -> None:
        if acts:
            await run.effect("weigh", _done)
            raise ValueError("broken after it acted")

    weigh.__name__ = "measure" if renamed else "weigh"
    step = flow.step()(weigh)

    def ask(case: Context) -> Question:
        return Question("?")

    ask.__name__ = "approval" if renamed else "ask"
    asked = flow.human(Verdict)(ask)
    done = flow.end("done")
    flow.build(
        start=step,
        transitions=[step.to(asked), asked.on(Verdict.APPROVE, Verdict.REJECT).to(done)],
        renamed={"weigh": step, "ask": asked} if renamed else None,
    )
    return flow


async def _done(key: str) -> str:
    return key


async def test_a_question_is_answered_under_the_id_that_it_had_before_its_state_got_another_name(
    another: OpenStore, store: Store
) -> None:
    old = renaming(renamed=False)
    async with App([old], store=another()) as app:
        wait = (await app.run(old, Context(), id="a", timeout=SOON)).waits[0].id
    new = renaming(renamed=True)
    async with App([new], store=another()) as app:
        assert (await app.get("a", new)).state.name == "approval"
        assert (await app.decide(wait, Verdict.APPROVE, actor=ADA)).status == "applied"
        assert (await app.decide(wait, Verdict.APPROVE, actor=ADA)).status == "already"
        over = await app.result("a", new, timeout=SOON)
        lines = [(line.event, line.source, line.target) for line in await app.history("a")]
    assert over.status == "completed"
    assert lines == [
        ("start", "", "weigh"),
        ("done", "weigh", "ask"),
        ("rename", "ask", "approval"),
        ("on", "approval", "done"),
    ]


async def test_two_questions_that_become_one_keep_apart_what_was_asked(another: OpenStore) -> None:
    def asking(*, merged: bool) -> Workflow[Context, None]:
        flow = Workflow("asking", Context)

        @flow.human(Verdict, max_visits=9)
        def ask(case: Context) -> Question:
            return Question("First?")

        def ask_again(case: Context) -> Question:
            return Question("Second?")

        done = flow.end("done")
        second = ask if merged else flow.human(Verdict)(ask_again)
        rows = [ask.on(Verdict.APPROVE).to(done if merged else second), ask.on(Verdict.REJECT).to(done)]
        if not merged:
            rows += [second.on(Verdict.APPROVE).to(done), second.on(Verdict.REJECT).to(done)]
        flow.build(start=ask, transitions=rows, renamed={"ask_again": ask} if merged else None)
        return flow

    old = asking(merged=False)
    async with App([old], store=another()) as app:
        first = (await app.run(old, Context(), id="a", timeout=SOON)).waits[0].id
        await app.decide(first, Verdict.APPROVE, actor=ADA)
        second = (await app.follow("a", old, timeout=SOON)).waits[0].id
    new = asking(merged=True)
    async with App([new], store=another()) as app:
        assert (await app.decide(second, Verdict.REJECT, actor=ADA)).status == "applied"
        over = await app.result("a", new, timeout=SOON)
        waits = {one["id"]: (one["outcome"], one["question"]) for one in (await app.export("a"))["waits"]}
    assert (first, second, str(over.end)) == ("a.ask.1", "a.ask_again.1", "done")
    assert waits == {"a.ask.1": ("APPROVE", "First?"), "a.ask.2": ("REJECT", "Second?")}


async def test_a_loop_through_a_state_with_a_new_name_is_bounded_by_all_of_its_visits(another: OpenStore) -> None:
    def looping(*, renamed: bool) -> Workflow[Context, None]:
        flow = Workflow("looping", Context)

        async def weigh(case: Context, run: Run) -> None: ...

        weigh.__name__ = "measure" if renamed else "weigh"
        step = flow.step(max_visits=3)(weigh)

        @flow.human(Verdict, max_visits=9)
        def ask(case: Context) -> Question:
            return Question("Again?")

        done, often = flow.end("done"), flow.end("often")
        rows = [step.failed.to(often), step.to(ask), ask.on(Verdict.APPROVE).to(step), ask.on(Verdict.REJECT).to(done)]
        flow.build(start=step, transitions=rows, renamed={"weigh": step} if renamed else None)
        return flow

    old, new = looping(renamed=False), looping(renamed=True)
    async with App([old], store=another()) as app:
        after = await app.run(old, Context(), id="a", timeout=SOON)
    for visit in range(1, 4):
        flow = old if visit == 1 else new
        async with App([flow], store=another()) as app:
            await app.decide(f"a.ask.{visit}", Verdict.APPROVE, actor=ADA)
            after = await app.follow("a", flow, timeout=SOON)
    assert str(after.end) == "often"


async def test_an_effect_that_was_begun_under_an_old_name_is_not_repeated_under_the_new_one(
    another: OpenStore, store: Store
) -> None:
    old = renaming(renamed=False, acts=True)
    async with App([old], store=another()) as app:
        assert (await app.run(old, Context(), id="a", timeout=SOON)).status == "failed"
    new = renaming(renamed=True)
    async with App([new], store=another()) as app:
        with pytest.raises(IncompatibleDefinition, match="begun an effect under the old name"):
            await app.retry("a")
        [prospect] = (await app.deploy_check()).prospects
    assert (prospect.fate, prospect.failed, "begun an effect" in prospect.reason) == ("blocked", True, True)


async def test_a_failed_run_whose_state_has_another_name_is_retried_there(another: OpenStore, store: Store) -> None:
    flow = Workflow("failing", Context)

    async def broken(case: Context, run: Run) -> None:
        raise ValueError("broken")

    step = flow.step()(broken)
    flow.build(start=step, transitions=[step.to(flow.end("done"))])
    async with App([flow], store=another()) as app:
        assert (await app.run(flow, Context(), id="a", timeout=SOON)).status == "failed"
    mended = Workflow("failing", Context)

    async def whole(case: Context, run: Run) -> None: ...

    other = mended.step()(whole)
    mended.build(start=other, transitions=[other.to(mended.end("done"))], renamed={"broken": other})
    async with App([mended], store=another()) as app:
        assert (await app.retry("a")).status == "applied"
        assert (await app.result("a", mended, timeout=SOON)).status == "completed"


async def test_a_replay_knows_new_names(another: OpenStore, store: Store) -> None:
    old = renaming(renamed=False)
    async with App([old], store=another()) as app:
        wait = (await app.run(old, Context(), id="a", timeout=SOON)).waits[0].id
        await app.decide(wait, Verdict.APPROVE, actor=ADA)
        await app.result("a", old, timeout=SOON)
    async with App([renaming(renamed=True)], store=another()) as app:
        found = await app.replay("a")
    assert (found.same, found.checked, list(found.gone)) == (True, 2, [])


# --- trouble in between ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["relocate", "record_definition", "release_run"])
async def test_a_run_that_was_let_go_of_to_be_carried_is_carried_by_whoever_comes_next(
    another: OpenStore, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    await decided(another, await waiting(another))
    flow = ordering(Kept, 2)
    used = another()
    real, failures = getattr(used, verb), iter([StoreUnavailable("gone")])

    async def once(*given: Any) -> Any:
        for error in failures:
            raise error
        return await real(*given)

    monkeypatch.setattr(used, verb, once)
    async with App([flow], store=used) as app:
        over = await follow_through_trouble(app)
        lines = [line.event for line in await app.history("a")]
    assert (over.status, lines.count("adopt")) == ("completed", 1)


async def follow_through_trouble(app: App) -> Any:
    """The result, whatever the store refuses on the way."""
    for _ in range(5):
        try:
            return await app.result("a", timeout=SOON)
        except StoreUnavailable:
            await asyncio.sleep(0.01)
    raise AssertionError("the store never recovered")
