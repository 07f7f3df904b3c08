"""What is in the outbox, and what its marks say."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gateway.crash_points import state_change
from gateway.domain.clock import truncate
from gateway.domain.node_files import LOG, SPEC, STARTED, AttemptId, NodeSpec, attempt_dir, read_record

#: Prefix of a folder that is being removed: no attempt any more, whatever is left in it.
_REMOVED = ".removed-"
#: What a mark says that was made so that nobody else ever can.
_WITHDRAWN = b'{"withdrawn": true}'


class Outbox:
    def __init__(self, node_dir: Path, outbox: Path) -> None:
        self.path = outbox
        self._logs = node_dir / "logs"

    def scan(self) -> list[AttemptId]:
        with os.scandir(self.path) as entries:
            found = [AttemptId.parse(entry.name) for entry in entries]
        return [attempt_id for attempt_id in found if attempt_id is not None]

    @state_change("tailer.remove_attempt")
    def remove(self, attempt_id: AttemptId) -> None:
        """Remove an attempt and the link that Scrapyd's console shows its log by. Half removed is gone, too."""
        folder = attempt_dir(self.path, attempt_id)
        spec = read_record(folder / SPEC, NodeSpec)
        if spec is not None:
            _remove_link(self._logs / spec.project / spec.spider / f"{attempt_id}.log", folder / LOG)
        removed = folder.with_name(f"{_REMOVED}{attempt_id}")
        folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

    @state_change("tailer.finish_removals")
    def finish_removals(self) -> None:
        """What an earlier tailer had no time for."""
        for folder in self.path.glob(f"{_REMOVED}*"):
            shutil.rmtree(folder, ignore_errors=True)


def started_at(folder: Path) -> datetime | None:
    """When the attempt was launched; `None` if it was not."""
    mark = folder / STARTED
    try:
        content = mark.read_bytes()
        made = datetime.fromtimestamp(mark.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
    if content == _WITHDRAWN:
        return None
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return datetime.fromisoformat(json.loads(content)["started_at"])
    return truncate(made)


def is_withdrawn(folder: Path) -> bool:
    try:
        return (folder / STARTED).read_bytes() == _WITHDRAWN
    except FileNotFoundError:
        return False


@state_change("tailer.withdraw")
def withdraw(folder: Path) -> bool:
    """Make the started mark, so that no launcher can; whether it was us. Raises `OSError`."""
    temporary = folder / f".{STARTED}.{os.getpid()}"
    temporary.write_bytes(_WITHDRAWN)
    try:
        os.link(temporary, folder / STARTED)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def _remove_link(link: Path, target: Path) -> None:
    """Only if it is what it should be: the names on the way to it came from outside."""
    with suppress(OSError):
        if link.is_symlink() and link.resolve() == target.resolve():
            link.unlink()
