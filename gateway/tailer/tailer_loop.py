"""The main loop: it knows every attempt on the node, calls the sinks for attempts with new data, and removes shipped
files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, from_timestamp
from gateway.contract import outbox as files
from gateway.contract import records
from gateway.crash_points import state_change
from gateway.tailer.outbox import (
    AttemptFolder,
    Disk,
    Outbox,
    PlainLogs,
    is_mark,
    is_withdrawn,
    started_at,
    watch,
    withdraw,
)

log = structlog.get_logger()

#: The pause in seconds after a store, or an attempt, has failed. It doubles with each further failure.
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 2.0
#: Seconds after which an attempt whose files cannot be read is reported.
LASTING = 5.0
#: Seconds between two rounds. A single line is shipped at once. While many lines are written, each round ships those
#: of the last pause together, which is much cheaper than one by one. The pause doubles from `FIRST_PACE` up to
#: `PACE`, the pace of the event stream, so that clients do not see a difference. After `QUIET` seconds without rounds
#: it is `FIRST_PACE` again.
FIRST_PACE = 0.005
PACE = 0.02
QUIET = 0.1


class Sink(Protocol):
    @property
    def name(self) -> str: ...

    def ship(self, attempt: AttemptFolder) -> bool:
        """Ship some of the attempt's new data. Returns whether there may be more."""

    def is_away(self, error: Exception) -> bool:
        """Whether `error` means that the store does not answer, so that other attempts would fail, too."""


class _Trouble(NamedTuple):
    failures: int
    #: Monotonic time, as is `since`.
    until: float
    since: float
    error: Exception


class SinkThread(threading.Thread):
    def __init__(self, sink: Sink) -> None:
        super().__init__(name=f"ship to {sink.name}", daemon=True)
        self._sink = sink
        self._changed = threading.Condition()
        #: In the order in which `look_at` was called.
        self._waiting: dict[files.AttemptId, AttemptFolder] = {}
        self._troubled: dict[files.AttemptId, _Trouble] = {}
        self._stopping = threading.Event()
        #: Monotonic time.
        self._next_round = 0.0
        self._pace = FIRST_PACE

    def look_at(self, attempt: AttemptFolder) -> None:
        """Queue the attempt, because it may have new data. Returns at once."""
        with self._changed:
            self._waiting.setdefault(attempt.id, attempt)
            self._changed.notify()

    def forget(self, attempt_id: files.AttemptId) -> None:
        with self._changed:
            self._waiting.pop(attempt_id, None)
            self._troubled.pop(attempt_id, None)

    @property
    def troubles(self) -> list[str]:
        """The attempts with a file that has been unreadable for a while, each with its error."""
        then = time.monotonic() - LASTING
        return [
            f"{attempt_id}: {trouble.error}"
            for attempt_id, trouble in list(self._troubled.items())
            if trouble.since < then and isinstance(trouble.error, OSError)
        ]

    def stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        away = 0
        while (attempt := self._next()) is not None:
            if (trouble := self._troubled.get(attempt.id)) and time.monotonic() < trouble.until:
                continue
            with attempt.in_log():
                away = self._ship(attempt, away)

    def _ship(self, attempt: AttemptFolder, away: int) -> int:
        """Ship some of the attempt's data. Returns how often in a row the store did not answer,
        this time included.
        """
        try:
            if self._sink.ship(attempt):
                self.look_at(attempt)
        except Exception as error:  # noqa: BLE001 - no error of one attempt or one call may end shipping
            return self._failed(attempt, error, away)
        self._troubled.pop(attempt.id, None)
        if away:
            log.info("store_back", store=self._sink.name)
        return 0

    def _next(self) -> AttemptFolder | None:
        """The attempt that has waited longest; `None` when the thread has to stop."""
        while not self._stopping.is_set():
            if not self._waiting:
                self._begin_round()
            with self._changed:
                if self._waiting:
                    return self._waiting.pop(next(iter(self._waiting)))
        return None

    def _begin_round(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
        early = self._next_round - time.monotonic()
        self._pace = FIRST_PACE if -early > QUIET else min(2 * self._pace, PACE)
        # wait outside of the condition, because there every further line would wake this thread
        self._stopping.wait(max(0.0, early))
        self._next_round = time.monotonic() + self._pace

    def _failed(self, attempt: AttemptFolder, error: Exception, away: int) -> int:
        if self._sink.is_away(error):
            if away == 0:
                log.warning("store_away", store=self._sink.name, error=str(error))
            self.look_at(attempt)
            self._stopping.wait(_pause(away))
            return away + 1
        failures = trouble.failures if (trouble := self._troubled.get(attempt.id)) else 0
        # for a file that cannot be read, a traceback adds nothing
        about = {"error": str(error)} if isinstance(error, OSError) else {"exc_info": error}
        log.error("attempt_not_shipped", attempt=str(attempt.id), store=self._sink.name, **about)
        now, since = time.monotonic(), trouble.since if trouble else time.monotonic()
        self._troubled[attempt.id] = _Trouble(failures + 1, now + _pause(failures), since, error)
        return away


def _pause(failures: int) -> float:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 16))


