"""Ships the files of an attempt to the file store once it has ended, because a feed is written until the end."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

import structlog
from attrs import define, field

from gateway.clock import Clock, from_timestamp, utc_now
from gateway.contract import outbox as files
from gateway.contract import records
from gateway.contract.written_files import FoundFile, find_files, open_written
from gateway.errors import FileStoreAwayError, JobNotFoundError, UnavailableError, UnreadableError
from gateway.files.store import PART, FileRecord, FileStore
from gateway.jobs.store import JobStore
from gateway.stores.mongo import is_passing
from gateway.tailer.outbox import FAULTS_OF_OURS, AttemptFolder, FilesPosition

log = structlog.get_logger()

#: After this many files, or bytes, it is another attempt's turn.
TURN_FILES = 50
TURN_BYTES = 64 << 20
#: The end of an attempt waits for its files for this many seconds, so that clients that see the end can read them.
PATIENCE = 30.0
#: An attempt gives up its files only if the store has not answered for this many seconds.
GIVEN_UP_AFTER = 10.0
#: A job lists at most this many refused files.
NAMED = 20
#: The names of refused files are cut to this many characters.
_LONGEST = 300


class FileLimits(NamedTuple):
    """Limits for the files of one attempt."""

    files: int
    file_bytes: int
    all_bytes: int


@define(eq=False, repr=False, slots=False)
class FileSink:
    """Ships files to the file store. Only one thread may call `ship`."""

    name = "the file store"
    _store: FileStore
    _jobs: JobStore
    _limits: FileLimits
    #: Called when all files of an attempt are shipped.
    _on_kept: Callable[[AttemptFolder], None]
    _clock: Clock = utc_now
    #: Why the store did not answer at the last call; `None` if it did.
    _problem: str | None = field(init=False, default=None)
    #: Since when the store has not answered (monotonic).
    _away_since: float = field(init=False, default=0.0)
    #: The files of ended attempts that are still to be shipped, the last name first.
    _left: dict[files.AttemptId, list[FoundFile]] = field(init=False, factory=dict)

    @property
    def troubles(self) -> list[str]:
        return [self._problem] if self._problem else []

    def keeps_waiting(self, attempt: AttemptFolder) -> bool:
        """Whether the end of the attempt has to wait for its files: for `PATIENCE` at most, and only while the store
        answers.
        """
        if self._problem is not None or attempt.checkpoint.files_kept is not None or not attempt.has_files:
            return False
        if attempt.waits_for_files_since is None:
            attempt.waits_for_files_since = time.monotonic()
        return time.monotonic() - attempt.waits_for_files_since < PATIENCE

    def make_room(self, attempts: Sequence[AttemptFolder]) -> None:
        """If the store is on the node's own disk, and the disk is full, make the first of these attempts give up the
        files that could not be stored: nothing else would make room again. Raises `OSError`.
        """
        has_waited = self._problem is not None and time.monotonic() - self._away_since > GIVEN_UP_AFTER
        if has_waited and attempts and self._store.shares_disk(attempts[0].folder):
            log.warning("files_given_up", attempt=str(attempts[0].id), error=self._problem)
            attempts[0].gives_files_up = True

    def ship(self, attempt: AttemptFolder) -> bool:
        """Ship some files. Returns whether there may be more. Raises `FileStoreAwayError`, PyMongo's errors."""
        if not attempt.has_ended or attempt.are_files_told:
            return False
        try:
            more = attempt.checkpoint.files_kept is None and self._ship_some(attempt)
            if not more and attempt.checkpoint.acknowledged:
                self._tell(attempt)
        except FileStoreAwayError as error:
            if self._problem is None:
                self._away_since = time.monotonic()
            self._problem = error.message
            # the end of the attempt does not wait for its files any longer
            self._on_kept(attempt)
            raise
        return more

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, UnavailableError) or is_passing(error)

    def _ship_some(self, attempt: AttemptFolder) -> bool:
        left = self._left.get(attempt.id)
        if left is None:
            left = self._left[attempt.id] = self._find(attempt)
        end = attempt.checkpoint.files_position.kept.bytes + TURN_BYTES
        for _ in range(TURN_FILES):
            position = attempt.checkpoint.files_position
            if not left or position.kept.bytes > end:
                break
            kept = self._ship_file(attempt, left[-1], position.kept)
            attempt.checkpoint.files_position = FilesPosition(name=left.pop().name, kept=kept)
        if not left:
            attempt.checkpoint.files_kept = attempt.checkpoint.files_position.kept
            del self._left[attempt.id]
            self._on_kept(attempt)
        return bool(left)

    def _find(self, attempt: AttemptFolder) -> list[FoundFile]:
        """The files that are still to be shipped, in descending order of their names."""
        position, found = attempt.checkpoint.files_position, list[FoundFile]()
        begins = position == FilesPosition()
        # if the path is not a folder, or cannot be opened, there are no files
        with suppress(FileNotFoundError, files.HostileFileError):
            all_found = find_files(attempt.folder, self._limits.files)
            found = [one for one in all_found if begins or one.name > position.name]
        return sorted(found, key=attrgetter("name"), reverse=True)

    def _ship_file(self, attempt: AttemptFolder, found: FoundFile, kept: records.FilesKept) -> records.FilesKept:
        """Ship one file. Returns `kept` with this file added, stored or refused."""
        full = "the node's disk, which is the file store's as well, was full" if attempt.gives_files_up else None
        problem = found.problem or full or self._too_much(kept, found.size)
        try:
            if problem is None:
                size = self._send(attempt, found)
                return kept.model_copy(update={"count": kept.count + 1, "bytes": kept.bytes + size})
        except FileNotFoundError:
            return kept
        except _Unfit as error:
            problem = str(error)
        named = {"name": found.name[:_LONGEST] or files.FILES, "reason": str(problem)[:_LONGEST]}
        refused = [*kept.refused, *([named] if len(kept.refused) < NAMED else [])]
        return kept.model_copy(update={"refused_count": kept.refused_count + 1, "refused": refused})

    def _too_much(self, kept: records.FilesKept, size: int) -> str | None:
        limits = self._limits
        if size > limits.file_bytes:
            return f"it has {size} bytes; {limits.file_bytes} are allowed (FILES_MAX_FILE_BYTES)"
        if kept.count >= limits.files:
            return f"there are {limits.files} files already (FILES_MAX_COUNT)"
        if kept.bytes + size > limits.all_bytes:
            return f"all files together would have more than {limits.all_bytes} bytes (FILES_MAX_BYTES)"
        return None

    def _send(self, attempt: AttemptFolder, found: FoundFile) -> int:
        """Store one file. Returns its size in bytes. Raises `_Unfit`, `FileNotFoundError`, `FileStoreAwayError`."""
        try:
            fd = open_written(attempt.folder, found.name)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in FAULTS_OF_OURS:
                raise
            raise _Unfit(str(error.strerror)) from error
        with os.fdopen(fd, "rb") as file:
            pieces = _Pieces(file.fileno(), found.size)
            self._store.keep(attempt.id, found.name, pieces.read())
            self._problem = None
            modified = from_timestamp(os.fstat(file.fileno()).st_mtime)
        self._store.note(
            FileRecord.of(
                attempt.id,
                found.name,
                size=pieces.size,
                sha256=pieces.digest.hexdigest(),
                modified_at=modified,
                stored_at=self._clock(),
            )
        )
        return pieces.size

    def _tell(self, attempt: AttemptFolder) -> None:
        """Store in the job which files were kept. The exit report may have them, too, but a job keeps the first exit
        report that it got.
        """
        kept = attempt.checkpoint.files_kept
        if kept is not None and not self._jobs.record_files(*attempt.id, kept) and not self._is_there(attempt):
            # the job was deleted, and no other process would find these files
            self._store.delete(attempt.id.job_id)
            self._problem = None
        attempt.checkpoint.files_told = True

    def _is_there(self, attempt: AttemptFolder) -> bool:
        """Whether the job still exists."""
        try:
            self._jobs.get(attempt.id.job_id)
        except JobNotFoundError:
            return False
        except UnreadableError:
            return True
        return True


class _Unfit(Exception):  # noqa: N818 - it is no error of ours: the file stays where it is
    """The file cannot be shipped; the message says why."""


class _Pieces:
    """Reads a file once, in parts, up to the size that it had when it was found. Meanwhile the file may shrink or
    grow.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._most = size
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self) -> Iterator[bytes]:
        while data := self._next():
            self.size += len(data)
            self.digest.update(data)
            yield data

    def _next(self) -> bytes:
        """The next part; only the last part is shorter than `PART`."""
        try:
            return os.pread(self._fd, min(PART, self._most - self.size), self.size)
        except OSError as error:
            if error.errno in FAULTS_OF_OURS | {errno.EINTR}:
                raise
            raise _Unfit(str(error.strerror)) from error
