"""Runs an ended job again, as a new job that names the old one."""

from __future__ import annotations

from datetime import datetime

import structlog
from redis import RedisError

from gateway.domain import redis_keys
from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import ConflictError, InvalidRequestError, LiveTwinError, SiteDisabledError
from gateway.domain.job import Job, new_job_id
from gateway.domain.slot import Trigger
from gateway.redis.dedupe import DedupeRelease
from gateway.services.admission import Admission
from gateway.services.rendering import Rendering
from gateway.services.spider_catalog import SpiderCatalog
from gateway.services.waker import Waker
from gateway.storage.client import truth_store_errors
from gateway.storage.jobs import JobStore
from gateway.storage.sites import SiteStore

log = structlog.get_logger()


class Resubmission:
    def __init__(
        self,
        *,
        jobs: JobStore,
        sites: SiteStore,
        dedupe: DedupeRelease,
        catalog: SpiderCatalog,
        rendering: Rendering,
        waker: Waker,
        admission: Admission,
        clock: Clock = utc_now,
    ) -> None:
        self._jobs = jobs
        self._sites = sites
        self._catalog = catalog
        self._rendering = rendering
        self._dedupe = dedupe
        self._waker = waker
        self._admission = admission
        self._clock = clock

    def run_again(self, job_id: str, correlation_id: str | None = None) -> Job:
        """The new job: the same spider of the same version. Raises `JobNotFoundError`, and `ConflictError` while the
        old one or a twin is alive, or when that version or a browser that it needs is no longer there;
        `SiteDisabledError` for a run of a site that is not to be visited; `TooManyError`.
        """
        with truth_store_errors():
            old = self._jobs.get(job_id)
            if not old.is_final:
                raise ConflictError(f"the job has not ended yet ({old.status})")
            self._require_means(old)
            new = _anew(old, self._clock(), correlation_id)
            try:
                with self._admission.room(new.user_id):
                    self._jobs.insert(new)
            except LiveTwinError:
                raise ConflictError("the same crawl is already under way") from None
            self._forget(old)
            self._waker.wake_job(new)
            return new

    def _require_means(self, old: Job) -> None:
        # one whose site is gone has all that it needs
        site = self._sites.named([old.spec.site]).get(old.spec.site) if old.spec.site else None
        if site and not site.enabled:
            raise SiteDisabledError(f"site {site.name!r} is disabled")
        try:
            self._catalog.require(old.spec)
            self._rendering.check(old.spec)
        except InvalidRequestError as error:
            raise ConflictError(f"it cannot be run again: {error.message}", detail=error.detail) from error

    def _forget(self, old: Job) -> None:
        """A repeated request shall be answered with the new job, which its live key leads to."""
        try:
            self._dedupe.release(redis_keys.dedupe(old.user_id, old.spec.spider, old.fingerprint), old.id)
        except RedisError as error:
            log.warning("old_job_still_answers", job_id=old.id, error=str(error))


def _anew(old: Job, now: datetime, correlation_id: str | None) -> Job:
    return Job(
        id=new_job_id(),
        user_id=old.user_id,
        spec=old.spec,
        fingerprint=old.fingerprint,
        live_key=old.fingerprint,
        priority=old.priority,
        tags=old.tags,
        webhooks=old.webhooks,
        max_retries=old.max_retries,
        created_at=now,
        updated_at=now,
        not_before=now,
        retry_of=old.id,
        correlation_id=correlation_id,
        render=old.render,
        schedule_id=old.schedule_id,
        # somebody asks for it now, whoever has asked for the old one
        trigger=old.trigger and Trigger.MANUAL,
        target=old.target,
        exclusive=old.exclusive,
    )
