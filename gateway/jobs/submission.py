"""Makes exactly one job from a request, even if a process dies on the way or Redis loses its keys."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self, TypeVar

import redis
import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway import errors
from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, CrawlSpec
from gateway.jobs.admission import Admission
from gateway.jobs.dedupe import Dedupe, Entry, fingerprint
from gateway.jobs.job import GOOD_STATUSES, CrawlOrder, Job, new_job_id
from gateway.jobs.messages import ENQUEUE_CRAWL, Waker
from gateway.jobs.store import JobStore
from gateway.projects.catalog import WorkCheck
from gateway.schedules.store import ScheduleStore
from gateway.stores.mongo import mongo_errors
from gateway.stores.redis import dedupe_key

log = structlog.get_logger()
Result = TypeVar("Result")

#: Rounds in which two requests may replace each other; more rounds mean that something else is wrong.
_MAX_ROUNDS = 20
#: Seconds to leave Redis alone after it has failed.
_REDIS_REST = 1.0
#: The event loop itself checks up to this many start URLs, in a few milliseconds. A thousand would delay all others.
_FEW_URLS = 50
#: Batches of new jobs that are inserted at once; and the seconds that one waits if those before it take long.
_BATCHES = 1
_BATCH_WAITS = 0.05
#: Seconds for which jobs are gathered while requests come together: a batch costs several times as much as a job.
_GATHERED = 0.002


class Order(NamedTuple):
    """A checked request for one immediate crawl."""

    user_id: str
    crawl: CrawlOrder
    idempotency_key: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    #: The request named no version: `spec` has the one that was the latest at that moment.
    pinned: bool = False

    @property
    def spec(self) -> CrawlSpec:
        return self.crawl.spec

    @property
    def webhook_url(self) -> str | None:
        return self.crawl.webhooks[0] if self.crawl.webhooks else None

    def with_spec(self, spec: CrawlSpec) -> Self:
        return self._replace(crawl=self.crawl.with_spec(spec))

    @property
    def unique_idempotency_key(self) -> str | None:
        """It contains the user, because two users may choose the same key."""
        return f"{self.user_id}:{self.idempotency_key}" if self.idempotency_key else None

    def to_job(self, identity: str, now: datetime, **origin: Any) -> Job:
        """`identity` is the request's fingerprint."""
        return Job.new(
            self.user_id,
            self.crawl,
            identity,
            now,
            live_key=identity,
            idempotency_key=self.unique_idempotency_key,
            correlation_id=self.correlation_id,
            traceparent=self.traceparent,
            **origin,
        )


class Receipt(NamedTuple):
    job_id: str
    #: The job existed before this request.
    cached: bool
    cached_at: datetime | None = None


