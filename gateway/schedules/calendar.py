"""The past and coming occurrences of many schedules between two times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from attrs import define

from gateway.clock import Clock, utc_now
from gateway.jobs.job import JobStatus, ListedJob
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.schedules.next_run import OccurrenceTime, preview
from gateway.schedules.schedule import LedgerEntry, LedgerKind, Schedule, ScheduleState
from gateway.schedules.store import LedgerStore, ScheduleFilter, ScheduleStore
from gateway.stores.documents import cursor_of
from gateway.stores.mongo import mongo_errors

#: Maximum number of days between the two times.
MAX_DAYS = 31
#: At most this many past, and as many coming, occurrences of one schedule are shown: enough for hourly runs in a week
#: of any time zone.
MAX_OCCURRENCES = 200
#: Seconds after which a page ends. A cron expression can name a day that comes once in 28 years, which takes long to
#: find.
SECONDS = 2.0
_MILLISECOND = timedelta(milliseconds=1)


class Past(NamedTuple):
    entry: LedgerEntry
    #: The status of the occurrence's job; `None` if it did not run, or if its job was deleted.
    status: JobStatus | None


class Row(NamedTuple):
    """One schedule, with at most `MAX_OCCURRENCES` of its newest past and as many of its next occurrences."""

    schedule: Schedule
    #: The newest first.
    past: list[Past]
    coming: list[OccurrenceTime]
    is_past_cut: bool
    is_coming_cut: bool


class CalendarPage(NamedTuple):
    now: datetime
    rows: list[Row]
    next: str | None
    #: Single crawls that wait for their start time, the next first; only on the first page.
    single: list[ListedJob]
    is_single_cut: bool


@define(eq=False, repr=False, slots=False, kw_only=True)
class ScheduleCalendar:
    _schedules: ScheduleStore
    _ledger: LedgerStore
    _queries: JobQueries
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic

    def page(
        self, wanted: ScheduleFilter, since: datetime, until: datetime, limit: int, after: str | None = None
    ) -> CalendarPage:
        """The occurrences due from `since` on and before `until`. Schedules without any are left out, and after
        `SECONDS` no further schedule is looked at, so a page may have fewer than `limit`. Raises
        `InvalidRequestError` for a wrong cursor, `UnavailableError`.
        """
        now = self._clock()
        with mongo_errors():
            schedules, following = self._schedules.page(wanted, limit, after)
            ledgers = [self._ledger.between(one.id, since, until, MAX_OCCURRENCES + 1) for one in schedules]
            fired = [entry.job_id for entries in ledgers for entry in entries if entry.kind is LedgerKind.FIRED]
            statuses = self._queries.statuses(fired)
            single = [] if after else self._single(wanted, since, until)
        rows, began = [], self._monotonic()
        for schedule, entries in zip(schedules, ledgers, strict=True):
            past = [Past(entry, statuses.get(entry.job_id)) for entry in entries]
            ahead = _ahead(schedule, max(now, since), until, now)
            if past or ahead:
                rows.append(_row(schedule, past, ahead))
            if schedule is not schedules[-1] and self._monotonic() - began > SECONDS:
                following = cursor_of(schedule.created_at, schedule.id)
                break
        most = MAX_OCCURRENCES
        return CalendarPage(now, rows, following, single[:most], is_single_cut=len(single) > most)

    def _single(self, wanted: ScheduleFilter, since: datetime, until: datetime) -> list[ListedJob]:
        same = ("user_id", "project", "spider", "site", "q", "projects")
        crawls = JobFilter(**{name: getattr(wanted, name) for name in same})
        return self._queries.one_off(crawls, since, until, MAX_OCCURRENCES + 1)


def coming(
    schedule: Schedule, now: datetime, count: int, since: datetime | None = None, until: datetime | None = None
) -> list[OccurrenceTime]:
    """The next `count` occurrences, or those due after `since` and before `until`. An occurrence that is due and not
    yet fired is still to come. A paused schedule shows those that it would have; an ended one has none.
    """
    left = count if schedule.max_runs is None else min(count, schedule.max_runs - schedule.runs)
    if schedule.state is ScheduleState.ENDED or left <= 0:
        return []
    after = min(now, (schedule.next_run or now) - _MILLISECOND)
    return preview(schedule.id, schedule.timing, max(after, since or after), left, *([until] if until else []))


def _ahead(schedule: Schedule, since: datetime, until: datetime, now: datetime) -> list[OccurrenceTime]:
    if schedule.state is not ScheduleState.ACTIVE:
        return []
    begin = None if since <= now else since - _MILLISECOND
    return coming(schedule, now, MAX_OCCURRENCES + 1, begin, until)


def _row(schedule: Schedule, past: Sequence[Past], ahead: Sequence[OccurrenceTime]) -> Row:
    most = MAX_OCCURRENCES
    return Row(schedule, list(past[:most]), list(ahead[:most]), len(past) > most, len(ahead) > most)
