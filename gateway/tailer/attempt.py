"""One attempt's folder as the tailer knows it."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import structlog

from gateway.correlation import about_message
from gateway.domain.node_files import EXIT, LOG, SPEC, AttemptId, NodeSpec, attempt_dir, read_record
from gateway.tailer.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from gateway.tailer.progress_watch import ProgressWatch

log = structlog.get_logger()

#: Seconds between two checkpoints of one attempt.
SAVE_EVERY = 0.5


class Attempt:
    """Shared by the threads. Each field has one writer; a torn view of two fields costs a second look, no more."""

    def __init__(self, outbox: Path, attempt_id: AttemptId) -> None:
        self.id = attempt_id
        self.folder = attempt_dir(outbox, attempt_id)
        self.checkpoint: Checkpoint = load_checkpoint(self.folder)
        # What follows is not saved: after a restart it is found, or shipped, once more.
        #: Byte offset up to which MongoDB has the log, the growing chunk included.
        self.log_stored = self.checkpoint.log_mongo.offset
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
        if self.checkpoint.log_end is None:
            if not (self.folder / EXIT).exists():
                return None
            with self._end_lock:
                if self.checkpoint.log_end is None:
                    self.checkpoint.log_end = self.log_size
        # somebody may have cut the file since
        return min(self.checkpoint.log_end, self.log_size)

    @property
    def log_size(self) -> int:
        try:
            return self.log_path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def is_live_shipped(self) -> bool:
        end = self.log_end
        return end is not None and self.checkpoint.log_redis.offset >= end

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
