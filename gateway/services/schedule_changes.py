"""Changes of a schedule as people ask for them: checked as a whole, then made in one step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from gateway.domain.clock import Clock, to_iso, utc_now
from gateway.domain.errors import ConflictError, InvalidRequestError, ScheduleChangedError, ScheduleEndedError
from gateway.domain.fingerprint import fingerprint
from gateway.domain.job import CrawlSpec, Job
from gateway.domain.outcome import CANCELLED
from gateway.domain.recurrence import LAST_YEAR, check_timing
from gateway.domain.schedule import CrawlOrder, Schedule, ScheduleState, Timing
from gateway.services.schedule_edits import ScheduleEdits
from gateway.services.work_check import WorkCheck, unpinned
from gateway.storage.client import truth_store_errors
from gateway.storage.jobs import MAX_WEBHOOKS
from gateway.storage.schedules import ScheduleStore

#: Others can only be quicker so often before something else is wrong.
_MAX_ROUNDS = 20


class Change(NamedTuple):
    """What is to be replaced, by the field names of the models."""

    schedule: dict[str, Any]
    timing: dict[str, Any]
    order: dict[str, Any]
    spec: dict[str, Any]
    #: Only if the schedule is in this revision.
    rev: int | None = None


class ScheduleChanges:
    """Each raises `ScheduleNotFoundError`, `UnavailableError`; and `ConflictError` for the schedule of a site, which
    the site keeps.
    """

    def __init__(
        self, *, schedules: ScheduleStore, edits: ScheduleEdits, check: WorkCheck, clock: Clock = utc_now
    ) -> None:
        self._schedules = schedules
        self._edits = edits
        self._check = check
        self._clock = clock

    def apply(self, schedule_id: str, change: Change) -> Schedule:
        """The schedule as it is from now on. Raises `InvalidRequestError`, `ForbiddenAddressError`, `LiveTwinError`,
        `ScheduleChangedError`, `ScheduleEndedError`.
        """
        return self._edit(schedule_id, lambda schedule: self._changes(schedule, change), change.rev)

    def pause(self, schedule_id: str) -> Schedule:
        return self._own(schedule_id, self._edits.pause)

    def resume(self, schedule_id: str) -> Schedule:
        return self._own(schedule_id, self._edits.resume)

    def run_now(self, schedule_id: str) -> Job:
        """Also of a site's: it changes nothing of the schedule."""
        with truth_store_errors():
            return self._edits.run_now(schedule_id)

    def cancel(self, schedule_id: str) -> Schedule:
        """No further run begins. Raises `ScheduleEndedError` for one that has ended."""
        schedule = self._own(schedule_id, self._schedules.get)
        if schedule.state is ScheduleState.ENDED:
            raise ScheduleEndedError("the schedule has ended already")
        with truth_store_errors():
            return self._edits.end(schedule_id, CANCELLED.message)

    def delete(self, schedule_id: str, *, only_ended: bool = False) -> None:
        """With its history. Raises `ConflictError` for one that has not ended, if that matters."""
        schedule = self._own(schedule_id, self._schedules.get)
        if only_ended and schedule.state is not ScheduleState.ENDED:
            raise ConflictError("only a schedule that has ended can be deleted here")
        with truth_store_errors():
            self._edits.delete(schedule_id)

    def add_webhook(self, schedule_id: str, url: str) -> Schedule:
        """One more to be told of the end of each run, up to `MAX_WEBHOOKS`."""
        return self._edit(schedule_id, lambda schedule: _with_webhook(schedule, url))

    def _own(self, schedule_id: str, act: Callable[[str], Schedule]) -> Schedule:
        with truth_store_errors():
            require_own(self._schedules.get(schedule_id))
            return act(schedule_id)

    def _edit(
        self, schedule_id: str, changes_of: Callable[[Schedule], dict[str, Any]], rev: int | None = None
    ) -> Schedule:
        """From the revision in which it was read, so that nobody else's change is undone."""
        with truth_store_errors():
            for _ in range(_MAX_ROUNDS):
                schedule = self._schedules.get(schedule_id)
                _require(schedule, rev)
                changes = changes_of(schedule)
                if not changes:
                    return schedule
                try:
                    return self._edits.edit(schedule_id, changes, rev=schedule.rev)
                except ScheduleChangedError:
                    continue
        raise ConflictError("the schedule is being changed over and over; ask again")

    def _changes(self, schedule: Schedule, change: Change) -> dict[str, Any]:
        old_crawl = require_own(schedule)
        timing = schedule.timing.model_copy(update=_timing(schedule, change))
        crawl = old_crawl.model_copy(update={**change.order, "spec": self._spec(old_crawl.spec, change.spec)})
        if timing != schedule.timing:
            self._check_timing(timing, schedule, given=change.timing.get("starts_at") is not None)
        if crawl != old_crawl:
            crawl = self._checked(crawl)
        if (most := change.schedule.get("max_runs")) is not None and most <= schedule.runs:
            raise InvalidRequestError("max_runs", f"must be more than the {schedule.runs} that it has had")
        wanted = {
            **change.schedule,
            "timing": timing,
            "crawl": crawl,
            "live_key": schedule.live_key and identity_of(schedule, timing, crawl.spec),
        }
        return {name: value for name, value in wanted.items() if value != getattr(schedule, name)}

    def _spec(self, spec: CrawlSpec, changes: dict[str, Any]) -> CrawlSpec:
        if changes.get("project", spec.project) != spec.project:
            # another project's version says nothing here
            changes = {"version": None, **changes}
        return spec.model_copy(update=changes)

    def _checked(self, crawl: CrawlOrder) -> CrawlOrder:
        self._check.addresses(crawl.spec, crawl.webhooks)
        pinned = self._check.pin(crawl.spec)
        self._check.means(pinned)
        return crawl.model_copy(update={"spec": unpinned(crawl.spec, pinned)})

    def _check_timing(self, timing: Timing, schedule: Schedule, *, given: bool) -> None:
        now = self._clock()
        if given and timing.starts_at != schedule.timing.starts_at:
            check_ahead(timing.starts_at, now)
        check_timing(timing, now)


