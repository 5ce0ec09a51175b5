"""Settling what is unclear from a terminal."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Give

PAYING = """
import os

from agentflow import App, Context, Run, Workflow


class Case(Context):
    order: str
    receipt: str | None = None


paying = Workflow("paying", Case)


async def transfer(order: str, key: str) -> str:
    if order == "lost":
        raise TimeoutError("the bank did not answer")
    return f"R-{order}"


@paying.step()
async def pay(case: Case, run: Run) -> None:
    case.receipt = await run.effect("transfer", lambda key: transfer(case.order, key))


paying.build(start=pay, transitions=[pay.to(paying.end("paid"))])
app = App([paying])
"""
KEY = "r:pay:1:transfer"


@pytest.fixture
def unclear(give: Give, project: Path) -> Give:
    """A run `r` that failed with an unclear effect, and `ok` that went through."""
    (project / "flows.py").write_text(PAYING, encoding="utf-8")
    assert give("run", "paying", "-c", "order=ok", "--id", "ok").code == 0
    assert give("run", "paying", "-c", "order=lost", "--id", "r").code == 6
    return give


def test_list_shows_the_ledger_and_filters(unclear: Give) -> None:
    listed = unclear("effects", "list", "--json").lines
    assert [(row["v"], row["key"], row["status"], row["result"]) for row in listed] == [
        (1, "ok:pay:1:transfer", "done", "R-ok"), (1, KEY, "unclear", None),
    ]  # fmt: skip
    assert [row["key"] for row in unclear("effects", "list", "--status", "unclear", "--json").lines] == [KEY]
    assert [row["key"] for row in unclear("effects", "list", "--run", "ok", "--json").lines] == ["ok:pay:1:transfer"]
    table = unclear("effects", "list").out
    assert "TimeoutError: the bank did not answer" in table
    assert max(map(len, table.splitlines())) <= 100


def test_effects_of_an_unknown_run_are_not_found(unclear: Give) -> None:
    done = unclear("effects", "list", "--run", "nowhere")
    assert (done.code, "there is no run 'nowhere'" in done.err) == (4, True)


def test_what_happened_is_replayed_by_a_retry_and_never_called_again(unclear: Give) -> None:
    done = unclear(
        "effects", "resolve", KEY, "happened", "--result", '"R-17"', "--evidence", "statement", "--as", "ada"
    )
    assert done.code == 0
    assert "the body gets \"R-17\" from it; run 'r' failed in 'pay', and retry goes on from there" in done.err
    assert done.err.endswith("next: agentflow runs retry r\n")
    assert unclear("runs", "retry", "r").code == 0
    assert unclear("runs", "show", "r", "--json").json["context"]["receipt"] == "R-17"


def test_what_did_not_happen_is_called_again_under_a_new_key(unclear: Give, project: Path) -> None:
    done = unclear("effects", "resolve", KEY, "not", "--evidence", "the bank has nothing under the key")
    assert (done.code, "did not happen: the body calls it again" in done.err) == (0, True)
    code = project / "flows.py"
    code.write_text(code.read_text(encoding="utf-8").replace('== "lost"', '== "found"'), encoding="utf-8")
    assert unclear("runs", "retry", "r").code == 0
    keys = [(row["key"], row["status"]) for row in unclear("effects", "list", "--run", "r", "--json").lines]
    assert keys == [(KEY, "not_happened"), ("r:pay:1.g1:transfer", "done")]


def test_without_a_result_the_body_gets_none_and_the_answer_says_so(unclear: Give) -> None:
    done = unclear("effects", "resolve", KEY, "happened", "--evidence", "statement")
    assert "happened, without a result: the body gets None from it" in done.err
    assert unclear("runs", "retry", "r").code == 0
    assert unclear("runs", "show", "r", "--json").json["context"]["receipt"] is None


def test_a_settled_effect_is_refused_and_says_who_settled_it_on_what_evidence(unclear: Give) -> None:
    unclear("effects", "resolve", KEY, "happened", "--evidence", "statement of May", "--as", "ada")
    again = unclear("effects", "resolve", KEY, "happened", "--evidence", "the same", "--json")
    assert (again.code, again.json["status"]) == (0, "already")
    other = unclear("effects", "resolve", KEY, "not", "--evidence", "a mistake", "--as", "bob")
    assert (other.code, other.err.startswith("agentflow: refused: ")) == (5, True)
    assert "it happened, says ada at " in other.err
    assert "(evidence: statement of May)" in other.err
    worker = unclear("effects", "resolve", "ok:pay:1:transfer", "not", "--evidence", "?")
    assert (worker.code, 'it happened, result "R-ok", as its worker recorded' in worker.err) == (5, True)


def test_every_attempt_to_settle_is_kept_with_actor_and_evidence(unclear: Give) -> None:
    unclear("effects", "resolve", KEY, "happened", "--evidence", "statement", "--as", "ada", "--reason", "end of month")
    unclear("effects", "resolve", KEY, "not", "--evidence", "a mistake", "--as", "bob")
    commands = json.loads(unclear("runs", "export", "r").out)["commands"]
    kept = [(c["command"], c["status"], c["actor"]["subject"], c["reason"]) for c in commands]
    assert kept == [
        ("resolve effect", "applied", "ada", "end of month (evidence: statement)"),
        ("resolve effect", "refused", "bob", "a mistake"),
    ]


def test_a_request_that_is_repeated_is_answered_already(unclear: Give) -> None:
    words = ("effects", "resolve", KEY, "happened", "--evidence", "statement", "--request", "q-1")
    assert unclear(*words, "--json").json["status"] == "applied"
    assert unclear(*words, "--json").json["status"] == "already"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((f"{KEY}x", "not", "--evidence", "e"), 4, f"there is no effect '{KEY}x'; did you mean '{KEY}'?"),
        (("r:zzz", "not", "--evidence", "e"), 4, f"run 'r' has {KEY}"),
        (("nowhere", "not", "--evidence", "e"), 4, "there is no effect 'nowhere'"),
        (
            (KEY, "happened", "--result", "R-17", "--evidence", "e"),
            2,
            "a text has quotes of its own: --result '\"R-17\"'",
        ),
        ((KEY, "not", "--result", "1", "--evidence", "e"), 2, "what did not happen has no result"),
        ((KEY, "not", "--evidence", "  "), 2, "evidence= must say how you know"),
        ((KEY, "not"), 2, "--evidence"),
    ],
)
def test_what_cannot_be_settled_says_why_and_changes_nothing(
    unclear: Give, words: tuple[str, ...], code: int, message: str
) -> None:
    done = unclear("effects", "resolve", *words)
    assert (done.code, message in done.err) == (code, True), done.err
    assert [row["key"] for row in unclear("effects", "list", "--status", "unclear", "--json").lines] == [KEY]
