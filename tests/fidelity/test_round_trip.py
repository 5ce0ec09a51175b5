"""B54: any value of any type that a context may hold comes back equal and of its type, from every store."""

import asyncio
from collections.abc import Callable
from datetime import UTC

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from agentflow.model.context import Kept, plan_of
from agentflow.store.protocol import Store
from tests.fidelity.journeys import Journey, after, put, words
from tests.fidelity.kinds import Made, contexts
from tests.fidelity.reading import Readers
from tests.fidelity.zoo import context_class, instants, text_of

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
FreshId = Callable[[], str]


def examples(plain: int) -> settings:
    return settings(max_examples=plain, deadline=None, suppress_health_check=SLOW)


# --- the plan alone: many ----------------------------------------------------------------------------------------


def check_plan(made: Made) -> None:
    """Write, load, change and load again, without a store."""
    kind = context_class(made.types)
    plan = plan_of(kind)
    assert plan.problems() == []
    blobs: dict[str, bytes] = {}
    kept, start = plan.keep(Kept({}, {}, {}, 0, blobs.get), made.context(kind))
    blobs.update(start.blobs)
    live = plan.copy(kept)
    assert text_of(live) == words(made.first)
    put(live, made.then)
    changed, difference = plan.keep(kept, live)
    blobs.update(difference.blobs)
    texts = [start.text(), difference.text()]
    loaded = plan.load(texts, blobs.get)
    assert (loaded.texts, loaded.lengths, loaded.size) == (changed.texts, changed.lengths, changed.size)
    for copy in (plan.copy(changed), plan.copy(loaded), plan.copy(plan.load([start.text()], blobs.get))):
        assert {instant.tzinfo for instant in instants(copy)} <= {UTC}
    assert text_of(plan.copy(loaded)) == text_of(plan.copy(changed)) == words(after(made))
    assert plan.keep(loaded, plan.copy(loaded))[0] is loaded  # nothing looks changed


@given(contexts())
@examples(300)
def test_b54_any_value_of_any_type_comes_back(made: Made) -> None:
    check_plan(made)


@pytest.mark.proof
@given(contexts())
@examples(5_000)
def test_b54_any_value_of_any_type_comes_back_often(made: Made) -> None:
    check_plan(made)


# --- on the stores: some -----------------------------------------------------------------------------------------


def check_run(made: Made, store: str | Store, run: str) -> None:
    """A run sees the values as they were, and so does whoever reads it afterwards, from its start to its end."""
    journey = Journey(made)
    note(f"{made.types}")
    over = asyncio.run(journey.travel(store, run))
    assert tuple(journey.seen) == journey.wanted
    assert over == journey.wanted[1]
    assert asyncio.run(journey.read_again(store, run)) == journey.wanted


@given(contexts())
@examples(40)
def test_b54_a_run_keeps_any_value_on_every_store(kept: str | Store, fresh_id: FreshId, made: Made) -> None:
    check_run(made, kept, fresh_id())


@pytest.mark.proof
@given(contexts())
@examples(300)
def test_b54_a_run_keeps_any_value_on_every_store_often(kept: str | Store, fresh_id: FreshId, made: Made) -> None:
    check_run(made, kept, fresh_id())


# --- in another process ------------------------------------------------------------------------------------------


def check_processes(many: list[Made], store: str, fresh_id: FreshId, readers: Readers) -> None:
    journeys = {fresh_id(): Journey(made) for made in many}
    for run, journey in journeys.items():
        asyncio.run(journey.travel(store, run))
    found = readers.read(store, {run: journey.made.types for run, journey in journeys.items()})
    assert {run: tuple(texts) for run, texts in found.items()} == {run: one.wanted for run, one in journeys.items()}


@given(st.lists(contexts(), min_size=12, max_size=12))
@settings(examples(1), phases=[Phase.generate])
def test_b54_a_new_process_reads_what_another_one_wrote(
    kept: str | Store, fresh_id: FreshId, readers: Readers, many: list[Made]
) -> None:
    if not isinstance(kept, str):
        pytest.skip("what is in memory ends with its process")
    check_processes(many, kept, fresh_id, readers)


@pytest.mark.proof
@given(st.lists(contexts(), min_size=40, max_size=40))
@settings(examples(5), phases=[Phase.generate])
def test_b54_new_processes_read_what_others_wrote_often(
    kept: str | Store, fresh_id: FreshId, readers: Readers, many: list[Made]
) -> None:
    if not isinstance(kept, str):
        pytest.skip("what is in memory ends with its process")
    check_processes(many, kept, fresh_id, readers)
