"""What must hold of a run that lost its process: compared with what the store and the outside remember.

Nothing here asks the engine what it thinks of itself: committed revisions are compared with those of the end, and
calls with the ledger as it was found after the death.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.crash.journey import TRANSITIONS, receipt
from tests.crash.log import Read, read_log
from tests.crash.stores import Place

USUAL = {"shaky": 2}  # bodies that begin more than once by themselves: its first attempt fails
EFFECTS = (
    "reserve:1:reserve", "charge:1:charge", "ship:1:ship", "shaky:1:first", "shaky:1:second", "stamp:1:stamp",
    "stamp:2:stamp", "stamp:3:stamp", "seal:1:body", "papers:1:papers:a", "papers:1:papers:b", "bill:1:bill",
)  # fmt: skip
ASKED = ("charge:1:charge", "shaky:1:second")
NEVER_AGAIN = ("ship:1:ship", "seal:1:body")  # nobody can say whether they happened


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known about a run of several lives; `last` is the one that finished it."""

    run: str
    log: Read
    found: dict[str, Any] | None  # the run as the last life found it
    left: dict[str, Any]
    doubted: frozenset[str]  # effects of which nobody can know whether they happened
    last: str = "second"
    thawed_in: str | None = None  # the key of a call that the world saw from a worker that had lost the run

    @property
    def committed(self) -> Sequence[dict[str, Any]]:
        return [] if self.found is None else self.found["history"]

    @property
    def ledger(self) -> dict[str, str]:
        return {} if self.found is None else self.found["effects"]

    @property
    def bodies_repeated(self) -> int:
        return sum(self._excess().values())

    @property
    def effects_repeated(self) -> int:
        """Calls beyond the first under a key: allowed where the result was never recorded."""
        return sum(count - 1 for count in self.log.count("acted").values())

    @property
    def recorded_effects_repeated(self) -> int:
        """Calls by the last life although the result had been recorded: there must be none."""
        acted = self.log.count("acted", self.last)
        return sum(count for key, count in acted.items() if self.ledger.get(key) == "done")

    def _excess(self) -> Counter[str]:
        begun = self.log.count("begun")
        usual = Counter({body: USUAL.get(body.split(":")[1], 1) for body in begun})
        return begun - usual


def gathered(place: Place) -> list[Evidence]:
    """The evidence of runs whose last life found them dead: a claim without a result is a doubt."""
    log, gathered = read_log(place.log), list[Evidence]()
    for run, told in json.loads(place.report.read_text(encoding="utf-8")).items():
        found = told["found"]
        ledger = {} if found is None else found["effects"]
        doubted = frozenset(key for key in NEVER_AGAIN if ledger.get(f"{run}:{key}") == "claimed")
        gathered.append(Evidence(run, log.of(run), found, told["left"], doubted))
    return gathered


def thawed(evidence: Evidence) -> Evidence:
    """The evidence of a run whose first life stood still while the second finished it, and then went on."""
    lines = list(evidence.log.lines)
    thaw = next(number for number, line in enumerate(lines) if line.kind == "thaws")
    late = [line.what for line in lines[thaw:] if (line.life, line.kind) == ("first", "acted")]
    assert len(late) <= 1, late  # it calls once at most: then it learns that it lost the run
    return replace(evidence, thawed_in=late[0] if late else None)


def told_by_ledger(run: str, log: Read, left: dict[str, Any]) -> Evidence:
    """The evidence of a run that lived on: its ledger says what is in doubt."""
    doubted = frozenset(key for key in NEVER_AGAIN if left["effects"].get(f"{run}:{key}") != "done")
    return Evidence(run, log, None, left, doubted)


def problems(evidence: Evidence) -> list[str]:
    """All that is wrong with a run that was killed; nothing, if all is well."""
    return [*lasting_problems(evidence), *_after_death(evidence)]


def lasting_problems(evidence: Evidence) -> list[str]:
    """All that is wrong with a run, however it came to its end."""
    return [*_ending(evidence), *_history(evidence), *_bodies(evidence), *_ledger(evidence), *_calls(evidence)]


