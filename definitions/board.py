"""A message board, in memory or in a file of JSON lines: what was published, withheld and told to whom."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from definitions.json_files import locked

Kind: TypeAlias = Literal["published", "withheld", "notified"]


class Board:
    """Takes every entry once per key; with a path it keeps them in that file, which other processes may use too."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: dict[str, dict[str, Any]] = {}
        self._seen = 0

    async def publish(self, message_id: str, text: str, *, key: str) -> None:
        """Show a message to everybody."""
        await self._add("published", message_id, text, key)

    async def withhold(self, message_id: str, reason: str, *, key: str) -> None:
        """Keep a message back."""
        await self._add("withheld", message_id, reason, key)

    async def notify(self, message_id: str, text: str, *, key: str) -> None:
        """Tell the author what became of a message."""
        await self._add("notified", message_id, text, key)

    async def entries(self, kind: Kind) -> Sequence[tuple[str, str]]:
        """All entries of a kind, oldest first: the message's id, and the text."""
        if self._path is not None:
            await asyncio.to_thread(self._read, self._path)
        return [(entry["message"], entry["text"]) for entry in list(self._entries.values()) if entry["kind"] == kind]

    async def _add(self, kind: Kind, message_id: str, text: str, key: str) -> None:
        entry = {"key": key, "kind": kind, "message": message_id, "text": text}
        if self._path is None:
            self._entries.setdefault(key, entry)
        else:
            await asyncio.to_thread(self._append, self._path, entry)

    def _read(self, path: Path) -> None:
        with locked(path.parent):
            self._catch_up(path)

    def _append(self, path: Path, entry: dict[str, Any]) -> None:
        with locked(path.parent):
            self._catch_up(path)
            if entry["key"] in self._entries:
                return
            with path.open("r+b") as file:
                file.seek(self._seen)
                file.truncate()  # what a crash left of a line
                file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
            self._catch_up(path)

    def _catch_up(self, path: Path) -> None:
        """Take in the lines that were added since the last look."""
        path.touch()
        with path.open("rb") as file:
            file.seek(self._seen)
            *lines, _unfinished = file.read().split(b"\n")
        for line in lines:
            entry = json.loads(line)
            self._entries[entry["key"]] = entry
            self._seen += len(line) + 1


@asynccontextmanager
async def open_board() -> AsyncGenerator[Board, None]:
    """The board in the file that `AGENTFLOW_BOARD` names, else `board.jsonl` in this folder."""
    yield Board(Path(os.environ.get("AGENTFLOW_BOARD", "board.jsonl")))
