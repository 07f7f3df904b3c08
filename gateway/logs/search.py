"""Finds the lines of a log that have a level, a logger or a text: how many there are, where they are, and the lines
themselves.

A log may have millions of lines. To count by level and logger, no line is read, because each chunk has its counts
stored. Text is searched in the bytes of whole chunks, and only lines that are shown are split into entries.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import accumulate, islice
from typing import Any, AnyStr, NamedTuple, Self

import redis
import structlog
from attrs import define

from gateway.contract.log_line import (
    LEVELS,
    MAX_LINE,
    LogEntry,
    Position,
    head_at,
    split_entries,
)
from gateway.contract.outbox import AttemptId
from gateway.errors import InvalidRequestError
from gateway.jobs.job import Job
from gateway.logs.store import ChunkOutline, LineCounts, LogChunk, LogStore, count_lines, live_entries

#: Maximum number of segments of an index. If there are more chunks, a segment stands for several of them.
MAX_SEGMENTS = 2000
MAX_TEXT = 200
BEGIN, END = Position(0, 0), Position(999_999, 999_999_999_999_999)

log = structlog.get_logger()


class Line(NamedTuple):
    """An entry of the log. If it has no logger of its own, its logger is the one of the line that it continues."""

    attempt: int
    entry: LogEntry
    logger: str
    #: The line as it was written.
    raw: bytes

    @property
    def position(self) -> Position:
        return Position(self.attempt, self.entry.end)


class LogFilter(NamedTuple):
    """Which lines are wanted. A line without a head (time, level and logger) continues an earlier line, and has that
    line's level and logger.
    """

    #: Lowest level number.
    level: int = 0
    logger: str | None = None
    #: Text to be found anywhere in a line, casefolded.
    text: str = ""

    @classmethod
    def of(cls, level: str | None, logger: str | None, text: str | None) -> Self:
        """Raises `InvalidRequestError` that names `level` or `q`."""
        if level is not None and level.upper() not in LEVELS:
            raise InvalidRequestError("level", f"must be one of {', '.join(LEVELS)}")
        if text is not None and ("\n" in text or len(text) > MAX_TEXT):
            raise InvalidRequestError("q", f"must be one line of at most {MAX_TEXT} characters")
        return cls(LEVELS[level.upper()] if level else 0, logger, (text or "").casefold())

    def takes(self, logger: str, level: str) -> bool:
        return LEVELS[level] >= self.level and self.logger in {None, logger}

    def accepts(self, line: Line) -> bool:
        return self.takes(line.logger, line.entry.level) and self.has_text(line.raw)

    def has_text(self, data: bytes) -> bool:
        if self.text.isascii():
            return self.text.encode() in data.lower()
        # a text that is not ASCII cannot be in ASCII data, which stays ASCII when it is casefolded
        return not data.isascii() and self.text in _folded(data)

    def count(self, lines: LineCounts) -> int:
        """How many of these lines have a wanted level and logger. The text is ignored."""
        return sum(count for (logger, level), count in lines.items() if self.takes(logger, level))


class Stretch(NamedTuple):
    """A part of the log, from a line boundary up to a position."""

    since: Position = BEGIN
    until: Position = END


EVERYTHING = Stretch()
#: Reads the chunk that a segment stands for; `None` if it is gone.
ReadChunk = Callable[[], LogChunk | None]


class Segment(NamedTuple):
    """A part of one attempt's log, from one line boundary to another, in bytes."""

    attempt: int
    start: int
    end: int
    #: How many wanted lines it has.
    lines: int


class LinesFound(NamedTuple):
    """The result of a search."""

    segments: list[Segment]
    #: The position up to which the log was searched. Without a `next`, this was the end of the range or of the log.
    end: Position
    #: The positions at which the first wanted lines end.
    positions: list[Position]
    #: Where the next search continues, if the time was over before the whole range was searched.
    next: Position | None = None

    @property
    def lines(self) -> int:
        return sum(segment.lines for segment in self.segments)


class LogIndex(NamedTuple):
    """How many lines a log has, and where the wanted ones are."""

    found: LinesFound
    #: All lines of the log, wanted or not.
    counts: LineCounts


