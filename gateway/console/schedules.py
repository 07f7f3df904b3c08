"""`/console/schedules`: all schedules as a list and as a week, and the page and form of one schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from fastapi import Query, Request, Response
from pydantic import Field, model_validator

from gateway.access.keys import ANYBODY, Scope
from gateway.access.saved_views import ListName
from gateway.clock import to_iso
from gateway.console.comparison import two_days
from gateway.console.crawl import Chosen, offered, spider_of, texts_of
from gateway.console.datasets import of_schedule
from gateway.console.days import histories_of, in_list
from gateway.console.flags import flags_of
from gateway.console.formats import duration
from gateway.console.pages import Pages, page
from gateway.console.parameters import parameter_form
from gateway.console.saved_views import own_views
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.errors import InvalidRequestError
from gateway.jobs.job import NUMBERS, Job, Trigger
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.jobs.run_days import RunSubject
from gateway.schedules.calendar import MAX_OCCURRENCES
from gateway.schedules.next_run import parse_time_zone
from gateway.schedules.schedule import LedgerKind
from gateway.web.authorisation import Called, caller_of, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, ScheduleId
from gateway.web.routes.jobs import MOST_COUNTED
from gateway.web.routes.projects import list_projects
from gateway.web.routes.schedules import (
    calendar_page,
    get_schedule,
    list_schedule_history,
    preview_schedule,
    schedules_page,
)
from gateway.web.schemas.calendar import CalendarQuery, CalendarRun, CalendarSchedule, SchedulesCalendar
from gateway.web.schemas.schedule import ComingRun, HistoryQuery, PreviewQuery, SchedulesQuery
from gateway.web.schemas.types import Cursor, Name, QueryModel

router = Pages()

#: A choice of the time zone: the zone of each schedule itself.
OWN = "own"
_DAYS = 7
_DAY = timedelta(days=1)
#: The largest offset of a time zone from UTC. A day in any zone lies within the day in UTC, extended by this time on
#: both sides.
_FAR = timedelta(hours=14)
#: The first and the last day with which a week can begin. They are not the limits of `datetime`, so that there always
#: is a week before and after.
_FIRST, _LAST = date(2000, 1, 1), date(2999, 12, 31)
#: At most this many runs of a day are shown one by one. If there are more, only their number is shown.
_SHOWN = 4
#: The page of a schedule shows this many runs.
_RUNS = 5
#: In a list, the runs of a schedule are counted up to this number.
_COUNTED = 1000


class SchedulesPageQuery(SchedulesQuery):
    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        """Remove empty fields, which a form sends, too."""
        return {name: value for name, value in given.items() if value != ""} if isinstance(given, dict) else given


class WeekQuery(CalendarQuery):
    since: None = None
    until: None = None
    week: Annotated[date, Field(ge=_FIRST, le=_LAST)] | None = Field(
        default=None, description="The first of the seven days to show; by default today."
    )
    zone: Annotated[str, Field(max_length=100)] = OWN


@router.page("/console/schedules")
@needs(Scope.READ, by_project=True)
def schedules(
    query: Annotated[SchedulesPageQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    kept = own_views(ListName.SCHEDULES, request, parts, caller)
    if isinstance(kept, Response):
        return kept
    found = schedules_page(query, parts, caller)
    have_run = {one.schedule_id: have_run_of(one.schedule_id, parts) for one in found.schedules}
    flags = flags_of([runs.last.id for runs in have_run.values() if runs.last], parts, caller)
    days = histories_of(RunSubject.SCHEDULE, list(have_run), parts, caller)
    return page(
        request,
        "schedules/list.html",
        kept=kept,
        found=found,
        asked=query,
        have_run=have_run,
        flags=flags,
        **in_list(days),
    )


class HaveRun(NamedTuple):
    """The runs of a schedule, including those that were started by hand."""

    last: Job | None
    number: int
    #: Whether there are more than `number`.
    is_more: bool


def have_run_of(schedule_id: str, parts: GatewayParts, most: int = _COUNTED) -> HaveRun:
    queries = parts[JobQueries]
    last = queries.latest_run(schedule_id)
    count = queries.count(JobFilter(schedule_id=schedule_id), most + 1) if last else 0
    return HaveRun(last, min(count, most), is_more=count > most)


# --- a week


class WeekRun(NamedTuple):
    """An occurrence in a cell of the week."""

    #: The time, such as `09:00`.
    clock: str
    #: The kind of its mark.
    status: str
    word: str
    job_id: str | None
    reason: str
    #: The change of the clocks since the run before, such as `+1 h`; empty without a change.
    clocks: str


class Day(NamedTuple):
    """The occurrences of one schedule on one day."""

    runs: list[WeekRun]
    #: Status, word and number of the runs of each kind, if there are too many to show one by one.
    counts: list[tuple[str, str, int]]


class Single(NamedTuple):
    """The row of crawls that run only once."""

    days: list[Day]
    #: The zone of their times.
    zone: str
    is_cut: bool


class WeekRow(NamedTuple):
    schedule: CalendarSchedule
    days: list[Day]
    #: The limit of runs before and after now, if there are more than that.
    cut_at: int | None


@router.page("/console/schedules/week")
@needs(Scope.READ, by_project=True)
def week(query: Annotated[WeekQuery, Query()], request: Request, parts: Parts, caller: Called) -> Response:
    zone = UTC if query.zone == OWN else _zone(query.zone)
    today = parts.clock().astimezone(zone).date()
    first = query.week or today
    begin = datetime.combine(first, datetime.min.time(), UTC)
    asked = CalendarQuery(
        **query.model_dump(include={"user_id", "site", "spider", "q", "limit", "after"}),
        since=to_iso(begin - _FAR),
        until=to_iso(begin + _DAYS * _DAY + _FAR),
    )
    found = calendar_page(asked, parts, caller)
    dates = [first + number * _DAY for number in range(_DAYS)]
    rows = [_row(one, None if query.zone == OWN else zone, dates) for one in found.schedules]
    return page(
        request,
        "schedules/week.html",
        single=_single(found, zone, dates),
        rows=[row for row in rows if row.cut_at or any(day.runs or day.counts for day in row.days)],
        dates=dates,
        changes=[None if query.zone == OWN else _change(day, zone) for day in dates],
        today=today,
        first=first,
        zone=query.zone,
        asked=query,
        after=found.next,
    )


def _zone(name: str) -> tzinfo:
    try:
        return parse_time_zone(name)
    except InvalidRequestError as error:
        raise InvalidRequestError("zone", error.problem) from None


def _row(schedule: CalendarSchedule, zone: tzinfo | None, dates: Sequence[date]) -> WeekRow:
    """A schedule's row. `zone` is `None` for the time zone of the schedule."""
    zone = zone or parse_time_zone(schedule.timezone)
    by_day: dict[date, list[WeekRun]] = {day: [] for day in dates}
    past = [(run.due, _past(run, zone)) for run in schedule.past]
    coming = [(run.due, _coming(run, zone)) for run in schedule.coming]
    for due, run in sorted([*past, *coming], key=lambda one: one[0]):
        if (day := due.astimezone(zone).date()) in by_day:
            by_day[day].append(run)
    # only some of the runs of these days are known
    first = schedule.past[-1].due.astimezone(zone).date() if schedule.past_cut else None
    last = schedule.coming[-1].due.astimezone(zone).date() if schedule.coming_cut else None
    days = [_day(by_day[day], is_first=day == first, is_last=day == last) for day in dates]
    return WeekRow(schedule, days, MAX_OCCURRENCES if first or last else None)


