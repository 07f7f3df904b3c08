"""An attempt's progress over time: its counts as a curve of few points, and an estimate of its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, Field
from pymongo import ASCENDING
from pymongo.database import Database

from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import AttemptId
from gateway.contract.records import Int64, Progress
from gateway.crash_points import state_change
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating, of_job

#: Maximum number of points of one attempt. If there are more, every second point is dropped.
MOST_POINTS = 240
#: How many series are deleted at a time.
_BATCH = 1000
#: Seconds between two points at first. Progress comes about once a second, so this is a little less than a second.
FIRST_EVERY = 0.9


class Point(NamedTuple):
    """The counts of an attempt, from its start to one moment."""

    at: datetime
    requested_pages: Int64 = 0
    completed_pages: Int64 = 0
    items_count: Int64 = 0
    errors_count: Int64 = 0
    answered_2xx: Int64 = 0
    answered_3xx: Int64 = 0
    answered_4xx: Int64 = 0
    answered_5xx: Int64 = 0

    @classmethod
    def of(cls, at: datetime, progress: Progress) -> Self:
        return cls(at, *(getattr(progress, name) for name in cls._fields[1:]))

    @property
    def done(self) -> int:
        """How many requests have ended, successfully or not."""
        return self.completed_pages + self.errors_count


class ProgressSeries(BaseModel, extra="forbid", populate_by_name=True):
    """One document of the collection `progress`. Its id is the attempt's id."""

    id: str = Field(alias="_id")
    #: Minimum number of seconds between two points; doubled whenever there are too many points.
    every: float = FIRST_EVERY
    #: The oldest first.
    points: list[Point] = Field(default_factory=list)

    def add(self, point: Point, *, is_last: bool = False) -> bool:
        """Add the point, unless it comes too soon after the previous one. Returns whether it was added. The last
        point of an attempt replaces a previous one that is too close, because two close points would show a wrong
        rate.
        """
        gap = (point.at - self.points[-1].at).total_seconds() if self.points else self.every
        if gap < self.every and not (is_last and gap > 0):
            return False
        if gap < self.every and self.points[1:]:
            self.points.pop()
        self.points.append(point)
        if len(self.points) > MOST_POINTS:
            # the number of points is odd here, so the first and the last point stay
            self.points = self.points[::2]
            self.every *= 2
        return True


class ProgressStore:
    """The collection `progress`. Only the tailer of an attempt's node writes its series, and always as a whole."""

    def __init__(self, database: Database[Document]) -> None:
        self._progress = database["progress"]
        self._documents = Documents(self._progress, reader(ProgressSeries))

    def get(self, attempt_id: AttemptId) -> ProgressSeries:
        """The attempt's series; an empty one if there is none, or if it cannot be read."""
        name = _name(attempt_id)
        return self._documents.optional(self._progress.find_one({"_id": name})) or ProgressSeries(id=name)

    @state_change("progress.save")
    def save(self, series: ProgressSeries) -> None:
        self._progress.replace_one({"_id": series.id}, series.model_dump(by_alias=True), upsert=True)

    def of_job(self, job_id: str, limit: int) -> dict[int, list[Point]]:
        """The points of the job's last `limit` attempts, by attempt number."""
        found = self._documents.find(of_job(job_id), limit, [("_id", -ASCENDING)])
        return {int(series.id.rpartition(":")[2]): series.points for series in reversed(found)}

    @state_change("progress.delete")
    def delete(self, *job_ids: str) -> None:
        Repeating(self._progress).delete_of_jobs(job_ids, _BATCH)


def _name(attempt_id: AttemptId) -> str:
    return f"{attempt_id.job_id}:{attempt_id.attempt:04d}"


# --- when the crawl will end. Nobody knows how many pages a site has, so the estimate assumes that the crawl
# continues at the pace of the last minute. If no end follows from that, there is no estimate.

#: The pace is measured over this time. Over a longer one, it would not show how fast the crawl is now.
WINDOW = timedelta(seconds=60)
#: A crawl that has run for less than this has no pace yet.
SHORTEST = timedelta(seconds=5)

Reckoned = Literal["queue", "max_pages", "max_items", "timeout"]


class Pace(NamedTuple):
    """Numbers per second, over the last minute."""

    done: float
    #: Requests that the crawl has newly found.
    found: float
    items: float


class Estimate(NamedTuple):
    """When a crawl will end at its present pace."""

    at: datetime
    #: What ends the crawl: no request is left, or one of its limits is reached.
    reckoned_by: Reckoned
    #: How many requests wait or are under way.
    queued: int
    pace: Pace


def estimate(points: list[Point], spec: CrawlSpec, started_at: datetime, now: datetime) -> Estimate | None:
    """The earliest estimated end of a running crawl; `None` if no end can be estimated.

    The queue of requests gives an estimate only while it gets shorter, by `done - found` requests a second.
    """
    pace = _pace(points, now)
    if pace is None:
        return None
    last = points[-1]
    queued = max(0, last.requested_pages - last.done)
    ends: list[tuple[float, Reckoned]] = []
    if queued and pace.done > pace.found:
        ends.append((queued / (pace.done - pace.found), "queue"))
    if spec.max_pages and pace.done:
        ends.append(((spec.max_pages - last.completed_pages) / pace.done, "max_pages"))
    if spec.max_items and pace.items:
        ends.append(((spec.max_items - last.items_count) / pace.items, "max_items"))
    if spec.timeout:
        ends.append((spec.timeout - (now - started_at).total_seconds(), "timeout"))
    return _earliest(ends, queued, pace, now)


#: Seconds. Estimates further ahead are dropped, because they would be too inaccurate.
_FURTHEST = timedelta(days=30).total_seconds()


def _earliest(ends: list[tuple[float, Reckoned]], queued: int, pace: Pace, now: datetime) -> Estimate | None:
    seconds, reckoned_by = min(ends, default=(_FURTHEST, "queue"))
    if seconds >= _FURTHEST:
        return None
    return Estimate(now + timedelta(seconds=max(0, round(seconds))), reckoned_by, queued, pace)


def _pace(points: list[Point], now: datetime) -> Pace | None:
    """The pace over the last minute. Counts that do not change give no new points, so the last point counts
    as now's.
    """
    if not points[1:] or now - points[0].at < SHORTEST:
        return None
    first = next((point for point in reversed(points) if now - point.at >= WINDOW), points[0])
    last, seconds = points[-1], (now - first.at).total_seconds()

    def rate(of: Callable[[Point], int]) -> float:
        return max(0, of(last) - of(first)) / seconds

    return Pace(
        rate(lambda point: point.done), rate(lambda point: point.requested_pages), rate(lambda p: p.items_count)
    )
