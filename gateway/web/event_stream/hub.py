"""One connection to Redis's pub/sub per process, one subscription per watched job, for any number of watchers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import redis
import redis.asyncio
import structlog
from attrs import define, field
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from sse_starlette.sse import AppStatus

from gateway.contract.log_line import Position
from gateway.errors import JobNotFoundError, UnavailableError
from gateway.jobs import messages
from gateway.jobs.job import Job
from gateway.jobs.messages import status_data
from gateway.stores.redis import ALL_EVENTS, job_channel
from gateway.web.call_queue import shared_context
from gateway.web.event_stream.log_lines import History, LineRun, Ring, StreamLimits

log = structlog.get_logger()


@define(eq=False, repr=False, slots=False)
class Feed:
    """One job's document, live lines and latest progress, and the readers to wake when any of them changes."""

    job: Job
    _history: History
    _limits: StreamLimits
    #: Counts the changes of the job; a reader that has seen another number has news for its client.
    status_version: int = field(init=False, default=0)
    progress_version: int = field(init=False, default=0)
    #: Counts the reasons to look into the stores again. Until it changes, the same question is asked only once.
    look: int = field(init=False, default=0)
    #: Whether the job's document is gone.
    gone: bool = field(init=False, default=False)
    #: Whether live lines arrive over Redis.
    live: bool = field(init=False, default=False)
    #: Whether progress might have been published after the document was read and before the subscription began.
    misses_progress: bool = field(init=False, default=True)
    #: Whether a reader misses lines that should be there: then the feed looks more often.
    wanting: bool = field(init=False, default=False)
    _watchers: set[asyncio.Event] = field(init=False, factory=set)
    _reading: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _nothing: tuple[Position, int] | None = field(init=False, default=None)
    _stale: asyncio.Event = field(init=False, factory=asyncio.Event)
    _next_wake: float = field(init=False, default=0.0)
    _wake_handle: asyncio.TimerHandle | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.ring = Ring(self._limits.ring_entries, self._limits.ring_bytes)
        self.progress = _progress(self.job)

    @contextmanager
    def watched_by(self, changed: asyncio.Event) -> Iterator[None]:
        """`changed` is set whenever there may be news."""
        self._watchers.add(changed)
        try:
            yield
        finally:
            self._watchers.discard(changed)

    def know_earlier(self, job: Job) -> None:
        """Take over the earlier attempts of `job`: a feed that a list of jobs opened lacks them."""
        if job.attempts.keys() - self.job.attempts.keys():
            self.job = self.job.with_earlier(job.attempts)

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    @property
    def tick(self) -> float:
        """Seconds between two chunks to the same client: the longer, the more clients there are to be woken."""
        limits = self._limits
        return max(limits.tick, min(limits.crowd_tick, len(self._watchers) * limits.tick_each))

    def receive(self, message: dict[str, Any]) -> None:
        """Handle a message of the job's channel (see `gateway/jobs/messages.py`)."""
        match message["kind"]:
            case "log":
                if self.ring.push(message["attempt"], message["entries"]):
                    self.look += 1
                if message["attempt"] > self.job.newest:
                    self._stale.set()
            case "progress" if message["attempt"] >= self.job.attempt:
                self.progress = message["data"]
                self.progress_version += 1
                self.misses_progress = False
            case "status":
                # the document says the same and more: this message is only a hint to read it now
                self._stale.set()
        self._wake_soon()

    def set_live(self, *, live: bool) -> None:
        """Note that the subscription has started or is lost, and read from the stores what it has missed."""
        self.live = live
        self.misses_progress = True
        self.look += 1
        self._stale.set()
        self._wake_soon()

    async def history_at(self, position: Position) -> LineRun | None:
        """As `History.read`, but readers at the same position ask once."""
        async with self._reading:
            look = self.look
            if self._nothing == (position, look):
                return None
            run = await self._history.read(self.job.id, position, live=self.live)
            if run is None:
                self._nothing = (position, look)
            return run

    async def keep_fresh(self) -> None:
        """Read the document when a message asks for it, and now and then in any case, while the job is watched."""
        waited = 0.0
        while not self.gone:
            try:
                async with asyncio.timeout(self._limits.poll):
                    await self._stale.wait()
            except TimeoutError:
                waited += self._limits.poll
                if self.live and not self.wanting and waited < self._limits.refresh:
                    continue
            waited = 0.0
            self._stale.clear()
            self.wanting = False
            await self._refresh()

    def wake(self) -> None:
        """Wake all watchers now."""
        self._wake_handle = None
        self._next_wake = asyncio.get_running_loop().time() + self.tick
        for changed in self._watchers:
            changed.set()

    def _wake_soon(self) -> None:
        """Wake all watchers, but at most once a tick, so that changes which come close together are sent together."""
        if self._wake_handle is None:
            loop = asyncio.get_running_loop()
            self._wake_handle = loop.call_at(max(self._next_wake, loop.time()), self.wake)

    async def _refresh(self) -> None:
        subscribed = self.live
        try:
            job = await self._history.job(self.job.id)
        except JobNotFoundError:
            self.gone = True
        except UnavailableError:
            return  # the known document stands, and no reader has to wait for a store that does not answer
        except Exception:
            log.exception("job_unreadable", job_id=self.job.id)
            return
        else:
            self._learn(job, subscribed=subscribed)
        self.look += 1
        self.wake()

    def _learn(self, job: Job, *, subscribed: bool) -> None:
        """Take over the job that was just read. `subscribed`: whether the subscription began before that."""
        if status_data(job) != status_data(self.job):
            self.status_version += 1
        if job.attempt != self.job.attempt or (self.misses_progress and job.progress != self.job.progress):
            self.progress = _progress(job)
            self.progress_version += 1
        self.misses_progress = self.misses_progress and not subscribed
        self.job = job


