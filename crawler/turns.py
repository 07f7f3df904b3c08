"""When a request may go out: after the pause its host is given, when there is a place, and at the rate allowed.

A turn is taken at the last moment, between Scrapy's queues and the connection: what is answered from the cache takes
none, and no time-out of the page runs while it is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from contextlib import asynccontextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Self

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.httpobj import urlparse_cached

from crawler.closing import StoppedError, is_closing
from crawler.request_rate import Gate, OwnSlots, SharedSlots
from crawler.setting_names import FETCH_OPTIONS, RATE_LIMIT_REDIS_URL, RATE_LIMIT_SITE, SITE_RATE_LIMIT
from gateway.domain import redis_keys
from gateway.domain.fetch_options import FetchOptions, parse_rate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from crawler.request_rate import Slots

logger = logging.getLogger(__name__)

#: Within it a crawl that is asked to stop notices it, however long the pause.
LOOK_SECONDS = 0.25


class Pauses(NamedTuple):
    """Seconds between two requests to a host, each drawn anew from between the two."""

    shortest: float
    longest: float

    @classmethod
    def of(cls, options: FetchOptions) -> Self | None:
        shortest, longest = options.min_pause_seconds, options.max_pause_seconds
        if shortest is None and longest is None:
            return None
        return cls(shortest or 0.0, max(shortest or 0.0, longest or 0.0))

    def draw(self) -> float:
        return random.uniform(self.shortest, self.longest)  # noqa: S311 - to look like a person, not to be secret


class _Host:
    """One at a time waits for its pause."""

    def __init__(self) -> None:
        self.next = asyncio.Lock()
        self.not_before = 0.0


class Turns:
    """Extension that every download handler asks; there is none in a crawl that is not held."""

    def __init__(self, crawler: Crawler, pauses: Pauses | None, places: int | None, gates: list[Gate]) -> None:
        self._crawler = crawler
        self._pauses = pauses
        self._place = asyncio.Semaphore(places) if places else nullcontext()
        self._gates = gates
        self._hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self._sleepers = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        options = crawler.settings.get(FETCH_OPTIONS) or FetchOptions()
        pauses, gates = Pauses.of(options), _gates(crawler.settings, options)
        if not (pauses or gates or options.concurrency):
            raise NotConfigured
        if pauses:
            logger.info("Pausing for %g to %g s between two requests to a host", pauses.shortest, pauses.longest)
        self = cls(crawler, pauses, options.concurrency, gates)
        crawler.signals.connect(self.close, signals.engine_stopped)
        return self

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[None]:
        """Raises `StoppedError` if the crawl is closed before it comes."""
        host = self._hosts[urlparse_cached(request).hostname or ""] if self._pauses else _Host()
        async with host.next:
            await self._sleep(host.not_before - monotonic())
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
        """Whether a request waits for its time to come, and not for an answer."""
        return self._sleepers > 0

    async def close(self) -> None:
        for gate in self._gates:
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
        if (self._pauses or self._gates) and is_closing(self._crawler):
            raise StoppedError("the crawl was stopped")


def _gates(settings: BaseSettings, options: FetchOptions) -> list[Gate]:
    """The crawl's own limit first: a slot of the site's is worth more."""
    gates = [Gate(OwnSlots(parse_rate(options.rate_limit)))] if options.rate_limit else []
    limit, site = settings.get(SITE_RATE_LIMIT), settings.get(RATE_LIMIT_SITE)
    if limit and site:
        gates.append(Gate(_site_slots(site, parse_rate(limit), settings.get(RATE_LIMIT_REDIS_URL))))
        logger.info("Asking for at most %s together with all other crawls of site %s", limit, site)
    return gates


def _site_slots(site: str, rate: float, redis_url: str | None) -> Slots:
    own = OwnSlots(rate)
    if not redis_url:
        logger.warning("The rate limit of site %s is held by this crawl alone: it is told of no Redis", site)
        return own
    from gateway.redis.rate_limit import RateLimit  # noqa: PLC0415 - a tenth of a second that few crawls need

    return SharedSlots(RateLimit.open(redis_url, redis_keys.site_rate(site), rate), own, site)
