"""History, contexts and transitions: each is once there, and follows from the one before."""

import json
from collections import Counter
from itertools import pairwise

from agentflow.engine.head import failure_from_json
from agentflow.model.definition import guard_name
from agentflow.store.rows import HistoryRow
from tests.simulation.flows import Case
from tests.simulation.story import Broken, Check, Facts, Story


def numbers(facts: Facts, story: Story) -> Broken:
    """Revisions 0..n, each starting where the one before led; the run stands where they end."""
    found = [line.revision for line in story.history]
    if found != list(range(len(found))):
        yield "history has no gap and no double", found
    for before, line in pairwise(story.history):
        if line.source != before.target:
            yield "each transition starts where the one before led", line.revision, line.source, before.target
    last = story.history[-1]
    if (story.row.revision, story.row.standing.state) != (last.revision, last.target):
        yield "the run stands where its history ends", story.row.standing.state, last.target


def commits(facts: Facts, story: Story) -> Broken:
    """Every accepted commit is there, as it was sent, and nothing else is."""
    mine = [one.commit for one in facts.records.accepted if one.commit.run == story.row.id]
    written = [commit.history for commit in mine if commit.history is not None]
    if Counter(line.revision for line in written) != Counter(line.revision for line in story.history[1:]):
        yield "one accepted commit per revision", sorted(line.revision for line in written), len(story.history)
    for line in written:
        if line.revision < len(story.history) and story.history[line.revision] != line:
            yield "what was accepted is what is stored", line.revision


def contexts(facts: Facts, story: Story) -> Broken:
    """What workers and bodies saw is the fold of the stored differences."""
    for run, revision, texts in facts.records.shown:
        if run != story.row.id or revision >= len(story.folds):
            continue
        fold = story.folds[revision]
        wrong = [name for name, text in texts.items() if json.loads(text) != fold.get(name)]
        if wrong:
            yield "the context is the fold of its differences", revision, wrong
    for begun in facts.bodies(story.row.id):
        entry = story.entries.get((begun.state, begun.visit))
        if entry is None:
            yield "a body begins only in a visit that history knows", begun.state, begun.visit
        elif json.loads(begun.seen) != story.folds[entry]:
            yield "a body sees the context of its visit", begun.state, begun.visit, begun.seen, story.folds[entry]


def logs(facts: Facts, story: Story) -> Broken:
    """Each answer of a step left its mark exactly once."""
    steps = {name for name, state in story.definition.states.items() if state.kind == "step"}
    left = [
        f"{line.source}:{line.visit}"
        for line in story.history[1:]
        if line.source in steps and (line.event == "done" or line.event.startswith("on:"))
        and line.outcome != "skipped"
    ]  # fmt: skip
    if story.folds[-1].get("log", []) != left:
        yield "each step left its mark once", story.folds[-1].get("log"), left


def transitions(facts: Facts, story: Story) -> Broken:
    """Each transition is the one that the table chooses, with the guards that history tells."""
    rescued = False
    for line in story.history[1:]:
        expected = expected_transition(story, line, rescued=rescued)
        if expected is None:
            yield "the table allows each transition", line.revision, line.source, line.event, line.target
            continue
        target, guards, rescued = expected
        told = [tuple(guard) for guard in json.loads(line.guards)] if line.guards else []
        if (line.target, told) != (target, guards):
            yield "the first row whose guards hold is taken", line.revision, line.target, told, target, guards


def expected_transition(
    story: Story, line: HistoryRow, *, rescued: bool
) -> tuple[str, list[tuple[str, bool]], bool] | None:
    """Target and guards that the table says, and whether the workflow's own exit is used up by then."""
    event, _, outcome = line.event.partition(":")
    failure = failure_from_json(line.failure)
    state = story.definition.states.get(line.source or "")
    if state is None:
        return None
    context = Case.model_validate(story.folds[line.revision])
    told: list[tuple[str, bool]] = []
    for row in (*state.rows, *story.definition.rescues):
        exit = row.exit
        is_rescue = exit.place is None
        if exit.event != event or (is_rescue and rescued):
            continue
        if event == "on" and outcome not in {member.name for member in exit.outcomes}:
            continue
        if exit.failures and not any(failure is not None and failure.matches(kind) for kind in exit.failures):
            continue
        results = [(guard_name(guard), guard(context)) for guard in exit.guards]
        told += results
        if all(result for _, result in results):
            return row.target.name, told, rescued or is_rescue
    return None


CHECKS: tuple[Check, ...] = (numbers, commits, contexts, logs, transitions)
