"""What an id below `/jobs` names: a job; or a schedule, for which its present or latest run stands."""

from __future__ import annotations

from typing import NamedTuple

from gateway.domain.errors import JobNotFoundError, ScheduleNotFoundError
from gateway.domain.job import Job
from gateway.domain.schedule import Schedule
from gateway.storage.client import truth_store_errors
from gateway.storage.job_queries import JobQueries
from gateway.storage.jobs import JobStore
from gateway.storage.schedules import ScheduleStore


class RunOf(NamedTuple):
    schedule: Schedule
    #: `None`: it has not run yet.
    job: Job | None


class JobOrSchedule:
    def __init__(self, jobs: JobStore, schedules: ScheduleStore, queries: JobQueries) -> None:
        self._jobs = jobs
        self._schedules = schedules
        self._queries = queries

    def find(self, identity: str, run: str | None = None) -> Job | RunOf:
        """Of a schedule's runs that one, if it is one of its own, else the latest.

        Raises `JobNotFoundError`, `UnavailableError`.
        """
        with truth_store_errors():
            try:
                return self._jobs.get(identity)
            except JobNotFoundError:
                schedule = self._schedule(identity)
            if schedule is None:
                raise JobNotFoundError(identity)
            asked = self._run(identity, run) if run else None
            return RunOf(schedule, asked or self._queries.latest_run(identity))

    def is_schedule(self, identity: str) -> bool:
        with truth_store_errors():
            return self._schedule(identity) is not None

    def latest_run(self, schedule_id: str) -> Job | None:
        with truth_store_errors():
            return self._queries.latest_run(schedule_id)

    def _schedule(self, identity: str) -> Schedule | None:
        try:
            return self._schedules.get(identity)
        except ScheduleNotFoundError:
            return None

    def _run(self, schedule_id: str, run: str) -> Job | None:
        try:
            job = self._jobs.get(run)
        except JobNotFoundError:
            return None
        return job if job.schedule_id == schedule_id else None
