"""How the API shows a schedule, its coming runs, and the decisions on its occurrences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.config import JsonDict

from gateway.contract.crawl import CrawlSpec, Expect
from gateway.contract.records import Progress
from gateway.jobs.hosts import CrawledHost
from gateway.jobs.job import ASKED_FIELDS, CrawlOrder, Job, JobStatus, Trigger
from gateway.schedules.next_run import OccurrenceTime, parse_time_zone
from gateway.schedules.schedule import CatchUp, LedgerEntry, LedgerKind, Overlap, Schedule, ScheduleState
from gateway.schedules.store import ScheduleFilter
from gateway.web.schemas.crawl import CrawlRequest, Interval, StartUrls, TimingFields, WorkFields
from gateway.web.schemas.job import JobStatusView, StandingView
from gateway.web.schemas.types import (
    Cursor,
    HostName,
    ItemsFileQuery,
    ItemsQuery,
    Name,
    QueryModel,
    SearchText,
    Timestamp,
    UrlText,
    UserId,
)

_ID = "0d4f5c6b7a8e4f1d9c2b3a4e5f607182"
_RUN = "8a7b6c5d4e3f4a1b8c9d0e1f2a3b4c5d"
_TIME = "2027-06-01T07:00:00.000Z"
_SUMMARY: JsonDict = {
    "schedule_id": _ID,
    "user_id": "abc123",
    "name": "every morning",
    "state": "active",
    "message": None,
    "interval": "0 9 * * *",
    "timezone": "Europe/Paris",
    "schedule_at": "2027-05-01T07:00:00.000Z",
    "ends_at": None,
    "jitter": None,
    "overlap": "skip",
    "catch_up": "one",
    "max_runs": None,
    "next_run": "2027-06-02T07:00:00.000Z",
    "runs": 32,
    "runs_by_hand": 1,
    "last_run_at": _TIME,
    "last_job_id": _RUN,
    "rev": 1,
    "spider": "seo",
    "start_urls": ["https://example.com"],
    "start_urls_count": 1,
    "tags": ["nightly"],
    "site": None,
    "target": None,
    "created_at": "2027-05-01T06:12:00.000Z",
    "updated_at": _TIME,
    "status_url": f"/jobs/{_ID}/status",
    "logs_url": f"/jobs/{_ID}/logs",
    "items_url": f"/schedules/{_ID}/items",
    "page_url": f"/console/schedules/{_ID}",
}
_PREVIEW: JsonDict = {
    "schedule_id": _ID,
    "interval": "0 9 * * *",
    "timezone": "Europe/Paris",
    "runs": [{"at": _TIME, "due": _TIME, "local": "2027-06-01T09:00:00+02:00", "clocks_moved_minutes": 0}],
}
_ENTRY: JsonDict = {
    "kind": "fired",
    "trigger": "scheduled",
    "job_id": _RUN,
    "status": "finished",
    "at": _TIME,
    "due": _TIME,
    "recorded_at": _TIME,
    "late_by_seconds": 0.04,
    "missed": 0,
    "reason": None,
    "rev": 1,
}
#: A list shows at most this many start URLs of each schedule.
SHOWN_URLS = 10
_MINUTE = timedelta(minutes=1)


if TYPE_CHECKING:
    _Asked = BaseModel
else:
    _TYPES = {**CrawlSpec.model_fields, **CrawlOrder.model_fields}
    _Asked = create_model("_Asked", **{name: (_TYPES[name].annotation, ...) for name in ASKED_FIELDS})


class CrawlView(_Asked):
    """What each run does."""

    version: str | None = Field(description="Null: each run uses the latest version at its time.")
    expect: Expect | None = Field(description="What the crawl must find; a crawl that finds less is `partial`.")
    env: dict[str, str] = Field(description="Without the values.")

    @classmethod
    def of(cls, order: CrawlOrder) -> CrawlView:
        fields = {**dict(order), **dict(order.spec.shown())}
        return cls(**{name: fields[name] for name in ASKED_FIELDS})


class ScheduleSummary(BaseModel, json_schema_extra={"examples": [_SUMMARY]}):
    """One line of a list."""

    schedule_id: str = Field(description="The schedule's id. It can be used in place of a job's id.")
    user_id: str
    name: str | None
    state: ScheduleState
    message: str | None = Field(description="Why it ended.")
    interval: str
    timezone: str
    schedule_at: Timestamp = Field(description="No run before this time; intervals are counted from it.")
    ends_at: Timestamp | None
    jitter: float | None = Field(description="Null: the default, 0.1 for `every` and 0 for cron.")
    overlap: Overlap
    catch_up: CatchUp
    max_runs: int | None
    next_run: Timestamp | None = Field(description="The next run, with jitter; null unless the schedule is active.")
    runs: int = Field(description="How many of its occurrences ran.")
    runs_by_hand: int = Field(description="How many other runs were started by hand; `max_runs` does not count them.")
    last_run_at: Timestamp | None = Field(description="When the last run began, also one that somebody asked for.")
    last_job_id: str | None
    rev: int = Field(description="The revision: it grows by 1 with each change of the schedule.")
    spider: str | None = Field(
        description="Null for the schedule of a site or target, whose record says what to run."
    )
    start_urls: list[str] = Field(description=f"The first {SHOWN_URLS} start URLs.")
    start_urls_count: int
    tags: list[str]
    site: str | None = Field(description="The site that the schedule, or the schedule's target, belongs to.")
    target: str | None
    created_at: Timestamp
    updated_at: Timestamp
    status_url: str
    logs_url: str
    items_url: str
    page_url: str = Field(description="The schedule's page in the console, for people.")

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleSummary:
        return cls(**_summary(schedule))


class ScheduleView(ScheduleSummary):
    """Everything known of a schedule."""

    crawl: CrawlView | None = Field(
        description="Null for the schedule of a site or target, whose record says what to run."
    )

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleView:
        return cls(**_summary(schedule), crawl=CrawlView.of(schedule.crawl) if schedule.crawl else None)


class SchedulePage(BaseModel):
    """A page of schedules."""

    schedules: list[ScheduleSummary]
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")


class ComingRun(BaseModel):
    """A run of a schedule that is to come."""

    at: Timestamp = Field(description="The time by the schedule.")
    due: Timestamp = Field(description="The same time with jitter: the run starts then.")
    local: str = Field(description="`due` in the schedule's time zone, with its offset.")
    clocks_moved_minutes: int = Field(
        description="By how many minutes the clocks of the time zone have moved since the run before, or since now."
    )


class SchedulePreview(BaseModel, json_schema_extra={"examples": [_PREVIEW]}):
    """The coming runs, with changes of daylight-saving time."""

    schedule_id: str
    interval: str
    timezone: str
    runs: list[ComingRun]

    @classmethod
    def of(cls, schedule: Schedule, moments: list[OccurrenceTime], now: datetime) -> SchedulePreview:
        timing = schedule.timing
        runs = coming_runs(moments, timing.timezone, now)
        return cls(schedule_id=schedule.id, interval=timing.interval, timezone=timing.timezone, runs=runs)


class LedgerEntryView(BaseModel, json_schema_extra={"examples": [_ENTRY]}):
    """The decision on one occurrence, or a run that a user has started by hand."""

    kind: LedgerKind
    trigger: Trigger = Field(description="`manual`: somebody asked for the run, beside the occurrences.")
    job_id: str | None = Field(description="The run's job; null if there was no run.")
    status: JobStatus | None = Field(description="The job's; null if there was no run, or if it was deleted.")
    at: Timestamp
    due: Timestamp
    recorded_at: Timestamp
    late_by_seconds: float
    missed: int = Field(
        description="How many other occurrences this run makes up for, or were missed together with this one."
    )
    reason: str | None
    rev: int = Field(description="The revision of the schedule that the decision was made by.")

    @classmethod
    def of(cls, entry: LedgerEntry, status: JobStatus | None) -> LedgerEntryView:
        fields = entry.model_dump(exclude={"schedule_id", "job_id"})
        job_id = entry.job_id if entry.kind is LedgerKind.FIRED else None
        return cls(**fields, job_id=job_id, status=status, trigger=entry.trigger)


class ScheduleHistory(BaseModel):
    """A page of what came of a schedule's times."""

    entries: list[LedgerEntryView] = Field(description="The newest occurrence first.")
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")


