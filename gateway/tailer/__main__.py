"""`python -m gateway.tailer`: one process per node, beside its Scrapyd; with `NODES_DIR`, one for all nodes in it."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO

import redis
import structlog
from attrs import define, field

from gateway.clock import VERDICT_SECONDS, time_of_node, utc_now
from gateway.container import Container, part, value
from gateway.contract.node_list import PLACE, NodePlace, is_taken, read_place
from gateway.contract.outbox import AttemptId, open_lock
from gateway.errors import JobNotFoundError, SettingsError, UnreadableError
from gateway.jobs.store import JobStore
from gateway.logging import configure
from gateway.logs.store import LogStream
from gateway.process import hide_process, take_short_turns
from gateway.settings import Settings
from gateway.stores.document_format import refuse_newer_stores
from gateway.stores.mongo import within
from gateway.stores.redis import connect as connect_redis
from gateway.tailer.eggs import EggShipper
from gateway.tailer.file_shipping import FileLimits, FileSink
from gateway.tailer.heartbeat import Catalog, CatalogPublisher, Heartbeat
from gateway.tailer.outbox import AttemptFolder, Disk, Outbox, PlainLogs
from gateway.tailer.shipping import LONGEST_RECORD, LiveSink, MongoSink
from gateway.tailer.tailer_loop import Follower, SinkThread

log = structlog.get_logger()

#: Seconds between two checks of the folder.
PACE = 1.0
#: Seconds before a tailer that ended is started again.
PAUSE = 2.0
#: Seconds that a tailer may take to end; its own threads take up to three.
GRACE = 8.0
TAILER = (sys.executable, "-m", "gateway.tailer")


class _Tailer:
    """The tailer process of one place, and the content of `place.json` when this tailer was started."""

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

    def wait(self, seconds: float) -> None:
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@define(eq=False, repr=False, slots=False)
class Places:
    """Runs a tailer for each node. They are processes, not threads, so that a busy one does not delay the others."""

    _folder: Path
    _command: Sequence[str] = TAILER
    _environ: Mapping[str, str] = os.environ
    _tailers: dict[Path, _Tailer] = field(init=False, factory=dict)
    _stopping: threading.Event = field(init=False, factory=threading.Event)

    def run(self) -> None:
        """Start tailers until `stop` is called. Returns when every tailer has ended."""
        log.info("tailing_places", folder=str(self._folder))
        while not self._stopping.wait(PACE):
            self._look()
        deadline = time.monotonic() + GRACE
        for tailer in self._tailers.values():
            tailer.process.terminate()
        for tailer in self._tailers.values():
            tailer.wait(deadline - time.monotonic())

    def stop(self) -> None:
        self._stopping.set()

    def _look(self) -> None:
        homes = {path.parent for path in self._folder.glob(f"*/{PLACE}")}
        # a node whose folder was removed has nothing left to ship
        for home in homes | self._tailers.keys():
            place = read_place(home)
            tailer = self._tailers.get(home)
            if tailer is not None and tailer.process.poll() is None:
                if place != tailer.place or not _has_work(home):
                    tailer.process.terminate()
            elif place is not None and _has_work(home):
                self._start(home, place, tailer)

    def _start(self, home: Path, place: NodePlace, before: _Tailer | None) -> None:
        if before is not None:
            if time.monotonic() - before.started_at < PAUSE:
                return
            log.info("tailer_starts_again", node=place.name, exit_code=before.process.returncode)
        self._tailers[home] = _Tailer(home, place, self._command, self._environ)


def _has_work(home: Path) -> bool:
    """Whether a node lives there, or has left attempts. These are shipped even if the node never comes back."""
    return is_taken(home) or any((home / "node" / "outbox").glob("*-*"))


#: Seconds that a thread may take to finish its present work.
STOP_GRACE = 3.0
#: Publishing an event to Redis may delay the shipping to MongoDB by at most this many seconds.
ANNOUNCE_TIMEOUT = 0.5


class TailerParts(Container):
    """The parts of a tailer. Building a part does not wait for a store; each store is connected when it is used."""

    @part
    def redis(self) -> redis.Redis:
        return self.opened(connect_redis(self.settings.redis_location, timeout=ANNOUNCE_TIMEOUT))

    @value
    def live(self) -> SinkThread:
        # a separate client, with a longer timeout
        client = self.opened(connect_redis(self.settings.redis_location))
        return SinkThread(LiveSink(LogStream(client, self.settings.result_ttl)))

    @value
    def mongo(self) -> SinkThread:
        # the spider's code can also write to this file, so it may be longer than the crawl's own limit
        limit = self.settings.requests_max_bytes + LONGEST_RECORD
        return SinkThread(self.build(MongoSink, requests_limit=limit))

    @part
    def file_sink(self) -> FileSink:
        settings = self.settings
        limits = FileLimits(settings.files_max_count, settings.files_max_file_bytes, settings.files_max_bytes)
        return self.build(FileSink, limits=limits, on_kept=self._look_for_end)

    def _look_for_end(self, attempt: AttemptFolder) -> None:
        """Ship the end of the attempt, which has waited for its files. `self.mongo` is read only here, because
        building it needs the file sink.
        """
        self.mongo.look_at(attempt)

    @value
    def files(self) -> SinkThread:
        return SinkThread(self[FileSink])

    @part
    def outbox(self) -> Outbox:
        return Outbox(self.settings.node_dir, self.settings.outbox)

    @part
    def disk(self) -> Disk:
        settings = self.settings
        return Disk(settings.outbox, settings.node_min_free_bytes, settings.node_min_free_inodes)

    @part
    def follower(self) -> Follower:
        settings = self.settings
        return Follower(
            self.outbox,
            self.live,
            self.mongo,
            self.files,
            keep=timedelta(seconds=settings.node_keep_seconds),
            is_awaited=self._is_awaited,
            begin_anew=self._begin_anew,
            give_files_up=self[FileSink].make_room,
            disk=self.disk,
            plain_logs=PlainLogs(settings.node_dir, timedelta(days=settings.log_retention_days), utc_now),
            clock=partial(time_of_node, settings.node_dir),
            # a larger file can only be sparse: the launcher ends an attempt long before it could write that much
            longest_log=2 * settings.crawl_max_log_bytes,
            longest_items=2 * settings.crawl_max_record_bytes,
        )

    def _is_awaited(self, attempt_id: AttemptId) -> bool:
        try:
            with within(VERDICT_SECONDS):
                return not self[JobStore].get(attempt_id.job_id).is_final
        except JobNotFoundError:
            return False
        except UnreadableError:
            return True

    def _begin_anew(self, attempt_id: AttemptId) -> None:
        node = self.settings.node_name
        with within(VERDICT_SECONDS):
            self[JobStore].begin_anew(attempt_id.job_id, node, f"the disk of node {node} was full")

    @part
    def heartbeat(self) -> Heartbeat:
        settings = self.settings
        catalog = self.build(CatalogPublisher, node=settings.node_name, node_dir=settings.node_dir)
        return self.build(
            Heartbeat,
            catalog=catalog,
            settings=settings,
            present=lambda: self.follower.present,
            unshipped=lambda: self.follower.unshipped,
            troubles=lambda: [*self.mongo.troubles, *self.file_sink.troubles],
        )

    @part
    def eggs(self) -> EggShipper:
        return self.build(
            EggShipper,
            node=self.settings.node_name,
            folder=self.settings.node_dir / "eggs",
            spiders=Catalog(self.settings.node_dir).spiders,
            is_ours=lambda: self.heartbeat.is_accepted,
        )


def main() -> int:
    try:
        settings = Settings.load()
    except SettingsError as error:
        print(f"tailer: {error}", file=sys.stderr)  # noqa: T201 - there is no logging without settings
        return 2
    configure(settings.log_level)
    # spiders run on the same machine, often as the same user, and the settings hold the passwords of the stores
    hide_process()
    refuse_newer_stores(settings.mongo_uri, "tailer")
    # with LOG_LEVEL=debug, watchdog would log every line that a spider writes
    logging.getLogger("watchdog").setLevel(logging.WARNING)
    if settings.nodes_dir is not None:
        return _tail_places(settings.nodes_dir)
    settings.outbox.mkdir(parents=True, exist_ok=True)
    lock = take_lock(settings.node_dir / "tailer.lock")
    if lock is None:
        log.error("another_tailer", message=f"a tailer ships {settings.outbox} already; there can be only one")
        return 1
    with lock:
        take_short_turns()
        _run(TailerParts(settings))
    return 0


def _tail_places(folder: Path) -> int:
    places = Places(folder.absolute())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: places.stop())
    places.run()
    return 0


def _run(parts: TailerParts) -> None:
    follower = parts.follower
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: follower.stop())
    # before the first heartbeat, because attempts that a heartbeat does not name are taken for lost
    follower.sweep()
    threads = (parts.live, parts.mongo, parts.files, parts.heartbeat, parts.eggs)
    for thread in threads:
        thread.start()
    log.info("tailer_started", outbox=str(parts.outbox.path))
    follower.run()
    for thread in threads:
        thread.stop()
    for thread in threads:
        thread.join(STOP_GRACE)
    log.info("tailer_stopped")


def take_lock(path: Path) -> IO[bytes] | None:
    """Take the lock on this node's outbox until the process ends; `None` if another process has it."""
    file = os.fdopen(open_lock(path), "wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


if __name__ == "__main__":
    sys.exit(main())
