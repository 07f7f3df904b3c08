"""The contents of the outbox, and the meaning of its marks."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import structlog
from attrs import define
from pydantic import BaseModel, Field
from watchdog.events import FileModifiedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from gateway.clock import Clock, from_timestamp
from gateway.contract import outbox as files
from gateway.contract import records
from gateway.contract.log_line import HEADLESS_LEVEL
from gateway.contract.written_files import find_files
from gateway.crash_points import state_change
from gateway.jobs.messages import about_message
from gateway.jobs.progress import ProgressSeries


@define(eq=False, repr=False, slots=False)
class Disk:
    _path: Path
    _min_free_bytes: int
    _min_free_inodes: int = 0

    @property
    def free_bytes(self) -> int:
        """Raises `OSError`."""
        return shutil.disk_usage(self._path).free

    def is_full(self) -> bool:
        """Whether the disk is too full for new work. Raises `OSError`."""
        return self.free_bytes < self._min_free_bytes or files.free_inodes(self._path) < self._min_free_inodes


#: The prefix of a folder that is being removed. It does not count as an attempt, even if files are left in it.
_REMOVED = ".removed-"
#: Each sweep removes files for at most this many seconds.
REMOVAL_TURN = 0.1
#: The content of a started mark that the tailer makes itself, so that no launcher can make one.
_WITHDRAWN = b'{"withdrawn": true}'


class Outbox:
    def __init__(self, node_dir: Path, outbox: Path) -> None:
        self.path = outbox
        self._logs = node_dir / "logs"
        #: Folders that are being removed.
        self._removed: set[Path] = set()

    def scan(self) -> list[files.AttemptId]:
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        self._removed.update(self.path / name for name in names if name.startswith(_REMOVED))
        return [attempt_id for name in names if (attempt_id := files.AttemptId.parse(name)) is not None]

    @state_change("tailer.remove_attempt")
    def remove(self, attempt_id: files.AttemptId) -> None:
        """Remove an attempt, and the link to its log for Scrapyd's console. The attempt is gone at once, but its
        files are removed by `finish_removals`, which may take a while.
        """
        folder = files.attempt_dir(self.path, attempt_id)
        spec = records.read_record(folder / files.SPEC, records.NodeSpec)
        if spec is not None:
            _remove_link(self._logs / spec.project / spec.spider / f"{attempt_id}.log", folder / files.LOG)
        removed = folder.with_name(f"{_REMOVED}{attempt_id}")
        folder.rename(removed)
        self._removed.add(removed)

    def finish_removals(self) -> bool:
        """Remove folders in turns: a spider may have left a million files. Returns whether none is left to remove."""
        return not self._removed or self._remove_some()

    @state_change("tailer.finish_removals")
    def _remove_some(self) -> bool:
        for folder in tuple(self._removed):
            if files.remove_tree(folder, within=REMOVAL_TURN / len(self._removed)):
                self._removed.discard(folder)
        return not self._removed


def started_at(folder: Path) -> datetime | None:
    """When the attempt was launched; `None` if it was not."""
    mark = folder / files.STARTED
    try:
        made = from_timestamp(mark.lstat().st_mtime)
        content = _content(mark)
    except FileNotFoundError:
        return None
    if content == _WITHDRAWN:
        return None
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        said = datetime.fromisoformat(json.loads(content)["started_at"])
        # the spider of a project without a system user of its own can write any text there
        return records.storable_time(said) if said.tzinfo is not None else made
    return made


def is_mark(folder: Path) -> bool:
    """Whether the started mark is a file with content; a folder or an empty file in its place is no mark."""
    return bool(_content(folder / files.STARTED))


def is_withdrawn(folder: Path) -> bool:
    try:
        return _content(folder / files.STARTED) == _WITHDRAWN
    except FileNotFoundError:
        return False


@state_change("tailer.withdraw")
def withdraw(folder: Path) -> bool:
    """Make the started mark, so that no launcher can. Returns whether this call made it. Raises `OSError`."""
    return files.write_exclusively(folder / files.STARTED, _WITHDRAWN)


def _content(mark: Path) -> bytes:
    """The bytes of the mark; empty if the mark is not a file: then the attempt was launched, and its spider has
    replaced the mark.
    """
    try:
        return files.read_file(mark)
    except files.HostileFileError:
        return b""


def _remove_link(link: Path, target: Path) -> None:
    """Remove the link only if it leads to `target`, because the names in its path come from users."""
    with suppress(OSError):
        if link.is_symlink() and link.resolve() == target.resolve():
            link.unlink()


# --- how far an attempt was shipped. An outdated checkpoint is harmless: shipped data is identified by its position,
# so shipping it again changes nothing.
class LogPosition(BaseModel, frozen=True):
    """A position between two entries of a log. It is frozen, so that the thread that saves it never sees half of a
    change.
    """

    offset: int = Field(default=0, ge=0)
    #: The level at that position, for lines without a level of their own.
    level: str = HEADLESS_LEVEL
    #: The logger of the line before, to which lines without a head belong.
    logger: str | None = None


class FilesPosition(BaseModel, frozen=True):
    """How far the files of an attempt were shipped, in the order of their names. Frozen like `LogPosition`."""

    #: The last file that was shipped, or refused.
    name: str = ""
    #: Which files were kept up to this one.
    kept: records.FilesKept = Field(default_factory=records.FilesKept)


class Checkpoint(BaseModel):
    """`shipped.json`. Each field has one writer."""

    #: Entries before this position are in the stream, or were skipped because MongoDB has them.
    log_redis: LogPosition = LogPosition()
    #: The start of the last chunk, which still grows. Entries before it are in complete chunks in MongoDB.
    log_mongo: LogPosition = LogPosition()
    #: The byte offset up to which `items.jsonl` is in MongoDB.
    items: int = Field(default=0, ge=0)
    #: The start of the last chunk of `requests.jsonl`, which still grows.
    requests: int = Field(default=0, ge=0)
    #: The size of the log when the exit report was first seen. Later bytes do not belong to the log.
    log_end: int | None = Field(default=None, ge=0)
    #: Files that could not be read in any of the tries, each with the error. All other files are shipped.
    lost: dict[str, str] = Field(default_factory=dict)
    #: Whether MongoDB has acknowledged the log, the items and the exit.
    acknowledged: bool = False
    #: How far its files are in the file store; and once all are shipped, which files were kept.
    files_position: FilesPosition = FilesPosition()
    files_kept: records.FilesKept | None = None
    #: Whether the job's document has the list of kept files.
    files_told: bool = False


def load_checkpoint(folder: Path) -> Checkpoint:
    """The saved checkpoint. If there is none, or it cannot be read, a checkpoint at the beginning."""
    with suppress(OSError, ValueError):
        return Checkpoint.model_validate_json(files.read_file(folder / files.SHIPPED))
    return Checkpoint()


@state_change("tailer.save_checkpoint")
def save_checkpoint(folder: Path, data: bytes) -> None:
    """Raises `OSError`, for example on a full disk."""
    files.write_atomically(folder / files.SHIPPED, data)


# --- notices that a progress file was rewritten, for one sink

#: Seconds between two reports; the last one is never held back.
PROGRESS_EVERY = 1.0


class ProgressWatch:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._told: tuple[int, int] | None = None
        self._told_at = 0.0

    def news(self, *, ended: bool = False) -> records.Progress | None:
        """Progress that was not published yet; `None` if there is none, or if the last one was published too
        recently.
        """
        if not ended and time.monotonic() - self._told_at < PROGRESS_EVERY:
            return None
        path = files.state_dir(self._folder) / files.PROGRESS
        try:
            status = path.lstat()
        except OSError:
            return None
        self._seen = status.st_ino, status.st_mtime_ns
        return None if self._seen == self._told else records.read_record(path, records.Progress)

    def told(self) -> None:
        """Note that what `news` returned was published."""
        self._told = self._seen
        self._told_at = time.monotonic()


# --- one attempt's folder as the tailer knows it

log = structlog.get_logger()

#: Seconds between two checkpoints of one attempt.
SAVE_EVERY = 0.5
#: How often in a row a file of an ended attempt may be unreadable before the rest is shipped without it: `TRIES` if
#: the path is not a file, `TRIES_OF_THE_DISK` if the disk fails to read it.
TRIES = 5
TRIES_OF_THE_DISK = 50
#: To find out whether a crawl has written any file, four times this many entries are read at most.
FILES_LOOKED_FOR = 250
#: Errors of this process, which say nothing about the file.
FAULTS_OF_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class AttemptFolder:
    """The state of one attempt, shared by threads. Each field has one writer. If two fields do not match for a
    moment, the attempt is only checked once more.
    """

    def __init__(
        self, outbox: Path, attempt_id: files.AttemptId, longest_log: int = 0, longest_items: int = 0
    ) -> None:
        """`longest_log`: later bytes of the log are ignored. `longest_items`: later bytes of `items.jsonl` count as
        unreadable. 0 is no limit.
        """
        self.id = attempt_id
        self._longest_log = longest_log
        self.longest_items: float = longest_items or math.inf
        self.folder = files.attempt_dir(outbox, attempt_id)
        self.checkpoint: Checkpoint = load_checkpoint(self.folder)
        # The following fields are not saved: after a restart, the tailer finds their values again.
        #: The byte offset up to which MongoDB has the log, including the growing chunk.
        self.log_stored = self.checkpoint.log_mongo.offset
        #: The byte offset up to which MongoDB has the record of requests, including the growing chunk.
        self.requests_stored = self.checkpoint.requests
        #: The byte offset up to which the end of the next, very long item was searched in vain.
        self.items_searched = 0
        #: Whether the job knows that this attempt was started.
        self.start_reported = False
        self.progress_published = ProgressWatch(self.folder)
        self.progress_recorded = ProgressWatch(self.folder)
        #: The progress of the attempt over time; read when it is first needed.
        self.series: ProgressSeries | None = None
        #: Since when the end waits, because files are still being shipped (monotonic).
        self.waits_for_files_since: float | None = None
        #: Whether the files that are not stored yet are given up, because the disk is full.
        self.gives_files_up = False
        self._has_files: bool | None = None
        #: When the lock was first found free without an exit report (monotonic).
        self.free_since: float | None = None
        self._saved = b""
        self._saved_at = 0.0
        self._end_lock = threading.Lock()
        self._correlation_id: str | None = None
        #: How often in a row each file could not be read.
        self._failures: Counter[str] = Counter()

    def in_log(self) -> AbstractContextManager[object]:
        """While the block runs, every log line names the attempt's job."""
        if self._correlation_id is None and files.is_there(self.folder / files.SPEC):
            # read only once, because refusing a hostile file may take long
            spec = records.read_record(self.folder / files.SPEC, records.NodeSpec)
            self._correlation_id = (spec and spec.correlation_id) or self.id.job_id
        return about_message(self.id.job_id, self._correlation_id)

    @property
    def log_path(self) -> Path:
        return self.folder / files.LOG

    @property
    def log_end(self) -> int | None:
        """The length of the finished log, the same for both sinks; `None` while the attempt may still write."""
        if files.LOG in self.checkpoint.lost:
            return self.checkpoint.log_end
        if self.checkpoint.log_end is None:
            if not self.has_ended:
                return None
            with self._end_lock:
                if self.checkpoint.log_end is None:
                    self.checkpoint.log_end = self.log_size
        # a process may have truncated the file since
        return min(self.checkpoint.log_end, self.log_size)

    @property
    def log_bound(self) -> int | None:
        """The offset at which reading the log ends: its end, or the size limit of a log once this is reached."""
        end = self.log_end
        if end is None and self._longest_log and self.log_size >= self._longest_log:
            return self._longest_log
        return end

    @property
    def has_ended(self) -> bool:
        """Whether there is an exit report, or any other entry with its name: then no process can write one."""
        return self.checkpoint.log_end is not None or files.is_there(self.folder / files.EXIT)

    @property
    def log_size(self) -> int:
        size = files.file_size(self.log_path)
        return min(size, self._longest_log) if self._longest_log else size

    @property
    def is_live_shipped(self) -> bool:
        end = self.log_end
        return end is not None and (files.LOG in self.checkpoint.lost or self.checkpoint.log_redis.offset >= end)

    @property
    def is_log_stored(self) -> bool:
        """Whether the log is completely in MongoDB, as far as it can be read."""
        end = self.log_end
        return files.LOG in self.checkpoint.lost or (end is not None and self.log_stored >= end)

    @property
    def has_files(self) -> bool:
        """Whether the ended crawl has written any files. The folder alone does not show it: every crawl of an egg has
        one.
        """
        if self._has_files is None:
            try:
                self._has_files = any(True for _ in find_files(self.folder, FILES_LOOKED_FOR))
            except FileNotFoundError:
                self._has_files = False
            except OSError:
                # the entry is not a folder, or cannot be read now
                return True
        return self._has_files

    @property
    def are_files_told(self) -> bool:
        """Whether the files are in the file store, and the job has their list."""
        return self.checkpoint.files_told if self.checkpoint.files_kept is not None else not self.has_files

    def was_read(self, name: str) -> None:
        self._failures.pop(name, None)

    def not_read(self, name: str, error: OSError) -> None:
        """Count a failed read. If the attempt has ended, and too many reads in a row have failed, the file is given
        up.
        """
        if error.errno in FAULTS_OF_OURS or not self.has_ended:
            return
        self._failures[name] += 1
        if self._failures[name] < (TRIES if isinstance(error, files.HostileFileError) else TRIES_OF_THE_DISK):
            return
        log.warning("file_lost", attempt=str(self.id), file=name, error=str(error))
        if name == files.LOG:
            # the part that is shipped becomes the whole log
            self.checkpoint.log_end = self.log_stored
        self.checkpoint.lost = {**self.checkpoint.lost, name: str(error)}

    def save(self, *, now: bool = False) -> None:
        """Write the checkpoint if it has changed and the last one is old enough. If the disk is full, shipping goes
        on without it.
        """
        if not now and time.monotonic() - self._saved_at < SAVE_EVERY:
            return
        data = self.checkpoint.model_dump_json().encode()
        if data == self._saved:
            return
        self._saved_at = time.monotonic()
        try:
            save_checkpoint(self.folder, data)
        except OSError as error:
            log.warning("checkpoint_not_written", attempt=str(self.id), error=str(error))
        else:
            self._saved = data


