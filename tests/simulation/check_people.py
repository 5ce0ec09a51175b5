"""People and ends: one decision counts, a cancel is obeyed, and every run comes to an end that its author declared."""

import json
from collections import defaultdict
from typing import Any

from agentflow.engine.head import failure_from_json
from agentflow.store.rows import TERMINAL, HistoryRow, WaitRow
from tests.simulation.story import Broken, Check, Facts, Story

TYPED = frozenset({"CrashLoop", "Unclear", "OverLimit", "Shaky", "Declined", "ConnectionRefusedError", "TimeoutError",
                   "TimedOut", "Retryable"})  # fmt: skip


def decisions(facts: Facts, story: Story) -> Broken:
    """Exactly one decision counts, and history carries it."""
    winners: dict[str, list[Any]] = defaultdict(list)
    for decision in facts.records.decided:
        winners[decision.wait].append(decision)
    lines = {(line.source, line.visit): line for line in story.history[1:]}
    for wait in story.waits:
        won, line = winners[wait.id], lines.get((wait.state, wait.visit))
        if len(won) > 1:
            yield "exactly one decision is applied", wait.id, len(won)
        if (len(won) == 1) != (wait.status == "decided"):
            yield "a wait is decided exactly if a decision was applied", wait.id, wait.status
        if won and (wait.outcome, wait.actor) != (won[0].outcome, won[0].actor):
            yield "the wait keeps the decision that won", wait.id
        if line is not None:
            yield from _decision_in(line, wait)


def _decision_in(line: HistoryRow, wait: WaitRow) -> Broken:
    """What history says of a wait's end agrees with the wait."""
    match line.event.partition(":")[0]:
        case "on":
            if wait.status != "decided" or (line.outcome, line.actor) != (wait.outcome, wait.actor):
                yield "history carries the decision that won", wait.id, line.outcome, wait.outcome, wait.status
        case "expired":
            if wait.status != "expired":
                yield "expired and decided exclude each other", wait.id, wait.status
        case event:
            yield "a wait is decided or expires", wait.id, event


def cancels(facts: Facts, story: Story) -> Broken:
    """After a cancel at most the body at work finishes, until an operator retries."""
    run, cancelled, moves = story.row.id, False, 0
    events = [(number, command.command) for number, command in facts.records.commands if command.run == run
              and command.status == "applied"]  # fmt: skip
    events += [(one.number, "moves") for one in facts.records.accepted if one.commit.run == run and one.commit.history]
    for _, what in sorted(events):
        if what == "retry":
            cancelled, moves = False, 0
        cancelled = cancelled or what == "cancel"
        moves += what == "moves" and cancelled
        if moves > 1:
            yield "a cancel takes effect at the next commit", what
            return
    if cancelled and story.row.standing.status not in TERMINAL:
        yield "a cancelled run ends", story.row.standing.status


def ends(facts: Facts, story: Story) -> Broken:
    """After a calm time each run is at a declared end, failed for a reason, cancelled, or waits for a person."""
    standing, definition = story.row.standing, story.definition
    failure = failure_from_json(standing.failure)
    if standing.blocked is not None:
        yield "no run is blocked", standing.blocked
    if standing.status in {"completed", "failed"} and standing.end is not None:
        if standing.end not in definition.ends or definition.ends[standing.end].failed != (standing.status == "failed"):
            yield "a run ends at a declared end", standing
    elif standing.status == "failed":
        if failure is None or failure.kind not in TYPED:
            yield "a run fails with a typed failure", failure
    elif standing.status == "waiting":
        if not any((w.state, w.visit, w.status) == (standing.state, standing.visit, "open") for w in story.waits):
            yield "a run that waits has an open question", standing
    elif standing.status != "cancelled":
        yield "after a calm time every run has ended or waits for a person", standing, story.row.session


def promises(facts: Facts, story: Story) -> Broken:
    """Who was told that the decision counts finds it there; who was refused does not."""
    waits = {wait.id: wait for wait in story.waits}
    for promise in facts.promises:
        wait = waits.get(promise.wait)
        if wait is None:
            continue
        actor = json.loads(wait.actor)["subject"] if wait.actor is not None else None
        is_there = (wait.outcome, actor) == (promise.outcome, promise.subject)
        if is_there != (promise.status in {"applied", "already"}):
            yield "a person's decision is there exactly if they were told so", promise, wait.outcome, actor


CHECKS: tuple[Check, ...] = (decisions, promises, cancels, ends)