# --- ends that no launcher reports: processes that vanished with their launcher, and attempts that came too late

#: Seconds that a launcher has to write its own report after the lock is free.
LAUNCHER_GRACE = 3.0
#: How long after its `not_after` an attempt that was never launched is given up.
STALE_AFTER = timedelta(seconds=60)
#: A folder without a readable spec is given up after this time.
SPEC_AFTER = timedelta(hours=1)
#: The last bytes of the log that a report quotes.
TAIL = 2000


@define(eq=False, repr=False, slots=False)
class Endings:
    _clock: Clock

    def look(self, attempt: AttemptFolder) -> None:
        """Write the exit report of an attempt if no launcher will write one. Raises `OSError`."""
        if files.is_there(attempt.folder / files.EXIT):
            return
        # a locked attempt was launched, even if its spider has overwritten the mark
        if is_withdrawn(attempt.folder) and not files.is_locked(attempt.folder):
            self._refuse(attempt)
        elif files.is_there(attempt.folder / files.STARTED):
            self._look_at_lock(attempt)
        elif self._clock() > self._deadline(attempt) and withdraw(attempt.folder):
            self._refuse(attempt)

    def _look_at_lock(self, attempt: AttemptFolder) -> None:
        if files.is_locked(attempt.folder):
            attempt.free_since = None
        elif attempt.free_since is None:
            attempt.free_since = time.monotonic()
        elif time.monotonic() - attempt.free_since >= LAUNCHER_GRACE:
            self._report_lost(attempt)

    def _deadline(self, attempt: AttemptFolder) -> datetime:
        spec = records.read_record(attempt.folder / files.SPEC, records.NodeSpec)
        if spec is not None:
            return spec.not_after + STALE_AFTER
        return from_timestamp(attempt.folder.lstat().st_mtime) + SPEC_AFTER

    def _report_lost(self, attempt: AttemptFolder) -> None:
        state = files.state_dir(attempt.folder)
        report = records.read_record(state / files.REPORT, records.SpiderReport)
        # if the mark is not a file, the spider has replaced it, so the node is not to blame for the loss
        has_started = is_mark(attempt.folder)
        facts = records.ExitReport(
            attempt=attempt.id.attempt,
            started_at=started_at(attempt.folder),
            ended_at=self._clock(),
            lost=has_started,
            exit_code=None if has_started else 1,
            stopped_by=files.stopping_reason(attempt.folder),
            report=report,
            log_tail=None if report else _tail(attempt),
            can_go_on=files.is_there(state / files.FRONTIER),
        )
        if _write_exit(attempt, facts):
            log.warning("attempt_lost", attempt=str(attempt.id))

    def _refuse(self, attempt: AttemptFolder) -> None:
        facts = records.ExitReport(attempt=attempt.id.attempt, ended_at=self._clock(), refused="stale", fault="node")
        if _write_exit(attempt, facts):
            log.warning("attempt_stale", attempt=str(attempt.id))


def _tail(attempt: AttemptFolder) -> str | None:
    try:
        tail = files.read_part(attempt.log_path, max(0, attempt.log_size - TAIL), TAIL)
    except files.HostileFileError as error:
        return str(error)
    return tail.decode("utf-8", "replace") or None