def _ending(evidence: Evidence) -> Iterator[str]:
    left = evidence.left
    standing = (left["status"], left["end"], left["snapshot_end"], left["revision"], left["session"], left["due"])
    if standing != ("completed", "arrived", "arrived", TRANSITIONS, None, False):
        yield f"it ended as {standing}"
    if left["open waits"] or left["stranded"]:
        yield f"left open: {left['open waits']}, stranded: {left['stranded']}"
    if left["waits"] != [[f"{evidence.run}.approval.1", "decided", "YES"]]:
        yield f"waits: {left['waits']}"
    if left["context"] != (wanted := expected_context(evidence)):
        yield f"context {left['context']} instead of {wanted}"


def _history(evidence: Evidence) -> Iterator[str]:
    history = evidence.left["history"]
    revisions = [line["revision"] for line in history]
    if revisions != list(range(TRANSITIONS + 1)):
        yield f"revisions {revisions}"
    path = [line["source"] for line in history[1:]]
    if path != (wanted := expected_path(evidence)):
        yield f"path {path} instead of {wanted}"
    if [line["target"] for line in history[1:-1]] != path[1:]:
        yield "a transition does not begin where the one before it led"


def _bodies(evidence: Evidence) -> Iterator[str]:
    begun = evidence.log.count("begun")
    if evidence.bodies_repeated > 1:
        yield f"more than one body was repeated: {evidence._excess()}"
    wanted = {f"{evidence.run}:{place}" for place in expected_trail(evidence)}
    if missing := wanted - set(begun):
        yield f"bodies that never began: {missing}"
    lost = [line for line in evidence.left["attempts"] if line[3] == "lost"]
    failed = [line[:2] for line in evidence.left["attempts"] if line[3] == "failed"]
    if len(lost) > 1:
        yield f"lost attempts: {lost}"
    allowed = [["shaky", 1], *([key.split(":")[0], 1] for key in evidence.doubted)]
    if [line for line in failed if line not in allowed]:
        yield f"failed attempts: {failed}"


def _ledger(evidence: Evidence) -> Iterator[str]:
    ledger = {key.removeprefix(f"{evidence.run}:"): status for key, status in evidence.left["effects"].items()}
    wanted = {key: "unclear" if key in evidence.doubted else "done" for key in EFFECTS}
    if ledger != wanted:
        yield f"ledger {ledger}"
    for key, result in evidence.left["results"].items():
        plain = key.removeprefix(f"{evidence.run}:")
        if plain not in NEVER_AGAIN and result != json.dumps(receipt(key)):
            yield f"result of {plain}: {result}"


def _calls(evidence: Evidence) -> Iterator[str]:
    """How often the outside was called under each key."""
    acted = evidence.log.count("acted")
    if unknown := set(acted) - {f"{evidence.run}:{key}" for key in EFFECTS}:
        yield f"calls under other keys: {unknown}"
    for plain in EFFECTS:
        calls = acted[f"{evidence.run}:{plain}"]
        if calls not in _allowed_in_all(evidence, plain):
            yield f"{plain} was called {calls} times"
    recorded: set[str] = set()
    for line in evidence.log.lines:
        if line.kind == "point" and line.what.startswith("settle_effect") and line.what.endswith(" done:after"):
            recorded.add(line.what.split(" ")[1])
        if line.kind == "acted" and line.what in recorded and line.what != evidence.thawed_in:
            yield f"{line.what} was called after its result was recorded"


def _allowed_in_all(evidence: Evidence, plain: str) -> set[int]:
    if plain in evidence.doubted:
        return {0, 1}
    allowed = {1} if plain in {*ASKED, *NEVER_AGAIN} else {1, 2}
    if evidence.thawed_in == f"{evidence.run}:{plain}":
        return allowed | {count + 1 for count in allowed}
    return allowed


