"""`GET /schedules/calendar`: the runs between two times, past and coming."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.errors import InvalidRequestError
from gateway.jobs.job import JobStatus, ListedJob, Trigger
from gateway.schedules.calendar import MAX_DAYS, MAX_OCCURRENCES, CalendarPage, Past, Row
from gateway.schedules.schedule import GRACE_SECONDS, LedgerKind, ScheduleState
from gateway.schedules.store import ScheduleFilter
from gateway.web.schemas.schedule import SHOWN_URLS, ComingRun, coming_runs
from gateway.web.schemas.types import Cursor, Name, QueryModel, QueryTime, SearchText, Timestamp, UserId

#: By default, the calendar begins three days ago and covers a week.
_BEFORE, _LENGTH = timedelta(days=3), timedelta(days=7)
_ID = "0d4f5c6b7a8e4f1d9c2b3a4e5f607182"
_RAN, _DUE = "2027-06-01T07:00:00.000Z", "2027-06-02T07:00:00.000Z"
_EXAMPLE: JsonDict = {
    "since": "2027-05-31T22:00:00.000Z",
    "until": "2027-06-07T22:00:00.000Z",
    "at": "2027-06-01T12:00:00.000Z",
    "schedules": [
        {
            "schedule_id": _ID,
            "user_id": "abc123",
            "name": "every morning",
            "spider": "seo",
            "start_urls": ["https://example.com"],
            "site": None,
            "state": "active",
            "interval": "0 9 * * *",
            "timezone": "Europe/Paris",
            "past": [
                {
                    "kind": "fired",
                    "trigger": "scheduled",
                    "due": _RAN,
                    "job_id": "8a7b6c5d4e3f4a1b8c9d0e1f2a3b4c5d",
                    "status": "finished",
                    "late": False,
                    "late_by_seconds": 0.04,
                    "missed": 0,
                    "reason": None,
                }
            ],
            "past_cut": False,
            "coming": [{"at": _DUE, "due": _DUE, "local": "2027-06-02T09:00:00+02:00", "clocks_moved_minutes": 0}],
            "coming_cut": False,
        }
    ],
    "next": None,
    "crawls": [
        {
            "job_id": "9c8b7a6d5e4f4b2c8a1d0e9f2b3c4d5e",
            "user_id": "abc123",
            "spider": "seo",
            "site": None,
            "start_urls": ["https://example.com/sale"],
            "due": "2027-06-03T06:30:00.000Z",
        }
    ],
    "crawls_cut": False,
}


class CalendarQuery(QueryModel):
    since: QueryTime | None = Field(default=None, description="From this time on; by default from three days ago.")
    until: QueryTime | None = Field(
        default=None, description=f"Before this time, at most {MAX_DAYS} days later; by default a week later."
    )
    user_id: UserId | None = Field(default=None, description="Only schedules of this user.")
    site: Name | None = Field(default=None, description="Only schedules of this site and its targets.")
    spider: Name | None = Field(default=None, description="Only schedules of this spider.")
    q: SearchText | None = Field(
        default=None, description="Only schedules with this text in the id, name, spider, site, tags or start URLs."
    )
    limit: int = Field(default=50, ge=1, le=50, description="Maximum number of schedules that are read.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")

    def to_filter(self) -> ScheduleFilter:
        return ScheduleFilter(**self.model_dump(include={"user_id", "site", "spider", "q"}))

    def between(self, now: datetime) -> tuple[datetime, datetime]:
        """The beginning and the end of the shown time. Raises `InvalidRequestError`."""
        try:
            since = self.since or (self.until - _LENGTH if self.until else now - _BEFORE)
            until = self.until or since + _LENGTH
        except OverflowError as error:
            raise InvalidRequestError("since", "or `until` is too near to the ends of the calendar") from error
        if not since < until <= since + timedelta(days=MAX_DAYS):
            raise InvalidRequestError("until", f"must be after `since`, by at most {MAX_DAYS} days")
        return since, until


class CalendarRun(BaseModel):
    """The outcome of an occurrence, or a run that a user has started by hand."""

    kind: LedgerKind
    trigger: Trigger = Field(description="`manual`: somebody asked for the run, beside the occurrences.")
    due: Timestamp
    job_id: str | None = Field(description="The run's job; null if there was no run.")
    status: JobStatus | None = Field(description="The job's; null if there was no run, or if it was deleted.")
    late: bool = Field(description=f"Whether it was fired more than {GRACE_SECONDS:g} seconds late.")
    late_by_seconds: float
    missed: int = Field(
        description="How many other occurrences this run makes up for, or were missed together with this one."
    )
    reason: str | None

    @classmethod
    def of(cls, past: Past) -> CalendarRun:
        entry = past.entry
        fields = entry.model_dump(include={"kind", "due", "late_by_seconds", "missed", "reason"})
        fired = entry.kind is LedgerKind.FIRED
        return cls(
            **fields,
            trigger=entry.trigger,
            job_id=entry.job_id if fired else None,
            status=past.status,
            late=fired and entry.late_by_seconds > GRACE_SECONDS,
        )


class CalendarSchedule(BaseModel):
    """A schedule in the calendar, with its runs of that time."""

    schedule_id: str
    user_id: str
    name: str | None
    spider: str | None = Field(description="Null for the schedule of a site or target.")
    start_urls: list[str] = Field(description=f"The first {SHOWN_URLS} start URLs.")
    site: str | None
    state: ScheduleState
    interval: str
    timezone: str
    past: list[CalendarRun] = Field(description=f"The newest {MAX_OCCURRENCES} at most, the newest first.")
    past_cut: bool = Field(description="Whether there were more.")
    coming: list[ComingRun] = Field(description=f"The next {MAX_OCCURRENCES} at most.")
    coming_cut: bool = Field(description="Whether there will be more.")

    @classmethod
    def of(cls, row: Row, now: datetime) -> CalendarSchedule:
        schedule = row.schedule
        same = schedule.model_dump(include={"user_id", "name", "site", "state"})
        zone = schedule.timing.timezone
        return cls(
            **same,
            schedule_id=schedule.id,
            spider=schedule.crawl.spec.spider if schedule.crawl else None,
            start_urls=list(schedule.crawl.spec.start_urls[:SHOWN_URLS]) if schedule.crawl else [],
            interval=schedule.timing.interval,
            timezone=zone,
            past=[CalendarRun.of(past) for past in row.past],
            past_cut=row.is_past_cut,
            coming=coming_runs(row.coming, zone, now),
            coming_cut=row.is_coming_cut,
        )


class SingleCrawl(BaseModel):
    """A crawl with `schedule_at` and without an interval that waits for its time."""

    job_id: str
    user_id: str
    spider: str
    site: str | None
    start_urls: list[str] = Field(description=f"The first {SHOWN_URLS} start URLs.")
    due: Timestamp

    @classmethod
    def of(cls, job: ListedJob) -> SingleCrawl:
        spec = job.spec
        urls = list(spec.start_urls[:SHOWN_URLS])
        return cls(
            job_id=job.id,
            user_id=job.user_id,
            spider=spec.spider,
            site=spec.site,
            start_urls=urls,
            due=job.not_before,
        )


class SchedulesCalendar(BaseModel, json_schema_extra={"examples": [_EXAMPLE]}):
    """The runs of all schedules in a time."""

    since: Timestamp
    until: Timestamp
    at: Timestamp = Field(description="The present moment: earlier occurrences are past.")
    schedules: list[CalendarSchedule]
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")
    crawls: list[SingleCrawl] = Field(
        description=f"Single crawls that wait for their time, the next {MAX_OCCURRENCES} at most; on the first page."
    )
    crawls_cut: bool = Field(description="Whether there are more of them.")

    @classmethod
    def of(cls, found: CalendarPage, since: datetime, until: datetime) -> SchedulesCalendar:
        rows = [CalendarSchedule.of(row, found.now) for row in found.rows]
        crawls = [SingleCrawl.of(job) for job in found.single]
        return cls(
            since=since,
            until=until,
            at=found.now,
            schedules=rows,
            next=found.next,
            crawls=crawls,
            crawls_cut=found.is_single_cut,
        )
