"""Adds ended jobs to documents that count them. Each document counts a job once.

This holds even if workers are killed at any moment, and if several workers add to one document. A document lists in
`applied` the jobs that were added last; a job lists in `summed` the documents that count it. Both lists are needed,
as one write cannot change two documents:

1. A worker reads the documents, with their `rev` and `applied`.
2. Then it reads the jobs' `summed`. If a job in `applied` does not list the document yet, the worker adds it there.
3. It adds the jobs that a document does not count yet, unless the document's `rev` has changed since step 1.
4. It notes the documents in these jobs' `summed`, and then empties `applied` if it is long.

Nobody replaces `applied` before step 2. So every job that a document counts is either in the `applied` that a worker
reads in step 1, or already lists the document in the `summed` that the worker reads in step 2.
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

#: Up to this many jobs stay in `applied` until the next write replaces them. This saves a write for most jobs.
_FEW = 3
#: How often adding is tried if others change the same documents meanwhile.
TRIES = 5


class SummedSpec(BaseModel):
    """The fields of a job's spec that counting documents need."""

    project: str = DEFAULT_PROJECT
    spider: str
    version: str | None = None
    site: str | None = None


class EndedRun(JobFacts):
    """The fields of an ended job that counting documents need. None of them changes after the job's end."""

    spec: SummedSpec
    summed: list[str] = Field(default_factory=list)


AnyRun = Job | EndedRun
#: The stored fields from which an `EndedRun` is read.
ENDED_FIELDS = [
    *("user_id", "status", "created_at", "not_before", "started_at", "finished_at", "progress", "schedule_id"),
    *("reason", "message", "spec.project", "spec.spider", "spec.version", "spec.site", "summed"),
]


class Counting(BaseModel, populate_by_name=True):
    """A document that counts jobs."""

    id: str = Field(alias="_id")
    #: How often the document was changed; 0 if it is not stored yet.
    rev: int
    #: The jobs that were added last. They may stay here after their `summed` lists this document.
    applied: list[str] = Field(default_factory=list)

    @property
    def mark(self) -> str:
        """The name of this document in a job's `summed`."""
        raise NotImplementedError


CountingT = TypeVar("CountingT", bound=Counting)


@frozen
class Addition(Generic[CountingT]):
    """Which documents jobs are added to, and how."""

    #: The documents that should count a job, each new and empty.
    belongs_to: Callable[[AnyRun], Collection[CountingT]]
    #: The MongoDB update that adds jobs to a document. It leaves out `rev` and `applied`.
    update: Callable[[CountingT, Sequence[AnyRun]], Document]
    #: No document counts jobs that ended before this time.
    since: datetime


class AddedOnce(Generic[CountingT]):
    """A collection of documents that count jobs."""

    def __init__(self, documents: Documents[CountingT], jobs: Stored[Document]) -> None:
        self._documents = documents
        self._counting = documents.collection
        self._jobs = jobs

    def _add_all(self, jobs: Iterable[AnyRun], addition: Addition[CountingT]) -> set[str]:
        """Add the jobs that have ended, each once. Returns the ids of jobs that cannot be added now, because a
        document cannot be read or written, or others change it all the time. Raises PyMongo's errors.
        """
        left = [job for job in jobs if _missing(job, job.summed, addition)]
        for _ in range(TRIES):
            if not left:
                break
            left = self._add(left, addition)
        return {job.id for job in left}

    def _add(self, jobs: Sequence[AnyRun], addition: Addition[CountingT]) -> list[AnyRun]:
        """Try once. Returns the jobs that are still missing from a document, as far as this try knows."""
        pairs = [(job, one) for job in jobs for one in addition.belongs_to(job)]
        stored = self._stored({one.id for _, one in pairs})
        added = [(job_id, one.mark) for one in stored.values() if one is not None for job_id in one.applied]
        summed = self._summed({*(job.id for job in jobs), *(job_id for job_id, _ in added)})
        if self._note(added, summed):
            groups: dict[str, tuple[CountingT, list[AnyRun]]] = {}
            for job, new in pairs:
                one = stored.get(new.id, new)
                # a job that does not exist any more was added before its deletion
                if one is not None and new.mark not in summed.get(job.id, {new.mark}):
                    groups.setdefault(one.id, (one, []))[1].append(job)
            added = [(job.id, one.mark) for one, some in groups.values() for job in some]
            if self._apply(list(groups.values()), addition) and self._note(added, summed):
                self._clear([one for one, some in groups.values() if len(some) > _FEW])
        return [job for job in jobs if job.id in summed and _missing(job, summed[job.id], addition)]

    def _stored(self, ids: Collection[str]) -> dict[str, CountingT | None]:
        """The documents that are stored, by id; `None` for a document that cannot be read."""
        found = self._counting.find({"_id": {"$in": list(ids)}})
        return {document["_id"]: one for document, one in self._documents.each(found)}

    def _summed(self, job_ids: Collection[str]) -> dict[str, set[str]]:
        """The marks of the documents that count each job, by the job's id. Jobs that do not exist are left out."""
        found = self._jobs.find({"_id": {"$in": list(job_ids)}}, {"summed": 1})
        known = ((one["_id"], one.get("summed", [])) for one in found)
        # a job whose field is damaged is left out: nothing can be noted in it
        return {job_id: set(of) for job_id, of in known if isinstance(of, list)}

    @state_change("sums.note")
    def _note(self, added: Iterable[tuple[str, str]], summed: dict[str, set[str]]) -> bool:
        """Note in the jobs that the documents with these marks count them, unless `summed` says so already. Updates
        `summed`. Returns whether all jobs could be written.
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
        """Add the jobs to the documents, unless these have changed since they were read. Returns whether all jobs
        were added.
        """
        updates = []
        for one, jobs in groups:
            update = addition.update(one, jobs)
            update["$inc"] = {**update.get("$inc", {}), "rev": 1}
            update["$set"] = {**update.get("$set", {}), "applied": [job.id for job in jobs]}
            as_read = {"_id": one.id, "rev": one.rev or {"$exists": False}}
            # if another worker has made the document meanwhile, the upsert fails: the id is taken
            updates.append(UpdateOne(as_read, update, upsert=not one.rev))
        try:
            done = self._counting.bulk_write(updates, ordered=False) if updates else None
        except BulkWriteError as error:
            _check_refused(error)
            return False
        return done is None or done.matched_count + done.upserted_count == len(updates)

    @state_change("sums.clear")
    def _clear(self, documents: Sequence[CountingT]) -> None:
        """Remove the jobs from `applied`, to keep the documents small."""
        gone = {"$unset": {"applied": ""}}
        if documents:
            cleared = [UpdateOne({"_id": one.id, "rev": one.rev + 1}, gone) for one in documents]
            self._counting.bulk_write(cleared, ordered=False)


def _missing(job: AnyRun, summed: Iterable[str], addition: Addition[CountingT]) -> set[str]:
    """The marks of the documents that should count the job, and do not yet."""
    if not job.is_final or job.finished_at is None or job.finished_at < addition.since:
        return set()
    return {one.mark for one in addition.belongs_to(job)} - set(summed)


def _check_refused(error: BulkWriteError) -> None:
    """Raise the error if the database is at fault. Otherwise log the codes of the writes that it refused."""
    if is_passing(error):
        raise error
    refused = {problem["code"] for problem in error.details["writeErrors"]} - {DUPLICATE_KEY}
    if refused:
        log.warning("sums_not_written", codes=sorted(refused))
