"""Superseded attempts: those that a newer attempt of the same job followed. A job's document keeps only the newest
attempt, so that it stays small however often the job is paused and resumed. Older attempts are copied to a collection
of their own, and then removed from the job.

A job that an older release stored may still have many attempts inside. Reading a job with its earlier attempts finds
them in both places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo import DESCENDING
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.contract.outbox import AttemptId
from gateway.contract.records import FilesKept
from gateway.crash_points import state_change
from gateway.jobs.job import Attempt, Job, Spared, spared_more
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import DUPLICATE_KEY, Document, Repeating, of_job, refusals

#: How many of the newest earlier attempts are read: with the facts of their ends, and without them.
MOST_WHOLE, MOST_OUTLINED = 100, 1000
#: Attempts deleted at a time.
_BATCH = 1000


class AttemptStore:
    """The collection `attempts`. Ids are `<job>:<attempt>`, so the index has a job's attempts beside each other."""

    def __init__(self, database: Database[Document]) -> None:
        self._attempts = database["attempts"]
        self._jobs = database["jobs"]
        self._documents = Documents(self._attempts, read_attempt)

    # --- from the job to the collection

    def supersede(self, job_id: str) -> None:
        """Move all attempts of the job except the newest to the collection. This may be interrupted at any point and
        repeated, even by two processes at once: attempts are copied first, and only copied attempts are removed.
        """
        found = self._jobs.find_one({"_id": job_id}, {"attempts": 1, "spared": 1})
        inside: Mapping[str, Document] = (found or {}).get("attempts") or {}
        if found is None or len(inside) <= 1:
            return
        newest = max(inside, key=int)
        older = {number: record for number, record in inside.items() if number != newest}
        self._copy(job_id, older)
        self._remove(job_id, older, found.get("spared") or {})

    @state_change("attempts.copy")
    def _copy(self, job_id: str, older: Mapping[str, Document]) -> None:
        copies = [{**record, "_id": _name(job_id, int(number))} for number, record in older.items()]
        try:
            Repeating(self._attempts).insert_many(copies)
        except BulkWriteError as error:
            there = refusals(error, {DUPLICATE_KEY})
            for position in there:
                self._copy_files(copies[position])

    def _copy_files(self, copy: Document) -> None:
        """Add the files, in case they were recorded after the first copy. Nothing else in a copy can change."""
        if (files := _files(copy)) and not files.get("pending"):
            unknown = {"_id": copy["_id"], "exit.files.pending": True}
            self._attempts.update_one(unknown, {"$set": {"exit.files": files}})

    @state_change("attempts.remove_from_job")
    def _remove(self, job_id: str, older: Mapping[str, Document], spared: Mapping[Spared, int]) -> None:
        """Remove copied attempts from the job. If files of an attempt were recorded meanwhile, all attempts stay, and
        the next call copies them again.
        """
        as_copied: Document = {"_id": job_id}
        for number, record in older.items():
            as_copied[f"attempts.{number}"] = {"$exists": True}
            as_copied[f"attempts.{number}.exit.files.pending"] = (_files(record) or {}).get("pending")
        update: Document = {"$unset": {f"attempts.{number}": "" for number in older}}
        more = spared_more(map(read_attempt, older.values()), spared)
        # spared attempts were counted as failures, but use up no retry: record this before the attempts are removed
        counts = {f"spared.{kind}": number for kind, number in more.items()}
        update["$inc"] = {"superseded": len(older), **counts, **({"failures": -sum(more.values())} if more else {})}
        self._jobs.update_one(as_copied, update)

    # --- facts that come late

    def has(self, attempt_id: AttemptId) -> bool:
        return self._attempts.find_one({"_id": _name(*attempt_id)}, {"_id": 1}) is not None

    def record_files(self, attempt_id: AttemptId, kept: FilesKept) -> bool:
        """Record which files were stored. Returns whether the attempt exists."""
        update = {"$set": {"exit.files": kept.model_dump()}}
        return self._attempts.update_one({"_id": _name(*attempt_id)}, update).matched_count == 1

    # --- the whole job

    def complete(self, job: Job) -> Job:
        """The job with the newest `MOST_WHOLE` of its earlier attempts. It is for display, not for decisions."""
        return self._with_earlier(job, MOST_WHOLE)

    def outline(self, job: Job) -> Job:
        """As `complete`, but without the attempts' ends, and with up to `MOST_OUTLINED` attempts."""
        return self._with_earlier(job, MOST_OUTLINED, {"exit": 0})

    def _with_earlier(self, job: Job, limit: int, fields: dict[str, Any] | None = None) -> Job:
        if not job.superseded:
            return job
        found = self._attempts.find(of_job(job.id), fields, sort=[("_id", DESCENDING)], limit=limit)
        return job.with_earlier({str(one.attempt): one for one in self._documents.many(found)})

    @state_change("attempts.delete")
    def delete(self, *job_ids: str) -> None:
        Repeating(self._attempts).delete_of_jobs(job_ids, _BATCH)


read_attempt = reader(Attempt)


def _name(job_id: str, attempt: int) -> str:
    return f"{job_id}:{attempt:06d}"


def _files(record: Document) -> Document | None:
    return (record.get("exit") or {}).get("files")
