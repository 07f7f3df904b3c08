"""Hears of changes in the outbox as they happen. What it misses the sweep finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileModifiedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from gateway.domain.node_files import AttemptId

#: Told which attempt has changed, and the name of the file that was written.
Listener = Callable[[AttemptId, str], None]


class _Handler(FileSystemEventHandler):
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_modified(self, event: FileSystemEvent) -> None:
        # called for every line of every log: no pathlib
        folder, _, name = str(event.src_path).rpartition("/")
        attempt_id = AttemptId.parse(folder.rpartition("/")[2])
        if attempt_id is not None:
            self._listener(attempt_id, name)


def watch(outbox: Path, listener: Listener) -> BaseObserver:
    """Call `listener` from a thread of its own until the observer, which is started, is stopped.

    Modified files alone: asked for renames, watchdog keeps each back for half a second to find its other half, and
    all that comes after it as well. A file that is written under another name first is heard of by that name.
    """
    observer = Observer()
    observer.daemon = True
    observer.schedule(_Handler(listener), str(outbox), recursive=True, event_filter=[FileModifiedEvent])
    observer.start()
    return observer
