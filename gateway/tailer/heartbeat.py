"""Reports to MongoDB that this node is alive, which attempts it has and which spiders it can run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import psutil
import structlog
from pydantic import TypeAdapter

from gateway.clock import VERDICT_SECONDS, steady_seconds, to_iso
from gateway.contract import outbox as files
from gateway.contract import records
from gateway.contract.crawl import Egg
from gateway.crash_points import state_change
from gateway.errors import NameTakenError
from gateway.nodes.store import Load, NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.stores.mongo import ServerClock, within
from gateway.stores.unanswered import lately_unanswered
from gateway.tailer.outbox import Disk

log = structlog.get_logger()
_INFOS = TypeAdapter(list[records.SpiderInfo])


class Catalog:
    """The catalogue that Scrapyd writes to a file. Only one thread may use it."""

    def __init__(self, node_dir: Path) -> None:
        self._path = node_dir / files.CATALOG
        self._content: bytes | None = None
        self._infos: list[records.SpiderInfo] | None = None

    @property
    def exists(self) -> bool:
        return self._path.exists()

    @property
    def was_read(self) -> bool:
        """Whether there was a catalogue, readable or not."""
        return self._content is not None

    def spiders(self) -> list[records.SpiderInfo] | None:
        """The spiders in the file: the same list until the file changes; `None` before there is a file."""
        try:
            content = files.read_file(self._path)
        except FileNotFoundError:
            return self._infos
        except files.HostileFileError as error:
            content = str(error).encode()  # this text fails to parse below, like an unreadable catalogue
        if content != self._content:
            self._content = content
            try:
                self._infos = _INFOS.validate_json(content)
            except ValueError as error:
                # the last readable catalogue stays valid
                log.warning("catalog_unreadable", path=str(self._path), error=str(error))
        return self._infos


class CatalogPublisher:
    def __init__(self, store: SpiderStore, node: str, node_dir: Path) -> None:
        self._store = store
        self._node = node
        self._catalog = Catalog(node_dir)
        self._published: list[records.SpiderInfo] | None = None

    def eggs(self) -> list[Egg]:
        """The eggs that were deployed on this node, as the catalogue names them now."""
        infos = self._catalog.spiders() or ()
        return sorted({Egg(info.project, info.version) for info in infos if info.version is not None})

    def publish(self) -> None:
        """Publish the catalogue if it is not the one published last. Raises PyMongo's errors."""
        infos = self._catalog.spiders()
        if infos is not None and infos is not self._published:
            self._store.publish(self._node, infos)
            self._published = infos

    @property
    def was_read(self) -> bool:
        return self._catalog.was_read

    def wait_for_first(self, due: threading.Event, seconds: float) -> None:
        """Wait for these seconds, or until there is the node's first catalogue or the event is set."""
        until = time.monotonic() + seconds
        while not self._catalog.exists and time.monotonic() < until and not due.wait(SOON):
            pass

    def forget(self) -> None:
        """Publish the catalogue again next time, because the published one may be gone."""
        self._published = None


# --- the heartbeat, every two seconds: an attempt that it does not name is judged lost

#: Seconds between two beats.
EVERY = 2.0
#: How many attempts with unreadable files one heartbeat reports.
MOST_TROUBLES = 10
#: Seconds between two looks whether the first catalogue is there.
SOON = 0.05
#: Seconds between a failed heartbeat and the next one, which may find a working connection.
AGAIN = 0.5