def coming_runs(moments: Sequence[OccurrenceTime], timezone: str, now: datetime) -> list[ComingRun]:
    """The runs at these times, with local times. Raises `InvalidRequestError` for an unknown time zone."""
    zone, runs = parse_time_zone(timezone), []
    before = now.astimezone(zone).utcoffset()
    for at, due in moments:
        offset = due.astimezone(zone).utcoffset()
        moved = (offset - before) // _MINUTE if offset is not None and before is not None else 0
        runs.append(ComingRun(at=at, due=due, local=local_time(due, timezone), clocks_moved_minutes=moved))
        before = offset
    return runs


def local_time(moment: datetime, timezone: str) -> str:
    """The local time with its offset. Milliseconds are shown only if they are not zero, because of jitter."""
    local = moment.astimezone(parse_time_zone(timezone))
    return local.isoformat(timespec="milliseconds" if local.microsecond else "seconds")


def _summary(schedule: Schedule) -> dict[str, Any]:
    same = schedule.model_dump(
        include={
            "user_id", "name", "state", "message", "overlap", "catch_up", "max_runs", "next_run", "runs",
            "runs_by_hand", "last_run_at", "last_job_id", "rev", "site", "target", "created_at", "updated_at",
        }
    )  # fmt: skip
    urls = schedule.crawl.spec.start_urls if schedule.crawl else ()
    return {
        **same,
        **schedule.timing.model_dump(include={"interval", "timezone", "ends_at", "jitter"}),
        "schedule_id": schedule.id,
        "schedule_at": schedule.timing.starts_at,
        "spider": schedule.crawl.spec.spider if schedule.crawl else None,
        "start_urls": list(urls[:SHOWN_URLS]),
        "start_urls_count": len(urls),
        "tags": list(schedule.crawl.tags) if schedule.crawl else [],
        "status_url": f"/jobs/{schedule.id}/status",
        "logs_url": f"/jobs/{schedule.id}/logs",
        "items_url": f"/schedules/{schedule.id}/items",
        "page_url": f"/console/schedules/{schedule.id}",
    }


