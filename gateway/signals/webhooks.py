"""Calls the webhooks of jobs that have ended: at least once, and again after a failure, for three days
(`DELAYS`).

The queue is in MongoDB: `webhooks_due` says when a job's webhooks are to be called, or until when a worker has leased
them. Each worker calls from an event loop of its own, so that nothing else ever waits for a receiver.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple, ParamSpec, Protocol, TypeVar
from urllib.parse import urlsplit

import orjson
import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, to_iso, utc_now
from gateway.errors import SecretsKeyError
from gateway.jobs.job import Job, WebhookWait
from gateway.jobs.messages import about
from gateway.jobs.store import DueWebhooks, JobStore
from gateway.signals.signatures import WebhookSecrets, signed_headers
from gateway.signals.webhook_caller import CALL_SECONDS, FailedCall, Headers
from gateway.traced import traced

log = structlog.get_logger()
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

#: How long after each round of calls that failed the next one begins, as Standard Webhooks recommends it, in seconds.
#: After the round that follows the last one, webhooks that have not answered are given up.
DELAYS = (5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
#: A delay is longer by up to this share, so that calls that failed together do not come back together.
SPREAD = 0.2
#: Calls of one round that are made at once.
AT_ONCE = 4
#: Seconds that a round may take beyond its calls.
ROUND_SLACK = 5.0
#: Seconds that a lease lasts beyond its round; in them the outcome is recorded.
LEASE_SLACK = 10.0

#: Most rounds under way in one worker.
ROUNDS = 32
#: Most rounds under way in one worker for one user.
USER_ROUNDS = 8
#: Most rounds under way in one worker to one host.
HOST_ROUNDS = 8
#: Most users that one round visits, and most jobs of each that it reads.
USERS = 50
PAGE = 200
#: Most characters of the messages of failed calls.
MAX_MESSAGE = 1000
#: Seconds between two rounds: all requests in between become one round.
PAUSE = 0.1
#: Seconds that a worker waits at its end for the loop to end.
PARTING = 1.0


class OutgoingCaller(Protocol):
    async def post(self, user_id: str, url: str, body: bytes, headers: Headers = ()) -> FailedCall | None:
        """Call one webhook. Returns `None` if it succeeded."""


@define(eq=False, repr=False, slots=False)
class Shares:
    """Shares rounds among users: a user may begin another round while it has fewer under way than are free. So one is
    always left for a user who has none, even if all others use up their share. The users of one host share its rounds
    in the same way. Such a threshold needs no list of waiting users (Choudhury and Hahne, *Dynamic queue length
    thresholds*, 1998).
    """

    _users: Counter[str] = field(init=False, factory=Counter)
    _hosts: Counter[str] = field(init=False, factory=Counter)
    _pairs: Counter[tuple[str, str]] = field(init=False, factory=Counter)

    @property
    def free(self) -> int:
        return ROUNDS - self._users.total()

    def admits(self, user: str, hosts: Iterable[str] = ()) -> bool:
        return self._users[user] < min(USER_ROUNDS, self.free) and all(
            self._pairs[user, host] < HOST_ROUNDS - self._hosts[host] for host in hosts
        )

    def take(self, user: str, hosts: Iterable[str]) -> None:
        self._users[user] += 1
        self._hosts.update(hosts)
        self._pairs.update((user, host) for host in hosts)

    def give_back(self, user: str, hosts: Iterable[str]) -> None:
        self._users[user] -= 1
        self._hosts.subtract(hosts)
        self._pairs.subtract((user, host) for host in hosts)
        # drops counts of zero
        self._users, self._hosts, self._pairs = +self._users, +self._hosts, +self._pairs


@define(eq=False, repr=False, slots=False, kw_only=True)
class Webhooks:
    _jobs: JobStore
    _caller: OutgoingCaller
    _secrets: WebhookSecrets
    _clock: Clock = utc_now
    _shares: Shares = field(init=False, factory=Shares)
    _rounds: set[asyncio.Task[None]] = field(init=False, factory=set)
    #: Whether a job was left because there was no room; there may be room when a round ends.
    _left: bool = field(init=False, default=False)
    #: The last user whose calls were begun, empty before the first. The round goes on with the users after it.
    _seen: str = field(init=False, default="")
    _hint: asyncio.Event = field(init=False, factory=asyncio.Event)
    #: Whether a round was asked for since the present one began with the first user.
    _asked: bool = field(init=False, default=False)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    _thread: threading.Thread | None = field(init=False, default=None)
    _closed: bool = field(init=False, default=False)
    #: For calls of the stores, which block.
    _threads: ThreadPoolExecutor = field(
        init=False, factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="webhook-store")
    )

    def look(self) -> None:
        """Ask for a round. Returns at once."""
        with self._lock:
            if self._closed:
                return
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="webhooks", daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(self._look_soon)

    def close(self) -> None:
        """Stop, and give up the calls under way. They are made again when their lease has expired."""
        with self._lock:
            self._closed = True
            if self._loop is not None:
                # the loop may have ended by itself
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._hint.set)
        if self._thread is not None:
            self._thread.join(PARTING)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._serve())

    def _look_soon(self) -> None:
        self._asked = True
        self._hint.set()

    async def _serve(self) -> None:
        while await self._hint.wait() and not self._closed:
            self._hint.clear()
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the sweep asks again
                log.warning("webhooks_not_looked_at", error=str(error), kind=type(error).__name__)
            await asyncio.sleep(PAUSE)

    async def _look(self) -> None:
        """Begin the calls that are due, as many as there is room for, one user after the other."""
        if not self._seen:
            self._left = self._asked = False
        for _ in range(USERS):
            if not self._shares.free:
                self._left = True
                return
            user = await self._ask(self._jobs.next_to_tell, self._seen)
            self._seen = user or ""
            if user is None:
                break
            await self._look_at(user)
        if self._seen or self._asked:
            # go on: the round that was asked for has not reached all users yet
            self._hint.set()

    async def _look_at(self, user_id: str) -> None:
        if not self._shares.admits(user_id):
            self._left = True
            return
        for due in await self._ask(self._jobs.due_webhooks, user_id, PAGE):
            hosts = set(map(host_of, due.urls))
            if self._shares.admits(user_id, hosts):
                await self._begin(due, user_id, hosts)
            else:
                self._left = True

    async def _begin(self, due: DueWebhooks, user_id: str, hosts: Iterable[str]) -> None:
        """Begin a round, unless another worker was first or the job cannot be read."""
        longest = round_seconds(len(due.urls))
        end = asyncio.get_running_loop().time() + longest
        until = self._clock() + timedelta(seconds=longest + LEASE_SLACK)
        job = await self._ask(self._jobs.claim_webhooks, due.job_id, until)
        if job is not None:
            self._shares.take(user_id, hosts)
            task = asyncio.create_task(self._round(job, end))
            self._rounds.add(task)
            task.add_done_callback(lambda task: self._ended(task, user_id, hosts))

    def _ended(self, task: asyncio.Task[None], user_id: str, hosts: Iterable[str]) -> None:
        self._rounds.discard(task)
        self._shares.give_back(user_id, hosts)
        if self._left:
            self._look_soon()

    async def _round(self, job: Job, end: float) -> None:
        """Call a job's webhooks once, until `end` by the loop's clock, and record the outcome."""
        with about(job):
            called = to_call(job, self._clock())
            failures = await self._call(job, called, end)
            for url, failure in failures.items():
                # the host alone: the path of many a webhook is its password
                log.warning(
                    "webhook_failed", host=host_of(url), reason=failure.reason, round=job.webhook_failures + 1
                )
            delivered = [url for url in called if url not in failures]
            again, waits = after_round(job, called, failures, self._clock())
            try:
                await self._ask(self._jobs.webhooks_called, job, delivered, _message(failures, waits), again, waits)
            except PyMongoError as error:
                # they are called again once the lease has lapsed
                log.warning("webhooks_not_recorded", error=str(error), kind=type(error).__name__)

    @traced("call_webhooks")
    async def _call(self, job: Job, urls: Sequence[str], end: float) -> dict[str, FailedCall]:
        """Call the webhooks; returns those that failed."""
        failures = dict.fromkeys(urls, FailedCall("there was no time left to call it"))
        body, turns = message(job), asyncio.Semaphore(AT_ONCE)
        try:
            secrets = await self._ask(self._secrets.valid, job.user_id)
        except SecretsKeyError as error:
            # a call that should be signed is not made without a signature
            return dict.fromkeys(failures, FailedCall(str(error)))

        async def call(url: str) -> None:
            async with turns:
                headers = signed_headers(message_id(job), self._clock(), body, secrets)
                failure = await self._post(job.user_id, url, body, headers)
                if failure is None:
                    del failures[url]
                else:
                    failures[url] = failure

        with suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await asyncio.gather(*map(call, list(failures)))
        return failures

    @traced("call_webhook")
    async def _post(self, user_id: str, url: str, body: bytes, headers: Headers) -> FailedCall | None:
        try:
            return await self._caller.post(user_id, url, body, headers)
        except Exception as error:
            # no error of one receiver may keep the others from being called, or the round from ending
            log.exception("webhook_call_broke")
            return FailedCall(type(error).__name__)

    def _ask(
        self, question: Callable[Asked, Answer], *args: Asked.args, **options: Asked.kwargs
    ) -> asyncio.Future[Answer]:
        return asyncio.get_running_loop().run_in_executor(self._threads, lambda: question(*args, **options))


def round_seconds(calls: int) -> float:
    """The most seconds that a round of so many calls can take, which is when no receiver answers."""
    return math.ceil(calls / AT_ONCE) * CALL_SECONDS + ROUND_SLACK


def host_of(url: str) -> str:
    """The URL's host; empty if the URL cannot be parsed, which makes its call fail."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def to_call(job: Job, now: datetime) -> list[str]:
    """The webhooks that have not answered and have asked for no pause."""
    resting = {wait.url for wait in job.webhook_waits if wait.until is None or wait.until > now}
    return [url for url in job.webhooks if url not in job.webhooks_delivered and url not in resting]