def _progress(job: Job) -> dict[str, Any] | None:
    return job.progress.model_dump(mode="json", exclude={"at"}) if job.progress else None


# --- waits for a job to end, woken by the same messages as the job's stream

#: Seconds between two checks whether the server has to stop, which no event announces.
_LOOK = 1.0


async def wait_for_end(feed: Feed, changed: asyncio.Event, seconds: float) -> None:
    """Wait until the job is final or gone, the time is over, or the server has to stop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not (feed.job.is_final or feed.gone or AppStatus.should_exit):
                # not by `wait_for`: before Python 3.12 that loses a cancellation which comes together with the news
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await changed.wait()
                changed.clear()


_TIMEOUT = 5.0
_MAX_BACKOFF = 5.0


class StatusListener(Protocol):
    def receive(self, message: dict[str, Any]) -> None:
        """Take one `status` message of any job (see `gateway/jobs/messages.py`)."""

    def have_missed(self) -> None:
        """Messages may have been lost up to now; from now on they arrive."""


class Hub:
    def __init__(self, redis_url: str, history: History, limits: StreamLimits) -> None:
        # no retries by redis-py: while a subscription is lost messages are missed, and the feeds have to know
        self._redis: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            redis_url,
            max_connections=1,
            socket_timeout=_TIMEOUT,
            socket_connect_timeout=_TIMEOUT,
            health_check_interval=10,
            retry=Retry(NoBackoff(), 0),
        )
        self._history = history
        self._limits = limits
        self._feeds: dict[str, Feed] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._wanted_changed = asyncio.Event()
        self._status_listeners: set[StatusListener] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._stay_connected(), name="event-stream-hub")

    async def stop(self) -> None:
        # a command to Redis may swallow the one cancellation that a task group has for its tasks
        self._is_stopped = True
        self._wanted_changed.set()
        running = {*self._keepers.values(), *([self._task] if self._task else [])}
        while running:
            for task in running:
                task.cancel()
            # before Python 3.13, a task group with a task that fails then loses its cancellation: cancel again
            _, running = await asyncio.wait(running, timeout=0.2)
        await self._redis.aclose()

    @contextmanager
    def watch(self, job: Job, changed: asyncio.Event) -> Iterator[Feed]:
        """The job's feed, for as long as the context lasts. `job` was just read; a new feed begins with it."""
        feed = self._feeds.get(job.id) or self._open(job)
        feed.know_earlier(job)
        try:
            with feed.watched_by(changed):
                yield feed
        finally:
            if not feed.is_watched:
                self._close(feed)

    @contextmanager
    def every_status(self, listener: StatusListener) -> Iterator[None]:
        """Tell `listener` about all jobs, for as long as the context lasts."""
        self._status_listeners.add(listener)
        try:
            yield
        finally:
            self._status_listeners.discard(listener)

    def wake_all(self) -> None:
        for feed in self._feeds.values():
            feed.wake()

    def _open(self, job: Job) -> Feed:
        feed = self._feeds[job.id] = Feed(job, self._history, self._limits)
        self._keepers[job.id] = asyncio.create_task(
            feed.keep_fresh(), name=f"feed-{job.id}", context=shared_context()
        )
        self._wanted_changed.set()
        return feed

    def _close(self, feed: Feed) -> None:
        if self._feeds.get(feed.job.id) is feed:
            del self._feeds[feed.job.id]
            self._keepers.pop(feed.job.id).cancel()
            self._wanted_changed.set()

    async def _stay_connected(self) -> None:
        pause = 0.1
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._follow()
            except* Exception as errors:  # noqa: BLE001 - after any failure live lines have to come back
                log.warning("live_lines_lost", error=str(errors.exceptions[0]), pause=pause)
            for feed in self._feeds.values():
                feed.set_live(live=False)
            if asyncio.get_running_loop().time() - started > _MAX_BACKOFF:
                pause = 0.1
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_BACKOFF)

    async def _follow(self) -> None:
        """Follow one connection for as long as it lives; raises the error that ended it."""
        pubsub = self._redis.pubsub()
        try:
            # there is always a subscription, because to read without one is an error
            await pubsub.subscribe(ALL_EVENTS)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_subscribed(pubsub))
                tasks.create_task(self._listen(pubsub))
        finally:
            with suppress(redis.RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py has not typed it

    async def _keep_subscribed(self, pubsub: PubSub) -> None:
        """Only this task (un)subscribes, so that the order is that in which watchers come and go."""
        subscribed: dict[str, Feed] = {}
        while not self._is_stopped:
            self._wanted_changed.clear()
            wanted = dict(self._feeds)
            # a new feed subscribes again, even if the job's last feed did: it waits for its own confirmation
            added = [job_id for job_id, feed in wanted.items() if subscribed.get(job_id) is not feed]
            if added:
                await pubsub.subscribe(*map(job_channel, added))
            if removed := subscribed.keys() - wanted.keys():
                await pubsub.unsubscribe(*map(job_channel, removed))
            subscribed = wanted
            if not self._is_stopped:
                await self._wanted_changed.wait()

    async def _listen(self, pubsub: PubSub) -> None:
        while not self._is_stopped:
            message = await pubsub.get_message(timeout=_TIMEOUT)
            if message is None:
                continue
            channel = message["channel"].decode()
            if channel == ALL_EVENTS:
                self._receive_any(message)
            else:
                self._receive(channel, message)

    def _receive(self, channel: str, message: dict[str, Any]) -> None:
        feed = self._feeds.get(channel.removeprefix(job_channel("")))
        if feed is None:
            return
        if message["type"] == "subscribe":
            feed.set_live(live=True)
        elif message["type"] == "message":
            feed.receive(messages.decode(message["data"]))

    def _receive_any(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            for listener in tuple(self._status_listeners):
                listener.have_missed()
        elif message["type"] == "message":
            event = messages.decode(message["data"])
            for listener in tuple(self._status_listeners):
                listener.receive(event)
