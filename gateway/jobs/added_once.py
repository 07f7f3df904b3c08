"""Adds ended jobs to documents that count them, to each document once.

That holds whoever is killed, and however many workers add to it. A document says in `applied` which jobs were added
last, and a job in `summed` in which documents it is. Both are needed, as no write changes two documents:

1. A worker reads the documents (`rev`, and `applied`).
2. Then it reads in which of them the jobs are (`summed`), and notes it for those of `applied` where it is not noted.
3. It adds the jobs that are not in a document yet, if its `rev` is still the one that it has read.
4. It notes that they are in, and then takes them out of `applied` if they are many.

So what a document had before the `rev` that a worker has read is noted in its jobs before the worker reads these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import structlog
from attrs import frozen
from pydantic import BaseModel, Field
from pymongo import UpdateOne
from pymongo.collection import Collection as Stored
from pymongo.errors import BulkWriteError

from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.crash_points import state_change
from gateway.jobs.job import Job, JobFacts
from gateway.stores.documents import Documents
from gateway.stores.mongo import DUPLICATE_KEY, Document, is_passing

log = structlog.get_logger()

#: So many jobs may stay in `applied`, until others take their place: it saves a write of most of the jobs.
_FEW = 3
#: How often jobs are tried to be added to documents that others change meanwhile. The last try only finds out what
#: came of the one before.
TRIES = 5


class SummedSpec(BaseModel):
    """What such documents need of a job's spec."""

    project: str = DEFAULT_PROJECT
    spider: str
    version: str | None = None
    site: str | None = None


class EndedRun(JobFacts):
    """What such documents need of a job; none of it changes after the job's end."""

    spec: SummedSpec
    summed: list[str] = Field(default_factory=list)


AnyRun = Job | EndedRun
#: What `EndedRun` is read from.
ENDED_FIELDS = [
    *("user_id", "status", "created_at", "not_before", "started_at", "finished_at", "progress", "schedule_id"),
    *("reason", "message", "spec.project", "spec.spider", "spec.version", "spec.site", "summed"),
]


class Counting(BaseModel, populate_by_name=True):
    """A document that counts jobs."""

    id: str = Field(alias="_id")
    #: How often it was changed; 0 for one that is not stored yet.
    rev: int
    #: The jobs that were added last, until it is noted in them.
    applied: list[str] = Field(default_factory=list)

    @property
    def mark(self) -> str:
        """How a job's `summed` calls it."""
        raise NotImplementedError


CountingT = TypeVar("CountingT", bound=Counting)


@frozen
class Addition(Generic[CountingT]):
    """Which documents jobs are added to, and how."""

    #: The documents that a job belongs to, as if there were none yet.
    belongs_to: Callable[[AnyRun], Collection[CountingT]]
    #: The update that adds the jobs to the document as it was read; without `rev` and `applied`.
    update: Callable[[CountingT, Sequence[AnyRun]], Document]
    #: Jobs that ended before then are in no document.
    since: datetime


