"""Makes exactly one job from a request, even if a process dies on the way or Redis loses its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self, TypeVar

import structlog
from attrs import define
from pymongo.errors import PyMongoError

from gateway import errors
from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, CrawlSpec
from gateway.jobs.admission import Admission
from gateway.jobs.dedupe import Dedupe, Entry, fingerprint
from gateway.jobs.job import GOOD_STATUSES, CrawlOrder, Job, Requester, new_job_id
from gateway.jobs.messages import ENQUEUE_CRAWL, Waker
from gateway.jobs.store import JobStore
from gateway.projects.catalog import WorkCheck
from gateway.schedules.store import ScheduleStore
from gateway.stores.mongo import mongo_errors
from gateway.stores.redis import dedupe_key
from gateway.traced import traced

log = structlog.get_logger()
Result = TypeVar("Result")

#: How often the insertion is tried while other requests keep replacing the job. More means that something is wrong.
_MAX_ROUNDS = 20
#: The event loop itself checks up to this many start URLs, in a few milliseconds. A thousand would delay other
#: requests.
_FEW_URLS = 50


class RequestedCrawl(NamedTuple):
    """A checked request for one crawl."""

    by: Requester
    crawl: CrawlOrder
    #: Whether the request named no version, so that the latest version at that moment was put into `spec`.
    pinned: bool = False

    @property
    def user_id(self) -> str:
        return self.by.user_id

    @property
    def spec(self) -> CrawlSpec:
        return self.crawl.spec

    @property
    def webhook_url(self) -> str | None:
        return self.crawl.webhooks[0] if self.crawl.webhooks else None

    def with_request(self, idempotency_key: str | None, correlation_id: str | None) -> Self:
        by = self.by._replace(idempotency_key=idempotency_key, correlation_id=correlation_id)
        return self._replace(by=by)

    def with_spec(self, spec: CrawlSpec) -> Self:
        return self._replace(crawl=self.crawl.with_spec(spec))

    def to_job(self, identity: str, now: datetime, **origin: Any) -> Job:
        """`identity` is the request's fingerprint."""
        return Job.new(
            self.user_id,
            self.crawl,
            identity,
            now,
            live_key=identity,
            **self.by.job_fields(),
            **origin,
        )


class Receipt(NamedTuple):
    """The job that answers a request."""

    job_id: str
    #: Whether the job existed before this request.
    cached: bool
    cached_at: datetime | None = None


