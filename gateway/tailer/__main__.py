"""`python -m gateway.tailer`: one for each node, beside its Scrapyd; with `NODES_DIR` one for all nodes there."""

from __future__ import annotations

import fcntl
import logging
import signal
import sys
from pathlib import Path
from typing import IO

import structlog

from gateway.logging import configure
from gateway.secrecy import hide_process
from gateway.settings import Settings, SettingsError
from gateway.tailer.places import Places
from gateway.tailer.wiring import Wiring

log = structlog.get_logger()

#: Seconds that a thread may take to finish what it is at.
STOP_GRACE = 3.0
#: Seconds a thread may run before another has its turn. A log line passes through four threads on its way to Redis;
#: at Python's own 5 ms each it would wait behind a batch of items.
TURN = 0.0005


def main() -> int:
    try:
        settings = Settings.load()
    except SettingsError as error:
        print(f"tailer: {error}", file=sys.stderr)  # noqa: T201 - there is no logging without settings
        return 2
    configure(settings.log_level)
    # spiders run on the same machine, often as the same user, and these are the passwords of the stores
    hide_process()
    # at "debug" it would tell of every line that a spider writes
    logging.getLogger("watchdog").setLevel(logging.WARNING)
    if settings.nodes_dir is not None:
        return _tail_places(settings.nodes_dir)
    settings.outbox.mkdir(parents=True, exist_ok=True)
    lock = _lock(settings.node_dir / "tailer.lock")
    if lock is None:
        log.error("another_tailer", message=f"a tailer ships {settings.outbox} already; there can be only one")
        return 1
    with lock:
        sys.setswitchinterval(TURN)
        _run(Wiring(settings))
    return 0


def _tail_places(folder: Path) -> int:
    places = Places(folder.absolute())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: places.stop())
    places.run()
    return 0


def _run(wiring: Wiring) -> None:
    follower = wiring.follower
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: follower.stop())
    # before the first beat: what it does not name as present is taken for gone
    follower.sweep()
    threads = (wiring.live, wiring.truth, wiring.heartbeat, wiring.eggs)
    for thread in threads:
        thread.start()
    log.info("tailer_started", outbox=str(wiring.outbox.path))
    follower.run()
    for thread in threads:
        thread.stop()
    for thread in threads:
        thread.join(STOP_GRACE)
    log.info("tailer_stopped")


def _lock(path: Path) -> IO[bytes] | None:
    """The lock on this node's outbox, to be held while the process lives; `None` if another process has it."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


if __name__ == "__main__":
    sys.exit(main())
