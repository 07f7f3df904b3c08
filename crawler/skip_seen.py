"""Skips pages that have given items lately, for spiders that ask for that (`SKIP_SEEN = "24h"`), as the plugin
DeltaFetch does.

Such pages are remembered in the Redis of the HTTP cache. If it fails, pages are fetched again, which does no harm.
"""

from __future__ import annotations

import logging
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from redis.exceptions import RedisError
from scrapy import signals
from scrapy.exceptions import IgnoreRequest

from crawler.http_cache import CachePause, connect
from crawler.report.crawl_limits import is_new_page
from crawler.scrapy_versions import middleware
from crawler.setting_names import HTTPCACHE_USER, SKIP_SEEN_SPIDER
from gateway.contract.seen_pages import SKIP_SEEN, SKIPPED_SEEN, read_period

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis import Redis
    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: At most this many pages of one crawl are remembered: each takes some 100 bytes of memory.
MOST_PAGES = 1_000_000
#: Pages that are sent to Redis at a time.
_BATCH = 1000


class SeenPages:
    """Which pages of one user's spider have given items, and when."""

    def __init__(self, redis: Redis, prefix: str, seconds: int) -> None:
        self._redis = redis
        self._prefix = prefix
        self._seconds = seconds
        self._pause = CachePause()

    def has(self, fingerprint: bytes) -> bool:
        """Whether the page has given items within the period."""
        if self._pause.lasts():
            return False
        try:
            seen = self._redis.get(self._prefix + fingerprint.hex())
            self._pause.end()
        except RedisError as error:
            self._pause.begin(error)
            return False
        # a crawl with a longer period may have had Redis keep it for longer
        return isinstance(seen, bytes) and seen.isdigit() and time.time() - int(seen) < self._seconds

    def add(self, fingerprints: Iterable[bytes]) -> None:
        """Remember these pages as of now. Raises `RedisError`."""
        now, left = int(time.time()), iter(fingerprints)
        while some := list(islice(left, _BATCH)):
            pipeline = self._redis.pipeline(transaction=False)
            for one in some:
                pipeline.set(self._prefix + one.hex(), now, ex=self._seconds)
            pipeline.execute()

    def close(self) -> None:
        self._redis.close()


class SeenLatelyError(IgnoreRequest):
    """The page has given items lately."""


@middleware
class SkipSeen:
    """Downloader middleware before those that count pages. It never skips a request with `meta["skip_seen"] = False`,
    a start URL, a retry or a redirect.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Read the period from the setting. Raises `ValueError` if it is not a period."""
        settings = crawler.settings
        try:
            seconds = read_period(settings[SKIP_SEEN])
        except ValueError as error:
            raise ValueError(f"{SKIP_SEEN} {error}") from None
        spider = settings.get(SKIP_SEEN_SPIDER, crawler.spidercls.name)
        prefix = f"cache:{settings.get(HTTPCACHE_USER, '')}:seen:{spider}:"
        self._crawler = crawler
        self._seen = SeenPages(connect(settings), prefix, seconds)
        self._given: set[bytes] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = cls(crawler)
        crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawler.signals.connect(self.item_scraped, signals.item_scraped)
        crawler.signals.connect(self.spider_closed, signals.spider_closed)
        return self

    def spider_opened(self) -> None:
        # even a crawl that skips nothing shows in its stats that it may skip pages
        self._count(0)

    def process_request(self, request: Request) -> None:
        """Drop the request if its page has given items lately. Raises `SeenLatelyError`."""
        may_skip = is_new_page(request) and not request.meta.get("is_start_request")
        if may_skip and request.meta.get("skip_seen", True) and self._seen.has(self._fingerprint(request)):
            self._count(1)
            raise SeenLatelyError(f"{request.url} has given items lately")

    def item_scraped(self, response: Any) -> None:
        request: Request | None = getattr(response, "request", None)
        if request is None or len(self._given) >= MOST_PAGES:
            return
        self._given.add(self._fingerprint(request))
        if urls := request.meta.get("redirect_urls"):
            # links lead to the URL before the redirect
            self._given.add(self._fingerprint(request.replace(url=urls[0])))

    def spider_closed(self, reason: str) -> None:
        """Remember the pages that have given items. A crawl that failed remembers none, so the next fetches all."""
        try:
            if reason == "finished":
                self._seen.add(self._given)
        except RedisError as error:
            logger.warning("Which pages have given items is not remembered: %s", error)
        self._seen.close()

    def _fingerprint(self, request: Request) -> bytes:
        fingerprinter = self._crawler.request_fingerprinter
        if fingerprinter is None:
            raise RuntimeError("the crawler is not set up")
        return fingerprinter.fingerprint(request)

    def _count(self, count: int) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(SKIPPED_SEEN, count)
