"""Who waits, by lanes: each is found by one look into an index, however many jobs it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.domain.job import JobStatus
from gateway.domain.lane import Lane, Need
from gateway.storage.client import Document
from gateway.storage.job_documents import eligible

_ORDER = [("lane", ASCENDING), ("rank", ASCENDING)]


class Head(NamedTuple):
    """The best of a lane's jobs that could be started now."""

    lane: Lane
    rank: datetime
    job_id: str


class LaneStore:
    """Reads only. From one lane to the next it seeks past all jobs in between ("skip scan"), and past all lanes that
    need what nobody asks for.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]

    def heads(self, now: datetime, fits: Callable[[Need], bool], after: str = "") -> Iterator[Head]:
        """Of the lanes that fit, by their names, from above `after` on. Each is read when it is asked for."""
        while (head := self._first(now, {"$gt": after})) is not None:
            if fits(head.lane.need):
                yield head
                after = str(head.lane)
            else:
                after = head.lane.need.end

    def head(self, now: datetime, lane: Lane) -> Head | None:
        return self._first(now, str(lane))

    def head_with(self, now: datetime, job_id: str) -> Head | None:
        """The best of the lane in which the job waits; `None` if it does not."""
        found = self._jobs.find_one({**eligible(now), "_id": job_id, "lane": {"$gt": ""}}, {"lane": 1})
        return None if found is None else self._first(now, found["lane"])

    def needs(self, now: datetime) -> Iterator[Need]:
        """What due jobs need, each once."""
        after = ""
        while (head := self._first(now, {"$gt": after})) is not None:
            yield head.lane.need
            after = head.lane.need.end

    def running(self) -> Counter[str]:
        """How many attempts each user has that run or are on their way to a node."""
        there: list[Document] = [{"status": JobStatus.RUNNING}, {"placement.attempt": {"$gte": 1}}]
        return Counter(found["user_id"] for query in there for found in self._jobs.find(query, {"user_id": 1}))

    def _first(self, now: datetime, lane: object) -> Head | None:
        found = self._jobs.find_one({**eligible(now), "lane": lane}, {"lane": 1, "rank": 1}, sort=_ORDER)
        return None if found is None else Head(Lane.parse(found["lane"]), found["rank"], found["_id"])
