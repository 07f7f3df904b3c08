"""Redis: its names, and the ways to connect to it. Every pool and every call has a limit: Redis only saves time, and
may be away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import hiredis
import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.clock import remaining
from gateway.stores.unanswered import note_unanswered

# --- every name in Redis, built in one place; a spider's process builds that of a site's rate itself
# (`gateway/stores/site_rate_limit.py`)

#: Status changes of every job, for `/events`.
ALL_EVENTS = "events"
#: Prefix of the counts of each caller's requests; the counting library makes the rest.
REQUEST_RATES = "rate:requests"


def dedupe_key(user_id: str, spider: str, fingerprint: str) -> str:
    """String `P|<job id>|<ms>` (provisional) or `C|<job id>|<ms>` (the document exists)."""
    return f"crawl:{user_id}:{spider}:{fingerprint}"


def log_stream(job_id: str, attempt: int) -> str:
    """Stream of one attempt's live lines; entry ids are `<attempt>-<end offset>`."""
    return f"logs:{job_id}:{attempt}"


def job_channel(job_id: str) -> str:
    """Pub/sub channel of one job: log lines, progress, status changes (see `gateway/jobs/messages.py`)."""
    return f"logs:{job_id}"


# --- connections

_TIMEOUT = 2.0
_MAX_CONNECTIONS = 64


def _limits(timeout: float) -> dict[str, Any]:
    limits = dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"), timeout)
    return {**limits, "max_connections": _MAX_CONNECTIONS}


class _Retry(Retry):
    """Retries once, because a device on the way may have forgotten the connection; not after the deadline."""

    def call_with_retry(self, do: Any, fail: Any, is_retryable: Any = None, *rest: Any, **options: Any) -> Any:
        def may_retry(error: Exception) -> bool:
            note_unanswered("Redis")
            return is_retryable(error) if is_retryable else remaining(1) > 0

        return super().call_with_retry(do, fail, may_retry, *rest, **options)


class _AsyncRetry(redis.asyncio.retry.Retry):
    """Notes a call without an answer, and does not repeat it."""

    async def call_with_retry(self, do: Any, fail: Any, is_retryable: Any = None, *rest: Any, **options: Any) -> Any:
        def may_retry(error: Exception) -> bool:
            note_unanswered("Redis")
            return not is_retryable or is_retryable(error)

        return await super().call_with_retry(do, fail, may_retry, *rest, **options)


class _Pool(redis.BlockingConnectionPool):
    """Hands out connections that wait no longer than the caller may."""

    def get_connection(self, *names: Any, **options: Any) -> Any:
        seconds = remaining(self.connection_kwargs["socket_timeout"])
        if seconds <= 0:
            raise redis.TimeoutError("no time is left to ask Redis")
        connection: Any = super().get_connection(*names, **options)  # type: ignore[no-untyped-call]  # redis-py's
        connection.socket_timeout = connection.socket_connect_timeout = seconds
        if connection._sock is not None:  # noqa: SLF001 - redis-py has no other way to change it while connected
            connection._sock.settimeout(seconds)  # noqa: SLF001 - as above
        return connection


def connect(url: str, *, timeout: float = _TIMEOUT) -> redis.Redis:
    """A synchronous client. A call waits at most `timeout` seconds for a connection and again for the answer, and not
    at all once the time of its block (`within`) is over.
    """
    pool = _Pool.from_url(url, health_check_interval=30, retry=_Retry(NoBackoff(), 1), **_limits(timeout))
    return redis.Redis.from_pool(pool)


def connect_async(url: str, *, timeout: float = _TIMEOUT) -> redis.asyncio.Redis:
    """The same for the event loop. Plain pools of redis-py raise at their limit; this one waits."""
    pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
        url, retry=_AsyncRetry(NoBackoff(), 0), **_limits(timeout)
    )
    return redis.asyncio.Redis.from_pool(pool)


# --- many short commands of one event loop over one connection.
#
# With a pool, each command waits for a connection of its own, writes to it and waits for it: a tenth of a millisecond
# of the loop's time. Here commands are written as they come, and Redis answers them in the same order.