@state_change("tailer.write_exit")
def _write_exit(attempt: AttemptFolder, facts: records.ExitReport) -> bool:
    return records.write_exit(attempt.folder, facts)


# --- the loop

#: Seconds between two sweeps; each sweep ships the new data to MongoDB.
SWEEP_EVERY = 0.5
#: Seconds between a reported change and the check of the attempt: by then, a temporary file has its final name.
SETTLE = 0.02
#: Files whose changes are handled at once, by the names under which they are written. The log is another one.
_PROMPT = (files.STARTED, f".{files.STARTED}", f".{files.EXIT}")
#: A launch may be requested until this long after the attempt's `not_after`, because clocks differ.
REPOST_MARGIN = timedelta(seconds=60)
#: Reasons for a stop after which no later attempt continues this one.
_FOR_GOOD = files.STOP_REASONS - {"stall", "pause", "shutdown"}
#: Seconds until MongoDB is asked again whether the job of a kept attempt has ended.
ASK_EVERY = 60.0


def _has_frontier(folder: Path) -> bool:
    stopped_by = files.stopping_reason(folder)
    return stopped_by not in _FOR_GOOD and files.is_there(files.state_dir(folder) / files.FRONTIER)


class _Kept(NamedTuple):
    """When the folder of a finished attempt may be removed, in seconds since the epoch."""

    until: float
    #: The folder stays until then, even on a full disk.
    relaunchable_until: float
    #: Whether a later attempt of its job might continue it.
    has_frontier: bool = False


