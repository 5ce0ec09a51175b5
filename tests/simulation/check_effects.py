"""Effects: called after they were claimed, under one key, and not again once it is known that they happened."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from agentflow.store.rows import EffectRow
from tests.simulation.story import Broken, Check, Facts, Story


def effects(facts: Facts) -> Broken:
    """Each call comes after its claim in the ledger, under the one key of its effect."""
    for identity, keys in facts.watch.keys.items():
        if len(keys) > 1 + facts.records.lives[identity[0]]:
            yield identity[0], "an effect has one key", identity, keys
    left = Counter(key for _, _, key in facts.watch.begins)
    for call in facts.world.calls:
        begun = min((number for number, _, key in facts.watch.begins if key == call.key), default=None)
        if begun is None or begun > call.number:
            yield call.run, "no call without a claim in the ledger", call.key, call.worker
        left[call.key] -= 1
        if left[call.key] < 0 and not facts.watch.is_left_to_the_key(call.key):
            yield call.run, "an effect is called once per claim in the ledger", call.key, call.worker


def businesses(facts: Facts) -> Broken:
    """A business key acts once, unless the world said of what came before that it did not happen."""
    keys: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for seen in facts.watch.effects.values():
        claim = seen.claim
        if claim.once_per is not None:
            keys[claim.workflow, claim.name, claim.once_per].append(claim.key)
    for business, mine in keys.items():
        acts = sorted((facts.world.acts[key].number, key) for key in mine if key in facts.world.acts)
        for (earlier, before), (number, key) in pairwise(acts):
            by_zombie = not facts.world.acts[key].is_holder and _denied(facts, key, earlier)  # nobody can call it back
            if not by_zombie and not _denied(facts, before, number):
                yield key.partition(":")[0], "once_per acts once", business, before, key


def _denied(facts: Facts, key: str, before: int) -> bool:
    return any(said < before for said in facts.world.denied.get(key, ()))


def receipts(facts: Facts, story: Story) -> Broken:
    """What a body was told of an effect is what the world answered."""
    known = set(facts.world.receipts.values())
    for name, receipt in story.folds[-1].get("receipts", {}).items():
        if receipt not in known:
            yield "a receipt comes from the world", name, receipt


def settled(facts: Facts, story: Story) -> Broken:
    """A step that answered knew the results of its effects, so none of them is left in doubt."""
    answered = {
        (line.source, line.visit) for line in story.history[1:] if line.event == "done" or line.event.startswith("on:")
    }
    for row in facts.watch.ask(facts.watch.store.effects(run=story.row.id)):
        if (row.state, row.visit) in answered and row.status in {"claimed", "unclear"} and not is_older(row, facts):
            yield "a step that answered leaves no effect in doubt", row.key, row.status


def is_older(row: EffectRow, facts: Facts) -> bool:
    """Whether an operator's retry gave the effect a new key since."""
    keys = facts.watch.keys[row.run, row.state, row.visit, row.name, row.item]
    return any(facts.watch.effects[key].claim.generation > row.generation for key in keys)


CHECKS: tuple[Check, ...] = (receipts, settled)
