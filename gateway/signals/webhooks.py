"""Calls the receivers of deliveries that are due: at least once, and again after a failure, for three days
(`DELAYS`).

Each worker calls from an event loop of its own, so that nothing else ever waits for a receiver. Before it looks for
what is due, it makes the deliveries for what has happened since (`announcing.py`).
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, utc_now
from gateway.errors import DiscoveryBotError, EndpointNotFoundError, SecretsKeyError
from gateway.jobs.messages import about_message
from gateway.jobs.store import JobStore
from gateway.signals.alerting import Alerting
from gateway.signals.announcing import Announcing
from gateway.signals.apprise_caller import AppriseCaller
from gateway.signals.deliveries import Delivery, DeliveryState, DeliveryStore, DeliveryTry, DueCall, host_of
from gateway.signals.deployments import DeploySignals
from gateway.signals.endpoints import Endpoint, EndpointFormat, Endpoints, secret_name
from gateway.signals.events import EventType
from gateway.signals.item_batches import ItemBatches
from gateway.signals.node_states import NodeAnnouncing
from gateway.signals.signatures import WebhookSecrets, signed_headers
from gateway.signals.webhook_caller import CALL_SECONDS, CallResult, Headers
from gateway.traced import traced

log = structlog.get_logger()
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

#: How long after each call that failed the next one comes, as Standard Webhooks recommends it, in seconds. When the
#: call after the last of them fails, the delivery is given up.
DELAYS = (5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
#: A delay is longer by up to this share, so that calls that failed together do not come back together.
SPREAD = 0.2
#: Seconds that a lease lasts beyond the longest call; in them its outcome is recorded.
LEASE_SLACK = 15.0

#: Most calls under way in one worker.
CALLS = 64
#: Most calls under way in one worker for one user.
USER_CALLS = 16
#: Most calls under way in one worker to one host.
HOST_CALLS = 16
#: Most users that one round visits, and most deliveries of each that it reads.
USERS = 50
PAGE = 200
#: Most characters of a job's message about a webhook.
MAX_MESSAGE = 1000
#: Seconds between two rounds: all requests in between become one round.
PAUSE = 0.1
#: Seconds that a worker waits at its end for the loop to end.
PARTING = 1.0


class OutgoingCaller(Protocol):
    async def post(self, user_id: str, url: str, body: bytes, headers: Headers = ()) -> CallResult: ...


@define(eq=False, repr=False, slots=False)
class Shares:
    """Shares calls among users: a user may begin another one while it has fewer under way than are free. So one is
    always left for a user who has none, even if all others use up their share. The users of one host share its calls
    in the same way, and a user's hosts the user's calls. Such a threshold needs no list of waiting users (Choudhury
    and Hahne, *Dynamic queue length thresholds*, 1998).
    """

    _users: Counter[str] = field(init=False, factory=Counter)
    _hosts: Counter[str] = field(init=False, factory=Counter)
    _pairs: Counter[tuple[str, str]] = field(init=False, factory=Counter)

    @property
    def free(self) -> int:
        return CALLS - self._users.total()

    def admits(self, user: str, host: str = "") -> bool:
        return self._users[user] < min(USER_CALLS, self.free) and self._pairs[user, host] < min(
            HOST_CALLS - self._hosts[host], USER_CALLS - self._users[user]
        )

    def take(self, user: str, host: str) -> None:
        self._users[user] += 1
        self._hosts[host] += 1
        self._pairs[user, host] += 1

    def give_back(self, user: str, host: str) -> None:
        self._users[user] -= 1
        self._hosts[host] -= 1
        self._pairs[user, host] -= 1
        # drops counts of zero
        self._users, self._hosts, self._pairs = +self._users, +self._hosts, +self._pairs


@define(eq=False, repr=False, slots=False, kw_only=True)
class Webhooks:
    _deliveries: DeliveryStore
    _announcing: Announcing
    _node_states: NodeAnnouncing
    _deployments: DeploySignals
    _batches: ItemBatches
    _alerting: Alerting
    _endpoints: Endpoints
    _jobs: JobStore
    _caller: OutgoingCaller
    _apprise: AppriseCaller
    _secrets: WebhookSecrets
    _clock: Clock = utc_now
    _shares: Shares = field(init=False, factory=Shares)
    _calls: set[asyncio.Task[None]] = field(init=False, factory=set)
    #: Whether a delivery was left because there was no room; there may be room when a call ends.
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
        watches = (self._node_states.look, self._deployments.look, self._batches.look, self._alerting.look)
        asked: list[Callable[[], Awaitable[None]]] = [partial(self._ask, look) for look in watches]
        while await self._hint.wait() and not self._closed:
            self._hint.clear()
            for step in (self._announce, *asked, self._look):
                try:
                    await step()
                except Exception as error:  # noqa: BLE001 - whatever it was, the worker asks again
                    log.warning("webhooks_not_looked_at", error=str(error), kind=type(error).__name__)
            await asyncio.sleep(PAUSE)

    async def _announce(self) -> None:
        if await self._ask(self._announcing.look):
            self._hint.set()

    async def _look(self) -> None:
        """Begin the calls that are due, as many as there is room for, one user after the other."""
        if not self._seen:
            self._left = self._asked = False
        for _ in range(USERS):
            if not self._shares.free:
                self._left = True
                return
            user = await self._ask(self._deliveries.next_user, self._seen)
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
        found = await self._ask(self._deliveries.due, user_id, PAGE)
        if await self._begin_all(found, user_id) or len(found) < PAGE:
            return
        # the longest due may all be calls of one slow receiver: those of the user's others must not wait behind them
        others = await self._ask(self._endpoints.ids_of, user_id)
        for endpoint_id in (None, *others):
            due = await self._ask(self._deliveries.due_of, user_id, endpoint_id, USER_CALLS)
            await self._begin_all(due, user_id)

    async def _begin_all(self, found: Sequence[DueCall], user_id: str) -> bool:
        """Begin the calls that there is room for. Returns whether there was room for all."""
        left = [due for due in found if not await self._begin(due, user_id)]
        self._left |= bool(left)
        return not left

    async def _begin(self, due: DueCall, user_id: str) -> bool:
        """Begin the call, unless another worker was first, or its document cannot be read. Returns whether there was
        room for it.
        """
        if not self._shares.admits(user_id, due.host):
            return False
        until = self._clock() + timedelta(seconds=CALL_SECONDS + LEASE_SLACK)
        claimed = await self._ask(self._deliveries.claim, due.id, until)
        if claimed is not None:
            self._shares.take(user_id, due.host)
            task = asyncio.create_task(self._deliver(claimed))
            self._calls.add(task)
            task.add_done_callback(lambda task: self._ended(task, user_id, due.host))
        return True

    def _ended(self, task: asyncio.Task[None], user_id: str, host: str) -> None:
        self._calls.discard(task)
        self._shares.give_back(user_id, host)
        if self._left:
            self._look_soon()

    async def _deliver(self, claimed: Delivery) -> None:
        """Call the receiver once, and record the outcome."""
        with about_message(claimed.job_id, None):
            try:
                endpoint = await self._endpoint_of(claimed)
                if endpoint is not None and not endpoint.is_active:
                    await self._ask(self._deliveries.note, claimed, DeliveryState.SKIPPED)
                    return
                began, at = time.monotonic(), self._clock()
                result = await self._call(claimed, endpoint)
                call = DeliveryTry(
                    at=at,
                    seconds=round(time.monotonic() - began, 3),
                    status=result.status,
                    problem=result.problem,
                    answer=result.answer,
                )
                await self._ask(self._record, claimed, endpoint, result, call)
            except EndpointNotFoundError:
                # deleted since: its deliveries go with it
                await self._ask(self._deliveries.note, claimed, DeliveryState.SKIPPED)
            except (PyMongoError, DiscoveryBotError) as error:
                # it is called again once the lease has lapsed
                log.warning("webhook_not_recorded", error=str(error), kind=type(error).__name__)

    async def _endpoint_of(self, claimed: Delivery) -> Endpoint | None:
        return await self._ask(self._endpoints.get, claimed.endpoint_id) if claimed.endpoint_id else None

    @traced("call_webhook")
    async def _call(self, claimed: Delivery, endpoint: Endpoint | None) -> CallResult:
        owner, url = (secret_name(endpoint.id), endpoint.url) if endpoint else (claimed.user_id, claimed.url)
        try:
            secrets = await self._ask(self._secrets.valid, owner)
        except SecretsKeyError as error:
            # a call that should be signed is not made without a signature
            return CallResult(str(error), is_ours=True)
        if endpoint is not None and not secrets:
            return CallResult("its secret is gone", is_ours=True)
        if endpoint is not None and endpoint.format is EndpointFormat.APPRISE:
            return await self._apprise.send(secrets[0], claimed.body)
        body = claimed.body.encode()
        headers = signed_headers(claimed.message_id, self._clock(), body, secrets)
        try:
            return await self._caller.post(claimed.user_id, url, body, headers)
        except Exception as error:
            # no error of one receiver may keep its delivery from being recorded
            log.exception("webhook_call_broke")
            return CallResult(type(error).__name__)

    def _record(self, claimed: Delivery, endpoint: Endpoint | None, result: CallResult, call: DeliveryTry) -> None:
        if result.problem is not None:
            # the host alone: the path of many a webhook is its password
            host = host_of(endpoint.url if endpoint else claimed.url)
            log.warning("webhook_failed", host=host, reason=result.problem, round=claimed.tries + 1)
        # the delivery last: who dies in between calls once more, and notes all of it
        if endpoint is not None and not result.is_ours:
            self._endpoints.called(endpoint, result.problem, is_last=result.is_last)
        elif endpoint is None and claimed.job_id is not None:
            self._jobs.note_call(claimed.job_id, claimed.url, _message(claimed.url, result))
        state, due_at = what_follows(claimed.tries, result, self._clock())
        if due_at is not None and claimed.type == EventType.ITEMS_BATCH:
            # the next one says more
            state, due_at = DeliveryState.FAILED, None
        self._deliveries.note(claimed, state, due_at, call)
        if claimed.type == EventType.ITEMS_BATCH:
            # a call each second would fill the list until retention
            self._deliveries.supersede(claimed)

    def _ask(
        self, question: Callable[Asked, Answer], *args: Asked.args, **options: Asked.kwargs
    ) -> asyncio.Future[Answer]:
        return asyncio.get_running_loop().run_in_executor(self._threads, lambda: question(*args, **options))


def what_follows(
    tries: int, result: CallResult, now: datetime, jitter: Callable[[], float] = random.random
) -> tuple[DeliveryState, datetime | None]:
    """What becomes of a delivery after a call, which so many have preceded, and when the next one comes."""
    if result.problem is None:
        return DeliveryState.DELIVERED, None
    if result.is_last:
        return DeliveryState.REFUSED, None
    if tries >= len(DELAYS):
        return DeliveryState.FAILED, None
    delay = timedelta(seconds=DELAYS[tries] * (1 + SPREAD * jitter()))
    return DeliveryState.PENDING, now + max(delay, result.pause or delay)


def _message(url: str, result: CallResult) -> str | None:
    """Why the webhook has not answered; `None` if it has."""
    if result.problem is None:
        return None
    reason = f"{result.problem}, so it is not called again" if result.is_last else result.problem
    return f"{host_of(url)}: {reason}"[:MAX_MESSAGE]
