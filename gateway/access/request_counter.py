"""Limits how many requests each caller may make. Redis counts them for all gateway processes together.

It is a sliding window counter: during a window, the count of the window before is weighted less and less. It needs
two small keys per caller and one script per request, for any limit. If Redis cannot be reached, requests are let
through.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from limits import RateLimitItem, parse_many
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from redis import RedisError

from gateway.stores.redis import REQUEST_RATES, connect_async

#: Seconds that a request may wait for a Redis that does not answer.
_PATIENCE = 0.5
#: After a failure, Redis is not asked for this many seconds.
_REST = 2.0
#: For this many seconds a verdict is used again: refusals are repeated, and remaining requests estimated, without
#: Redis.
_FRESH = 1.0
#: For how many callers the last verdict is remembered.
_MOST = 1000


class Left(NamedTuple):
    """How much a caller has left of one limit."""

    #: How many requests are allowed in `window` seconds.
    quota: int
    window: int
    #: How many of these requests are left.
    remaining: int
    #: Seconds until more requests are allowed.
    reset: int


class Verdict(NamedTuple):
    """Whether a request is allowed, and what its caller has left."""

    #: One for each limit.
    left: Sequence[Left]
    #: Seconds after which to ask again; `None` if the request is allowed.
    wait: int | None = None


class _Known(NamedTuple):
    at: float
    verdict: Verdict


def parse_rates(text: str) -> tuple[RateLimitItem, ...]:
    """The limits in a text such as `1200/minute;50/second`: the strictest limit of each window, the shortest window
    first.

    Raises `ValueError`.
    """
    strictest = {item.get_expiry(): item for item in sorted(parse_many(text), key=lambda item: -item.amount)}
    return tuple(strictest[window] for window in sorted(strictest))


class RequestCounter:
    """Counts requests, for use on one event loop."""

    def __init__(self, url: str, tell: Callable[[Exception | None], None]) -> None:
        """`tell` is called with the error when Redis fails, and with `None` when it works again."""
        self._tell = tell
        self._client = connect_async(url, timeout=_PATIENCE)
        # only the scheme of this URL is used: the connection pool has the address
        self._storage = RedisStorage(
            "async+redis://",
            implementation="redispy",
            key_prefix=REQUEST_RATES,
            connection_pool=self._client.connection_pool,  # type: ignore[arg-type]  # declared without it
        )
        self._limiter = SlidingWindowCounterRateLimiter(self._storage)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._rests_until = 0.0
        self._is_away = False

    async def take(self, caller: str, limits: Sequence[RateLimitItem]) -> Verdict | None:
        """Count one request of this caller, and return the verdict. If Redis does not answer, an earlier refusal is
        repeated until its wait is over; if there was none, this returns `None`.
        """
        if time.monotonic() < self._rests_until:
            return self._refused(caller)
        try:
            verdict = await self._take(caller, limits)
        except (RedisError, OSError, TimeoutError) as error:
            self._rest(error)
            return self._refused(caller)
        if self._is_away:
            self._is_away = False
            self._tell(None)
        return verdict

    async def close(self) -> None:
        await self._client.aclose()

    def _refused(self, caller: str) -> Verdict | None:
        known = self._known.get(caller)
        if known is None or known.verdict.wait is None:
            return None
        wait = math.ceil(known.at + known.verdict.wait - time.monotonic())
        left = [one._replace(reset=wait) if one.remaining == 0 else one for one in known.verdict.left]
        return Verdict(left, wait) if wait > 0 else None

    async def _take(self, caller: str, limits: Sequence[RateLimitItem]) -> Verdict:
        known = self._known.get(caller)
        fresh = known.verdict if known and known.at + _FRESH > time.monotonic() else None
        if fresh and fresh.wait is not None:
            # no query for a caller that does not wait
            return fresh
        for item in limits:
            if not await self._limiter.hit(item, caller):
                return self._remember(caller, await self._refusal(caller, item, limits))
        if fresh is None:
            return self._remember(caller, Verdict([await self._ask(caller, item) for item in limits]))
        # this is an estimate, as the number is only a hint
        less = Verdict([one._replace(remaining=max(0, one.remaining - 1)) for one in fresh.left])
        self._known[caller] = _Known(known.at if known else 0.0, less)
        return less

    async def _refusal(self, caller: str, spent: RateLimitItem, limits: Sequence[RateLimitItem]) -> Verdict:
        wait = await self._wait(caller, spent)
        left = [await self._ask(caller, item) for item in limits]
        gone = spent.get_expiry()
        return Verdict([one._replace(remaining=0, reset=wait) if one.window == gone else one for one in left], wait)

    def _remember(self, caller: str, verdict: Verdict) -> Verdict:
        self._known[caller] = _Known(time.monotonic(), verdict)
        self._known.move_to_end(caller)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return verdict

    async def _ask(self, caller: str, item: RateLimitItem) -> Left:
        window = item.get_expiry()
        before, fades_in, count, ends_in = await self._storage.get_sliding_window(item.key_for(caller), window)
        used = math.floor(before * fades_in / window) + count
        reset = math.ceil(ends_in - window) if ends_in > window else window
        return Left(item.amount, window, max(0, item.amount - used), max(1, reset))

    async def _wait(self, caller: str, item: RateLimitItem) -> int:
        """Seconds until one more request is allowed."""
        window = item.get_expiry()
        before, fades_in, count, ends_in = await self._storage.get_sliding_window(item.key_for(caller), window)
        if count >= item.amount:
            # the present window must end first, so that its count begins to lose weight
            return max(1, math.ceil(ends_in - window))
        faded = (item.amount - count) * window / before if before else window
        return max(1, math.ceil(fades_in - faded))

    def _rest(self, error: Exception) -> None:
        self._rests_until = time.monotonic() + _REST
        if not self._is_away:
            self._tell(error)
        self._is_away = True
