"""The crash matrix: one run for each point at which a life can end, and what became of all of them."""

import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.crash.evidence import Evidence, gathered, problems, thawed
from tests.crash.forks import KILLED, Child, Fork, fork
from tests.crash.lives import finish, frozen_at, look
from tests.crash.log import Log, read_log
from tests.crash.stores import PAST_THE_LEASE, Kind, Place

LANES = 2  # at work at the same time
LONGEST = 300.0  # seconds for one of them
A_FEW = 8  # points later a thawed one stands still again: by then it has tried to write
COME_ONCE = ("commit ", "effect ", "settle_effect ", "decide ")
Life = Callable[[Place, int], None]
Thaw = Callable[[Place, Fork], None]


@dataclass
class Count:
    """What a proof counted."""

    points: int = 0
    runs: int = 0
    recovered: int = 0
    bodies_repeated: int = 0
    effects_repeated: int = 0
    recorded_effects_repeated: int = 0
    doubts_asked: int = 0
    doubts_routed: int = 0
    late_calls: int = 0  # by workers that had lost the run, under the same key
    wrong: dict[str, list[str]] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    verdicts: dict[str, set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )  # of points that come once in a life
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, point: str, evidence: Evidence) -> None:
        """One more run was killed and finished."""
        found = problems(evidence)
        self.numbers.add(number)
        self.points = len(self.numbers)
        self.runs += 1
        self.recovered += not found
        self.bodies_repeated += evidence.bodies_repeated
        self.effects_repeated += evidence.effects_repeated
        self.recorded_effects_repeated += evidence.recorded_effects_repeated
        self.doubts_asked += len(evidence.log.said("asked"))
        self.doubts_routed += len(evidence.doubted)
        self.kinds[point.split(" ")[0].split(":")[0]] += 1
        if point.startswith(COME_ONCE) and ":shaky:" not in point:
            self.verdicts[point].add(verdict_of(point, evidence))
        if found:
            self.wrong[f"{number}: {point} ({evidence.run})"] = found

    def told(self) -> str:
        """What is wrong, one point a line; nothing, if all is well."""
        return "\n".join(f"{point}: {found}" for point, found in sorted(self.wrong.items()))


def verdict_of(point: str, evidence: Evidence) -> str:
    """How it went, without what differs between two runs of the same thing."""
    left = evidence.left
    parts = (point, left["revision"], left["end"], left["effects"], evidence.bodies_repeated, left["context"])
    return repr(parts).replace(evidence.run, "RUN")


def kill_everywhere(kind: Kind, life: Life, name: str = "r", stride: int = 1) -> Count:
    """Kill a life at each `stride`-th point in turn, until one meets no further point, and finish what it had begun."""
    lanes = [Child(_lane, kind, life, name, 1 + lane * stride, LANES * stride) for lane in range(LANES)]
    for lane in lanes:
        lane.end(LONGEST)
    count = Count()
    for number in itertools.count(1, stride):
        place = kind.place(f"{name}{number}")
        if not place.report.exists():
            return count
        point = read_log(place.log).met("first")[-1].replace(place.run, "r")
        for evidence in gathered(place):
            count.add(number, point, evidence)
    raise AssertionError("numbers do not end")


def _lane(kind: Kind, life: Life, name: str, first: int, stride: int) -> None:
    """Every so-many-th point, in a process that forks the lives."""
    for number in itertools.count(first, stride):
        place = kind.place(f"{name}{number}")
        if fork(life, place, number) != KILLED:
            return
        fork(finish, place)


def freeze_everywhere(kind: Kind, thaw: Thaw, *, stride: int = 1, name: str = "r") -> Count:
    """Stop a run at each `stride`-th point, let another process take it over, and let the first one go on."""
    lanes = [Child(_freezing_lane, kind, thaw, name, 1 + lane * stride, LANES * stride) for lane in range(LANES)]
    for lane in lanes:
        lane.end(LONGEST)
    count = Count()
    for number in itertools.count(1, stride):
        place = kind.place(f"{name}{number}")
        if not place.report.exists():
            return count
        told = json.loads(place.report.read_text(encoding="utf-8"))
        evidence, run = thawed(gathered(place)[0]), told[place.run]
        point = (place.log.parent / "point").read_text(encoding="utf-8").replace(place.run, "r")
        count.add(number, point, evidence)
        count.late_calls += evidence.thawed_in is not None
        if run["later"] != {name: value for name, value in run["left"].items() if name in run["later"]}:
            count.wrong.setdefault(f"{number}: {point}", []).append("the thawed one wrote something")
    raise AssertionError("numbers do not end")


def _freezing_lane(kind: Kind, thaw: Thaw, name: str, first: int, stride: int) -> None:
    for number in itertools.count(first, stride):
        place = kind.place(f"{name}{number}")
        frozen = Fork(frozen_at, place, frozenset({number, number + A_FEW}))
        if not frozen.stops():
            return
        point = read_log(place.log).met("first")[-1]
        (place.log.parent / "point").write_text(point, encoding="utf-8")
        thaw(place, frozen)
        fork(look, place)


def thaw_after(place: Place, frozen: Fork) -> None:
    """The other process ends the run; then the first one goes on."""
    try:
        fork(finish, place, PAST_THE_LEASE)
    finally:
        _go_on(place, frozen)
    if frozen.stops():
        frozen.go_on()
        frozen.end()


def thaw_meanwhile(place: Place, frozen: Fork) -> None:
    """The other process has taken the run over and is in the middle of the same state when the first one goes on."""
    successor = Fork(finish, place, PAST_THE_LEASE, "body ")
    try:
        taken = successor.stops()
    finally:
        _go_on(place, frozen)
    again = frozen.stops()
    if taken:
        successor.go_on()
        successor.end()
    if again:
        frozen.go_on()
        frozen.end()


def _go_on(place: Place, frozen: Fork) -> None:
    log = Log(place.log, "test")
    log.note("thaws", f"{place.run}:")
    log.close()
    frozen.go_on()


def show(title: str, rows: Sequence[tuple[str, object]]) -> None:
    """A table of counts on the standard output."""
    sys.stdout.write(f"\n{title}\n" + "".join(f"  {name:42} {value}\n" for name, value in rows))


def show_count(title: str, count: Count) -> None:
    """The table of a matrix."""
    rows: list[tuple[str, object]] = [
        ("points", count.points),
        ("runs at work there", count.runs),
        ("runs recovered, exactly 20 transitions", count.recovered),
        ("bodies repeated (at most one a run)", count.bodies_repeated),
        ("calls repeated under the same key", count.effects_repeated),
        ("recorded effects called again", count.recorded_effects_repeated),
        ("doubts asked about", count.doubts_asked),
        ("doubts routed as Unclear", count.doubts_routed),
    ]
    if count.late_calls:
        rows.append(("late calls of thawed workers, same key", count.late_calls))
    show(title, [*rows, *((f"  at {kind}", number) for kind, number in count.kinds.most_common())])