@define(eq=False, repr=False, slots=False, kw_only=True)
class Submission:
    """Deduplicated submission: the key in Redis answers repeated requests fast; MongoDB's unique `live_key`
    decides.
    """

    _jobs: JobStore
    _schedules: ScheduleStore
    _dedupe: Dedupe
    _check: WorkCheck
    _waker: Waker
    _admission: Admission
    #: Passes the request's context, such as its id for the log, on to its threads.
    _executor: Executor
    _clock: Clock = utc_now

    @traced("submit")
    async def submit(self, order: RequestedCrawl) -> Receipt:
        """Find or make the job that answers the order. Raises `InvalidRequestError`, `ForbiddenAddressError`,
        `IdempotencyConflictError`, `UnavailableError`; and `TooManyError`, unless an existing job answers it.
        """
        order, identity, key = await self._identify(order)
        mine = Entry(new_job_id(), int(self._clock().timestamp() * 1000), confirmed=False)
        if order.by.idempotency_key and (known := await self._run(self._find_idempotent, order, identity)):
            return known
        if order.spec.ignore_cache:
            return await self._submit_fresh(order, identity, key, mine)
        present = await self._dedupe.claim(key, mine)
        if present is not None and present.confirmed:
            if order.webhook_url:
                await self._run(self._jobs.add_webhook, present.job_id, order.webhook_url)
            return Receipt(present.job_id, cached=True, cached_at=_moment(present))
        claimed = present or mine
        receipt = await self._materialise_claimed(order, identity, key, claimed, helping=present is not None)
        await self._confirm(key, claimed, receipt.job_id)
        if present is not None:
            return receipt._replace(cached=True, cached_at=_moment(present))
        # the job is new even if another request, which helped, has inserted it
        return Receipt(mine.job_id, cached=False) if receipt.job_id == mine.job_id else receipt

    async def look(self, order: RequestedCrawl) -> Receipt | None:
        """The existing job that would answer the order now; `None` if a new job would be made. Claims and writes
        nothing. Raises what `submit` raises for an order that is not valid.
        """
        order, identity, key = await self._identify(order)
        if order.spec.ignore_cache:
            return None
        present = await self._dedupe.peek(key)
        claimed = Receipt(present.job_id, cached=True, cached_at=_moment(present)) if present else None
        if present is not None and present.confirmed:
            return claimed
        return await self._run(self._find_twin, identity) or claimed

    async def _identify(self, order: RequestedCrawl) -> tuple[RequestedCrawl, str, str]:
        """The checked order with its exact version, its fingerprint, and its key in Redis."""
        compute = self._inline if len(order.spec.start_urls) <= _FEW_URLS else self._run
        await compute(self._check.addresses, order.spec, order.crawl.webhooks)
        order = await self._pin(order)
        identity = await compute(fingerprint, order.user_id, order.spec)
        return order, identity, dedupe_key(order.user_id, order.spec.spider, identity)

    async def _pin(self, order: RequestedCrawl) -> RequestedCrawl:
        if order.spec.project == DEFAULT_PROJECT:
            # for this project, `pin` only checks the spec, without a database, so it needs no thread
            self._check.pin(order.spec)
            return order
        spec = await self._run(self._check.pin, order.spec)
        return order.with_spec(spec)._replace(pinned=order.spec.version is None)

    async def _submit_fresh(self, order: RequestedCrawl, identity: str, key: str, mine: Entry) -> Receipt:
        receipt = await self._run(self._materialise, order, identity, mine)
        if not receipt.cached:
            await self._dedupe.overwrite(key, mine._replace(confirmed=True))
        return receipt

    async def _materialise_claimed(
        self, order: RequestedCrawl, identity: str, key: str, claimed: Entry, *, helping: bool
    ) -> Receipt:
        """Insert the document that the key names. The request that claimed the key may have died before doing so."""
        try:
            return await self._run(self._materialise, order, identity, claimed)
        except errors.DiscoveryBotError as error:
            # the key must not answer the next, corrected request. But a request that has not claimed the key leaves
            # it when there is no room: the request that claimed it may still be admitted
            if not (helping and isinstance(error, errors.TooManyError)):
                await self._dedupe.withdraw(key, claimed)
            raise

    async def _confirm(self, key: str, claimed: Entry, job_id: str) -> None:
        await self._dedupe.confirm(key, claimed, job_id)
        if job_id == claimed.job_id:
            return
        # another job has answered. If that job failed before the key named it, nobody else removes the key
        if not await self._may_answer(job_id):
            await self._dedupe.withdraw(key, Entry(job_id, claimed.at_ms, confirmed=True))

    async def _may_answer(self, job_id: str) -> bool:
        """Whether this job may answer a repeated request."""
        try:
            job = await self._run(self._jobs.get, job_id)
        except (errors.JobNotFoundError, errors.UnavailableError, PyMongoError):
            return False
        return job.status in GOOD_STATUSES or not (job.is_final or job.cancel_requested_at)

    def _materialise(self, order: RequestedCrawl, identity: str, entry: Entry) -> Receipt:
        """Find or insert the job for this request: the job that `entry` names, or the job with the live key."""
        with mongo_errors():
            self._check.means(order.spec)
            for _ in range(_MAX_ROUNDS):
                if known := self._find_idempotent(order, identity):
                    return known
                receipt = self._insert(order, identity, entry)
                if receipt is not None:
                    return receipt
        raise errors.ConflictError("the same crawl keeps starting and ending; ask again")

    def _insert(self, order: RequestedCrawl, identity: str, entry: Entry) -> Receipt | None:
        try:
            with self._admission.room(order.user_id):
                job = order.to_job(identity, self._clock(), id=entry.job_id)
                self._jobs.insert(job, overtaking=order.spec.ignore_cache)
        except errors.TooManyError:
            if (known := self._find_present(order, identity, entry)) is None:
                raise
            return known
        except errors.JobExistsError:
            if self._jobs.get(entry.job_id).fingerprint != identity:
                # the entry names the job of another request, which must never answer this one
                return self._insert(order, identity, entry._replace(job_id=new_job_id()))
            return self._joined(order, entry.job_id, _moment(entry))
        except errors.LiveTwinError:
            # `None` if the other job has just ended, or if its live key is to be taken in the next round
            return self._join(order, identity)
        except errors.IdempotencyConflictError:
            if (known := self._find_idempotent(order, identity)) is None:
                raise
            return known
        return self._accepted(entry.job_id)

    def _accepted(self, job_id: str) -> Receipt:
        self._waker.wake(ENQUEUE_CRAWL, job_id)
        log.info("crawl_accepted", job_id=job_id, task_id=job_id, status="pending")
        return Receipt(job_id, cached=False)

    def _find_present(self, order: RequestedCrawl, identity: str, entry: Entry) -> Receipt | None:
        """The existing job that answers the request although no new job is admitted; `None` if there is none."""
        with suppress(errors.JobNotFoundError):
            if self._jobs.get(entry.job_id).fingerprint == identity:
                return self._joined(order, entry.job_id, _moment(entry))
        return self._join(order, identity)

    def _join(self, order: RequestedCrawl, identity: str) -> Receipt | None:
        twin = None if order.spec.ignore_cache else self._jobs.find_live(identity)
        return self._joined(order, twin.id, twin.created_at) if twin else None

    def _find_twin(self, identity: str) -> Receipt | None:
        with mongo_errors():
            twin = self._jobs.find_live(identity)
        return Receipt(twin.id, cached=True, cached_at=twin.created_at) if twin else None

    def _joined(self, order: RequestedCrawl, job_id: str, since: datetime) -> Receipt:
        if order.webhook_url:
            self._jobs.add_webhook(job_id, order.webhook_url)
        return Receipt(job_id, cached=True, cached_at=since)

    def _find_idempotent(self, order: RequestedCrawl, identity: str) -> Receipt | None:
        key = order.by.unique_idempotency_key
        if key is None:
            return None
        with mongo_errors():
            job = self._jobs.find_idempotent(key)
            other = job is None and self._schedules.find_idempotent(key) is not None
            if other or (job and job.fingerprint != identity and not _was_asked_by(job, order)):
                raise errors.IdempotencyConflictError("Idempotency-Key: it was used before, for another request")
            return self._joined(order, job.id, job.created_at) if job else None

    async def _inline(self, function: Callable[..., Result], *args: Any) -> Result:
        return function(*args)

    async def _run(self, function: Callable[..., Result], *args: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _was_asked_by(job: Job, order: RequestedCrawl) -> bool:
    """Whether the order repeats the job's request, apart from a version that was deployed in between."""
    version = job.spec.version if order.pinned else order.spec.version
    then = order.spec.model_copy(update={"version": version, "replaced": job.spec.replaced})
    return job.fingerprint == fingerprint(order.user_id, then)


def _moment(entry: Entry) -> datetime:
    return datetime.fromtimestamp(entry.at_ms / 1000, UTC)