def _single(found: SchedulesCalendar, zone: tzinfo, dates: Sequence[date]) -> Single | None:
    by_day: dict[date, list[WeekRun]] = {day: [] for day in dates}
    for crawl in found.crawls:
        if (day := crawl.due.astimezone(zone).date()) in by_day:
            urls = ", ".join(crawl.start_urls)
            by_day[day].append(WeekRun(_clock(crawl.due, zone), "scheduled", crawl.spider, crawl.job_id, urls, ""))
    days = [
        Day(runs, []) if len(runs) <= _SHOWN else Day([], [("scheduled", "upcoming", len(runs))])
        for runs in by_day.values()
    ]
    return Single(days, str(zone), found.crawls_cut) if any(by_day.values()) or found.crawls_cut else None


def _day(runs: list[WeekRun], *, is_first: bool, is_last: bool) -> Day:
    """The cell of a day. `is_first`: it may have more past runs; `is_last`: it may have more coming runs."""
    if len(runs) <= _SHOWN and not (is_first or is_last):
        return Day(runs, [])
    kinds = Counter((run.status, run.word.partition(" ")[0] if run.status == "late" else run.word) for run in runs)
    counts = []
    for (status, word), number in kinds.items():
        is_cut = is_last if status == "scheduled" else is_first
        counts.append((status, f"or more {word}" if is_cut else word, number))
    return Day([], counts)