def _timing(schedule: Schedule, change: Change) -> dict[str, Any]:
    if change.timing.get("starts_at", schedule) is None:
        return {**change.timing, "starts_at": schedule.created_at}
    return change.timing


def check_ahead(schedule_at: datetime, now: datetime) -> None:
    """Raises `InvalidRequestError`."""
    if schedule_at <= now:
        raise InvalidRequestError("schedule_at", f"must lie ahead; it is {to_iso(now)} now")
    if schedule_at.year >= LAST_YEAR:
        raise InvalidRequestError("schedule_at", f"must be before the year {LAST_YEAR}")


def require_own(schedule: Schedule) -> CrawlOrder:
    """What it runs. Raises `ConflictError` for a schedule that is kept by a site or one of its targets."""
    if schedule.crawl is None:
        kept_by = f"target {schedule.target!r} of site" if schedule.target else "site"
        raise ConflictError(f"this schedule is kept by {kept_by} {schedule.site!r}: change that instead")
    return schedule.crawl


def when_identity(timing: Timing, schedule_at: datetime | None) -> dict[str, str]:
    """What of it makes two requests different ones. How runs are spread, or when they end, does not."""
    asked = {"schedule_at": to_iso(schedule_at)} if schedule_at else {}
    return {"interval": timing.interval, "timezone": timing.timezone, **asked}


def identity_of(schedule: Schedule, timing: Timing, spec: CrawlSpec) -> str:
    # one that was asked for without `schedule_at` starts when it was made
    schedule_at = None if timing.starts_at == schedule.created_at else timing.starts_at
    return fingerprint(schedule.user_id, spec, when=when_identity(timing, schedule_at))


def _require(schedule: Schedule, rev: int | None) -> None:
    if rev is not None and schedule.rev != rev:
        raise ScheduleChangedError(f"rev: the schedule is in revision {schedule.rev} by now")


def _with_webhook(schedule: Schedule, url: str) -> dict[str, Any]:
    crawl = require_own(schedule)
    if url in crawl.webhooks or len(crawl.webhooks) >= MAX_WEBHOOKS:
        return {}
    return {"crawl": crawl.model_copy(update={"webhooks": (*crawl.webhooks, url)})}
