"""People's work: what waits, what is shown, and what becomes of an answer."""

import pytest

from tests.cli.conftest import Done, Give


@pytest.fixture
def waiting(give: Give) -> Give:
    give("run", "flow", "-c", "n=50", "--id", "a")
    return give


def answer(give: Give, *words: str) -> Done:
    return give("approvals", *words, "--as", "ada", "--role", "boss")


def test_what_waits_is_listed_and_shown_with_evidence_and_fields(waiting: Give) -> None:
    [wait] = waiting("approvals", "list", "--json").lines
    assert (wait["id"], wait["outcomes"], wait["roles"]) == ("a.ask.1", ["APPROVE", "REJECT"], ["boss"])
    shown = waiting("approvals", "show", "a").out
    for part in ("Is 50 fine?", "n: 50", "amount", "boss"):
        assert part in shown


def test_an_approval_drives_the_run_on(waiting: Give) -> None:
    done = answer(waiting, "approve", "a", "--field", "amount=4.50")
    assert (done.code, done.out) == (0, "a completed: ended at fine\n")
    [_, _, decided] = waiting("runs", "show", "a", "--json").json["history"]
    assert (decided["actor"]["subject"], decided["answer"]["data"]) == ("ada", {"amount": "4.50"})


def test_what_the_question_suggests_fills_the_form(waiting: Give) -> None:
    assert answer(waiting, "reject", "a.ask.1").out == "a completed: ended at refused\n"
    [_, _, decided] = waiting("runs", "show", "a", "--json").json["history"]
    assert decided["answer"]["data"] == {"amount": "3"}


def test_a_decision_may_be_left_for_a_worker_to_carry_out(waiting: Give) -> None:
    done = answer(waiting, "decide", "a", "approve", "--no-drive")
    assert (done.code, done.out) == (0, "")
    assert waiting("runs", "show", "a", "--json").json["status"] == "waiting"
    assert waiting("run", "flow", "-c", "n=50", "--id", "a").out == "a completed: ended at fine\n"


def test_a_second_decision_is_a_conflict_that_shows_the_first(waiting: Give) -> None:
    answer(waiting, "approve", "a")
    second = answer(waiting, "reject", "a.ask.1")
    assert second.code == 5
    assert "APPROVE by ada at " in second.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("decide", "a", "APROVE", "--as", "ada", "--role", "boss"), 2, "did you mean 'APPROVE'?"),
        (("approve", "a", "--as", "ada"), 10, "takes an actor with role boss; ada has none"),
        (("approve", "a", "--as", "ada", "--role", "boss", "--field", "amuont=3"), 2, "did you mean 'amount'?"),
        (("approve", "a", "--as", "ada", "--role", "boss", "--field", "amount=much"), 2, "Form: amount:"),
        (("approve", "a", "--as", "ada", "--role", "boss", "--field", "amount"), 2, "write NAME=VALUE"),
        (("approve", "a", "--as", "ada", "--role", "boss", "--data", "{"), 2, "--data: no JSON"),
        (("approve", "nowhere", "--as", "ada"), 4, "there is no wait and no run 'nowhere'"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_run_waits_on(
    waiting: Give, words: tuple[str, ...], code: int, message: str
) -> None:
    done = waiting("approvals", *words)
    assert (done.code, message in done.err, done.err.count("\n")) == (code, True, 1)
    assert [wait["id"] for wait in waiting("approvals", "list", "--json").lines] == ["a.ask.1"]
    assert waiting("runs", "show", "a", "--json").json["revision"] == 1


def test_a_run_that_has_ended_waits_for_nobody(give: Give) -> None:
    give("run", "flow", "-c", "n=1", "--id", "a")
    done = give("approvals", "show", "a")
    assert (done.code, "waits for nobody" in done.err) == (4, True)
