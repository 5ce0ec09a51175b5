"""Every way through `content_review`, played in memory with a scripted model and person."""

import pytest

from agentflow import End
from agentflow.failures import Filtered, Invalid, ModelFailure, Refused, Truncated, Unclear
from agentflow.testing import Line, expires, fails, play, says
from definitions.board import Board
from definitions.content_review import (
    Decision,
    Label,
    Message,
    classify,
    clean,
    content_review,
    notify,
    publish,
    published,
    review,
    withheld,
    withhold,
)
from tests.acceptance.own_inputs import Post, load_posts

POSTS = {post.id: post for post in load_posts()}


def message() -> Message:
    return Message(id="m1", text=" one\ttwo ")


@pytest.mark.parametrize("post", POSTS.values(), ids=list(POSTS))
async def test_each_message_reaches_its_end_and_stands_on_the_board_or_not(post: Post) -> None:
    board = Board()
    decides = [says(review, Decision(post.decision))] if post.decision else []
    labels = says(classify, Label(post.answer["choice"]), reason=post.answer["reason"])
    run = play(content_review, Message(id=post.id, text=post.text), board, script=[labels, *decides])
    assert str(run.end) == post.end
    shown, held = await board.entries("published"), await board.entries("withheld")
    assert [entry[0] for entry in shown] == ([post.id] if run.end is published else [])
    assert [entry[0] for entry in held] == ([post.id] if run.end is withheld else [])


@pytest.mark.parametrize(
    ("label", "path"),
    [
        (Label.ALLOW, [clean, classify, publish, notify, published]),
        (Label.REJECT, [clean, classify, withhold, notify, withheld]),
    ],
)
def test_a_sure_model_decides_alone(label: Label, path: list[object]) -> None:
    assert play(content_review, message(), Board(), script=[says(classify, label)]).path == path


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (says(review, Decision.PUBLISH), [publish, notify, published]),
        (says(review, Decision.WITHHOLD), [withhold, notify, withheld]),
        (expires(review), [withhold, notify, withheld]),
    ],
)
def test_where_the_model_is_unsure_a_person_decides_and_silence_withholds(
    line: Line[Message], path: list[object]
) -> None:
    run = play(content_review, message(), Board(), script=[says(classify, Label.UNSURE), line])
    assert run.path == [clean, classify, review, *path]


@pytest.mark.parametrize("failure", [Refused("no"), Invalid("what?"), Truncated("too long"), Filtered("withheld")])
def test_a_model_without_an_answer_leaves_it_to_a_person(failure: ModelFailure) -> None:
    script = [fails(classify, failure), says(review, Decision.PUBLISH)]
    assert play(content_review, message(), Board(), script=script).path == [
        clean,
        classify,
        review,
        publish,
        notify,
        published,
    ]


@pytest.mark.parametrize(
    ("label", "end", "text"),
    [
        (Label.ALLOW, published, "Your message is published."),
        (Label.REJECT, withheld, "Your message is not published."),
    ],
)
async def test_the_author_hears_what_became_of_it(label: Label, end: End[Message], text: str) -> None:
    board = Board()
    run = play(content_review, message(), board, script=[says(classify, label)])
    assert run.end is end
    assert await board.entries("notified") == [("m1", text)]


def test_an_author_who_can_not_be_told_does_not_stop_the_message() -> None:
    script = [says(classify, Label.ALLOW), fails(notify, Unclear("who knows"))]
    assert play(content_review, message(), Board(), script=script).end is published


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  one\t two\r\n\n three ", "one two three"),
        ("b\x92day \x85 ok", "b\x92day \x85 ok"),
        ("\x85\x96", "\x85\x96"),
        ("1\u00a0000 £ ☕", "1\u00a0000 £ ☕"),
        (" \n", ""),
    ],
)
def test_white_space_is_cleaned_and_broken_characters_are_kept(text: str, cleaned: str) -> None:
    run = play(content_review, Message(id="m1", text=text), Board(), script=[says(classify, Label.ALLOW)])
    assert run.context.text == cleaned


def test_the_person_is_told_what_the_model_thought() -> None:
    asked = review(Message(id="m1", text="Selling my bike", reason="It may be a private sale."))
    assert asked.text == "Publish this message? It may be a private sale."
    assert asked.evidence == "Selling my bike"