# --- requests about schedules

#: The value of `run` that means the current run, or else the latest run.
LAST_RUN = "last"
_NEW: JsonDict = {
    "user_id": "abc123",
    "name": "every morning",
    "spider": "seo",
    "start_urls": ["https://example.com"],
    "interval": "0 9 * * *",
    "timezone": "Europe/Paris",
}


class ScheduleCreate(CrawlRequest, json_schema_extra={"examples": [_NEW]}):
    """Like `POST /crawl`, with a required interval and a name."""

    interval: Interval = Field(description="Five-field cron, a name such as `@daily`, or `every 15m`.")
    name: Name | None = None


class ScheduleUpdate(TimingFields, WorkFields):
    """The fields to change. A given field replaces the old value completely; null sets the default. An absent field
    is not changed.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"interval": "30 8 * * MON-FRI", "timezone": "Europe/Paris"}]}
    )

    name: Name | None = None
    ignore_cache: bool = Field(default=True, description="Whether runs fetch all pages without the HTTP cache.")
    # null is not allowed for these fields, because they have no default; a `default_factory` is not in the schema
    spider: Name = Field(default_factory=str, description="A spider of `GET /spiders`.")
    start_urls: StartUrls = Field(default_factory=list)
    interval: Interval = Field(
        default_factory=str, description="Five-field cron, a name such as `@daily`, or `every 15m`."
    )
    webhooks: list[UrlText] = Field(
        default_factory=list, max_length=20, description="URLs that are called when a run has ended."
    )
    rev: int | None = Field(
        default=None,
        ge=1,
        description="Change the schedule only if its revision is still this one; otherwise the answer is 409.",
    )


class SchedulesQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="Only schedules of this user.")
    state: ScheduleState | None = Field(default=None, description="Only schedules in this state.")
    site: Name | None = Field(default=None, description="Only schedules of this site and its targets.")
    host: HostName | None = Field(
        default=None,
        description="Only schedules that crawl this host or one below it: by their start URLs, their site, what a "
        "recent run has asked, or what their spider is known to crawl.",
    )
    spider: Name | None = Field(default=None, description="Only schedules of this spider.")
    q: SearchText | None = Field(
        default=None, description="Only schedules with this text in the id, name, spider, site, tags or start URLs."
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")

    def to_filter(self) -> ScheduleFilter:
        given = self.model_dump(exclude={"limit", "after", "host"})
        return ScheduleFilter(**given, host=CrawledHost(self.host) if self.host else None)


class PreviewQuery(QueryModel):
    count: int = Field(default=10, ge=1, le=100, description="How many runs.")


class HistoryQuery(QueryModel):
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")


_Run = Annotated[
    str,
    Field(
        pattern=f"^({LAST_RUN}|[0-9a-f]{{32}})$",
        description="`last`: the current run, or else the latest one; or the job id of a run.",
    ),
]


class ScheduleItemsFileQuery(ItemsFileQuery):
    run: _Run = LAST_RUN


class ScheduleItemsQuery(ItemsQuery):
    run: _Run = LAST_RUN


# --- a schedule as the routes of jobs show it

_NEVER_RUN: dict[str, Any] = {
    **dict.fromkeys(StandingView.model_fields),
    **Progress().model_dump(exclude={"at"}),
    "spider": "",
    "attempt": 0,
}


class ScheduleStatusView(StandingView):
    """A schedule as the routes of jobs show it: its status is `scheduled` until it ends. The counts and times are
    those of the current run, or else of the last run.
    """

    kind: Literal["schedule"]
    state: ScheduleState
    runs: int = Field(description="How many of its occurrences ran.")
    last_run: JobStatusView | None

    @classmethod
    def of_schedule(cls, schedule: Schedule, run: Job | None) -> ScheduleStatusView:
        return cls(**_standing(schedule, run))


class ScheduleJobView(ScheduleStatusView):
    """A schedule as the routes of jobs show it, with everything that is known about it."""

    schedule: ScheduleView

    @classmethod
    def of_schedule(cls, schedule: Schedule, run: Job | None) -> ScheduleJobView:
        return cls(**_standing(schedule, run), schedule=ScheduleView.of(schedule))


def _standing(schedule: Schedule, run: Job | None) -> dict[str, Any]:
    last_run = JobStatusView.of(run) if run else None
    spec = schedule.crawl.spec if schedule.crawl else None
    return {
        **(last_run.model_dump() if last_run else _NEVER_RUN),
        **(spec.model_dump(include={"spider", "version", "max_items"}) if spec else {}),
        "kind": "schedule",
        "job_id": schedule.id,
        "schedule_id": schedule.id,
        "site": schedule.site,
        "status": _status(schedule),
        "message": schedule.message,
        "next_run": schedule.next_run,
        "created_at": schedule.created_at,
        "slot": None,
        "cancel_requested_at": None,
        "dead": False,
        "state": schedule.state,
        "runs": schedule.runs,
        "last_run": last_run,
    }


def _status(schedule: Schedule) -> JobStatus:
    if schedule.state is not ScheduleState.ENDED:
        return JobStatus.SCHEDULED
    return JobStatus.CANCELLED if schedule.is_cancelled else JobStatus.FINISHED
