"""Charts above the log and the requests of a job, over time. The page requests them after it is shown."""

from __future__ import annotations

import time
from bisect import bisect
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from statistics import median
from typing import Annotated, NamedTuple

from fastapi import Query, Request, Response
from pydantic import Field

from gateway.access.keys import Scope
from gateway.console.days import HEIGHT, STEP, BarPart, DayBar, DayPicture, bar_height
from gateway.console.formats import count, duration
from gateway.console.pages import Pages, Viewer, page
from gateway.jobs.job import Job, JobStatus
from gateway.logs.store import LogStore
from gateway.logs.volume import LevelLines, LogVolume, step_of
from gateway.requests.store import LOOKED_AT_ONCE, Facts, RequestStore, recorded
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import needs
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.items import attempt_of
from gateway.web.schemas.types import QueryModel

router = Pages()

#: The height of the chart above a log.
_LOW = 32
#: The parts of a bar, from the bottom: harmless lines or requests come first. Each has the colour of a status.
_CALM, _WARN, _BAD = "", JobStatus.PARTIAL.value, JobStatus.ERROR.value
_COLOURS = {"WARNING": _WARN, "ERROR": _BAD, "CRITICAL": _BAD}


@router.page("/console/jobs/{job_id}/log/volume")
@needs(Scope.READ)
def log_volume(request: Request, job_id: JobId, parts: Parts) -> Response:
    job = parts[JobOrSchedule].whole(job_id)
    attempt = attempt_of(job, None) or 0
    with mongo_errors():
        volume = parts[LogStore].volume(job.id, attempt) if job else LogVolume(1, [])
    log = Viewer.of(request).link(f"/console/jobs/{job_id}/log")
    return page(
        request,
        "job/volume.html",
        job_id=job_id,
        picture=_volume(volume, f"{log}#{attempt}-") if volume.parts else None,
        since=_moment(volume.parts[0].at) if volume.parts else None,
        until=_moment(volume.parts[-1].at + volume.step) if volume.parts else None,
        is_live=job is not None and not job.is_final,
    )


