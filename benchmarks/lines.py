"""Where the time of a transition goes, by source line: python -m benchmarks.lines w1|w2|w3|w6|b76 --work FOLDER

A sampler, not a tracer: the process is interrupted after each few ms of CPU, and the line at which it was is counted. Nothing
is slowed down, and what C code costs (SQLite, pydantic, json) is counted at the line that called it, or at the first line of
the next function, since the interpreter looks for signals between two bytecodes. *Own* are the samples whose innermost line
of agentflow is this one, *with callees* those that had it anywhere on the stack.
"""

import argparse
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from benchmarks import durability
from benchmarks.cells import OURS, Cell
from benchmarks.harness import Meter

EVERY = 0.001  # seconds of CPU; the kernel may make it longer
STEPS = {"w1": 40_000, "w2": 20, "w3": 20_000, "w6": 40_000, "b76": 10_000}
RUNS = 1500  # more than W2 has, since one of its measurements is over after a second
ROOT = Path(__file__).resolve().parents[1]
PACKAGE = str(ROOT / "agentflow")


class Sampler:
    """Counts the lines of agentflow on the main thread's stack."""

    def __init__(self) -> None:
        self.own: Counter[tuple[str, int]] = Counter()
        self.with_callees: Counter[tuple[str, int]] = Counter()
        self.outside = 0

    def start(self) -> None:
        """From now on."""
        signal.signal(signal.SIGPROF, self.sample)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)

    def stop(self) -> None:
        """Until now."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def sample(self, _: int, frame: FrameType | None) -> None:
        """Called between two bytecodes of the main thread."""
        lines = list(lines_of(frame))
        if lines:
            self.own[lines[0]] += 1
        else:
            self.outside += 1
        self.with_callees.update(set(lines))

    def show(self, transitions: int, cpu_us: float, most: int) -> None:
        """The costliest lines, in µs for each transition."""
        total = max(1, sum(self.own.values()) + self.outside)
        print(f"{transitions:,} transitions, {cpu_us:.1f} µs CPU each, {total:,} samples")
        print(f"outside agentflow (event loop, bodies): {self.outside / total * cpu_us:.1f} µs")
        for title, counts in (("own", self.own), ("with callees", self.with_callees)):
            print(f"\nµs {title}")
            for (file, line), count in counts.most_common(most):
                print(f"{count / total * cpu_us:6.1f}  {Path(file).relative_to(ROOT)}:{line}  {source_of(file, line)}")


def lines_of(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    """The lines of agentflow on a stack, innermost first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno
        frame = frame.f_back


def source_of(file: str, line: int) -> str:
    """The text of a line."""
    return Path(file).read_text(encoding="utf-8").splitlines()[line - 1].strip()


def main() -> None:
    """Sample one workload of agentflow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=sorted(STEPS))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--synchronous", choices=("NORMAL", "FULL"), default="NORMAL")
    parser.add_argument("--most", type=int, default=25)
    options = parser.parse_args()
    durability.replace_sqlite()
    from benchmarks.peers.agentflow import VARIANTS

    folder = options.work / "cell"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cell = Cell(options.workload, OURS, "memory" if options.workload == "w6" else "sqlite", options.synchronous)
    meter = Meter(STEPS[options.workload], 120, folder, options.synchronous, None)
    durability.prepare_file(meter.database)
    peer, sampler = VARIANTS[cell.variant].make(meter), Sampler()
    peer.open()
    works = {"w1": peer.one_run, "w2": lambda: peer.many_runs(RUNS), "w3": peer.growing_run, "b76": peer.heavy_run}
    meter.start()
    sampler.start()
    works.get(options.workload, peer.one_run)()
    sampler.stop()
    meter.stop()
    peer.close()
    sampler.show(meter.done, meter.cpu / meter.done * 1e6, options.most)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
