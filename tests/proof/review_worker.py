"""A process that reviews messages and tells on its standard output which bodies begin (`S`) and return (`E`).

Run as `python -m tests.proof.review_worker DATABASE BOARD MESSAGES`; it ends when every run has ended.
"""

import asyncio
import functools
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentflow import App, Model
from agentflow.testing.scripted import ScriptedModel
from definitions.board import Board
from definitions.content_review import Message, content_review
from tests.acceptance.flows import ToReview, model_of


def say(*words: object) -> None:
    """One line, in one write, so that a kill leaves whole lines."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def log_bodies() -> None:
    """Let every body say when it begins and when it returns."""
    for state in content_review.definition.states.values():
        if state.kind == "step":
            state.body = logged_step(state.name, state.body)
        elif state.kind == "llm":
            state.body = logged_question(state.name, state.body)


def logged_step(name: str, body: Any) -> Any:
    @functools.wraps(body)
    async def run(message: Message, handle: Any) -> None:
        say("S", message.id, name)
        await body(message, handle)
        say("E", message.id, name)

    return run


def logged_question(name: str, body: Any) -> Any:
    @functools.wraps(body)
    def ask(message: Message) -> Any:
        say("S", message.id, name)
        return body(message)

    return ask


async def main(database: str, board: str, rows: Sequence[ToReview]) -> None:
    """Start every run that is not there yet, and stay until all have ended."""

    @asynccontextmanager
    async def open_board() -> AsyncGenerator[Board, None]:
        yield Board(Path(board))

    with ScriptedModel(model_of(rows)) as model:
        models = {"default": Model("scripted", base_url=model.base_url, api_key="test")}
        async with App([content_review], store=f"sqlite:///{database}", services=[open_board], models=models) as app:
            for row in rows:
                await app.start(content_review, Message(id=row.id, text=row.text), id=row.id)
            say("STARTED")
            for row in rows:
                await app.result(row.id)


if __name__ == "__main__":
    log_bodies()
    rows = json.loads(Path(sys.argv[3]).read_text(encoding="utf-8"))
    asyncio.run(main(sys.argv[1], sys.argv[2], [ToReview(**row) for row in rows]))