class AddedOnce(Generic[CountingT]):
    """A collection of such documents."""

    def __init__(self, documents: Documents[CountingT], jobs: Stored[Document]) -> None:
        self._documents = documents
        self._counting = documents.collection
        self._jobs = jobs

    def _add_all(self, jobs: Iterable[AnyRun], addition: Addition[CountingT]) -> set[str]:
        """Add those of the jobs that have ended, each once. Returns the ids of jobs that cannot be added now: a
        document cannot be read or written, or others change it all the time. Raises PyMongo's errors.
        """
        left = [job for job in jobs if _missing(job, job.summed, addition)]
        for _ in range(TRIES):
            if not left:
                break
            left = self._add(left, addition)
        return {job.id for job in left}

    def _add(self, jobs: Sequence[AnyRun], addition: Addition[CountingT]) -> list[AnyRun]:
        """One try. Returns those of the jobs that are still missing, as far as this try knows."""
        pairs = [(job, one) for job in jobs for one in addition.belongs_to(job)]
        stored = self._stored({one.id for _, one in pairs})
        added = [(job_id, one.mark) for one in stored.values() if one is not None for job_id in one.applied]
        summed = self._summed({*(job.id for job in jobs), *(job_id for job_id, _ in added)})
        if self._note(added, summed):
            groups: dict[str, tuple[CountingT, list[AnyRun]]] = {}
            for job, new in pairs:
                one = stored.get(new.id, new)
                # a job that is gone was added before it went
                if one is not None and new.mark not in summed.get(job.id, {new.mark}):
                    groups.setdefault(one.id, (one, []))[1].append(job)
            added = [(job.id, one.mark) for one, some in groups.values() for job in some]
            if self._apply(list(groups.values()), addition) and self._note(added, summed):
                self._clear([one for one, some in groups.values() if len(some) > _FEW])
        return [job for job in jobs if job.id in summed and _missing(job, summed[job.id], addition)]

    def _stored(self, ids: Collection[str]) -> dict[str, CountingT | None]:
        """Those of the documents that there are; `None` for one that cannot be read."""
        found = self._counting.find({"_id": {"$in": list(ids)}})
        return {document["_id"]: one for document, one in self._documents.each(found)}

    def _summed(self, job_ids: Collection[str]) -> dict[str, set[str]]:
        """In which documents, by their marks, those of the jobs are that there are."""
        found = self._jobs.find({"_id": {"$in": list(job_ids)}}, {"summed": 1})
        known = ((one["_id"], one.get("summed", [])) for one in found)
        # a job whose field is damaged is left out: nothing can be noted in it
        return {job_id: set(of) for job_id, of in known if isinstance(of, list)}

    @state_change("sums.note")
    def _note(self, added: Iterable[tuple[str, str]], summed: dict[str, set[str]]) -> bool:
        """Note in the jobs that they were added to documents with these marks, unless `summed` says so already. It is
        kept up to date. Returns whether all jobs could be written.
        """
        late: dict[str, set[str]] = {}
        for job_id, mark in added:
            if mark not in summed.get(job_id, {mark}):
                late.setdefault(job_id, set()).add(mark)
        new = [UpdateOne({"_id": one}, {"$addToSet": {"summed": {"$each": sorted(of)}}}) for one, of in late.items()]
        try:
            if new:
                self._jobs.bulk_write(new, ordered=False)
        except BulkWriteError as error:
            _check_refused(error)
            return False
        for job_id, marks in late.items():
            summed[job_id] |= marks
        return True

    @state_change("sums.apply")
    def _apply(self, groups: Sequence[tuple[CountingT, Sequence[AnyRun]]], addition: Addition[CountingT]) -> bool:
        """Add the jobs to the documents as they were read. Returns whether all were still as they were read."""
        updates = []
        for one, jobs in groups:
            update = addition.update(one, jobs)
            update["$inc"] = {**update.get("$inc", {}), "rev": 1}
            update["$set"] = {**update.get("$set", {}), "applied": [job.id for job in jobs]}
            as_read = {"_id": one.id, "rev": one.rev or {"$exists": False}}
            # where another worker has made the document meanwhile, its id is taken
            updates.append(UpdateOne(as_read, update, upsert=not one.rev))
        try:
            done = self._counting.bulk_write(updates, ordered=False) if updates else None
        except BulkWriteError as error:
            _check_refused(error)
            return False
        return done is None or done.matched_count + done.upserted_count == len(updates)

    @state_change("sums.clear")
    def _clear(self, documents: Sequence[CountingT]) -> None:
        """Take the jobs out of `applied`, which would make large documents."""
        gone = {"$unset": {"applied": ""}}
        if documents:
            cleared = [UpdateOne({"_id": one.id, "rev": one.rev + 1}, gone) for one in documents]
            self._counting.bulk_write(cleared, ordered=False)


def _missing(job: AnyRun, summed: Iterable[str], addition: Addition[CountingT]) -> set[str]:
    """The documents, by their marks, in which the job is not yet and should be."""
    if not job.is_final or job.finished_at is None or job.finished_at < addition.since:
        return set()
    return {one.mark for one in addition.belongs_to(job)} - set(summed)


def _check_refused(error: BulkWriteError) -> None:
    """Raises the error unless single documents were refused."""
    if is_passing(error):
        raise error
    refused = {problem["code"] for problem in error.details["writeErrors"]} - {DUPLICATE_KEY}
    if refused:
        log.warning("sums_not_written", codes=sorted(refused))
