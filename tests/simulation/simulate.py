"""One seed, one simulation: `python -m tests.simulation.simulate SEED` prints its trace."""

import asyncio
import logging
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agentflow.app.starting import new_run
from agentflow.errors import StoreError
from agentflow.model.definition import Definition
from agentflow.store.memory import MemoryStore
from agentflow.store.rows import TERMINAL, RunFilter
from tests.simulation.checker import check
from tests.simulation.faults import FaultyStore, Process, Rates, Weather
from tests.simulation.flows import Case
from tests.simulation.loop import Lane, Stuck, VirtualLoop
from tests.simulation.people import People, of_store
from tests.simulation.records import Records
from tests.simulation.shelf import flows
from tests.simulation.story import Facts
from tests.simulation.watch import Watch
from tests.simulation.workers import Cluster
from tests.simulation.world import World

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
CALM_AT_MOST = 60.0  # seconds in which everything that can end must end
CALM = Rates(travel=0.05)
LOOK = 0.5  # how often the referee looks, in seconds


@dataclass(frozen=True, slots=True)
class Report:
    """What came out of one seed."""

    seed: int
    broken: Sequence[str]
    trace: str
    runs: Mapping[str, str]  # where each stands
    counts: Mapping[str, int]
    turns: int
    seconds: float  # virtual

    def __str__(self) -> str:
        if not self.broken:
            return f"seed {self.seed}: all guarantees hold"
        last = "\n".join(self.trace.splitlines()[-40:])
        return f"seed {self.seed}: " + "\n  ".join(self.broken[:5]) + f"\n--- the last 40 lines\n{last}"


def drawn_rates(rng: random.Random) -> Rates:
    """The weather of a seed, from calm to brutal."""
    force = rng.choice((0.0, 0.3, 1.0, 1.0, 3.0))

    def some(most: float) -> float:
        return force * most * rng.random() if rng.random() < 0.7 else 0.0

    return Rates(
        travel=rng.choice((0.1, 0.3, 0.5)),
        longest=rng.choice((0.02, 0.1, 0.3)),
        fail_before=some(0.02),
        fail_after=some(0.02),
        die_before=some(0.01),
        die_after=some(0.01),
        die_sent=some(0.006),
        freeze_before=some(0.01),
        freeze_after=some(0.006),
        freeze_sent=some(0.01),
        frozen=rng.choice((1.0, 3.0)),
        beat=some(0.2),
        body_dies=some(0.03),
        world=some(0.5),
        moves=some(0.5),
        jumps=some(0.3),
        interrupts=rng.random() < 0.2,
    )


