"""Copies of a database file and its write-ahead log, taken at each write, as a power cut might leave them.

What they show: whatever prefix of the log reached the disk, SQLite opens it, and each run in it is whole: a transition
is there with all its rows or not at all, and revisions have no gap. With `synchronous=FULL` each answered write has been
synced, so the untruncated copy is the least that a power cut may leave, and it holds every answered write. With
`synchronous=NORMAL` the log is not synced at each commit: the truncated copies are what that profile may leave, and the
writes that they lack are what it may lose.

What they do not show: a disk that says "synced" and is not, blocks of one unsynced write that reach the disk out of
order or torn (SQLite's checksums and salts are to find these; garbage at the end of the log stands in for them here), a
cut in the middle of a checkpoint, which syncs the log first and can be repeated, or the loss of a file's own directory
entry just after it was created. Only a machine that is really switched off shows these.
"""

import itertools
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Copy:
    """The two files as they were after a write, and what had been answered by then."""

    folder: Path
    revisions: dict[str, int]  # acknowledged, by run
    effects: frozenset[str]  # keys of effects whose result was acknowledged
    decided: frozenset[str]

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """A database that may be opened: whoever closes one last empties its log."""
        with tempfile.TemporaryDirectory(dir=self.folder.parent.parent) as folder:
            shutil.copytree(self.folder, folder, dirs_exist_ok=True)
            yield Path(folder) / "runs.db"

    @property
    def log(self) -> Path:
        return self.folder / "runs.db-wal"


@dataclass
class Copier:
    """The hook of a store that copies its files after each write."""

    source: Path
    target: Path
    copies: list[Copy] = field(default_factory=list)
    revisions: dict[str, int] = field(default_factory=dict)
    effects: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)
    checkpoints: int = 0

    def acknowledge(self, method: str, *what: object) -> None:
        """A write was answered."""
        match method, what:
            case "commit", (str(run), int(revision)):
                self.revisions[run] = revision
            case "create_run", (str(run),):
                self.revisions.setdefault(run, 0)
            case "settle_effect", (str(key),):
                self.effects.add(key)
            case "decide", (str(wait),):
                self.decided.add(wait)
            case _:
                pass
        self.copy()

    def copy(self) -> None:
        folder = self.target / f"{len(self.copies):04}"
        folder.mkdir()
        for suffix in ("", "-wal"):  # without `-shm`: that is memory, and gone
            if (source := self.source.with_name(self.source.name + suffix)).exists():
                shutil.copyfile(source, folder / source.name)
        self.copies.append(Copy(folder, dict(self.revisions), frozenset(self.effects), frozenset(self.decided)))

    def checkpoint(self) -> None:
        """Let what the log holds go into the database, as SQLite does by itself from time to time.

        The log is then written again from its beginning, over what it held before, or is empty.
        """
        self.checkpoints += 1
        with closing(sqlite3.connect(self.source)) as connection:
            connection.execute(f"PRAGMA wal_checkpoint({('PASSIVE', 'TRUNCATE')[self.checkpoints % 2]})").fetchall()


def cut(copy: Copy, rng: random.Random, *, times: int, newest: int) -> Iterator[tuple[int, Path]]:
    """The copy with its log cut off at random bytes of its tail, some with garbage where the rest was."""
    whole = copy.log.read_bytes() if copy.log.exists() else b""
    for number in range(times if whole else 0):
        at = rng.randrange(max(0, len(whole) - newest), len(whole))
        garbage = rng.randbytes(len(whole) - at) if number % 3 == 2 else b""
        with copy.opened() as database:
            database.with_name(copy.log.name).write_bytes(whole[:at] + garbage)
            yield at, database


def broken(database: Path) -> list[str]:
    """What is wrong with a database, read without any of agentflow's code."""
    with closing(sqlite3.connect(database)) as connection:
        found = [f"integrity: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone():
            return found  # cut before its tables were created
        for run, revision in connection.execute("SELECT id, revision FROM runs").fetchall():
            rows = connection.execute("SELECT revision, source, target FROM history WHERE run = ? ORDER BY 1", (run,))
            found += _broken_history(run, revision, rows.fetchall())
        strays = connection.execute(
            "SELECT count(*) FROM history WHERE run NOT IN (SELECT id FROM runs) "
            "UNION ALL SELECT count(*) FROM effects WHERE run NOT IN (SELECT id FROM runs) "
            "UNION ALL SELECT count(*) FROM waits WHERE run NOT IN (SELECT id FROM runs)"
        ).fetchall()
        return found + [f"rows of no run: {strays}" for _ in [1] if any(count for (count,) in strays)]


def _broken_history(run: str, revision: int, rows: Sequence[tuple[int, str | None, str]]) -> list[str]:
    if [row[0] for row in rows] != list(range(revision + 1)):
        return [f"{run} at revision {revision} has history {[row[0] for row in rows]}"]
    chain = all(before[2] == after[1] for before, after in itertools.pairwise(rows))
    return [] if chain else [f"{run} has a transition that does not begin where the one before it led"]


def revisions_in(database: Path) -> dict[str, int]:
    """Where each run stands; nothing, before there are tables."""
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone():
            return {}
        return dict(connection.execute("SELECT id, revision FROM runs").fetchall())


def lacking(copy: Copy, database: Path) -> list[str]:
    """Answered transitions that are not in it; more than was answered may be."""
    there = revisions_in(database)
    return [f"{run} at {there.get(run)} of {want}" for run, want in copy.revisions.items() if there.get(run, -1) < want]


def missing(copy: Copy, database: Path) -> list[str]:
    """What had been answered when the copy was taken, and is not in it."""
    found = lacking(copy, database)
    with closing(sqlite3.connect(database)) as connection:
        done = {key for (key,) in connection.execute("SELECT key FROM effects WHERE status <> 'claimed'")}
        decided = {wait for (wait,) in connection.execute("SELECT id FROM waits WHERE status = 'decided'")}
    return found + sorted(copy.effects - done) + sorted(copy.decided - decided)
