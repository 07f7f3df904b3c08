"""Runs an ended job again: makes a new job whose `retry_of` is the old one."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import structlog
from attrs import define
from pymongo.database import Database
from redis import RedisError

from gateway import errors
from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.jobs.admission import Admission
from gateway.jobs.dedupe import DedupeRelease
from gateway.jobs.job import Job, Trigger, budget_of
from gateway.jobs.messages import Waker
from gateway.jobs.store import JobStore
from gateway.projects.catalog import WorkCheck
from gateway.sites.store import SiteStore
from gateway.stores.mongo import Document, mongo_errors
from gateway.stores.redis import dedupe_key

log = structlog.get_logger()


@define(eq=False, repr=False, slots=False, kw_only=True)
class Resubmission:
    """Makes new jobs that run ended jobs again."""

    _jobs: JobStore
    _sites: SiteStore
    _dedupe: DedupeRelease
    _check: WorkCheck
    _waker: Waker
    _admission: Admission
    _clock: Clock = utc_now

    def run_again(
        self, job_id: str, correlation_id: str | None = None, *, once: bool = False, budget_key: str | None = None
    ) -> Job:
        """Run the job again as a new job, with the same spider in the same version. The new job uses the budget of
        `budget_key`. With `once`, a job is run again only once, so that a call can be repeated after an interruption.

        Raises `JobNotFoundError`; `ConflictError` while the old job or an identical one is live, or if the version,
        or a browser that the job needs, is gone; `SiteDisabledError` for a run of a disabled site; `TooManyError`;
        and `RunAgainError` if the job was run again with `once` before.
        """
        with mongo_errors():
            old = self._jobs.get(job_id)
            if not old.is_final:
                raise errors.ConflictError(f"the job has not ended yet ({old.status})")
            self._require_means(old)
            origin = {"id": _successor(old.id)} if once else {}
            new = _anew(old, self._clock(), correlation_id, budget=budget_of(budget_key), **origin)
            try:
                with self._admission.room(new.user_id):
                    self._jobs.insert(new)
            except errors.JobExistsError:
                raise errors.RunAgainError(new.id) from None
            except errors.LiveTwinError:
                raise errors.ConflictError("the same crawl is already under way") from None
            self._forget(old)
            self._waker.wake_job(new)
            return new

    def _require_means(self, old: Job) -> None:
        # a job whose site was deleted can still run, because the job's spec is complete
        site = self._sites.named([old.spec.site]).get(old.spec.site) if old.spec.site else None
        if site and not site.enabled:
            raise errors.SiteDisabledError(f"site {site.name!r} is disabled")
        try:
            self._check.still_means(old.spec)
        except errors.InvalidRequestError as error:
            raise errors.ConflictError(f"it cannot be run again: {error.message}", detail=error.detail) from error

    def _forget(self, old: Job) -> None:
        """Release the old job's dedupe key in Redis, so that a repeated request finds the new job, by its
        live key.
        """
        try:
            self._dedupe.release(dedupe_key(old.user_id, old.spec.spider, old.fingerprint), old.id)
        except RedisError as error:
            log.warning("old_job_still_answers", job_id=old.id, error=str(error))


#: The UUID namespace for the ids of new jobs made with `once`.
_NAMESPACE = uuid.UUID("6e0f0d6b-5a55-4a39-9a4e-8f0a3d2b7c15")


def _successor(job_id: str) -> str:
    """The id of the new job that runs this one again `once`. It is always the same, so there is at most one."""
    return uuid.uuid5(_NAMESPACE, job_id).hex


def _anew(old: Job, now: datetime, correlation_id: str | None, **origin: Any) -> Job:
    return Job.new(
        old.user_id,
        old.order,
        old.fingerprint,
        now,
        live_key=old.fingerprint,
        retry_of=old.id,
        correlation_id=correlation_id,
        schedule_id=old.schedule_id,
        # somebody asked for this run, even if a schedule made the old one
        trigger=old.trigger and Trigger.MANUAL,
        target=old.target,
        exclusive=old.exclusive,
        **origin,
    )


class DeadLetterStore:
    """Dead letters: jobs that have no retries left and wait for an operator. `JobQueries` lists them."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._clock = clock

    def count(self) -> int:
        return self._jobs.count_documents({"dead": True})

    @state_change("dead_letters.dismiss")
    def dismiss(self, job_id: str) -> bool:
        """Remove the job from the dead letters; it keeps its outcome. Returns whether it was a dead letter."""
        seen = {"$set": {"dead": False, "updated_at": self._clock()}}
        return self._jobs.update_one({"_id": job_id, "dead": True}, seen).modified_count == 1


@define(eq=False, repr=False, slots=False, kw_only=True)
class DeadLetters:
    """What an operator can do with a dead letter: run the job again, or dismiss it."""

    _jobs: JobStore
    _letters: DeadLetterStore
    _resubmission: Resubmission

    def requeue(
        self, job_id: str, correlation_id: str | None = None, *, once: bool = False, budget_key: str | None = None
    ) -> Job:
        """Run the job again, and return the new job. The old job is no longer a dead letter. With `once`, a repeated
        call returns the same new job. `budget_key` is as in `run_again`.

        Raises `DeadLetterNotFoundError`, and what `run_again` raises.
        """
        with mongo_errors():
            self._require(job_id)
            # make the new job first: to run a dead letter twice is harmless, to lose it is not
            try:
                new = self._resubmission.run_again(job_id, correlation_id, once=once, budget_key=budget_key)
            except errors.RunAgainError as error:
                # an earlier call has run it again, and may have died before it dismissed the dead letter
                new = self._jobs.get(error.successor)
            self._letters.dismiss(job_id)
            return new

    def dismiss(self, job_id: str) -> None:
        """Remove the job from the dead letters. Raises `DeadLetterNotFoundError`."""
        with mongo_errors():
            if not self._letters.dismiss(job_id):
                raise errors.DeadLetterNotFoundError(job_id)

    def _require(self, job_id: str) -> None:
        try:
            letter = self._jobs.get(job_id)
        except errors.JobNotFoundError:
            raise errors.DeadLetterNotFoundError(job_id) from None
        if not letter.dead:
            raise errors.DeadLetterNotFoundError(job_id)
