"""One attempt's folder as the tailer knows it."""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import structlog

from gateway.correlation import about_message
from gateway.domain.node_files import (
    EXIT,
    LOG,
    SPEC,
    AttemptId,
    HostileFileError,
    NodeSpec,
    attempt_dir,
    file_size,
    is_there,
    read_record,
)
from gateway.tailer.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from gateway.tailer.progress_watch import ProgressWatch

log = structlog.get_logger()

#: Seconds between two checkpoints of one attempt.
SAVE_EVERY = 0.5
#: How often in a row a file of an attempt that has ended may be unreadable before the rest is shipped without it: one
#: that is no file, and one that the disk fails to give.
TRIES = 5
TRIES_OF_THE_DISK = 50
#: What is wrong with this process then, and not with the file.
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class Attempt:
    """Shared by the threads. Each field has one writer; a torn view of two fields costs a second look, no more."""

    def __init__(self, outbox: Path, attempt_id: AttemptId, longest_log: int = 0) -> None:
        """`longest_log` in bytes: what a log has beyond that is no part of it; 0 is no limit."""
        self.id = attempt_id
        self._longest_log = longest_log
        self.folder = attempt_dir(outbox, attempt_id)
        self.checkpoint: Checkpoint = load_checkpoint(self.folder)
        # What follows is not saved: after a restart it is found, or shipped, once more.
        #: Byte offset up to which MongoDB has the log, the growing chunk included.
        self.log_stored = self.checkpoint.log_mongo.offset
        #: Up to here the item that begins at the checkpoint has no end.
        self.items_searched = 0
        #: The job knows that this attempt was started.
        self.start_reported = False
        self.progress_published = ProgressWatch(self.folder)
        self.progress_recorded = ProgressWatch(self.folder)
        #: When the lock was first found free without an exit report (monotonic).
        self.free_since: float | None = None
        self._saved = b""
        self._saved_at = 0.0
        self._end_lock = threading.Lock()
        self._correlation_id: str | None = None
        #: How often in a row each file could not be read.
        self._failures: Counter[str] = Counter()

    def in_log(self) -> AbstractContextManager[object]:
        """Every line that is logged within says which job it is about."""
        if self._correlation_id is None and (spec := read_record(self.folder / SPEC, NodeSpec)):
            self._correlation_id = spec.correlation_id or self.id.job_id
        return about_message(self.id.job_id, self._correlation_id)

    @property
    def log_path(self) -> Path:
        return self.folder / LOG

    @property
    def log_end(self) -> int | None:
        """Length of the finished log, the same for both sinks; `None` while the attempt may still write."""
        if LOG in self.checkpoint.lost:
            return self.checkpoint.log_end
        if self.checkpoint.log_end is None:
            if not self.has_ended:
                return None
            with self._end_lock:
                if self.checkpoint.log_end is None:
                    self.checkpoint.log_end = self.log_size
        # somebody may have cut the file since
        return min(self.checkpoint.log_end, self.log_size)

    @property
    def log_bound(self) -> int | None:
        """Where reading the log ends: its end, or the longest that a log may be, once it is that long."""
        end = self.log_end
        if end is None and self._longest_log and self.log_size >= self._longest_log:
            return self._longest_log
        return end

    @property
    def has_ended(self) -> bool:
        """There is an exit report, or something under its name: nobody will write one any more."""
        return self.checkpoint.log_end is not None or is_there(self.folder / EXIT)

    @property
    def log_size(self) -> int:
        size = file_size(self.log_path)
        return min(size, self._longest_log) if self._longest_log else size

    @property
    def is_live_shipped(self) -> bool:
        end = self.log_end
        return end is not None and (LOG in self.checkpoint.lost or self.checkpoint.log_redis.offset >= end)

    def was_read(self, name: str) -> None:
        self._failures.pop(name, None)

    def not_read(self, name: str, error: OSError) -> None:
        """Go on without the file, if the attempt has ended and this was once too often."""
        if error.errno in _OURS or not self.has_ended:
            return
        self._failures[name] += 1
        if self._failures[name] < (TRIES if isinstance(error, HostileFileError) else TRIES_OF_THE_DISK):
            return
        log.warning("file_lost", attempt=str(self.id), file=name, error=str(error))
        if name == LOG:
            # what was shipped of it is what there is
            self.checkpoint.log_end = self.log_stored
        self.checkpoint.lost = {**self.checkpoint.lost, name: str(error)}

    def save(self, *, now: bool = False) -> None:
        """Write the checkpoint if it has changed and the last one is old enough. A full disk stops nothing."""
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