def _volume(volume: LogVolume, log: str) -> DayPicture:
    by_time: dict[int, list[LevelLines]] = {}
    for one in volume.parts:
        by_time.setdefault(one.at, []).append(one)
    most = max(sum(one.lines for one in lines) for lines in by_time.values())
    first, bars = min(by_time), []
    for at, lines in by_time.items():
        said = ", ".join(f"{count(one.lines)} {one.level}" for one in sorted(lines, key=lambda one: one.lines))
        # the address of a line may be any position inside the line
        where = {_COLOURS.get(one.level, _CALM): f"{log}{one.start + 1}" for one in reversed(lines)}
        counts = Counter[str]()
        for one in lines:
            counts[_COLOURS.get(one.level, _CALM)] += one.lines
        bars.append(
            _bar((at - first) // volume.step, f"{_clock(at)}: {said}", counts, most, height=_LOW, where=where)
        )
    return _picture("Lines", most, (max(by_time) - first) // volume.step + 1, bars, _LOW)


# --- requests

#: The smallest duration of each bar, in milliseconds.
_DURATIONS = (0, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
#: Seconds for which a record is read.
_SECONDS = 2.0


class TimedRequest(NamedTuple):
    """The facts of a request that the charts need."""

    at: int
    ms: int
    colour: str


class RequestPicturesQuery(QueryModel):
    attempt: Annotated[str, Field(pattern="^(all|[1-9][0-9]{0,5})$")] | None = None


@router.page("/console/jobs/{job_id}/requests/pictures")
@needs(Scope.READ)
def request_pictures(
    request: Request, job_id: JobId, parts: Parts, query: Annotated[RequestPicturesQuery, Query()]
) -> Response:
    job = parts[JobOrSchedule].whole(job_id)
    with mongo_errors():
        asked, is_all = _asked(job, query.attempt, parts[RequestStore])
    pictures = []
    if asked:
        address = Viewer.of(request).link(f"/console/jobs/{job_id}/requests", sort="-ms")
        pictures = [_durations(asked, address), *_over_time(asked)]
    return page(request, "job/request_pictures.html", pictures=pictures, number=len(asked), is_all=is_all)


def _asked(job: Job | None, attempt: str | None, store: RequestStore) -> tuple[list[TimedRequest], bool]:
    """The requests in the record, and whether all of them could be read in time."""
    found, until = list[TimedRequest](), time.monotonic() + _SECONDS
    for number, one in enumerate(recorded(store, job.id, attempt_of(job, attempt)) if job else ()):
        if one.facts["ms"] is not None and one.facts["at"] is not None:
            found.append(TimedRequest(one.facts["at"] // 1000, one.facts["ms"], _colour(one.facts)))
        if number % LOOKED_AT_ONCE == 0 and time.monotonic() > until:
            return found, False
    return found, True


def _colour(facts: Facts) -> str:
    if facts["failed"]:
        return _BAD
    return _WARN if (facts["status"] or 0) >= HTTPStatus.BAD_REQUEST else _CALM


def _durations(asked: list[TimedRequest], requests: str) -> DayPicture:
    """A chart of how many requests took how long. Each bar links to the requests that took at least that long."""
    by_step = [Counter[str]() for _ in _DURATIONS]
    for one in asked:
        by_step[bisect(_DURATIONS, one.ms) - 1][one.colour] += 1
    most, bars = max(one.total() for one in by_step), []
    for place, counts in enumerate(by_step):
        if counts:
            begin, end = _DURATIONS[place], _DURATIONS[place + 1 :][:1]
            said = f"{begin} to {end[0]} ms" if end else f"{begin} ms or more"
            title = f"{said}: {_outcomes(counts)}"
            where = dict.fromkeys(counts, f"{requests}&slow_ms={_DURATIONS[place]}#tab")
            bars.append(_bar(place, title, counts, most, where=where))
    return _picture("Requests by duration", most, len(_DURATIONS), bars, HEIGHT)


def _over_time(asked: list[TimedRequest]) -> list[DayPicture]:
    first = min(one.at for one in asked)
    step = step_of(max(one.at for one in asked) - first)
    by_time: dict[int, list[TimedRequest]] = {}
    for one in asked:
        by_time.setdefault((one.at - first) // step, []).append(one)
    counts = {place: Counter(one.colour for one in some) for place, some in by_time.items()}
    middles = {place: median(one.ms for one in some) / 1000 for place, some in by_time.items()}
    most, longest, width = max(one.total() for one in counts.values()), max(middles.values()), max(by_time) + 1
    clocks = {place: _clock(first + place * step) for place in by_time}
    ends = [_bar(at, f"{clocks[at]}: {_outcomes(one)}", one, most) for at, one in counts.items()]
    took = [
        DayBar(at * STEP, f"{clocks[at]}: {duration(one)}", [BarPart(_CALM, HEIGHT - tall, tall)])
        for at, one in middles.items()
        for tall in (bar_height(one, longest, HEIGHT),)
    ]
    return [
        _picture("Requests over time", most, width, ends, HEIGHT),
        _picture("Median duration over time", longest, width, took, HEIGHT)._replace(most=duration(longest)),
    ]


_OUTCOMES = {_CALM: "answered", _WARN: "4xx", _BAD: "failed"}


def _outcomes(counts: Counter[str]) -> str:
    return ", ".join(f"{count(counts[one])} {words}" for one, words in _OUTCOMES.items() if counts[one])


# --- bars

_NOWHERE: Mapping[str, str] = {}


def _bar(
    place: int,
    title: str,
    counts: Counter[str],
    most: int,
    *,
    height: int = HEIGHT,
    where: Mapping[str, str] = _NOWHERE,
) -> DayBar:
    parts, top = [], float(height)
    for colour in (_CALM, _WARN, _BAD):
        if counts[colour]:
            # a minimum height, so that one error is visible among a thousand other lines
            tall = bar_height(counts[colour], most, height)
            top = max(0.0, top - tall)
            parts.append(BarPart(colour, round(top, 1), tall, where.get(colour, "")))
    return DayBar(place * STEP, title, parts)


def _picture(words: str, most: float, width: int, bars: list[DayBar], height: int) -> DayPicture:
    return DayPicture(words, count(round(most)), width * STEP, height, STEP - 1, bars)


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _clock(at: int) -> str:
    return f"{_moment(at):%H:%M:%S} UTC"