# --- logs of crawls that were scheduled at Scrapyd itself: they belong to no job of ours, so only this removes them

#: Seconds between two rounds.
PLAIN_LOGS_EVERY = 600.0


class PlainLogs:
    """Removes old files `logs/<project>/<spider>/<job>.log`. Links are not removed here, but with their attempts."""

    def __init__(self, node_dir: Path, keep: timedelta, clock: Clock) -> None:
        self._path = node_dir / "logs"
        self._keep = keep
        self._clock = clock
        self._next_look = 0.0

    def look(self) -> None:
        """Remove the old logs if it is time for the next round. Errors are only logged."""
        if not self._keep or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + PLAIN_LOGS_EVERY
        try:
            self._remove(self._old_ones())
        except OSError as error:
            log.warning("old_logs_not_removed", error=str(error))

    def _old_ones(self) -> list[Path]:
        oldest = (self._clock() - self._keep).timestamp()
        return [path for path in self._path.glob("*/*/*.log") if not _is_linked(path) and _is_older(path, oldest)]

    @state_change("tailer.remove_plain_logs")
    def _remove(self, old: Iterable[Path]) -> None:
        """Remove these logs, except those that a crawl still has open."""
        if not (old := set(old)):
            return
        for path in old - _open_files():
            path.unlink(missing_ok=True)


