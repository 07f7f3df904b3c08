"""The ways to connect to Redis. Every pool and every call has a limit: Redis is speed, and may be away."""

from __future__ import annotations

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

_TIMEOUT = 2.0
_MAX_CONNECTIONS = 64


def connect(url: str, *, timeout: float = _TIMEOUT) -> redis.Redis:
    """A synchronous client; a call waits at most `timeout` seconds for a connection and again for the answer."""
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=_MAX_CONNECTIONS,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        health_check_interval=30,
        retry=Retry(NoBackoff(), 1),
    )
    return redis.Redis.from_pool(pool)


def connect_async(url: str, *, timeout: float = _TIMEOUT) -> redis.asyncio.Redis:
    """The same for the event loop. Plain pools of redis-py raise at their limit; this one waits."""
    pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=_MAX_CONNECTIONS,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
    )
    return redis.asyncio.Redis.from_pool(pool)
