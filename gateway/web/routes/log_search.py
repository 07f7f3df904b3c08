"""Search in a job's log, without reading all of it: count lines, find them, and read lines from any position."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field, WithJsonSchema

from gateway.access.keys import Scope
from gateway.contract.log_line import Position
from gateway.errors import InvalidRequestError
from gateway.jobs.job import Job
from gateway.logs.search import BEGIN, END, MAX_TEXT, Line, LinesFound, LogFilter, LogIndex, LogSearch, Stretch
from gateway.schedules.store import JobOrSchedule, RunOf
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import Responses, problems
from gateway.web.schemas.types import LogLevel, QueryModel

router = Router(tags=["jobs"])

#: Characters of messages in one answer, and loggers in one index.
_MAX_ANSWER = 4 << 20
_MAX_LOGGERS = 200
#: Seconds after which a search answers with what it has found; its `next` goes on.
_SEARCH_SECONDS = 2.0
_Position = Annotated[str, Field(pattern=r"^[0-9]{1,6}-[0-9]{1,15}$")]


class LogFilterQuery(QueryModel):
    level: LogLevel | None = Field(default=None, description="Only lines of this level or higher.")
    logger: str | None = Field(
        default=None, max_length=500, description="Only lines of this logger, and what follows them without a head"
    )

    def to_filter(self, q: str | None = None) -> LogFilter:
        return LogFilter.of(self.level, self.logger, q)


class LogStretchQuery(LogFilterQuery):
    q: str | None = Field(
        default=None,
        max_length=MAX_TEXT,
        description="Only lines with this text, in upper or lower case, anywhere in the line as it was written",
    )
    since: _Position | None = Field(
        default=None, alias="from", description="Only lines that begin at this position or later, such as `1-20480`"
    )
    until: _Position | None = Field(
        default=None, alias="to", description="Only lines that begin before this position"
    )

    def to_stretch(self) -> Stretch:
        return Stretch(_position(self.since) or BEGIN, _position(self.until) or END)


class LogSearchQuery(LogStretchQuery):
    limit: int = Field(default=1000, ge=0, le=5000, description="How many positions the answer has at most")


class LogLinesQuery(LogStretchQuery):
    line: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="Begin at this line, counted by `level` and `logger`; not with `from`",
    )
    limit: int = Field(default=500, ge=1, le=5000, description="The size of a page.")
    max_length: int = Field(default=2000, ge=1, le=1 << 20, description="Characters of a message; the rest is cut")


#: Described without `prefixItems`, which schemathesis takes for a list of schemas in `items`.
SegmentView = Annotated[
    tuple[int, int, int, int],
    WithJsonSchema({"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4}),
]


class LogSegmentsView(BaseModel):
    run: str | None = Field(description="The job whose log this is; null for a schedule that has not run yet.")
    lines: int = Field(description="How many lines there are.")
    end: str = Field(description="The position up to which the log was looked at.")
    segments: list[SegmentView] = Field(
        description="Where they are, at most 2,000 parts of the log in order: attempt, first byte, end, and how many."
    )


class LoggerView(BaseModel):
    """A logger, and how many lines it has."""

    name: str = Field(description="Empty for lines before the first that names its logger.")
    lines: int


class LogIndexView(LogSegmentsView):
    """How many lines a log has over time, by level and logger."""

    all_lines: int = Field(description="Lines of the whole log.")
    levels: dict[str, int] = Field(description="Lines of each level in the whole log.")
    loggers: list[LoggerView] = Field(description="Lines of each logger in the whole log, at most 200 loggers.")


class LogSearchView(LogSegmentsView):
    """Where in a log the lines are that were searched for."""

    positions: list[str] = Field(description="Of the first ones: the ids of their events in the log's stream.")
    next: str | None = Field(description="The value of `from` for the rest of the log; null if it was looked at.")


class LogLineView(BaseModel):
    """A line of a log, with its place."""

    id: str = Field(description="As in the log's stream: where the line ends.")
    start: int = Field(description="Byte at which the line begins.")
    ts: str | None = Field(
        default=None,
        description="When it was written, in ISO 8601. It is as in the line, so it may be no valid time.",
    )
    level: str
    logger: str = Field(description="Empty for lines before the first that names its logger.")
    msg: str
    cont: bool = Field(default=False, description="Whether the line belongs to the one before, as in a traceback.")
    length: int | None = Field(default=None, description="Characters of the whole message, if it was cut.")


class LogLinesView(BaseModel):
    """Lines of a log, from a place on."""

    run: str | None = Field(description="The job whose log this is.")
    lines: list[LogLineView]
    next: str | None = Field(description="The value of `from` for what follows; null if this was all there is.")


_SEGMENTS = {"run": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a", "lines": 2, "end": "1-65610", "segments": [[1, 0, 65610, 2]]}
_INDEX = {
    **_SEGMENTS,
    "all_lines": 700,
    "levels": {"INFO": 698, "ERROR": 2},
    "loggers": [{"name": "scrapy.core.engine", "lines": 700}],
}
_LINE = {
    "id": "1-78",
    "start": 0,
    "ts": "2027-06-01T09:00:01.250Z",
    "level": "INFO",
    "logger": "scrapy.core.engine",
    "msg": "Spider opened",
}


def _answers(example: object) -> Responses:
    return {200: {"content": {"application/json": {"example": example}}}, **problems(404, 503)}


@router.get(
    "/jobs/{job_id}/logs/index",
    summary="Count a log's lines",
    responses=_answers(_INDEX),
)
@needs(Scope.READ)
async def get_job_log_index(job_id: JobId, query: Annotated[LogFilterQuery, Query()], parts: Parts) -> LogIndexView:
    """How many lines there are of a level and logger, and in which parts of the log. It is made from counts that are
    stored beside the log, so a log of any length is answered at once.
    """
    wanted = query.to_filter()

    def read() -> LogIndexView:
        with mongo_errors():
            job = _job(parts, job_id)
            found, counts = parts[LogSearch].index(job, wanted) if job else _NO_INDEX
        return LogIndexView(
            **_segments(job, found),
            all_lines=sum(counts.values()),
            levels=_summed((level, count) for (_, level), count in counts.items()),
            loggers=[
                LoggerView(name=name, lines=count)
                for name, count in _summed((logger, count) for (logger, _), count in counts.items()).most_common(
                    _MAX_LOGGERS
                )
            ],
        )

    return await parts.threads.run(read)


@router.get(
    "/jobs/{job_id}/logs/search",
    summary="Search a log",
    responses=_answers({**_SEGMENTS, "positions": ["1-20480", "1-65610"], "next": None}),
)
@needs(Scope.READ)
async def search_job_log(job_id: JobId, query: Annotated[LogSearchQuery, Query()], parts: Parts) -> LogSearchView:
    """Lines with a text (`q`), a level, a logger: all of them are counted, in all attempts, up to the newest line.
    The answer has the positions of the first ones; `from` and `to` limit the search to a part of the log. After two
    seconds it says what it has found up to `end`, and `next` goes on.
    """
    wanted, stretch = query.to_filter(query.q), query.to_stretch()

    def read() -> LogSearchView:
        with mongo_errors():
            job = _job(parts, job_id)
            found = parts[LogSearch].find(job, wanted, stretch, query.limit, _SEARCH_SECONDS) if job else _NOTHING
        following = str(found.next) if found.next else None
        return LogSearchView(**_segments(job, found), positions=list(map(str, found.positions)), next=following)

    return await parts.threads.run(read)


@router.get(
    "/jobs/{job_id}/logs/lines",
    summary="Read some of a log's lines",
    responses=_answers({"run": _SEGMENTS["run"], "lines": [_LINE], "next": "1-78"}),
    response_model_exclude_defaults=True,
)
@needs(Scope.READ)
async def get_job_log_lines(job_id: JobId, query: Annotated[LogLinesQuery, Query()], parts: Parts) -> LogLinesView:
    """Lines from any position or line number on. An answer ends after `limit` lines, 4 million characters, or two
    seconds: it can then have no lines, and `next` goes on.
    """
    if query.line and (query.since or query.q):
        raise InvalidRequestError("line", "says where to begin, as `from` does, and counts lines with any text")

    def read() -> LogLinesView:
        with mongo_errors():
            job = _job(parts, job_id)
            return _lines(parts[LogSearch], job, query) if job else LogLinesView(run=None, lines=[], next=None)

    return await parts.threads.run(read)


def _lines(search: LogSearch, job: Job, query: LogLinesQuery) -> LogLinesView:
    stretch, wanted, skipped = query.to_stretch(), query.to_filter(query.q), 0
    if query.line:
        since, skipped = search.place(job, wanted, query.line)
        stretch = stretch._replace(since=since)
    taken: list[LogLineView] = []
    left, began = _MAX_ANSWER, time.monotonic()
    for end, lines in search.lines(job, wanted, stretch):
        for line in lines:
            if skipped:
                skipped -= 1
                continue
            if len(taken) == query.limit or left <= 0:
                following = Position(line.attempt, line.entry.start)
                return LogLinesView(run=job.id, lines=taken, next=str(following))
            taken.append(_line(line, query.max_length))
            left -= len(taken[-1].msg)
        if end < stretch.until and not skipped and time.monotonic() - began >= _SEARCH_SECONDS:
            return LogLinesView(run=job.id, lines=taken, next=str(end))
    return LogLinesView(run=job.id, lines=taken, next=None)


def _line(line: Line, most: int) -> LogLineView:
    entry = line.entry
    return LogLineView(
        id=str(line.position),
        start=entry.start,
        ts=entry.ts,
        level=entry.level,
        logger=line.logger,
        msg=entry.msg[:most],
        cont=entry.cont,
        length=len(entry.msg) if len(entry.msg) > most else None,
    )


_NOTHING = LinesFound([], Position(1, 0), [])
_NO_INDEX = LogIndex(_NOTHING, {})


def _job(parts: GatewayParts, identity: str) -> Job | None:
    """The job; for a schedule, the job of the current or latest run, or `None` if it has not run yet."""
    named = parts[JobOrSchedule].find(identity)
    return named.job if isinstance(named, RunOf) else named


def _segments(job: Job | None, found: LinesFound) -> dict[str, object]:
    return {
        "run": job.id if job else None,
        "lines": found.lines,
        "end": str(found.end),
        "segments": list(map(tuple, found.segments)),
    }


def _summed(counts: Iterator[tuple[str, int]]) -> Counter[str]:
    summed: Counter[str] = Counter()
    for name, count in counts:
        summed[name] += count
    return summed


def _position(text: str | None) -> Position | None:
    return Position.parse(text) if text else None
