"""How often a crawl may ask: by itself, or together with the other crawls of its site."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.redis.rate_limit import RateLimit

logger = logging.getLogger(__name__)

#: How far ahead of its time a slot is reserved: enough for a busy loop to miss none, and all that a crawl which is
#: killed can leave unused beside the one it waits for.
AHEAD_SECONDS = 0.1
#: How long a Redis that failed is left alone: twice as long each time, at most the second.
REST_SECONDS = 1.0
REST_SECONDS_MAX = 15.0


class Slots(Protocol):
    """Where slots come from."""

    async def reserve(self) -> float:
        """Take the next one; the seconds until then."""

    async def withdraw(self) -> None:
        """Give the newest back."""

    async def close(self) -> None:
        """No more will be asked for."""


class OwnSlots:
    """This crawl's alone, `rate` a second, an interval apart."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._next = 0.0

    async def reserve(self) -> float:
        now = monotonic()
        self._next = max(self._next, now)
        wait = self._next - now
        self._next += self._interval
        return wait

    async def withdraw(self) -> None:
        self._next -= self._interval

    @property
    def left(self) -> float:
        """Seconds until the next one that nobody has."""
        return self._next - monotonic()

    def follow(self, wait: float) -> None:
        """The newest slot, `wait` seconds from now, came from elsewhere."""
        self._next = monotonic() + wait + self._interval

    async def close(self) -> None:
        """It is only a number."""


class SharedSlots:
    """Those of all crawls of a site. While Redis is away this crawl takes the whole rate for itself: it neither fails
    nor stands still for want of an answer.
    """

    def __init__(self, shared: RateLimit, own: OwnSlots, site: str) -> None:
        self._shared = shared
        self._own = own
        self._site = site
        self._rests_until = 0.0
        self._rest = REST_SECONDS
        self._is_away = False

    async def reserve(self) -> float:
        if monotonic() < self._rests_until:
            return await self._own.reserve()
        try:
            wait = await self._shared.reserve()
            while self._is_away and wait < self._own.left:
                # taken already, while Redis knew nothing of it
                wait = await self._shared.reserve()
        except _unreachable() as error:
            self._begin_rest(error)
            return await self._own.reserve()
        self._end_rest()
        self._own.follow(wait)
        return wait

    async def withdraw(self) -> None:
        if not self._is_away:
            with suppress(*_unreachable()):
                await self._shared.withdraw()

    async def close(self) -> None:
        with suppress(*_unreachable()):
            await self._shared.close()

    def _begin_rest(self, error: Exception) -> None:
        if not self._is_away:
            reason = str(error) or "no answer in time"
            logger.warning(
                "The rate limit of site %s is held by this crawl alone until Redis answers again: %s",
                self._site, reason,
            )  # fmt: skip
        self._is_away = True
        self._rests_until = monotonic() + self._rest
        self._rest = min(REST_SECONDS_MAX, self._rest * 2)

    def _end_rest(self) -> None:
        if self._is_away:
            logger.info("The rate limit of site %s is held together with its other crawls again", self._site)
        self._is_away, self._rest = False, REST_SECONDS


def _unreachable() -> tuple[type[Exception], ...]:
    # the Redis client takes a tenth of a second to import; who gets here has it
    from redis.exceptions import RedisError  # noqa: PLC0415 - as said above

    return (RedisError, OSError)


class Gate:
    """Lets one request after the other through, each at its slot, in the order in which they came."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._next = asyncio.Lock()

    async def wait(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Until it is this request's turn. `sleep` may raise: the slot is then given back where that is possible."""
        async with self._next:
            at = await self._slots.reserve() + monotonic()
            early = at - AHEAD_SECONDS - monotonic()
            if early > 0:
                # nobody behind has one yet
                try:
                    await sleep(early)
                except BaseException:
                    await self._slots.withdraw()
                    raise
        if (left := at - monotonic()) > 0:
            await sleep(left)

    async def close(self) -> None:
        await self._slots.close()