def connect_shared(url: str, *, timeout: float = _TIMEOUT) -> redis.asyncio.Redis:
    """A client for single commands that Redis answers at once. It takes no pub/sub, transactions or blocking reads,
    and gives answers as Redis sends them: bytes, and `None` for nothing. A call waits at most `timeout` seconds for
    the connection and again for the answer.
    """
    pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
        url, retry=_AsyncRetry(NoBackoff(), 0), protocol=2, **_limits(timeout)
    )
    return _SharedRedis.from_pool(pool)


class _SharedRedis(redis.asyncio.Redis):
    """Who finds that Redis is silent has waited for all: until it answers again, calls fail at once."""

    _line: _Line | None = None
    _connecting: asyncio.Task[_Line] | None = None
    _is_silent = False

    async def execute_command(self, *args: Any, **_: Any) -> Any:
        """Raises `redis.RedisError`."""
        line = self._line
        if line is None or line.is_closed:
            connecting = self._connected()
            if self._is_silent:
                raise redis.TimeoutError("Redis has not answered; it is asked again meanwhile")
            line = await asyncio.shield(connecting)
        try:
            return await line.ask(args)
        except redis.TimeoutError:
            self._is_silent = True
            raise

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - as redis-py calls it
        if self._line is not None:
            self._line.close()
        await super().aclose(close_connection_pool)

    def _connected(self) -> asyncio.Task[_Line]:
        """Callers that come while it connects share the connection, or the failure."""
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._end_connecting)
        return self._connecting

    async def _connect(self) -> _Line:
        connection = self.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py's
        try:
            await connection.connect()
        except redis.TimeoutError:
            self._is_silent = True
            raise
        self._is_silent = False
        self._line = _Line(connection, connection.socket_timeout)
        return self._line

    def _end_connecting(self, task: asyncio.Task[_Line]) -> None:
        self._connecting = None
        # those who asked may be gone by then
        _ = task.cancelled() or task.exception()


class _Line(asyncio.Protocol):
    """Takes over a connection that redis-py has made, so the ways to reach a Redis (TLS, password) are the same."""

    def __init__(self, connection: Any, timeout: float) -> None:
        # the writer would close the connection when it is collected
        self._writer = connection._writer  # noqa: SLF001 - redis-py has no other way to hand it over
        connection._reader = connection._writer = None  # noqa: SLF001 - as above
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._replies = hiredis.Reader(replyError=_refusal)
        #: The commands without an answer, the oldest first, each with the time at which it is late.
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        self._transport = self._writer.transport
        self._transport.set_protocol(self)

    async def ask(self, command: tuple[Any, ...]) -> Any:
        """Raises `redis.RedisError`."""
        name = command[0]
        packed = hiredis.pack_command((*name.split(), *command[1:]) if " " in name else command)
        late_at = self._loop.time() + self._timeout
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((answer, late_at))
        if self._timer is None:
            self._timer = self._loop.call_at(late_at, self._look)
        self._transport.write(packed)
        reply = await answer
        if isinstance(reply, redis.RedisError):
            raise reply
        return reply

    def close(self) -> None:
        self._fail(redis.ConnectionError("the connection is closed"))

    def data_received(self, data: bytes) -> None:
        self._replies.feed(data)
        try:
            while (reply := self._replies.gets()) is not False:
                answer, _ = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self._fail(redis.ConnectionError("Redis answered what was not asked"))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(redis.ConnectionError(f"Redis closed the connection ({error or 'without a word'})"))

    def _look(self) -> None:
        """Whether the oldest command is late."""
        self._timer = None
        if not self._waiting:
            return
        if self._waiting[0][1] <= self._loop.time():
            self._fail(redis.TimeoutError("Redis did not answer in time"))
        else:
            self._timer = self._loop.call_at(self._waiting[0][1], self._look)

    def _fail(self, error: redis.RedisError) -> None:
        """All commands that wait have the same fate: an answer that comes late would be taken for the next one's."""
        self.is_closed = True
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for answer, _ in waiting:
            if not answer.done():
                note_unanswered("Redis")
                answer.set_exception(error)


def _refusal(message: str) -> redis.RedisError:
    kind = redis.exceptions.NoScriptError if message.startswith("NOSCRIPT") else redis.ResponseError
    return kind(message)
