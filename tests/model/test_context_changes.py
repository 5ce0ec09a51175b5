"""What a body does to its copy: what is found, what is shared, what is validated, and what an old run meets."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_validator, model_validator

from agentflow import Context
from agentflow.errors import InvalidContext
from agentflow.merge import Append
from agentflow.model.context import ContextPlan, Kept, plan_of
from agentflow.model.values import failure_of


class Item(BaseModel, frozen=True):
    name: str
    at: datetime | None = None


class Part(BaseModel):
    items: list[Item] = []
    labels: set[str] = set()
    by_name: dict[str, list[int]] = {}


class Case(Context):
    n: int = Field(default=0, alias="theNumber")
    part: Part = Part()
    parts: list[Part] = []
    log: Append[Item] = Append()
    words: Append[str] = Append()

    @computed_field
    def twice(self) -> int:
        return self.n * 2


PLAN: ContextPlan[Case] = plan_of(Case)


def changed(change: Callable[[Case], Any], kept: Kept | None = None) -> tuple[Kept, str]:
    before = kept or PLAN.start(Case())[0]
    case = PLAN.copy(before)
    change(case)
    after, difference = PLAN.keep(before, case)
    return after, difference.text()


# --- in place ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda case: None, "{}"),
        (lambda case: setattr(case, "n", 0), "{}"),
        (lambda case: setattr(case, "part", Part()), "{}"),
        (lambda case: case.log.extend([]), "{}"),
        (lambda case: case.part.labels.add("x"), '{"set":{"part":{"items":[],"labels":["x"],"by_name":{}}}}'),
        (
            lambda case: case.part.by_name.setdefault("a", []).append(1),
            '{"set":{"part":{"items":[],"labels":[],"by_name":{"a":[1]}}}}',
        ),
        (lambda case: case.parts.append(Part()), '{"set":{"parts":[{"items":[],"labels":[],"by_name":{}}]}}'),
        (lambda case: case.words.append("é"), '{"add":{"words":["é"]}}'),
        (lambda case: setattr(case, "n", 2), '{"set":{"n":2}}'),  # neither the alias nor the computed field
    ],
)
def test_a_change_is_found_wherever_it_was_made_and_only_there(change: Callable[[Case], Any], text: str) -> None:
    assert changed(change)[1] == text


def test_a_copy_shares_nothing_that_can_change_with_another_copy_or_with_what_is_kept() -> None:
    kept, _ = changed(lambda case: case.parts.append(Part(by_name={"a": [1]})))
    one, other = PLAN.copy(kept), PLAN.copy(kept)
    one.parts[0].by_name["a"].append(2)
    one.parts.append(Part())
    assert other.parts == [Part(by_name={"a": [1]})]
    assert PLAN.copy(kept) == other


def test_the_object_that_a_caller_started_with_is_not_tied_to_the_run() -> None:
    mine = Case(part=Part(labels={"a"}), words=Append(["a"]))
    kept, _ = PLAN.start(mine)
    mine.part.labels.add("b")
    mine.words.append("b")
    assert PLAN.copy(kept).part.labels == {"a"}
    assert list(PLAN.copy(kept).words) == ["a"]


def test_a_mutable_default_is_not_shared_between_runs() -> None:
    case = PLAN.copy(PLAN.start(Case())[0])
    case.part.labels.add("x")
    case.words.append("x")
    case.parts.append(Part())
    assert Case() == PLAN.copy(PLAN.start(Case())[0])
    assert (Case().part.labels, list(Case().words), Case().parts) == (set(), [], [])


def test_an_invalid_change_in_place_is_found_with_its_path() -> None:
    bad: Any = 3
    with pytest.raises(InvalidContext, match=r"^context\.part\.labels\[") as caught:
        changed(lambda case: case.part.labels.add(bad))
    assert "3" in str(caught.value)
    naive = datetime(2030, 1, 1)  # noqa: DTZ001  that is the point
    with pytest.raises(InvalidContext, match=r"^context\.part\.items\[0\]\.at: .* has no time zone"):
        changed(lambda case: case.part.items.append(Item(name="a", at=naive)))


def test_the_failure_that_led_here_is_seen_and_never_stored() -> None:
    failure = failure_of(ValueError("x"), "work")
    kept, _ = PLAN.start(Case())
    case = PLAN.copy(kept, failure)
    assert case.failure == failure
    assert PLAN.keep(kept, case)[0] is kept
    assert PLAN.copy(kept).failure is None


# --- Append ------------------------------------------------------------------------------------------------------


def test_the_items_of_two_copies_grow_apart_whichever_is_kept() -> None:
    base, _ = changed(lambda case: case.words.append("a"))
    one, other = PLAN.copy(base), PLAN.copy(base)
    one.words.append("one")
    kept_one, _ = PLAN.keep(base, one)
    other.words.extend(["other", "more"])
    kept_other, _ = PLAN.keep(base, other)
    assert list(PLAN.copy(kept_one).words) == ["a", "one"]
    assert list(PLAN.copy(kept_other).words) == ["a", "other", "more"]
    assert list(PLAN.copy(base).words) == ["a"]


def test_what_a_failed_attempt_added_is_not_seen_by_the_next() -> None:
    base, _ = changed(lambda case: case.words.append("a"))
    lost = PLAN.copy(base)
    lost.words.append("lost")
    again = PLAN.copy(base)
    assert (list(again.words), len(again.words), "lost" in again.words) == (["a"], 1, False)
    with pytest.raises(IndexError):
        again.words[1]
    assert list(again.words[-1:]) == ["a"]
    again.words.append("b")
    kept, difference = PLAN.keep(base, again)
    assert difference.text() == '{"add":{"words":["b"]}}'
    assert list(PLAN.copy(kept).words) == ["a", "b"]
    assert list(lost.words) == ["a", "lost"]


@pytest.mark.parametrize("items", [[], ["b"], ["b", "a"], ["a", "c", "b"]])
def test_old_items_that_were_replaced_are_refused(items: list[str]) -> None:
    kept, _ = changed(lambda case: case.words.extend(["a", "b"]))
    with pytest.raises(InvalidContext, match=r"^context\.words: an Append field only grows"):
        changed(lambda case: setattr(case, "words", Append(items)), kept)


def test_a_new_list_that_begins_with_the_old_items_is_an_addition() -> None:
    kept, _ = changed(lambda case: case.words.extend(["a", "b"]))
    _, text = changed(lambda case: setattr(case, "words", Append([*case.words, "c"])), kept)
    assert text == '{"add":{"words":["c"]}}'


@pytest.mark.parametrize("value", [["a"], None, ("a",)])
def test_a_field_that_is_no_longer_an_append_is_refused(value: Any) -> None:
    with pytest.raises(InvalidContext, match=r"^context\.words: an Append field only grows"):
        changed(lambda case: setattr(case, "words", value))


@pytest.mark.parametrize(
    "operation", ["pop", "insert", "remove", "clear", "sort", "reverse", "__setitem__", "__iadd__"]
)
def test_an_append_field_has_no_way_to_change_old_items(operation: str) -> None:
    assert not hasattr(Append(["a"]), operation)


def test_an_invalid_new_item_is_refused_with_its_path_and_nothing_is_kept() -> None:
    kept, _ = changed(lambda case: case.log.append(Item(name="a")))
    naive = datetime(2030, 1, 1)  # noqa: DTZ001  that is the point
    with pytest.raises(InvalidContext, match=r"^context\.log\[1\]\.at: .* has no time zone"):
        changed(lambda case: case.log.append(Item(name="b", at=naive)), kept)
    assert list(PLAN.copy(kept).log) == [Item(name="a")]


def test_the_cost_of_a_step_does_not_grow_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _ = changed(lambda case: case.log.extend(Item(name=str(number)) for number in range(20_000)))
    touched: list[Any] = []
    field = type(PLAN.fields["log"])
    for name in ("dump", "settle"):
        plain = getattr(field, name)

        def counted(self: Any, value: Any, *rest: Any, plain: Any = plain) -> Any:
            if self.name == "log":
                touched.append(value)
            return plain(self, value, *rest)

        monkeypatch.setattr(field, name, counted)
    case = PLAN.copy(kept)
    case.n = 1
    nothing, _ = PLAN.keep(kept, case)
    assert touched == []
    case = PLAN.copy(nothing)
    case.log.append(Item(name="new"))
    PLAN.keep(nothing, case)
    assert touched == [Item(name="new")] * 2  # once written, once compared
    assert case.log._items is nothing.values["log"]  # the list was shared, not copied


# --- validators --------------------------------------------------------------------------------------------------


class Checked(Context):
    low: int = Field(default=0, alias="theLow")
    high: int = 10
    seen: Append[str] = Append()

    @field_validator("low")
    @classmethod
    def not_negative(cls, value: int) -> int:
        if value < 0:
            raise ValueError("low must not be negative")
        return value

    @model_validator(mode="after")
    def in_order(self) -> "Checked":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


@pytest.mark.parametrize(
    ("low", "message"), [(-1, r"context\.\w+: .*must not be negative"), (11, "context: .*low is above high")]
)
def test_validators_of_the_class_run_on_what_a_body_leaves(low: int, message: str) -> None:
    plan = plan_of(Checked)
    kept, _ = plan.start(Checked())
    case = plan.copy(kept)
    case.low = low
    case.seen.append("x")
    with pytest.raises(InvalidContext, match=message):
        plan.keep(kept, case)
    assert list(plan.copy(kept).seen) == []


def test_a_change_that_the_validators_accept_is_kept() -> None:
    plan = plan_of(Checked)
    kept, _ = plan.start(Checked())
    case = plan.copy(kept)
    case.low = 9
    assert plan.keep(kept, case)[1].text() == '{"set":{"low":9}}'


# --- versions of a class -----------------------------------------------------------------------------------------


class Newer(Context):
    old: int = 0
    made: list[int] = Field(default_factory=lambda data: [data["old"]])
    text: str = "default"


class Stricter(Context):
    old: int = 0
    needed: str


def test_b58_a_field_that_is_newer_than_the_run_takes_its_default() -> None:
    loaded = plan_of(Newer).copy(plan_of(Newer).load(['{"set":{"old":3}}']))
    assert loaded == Newer(old=3, made=[3], text="default")


def test_b58_a_required_field_that_is_newer_than_the_run_is_named() -> None:
    with pytest.raises(InvalidContext, match=r"^context\.needed: is required and was not stored"):
        plan_of(Stricter).load(['{"set":{"old":3}}'])


@pytest.mark.parametrize("text", ['{"set":{"gone":1}}', '{"add":{"gone":[1]}}'])
def test_a_kept_answer_for_a_field_that_is_gone_is_refused_with_its_path(text: str) -> None:
    plan = plan_of(Newer)
    kept, _ = plan.start(Newer())
    with pytest.raises(InvalidContext, match=r"^context\.gone: was stored, but the class has no such field any more"):
        plan.apply(kept, text)


class Fixed(Context):
    model_config = ConfigDict(frozen=True)
    n: int = 0
    words: Append[str] = Append()


def test_a_stored_difference_applies_to_a_class_whose_fields_cannot_be_set() -> None:
    plan = plan_of(Fixed)
    kept, _ = plan.start(Fixed())
    after, difference = plan.apply(kept, '{"set":{"n":1},"add":{"words":["a"]}}')
    assert plan.copy(after) == Fixed(n=1, words=Append(["a"]))
    assert difference.text() == '{"set":{"n":1},"add":{"words":["a"]}}'


def test_a_context_of_another_class_is_refused() -> None:
    kept, _ = PLAN.start(Case())
    with pytest.raises(InvalidContext, match=r"^context: is a Newer, not a Case"):
        PLAN.keep(kept, Newer())


# --- everything together -----------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
ITEMS = st.builds(Item, name=TEXTS, at=st.none() | st.datetimes(timezones=st.just(UTC)))
PARTS = st.builds(
    Part,
    items=st.lists(ITEMS, max_size=2),
    labels=st.sets(TEXTS, max_size=3),
    by_name=st.dictionaries(TEXTS, st.lists(st.integers(), max_size=2), max_size=2),
)
EDITS = st.one_of(
    st.tuples(st.just("n"), st.integers()),
    st.tuples(st.just("part"), PARTS),
    st.tuples(st.just("push"), PARTS),
    st.tuples(st.just("label"), TEXTS),
    st.tuples(st.just("log"), st.lists(ITEMS, max_size=3)),
    st.tuples(st.just("words"), st.lists(TEXTS, max_size=3)),
    st.tuples(st.just("fail"), st.lists(TEXTS, max_size=2)),
)


def edit(case: Case, name: str, value: Any) -> None:
    if name == "push":
        case.parts.append(value)
    elif name == "label":
        case.part.labels ^= {value}
    elif name in {"log", "words", "fail"}:
        getattr(case, "words" if name == "fail" else name).extend(value)
    else:
        setattr(case, name, value)


@given(st.builds(Case, part=PARTS, words=st.lists(TEXTS, max_size=2).map(Append)), st.lists(EDITS, max_size=10))
def test_folding_the_differences_gives_the_live_context_at_every_revision(
    first: Case, edits: list[tuple[str, Any]]
) -> None:
    kept, difference = PLAN.start(first)
    texts, live = [difference.text()], [(PLAN.copy(kept), kept)]
    folded = kept
    for name, value in edits:
        case = PLAN.copy(kept)
        edit(case, name, value)
        if name == "fail":
            continue  # the attempt failed: its copy is dropped
        kept, difference = PLAN.keep(kept, case)
        folded, _ = PLAN.apply(folded, difference.text())
        texts.append(difference.text())
        live.append((PLAN.copy(kept), kept))
    for revision, (seen, then) in enumerate(live):
        loaded = PLAN.load(texts[: revision + 1])
        assert PLAN.copy(loaded) == seen
        assert (loaded.texts, loaded.lengths, loaded.size) == (then.texts, then.lengths, then.size)
    assert (folded.texts, folded.lengths, folded.size) == (kept.texts, kept.lengths, kept.size)