@define(eq=False, repr=False, slots=False)
class Follower:
    """Follows all attempts on the node. Of finished attempts, only the names are in memory until their removal."""

    _outbox: Outbox
    _live: SinkThread
    _mongo: SinkThread
    _files: SinkThread
    _keep: timedelta = field(kw_only=True)
    #: Whether an attempt's job has not ended, so that a later attempt may continue it. Raises PyMongo's errors.
    _is_awaited: Callable[[files.AttemptId], bool] = field(kw_only=True)
    #: Notes in an attempt's job that the next attempt has to start over. Raises PyMongo's errors.
    _begin_anew: Callable[[files.AttemptId], None] = field(kw_only=True)
    #: Makes the first of these attempts give up the files that cannot be stored. Raises `OSError`.
    _give_files_up: Callable[[Sequence[AttemptFolder]], None] = field(kw_only=True)
    _disk: Disk = field(kw_only=True)
    _plain_logs: PlainLogs = field(kw_only=True)
    _clock: Clock = field(kw_only=True)
    #: In bytes; 0 is no limit.
    _longest_log: int = field(default=0, kw_only=True)
    _longest_items: int = field(default=0, kw_only=True)
    _open: dict[files.AttemptId, AttemptFolder] = field(init=False, factory=dict)
    #: Acknowledged attempts.
    _kept: dict[files.AttemptId, _Kept] = field(init=False, factory=dict)
    #: Attempts with a change that cannot wait for the sweep.
    _hints: set[files.AttemptId] = field(init=False, factory=set)
    #: Attempts for which our own code has failed; each of them is logged once.
    _puzzling: set[files.AttemptId] = field(init=False, factory=set)
    #: When MongoDB may be asked about jobs again (monotonic), after it did not answer.
    _ask_at: float = field(init=False, default=0.0)
    #: Whether too little disk is free. Then the folders of acknowledged attempts are removed before the live log is
    #: shipped completely: readers get the rest from MongoDB.
    _needs_room: bool = field(init=False, default=False)
    _stopping: bool = field(init=False, default=False)
    _wake: threading.Event = field(init=False, factory=threading.Event)

    @property
    def present(self) -> list[files.AttemptId]:
        """Attempts whose end MongoDB has not acknowledged."""
        return [attempt.id for attempt in list(self._open.values()) if not attempt.checkpoint.acknowledged]

    @property
    def unshipped(self) -> int:
        """How many attempts are not yet completely in MongoDB and the file store."""
        shipped = (one.checkpoint.acknowledged and one.are_files_told for one in list(self._open.values()))
        return sum(not one for one in shipped)

    def run(self) -> None:
        """Follow all attempts until `stop` is called."""
        stop_watching = self._watch()
        next_sweep = 0.0
        try:
            while not self._stopping:
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + SWEEP_EVERY
                    self.sweep()
                elif self._wake.wait(max(0.0, next_sweep - time.monotonic())):
                    time.sleep(SETTLE)
                    self._wake.clear()
                    self._follow_hints()
        finally:
            stop_watching()
            for attempt in self._open.values():
                attempt.save(now=True)

    def _watch(self) -> Callable[[], object]:
        """Watch the outbox. Returns a function that ends the watch. If the user has no free inotify instance, only
        the sweeps see changes.
        """
        try:
            return watch(self._outbox.path, self.changed).stop
        except OSError as error:
            log.warning("outbox_not_watched", error=str(error), seconds_between_looks=SWEEP_EVERY)
            return lambda: None

    def stop(self) -> None:
        """End `run` soon. Takes no lock, so that a signal handler may call it."""
        self._stopping = True

    def changed(self, attempt_id: files.AttemptId, name: str) -> None:
        """A file of the attempt was written. Called by the watching thread."""
        attempt = self._open.get(attempt_id)
        if attempt is not None and name == files.LOG:
            self._live.look_at(attempt)
        elif attempt_id not in self._kept and (attempt is None or name.startswith(_PROMPT)):
            self._hints.add(attempt_id)
            self._wake.set()

    def sweep(self) -> None:
        """Check all attempts once."""
        self._needs_room = False
        with suppress(OSError):
            self._needs_room = self._disk.is_full()
        found = self._outbox.scan()
        for attempt_id in (*self._open.keys() - set(found), *self._kept.keys() - set(found)):
            self._forget(attempt_id)
        # the node's time is read from a file: once for all, because thousands of attempts may be kept
        now = self._clock().timestamp()
        for attempt_id in found:
            self._visit(attempt_id, now)
        if self._needs_room:
            self._make_room()
        self._outbox.finish_removals()
        self._plain_logs.look()

    def _make_room(self) -> None:
        """On a full disk, remove acknowledged attempts at once, the oldest first, until there is room again. Attempts
        that a job might continue come last, and each is removed only after its job was told to start over. If the
        disk is still full then, files that could not be stored are given up.
        """
        try:
            self._remove_until_there_is_room()
            if self._disk.is_full():
                waiting = [
                    one for one in self._open.values() if one.checkpoint.acknowledged and not one.are_files_told
                ]
                self._give_files_up(sorted(waiting, key=_ended_at))
        except OSError as error:
            log.warning("no_room_made", error=str(error))

    def _remove_until_there_is_room(self) -> None:
        now = self._clock().timestamp()
        for attempt_id, kept in sorted(self._kept.items(), key=lambda item: (item[1].has_frontier, item[1].until)):
            if not self._disk.is_full():
                break
            if kept.relaunchable_until < now and self._may_go(attempt_id):
                try:
                    self._remove(attempt_id)
                except OSError as error:
                    # the others give room all the same
                    log.warning("attempt_not_removed", attempt=str(attempt_id), error=str(error))
                    continue
                if not self._outbox.finish_removals():
                    break

    def _may_go(self, attempt_id: files.AttemptId) -> bool:
        """Whether the attempt may be removed: its job does not continue it, or was told to start over."""
        try:
            if self._may_be_resumed(attempt_id):
                self._begin_anew(attempt_id)
        except PyMongoError as error:
            log.warning("frontier_kept", attempt=str(attempt_id), error=str(error))
            return False
        return True

    def _follow_hints(self) -> None:
        hints, self._hints = self._hints, set()
        now = self._clock().timestamp()
        for attempt_id in hints:
            self._visit(attempt_id, now)

    def _visit(self, attempt_id: files.AttemptId, now: float) -> None:
        """Check an attempt, or remove it. A broken folder does not block the others."""
        try:
            if attempt_id not in self._kept:
                attempt = self._open.get(attempt_id) or self._admit(attempt_id)
                with attempt.in_log():
                    self._look_at(attempt)
            elif self._kept[attempt_id].until < now and not self._may_be_resumed(attempt_id):
                self._remove(attempt_id)
        except OSError as error:
            log.warning("attempt_troubled", attempt=str(attempt_id), error=str(error))
        except Exception:
            # an error of our own code for one attempt must not stop the others
            if attempt_id not in self._puzzling:
                self._puzzling.add(attempt_id)
                log.exception("attempt_not_followed", attempt=str(attempt_id))

    def _admit(self, attempt_id: files.AttemptId) -> AttemptFolder:
        attempt = self._open[attempt_id] = AttemptFolder(
            self._outbox.path, attempt_id, self._longest_log, self._longest_items
        )
        if attempt.checkpoint.acknowledged and attempt.are_files_told and attempt.log_end is not None:
            # readers get the rest of an acknowledged log from MongoDB
            self._set_aside(attempt)
        return attempt

    def _look_at(self, attempt: AttemptFolder) -> None:
        if attempt.id in self._kept:
            return
        self._look_for_end(attempt)
        attempt.save(now=attempt.checkpoint.acknowledged)
        if attempt.has_ended and not attempt.are_files_told:
            self._files.look_at(attempt)
        if not attempt.checkpoint.acknowledged:
            self._mongo.look_at(attempt)
        elif attempt.are_files_told and (attempt.is_live_shipped or self._needs_room):
            self._set_aside(attempt)
            return
        self._live.look_at(attempt)

    def _look_for_end(self, attempt: AttemptFolder) -> None:
        try:
            Endings(self._clock).look(attempt)
        except OSError as error:
            # probably a full disk; the attempt's data can be shipped all the same
            log.warning("exit_not_written", attempt=str(attempt.id), error=str(error))

    def _set_aside(self, attempt: AttemptFolder) -> None:
        """Keep the folder as long as a launch may be requested again: only the started mark
        prevents a second launch.
        """
        ended = (attempt.folder / files.EXIT).lstat().st_mtime
        spec = records.read_record(attempt.folder / files.SPEC, records.NodeSpec)
        relaunchable = (spec.not_after + REPOST_MARGIN).timestamp() if spec else 0.0
        until = max(ended + self._keep.total_seconds(), relaunchable)
        self._kept[attempt.id] = _Kept(until, relaunchable, _has_frontier(attempt.folder))
        self._open.pop(attempt.id, None)
        self._forget_sinks(attempt.id)

    def _may_be_resumed(self, attempt_id: files.AttemptId) -> bool:
        """Whether a later attempt might continue this one. Its frontier is a file on this node only. The file has to
        outlast each pause of the job and each wait for a slot, so MongoDB is asked whether the job has ended. A later
        attempt that continues this one removes the file when it starts.
        """
        kept = self._kept[attempt_id]
        if not kept.has_frontier or not _has_frontier(files.attempt_dir(self._outbox.path, attempt_id)):
            return False
        if time.monotonic() < self._ask_at:
            return True
        try:
            is_awaited = self._is_awaited(attempt_id)
        except PyMongoError:
            self._ask_at = time.monotonic() + ASK_EVERY
            return True
        if is_awaited:
            self._kept[attempt_id] = kept._replace(until=self._clock().timestamp() + ASK_EVERY)
        return is_awaited

    def _remove(self, attempt_id: files.AttemptId) -> None:
        self._outbox.remove(attempt_id)
        self._forget(attempt_id)

    def _forget(self, attempt_id: files.AttemptId) -> None:
        self._open.pop(attempt_id, None)
        self._kept.pop(attempt_id, None)
        self._puzzling.discard(attempt_id)
        self._forget_sinks(attempt_id)

    def _forget_sinks(self, attempt_id: files.AttemptId) -> None:
        self._live.forget(attempt_id)
        self._mongo.forget(attempt_id)
        self._files.forget(attempt_id)


def _ended_at(attempt: AttemptFolder) -> float:
    """When its exit report was written; 0 if that cannot be read, because its folder is broken."""
    with suppress(OSError):
        return (attempt.folder / files.EXIT).lstat().st_mtime
    return 0.0