class NextRound(NamedTuple):
    #: `None` if there is none.
    at: datetime | None
    #: Those that it leaves out.
    waits: list[WebhookWait]


def after_round(
    job: Job,
    called: Sequence[str],
    failures: Mapping[str, FailedCall],
    now: datetime,
    jitter: Callable[[], float] = random.random,
) -> NextRound:
    """What follows a round in which these were called and those failed. A receiver that asked for a pause is called
    in the first round after it. Who asked for more than all others does not delay them.
    """
    waits = [wait for wait in job.webhook_waits if wait.url not in called]
    if job.webhook_failures >= len(DELAYS):
        return NextRound(None, [wait for wait in waits if wait.until is None])
    delayed = now + timedelta(seconds=DELAYS[job.webhook_failures] * (1 + SPREAD * jitter()))
    times = []
    for url, failure in failures.items():
        if failure.is_last:
            waits.append(WebhookWait(url=url))
        elif failure.pause is not None and now + failure.pause > delayed:
            waits.append(WebhookWait(url=url, until=now + failure.pause))
        else:
            times.append(delayed)
    times += [wait.until for wait in waits if wait.until is not None]
    return NextRound(min(times, default=None), waits)


def _message(failures: Mapping[str, FailedCall], waits: Iterable[WebhookWait]) -> str | None:
    """Why webhooks have not answered."""
    reasons = {url: failure.reason for url, failure in failures.items()}
    reasons |= {wait.url: "answered 410, so it is not called again" for wait in waits if wait.until is None}
    return "; ".join(f"{host_of(url)}: {reason}" for url, reason in reasons.items())[:MAX_MESSAGE] or None


def message_id(job: Job) -> str:
    """The same at each try, and for each receiver: by it they know a call that is repeated."""
    return f"msg_{job.id}"


def message(job: Job) -> bytes:
    """`{"event": "job.ended", "job_id", "status", "reason", "message", "finished_at", counts…}`; for a schedule's run
    also `schedule_id`, which may be the only id that the receiver knows.
    """
    counts = {"completed_pages", "items_count", "errors_count"}
    return orjson.dumps(
        {
            "event": "job.ended",
            "job_id": job.id,
            "status": job.status.value,
            "reason": job.reason,
            "message": job.message,
            "finished_at": to_iso(job.finished_at) if job.finished_at else None,
            **(job.progress.model_dump(include=counts) if job.progress else {}),
            **({"schedule_id": job.schedule_id} if job.schedule_id else {}),
        }
    )
