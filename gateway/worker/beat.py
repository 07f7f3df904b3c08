"""The clock of the platform, as a Celery Beat scheduler. Any number of beats may tick at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import structlog
from celery.beat import ScheduleEntry, Scheduler

from gateway.clock import VERDICT_SECONDS
from gateway.container import Container
from gateway.dispatch.sweeping import Sweeper
from gateway.nodes.health import BEAT, SIGN_SECONDS, HeartbeatStore, process_name
from gateway.repeated_work import Patience, Step, Steps
from gateway.schedules.firing import Scheduling
from gateway.schedules.store import StaticEntryStore
from gateway.sites.edits import SiteUpkeep
from gateway.stores.document_format import refuse_newer_stores
from gateway.stores.mongo import within
from gateway.stores.unanswered import lately_unanswered

log = structlog.get_logger()
Result = TypeVar("Result")

#: The shortest pause between two ticks, in seconds. Occurrences that become due within it are fired together.
SHORTEST_PAUSE = 0.02
#: Maximum number of seconds that a tick may take while MongoDB is slow. During a tick the beat writes no heartbeat.
_LONGEST_TICK = 12.0


class MongoScheduler(Scheduler):
    """Fires the due schedules in MongoDB; there is no schedule file that could be lost. It also sends the static
    entries: those of `beat_schedule` in the Celery configuration. MongoDB stores when an entry was sent, so that only
    one beat sends it.

    A tick begins the steps of the sweep and of `SiteUpkeep`, and fires due schedules without waiting for the steps.
    If a tick fails, this is logged, and the next tick tries again. A beat does not end if a store cannot be reached.
    """

    #: `None` makes Celery send static entries through its connection pool. Through a beat's own connection, it could
    #: wait for ever.
    producer = None

    def setup_schedule(self) -> None:
        self._parts: Container = self.app.parts
        refuse_newer_stores(self._parts.mongo_uri, BEAT)
        self._parts.start_traces(BEAT)
        self._interval: float = self.app.conf.beat_max_loop_interval
        self._name = process_name(BEAT)
        self._swept_at = self._beat_at = float("-inf")
        self._tick_patience = Patience(_LONGEST_TICK)
        self._looks = Steps((Step("upkeep", lambda _: self._parts[SiteUpkeep].look()),))
        self._is_loaded = False
        # only these entries, without Celery's own one that cleans up results: we keep no results
        self.update_from_dict(self.app.conf.beat_schedule)

    def tick(self, *_: Any, **__: Any) -> float:
        """Do everything that is due. Returns the seconds until the next tick."""
        self._sweep()
        static = self._try("static_entries_failed", lambda _: self._send_static()) if self.schedule else None
        pause = self._interval if static is None else static
        return max(SHORTEST_PAUSE, min(pause, self._fire()))

    @property
    def schedule(self) -> dict[str, ScheduleEntry]:
        """The static entries. Schedules in MongoDB are not among them."""
        entries: dict[str, ScheduleEntry] = self.data
        return entries

    def sync(self) -> None:
        """Do nothing: Celery would write its schedule file here, and we have none."""

    def close(self) -> None:
        super().close()
        self._looks.close()
        if Sweeper in self._parts:
            self._parts[Sweeper].close()
        self._parts.end_traces()

    def is_due(self, entry: ScheduleEntry) -> Any:
        """Whether this beat must send `entry`, and the seconds until the next look at it."""
        due, pause = entry.is_due()
        if not due:
            return due, pause
        entries, now = self._parts[StaticEntryStore], entry.default_now()
        last_sent = entries.last_sent().get(entry.name)
        if _adopt(entry, last_sent) and not (theirs := entry.is_due())[0]:
            return theirs
        return entries.claim(entry.name, last_sent, now), pause

    def _send_static(self) -> float:
        if not self._is_loaded:
            last_sent = self._parts[StaticEntryStore].last_sent()
            for entry in self.schedule.values():
                entry.last_run_at = last_sent.get(entry.name, entry.last_run_at)
            self._is_loaded = True
        pause: float = super().tick()
        return pause

    def _sweep(self) -> None:
        """Begin the sweep and the other looks, if it is time for them."""
        if time.monotonic() - self._swept_at < self._interval:
            return
        self._swept_at = time.monotonic()
        if self._swept_at - self._beat_at >= SIGN_SECONDS:
            self._beat_at = self._swept_at
            self._try("heartbeat_failed", lambda parts: parts[HeartbeatStore].beat(self._name, lately_unanswered()))
        self._try("tick_failed", lambda parts: parts[Sweeper].sweep())
        self._looks.begin()

    def _fire(self) -> float:
        report = self._try("tick_failed", lambda parts: parts[Scheduling].tick(), self._tick_patience)
        return self._until(report.next_due if report else None)

    def _until(self, moment: datetime | None) -> float:
        """Seconds until `moment`, but at most the interval of the ticks; this interval if `moment` is `None`."""
        if moment is None:
            return self._interval
        return min((moment - self._parts.clock()).total_seconds(), self._interval)

    def _try(
        self, failure: str, step: Callable[[Container], Result], patience: Patience | None = None
    ) -> Result | None:
        """Do one part of a tick. Returns `None` if it fails, so that the other parts are done all the same."""
        try:
            with patience.round() if patience else within(VERDICT_SECONDS):
                return step(self._parts)
        except Exception as error:  # noqa: BLE001 - see the class: after any failure the next tick looks again
            log.warning(failure, error=str(error), kind=type(error).__name__)
            return None


def _adopt(entry: ScheduleEntry, last_sent: datetime | None) -> bool:
    """Take over the time at which another beat has sent the entry after this one did. Returns whether one has."""
    if last_sent is None or last_sent <= entry.last_run_at:
        return False
    entry.last_run_at = last_sent
    return True
