"""How often a crawl may send requests: its pauses, its own rate, and the limits that it shares with other crawls,
which are the rate of its site and the delay that a host's robots.txt wants.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from contextlib import asynccontextmanager, nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

from scrapy import signals
from scrapy.utils.httpobj import urlparse_cached

from crawler import extras
from crawler.closing import StoppedError, is_closing
from crawler.orders import Fetch
from crawler.setting_names import FETCH_OPTIONS, RATE_LIMIT_REDIS_URL, RATE_LIMIT_SITE, SITE_RATE_LIMIT
from gateway.contract.param_formats import parse_rate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from gateway.stores.site_rate_limit import SiteRateLimit


logger = logging.getLogger(__name__)

#: How many seconds ahead the next turn may be reserved: enough for a busy loop to miss no turn, and little enough
#: that a killed crawl leaves few turns unused.
AHEAD_SECONDS = 0.1
#: Seconds for which a Redis that failed is not asked. They are doubled each time, up to the second value.
REST_SECONDS = 1.0
REST_SECONDS_MAX = 15.0


class Rate(Protocol):
    """A source of turns: each request needs one."""

    async def reserve(self) -> float:
        """Take the next turn, and return the seconds until its time."""

    async def withdraw(self) -> None:
        """Give back the turn that was taken last."""

    async def close(self) -> None:
        """Close connections; no more turns are taken."""


class OwnRate:
    """Turns for this crawl alone: `rate` in a second, at equal intervals."""

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
        """Seconds until the next free turn."""
        return self._next - monotonic()

    def follow(self, wait: float) -> None:
        """Note a turn that came from the shared rate and is `wait` seconds from now."""
        self._next = monotonic() + wait + self._interval

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""


class SharedRate:
    """Turns that all crawls of a site or host share through Redis. While Redis does not answer, this crawl uses the
    whole rate alone, so that it neither fails nor waits.
    """

    def __init__(self, shared: SiteRateLimit, own: OwnRate, what: str) -> None:
        self.limit = shared
        self._own = own
        self._what = what
        self._rests_until = 0.0
        self._rest = REST_SECONDS
        self._is_away = False

    async def reserve(self) -> float:
        if monotonic() < self._rests_until:
            return await self._own.reserve()
        try:
            wait = await self.limit.reserve()
            while self._is_away and wait < self._own.left:
                # this crawl has used that turn while Redis did not answer
                wait = await self.limit.reserve()
        except _unreachable() as error:
            self._begin_rest(error)
            return await self._own.reserve()
        self._end_rest()
        self._own.follow(wait)
        return wait

    async def withdraw(self) -> None:
        if not self._is_away:
            with suppress(*_unreachable()):
                await self.limit.withdraw()

    async def close(self) -> None:
        with suppress(*_unreachable()):
            await self.limit.close()

    def _begin_rest(self, error: Exception) -> None:
        if not self._is_away:
            reason = str(error) or "no answer in time"
            logger.warning("%s holds for this crawl alone until Redis answers again: %s", self._what, reason)
        self._is_away = True
        self._rests_until = monotonic() + self._rest
        self._rest = min(REST_SECONDS_MAX, self._rest * 2)

    def _end_rest(self) -> None:
        if self._is_away:
            logger.info("%s holds for all of its crawls together again", self._what)
        self._is_away, self._rest = False, REST_SECONDS


def _unreachable() -> tuple[type[Exception], ...]:
    # imported here, because it takes a tenth of a second; a crawl with a Redis has imported it already
    from redis.exceptions import RedisError  # noqa: PLC0415 - as said above

    return (RedisError, OSError)


class Gate:
    """Lets requests through one after the other, in the order in which they came, each at its turn."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._next = asyncio.Lock()

    async def wait(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Wait for this request's turn. If `sleep` raises, the turn is given back where that is possible."""
        async with self._next:
            at = await self._rate.reserve() + monotonic()
            early = at - AHEAD_SECONDS - monotonic()
            if early > 0:
                # the turn can be given back, because no later one was taken yet
                try:
                    await sleep(early)
                except BaseException:
                    await self._rate.withdraw()
                    raise
        if (left := at - monotonic()) > 0:
            await sleep(left)

    async def close(self) -> None:
        await self._rate.close()


# --- when a request is sent: after the pause of its host, within the concurrency, and at the rate that are allowed
#
# A turn is taken at the last moment, between Scrapy's queues and the connection. So pages from the cache take no
# turn, and the page's time-out does not run during the wait.

#: Seconds within which a waiting crawl notices that it is asked to stop, however long the pause.
LOOK_SECONDS = 0.25


class Pauses(NamedTuple):
    """Range of the pauses (seconds) between two requests to a host; each pause is drawn at random."""

    shortest: float
    longest: float

    @classmethod
    def of(cls, options: Fetch) -> Self | None:
        shortest, longest = options.min_pause_seconds, options.max_pause_seconds
        if shortest is None and longest is None:
            return None
        return cls(shortest or 0.0, max(shortest or 0.0, longest or 0.0))

    def draw(self) -> float:
        return random.uniform(self.shortest, self.longest)  # noqa: S311 - to look like a person, not to be secret


class _Host:
    """A host's pause; the lock lets one request at a time wait for it."""

    def __init__(self) -> None:
        self.next = asyncio.Lock()
        self.not_before = 0.0


class Pacing:
    """Extension from which every download handler gets a turn for each request."""

    def __init__(self, crawler: Crawler, pauses: Pauses | None, places: int | None, gates: list[Gate]) -> None:
        self._crawler = crawler
        self._pauses = pauses
        self._place = asyncio.Semaphore(places) if places else nullcontext()
        self._gates = gates
        self._apart: dict[str, Gate] = {}
        #: All hosts share the connections of this one, because a crawl may visit thousands of hosts.
        self._of_host: Rate | None = None
        self._hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self._holds = bool(pauses or gates or places)
        self._sleepers = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        options = crawler.settings.get(FETCH_OPTIONS) or Fetch()
        pauses, gates = Pauses.of(options), _gates(crawler.settings, options)
        if pauses:
            logger.info("Pausing for %g to %g s between two requests to a host", pauses.shortest, pauses.longest)
        self = cls(crawler, pauses, options.concurrency, gates)
        crawler.signals.connect(self.close, signals.engine_stopped)
        return self

    def keep_apart(self, host: str, seconds: float) -> None:
        """From now on, send the requests of all crawls to this host (with its port) at least `seconds` apart."""
        redis_url = self._crawler.settings.get(RATE_LIMIT_REDIS_URL)
        self._of_host = _shared("host", host, 1 / seconds, redis_url, self._of_host)
        self._apart[host] = Gate(self._of_host)
        self._holds = True

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[None]:
        """Wait until the request can be sent. Raises `StoppedError` if the crawl is closed first."""
        if not self._holds:
            yield
            return
        url = urlparse_cached(request)
        host = self._hosts[url.hostname or ""] if self._pauses else _Host()
        apart = self._apart.get(url.netloc)
        async with host.next:
            await self._sleep(host.not_before - monotonic())
            if apart:
                await apart.wait(self._sleep)
            await self._place.__aenter__()
            try:
                for gate in self._gates:
                    await gate.wait(self._sleep)
                self._go_on()
            except BaseException:
                await self._place.__aexit__(None, None, None)
                raise
            host.not_before = monotonic() + (self._pauses.draw() if self._pauses else 0)
        try:
            yield
        finally:
            await self._place.__aexit__(None, None, None)

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits for its turn."""
        return self._sleepers > 0

    async def close(self) -> None:
        for gate in (*self._gates, *self._apart.values()):
            await gate.close()

    async def _sleep(self, seconds: float) -> None:
        until = monotonic() + seconds
        self._go_on()
        self._sleepers += 1
        try:
            while (left := until - monotonic()) > 0:
                await asyncio.sleep(min(left, LOOK_SECONDS))
                self._go_on()
        finally:
            self._sleepers -= 1

    def _go_on(self) -> None:
        if (self._pauses or self._gates or self._apart) and is_closing(self._crawler):
            raise StoppedError("the crawl was stopped")


def _gates(settings: BaseSettings, options: Fetch) -> list[Gate]:
    """The gates of a crawl. Its own limit comes first, so that no turn of the site is held while it waits
    for that.
    """
    gates = [Gate(OwnRate(parse_rate(options.rate_limit)))] if options.rate_limit else []
    limit, site = settings.get(SITE_RATE_LIMIT), settings.get(RATE_LIMIT_SITE)
    if limit and site:
        gates.append(Gate(_shared("site", site, parse_rate(limit), settings.get(RATE_LIMIT_REDIS_URL))))
        logger.info("Asking for at most %s together with all other crawls of site %s", limit, site)
    return gates


_WHAT = {"site": "The rate limit of site %s", "host": "The crawl delay of %s"}


def _shared(
    kind: Literal["site", "host"], name: str, rate: float, redis_url: str | None, beside: Rate | None = None
) -> Rate:
    """The turns at a site or a host, shared with other crawls if the node has a Redis for that. It uses the
    connections of the rate `beside`, if there is one.
    """
    what, own = _WHAT[kind] % name, OwnRate(rate)
    if not redis_url:
        logger.warning("%s holds for this crawl alone: the node has no Redis to share it", what)
        return own
    if not extras.has("redis"):
        logger.warning("%s holds for this crawl alone: the project's Python lacks redis", what)
        return own
    # a tenth of a second that few crawls need
    from gateway.stores.site_rate_limit import SiteRateLimit, rate_key  # noqa: PLC0415 - as above

    key = rate_key(kind, name)
    limit = beside.limit.beside(key, rate) if isinstance(beside, SharedRate) else None
    return SharedRate(limit or SiteRateLimit.open(redis_url, key, rate), own, what)


# --- a `start()` that never awaits must not block everything else


class StartPace:
    """Spider middleware nearest to the engine. It lets the event loop run between requests of `start()`, and stops
    when the spider closes. Otherwise an endless `start()` that awaits nothing would block downloads and the closing.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for one in start:
            if is_closing(self._crawler):
                return
            yield one
            if self._crawler.engine and self._crawler.engine.needs_backout():
                await asyncio.sleep(0)
