"""What really happened, kept where no kill can take it: one file to which every life of a run appends.

A line is written with one `write` to a file opened for appending, so that the lines of several processes do not mix.
What acts on the outside is made durable before it acts; notes of the test itself are not, since a kill loses nothing
that the kernel holds.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened in one life."""

    life: str
    kind: str
    what: str


class Log:
    """The log, as one life writes it."""

    def __init__(self, path: Path, life: str) -> None:
        self.path = path
        self.life = life
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: str, what: str) -> None:
        """Say what the test wants to know."""
        os.write(self._file, (json.dumps([self.life, kind, what]) + "\n").encode())

    def act(self, kind: str, what: str) -> None:
        """Act on the outside: it stays done, whatever becomes of this process."""
        self.note(kind, what)
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Read:
    """The log, as it is read."""

    lines: Sequence[Line]

    def said(self, kind: str, life: str | None = None) -> Sequence[str]:
        """What was said of one kind, in order, by one life or by all."""
        return [line.what for line in self.lines if line.kind == kind and life in {None, line.life}]

    def of(self, run: str) -> "Read":
        """What concerns one run; points are everybody's."""
        return Read([line for line in self.lines if line.kind == "point" or line.what.startswith(f"{run}:")])

    def count(self, kind: str, life: str | None = None) -> Counter[str]:
        return Counter(self.said(kind, life))

    def met(self, life: str) -> Sequence[str]:
        """The points that a life met."""
        return self.said("point", life)


def read_log(path: Path) -> Read:
    """All lines so far; none if nobody has written."""
    if not path.exists():
        return Read(())
    return Read([Line(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()])
