"""JSON files that several processes may change: one writer at a time, each file whole or not at all."""

import fcntl
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def locked(folder: Path) -> Generator[None, None, None]:
    """Keep every other thread and process out until the block ends; a lock ends with its process."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_json(path: Path, *, missing: Any = None) -> Any:
    """The content of a file, or `missing` if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if missing is None:
            raise
        return missing


def write_json(path: Path, content: object) -> None:
    """Replace a file; whoever reads it sees the old content or the new, also after a crash in between."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    draft.replace(path)
