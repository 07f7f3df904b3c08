"""One connection to Redis's pub/sub per process, one subscription per watched job, however many watch it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis
import redis.asyncio
import structlog
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.domain import live_event, redis_keys
from gateway.domain.job import Job
from gateway.web.event_stream.feed import Feed
from gateway.web.event_stream.history import History
from gateway.web.event_stream.limits import StreamLimits

_TIMEOUT = 5.0
_MAX_BACKOFF = 5.0

StatusListener = Callable[[dict[str, Any]], None]
log = structlog.get_logger()


class Hub:
    def __init__(self, redis_url: str, history: History, limits: StreamLimits) -> None:
        # retries are ours: a lost subscription is a hole, and whoever watches has to be told
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

    def start(self) -> None:
        self._task = asyncio.create_task(self._stay_connected(), name="event-stream-hub")

    async def stop(self) -> None:
        running = {*self._keepers.values(), *([self._task] if self._task else [])}
        while running:
            for task in running:
                task.cancel()
            # a task group whose task fails just then forgets that it was cancelled (until Python 3.13): say it again
            _, running = await asyncio.wait(running, timeout=0.2)
        await self._redis.aclose()

    @contextmanager
    def watch(self, job: Job, changed: asyncio.Event) -> Iterator[Feed]:
        """The job's feed, for as long as the context lasts. `job` is as just read, for whoever is the first."""
        feed = self._feeds.get(job.id) or self._open(job)
        try:
            with feed.watched_by(changed):
                yield feed
        finally:
            if not feed.is_watched:
                self._close(feed)

    @contextmanager
    def every_status(self, listener: StatusListener) -> Iterator[None]:
        """Hand `listener` each `status` message of any job (see `live_event.py`)."""
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
        self._keepers[job.id] = asyncio.create_task(feed.keep_fresh(), name=f"feed-{job.id}")
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
            except* Exception as errors:  # noqa: BLE001 - whatever it was, live lines have to come back
                log.warning("live_lines_lost", error=str(errors.exceptions[0]), pause=pause)
            for feed in self._feeds.values():
                feed.set_live(live=False)
            if asyncio.get_running_loop().time() - started > _MAX_BACKOFF:
                pause = 0.1
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_BACKOFF)

    async def _follow(self) -> None:
        """One connection's life; ends with the error that ended it."""
        pubsub = self._redis.pubsub()
        try:
            # never without a subscription, so that reading never fails for want of one
            await pubsub.subscribe(redis_keys.ALL_EVENTS)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_subscribed(pubsub))
                tasks.create_task(self._listen(pubsub))
        finally:
            with suppress(redis.RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py has not typed it

    async def _keep_subscribed(self, pubsub: PubSub) -> None:
        """The only one to (un)subscribe, so that the order is that of the watchers' coming and going."""
        subscribed: dict[str, Feed] = {}
        while True:
            self._wanted_changed.clear()
            wanted = dict(self._feeds)
            # a feed that has replaced another of the same job waits for a confirmation of its own: subscribe again
            added = [job_id for job_id, feed in wanted.items() if subscribed.get(job_id) is not feed]
            if added:
                await pubsub.subscribe(*map(redis_keys.job_channel, added))
            if removed := subscribed.keys() - wanted.keys():
                await pubsub.unsubscribe(*map(redis_keys.job_channel, removed))
            subscribed = wanted
            await self._wanted_changed.wait()

    async def _listen(self, pubsub: PubSub) -> None:
        while True:
            message = await pubsub.get_message(timeout=_TIMEOUT)
            if message is None:
                continue
            channel = message["channel"].decode()
            if channel == redis_keys.ALL_EVENTS:
                self._receive_any(message)
            else:
                self._receive(channel, message)

    def _receive(self, channel: str, message: dict[str, Any]) -> None:
        feed = self._feeds.get(channel.removeprefix(redis_keys.job_channel("")))
        if feed is None:
            return
        if message["type"] == "subscribe":
            feed.set_live(live=True)
        elif message["type"] == "message":
            feed.receive(live_event.decode(message["data"]))

    def _receive_any(self, message: dict[str, Any]) -> None:
        if message["type"] == "message":
            event = live_event.decode(message["data"])
            for listener in tuple(self._status_listeners):
                listener(event)