def _past(run: CalendarRun, zone: tzinfo) -> WeekRun:
    reason = run.reason or ""
    if run.kind is not LedgerKind.FIRED:
        status, word = run.kind.value, run.kind.value
        reason = f"{reason}; and {run.missed} more" if run.missed else reason
    elif run.late:
        status, word = "late", f"late {duration(run.late_by_seconds)}"
        reason = f"covers {run.missed} more" if run.missed else reason
    else:
        status = run.status.value if run.status else "fired"
        word = "ran" if status in {"finished", "fired"} else status
    if run.trigger is Trigger.MANUAL:
        reason = f"started manually{reason and '; '}{reason}"
        word = "manual" if word == "ran" else f"{word}, manual"
    return WeekRun(_clock(run.due, zone), status, word, run.job_id, reason, "")


def _coming(run: ComingRun, zone: tzinfo) -> WeekRun:
    moved = run.clocks_moved_minutes
    clocks = f"{'+' if moved > 0 else '-'}{duration(abs(moved) * 60)}" if moved else ""
    return WeekRun(_clock(run.due, zone), "scheduled", "upcoming", None, "", clocks)


def _clock(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%H:%M}"


def _change(day: date, zone: tzinfo) -> str | None:
    """How the clocks of the zone change on this day."""
    begin, end = (datetime.combine(one, datetime.min.time(), zone).utcoffset() for one in (day, day + _DAY))
    if begin is None or end is None or begin == end:
        return None
    return f"clocks go {'forward' if end > begin else 'back'} {duration(abs(end - begin))}"


# --- one schedule


class SchedulePageQuery(QueryModel):
    after: Cursor | None = None
    edit: Literal["1"] | None = None
    user_id: str | None = None


@router.page("/console/schedules/{schedule_id}")
@needs(Scope.READ)
def one_schedule(
    schedule_id: ScheduleId, query: Annotated[SchedulePageQuery, Query()], request: Request, parts: Parts
) -> Response:
    schedule = get_schedule(schedule_id, parts)
    runs = parts[JobQueries].page(JobFilter(schedule_id=schedule_id), _RUNS).jobs
    between = two_days(JobFilter(schedule_id=schedule_id), parts)
    compared = [] if caller_of(request).projects else [job.id for job in runs]
    return page(
        request,
        "schedules/one.html",
        schedule=schedule,
        have_run=have_run_of(schedule_id, parts, MOST_COUNTED),
        changes=of_schedule(compared, request, parts),
        runs=runs,
        two_days=between,
        coming=preview_schedule(schedule_id, PreviewQuery(count=10), parts),
        history=list_schedule_history(schedule_id, HistoryQuery(limit=50, after=query.after), parts),
        asked=query,
        now=parts.clock(),
    )


class EditQuery(QueryModel):
    """The spider whose fields the form shows, before the schedule is changed to this spider."""

    project: Name | None = None
    version: Name | None = None
    spider: Name | None = None
    user_id: str | None = None


def _chosen(query: EditQuery, crawl: dict[str, Any]) -> Chosen:
    given = {name: crawl.get(name) or "" for name in ("project", "version", "spider")}
    if query.project not in {None, given["project"]} or query.spider not in {None, given["spider"]}:
        given["version"] = ""
    asked = query.model_dump(include=set(given), exclude_none=True)
    return Chosen(**{**given, **asked}, given=crawl)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


@router.page("/console/schedules/{schedule_id}/edit")
@needs(Scope.CRAWL)
def edit_schedule(
    schedule_id: ScheduleId, query: Annotated[EditQuery, Query()], request: Request, parts: Parts
) -> Response:
    schedule = get_schedule(schedule_id, parts)
    crawl: dict[str, Any] = schedule.crawl.model_dump(mode="json") if schedule.crawl else {}
    chosen = _chosen(query, crawl)
    spider = spider_of(chosen.project, chosen.version, chosen.spider, parts)
    is_own = spider is not None and spider.project == DEFAULT_PROJECT
    versions = {one.name: one.versions for one in list_projects(parts, ANYBODY).projects}
    env = crawl.get("env", {})
    return page(
        request,
        "schedules/edit.html",
        schedule=schedule,
        chosen=chosen,
        offered=offered(chosen, parts),
        # includes the schedule's own project, which may not be deployed any more
        projects=sorted({*versions, chosen.project}),
        versions=versions.get(chosen.project, []),
        env={"text": "\n".join(f"{name}={value}" for name, value in env.items()), "given": _json(env) if env else ""},
        form=parameter_form(spider.params_schema if spider else None, crawl.get("params", {}), own=is_own),
        numbers=NUMBERS,
        texts=texts_of(crawl),
        needs_urls=spider is not None and spider.needs_urls,
    )
