"""Notices that a progress file was rewritten, for one sink."""

from __future__ import annotations

import time
from pathlib import Path

from gateway.domain.node_files import PROGRESS, Progress, read_record

#: Seconds between two reports; the last one is never held back.
EVERY = 1.0


class ProgressWatch:
    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS
        self._seen: tuple[int, int] | None = None
        self._told: tuple[int, int] | None = None
        self._told_at = 0.0

    def news(self, *, ended: bool = False) -> Progress | None:
        """Progress that was not yet told, and may be by now."""
        if not ended and time.monotonic() - self._told_at < EVERY:
            return None
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return None
        self._seen = status.st_ino, status.st_mtime_ns
        return None if self._seen == self._told else read_record(self._path, Progress)

    def told(self) -> None:
        """What `news` handed out has arrived."""
        self._told = self._seen
        self._told_at = time.monotonic()