def _after_death(evidence: Evidence) -> Iterator[str]:
    """What the last life did, in view of what it found."""
    if evidence.left["history"][: len(evidence.committed)] != evidence.committed:
        yield "what was committed before the death has changed"
    if evidence.found is not None and evidence.found["revision"] != len(evidence.committed) - 1:
        yield f"revision {evidence.found['revision']} with {len(evidence.committed)} rows of history"
    committed = {f"{evidence.run}:{line['source']}:{line['visit']}" for line in evidence.committed[1:]}
    if again := committed & set(evidence.log.count("begun", evidence.last)):
        yield f"bodies whose transition was committed began again: {again}"
    acted, all_acted = evidence.log.count("acted", evidence.last), evidence.log.count("acted")
    for plain in EFFECTS:
        key = f"{evidence.run}:{plain}"
        before = all_acted[key] - acted[key] - (key == evidence.thawed_in)
        if acted[key] not in _allowed(evidence, plain, before):
            yield f"{plain}: {before} calls before the death, {acted[key]} after it ({evidence.ledger.get(key)})"


def _allowed(evidence: Evidence, plain: str, before: int) -> set[int]:
    """How many calls the last life may make."""
    match evidence.ledger.get(f"{evidence.run}:{plain}"):
        case "done":
            return {0}  # recorded: replayed
        case None:
            return {1}  # not begun
        case _ if plain in NEVER_AGAIN:
            return {0}
        case _ if plain in ASKED and evidence.thawed_in == f"{evidence.run}:{plain}":
            return {0, 1}  # it had happened by then, or not
        case _ if plain in ASKED:
            return {0} if before else {1}  # the world knows whether it happened
        case _:
            return {1}  # the same key again


def expected_trail(evidence: Evidence) -> list[str]:
    """Bodies that answered, in order: those that the context tells of."""
    ship = "doubt_ship:1" if "ship:1:ship" in evidence.doubted else "shipped:1"
    seal = "doubt_seal:1" if "seal:1:body" in evidence.doubted else "sealed:1"
    trail = [
        "gather:1", "weigh:1", "reserve:1", "charge:1", "ship:1", ship, "shaky:1", "stamp:1", "stamp:2", "stamp:3",
        "seal:1", seal, "papers:1", "tally:1", "bill:1", "jot:1", "wrap:1", "farewell:1",
    ]  # fmt: skip
    failed = {key.rpartition(":")[0] for key in evidence.doubted}
    return [place for place in trail if place not in failed]


def expected_path(evidence: Evidence) -> list[str]:
    """The states that were left, in order."""
    ship = "doubt_ship" if "ship:1:ship" in evidence.doubted else "shipped"
    seal = "doubt_seal" if "seal:1:body" in evidence.doubted else "sealed"
    return [
        "gather", "weigh", "reserve", "charge", "ship", ship, "shaky", "approval", "stamp", "stamp", "stamp", "seal",
        seal, "papers", "tally", "bill", "jot", "extra", "wrap", "farewell",
    ]  # fmt: skip


def expected_context(evidence: Evidence) -> dict[str, Any]:
    """The context of the end, exactly."""
    run, doubted = evidence.run, evidence.doubted
    receipts = {
        "reserve": receipt(f"{run}:reserve:1:reserve"),
        "charge": receipt(f"{run}:charge:1:charge"),
        **({} if "ship:1:ship" in doubted else {"ship": receipt(f"{run}:ship:1:ship")}),
        "shaky": f"{receipt(f'{run}:shaky:1:first')}, {receipt(f'{run}:shaky:1:second')}",
        "papers a": receipt(f"{run}:papers:1:papers:a"),
        "papers b": receipt(f"{run}:papers:1:papers:b"),
        "bill": receipt(f"{run}:bill:1:bill"),
    }
    return {
        "order": f"order of {run}",
        "weight": 1200,
        "total": f"{12.5 + len(receipts) - 1:.2f}",
        "receipts": receipts,
        "doubts": [f"{key.split(':')[0]} Unclear" for key in NEVER_AGAIN if key in doubted],
        "stamps": [1, 2, 3],
        "trail": expected_trail(evidence),
        "answered": "yes by ada@shop.example",
        "notes": 5 - len(doubted),
    }
