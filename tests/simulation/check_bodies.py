"""Attempts and bodies: numbered, begun once, never early, lost only with their worker."""

from collections import defaultdict
from typing import Any

from agentflow.engine.head import failure_from_json
from agentflow.store.rows import AttemptRow
from tests.simulation.records import Begun
from tests.simulation.story import Broken, Check, Facts, Story

MAX_CRASHES = 5


def attempts(facts: Facts, story: Story) -> Broken:
    """Attempts of a visit are numbered without gap or double; an operator's retry begins at 1 again."""
    retries = facts.records.lives[story.row.id]
    visits: dict[tuple[str, int], list[AttemptRow]] = defaultdict(list)
    for attempt in story.attempts:
        visits[attempt.state, attempt.visit].append(attempt)
    for place, rows in visits.items():
        numbers = [row.attempt for row in rows]
        restarts = sum(number == 1 for number in numbers) - 1
        steps = all(now in {before + 1, 1} for before, now in zip([0, *numbers], numbers, strict=False))
        if restarts > retries or not steps:
            yield "attempts are numbered without gap or double", place, numbers
    for line in story.history[1:]:
        rows = visits[line.source or "", line.visit]
        last = rows[-1].attempt if rows else 0
        if line.attempt not in ({last, last + 1} if retries == 0 else {last, last + 1, 1}):
            yield "the attempt that answered follows those that did not", line.revision, line.attempt, last


def lost(facts: Facts, story: Story) -> Broken:
    """An attempt is lost only where a run was taken over, and a crash loop is one."""
    count = sum(attempt.outcome == "lost" for attempt in story.attempts)
    takeovers = sum(claim.takes_over for claim in facts.records.claims if claim.run == story.row.id)
    if count > takeovers:
        yield "an attempt is lost only with its worker", count, takeovers
    failure = failure_from_json(story.row.standing.failure)
    if story.row.standing.status == "failed" and failure is not None and failure.kind == "CrashLoop":
        facts.records.counts["CrashLoop"] += 1
        here = sum(a.outcome == "lost" and a.revision == story.row.revision for a in story.attempts)
        if here < MAX_CRASHES:
            yield "a crash loop is declared after five crashes", here


def begun_once(facts: Facts, story: Story) -> Broken:
    """A body begins once per attempt unless its worker was interrupted, and never in a visit that is over."""
    before: dict[tuple[Any, ...], Begun] = {}
    for begun in facts.bodies(story.row.id):
        key = (begun.state, begun.visit, begun.attempt, facts.claim(begun).life)
        first = before.get(key)
        if first is not None and not _is_excused(facts, first, begun):
            yield "a body that nothing interrupted begins once per attempt", key, first.worker, begun.worker
        before[key] = begun
    left = {
        (one.commit.history.source, one.commit.history.visit): one.number
        for one in facts.records.accepted
        if one.commit.run == story.row.id and one.commit.history is not None
    }
    for begun in facts.bodies(story.row.id):
        gone = left.get((begun.state, begun.visit))
        if gone is not None and facts.claim(begun).number > gone:
            yield "no body begins in a visit that is over", begun.state, begun.visit, begun.worker


def _is_excused(facts: Facts, first: Begun, again: Begun) -> bool:
    since = facts.claim(first).number
    return any(since < number < again.number for number in facts.records.excuses[first.worker])


def early(facts: Facts, story: Story) -> Broken:
    """No retry and no expiry comes before its instant."""
    until = {
        (row.state, row.visit, row.attempt + 1): row.retry_at for row in story.attempts if row.retry_at is not None
    }
    for begun in facts.bodies(story.row.id):
        due = until.get((begun.state, begun.visit, begun.attempt))
        if due is None or begun.at >= due or facts.claim(begun).life != facts.records.lives[begun.run]:
            continue
        if not _was_woken(facts, begun):
            yield "a retry never comes early", begun.state, begun.attempt, due - begun.at
    yield from _early_expiries(story)


def _was_woken(facts: Facts, begun: Begun) -> bool:
    """Whether an operator wanted it to be looked at now: then a retry is not early."""
    return any(
        command.run == begun.run and command.command == "look again" and number < begun.number
        for number, command in facts.records.commands
    )


def _early_expiries(story: Story) -> Broken:
    waits = {(wait.state, wait.visit): wait for wait in story.waits}
    for line in story.history[1:]:
        wait = waits.get((line.source or "", line.visit))
        if line.event == "expired" and (wait is None or wait.due_at is None or line.at < wait.due_at):
            yield "an expiry never comes early", line.revision


CHECKS: tuple[Check, ...] = (attempts, lost, begun_once, early)