class Heartbeat(threading.Thread):
    """Sends heartbeats. `present`: the attempts on this node whose end MongoDB has not yet acknowledged. `unshipped`:
    the number of attempts that are not completely shipped. `troubles`: the files that cannot be read, and why.
    """

    def __init__(
        self,
        nodes: NodeStore,
        catalog: CatalogPublisher,
        settings: Settings,
        disk: Disk,
        *,
        clock: ServerClock,
        present: Callable[[], Sequence[files.AttemptId]],
        unshipped: Callable[[], int],
        troubles: Callable[[], Sequence[str]],
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._nodes = nodes
        self._catalog = catalog
        self._settings = settings
        self._version = version("discoverybot")
        self._instance = files.instance_of(settings.node_dir)
        self._disk = disk
        self._clock = clock
        self._began = steady_seconds()
        self._present = present
        self._unshipped = unshipped
        self._troubles = troubles
        self._is_stopping = False
        #: Set when a heartbeat must be sent at once.
        self._due = threading.Event()
        # the node's other processes read the time from a file that each heartbeat writes
        clock.on_turn = self._due.set
        #: The last heartbeat of another machine with the same name, and how often it was found unchanged.
        self._other: datetime | None = None
        self._found = 0
        #: Whether the name was ours at the last answer.
        self.is_accepted = False

    def run(self) -> None:
        is_well = True
        while True:
            try:
                with within(VERDICT_SECONDS):
                    self.beat()
                    self._catalog.publish()
                is_well = True
            except NameTakenError as error:
                if self.is_accepted or not self._found:
                    log.warning("name_taken", message=error.message)
                self._refused(error.heartbeat_at)
                is_well = False
            except Exception as error:  # noqa: BLE001 - a node whose heartbeats stop for good is taken for dead
                if is_well:
                    log.warning("no_heartbeat", error=str(error))
                # the other machine may be unable to reach MongoDB, too, so its silence proves nothing
                is_well, self._found = False, 0
            if is_well and not self._catalog.was_read:
                self._catalog.wait_for_first(self._due, EVERY)
            else:
                self._due.wait(EVERY if is_well else AGAIN)
            self._due.clear()
            if self._is_stopping:
                return

    def beat(self) -> None:
        """Write the heartbeat of the node. Raises PyMongo's errors, `OSError` and `NameTakenError`."""
        settings, moment = self._settings, self._clock()
        with suppress(OSError):  # a full disk, which takes no new work
            _tell_time(settings.node_dir, moment)
        present = self._present()
        alive = [
            attempt_id for attempt_id in present if files.is_locked(files.attempt_dir(settings.outbox, attempt_id))
        ]
        is_new = self._nodes.heartbeat(
            settings.node_name,
            url=settings.node_base_url,
            max_slots=settings.node_slots,
            max_render_slots=settings.node_render_slots if has_browser(settings.node_dir / files.BROWSER) else 0,
            alive=[str(attempt_id) for attempt_id in alive],
            present=[str(attempt_id) for attempt_id in present],
            unshipped=self._unshipped(),
            beating_since=moment - timedelta(seconds=steady_seconds() - self._began),
            version=self._version,
            protocols=spoken(settings.node_dir / files.BROWSER),
            free_bytes=self._disk.free_bytes,
            load=Load(psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100),
            disk_full=self._disk.is_full(),
            eggs=self._catalog.eggs(),
            troubles=self._troubles()[:MOST_TROUBLES],
            unanswered=lately_unanswered(),
            instance=self._instance,
            # counted, not timed: a suspended process would miss the other machine's heartbeats
            succeeds=self._other if self._found * AGAIN >= settings.node_dead_after else None,
        )
        self.is_accepted = True
        if is_new:
            self._catalog.forget()

    def _refused(self, heartbeat_at: datetime) -> None:
        self._found = self._found + 1 if heartbeat_at == self._other else 1
        self._other, self.is_accepted = heartbeat_at, False

    def stop(self) -> None:
        self._is_stopping = True
        self._due.set()


@state_change("tailer.tell_time")
def _tell_time(node_dir: Path, moment: datetime) -> None:
    clock = {"moment": to_iso(moment), "steady": steady_seconds()}
    files.write_atomically(node_dir / files.CLOCK, json.dumps(clock).encode())


def has_browser(file: Path) -> bool:
    """Whether Scrapyd found a browser when it started."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        return bool(json.loads(files.read_file(file))["chromium"])
    return False


def spoken(file: Path) -> frozenset[int]:
    """The protocols of both this tailer and the Scrapyd that wrote `file`; a Scrapyd of protocol 1 names none."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        return files.PROTOCOLS & frozenset(json.loads(files.read_file(file)).get("protocols", (1,)))
    return files.PROTOCOLS & {1}
