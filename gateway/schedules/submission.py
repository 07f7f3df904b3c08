"""Makes exactly one scheduled job or one schedule from a request for later, even if the request is repeated.

Such requests are few and may be years old, so MongoDB's unique keys alone decide, without Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple

from attrs import define

from gateway import errors
from gateway.clock import Clock, to_iso, utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.admission import Admission
from gateway.jobs.dedupe import fingerprint
from gateway.jobs.job import Job, JobStatus, new_job_id
from gateway.jobs.store import JobStore
from gateway.jobs.submission import RequestedCrawl
from gateway.projects.catalog import WorkCheck, unpinned
from gateway.schedules.edits import ScheduleChanges, check_ahead, when_identity
from gateway.schedules.next_run import check_timing, first
from gateway.schedules.schedule import CatchUp, Overlap, Schedule, Timing
from gateway.schedules.store import ScheduleStore
from gateway.stores.mongo import mongo_errors

#: How often two requests may replace each other; more often would mean that something else is wrong.
_MAX_ROUNDS = 20


class When(NamedTuple):
    """When to run: once at `schedule_at`, repeatedly by `interval`, or by `interval` but not before `schedule_at`."""

    schedule_at: datetime | None = None
    interval: str | None = None
    timezone: str = "UTC"
    jitter: float | None = None
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONE
    ends_at: datetime | None = None
    max_runs: int | None = None
    name: str | None = None

    def timing(self, now: datetime) -> Timing | None:
        """The timing of a schedule; `None` for a single run."""
        if self.interval is None:
            return None
        return Timing(
            interval=spelled(self.interval),
            timezone=self.timezone,
            starts_at=self.schedule_at or now,
            ends_at=self.ends_at,
            jitter=self.jitter,
        )


class ScheduleReceipt(NamedTuple):
    """The answer to the request: a schedule, or a job with a start time."""

    found: Schedule | Job
    #: Whether it existed before this request.
    cached: bool

    @property
    def next_run(self) -> datetime | None:
        if isinstance(self.found, Schedule):
            return self.found.next_run
        return self.found.not_before if self.found.status is JobStatus.SCHEDULED else None


@define(eq=False, repr=False, slots=False, kw_only=True)
class ScheduleSubmission:
    _jobs: JobStore
    _schedules: ScheduleStore
    _changes: ScheduleChanges
    _check: WorkCheck
    _admission: Admission
    _clock: Clock = utc_now

    def submit(self, order: RequestedCrawl, when: When) -> ScheduleReceipt:
        """Find or make the job or schedule that answers the order. Raises `InvalidRequestError`,
        `ForbiddenAddressError`, `IdempotencyConflictError`, `UnavailableError`; and `TooManyError`, unless an
        existing job or schedule answers it.
        """
        order, pinned, identity = self._identify(order, when)
        with mongo_errors():
            for _ in range(_MAX_ROUNDS):
                if known := self._known(order, when, identity):
                    return known
                self._check_new(pinned, when)
                try:
                    with self._room(order.user_id, when):
                        if order.spec.ignore_cache:
                            # only now, when a new job or schedule is sure to follow
                            self._store(when).overtake(identity)
                        return ScheduleReceipt(self._insert(order, when, identity), cached=False)
                except errors.IdempotencyConflictError:
                    if self._find_idempotent(order, identity) is None:
                        raise
                except errors.LiveTwinError:
                    # another request was quicker, or the other job or schedule has just ended
                    continue
        raise errors.ConflictError("the same crawl is being scheduled and ended over and over; ask again")

    def look(self, order: RequestedCrawl, when: When) -> ScheduleReceipt | None:
        """The existing job or schedule that would answer the order now. Nothing is written. Raises what `submit`
        raises before it looks for one.
        """
        order, _, identity = self._identify(order, when)
        with mongo_errors():
            twin = self._find_twin(order, when, identity)
        return ScheduleReceipt(twin, cached=True) if twin else None

    def time_checks(self, when: When) -> Iterator[Callable[[], None]]:
        """One check for each time of a new job or schedule."""
        now = self._clock()
        if when.schedule_at is not None:
            yield partial(check_ahead, when.schedule_at, now)
        if timing := when.timing(now):
            yield partial(check_timing, timing, now)

    def require_room(self, user_id: str, when: When) -> None:
        """Raises `UserQuotaError` if no further job or schedule would be admitted."""
        admission = self._admission
        require = admission.require_room_for_schedule if when.interval else admission.require_room_for_later
        require(user_id)

    def _identify(self, order: RequestedCrawl, when: When) -> tuple[RequestedCrawl, CrawlSpec, str]:
        """The checked order, its spec with the version that is the latest now, and its fingerprint."""
        self._check.addresses(order.spec, order.crawl.webhooks)
        pinned = self._check.pin(order.spec)
        asked = unpinned(order.spec, pinned)
        # the version is not pinned, so that a deployment before the start time does not make this another request
        identity = fingerprint(order.user_id, asked, when=_identity(when))
        return order.with_spec(asked if when.interval else pinned), pinned, identity

    # --- existing jobs and schedules

    def _known(self, order: RequestedCrawl, when: When, identity: str) -> ScheduleReceipt | None:
        if known := self._find_idempotent(order, identity):
            with suppress(errors.ScheduleEndedError, errors.ScheduleNotFoundError):
                known = self._join(known, order.webhook_url)
            return ScheduleReceipt(known, cached=True)
        twin = self._find_twin(order, when, identity)
        if twin is None:
            return None
        try:
            return ScheduleReceipt(self._join(twin, order.webhook_url), cached=True)
        except (errors.ScheduleEndedError, errors.ScheduleNotFoundError):
            # it has just ended or was deleted, so it does not answer the request
            return None

    def _find_twin(self, order: RequestedCrawl, when: When, identity: str) -> Schedule | Job | None:
        return None if order.spec.ignore_cache else self._store(when).find_live(identity)

    def _store(self, when: When) -> ScheduleStore | JobStore:
        return self._schedules if when.interval else self._jobs

    def _find_idempotent(self, order: RequestedCrawl, identity: str) -> Schedule | Job | None:
        key = order.by.unique_idempotency_key
        if key is None:
            return None
        known = self._schedules.find_idempotent(key) or self._jobs.find_idempotent(key)
        if known is not None and known.fingerprint != identity:
            raise errors.IdempotencyConflictError("Idempotency-Key: it was used before, for another request")
        return known

    def _join(self, twin: Schedule | Job, webhook_url: str | None) -> Schedule | Job:
        if webhook_url is None:
            return twin
        if isinstance(twin, Schedule):
            return self._changes.add_webhook(twin.id, webhook_url)
        self._jobs.add_webhook(twin.id, webhook_url)
        return twin

    # --- new jobs and schedules

    def _check_new(self, pinned: CrawlSpec, when: When) -> None:
        for check in self.time_checks(when):
            check()
        self._check.means(pinned)

    def _insert(self, order: RequestedCrawl, when: When, identity: str) -> Schedule | Job:
        now = self._clock()
        timing = when.timing(now)
        if timing is None:
            job = order.to_job(identity, now, status=JobStatus.SCHEDULED, not_before=when.schedule_at)
            self._jobs.insert(job)
            return job
        schedule = _schedule(order, when, timing, identity, now)
        self._schedules.insert(schedule)
        return schedule

    def _room(self, user_id: str, when: When) -> AbstractContextManager[None]:
        """A place for the new job or schedule. Raises `UserQuotaError`."""
        room = self._admission.room_for_schedule if when.interval else self._admission.room_for_later
        return room(user_id)


def spelled(interval: str) -> str:
    """The stored form of an interval, without additional spaces."""
    return " ".join(interval.split())


def _identity(when: When) -> dict[str, str]:
    timing = when.timing(when.schedule_at or utc_now())
    if timing is not None:
        return when_identity(timing, when.schedule_at)
    return {"schedule_at": to_iso(when.schedule_at)} if when.schedule_at else {}


def _schedule(order: RequestedCrawl, when: When, timing: Timing, identity: str, now: datetime) -> Schedule:
    schedule_id = new_job_id()
    coming = first(schedule_id, timing, now)
    if coming is None:
        raise errors.InvalidRequestError("interval", "there is no run to come")
    return Schedule(
        id=schedule_id,
        user_id=order.user_id,
        name=when.name,
        # each run must find new pages, not those that the previous run has left in the HTTP cache
        crawl=order.crawl.with_spec(order.spec.model_copy(update={"ignore_cache": True})),
        timing=timing,
        overlap=when.overlap,
        catch_up=when.catch_up,
        max_runs=when.max_runs,
        next_at=coming.at,
        next_run=coming.due,
        fingerprint=identity,
        live_key=identity,
        idempotency_key=order.by.unique_idempotency_key,
        budget_key=order.by.budget_key,
        created_at=now,
        updated_at=now,
    )
