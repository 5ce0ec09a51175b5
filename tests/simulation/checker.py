"""Looks at one finished simulation: everything that must hold when it is over."""

from collections import Counter
from collections.abc import Sequence

from tests.simulation import check_bodies, check_effects, check_history, check_people
from tests.simulation.story import Broken, Facts

CHECKS = (*check_history.CHECKS, *check_bodies.CHECKS, *check_people.CHECKS, *check_effects.CHECKS)


def check(facts: Facts, runs: Sequence[str]) -> None:
    """Note whatever is broken."""
    for run in runs:
        story = facts.story(run)
        if story is None:
            continue
        for look in CHECKS:
            for rule, *details in look(facts, story):
                facts.records.breaks(run, rule, *details)
    for run, rule, *details in (*acknowledged(facts), *check_effects.effects(facts), *check_effects.businesses(facts)):
        facts.records.breaks(run, rule, *details)


def acknowledged(facts: Facts) -> Broken:
    """What a worker was told is durable is there, and was told once."""
    told = Counter((commit.run, commit.revision) for commit in facts.records.acknowledged if commit.history)
    accepted = {(one.commit.run, one.commit.revision) for one in facts.records.accepted if one.commit.history}
    for (run, revision), times in told.items():
        if times > 1 or (run, revision) not in accepted:
            yield run, "each revision is acknowledged once, and then it is there", revision, times
