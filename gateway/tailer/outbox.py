"""What is in the outbox, and what its marks say."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gateway.crash_points import state_change
from gateway.domain.clock import truncate
from gateway.domain.node_files import (
    LOG,
    SPEC,
    STARTED,
    AttemptId,
    HostileFileError,
    NodeSpec,
    attempt_dir,
    read_file,
    read_record,
    remove_tree,
    write_exclusively,
)

#: Prefix of a folder that is being removed: no attempt any more, whatever is left in it.
_REMOVED = ".removed-"
#: Seconds of a look that go into removing.
REMOVAL_TURN = 0.1
#: What a mark says that was made so that nobody else ever can.
_WITHDRAWN = b'{"withdrawn": true}'


class Outbox:
    def __init__(self, node_dir: Path, outbox: Path) -> None:
        self.path = outbox
        self._logs = node_dir / "logs"
        #: Folders on their way out.
        self._removed: set[Path] = set()

    def scan(self) -> list[AttemptId]:
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        self._removed.update(self.path / name for name in names if name.startswith(_REMOVED))
        return [attempt_id for name in names if (attempt_id := AttemptId.parse(name)) is not None]

    @state_change("tailer.remove_attempt")
    def remove(self, attempt_id: AttemptId) -> None:
        """Take an attempt away, with the link that Scrapyd's console shows its log by. It is gone at once, though its
        files may take `finish_removals` a while.
        """
        folder = attempt_dir(self.path, attempt_id)
        spec = read_record(folder / SPEC, NodeSpec)
        if spec is not None:
            _remove_link(self._logs / spec.project / spec.spider / f"{attempt_id}.log", folder / LOG)
        removed = folder.with_name(f"{_REMOVED}{attempt_id}")
        folder.rename(removed)
        self._removed.add(removed)

    def finish_removals(self) -> bool:
        """Remove what was taken away, in turns: a spider may have left a million files. Whether nothing is left."""
        return not self._removed or self._remove_some()

    @state_change("tailer.finish_removals")
    def _remove_some(self) -> bool:
        for folder in tuple(self._removed):
            if remove_tree(folder, within=REMOVAL_TURN / len(self._removed)):
                self._removed.discard(folder)
        return not self._removed


def started_at(folder: Path) -> datetime | None:
    """When the attempt was launched; `None` if it was not."""
    mark = folder / STARTED
    try:
        made = datetime.fromtimestamp(mark.lstat().st_mtime, UTC)
        content = _content(mark)
    except FileNotFoundError:
        return None
    if content == _WITHDRAWN:
        return None
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return datetime.fromisoformat(json.loads(content)["started_at"])
    return truncate(made)


def is_mark(folder: Path) -> bool:
    """Whether what is there as the mark is one, or was."""
    return bool(_content(folder / STARTED))


def is_withdrawn(folder: Path) -> bool:
    try:
        return _content(folder / STARTED) == _WITHDRAWN
    except FileNotFoundError:
        return False


@state_change("tailer.withdraw")
def withdraw(folder: Path) -> bool:
    """Make the started mark, so that no launcher can; whether it was us. Raises `OSError`."""
    return write_exclusively(folder / STARTED, _WITHDRAWN)


def _content(mark: Path) -> bytes:
    """Nothing, where the mark is something else: it was launched, or it could not have become that."""
    try:
        return read_file(mark)
    except HostileFileError:
        return b""


def _remove_link(link: Path, target: Path) -> None:
    """Only if it is what it should be: the names on the way to it came from outside."""
    with suppress(OSError):
        if link.is_symlink() and link.resolve() == target.resolve():
            link.unlink()
