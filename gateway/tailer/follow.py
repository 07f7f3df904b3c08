"""The loop: knows every attempt on the node, tells the sinks where to look, and clears up behind them."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import NamedTuple

import structlog

from gateway.domain.clock import Clock
from gateway.domain.node_files import EXIT, LOG, SPEC, STARTED, AttemptId, NodeSpec, read_record
from gateway.tailer.attempt import Attempt
from gateway.tailer.disk import Disk
from gateway.tailer.endings import Endings
from gateway.tailer.outbox import Outbox
from gateway.tailer.plain_logs import PlainLogs
from gateway.tailer.sink_thread import SinkThread
from gateway.tailer.watch import watch

log = structlog.get_logger()

#: Seconds between two sweeps; MongoDB gets what is new at each.
SWEEP_EVERY = 0.5
#: Seconds from hearing of a change to looking: enough for a file to get its proper name.
SETTLE = 0.02
#: Files whose writing is told at once, by the names under which they are written; the log is, too.
_PROMPT = (STARTED, f".{STARTED}", f".{EXIT}")
#: How long a launch may still be asked for after an attempt's `not_after`: clocks differ.
REPOST_MARGIN = timedelta(seconds=60)


class _Kept(NamedTuple):
    """Times in seconds since the epoch."""

    until: float
    #: Before that it stays, whatever happens.
    relaunchable_until: float


class Follower:
    """Finished attempts cost nothing but their names in memory until the day of their removal."""

    def __init__(
        self,
        outbox: Outbox,
        live: SinkThread,
        truth: SinkThread,
        *,
        keep: timedelta,
        disk: Disk,
        plain_logs: PlainLogs,
        clock: Clock,
        longest_log: int = 0,
    ) -> None:
        self._outbox = outbox
        self._longest_log = longest_log
        self._live = live
        self._truth = truth
        self._keep = keep
        self._disk = disk
        self._plain_logs = plain_logs
        self._clock = clock
        self._endings = Endings(clock)
        self._open: dict[AttemptId, Attempt] = {}
        #: Acknowledged ones.
        self._kept: dict[AttemptId, _Kept] = {}
        #: Attempts that something has happened to which cannot wait for the sweep.
        self._hints: set[AttemptId] = set()
        #: Attempts that have met a fault of ours; each is told once.
        self._puzzling: set[AttemptId] = set()
        #: Too little disk is free; whoever still wants the live log of what is acknowledged reads MongoDB.
        self._needs_room = False
        self._stopping = False
        self._wake = threading.Event()

    @property
    def present(self) -> list[AttemptId]:
        """Attempts whose end MongoDB has not acknowledged."""
        return [attempt.id for attempt in list(self._open.values()) if not attempt.checkpoint.acknowledged]

    def run(self) -> None:
        """Until `stop`."""
        observer = watch(self._outbox.path, self.changed)
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
            observer.stop()
            for attempt in self._open.values():
                attempt.save(now=True)

    def stop(self) -> None:
        """End `run` soon. Takes no lock, so that a signal handler may call it."""
        self._stopping = True

    def changed(self, attempt_id: AttemptId, name: str) -> None:
        """A file of the attempt was written. Called by the watching thread."""
        attempt = self._open.get(attempt_id)
        if attempt is not None and name == LOG:
            self._live.look_at(attempt)
        elif attempt_id not in self._kept and (attempt is None or name.startswith(_PROMPT)):
            self._hints.add(attempt_id)
            self._wake.set()

    def sweep(self) -> None:
        """Look at everything once."""
        self._needs_room = self._is_disk_full()
        found = self._outbox.scan()
        for attempt_id in (*self._open.keys() - set(found), *self._kept.keys() - set(found)):
            self._forget(attempt_id)
        for attempt_id in found:
            self._visit(attempt_id)
        if self._needs_room:
            self._make_room()
        self._outbox.finish_removals()
        self._plain_logs.look()

    def _make_room(self) -> None:
        """On a full disk what is acknowledged goes at once, the oldest first, until there is room again."""
        try:
            now = self._clock().timestamp()
            for attempt_id, kept in sorted(self._kept.items(), key=lambda item: item[1].until):
                if not self._disk.is_full():
                    break
                if kept.relaunchable_until < now:
                    self._remove(attempt_id)
                    if not self._outbox.finish_removals():
                        break
        except OSError as error:
            log.warning("no_room_made", error=str(error))

    def _is_disk_full(self) -> bool:
        try:
            return self._disk.is_full()
        except OSError:
            return False

    def _follow_hints(self) -> None:
        hints, self._hints = self._hints, set()
        for attempt_id in hints:
            self._visit(attempt_id)

    def _visit(self, attempt_id: AttemptId) -> None:
        """A broken folder is in nobody's way."""
        try:
            if attempt_id not in self._kept:
                attempt = self._open.get(attempt_id) or self._admit(attempt_id)
                with attempt.in_log():
                    self._look_at(attempt)
            elif self._kept[attempt_id].until < self._clock().timestamp():
                self._remove(attempt_id)
        except OSError as error:
            log.warning("attempt_troubled", attempt=str(attempt_id), error=str(error))
        except Exception:
            # a fault of ours at one attempt is no reason to stop shipping the others
            if attempt_id not in self._puzzling:
                self._puzzling.add(attempt_id)
                log.exception("attempt_not_followed", attempt=str(attempt_id))

    def _admit(self, attempt_id: AttemptId) -> Attempt:
        attempt = self._open[attempt_id] = Attempt(self._outbox.path, attempt_id, self._longest_log)
        if attempt.checkpoint.acknowledged and attempt.log_end is not None:
            # whoever still wants the rest of a log that is acknowledged reads MongoDB
            self._set_aside(attempt)
        return attempt

    def _look_at(self, attempt: Attempt) -> None:
        if attempt.id in self._kept:
            return
        self._look_for_end(attempt)
        attempt.save(now=attempt.checkpoint.acknowledged)
        if not attempt.checkpoint.acknowledged:
            self._truth.look_at(attempt)
        elif attempt.is_live_shipped or self._needs_room:
            self._set_aside(attempt)
            return
        self._live.look_at(attempt)

    def _look_for_end(self, attempt: Attempt) -> None:
        try:
            self._endings.look(attempt)
        except OSError as error:
            # a full disk, perhaps: what is there can be shipped all the same
            log.warning("exit_not_written", attempt=str(attempt.id), error=str(error))

    def _set_aside(self, attempt: Attempt) -> None:
        self._kept[attempt.id] = self._times(attempt)
        self._open.pop(attempt.id, None)
        self._forget_sinks(attempt.id)

    def _times(self, attempt: Attempt) -> _Kept:
        """Not to be removed while the same attempt might be launched again for want of its mark."""
        ended = (attempt.folder / EXIT).lstat().st_mtime
        spec = read_record(attempt.folder / SPEC, NodeSpec)
        relaunchable = (spec.not_after + REPOST_MARGIN).timestamp() if spec else 0.0
        return _Kept(max(ended + self._keep.total_seconds(), relaunchable), relaunchable)

    def _remove(self, attempt_id: AttemptId) -> None:
        self._outbox.remove(attempt_id)
        self._forget(attempt_id)

    def _forget(self, attempt_id: AttemptId) -> None:
        self._open.pop(attempt_id, None)
        self._kept.pop(attempt_id, None)
        self._puzzling.discard(attempt_id)
        self._forget_sinks(attempt_id)

    def _forget_sinks(self, attempt_id: AttemptId) -> None:
        self._live.forget(attempt_id)
        self._truth.forget(attempt_id)
