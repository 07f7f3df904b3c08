"""Adds ended jobs to the daily sums and to the groups of their errors.

A job is added when its end is announced, or at the latest before it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from pymongo import ASCENDING
from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.error_groups.store import ErrorGroupStore
from gateway.jobs.added_once import ENDED_FIELDS, TRIES, AnyRun, EndedRun
from gateway.jobs.run_days import SUMS_KEPT, RunDays, day_of
from gateway.stores.documents import NO_TIME, Documents, reader
from gateway.stores.mongo import Document

log = structlog.get_logger()

#: A job that ended longer ago than this has been added already, if a worker of this release has ended it.
_ADDED_AFTER = timedelta(minutes=10)
#: The document in `counters` with the time up to which `adopt` has added jobs.
_ADOPTED = "run_days"
#: The resolution of times in MongoDB.
_MOMENT = timedelta(milliseconds=1)


class AddedRuns(NamedTuple):
    #: The ids of jobs that cannot be added now.
    left: set[str]
    #: By job: how many error groups are new with this job, or are back. Jobs without any are left out.
    new_errors: dict[str, int]


class EndedRuns:
    def __init__(
        self, database: Database[Document], days: RunDays, errors: ErrorGroupStore, clock: Clock = utc_now
    ) -> None:
        self._jobs = database["jobs"]
        self._counters = database["counters"]
        self._ended = Documents(self._jobs, reader(EndedRun))
        self._days = days
        self._errors = errors
        self._clock = clock
        #: How many calls of `adopt` in a row could not add all jobs.
        self._failed = 0

    def add(self, jobs: Iterable[AnyRun]) -> AddedRuns:
        """Add the ended ones of these jobs to the sums and groups, each job only once. Raises PyMongo's errors."""
        jobs = list(jobs)
        # the daily sums first: a group stores how many runs had ended when it was seen
        left = self._days.add(jobs)
        left_too, new = self._errors.add(jobs)
        return AddedRuns(left | left_too, new)

    # --- jobs that an earlier release has ended

    def adopt(self, limit: int) -> bool:
        """Add some of the jobs that ended a while ago and were not added, because an earlier release has ended them;
        the oldest first. Returns whether there may be more. Raises PyMongo's errors.
        """
        before = self._clock() - _ADDED_AFTER
        since = max(day_of(self._clock() - SUMS_KEPT), self._adopted_until())
        jobs: list[EndedRun] = []
        last, count = since, 0
        query = {"finished_at": {"$gte": since, "$lt": before}}
        with self._jobs.find(query, ENDED_FIELDS, sort=[("finished_at", ASCENDING)], batch_size=limit) as found:
            for document, job in self._ended.each(found):
                # include all jobs that ended at the same moment, because the next call begins after this moment
                if count >= limit and document["finished_at"] != last:
                    break
                last, count = document["finished_at"], count + 1
                jobs += [] if job is None else [job]
        if left := self.add(jobs).left:
            self._failed += 1
            if self._failed < TRIES:
                return True
            # a damaged sum does not stop the others; its jobs are tried again before they are deleted
            log.warning("not_summed", jobs=len(left))
        self._failed = 0
        if count:
            self._advance(last + _MOMENT)
        return count >= limit

    def _adopted_until(self) -> datetime:
        until = (self._counters.find_one({"_id": _ADOPTED}) or {}).get("until")
        return until if isinstance(until, datetime) else NO_TIME

    @state_change("run_days.advance")
    def _advance(self, until: datetime) -> None:
        self._counters.update_one({"_id": _ADOPTED}, {"$max": {"until": until}}, upsert=True)
