"""A message for a public board: a model says allow or reject, and a person decides where the model is unsure."""

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TypedDict

from agentflow import Answer, Context, Limits, Question, Retry, Run, Workflow
from agentflow.failures import Filtered, Invalid, Refused, Truncated
from definitions.board import Board

WHITE_SPACE = re.compile(r"\s+", re.ASCII)  # only ASCII's: in a broken encoding the bytes beyond are letters


class Label(StrEnum):
    ALLOW = "allow"
    REJECT = "reject"
    UNSURE = "unsure"


class Decision(StrEnum):
    PUBLISH = "publish"
    WITHHOLD = "withhold"


class Message(Context):
    """A message on its way to the board."""

    id: str
    text: str
    reason: str = ""
    is_public: bool = False


class ClassifyVars(TypedDict):
    text: str


content_review = Workflow("content_review", Message, services=Board, version=1, limits=Limits(llm_calls=6))


@content_review.step()
async def clean(message: Message, run: Run[Board]) -> None:
    message.text = WHITE_SPACE.sub(" ", message.text).strip(" ")


@content_review.llm(Label, prompt=Path("content_review/classify.md"), max_tokens=200, retry=Retry(attempts=3))
def classify(message: Message) -> ClassifyVars:
    return {"text": message.text}


@classify.store
def keep_reason(message: Message, answer: Answer[Label, None]) -> None:
    message.reason = answer.reason


@content_review.human(Decision, expires=timedelta(days=1), roles=["moderators"])
def review(message: Message) -> Question:
    why = message.failure.message if message.failure else message.reason
    return Question(f"Publish this message? {why}", evidence=message.text)


@content_review.step(retry=Retry(attempts=4))
async def publish(message: Message, run: Run[Board]) -> None:
    await run.effect(
        "publish",
        lambda key: run.services.publish(message.id, message.text, key=key),
        once_per=message.id,
        unclear="retry",  # the board takes an entry once per key
    )
    message.is_public = True


@content_review.step(retry=Retry(attempts=4))
async def withhold(message: Message, run: Run[Board]) -> None:
    await run.effect(
        "withhold",
        lambda key: run.services.withhold(message.id, message.reason, key=key),
        once_per=message.id,
        unclear="retry",
    )


@content_review.step(retry=Retry(attempts=4), optional=True)
async def notify(message: Message, run: Run[Board]) -> None:
    text = "Your message is published." if message.is_public else "Your message is not published."
    await run.effect("notify", lambda key: run.services.notify(message.id, text, key=key), unclear="retry")


def is_public(message: Message) -> bool:
    return message.is_public


published, withheld = content_review.end("published"), content_review.end("withheld")

content_review.build(
    start=clean,
    transitions=[
        clean.to(classify),
        classify.on(Label.ALLOW).to(publish),
        classify.on(Label.REJECT).to(withhold),
        classify.on(Label.UNSURE).to(review),
        classify.failed(Refused, Invalid, Truncated, Filtered).to(review),
        review.on(Decision.PUBLISH).to(publish),
        review.on(Decision.WITHHOLD).to(withhold),
        review.expired.to(withhold),
        publish.to(notify),
        withhold.to(notify),
        notify.when(is_public).to(published),
        notify.to(withheld),
    ],
)
