"""Makes the calls of deliveries that are due. Each delivery is called at least once; after failures it is called
again for three days (`DELAYS`).

Each worker makes its calls in a separate event loop, so that nothing else ever waits for a receiver. Before each
round it makes the deliveries for new events (`announcing.py`).
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
from gateway.signals.apprise_caller import PROCESSES, AppriseCaller
from gateway.signals.delivery_store import Delivery, DeliveryState, DeliveryStore, DeliveryTry, DueCall, host_of
from gateway.signals.deployments import DeploySignals
from gateway.signals.endpoints import SEALED_HOST, Endpoint, EndpointFormat, Endpoints, secret_name
from gateway.signals.events import EventType
from gateway.signals.item_batches import ItemBatches
from gateway.signals.node_states import NodeAnnouncing
from gateway.signals.signatures import WebhookSecrets, signed_headers
from gateway.signals.webhook_caller import CALL_SECONDS, CallResult, Headers
from gateway.traced import traced

log = structlog.get_logger()
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

#: The delay in seconds after each failed call, as Standard Webhooks recommends. If the call after the last delay
#: fails too, the delivery is given up.
DELAYS = (5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
#: Each delay is extended by a random part of up to this share, so that calls that failed together are not repeated
#: together.
SPREAD = 0.2
#: A lease lasts this many seconds longer than the longest call, so that the outcome can be stored.
LEASE_SLACK = 15.0

#: One worker makes at most this many calls at a time.
CALLS = 64
#: One worker makes at most this many calls at a time for one user.
USER_CALLS = 16
#: One worker makes at most this many calls at a time to one host.
HOST_CALLS = 16
#: One round visits at most this many users, and reads at most this many deliveries of each.
USERS = 50
PAGE = 200
#: A job's message about a webhook is cut to this many characters.
MAX_MESSAGE = 1000
#: Seconds between two rounds. All calls of `look` in between cause one round.
PAUSE = 0.1
#: Seconds for which a worker that stops waits for the loop to end.
PARTING = 1.0


class OutgoingCaller(Protocol):
    async def post(self, user_id: str, url: str, body: bytes, headers: Headers = ()) -> CallResult: ...


@define(eq=False, repr=False, slots=False)
class Shares:
    """Divides the calls fairly among users. A user may begin a call while the user has fewer calls under way than are
    free. So one call is always left for a user without any, even if all others use up their share. The calls of one
    host are divided among its users in the same way, and the calls of one user among the user's hosts. This needs no
    list of waiting users (Choudhury and Hahne, *Dynamic queue length thresholds*, 1998).
    """

    _users: Counter[str] = field(init=False, factory=Counter)
    _hosts: Counter[str] = field(init=False, factory=Counter)
    _pairs: Counter[tuple[str, str]] = field(init=False, factory=Counter)

    @property
    def free(self) -> int:
        return CALLS - self._users.total()

    def admits(self, user: str, host: str = "") -> bool:
        return self._users[user] < min(USER_CALLS, self.free) and self._pairs[user, host] < min(
            _calls_of(host) - self._hosts[host], USER_CALLS - self._users[user]
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


def _calls_of(host: str) -> int:
    """How many calls to this host are made at a time. Calls by Apprise count as those of one host: as many as it has
    processes, so that none waits for a process behind those of a user whose receiver hangs.
    """
    return PROCESSES if host == SEALED_HOST else HOST_CALLS


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
    #: Whether a delivery could not begin because of the limits. When a call ends, another round is needed.
    _left: bool = field(init=False, default=False)
    #: The last user whose calls were begun, empty before the first. The round goes on with the users after it.
    _seen: str = field(init=False, default="")
    _hint: asyncio.Event = field(init=False, factory=asyncio.Event)
    #: Whether `look` was called since the present round began with the first user.
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
                except Exception as error:  # noqa: BLE001 - after any error, the worker tries again
                    log.warning("webhooks_not_looked_at", error=str(error), kind=type(error).__name__)
            await asyncio.sleep(PAUSE)

    async def _announce(self) -> None:
        if await self._ask(self._announcing.look):
            self._hint.set()

    async def _look(self) -> None:
        """Begin the calls that are due, as many as the limits allow, one user after the other."""
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
            # continue: the round has not reached all users yet, or `look` was called meanwhile
            self._hint.set()

    async def _look_at(self, user_id: str) -> None:
        if not self._shares.admits(user_id):
            self._left = True
            return
        found = await self._ask(self._deliveries.due, user_id, PAGE)
        if await self._begin_all(found, user_id) or len(found) < PAGE:
            return
        # the longest due calls may all be for one slow receiver; calls for the user's other receivers must not wait
        others = await self._ask(self._endpoints.ids_of, user_id)
        for endpoint_id in (None, *others):
            due = await self._ask(self._deliveries.due_of, user_id, endpoint_id, USER_CALLS)
            await self._begin_all(due, user_id)

    async def _begin_all(self, found: Sequence[DueCall], user_id: str) -> bool:
        """Begin as many of these calls as the limits allow. Returns whether all could begin."""
        left = [due for due in found if not await self._begin(due, user_id)]
        self._left |= bool(left)
        return not left

    async def _begin(self, due: DueCall, user_id: str) -> bool:
        """Begin the call, unless another worker has claimed it, or its document cannot be read. Returns False if the
        limits do not allow another call.
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
                # the endpoint was deleted meanwhile, and its deliveries are deleted with it
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
            # after any error, the outcome must be stored, or the call would be repeated without end
            log.exception("webhook_call_broke")
            return CallResult(type(error).__name__)

    def _record(self, claimed: Delivery, endpoint: Endpoint | None, result: CallResult, call: DeliveryTry) -> None:
        if result.problem is not None:
            # only the host is logged, because the path of many webhooks is a password
            host = host_of(endpoint.url if endpoint else claimed.url)
            log.warning("webhook_failed", host=host, reason=result.problem, round=claimed.tries + 1)
        # the delivery is stored last: if the worker dies before, the call is repeated and everything is stored then
        if endpoint is not None and not result.is_ours:
            self._endpoints.called(endpoint, result.problem, is_last=result.is_last)
        elif endpoint is None and claimed.job_id is not None:
            self._jobs.note_call(claimed.job_id, claimed.url, _message(claimed.url, result))
        state, due_at = what_follows(claimed.tries, result, self._clock())
        if due_at is not None and claimed.type == EventType.ITEMS_BATCH:
            # not repeated: the next event has a newer count
            state, due_at = DeliveryState.FAILED, None
        self._deliveries.note(claimed, state, due_at, call)
        if claimed.type == EventType.ITEMS_BATCH:
            # only the newest is kept: one call each second would fill the list until retention removes them
            self._deliveries.supersede(claimed)

    def _ask(
        self, question: Callable[Asked, Answer], *args: Asked.args, **options: Asked.kwargs
    ) -> asyncio.Future[Answer]:
        return asyncio.get_running_loop().run_in_executor(self._threads, lambda: question(*args, **options))


def what_follows(
    tries: int, result: CallResult, now: datetime, jitter: Callable[[], float] = random.random
) -> tuple[DeliveryState, datetime | None]:
    """The state of a delivery after a call, and the time of its next call. `tries`: the number of earlier calls."""
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