@define(eq=False, repr=False, slots=False)
class LogSearch:
    """Searches the logs of jobs. Raises PyMongo's errors. If Redis cannot be reached, lines that are not in MongoDB
    yet are missing.
    """

    _logs: LogStore
    _redis: redis.Redis

    def index(self, job: Job, wanted: LogFilter) -> LogIndex:
        """The number of lines with a wanted level and logger, by segment, without reading the lines. The filter's
        text is ignored.
        """
        counts: Counter[tuple[str, str]] = Counter()
        segments: list[Segment] = []
        for position, end, stored in self._outline(job):
            lines = stored or self._count(job, position)
            counts.update(lines)
            segments.append(Segment(*position, end, wanted.count(lines)))
        for lines_of in self._live(job, segments, EVERYTHING):
            lines = count_lines((line.entry for line in lines_of), lines_of[0].logger)
            counts.update(lines)
            segments.append(_live_segment(lines_of, wanted.count(lines)))
        return LogIndex(_found(segments, [], EVERYTHING), counts)

    def find(
        self,
        job: Job,
        wanted: LogFilter,
        stretch: Stretch = EVERYTHING,
        limit: int = 1000,
        seconds: float = math.inf,
    ) -> LinesFound:
        """The number of wanted lines in the stretch, by segment, and the positions of the first `limit` of them.
        After `seconds`, the search stops at the end of a chunk.
        """
        began = time.monotonic()
        segments: list[Segment] = []
        positions: list[Position] = []
        counted = self._by_text(job, wanted, stretch) if wanted.text else self._by_counts(job, wanted, stretch)
        for whole, read in counted:
            segment, missing = whole, limit - len(positions)
            if not _lies_in(whole, stretch) and (chunk := read()):
                ends = [end for end in _wanted_positions(chunk, wanted) if stretch.since < end <= stretch.until]
                segment = segment._replace(lines=len(ends))
                positions += ends[:missing]
            elif segment.lines and missing and (chunk := read()):
                positions += islice(_wanted_positions(chunk, wanted), missing)
            segments.append(segment)
            end = Position(segment.attempt, segment.end)
            if end < stretch.until and time.monotonic() - began >= seconds:
                return _found(segments, positions, stretch)._replace(next=end)
        for lines in self._live(job, segments, stretch):
            accepted = [line.position for line in lines if wanted.accepts(line) and _begins_in(stretch, line)]
            segments.append(_live_segment(lines, len(accepted)))
            positions += accepted[: limit - len(positions)]
        return _found(segments, positions, stretch)

    def _by_text(self, job: Job, wanted: LogFilter, stretch: Stretch) -> Iterator[tuple[Segment, ReadChunk]]:
        for chunk in self._logs.chunks(job.id, self._begin(job, stretch.since), stretch.until):
            if chunk.attempt <= job.newest:
                segment = Segment(chunk.attempt, chunk.start, chunk.end, count_wanted(chunk, wanted))
                yield segment, partial(_same, chunk)

    def _by_counts(self, job: Job, wanted: LogFilter, stretch: Stretch) -> Iterator[tuple[Segment, ReadChunk]]:
        begin = self._begin(job, stretch.since)
        for position, end, lines in self._outline(job):
            if begin <= position < stretch.until:
                segment = Segment(*position, end, wanted.count(lines or self._count(job, position)))
                yield segment, partial(self._logs.chunk_at, job.id, position)

    def lines(self, job: Job, wanted: LogFilter, stretch: Stretch) -> Iterator[tuple[Position, Iterator[Line]]]:
        """For each chunk: where it ends, and its wanted lines that begin in the stretch."""
        last: list[Segment] = []
        for chunk in self._logs.chunks(job.id, self._begin(job, stretch.since), stretch.until):
            if chunk.attempt <= job.newest:
                last = [Segment(chunk.attempt, chunk.start, chunk.end, 0)]
                lines = wanted_lines(chunk, wanted)
                yield Position(chunk.attempt, chunk.end), filter(partial(_begins_in, stretch), lines)
        for live in self._live(job, last, stretch):
            yield live[-1].position, filter(partial(_begins_in, stretch), filter(wanted.accepts, live))

    def place(self, job: Job, wanted: LogFilter, number: int) -> tuple[Position, int]:
        """Where to find the wanted line with this number (from 1 on): the position at which to start reading, and how
        many wanted lines to skip from there.
        """
        left = number - 1
        end = BEGIN
        for segment in self.index(job, wanted).found.segments:
            if left < segment.lines:
                return Position(segment.attempt, segment.start), left
            left -= segment.lines
            end = Position(segment.attempt, segment.end)
        return end, left

    def _begin(self, job: Job, position: Position) -> Position:
        """Where the chunk that contains this position begins."""
        held = self._logs.read(job.id, position.attempt, position.offset, 1)
        return Position(position.attempt, min(held[0].start, position.offset)) if held else position

    def _outline(self, job: Job) -> list[ChunkOutline]:
        return [one for one in self._logs.outline(job.id) if one.position.attempt <= job.newest]

    def _count(self, job: Job, position: Position) -> LineCounts:
        """The counts of a chunk that was stored without them."""
        chunk = self._logs.chunk_at(job.id, position)
        return {} if chunk is None else _counts(chunk)

    def _live(self, job: Job, stored: list[Segment], stretch: Stretch) -> Iterator[list[Line]]:
        """Yields the last attempt's lines that are not in MongoDB yet, as one list, if there are any."""
        last = job.current
        if last is None or last.log_end is not None:
            return
        begin = max(Position(last.attempt, 0), stretch.since)
        if stored and stored[-1].attempt == last.attempt:
            begin = Position(last.attempt, stored[-1].end)
        if begin.attempt == last.attempt and begin < stretch.until:
            try:
                entries = live_entries(self._redis, AttemptId(job.id, last.attempt), begin.offset)
            except redis.RedisError as error:
                log.warning("log_stream_unreadable", job_id=job.id, error=str(error))
                return
            if entries:
                yield list(_owned(last.attempt, entries, ""))


