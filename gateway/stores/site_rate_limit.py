"""One rate for many processes: the generic cell rate algorithm (GCRA) on one Redis key, in Redis's own time.

The key holds the theoretical arrival time of the next request, in microseconds. Each reservation gets the next free
time and moves the key on by one interval. So, with any number of processes, reserved times lie an interval apart and
are given out in the order of asking.
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
#: How many reservations may lie ahead of the present. A key that is further ahead is ignored: a clock was set back.
MAX_RESERVED = 256
_MICROSECONDS = 1_000_000

# KEYS: key; ARGV: interval, how much of it may be saved up, how far ahead the key may be; all in microseconds.
# Answers how long to wait, and what the key was set to. `%.0f`: Lua would write 1.7e+15.
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
# KEYS: key; ARGV: what a reservation set it to, interval. Does nothing if others have reserved since.
_WITHDRAW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tonumber(ARGV[1]) - tonumber(ARGV[2])), 'KEEPTTL')
return 1
"""


def rate_key(kind: Literal["site", "host"], name: str) -> str:
    """Key of a string: the theoretical arrival time of the next request of all crawls to the site or host."""
    return f"rate:{kind}:{name}"


class SiteRateLimit:
    """At most `rate` requests per second on `key`; after a rest, `burst` of them at once."""

    def __init__(self, client: redis.asyncio.Redis, key: str, rate: float, *, burst: int = 1) -> None:
        self._client = client
        self._key = key
        self._interval = max(1, round(_MICROSECONDS / rate))
        self._saved = (burst - 1) * self._interval
        #: Clients may reserve ahead for a moment (a quarter of a second each), even if the interval is shorter.
        self._horizon = MAX_RESERVED * max(self._interval, _MICROSECONDS // 4) + self._saved
        self._newest = ""
        self._reserve = client.register_script(_RESERVE)
        self._withdraw = client.register_script(_WITHDRAW)

    @classmethod
    def open(cls, url: str, key: str, rate: float) -> Self:
        """A limit with a connection of its own, for the event loop that first uses it.

        A spider's process makes it, whose Python may have an older redis-py and no hiredis.
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
        """Give the newest reservation back, unless another client has reserved since. Raises as `reserve` does."""
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._withdraw(keys=[self._key], args=[self._newest, self._interval])

    async def close(self) -> None:
        await self._client.aclose()
