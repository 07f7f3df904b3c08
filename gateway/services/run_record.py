"""Runs of sites by their id."""

from __future__ import annotations

from typing import NamedTuple

from gateway.domain.errors import JobNotFoundError, RunNotFoundError, SiteNotFoundError
from gateway.domain.job import Job
from gateway.domain.run import job_id_of, run_id_of
from gateway.storage.client import truth_store_errors
from gateway.storage.jobs import JobStore
from gateway.storage.sites import SiteStore


class Run(NamedTuple):
    """A run of a site."""

    id: str
    job: Job
    #: The site's running number; `None` once the site is gone.
    site_number: int | None


class RunRecords:
    def __init__(self, jobs: JobStore, sites: SiteStore) -> None:
        self._jobs = jobs
        self._sites = sites

    def find(self, run_id: str) -> Run:
        """Raises `RunNotFoundError`, also for a job that was not asked for as the prefix says; `UnavailableError`."""
        with truth_store_errors():
            try:
                job = self._jobs.get(job_id_of(run_id))
            except JobNotFoundError:
                raise RunNotFoundError(run_id) from None
            if run_id_of(job) != run_id:
                raise RunNotFoundError(run_id)
            return Run(run_id, job, self._site_number(job))

    def _site_number(self, job: Job) -> int | None:
        if job.target is not None:
            return job.target.website_id
        try:
            return self._sites.get(job.spec.site or "").number
        except SiteNotFoundError:
            return None
