"""Why an attempt is asked to stop, written down before it is: whoever has to tell its end may be somebody else."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import Logger

from gateway.crash_points import state_change
from gateway.domain.node_files import STOPPING, write_exclusively

log = Logger()


def note_stopping(folder: Path, why: str) -> None:
    """Write it down unless there is a reason already. A disk that is full keeps nobody from stopping."""
    try:
        _write(folder, why)
    except OSError:
        log.failure("cannot write down why {folder} is asked to stop", folder=folder.name)


@state_change("node.note_stopping")
def _write(folder: Path, why: str) -> None:
    write_exclusively(folder / STOPPING, why.encode())
