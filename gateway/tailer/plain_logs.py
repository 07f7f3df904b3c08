"""Logs of crawls that were scheduled at Scrapyd itself: no job of ours, so nobody else would ever remove them."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import structlog

from gateway.crash_points import state_change
from gateway.domain.clock import Clock

log = structlog.get_logger()

#: Seconds between two looks.
EVERY = 600.0


class PlainLogs:
    """`logs/<project>/<spider>/<job>.log`; a link among them belongs to an attempt and goes with it."""

    def __init__(self, node_dir: Path, keep: timedelta, clock: Clock) -> None:
        self._path = node_dir / "logs"
        self._keep = keep
        self._clock = clock
        self._next_look = 0.0

    def look(self) -> None:
        """Remove the old ones, if it is time. Nothing here is worth an error."""
        if not self._keep or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + EVERY
        try:
            self._remove(self._old_ones())
        except OSError as error:
            log.warning("old_logs_not_removed", error=str(error))

    def _old_ones(self) -> list[Path]:
        oldest = (self._clock() - self._keep).timestamp()
        return [path for path in self._path.glob("*/*/*.log") if not _is_linked(path) and _is_older(path, oldest)]

    @state_change("tailer.remove_plain_logs")
    def _remove(self, old: Iterable[Path]) -> None:
        """But those that a crawl, silent for so long, still has open."""
        if not (old := set(old)):
            return
        for path in old - _open_files():
            path.unlink(missing_ok=True)


def _is_linked(path: Path) -> bool:
    """Whether it, or a folder on the way to it, is a link: what is behind that is not ours to remove."""
    return any(part.is_symlink() for part in (path, path.parent, path.parent.parent))


def _is_older(path: Path, moment: float) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_mtime < moment


def _open_files() -> set[Path]:
    """Of every process that we may look at: a node's run as one user."""
    found: set[Path] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            found.update(Path(file.path) for file in process.open_files())
    return found