class Simulation:
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = VirtualLoop(random.Random(f"{seed} order"))
        self.records = Records(lambda: self.loop.micros)
        self.jumped = timedelta(0)
        self.weather = Weather(random.Random(f"{seed} faults"), Rates())
        self.weather.change(drawn_rates(self.rng))
        self.lease = timedelta(seconds=self.rng.choice((0.8, 1.5)))
        self.store = MemoryStore(clock=self.now, lease=self.lease)
        self.network = Lane("network")
        self.world = World(self.weather, self.records, self.now)
        self.watch = Watch(self.store, self.records, self.world, self.lease)
        self.definitions: Mapping[tuple[str, int], Definition] = {
            (flow.name, 1): flow.definition for flow in flows().values()
        }
        self.runs = [f"r{number}" for number in range(self.rng.choice((3, 5, 7, 9)))]
        self.cluster = self._cluster()
        self.people = self._people()

    def now(self) -> datetime:
        """The wall clock that the store asks."""
        return EPOCH + timedelta(microseconds=self.loop.micros) + self.jumped

    def _store_for(self, process: Process) -> FaultyStore:
        return FaultyStore(self.store, process, self.weather, self.records, self.watch.observe, self.network)

    def _cluster(self) -> Cluster:
        return Cluster(
            make_store=self._store_for,
            definitions=self.definitions,
            world=self.world,
            weather=self.weather,
            records=self.records,
            loop=self.loop,
            network=self.network,
            size=self.rng.choice((1, 2, 3, 4)),
            heartbeat=self.lease.total_seconds() / 3,
            short_wait=timedelta(seconds=self.rng.choice((0.0, 0.5, 2.0))),
        )

    def _people(self) -> People:
        return People(
            store=of_store(self._store_for(Crowd())),
            definitions=self.definitions,
            weather=self.weather,
            records=self.records,
            diligence=self.rng.choice((0.5, 0.9, 1.0)),
            meddling=self.rng.choice((0.0, 0.5, 1.5)),
        )

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Simulate, check, report."""
        try:
            self.loop.run(self._play(), Lane("referee"))
        except Stuck as stuck:
            self.records.breaks("all", "nothing spins and nothing stands still", stuck)
        check(Facts(self.records, self.watch, self.world, self.people.promises, self.definitions), self.runs)
        self._look_at_tasks()
        report = self._report()
        self.records.over = self.weather.over = True
        self.loop.clear_away()
        return report

    async def _play(self) -> None:
        spawn = self.loop.spawn
        for _ in range(self.cluster.size):
            self.cluster.add()
        crowd, nature = Lane("people").context(), Lane("nature").context()
        for work in (self._start_runs(), self.people.answer(), self.people.meddle()):
            spawn(work, crowd)
        for work in (self.cluster.keep(), self._jump()):
            spawn(work, nature)
        await self._until(self.loop.time() + self.rng.uniform(3, 8))
        self.records.tell("nature", "calms down")
        self.weather.change(CALM)
        self.people.at_rest = True
        await self._until_rest()

    async def _until(self, instant: float) -> None:
        for _ in range(int((instant - self.loop.time()) / LOOK)):
            if not self.records.broken:
                await asyncio.sleep(LOOK)

    async def _until_rest(self) -> None:
        quiet = 0
        for _ in range(int(CALM_AT_MOST / LOOK)):
            await asyncio.sleep(LOOK)
            quiet = quiet + 1 if self._is_at_rest() else 0
            if quiet == 3 or self.records.broken:
                return

    def _is_at_rest(self) -> bool:
        rows = self.watch.ask(self.store.runs(RunFilter(limit=100)))
        return len(rows) == len(self.runs) and all(
            row.standing.status in TERMINAL
            or (row.standing.status == "waiting" and row.standing.due_at is None and row.session is None)
            for row in rows
        )

    async def _start_runs(self) -> None:
        names = sorted(flows())
        some = self.rng.sample(names, self.rng.choice((1, 2, 4)))
        for run in self.runs:
            flow = flows()[self.rng.choice(some)]
            if flow.name == "killer":
                self.world.killers.add(run)
            await asyncio.sleep(self.rng.uniform(0, 0.5))
            case = Case(order=f"o{self.rng.randrange(2)}")
            new = new_run(flow.definition, case, run=run, now=self.now(), batch=None)
            self.records.tell("people", "starts", run, flow.name)
            while True:
                try:
                    await self.people.store.create_run(new)
                    break
                except StoreError:
                    await asyncio.sleep(0.1)

    async def _jump(self) -> None:
        """The wall clock jumps forwards; the clocks of the loops, which only count, do not."""
        while True:
            await asyncio.sleep(1)
            if self.weather.happens(self.weather.rates.jumps):
                by = timedelta(microseconds=int(self.weather.between(0, 2) * 1e6))
                self.jumped += by
                for worker in self.cluster.workers:
                    self.records.excuse(worker.name, "clock jumps", by)

    # --- reporting -------------------------------------------------------------------------------------------------

    def _look_at_tasks(self) -> None:
        """No task of the product dies of an error that nobody handles."""
        for task in self.loop.tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.records.breaks(task.get_name(), "no task dies unheard", repr(task.exception()))
        for complaint in self.loop.complaints:
            self.records.breaks("all", "no callback fails", complaint)

    def _report(self) -> Report:
        stands: dict[str, str] = {}
        for row in self.watch.ask(self.store.runs(RunFilter(limit=100))):
            standing = row.standing
            stands[row.id] = f"{row.workflow} {standing.status} {standing.end or standing.state}"
        return Report(
            self.seed,
            tuple(self.records.broken),
            self.records.trace(),
            stands,
            dict(self.records.counts),
            self.loop.turns,
            self.loop.time(),
        )


class Crowd:
    """The people's process, which neither dies nor freezes."""

    is_mortal = False

    def __init__(self) -> None:
        self.lane = Lane("people")

    def die(self, why: str) -> None:
        raise AssertionError(why)

    def freeze(self, seconds: float, why: str) -> None:
        raise AssertionError(why)


def simulate(seed: int) -> Report:
    """Play one seed. What it draws comes from the seed alone, and Python's own generator is as it was."""
    state, level = random.getstate(), logging.root.manager.disable
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    try:
        return Simulation(seed).run()
    finally:
        random.setstate(state)
        logging.disable(level)


def main(seed: int) -> int:
    """Print the trace of a seed, and what is broken."""
    report = simulate(seed)
    facts = [f"{run}: {where}" for run, where in sorted(report.runs.items())]
    lines = (report.trace, *facts, str(dict(report.counts)), f"{len(report.broken)} broken", *report.broken)
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
