"""Locks of the operating system that prove a worker's death: one file per session, beside the database.

The kernel gives back what a dead process had locked, so a lock that can be had means that its session is over, long
before its lease is. Where there is no such lock (no `fcntl`, a file system without `flock`), the lease alone decides.
"""

import contextlib
import errno
import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl

NO_LOCKS_HERE = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS})


class SessionLocks:
    """The lock files of one database. `flock` belongs to the open file, so it works between stores of a process too."""

    def __init__(self, database: Path) -> None:
        real = database.resolve()
        self.folder = real.with_name(real.name + "-sessions")
        self._held: dict[str, int] = {}

    def take(self, session: str) -> None:
        """Lock the session's file until `give`, `let_go`, or the end of this process."""
        if sys.platform == "win32":
            return
        handle = self._create(session)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            self.forget(session)
            if error.errno not in NO_LOCKS_HERE:
                raise
        else:
            self._held[session] = handle

    def _create(self, session: str) -> int:
        while True:
            self.folder.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # the last session of another process took the folder along
                return os.open(self.folder / session, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def give(self, session: str) -> None:
        """Remove a session's file, then let go of it: nobody can mistake it for a dead one's."""
        self.forget(session)
        handle = self._held.pop(session, None)
        if handle is not None:
            os.close(handle)

    def forget(self, session: str) -> None:
        """Remove what a session has left: its file, and the folder if it was the last."""
        with contextlib.suppress(OSError):  # not there, others' files are in it, or read-only: it does no harm
            (self.folder / session).unlink(missing_ok=True)
            self.folder.rmdir()

    def is_provably_dead(self, session: str) -> bool:
        """Whether the session's process is surely gone. A file that is missing proves nothing."""
        if sys.platform == "win32" or session in self._held:
            return False
        try:
            handle = os.open(self.folder / session, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not take each other for it
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def let_go(self) -> None:
        """Let go of all files but leave them: sessions that were not ended are now provably dead."""
        while self._held:
            _, handle = self._held.popitem()
            os.close(handle)