def _same(chunk: LogChunk) -> LogChunk:
    return chunk


def _lies_in(segment: Segment, stretch: Stretch) -> bool:
    begin, end = Position(segment.attempt, segment.start), Position(segment.attempt, segment.end)
    return stretch.since <= begin and end <= stretch.until


def _wanted_positions(chunk: LogChunk, wanted: LogFilter) -> Iterator[Position]:
    return (Position(chunk.attempt, end) for end in wanted_ends(chunk, wanted))


def _begins_in(stretch: Stretch, line: Line) -> bool:
    return stretch.since <= Position(line.attempt, line.entry.start) < stretch.until


def _found(segments: list[Segment], positions: list[Position], stretch: Stretch) -> LinesFound:
    end = Position(segments[-1].attempt, segments[-1].end) if segments else max(Position(1, 0), stretch.since)
    return LinesFound(_joined(segments), end, positions)


def _joined(segments: list[Segment]) -> list[Segment]:
    """The segments, with neighbours of the same attempt joined, so that there are at most about `MAX_SEGMENTS`."""
    size = -(-len(segments) // MAX_SEGMENTS)
    joined: list[Segment] = []
    count = size
    for segment in segments:
        if count < size and joined[-1].attempt == segment.attempt:
            before = joined.pop()
            joined.append(before._replace(end=segment.end, lines=before.lines + segment.lines))
            count += 1
        else:
            joined.append(segment)
            count = 1
    return joined


def _live_segment(lines: list[Line], count: int) -> Segment:
    return Segment(lines[0].attempt, lines[0].entry.start, lines[-1].entry.end, count)


# --- the lines of one chunk


def all_lines(chunk: LogChunk) -> Iterator[Line]:
    """All lines of the chunk."""
    entries, _ = split_entries(chunk.data, chunk.start, chunk.head_level, final=True)
    raws = (chunk.data[entry.start - chunk.start : entry.end - chunk.start] for entry in entries)
    return _owned(chunk.attempt, entries, chunk.head_logger or "", raws)


def wanted_lines(chunk: LogChunk, wanted: LogFilter) -> Iterator[Line]:
    """The lines of the chunk that the filter accepts."""
    # to split a chunk into lines takes much longer than to search its bytes
    if (chunk.lines and not wanted.count(chunk.lines)) or (wanted.text and not wanted.has_text(chunk.data)):
        return iter(())
    return filter(wanted.accepts, all_lines(chunk))


def count_wanted(chunk: LogChunk, wanted: LogFilter) -> int:
    """How many of the chunk's lines are wanted, for a filter with a text."""
    counts = chunk.lines or _counts(chunk)
    taken, lines = wanted.count(counts), sum(counts.values())
    if not taken:
        return 0
    if len(chunk.data) > MAX_LINE:
        return sum(1 for _ in wanted_ends(chunk, wanted))
    found = _count_lines_with(wanted.text, chunk.data)
    if not found or lines in {found, taken}:
        return min(found, taken)
    # look through the fewer lines: those with the text, or all others
    if found * 2 <= lines:
        return sum(1 for _ in wanted_ends(chunk, wanted))
    return taken - sum(1 for _ in _owned_ends(chunk, wanted, _lines_without(wanted.text, chunk.data)))


def wanted_ends(chunk: LogChunk, wanted: LogFilter) -> Iterator[int]:
    """Offsets in the attempt's log at which the chunk's wanted lines end."""
    # a longer chunk may have a line that was split into several entries
    if not wanted.text or len(chunk.data) > MAX_LINE:
        yield from (line.entry.end for line in wanted_lines(chunk, wanted))
        return
    yield from _owned_ends(chunk, wanted, _lines_with(wanted.text, chunk.data))


def _owned_ends(chunk: LogChunk, wanted: LogFilter, lines: Iterable[tuple[int, int]]) -> Iterator[int]:
    """As `wanted_ends`, but only for these lines (pairs as in `_lines_with`), and by level and logger: the text is
    ignored.
    """
    takes = lru_cache(partial(_takes, wanted))
    owner: tuple[bytes, ...] = (chunk.head_logger or "").encode(), chunk.head_level.encode()
    known = 0
    data, begin = chunk.data, chunk.start + 1
    for start, end in lines:
        owner, known = head_at(data, start) or _owner_before(data, start, known) or owner, start
        if takes(*owner):
            yield min(begin + end, chunk.end)


def _takes(wanted: LogFilter, logger: bytes, level: bytes) -> bool:
    return wanted.takes(logger.decode("utf-8", "replace"), level.decode())


def _owner_before(data: bytes, start: int, known: int) -> tuple[bytes, ...] | None:
    """Logger and level of the nearest line with a head before the line at `start`. The search ends at `known`."""
    while start > known:
        start = data.rfind(b"\n", 0, start - 1) + 1
        if owner := head_at(data, start):
            return owner
    return None


# --- searches text in bytes. Whole chunks are casefolded at once, because a call for each line would take much longer


def _count_lines_with(text: str, data: bytes) -> int:
    if text.isascii():
        return len(_rest_of_line(text.encode()).findall(data.lower()))
    return 0 if data.isascii() else len(_rest_of_line(text).findall(_folded(data)))


def _lines_with(text: str, data: bytes) -> Iterator[tuple[int, int]]:
    """Where each line with the text begins and ends, without its newline."""
    if text.isascii():
        for match in _rest_of_line(text.encode()).finditer(data.lower()):
            yield data.rfind(b"\n", 0, match.start()) + 1, match.end()
    elif not data.isascii():
        yield from _folded_lines_with(text, data)


def _lines_without(text: str, data: bytes) -> list[tuple[int, int]]:
    """As `_lines_with`, for lines that do not have the text."""
    searched: list[Any] = data.lower().split(b"\n") if text.isascii() else _folded(data).split("\n")
    sought: Any = text.encode() if text.isascii() else text
    missing = [number for number, line in enumerate(searched) if sought not in line]
    # casefolding changes the lengths of lines, but not their number
    ends = list(accumulate((len(line) + 1 for line in data.split(b"\n")), initial=0)) if missing else []
    return [(ends[number], ends[number + 1] - 1) for number in missing if ends[number] < len(data)]


def _folded_lines_with(text: str, data: bytes) -> Iterator[tuple[int, int]]:
    """As `_lines_with`, for a text that is not ASCII. Casefolding changes offsets, so lines are identified by their
    number, which does not change.
    """
    folded = _folded(data)
    breaks: list[int] = []
    number = known = 0
    for match in _rest_of_line(text).finditer(folded):
        breaks = breaks or [-1, *(newline.start() for newline in re.finditer(b"\n", data)), len(data)]
        number += folded.count("\n", known, match.start())
        known = match.start()
        yield breaks[number] + 1, breaks[number + 1]


def _folded(data: bytes) -> str:
    return data.decode("utf-8", "replace").casefold()


def _rest_of_line(text: AnyStr) -> re.Pattern[AnyStr]:
    """A pattern for the text and the rest of its line, so that a line matches only once."""
    rest = r"[^\n]*" if isinstance(text, str) else rb"[^\n]*"
    return re.compile(re.escape(text) + rest)


def _counts(chunk: LogChunk) -> LineCounts:
    return count_lines((line.entry for line in all_lines(chunk)), chunk.head_logger)


def _owned(
    attempt: int, entries: Iterable[LogEntry], logger: str, raws: Iterable[bytes] | None = None
) -> Iterator[Line]:
    found = list(entries)
    for entry, raw in zip(found, raws or (entry.text.encode() for entry in found), strict=True):
        logger = logger if entry.cont else entry.logger or ""
        yield Line(attempt, entry, logger, raw)
