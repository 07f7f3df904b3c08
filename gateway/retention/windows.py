"""Windows: the jobs that ended within the same minute. Workers remove old data window by window.

A worker that begins a window stores a document in the collection `retention`, with a lease, and removes the document
once the window's data is gone. If data is left, another worker continues with the window. It is harmless if two
workers remove the same data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.jobs.job import Job
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating
from gateway.stores.redis import dedupe_key

#: The parts of a job that have a retention time of their own. Logs and items go before their job, or with it.
Part = Literal["logs", "items", "jobs"]
#: The time in which the jobs of a window have ended. At ten million jobs a day, these are 7,000 jobs.
WINDOW = timedelta(minutes=1)
#: No other worker takes a window for this long after it was begun. Afterwards its worker may have died, or data that
#: could not be removed is tried again.
LEASE = timedelta(seconds=60)
#: How many jobs are removed together.
BATCH = 100
#: Fields of a job that exist while a dataset needs its items.
_NEEDED = ("dataset_due", "dataset_held")
_OLDEST_FIRST = [("finished_at", ASCENDING)]
_ENDED = ("finished_at", "user_id", "spec.spider", "fingerprint", *_NEEDED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Ended(NamedTuple):
    job_id: str
    finished_at: datetime
    #: The dedupe key in Redis that may name this job as the answer; `None` if it cannot be made from the document.
    dedupe_key: str | None
    #: The job itself, if it was asked for and can be read.
    job: Job | None = None
    #: Whether its items are still needed: its run is not folded into its dataset yet, or is held.
    is_needed: bool = False


class Window(NamedTuple):
    part: Part
    #: All jobs of the window that ended before this time are done.
    start: datetime
    end: datetime

    @classmethod
    def around(cls, part: Part, moment: datetime) -> Window:
        start = moment - (moment - _EPOCH) % WINDOW
        return cls(part, start, start + WINDOW)

    @property
    def id(self) -> str:
        return f"{self.part}/{self.end.isoformat()}"


class Windows:
    """The collection `retention`. It has a document for each window that was begun and is not done. For logs and
    items it also has one document with the end of the last begun window, `until`. For jobs this is not needed,
    because a removed job is not found again.
    """

    def __init__(self, database: Database[Document], clock: Clock = utc_now, lease: timedelta = LEASE) -> None:
        self._jobs = database["jobs"]
        self._retention = database["retention"]
        self._documents = Documents(self._jobs, reader(Job))
        self._clock = clock
        self._lease = lease

    def begin(self, part: Part, before: datetime, after: datetime | None = None) -> Window | None:
        """Begin the oldest window that no worker has begun, between `after` and `before`; `None` if there is none."""
        since = max(filter(None, (after, self._until(part))), default=None)
        while True:
            query = {"finished_at": {"$lt": before} | ({"$gte": since} if since else {})}
            found = self._jobs.find_one(query, {"finished_at": 1}, sort=_OLDEST_FIRST)
            if found is None:
                return None
            window = Window.around(part, found["finished_at"])
            if window.end > before:
                return None
            is_ours, since = self._insert(window), window.end
            if part != "jobs":
                # after the window's document is stored, so that the window is not lost if this process dies
                self._advance(part, window.end)
            if is_ours:
                return window

    def _until(self, part: Part) -> datetime | None:
        until = (self._retention.find_one({"_id": part}) or {}).get("until")
        return until if isinstance(until, datetime) else None

    @state_change("windows.insert")
    def _insert(self, window: Window) -> bool:
        facts = {**window._asdict(), "leased_until": self._clock() + self._lease}
        try:
            Repeating(self._retention).insert_one({"_id": window.id, **facts}, ours=["leased_until"])
        except DuplicateKeyError:
            return False
        return True

    @state_change("windows.advance")
    def _advance(self, part: Part, until: datetime) -> None:
        self._retention.update_one({"_id": part}, {"$max": {"until": until}}, upsert=True)

    @state_change("windows.take")
    def take(self, part: Part) -> Window | None:
        """Take the abandoned window that was abandoned first; `None` if there is none."""
        now = self._clock()
        free: Document = {"part": part, "leased_until": {"$lte": now}}
        lease = {"$set": {"leased_until": now + self._lease}}
        oldest_first = [("leased_until", ASCENDING)]
        found = Repeating(self._retention).find_one_and_update(free, lease, sort=oldest_first)
        return None if found is None else Window(part, found["start"], found["end"])

    @state_change("windows.leave")
    def leave(self, window: Window, *, seconds: float = 0.0) -> None:
        """Leave the window to any worker after `seconds`, which continues with the jobs from its `start` on."""
        later = self._clock() + timedelta(seconds=seconds)
        left = {"$set": {"start": window.start, "leased_until": later}}
        self._retention.update_one({"_id": window.id}, left)

    @state_change("windows.finish")
    def finish(self, window: Window) -> None:
        Repeating(self._retention).delete_many({"_id": window.id})

    # --- the contents of windows

    def batches(self, window: Window) -> Iterator[list[Ended]]:
        """The jobs that ended in the window, in batches."""
        query = {"finished_at": {"$gte": window.start, "$lt": window.end}}
        whole = window.part == "jobs"
        with self._jobs.find(query, None if whole else _ENDED).sort(_OLDEST_FIRST).batch_size(BATCH) as found:
            documents = self._documents.each(found) if whole else ((one, None) for one in found)
            ended = (
                Ended(one["_id"], one["finished_at"], _key(one), job, not one.keys().isdisjoint(_NEEDED))
                for one, job in documents
            )
            while some := list(islice(ended, BATCH)):
                yield some

    @state_change("windows.mark_removed")
    def mark_removed(self, part: Part, job_ids: list[str]) -> None:
        """Mark the part as removed. This comes before the removal, so that a job never seems to have data that is
        gone.
        """
        mark = f"{part}_removed_at"
        unmarked = {"_id": {"$in": job_ids}, mark: {"$exists": False}}
        Repeating(self._jobs).update_many(unmarked, {"$set": {mark: self._clock()}})


def _key(document: Mapping[str, Any]) -> str | None:
    """The job's dedupe key. It is read from raw fields, so that an unreadable document does not stop the others."""
    try:
        return dedupe_key(document["user_id"], document["spec"]["spider"], document["fingerprint"])
    except (KeyError, TypeError):
        return None
