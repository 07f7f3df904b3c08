"""The ways to connect to Redis. Every pool and every call has a limit: Redis only saves time, and may be away."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.clock import remaining
from gateway.stores.unanswered import note_unanswered

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