def _is_linked(path: Path) -> bool:
    """Whether the path, or one of the two folders above it, is a link. The targets of links are never removed."""
    return any(part.is_symlink() for part in (path, path.parent, path.parent.parent))


def _is_older(path: Path, moment: float) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_mtime < moment


def _open_files() -> set[Path]:
    """The open files of all processes of this user, which include all processes of the node."""
    found: set[Path] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            found.update(Path(file.path) for file in process.open_files())
    return found


# --- notices changes in the outbox as they happen. The sweep finds what it misses.

#: Is called with the changed attempt, and the name of the file that was written.
Listener = Callable[[files.AttemptId, str], None]


class _Handler(FileSystemEventHandler):
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_modified(self, event: FileSystemEvent) -> None:
        # no pathlib, because this is called for every line of every log
        folder, _, name = str(event.src_path).rpartition("/")
        folder = folder.removesuffix(f"/{files.STATE}")
        attempt_id = files.AttemptId.parse(folder.rpartition("/")[2])
        if attempt_id is not None:
            self._listener(attempt_id, name)


def watch(outbox: Path, listener: Listener) -> BaseObserver:
    """Call `listener` from a separate thread until the observer is stopped. The observer is already started.

    Only modified files are reported, not renames: for each rename, watchdog would delay all later events by half a
    second to find the matching event. So a file that is first written under a temporary name is reported under this
    name.
    """
    observer = Observer()
    observer.daemon = True
    observer.schedule(_Handler(listener), str(outbox), recursive=True, event_filter=[FileModifiedEvent])
    observer.start()
    return observer