@define(eq=False, repr=False, slots=False, kw_only=True)
class Submission:
    """Deduplicated submission: the Redis key answers repeats, MongoDB's unique `live_key` decides."""

    _jobs: JobStore
    _schedules: ScheduleStore
    _dedupe: Dedupe
    _check: WorkCheck
    _waker: Waker
    _admission: Admission
    _executor: Executor
    _clock: Clock = utc_now
    _batches: Batches = field(init=False)
    _redis_rests_until: float = field(init=False, default=0.0)

    def __attrs_post_init__(self) -> None:
        self._batches = Batches(self._jobs, self._check, self._admission, self._executor, self._clock)

    async def submit(self, order: Order) -> Receipt:
        """Raises `InvalidRequestError`, `ForbiddenAddressError`, `IdempotencyConflictError`, `UnavailableError`; and
        `TooManyError`, unless an existing job answers the request.
        """
        order, identity, key = await self._identify(order)
        mine = Entry(new_job_id(), int(self._clock().timestamp() * 1000), confirmed=False)
        if order.idempotency_key and (known := await self._run(self._find_idempotent, order, identity)):
            return known
        if order.spec.ignore_cache:
            return await self._submit_fresh(order, identity, key, mine)
        present = await self._claim(key, mine)
        if present is not None and present.confirmed:
            if order.webhook_url:
                await self._run(self._jobs.add_webhook, present.job_id, order.webhook_url)
            return Receipt(present.job_id, cached=True, cached_at=_moment(present))
        claimed = present or mine
        receipt = await self._materialise_claimed(order, identity, key, claimed, helping=present is not None)
        await self._confirm(key, claimed, receipt.job_id)
        if present is not None:
            return receipt._replace(cached=True, cached_at=_moment(present))
        # another request that helped may have been the one that inserted it: it is new all the same
        return Receipt(mine.job_id, cached=False) if receipt.job_id == mine.job_id else receipt

    async def look(self, order: Order) -> Receipt | None:
        """The existing job that would answer the order now; `None` if there would be a new one. Nothing is claimed or
        written. Raises what `submit` raises before it looks for a job.
        """
        order, identity, key = await self._identify(order)
        if order.spec.ignore_cache:
            return None
        present = await self._peek(key)
        claimed = Receipt(present.job_id, cached=True, cached_at=_moment(present)) if present else None
        if present is not None and present.confirmed:
            return claimed
        return await self._run(self._find_twin, identity) or claimed

    async def _identify(self, order: Order) -> tuple[Order, str, str]:
        """The checked order with its exact version, its fingerprint, and its key in Redis."""
        compute = self._inline if len(order.spec.start_urls) <= _FEW_URLS else self._run
        await compute(self._check.addresses, order.spec, order.crawl.webhooks)
        order = await self._pin(order)
        identity = await compute(fingerprint, order.user_id, order.spec)
        return order, identity, dedupe_key(order.user_id, order.spec.spider, identity)

    async def _pin(self, order: Order) -> Order:
        if order.spec.project == DEFAULT_PROJECT:
            # there is nothing to look up, so no thread is needed, and nothing changes
            self._check.pin(order.spec)
            return order
        spec = await self._run(self._check.pin, order.spec)
        return order.with_spec(spec)._replace(pinned=order.spec.version is None)

    async def _submit_fresh(self, order: Order, identity: str, key: str, mine: Entry) -> Receipt:
        receipt = await self._run(self._materialise, order, identity, mine)
        if not receipt.cached:
            await self._try_redis(lambda: self._dedupe.overwrite(key, mine._replace(confirmed=True)))
        return receipt

    async def _materialise_claimed(
        self, order: Order, identity: str, key: str, claimed: Entry, *, helping: bool
    ) -> Receipt:
        """Insert the document that the key names. The request that claimed the key may have died before doing so."""
        try:
            # who helps will mostly find the document
            if not helping and not order.idempotency_key and await self._batches.insert(order, identity, claimed):
                return self._accepted(claimed.job_id)
            return await self._run(self._materialise, order, identity, claimed)
        except errors.DiscoveryBotError as error:
            # the key must not answer the next, corrected request; but its owner may have been admitted
            if not (helping and isinstance(error, errors.TooManyError)):
                await self._try_redis(lambda: self._dedupe.withdraw(key, claimed))
            raise

    async def _confirm(self, key: str, claimed: Entry, job_id: str) -> None:
        await self._try_redis(lambda: self._dedupe.confirm(key, claimed, job_id))
        if job_id == claimed.job_id:
            return
        # another job has won; if it failed before the key named it, nothing else would remove the key
        if not await self._may_answer(job_id):
            await self._try_redis(lambda: self._dedupe.withdraw(key, Entry(job_id, claimed.at_ms, confirmed=True)))

    async def _may_answer(self, job_id: str) -> bool:
        """Whether this job may answer a repeated request."""
        try:
            job = await self._run(self._jobs.get, job_id)
        except (errors.JobNotFoundError, errors.UnavailableError, PyMongoError):
            return False
        return job.status in GOOD_STATUSES or not (job.is_final or job.cancel_requested_at)

    def _materialise(self, order: Order, identity: str, entry: Entry) -> Receipt:
        """Find or insert the one job for this request: the job that `entry` names, or the one with the live key."""
        with mongo_errors():
            self._check.means(order.spec)
            for _ in range(_MAX_ROUNDS):
                if known := self._find_idempotent(order, identity):
                    return known
                receipt = self._insert(order, identity, entry)
                if receipt is not None:
                    return receipt
        raise errors.ConflictError("the same crawl is being started and ended over and over; ask again")

    def _insert(self, order: Order, identity: str, entry: Entry) -> Receipt | None:
        try:
            with self._admission.room(order.user_id):
                if order.spec.ignore_cache:
                    self._jobs.overtake(identity)
                self._jobs.insert(order.to_job(identity, self._clock(), id=entry.job_id))
        except errors.TooManyError:
            if (known := self._find_present(order, identity, entry)) is None:
                raise
            return known
        except errors.JobExistsError:
            return self._joined(order, entry.job_id, _moment(entry))
        except errors.LiveTwinError:
            # None: the other job has just ended, or must first give up its live key
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

    def _find_present(self, order: Order, identity: str, entry: Entry) -> Receipt | None:
        """An existing job that answers the request, although no further job is admitted."""
        with suppress(errors.JobNotFoundError):
            self._jobs.get(entry.job_id)
            return self._joined(order, entry.job_id, _moment(entry))
        return self._join(order, identity)

    def _join(self, order: Order, identity: str) -> Receipt | None:
        twin = None if order.spec.ignore_cache else self._jobs.find_live(identity)
        return self._joined(order, twin.id, twin.created_at) if twin else None

    def _find_twin(self, identity: str) -> Receipt | None:
        with mongo_errors():
            twin = self._jobs.find_live(identity)
        return Receipt(twin.id, cached=True, cached_at=twin.created_at) if twin else None

    def _joined(self, order: Order, job_id: str, since: datetime) -> Receipt:
        if order.webhook_url:
            self._jobs.add_webhook(job_id, order.webhook_url)
        return Receipt(job_id, cached=True, cached_at=since)

    def _find_idempotent(self, order: Order, identity: str) -> Receipt | None:
        key = order.unique_idempotency_key
        if key is None:
            return None
        with mongo_errors():
            job = self._jobs.find_idempotent(key)
            other = job is None and self._schedules.find_idempotent(key) is not None
            if other or (job and job.fingerprint != identity and not _was_asked_by(job, order)):
                raise errors.IdempotencyConflictError("Idempotency-Key: it was used before, for another request")
            return self._joined(order, job.id, job.created_at) if job else None

    async def _claim(self, key: str, mine: Entry) -> Entry | None:
        return await self._ask_redis(lambda: self._dedupe.claim(key, mine))

    async def _peek(self, key: str) -> Entry | None:
        return await self._ask_redis(lambda: self._dedupe.peek(key))

    async def _ask_redis(self, question: Callable[[], Awaitable[Entry | None]]) -> Entry | None:
        if time.monotonic() < self._redis_rests_until:
            return None
        try:
            return await question()
        except redis.RedisError as error:
            self._rest_redis(error)
            return None

    async def _try_redis(self, operation: Callable[[], Awaitable[None]]) -> None:
        if time.monotonic() < self._redis_rests_until:
            return
        try:
            await operation()
        except redis.RedisError as error:
            self._rest_redis(error)

    def _rest_redis(self, error: redis.RedisError) -> None:
        self._redis_rests_until = time.monotonic() + _REDIS_REST
        log.warning("dedupe_without_redis", error=str(error))

    async def _inline(self, function: Callable[..., Result], *args: Any) -> Result:
        return function(*args)

    async def _run(self, function: Callable[..., Result], *args: Any) -> Result:
        # the thread gets the request's context: its id, for the log
        call = functools.partial(contextvars.copy_context().run, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _was_asked_by(job: Job, order: Order) -> bool:
    """Whether it is the same request, repeated after the project was deployed again."""
    version = job.spec.version if order.pinned else order.spec.version
    then = order.spec.model_copy(update={"version": version, "replaced": job.spec.replaced})
    return job.fingerprint == fingerprint(order.user_id, then)


def _moment(entry: Entry) -> datetime:
    return datetime.fromtimestamp(entry.at_ms / 1000, UTC)


# --- inserts the jobs of simultaneous requests together: one call of a thread and one write serve all of them


class _Wanted(NamedTuple):
    """A job to insert. `inserted`: whether it is; if not, whoever asked finds out why."""

    order: Order
    identity: str
    entry: Entry
    inserted: asyncio.Future[bool]


@define(eq=False, repr=False, slots=False)
class Batches:
    """Every request waits until MongoDB has acknowledged its own job. A job that is refused, for whatever reason,
    keeps no other from being inserted; only if MongoDB is away do all jobs of a batch fail.
    """

    _jobs: JobStore
    _check: WorkCheck
    _admission: Admission
    _executor: Executor
    _clock: Clock
    #: Jobs for the next batch.
    _waiting: list[_Wanted] = field(init=False, factory=list)
    #: Batches that are being inserted.
    _under_way: int = field(init=False, default=0)
    #: The last batch had several jobs, so more jobs will come soon.
    _is_crowded: bool = field(init=False, default=False)

    async def insert(self, order: Order, identity: str, entry: Entry) -> bool:
        """Whether the job was inserted: if not, it has to be tried alone. Raises `UnavailableError`."""
        loop = asyncio.get_running_loop()
        wanted = _Wanted(order, identity, entry, loop.create_future())
        self._waiting.append(wanted)
        if len(self._waiting) == 1:
            self._plan()
        return await wanted.inserted

    def _plan(self) -> None:
        loop = asyncio.get_running_loop()
        if self._under_way >= _BATCHES:
            # batches that take long hold up the next one no longer than this
            loop.call_later(_BATCH_WAITS, self._begin)
        elif self._is_crowded:
            loop.call_later(_GATHERED, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        self._is_crowded = len(batch) > 1
        try:
            # in no request's context: it is for the users of all orders
            inserted = contextvars.Context().run(self._executor.submit, self._insert, batch)
        except errors.UnavailableError as error:
            _answer(batch, error)
            return
        self._under_way += 1
        # not `run_in_executor`: its own futures take longer than the rest of the hand-over
        inserted.add_done_callback(functools.partial(self._ended, asyncio.get_running_loop(), batch))

    def _ended(self, loop: asyncio.AbstractEventLoop, batch: Sequence[_Wanted], inserted: Future[set[int]]) -> None:
        # nobody waits any more if the gateway has stopped meanwhile
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._end, batch, inserted)

    def _end(self, batch: Sequence[_Wanted], inserted: Future[set[int]]) -> None:
        self._under_way -= 1
        if self._waiting:
            self._plan()
        # threads that are shut down cancel what they have not begun
        is_cancelled = inserted.cancelled()
        _answer(batch, asyncio.CancelledError() if is_cancelled else inserted.exception() or inserted.result())

    def _insert(self, batch: Sequence[_Wanted]) -> set[int]:
        """The positions of the jobs that were inserted. Raises `UnavailableError`."""
        try:
            with mongo_errors(), ExitStack() as places:
                return self._insert_admitted(batch, places)
        except errors.UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whoever is at fault gets the error when its job is tried alone
            log.debug("jobs_not_inserted_together", kind=type(error).__name__)
            return set()

    def _insert_admitted(self, batch: Sequence[_Wanted], places: ExitStack) -> set[int]:
        admitted: dict[int, tuple[Job, ExitStack]] = {}
        for index, (order, identity, entry, _) in enumerate(batch):
            place = places.enter_context(ExitStack())
            with suppress(errors.DiscoveryBotError):
                self._check.means(order.spec)
                place.enter_context(self._admission.room(order.user_id))
                admitted[index] = order.to_job(identity, self._clock(), id=entry.job_id), place
        refused = self._jobs.insert_all([job for job, _ in admitted.values()]) if admitted else set()
        positions = list(admitted)
        for position in refused:
            # the error gives the place back
            with suppress(errors.JobExistsError), admitted[positions[position]][1]:
                raise errors.JobExistsError("MongoDB has refused it")
        return {index for position, index in enumerate(positions) if position not in refused}


def _answer(batch: Sequence[_Wanted], outcome: BaseException | set[int]) -> None:
    for index, wanted in enumerate(batch):
        if wanted.inserted.done():
            # its request was cancelled
            continue
        if isinstance(outcome, BaseException):
            wanted.inserted.set_exception(outcome)
        else:
            wanted.inserted.set_result(index in outcome)
