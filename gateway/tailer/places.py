"""A tailer for each place of `NODES_DIR` at which a node lives, or has left something to ship."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from gateway.domain.node_place import PLACE, NodePlace, is_taken, read_place

log = structlog.get_logger()

#: Seconds between two looks at the folder.
PACE = 1.0
#: Seconds before a tailer that ended is started again.
PAUSE = 2.0
#: Seconds that a tailer may take to end; it takes three itself.
GRACE = 8.0
TAILER = (sys.executable, "-m", "gateway.tailer")


class _Tailer:
    """The one of a place, as it was when it was started."""

    def __init__(self, home: Path, place: NodePlace, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.place = place
        self.started_at = time.monotonic()
        own = {
            "DISCOVERYBOT_HOME": str(home),
            "NODE_NAME": place.name,
            "NODE_URL": place.url,
            "NODE_SLOTS": str(place.slots),
            "NODE_RENDER_SLOTS": str(place.render_slots),
        }
        inherited = {name: value for name, value in environ.items() if name != "NODES_DIR"}
        self.process = subprocess.Popen(command, env={**inherited, **own})  # noqa: S603 - the command is ours

    def stop(self) -> None:
        self.process.terminate()

    def wait(self, seconds: float) -> None:
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Places:
    """Processes, not threads: what one node's tailer is busy with keeps no other waiting."""

    def __init__(
        self, folder: Path, command: Sequence[str] = TAILER, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._folder = folder
        self._command = command
        self._environ = environ
        self._tailers: dict[Path, _Tailer] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until `stop` is called; every tailer has ended then."""
        log.info("tailing_places", folder=str(self._folder))
        while not self._stopping.wait(PACE):
            self._look()
        deadline = time.monotonic() + GRACE
        for tailer in self._tailers.values():
            tailer.stop()
        for tailer in self._tailers.values():
            tailer.wait(deadline - time.monotonic())

    def stop(self) -> None:
        self._stopping.set()

    def _look(self) -> None:
        # one that was taken away has nothing left to ship
        for home in {*self._homes(), *self._tailers}:
            place = read_place(home)
            tailer = self._tailers.get(home)
            if tailer is not None and tailer.process.poll() is None:
                if place != tailer.place or not _has_work(home):
                    tailer.stop()
            elif place is not None and _has_work(home):
                self._start(home, place, tailer)

    def _homes(self) -> list[Path]:
        return sorted(path.parent for path in self._folder.glob(f"*/{PLACE}"))

    def _start(self, home: Path, place: NodePlace, before: _Tailer | None) -> None:
        if before is not None:
            if time.monotonic() - before.started_at < PAUSE:
                return
            log.info("tailer_starts_again", node=place.name, exit_code=before.process.returncode)
        self._tailers[home] = _Tailer(home, place, self._command, self._environ)


def _has_work(home: Path) -> bool:
    """A node that is gone for good is served until the last of its files is."""
    return is_taken(home) or any((home / "node" / "outbox").glob("*-*"))
