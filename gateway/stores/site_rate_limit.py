"""One rate limit for many processes: the generic cell rate algorithm (GCRA) on one Redis key, with Redis's own time.

The key contains the theoretical arrival time of the next request, in microseconds. Each reservation gets the next
free time, and moves the key forward by one interval. So the reserved times of all processes are an interval apart, in
the order of the reservations.
"""

from __future__ import annotations

import asyncio
from typing import Literal, Self

import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff

from gateway.crash_points import state_change

#: Longest wait for an answer, in seconds, including the time to connect.
ANSWER_SECONDS = 0.5
#: How many reservations may lie in the future. A key that is further ahead is ignored, because a clock was set back.
MAX_RESERVED = 256
_MICROSECONDS = 1_000_000

# KEYS: key; ARGV: interval, how much unused time may be saved up for a burst, how far ahead the key may be; all in
# microseconds. Returns how long to wait, and the key's new value. `%.0f`, because Lua would write 1.7e+15.
_RESERVE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local next_at = tonumber(redis.call('GET', KEYS[1]) or now) or now
if not (next_at >= now and next_at <= now + tonumber(ARGV[3])) then next_at = now end
local wait = math.max(0, next_at - tonumber(ARGV[2]) - now)
next_at = next_at + tonumber(ARGV[1])
local kept = math.ceil((next_at - now) / 1000) + 1000
redis.call('SET', KEYS[1], string.format('%.0f', next_at), 'PX', string.format('%.0f', kept))
return {wait, string.format('%.0f', next_at)}
"""
# KEYS: key; ARGV: the value that a reservation has set, interval. Does nothing if others have reserved since.
_WITHDRAW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tonumber(ARGV[1]) - tonumber(ARGV[2])), 'KEEPTTL')
return 1
"""


def rate_key(kind: Literal["site", "host"], name: str) -> str:
    """The key for all crawls of the site or host. Its string is the theoretical arrival time of the next request."""
    return f"rate:{kind}:{name}"


class SiteRateLimit:
    """At most `rate` requests per second on `key`; after a pause, up to `burst` requests at once."""

    def __init__(self, client: redis.asyncio.Redis, key: str, rate: float, *, burst: int = 1) -> None:
        self._client = client
        self._key = key
        self._interval = max(1, round(_MICROSECONDS / rate))
        self._saved = (burst - 1) * self._interval
        #: How far ahead the key may be. A reservation counts for at least a quarter of a second, even if the interval
        #: is shorter.
        self._horizon = MAX_RESERVED * max(self._interval, _MICROSECONDS // 4) + self._saved
        self._newest = ""
        self._reserve = client.register_script(_RESERVE)
        self._withdraw = client.register_script(_WITHDRAW)

    @classmethod
    def open(cls, url: str, key: str, rate: float) -> Self:
        """A limit with a connection of its own, for the event loop that first uses it.

        This runs in spiders' processes, where redis-py may be older and hiredis missing.
        """
        pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
            **dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"), ANSWER_SECONDS),
        )
        return cls(redis.asyncio.Redis.from_pool(pool), key, rate)

    def beside(self, key: str, rate: float) -> SiteRateLimit:
        """Another limit, over the same connections."""
        return SiteRateLimit(self._client, key, rate)

    @state_change("rate.reserve")
    async def reserve(self) -> float:
        """Reserve the next free time, and return the seconds until then. Raises `redis.RedisError`, `OSError`
        (`TimeoutError`).
        """
        async with asyncio.timeout(ANSWER_SECONDS):
            wait, newest = await self._reserve(keys=[self._key], args=[self._interval, self._saved, self._horizon])
        self._newest = newest.decode()
        return int(wait) / _MICROSECONDS

    @state_change("rate.withdraw")
    async def withdraw(self) -> None:
        """Give back the newest reservation, unless another client has reserved since. Raises as `reserve` does."""
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._withdraw(keys=[self._key], args=[self._newest, self._interval])

    async def close(self) -> None:
        await self._client.aclose()
