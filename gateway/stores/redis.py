"""Redis: the names of all keys, and the ways to connect. Each pool and call has a time limit: Redis only saves time,
and everything must work without it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.clock import remaining
from gateway.stores.unanswered import note_unanswered

log = structlog.get_logger()

# --- all names of keys and channels in Redis, except the key of a site's rate, which spiders' processes need
# (`gateway/stores/site_rate_limit.py`)

#: Status changes of every job, for `/events`.
ALL_EVENTS = "events"
#: Prefix of the counts of each caller's requests; the counting library adds the rest.
REQUEST_RATES = "rate:requests"


def dedupe_key(user_id: str, spider: str, fingerprint: str) -> str:
    """String `P|<job id>|<ms>` (provisional) or `C|<job id>|<ms>` (the document exists)."""
    return f"crawl:{user_id}:{spider}:{fingerprint}"


def log_stream(job_id: str, attempt: int) -> str:
    """Stream of one attempt's live lines; entry ids are `<attempt>-<end offset>`."""
    return f"logs:{job_id}:{attempt}"


def job_channel(job_id: str) -> str:
    """Pub/sub channel of one job, for log lines, progress and status changes (see `gateway/jobs/messages.py`)."""
    return f"logs:{job_id}"


# --- connections

_TIMEOUT = 2.0
_MAX_CONNECTIONS = 64
#: Seconds between two tries while Redis does not answer.
_LOOK_SECONDS = 1.0


def _limits(timeout: float) -> dict[str, Any]:
    limits = dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"), timeout)
    return {**limits, "max_connections": _MAX_CONNECTIONS}


class _Retry(Retry):
    """Retries once, because a firewall may have dropped the connection; but not after the deadline."""

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

        async def sent() -> Any:
            try:
                return await do()
            except RuntimeError:
                # uvloop's error if the system has closed the connection since its last use: nothing was sent.
                # redis-py has dropped this connection, and opens another one for the same command
                return await do()

        return await super().call_with_retry(sent, fail, may_retry, *rest, **options)


class _Pool(redis.BlockingConnectionPool):
    """A pool whose connections time out at the caller's deadline."""

    def get_connection(self, *names: Any, **options: Any) -> Any:
        seconds = remaining(self.connection_kwargs["socket_timeout"])
        if seconds <= 0:
            raise redis.TimeoutError("no time is left to ask Redis")
        connection: Any = super().get_connection(*names, **options)  # type: ignore[no-untyped-call]  # redis-py's
        connection.socket_timeout = connection.socket_connect_timeout = seconds
        # for a connection that is already open
        connection.update_current_socket_timeout(seconds)
        return connection


def connect(url: str, *, timeout: float = _TIMEOUT) -> redis.Redis:
    """A synchronous client. A call waits at most `timeout` seconds for a connection, and again for the answer. It
    does not wait after the deadline of its block (`within`).
    """
    pool = _Pool.from_url(url, health_check_interval=30, retry=_Retry(NoBackoff(), 1), **_limits(timeout))
    return redis.Redis.from_pool(pool)


def connect_async(url: str, *, timeout: float = _TIMEOUT) -> redis.asyncio.Redis:
    """As `connect`, for the event loop. If all connections of the pool are in use, a call waits for one."""
    return redis.asyncio.Redis.from_pool(_async_pool(url, timeout))


def connect_wary(url: str, *, timeout: float = _TIMEOUT) -> redis.asyncio.Redis:
    """As `connect_async`, for callers that can do without Redis: while Redis does not answer, calls fail at once."""
    return _WaryRedis.from_pool(_async_pool(url, timeout))


def _async_pool(url: str, timeout: float) -> redis.asyncio.BlockingConnectionPool:
    pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
        url, retry=_AsyncRetry(NoBackoff(), 0), **_limits(timeout)
    )
    return pool


class _WaryRedis(redis.asyncio.Redis):
    """Once a call has found that Redis does not answer, all further calls fail at once, until Redis answers again."""

    _looking: asyncio.Task[None] | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Raises `redis.RedisError`."""
        if self._looking is not None:
            raise redis.TimeoutError("Redis has not answered, and is being asked again")
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py's
        except redis.TimeoutError:
            if self._looking is None:
                log.warning("redis_is_silent")
                # outside the request's context, because the task serves all requests
                self._looking = asyncio.get_running_loop().create_task(self._look(), context=Context())
            raise

    async def _look(self) -> None:
        while True:
            with suppress(redis.RedisError):
                await super().execute_command("PING")  # type: ignore[no-untyped-call]  # redis-py's
                self._looking = None
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - as redis-py calls it
        if self._looking is not None:
            self._looking.cancel()
        await super().aclose(close_connection_pool)
