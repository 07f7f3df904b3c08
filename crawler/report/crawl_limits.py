"""Limits of one crawl: pages, items, bytes of log. They are exact, however many requests are in flight."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from scrapy import signals
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotConfigured, StopDownload
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.log import get_scrapy_root_handler

from crawler.closing import Closing
from crawler.report.progress import ProgressReport
from crawler.scrapy_versions import engine_slot, middleware
from crawler.setting_names import ALLOWANCE, ATTEMPT_DIR, MAX_ITEMS, MAX_LOG_BYTES, MAX_PAGES
from gateway.contract.outbox import BUDGET_BYTES, SPENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler


def is_page(request: Request) -> bool:
    """Whether a page is requested, and not robots.txt or a media pipeline's file, which components fetch."""
    return request.callback is not NO_CALLBACK


def is_new_page(request: Request) -> bool:
    """Whether a page is requested for the first time, and not in a redirect or retry."""
    meta = request.meta
    return is_page(request) and not meta.get("redirect_times") and not meta.get("retry_times")


# counts the requested pages, whether the site or the cache answers
@middleware
class PageCount:
    """Downloader middleware after those that drop requests, and before the cache."""

    def __init__(self, report: ProgressReport) -> None:
        self._report = report

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        report = crawler.get_extension(ProgressReport)
        if report is None:
            raise NotConfigured
        return cls(report)

    def process_request(self, request: Request) -> None:
        if is_new_page(request):
            self._report.requested(request)


# --- `max_pages`: exact, however many requests are in flight

#: Scrapy's own finish reason for a page limit, which other tools know.
REASON = "closespider_pagecount"
#: Seconds between two checks whether all counted pages are done.
LOOK_SECONDS = 0.5


class PageLimitError(IgnoreRequest):
    """The crawl has reached its limit of pages."""


@middleware
class PageLimit:
    """Downloader middleware after robots.txt, so that forbidden pages are not counted.

    Once the limit is reached, new pages are dropped and the spider is closed when it is idle. So retries and
    redirects of pages that were counted are still completed. Scrapy's own `CLOSESPIDER_PAGECOUNT` cuts them short,
    and lets requests in flight exceed the limit.
    """

    def __init__(self, crawler: Crawler, limit: int, allowed: int | None) -> None:
        if not limit and allowed is None:
            raise NotConfigured
        self._crawler = crawler
        #: Maximum number of pages of all attempts that continue one another, and of this attempt by its key's budget.
        self._most = limit or math.inf
        self._allowed = math.inf if allowed is None else allowed
        self._limit = min(self._most, self._allowed)
        self._asked_for = self._before = 0
        self._dropped = False
        note_spent(crawler, "pages", 0)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        allowance = crawler.settings.get(ALLOWANCE) or {}
        self = cls(crawler, crawler.settings.getint(MAX_PAGES), allowance.get("pages"))
        crawler.signals.connect(self.request_scheduled, signals.request_scheduled)
        crawler.signals.connect(self.spider_idle, signals.spider_idle)
        return self

    def asked_before(self, pages: int) -> None:
        """Count the pages of earlier attempts. This attempt's allowance does not include them."""
        self._asked_for = self._before = pages
        self._limit = min(self._most, self._before + self._allowed)

    def request_scheduled(self, request: Request, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's signature
        if self._asked_for >= self._limit and is_new_page(request):
            self._drop()

    def process_request(self, request: Request) -> None:
        if not is_new_page(request):
            return
        if self._asked_for >= self._limit:
            self._drop()
        self._asked_for += 1
        note_spent(self._crawler, "pages", self._asked_for - self._before)

    def spider_idle(self, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's signature
        if self._dropped:
            raise CloseSpider(REASON)

    def _drop(self) -> None:
        if not self._dropped:
            self._dropped = True
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._end_when_done)
        raise PageLimitError(f"the limit of {self._limit} pages is reached")

    def _end_when_done(self) -> None:
        """Close the spider once all counted pages are done. This is needed if an endless `start()` keeps it from
        being idle.
        """
        engine, closing = self._crawler.engine, self._crawler.get_extension(Closing)
        slot = engine_slot(self._crawler)
        if engine is None or slot is None or engine.scraper.slot is None or closing is None:
            return
        if engine.downloader.active or not engine.scraper.slot.is_idle() or slot.scheduler.has_pending_requests():
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._end_when_done)
        else:
            closing.close(REASON)


# --- what is left of the key's budget for this attempt, besides pages


def note_spent(crawler: Crawler, what: str, amount: int) -> None:
    """Note in the stats, and so in the report, how much of the budget this attempt has used."""
    if crawler.stats is not None:
        crawler.stats.set_value(f"{SPENT}{what}", amount)


class AllowanceSpentError(IgnoreRequest):
    """The key's budget has no room for the request, or for the rest of its response."""


@middleware
class Allowance:
    """Downloader middleware that comes before all that count. It limits hosts: no request, not even for robots.txt, a
    redirect or a retry, goes to more hosts than are allowed. It limits bytes: they are counted as they arrive, and a
    response that exceeds the limit is cut off. So each connection can exceed the limit by one piece of 64 KiB at
    most.
    """

    def __init__(self, crawler: Crawler, hosts: int | None, limit: int | None) -> None:
        if hosts is None and limit is None:
            raise NotConfigured
        self._crawler = crawler
        self._most_hosts = math.inf if hosts is None else hosts
        self._most_bytes = math.inf if limit is None else limit
        self._hosts: set[str] = set()
        self._bytes = 0
        self._dropped = False
        note_spent(crawler, "hosts", 0)
        note_spent(crawler, "bytes", 0)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        allowance = crawler.settings.get(ALLOWANCE) or {}
        self = cls(crawler, allowance.get("hosts"), allowance.get("bytes"))
        crawler.signals.connect(self.bytes_received, signals.bytes_received)
        return self

    def process_request(self, request: Request) -> None:
        if request.meta.get("playwright"):
            raise AllowanceSpentError("a browser's hosts and bytes are not counted, and the key has a budget of them")
        if self._bytes >= self._most_bytes:
            raise AllowanceSpentError(f"the {self._most_bytes} bytes that the key's budget had left are spent")
        host = (urlsplit(request.url).hostname or "").rstrip(".")
        if host in self._hosts:
            return
        if len(self._hosts) >= self._most_hosts:
            if not self._dropped:
                self._dropped = True
                logger.warning("%s and further hosts are left out: the key's budget has no host left", host)
            raise AllowanceSpentError(f"the {self._most_hosts} hosts that the key's budget had left are spent")
        self._hosts.add(host)
        note_spent(self._crawler, "hosts", len(self._hosts))

    def bytes_received(self, data: bytes) -> None:
        before, self._bytes = self._bytes, self._bytes + len(data)
        note_spent(self._crawler, "bytes", self._bytes)
        if self._bytes <= self._most_bytes:
            return
        if before <= self._most_bytes and (closing := self._crawler.get_extension(Closing)):
            closing.close(BUDGET_BYTES)
        raise StopDownload(fail=True)


# `max_items`: the spider's output is cut off at this number of items
@middleware
class ItemLimit:
    """Spider middleware nearest to the engine: ends the output of callbacks at the limit. `ProgressReport` counts the
    items, writes none beyond the limit and closes the spider. But a callback that yields for ever would block the
    event loop, and so the closing.
    """

    def __init__(self, report: ProgressReport) -> None:
        self._report = report

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        report = crawler.get_extension(ProgressReport)
        if report is None or not crawler.settings.getint(MAX_ITEMS):
            raise NotConfigured
        return cls(report)

    def process_spider_output(self, response: Any, result: Iterable[Any]) -> Iterator[Any]:  # noqa: ARG002 - Scrapy's signature
        for one in result:
            if self._report.has_all_items():
                return
            yield one

    async def process_spider_output_async(self, response: Any, result: AsyncIterator[Any]) -> AsyncIterator[Any]:  # noqa: ARG002 - Scrapy's signature
        async for one in result:
            if self._report.has_all_items():
                return
            yield one

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for one in start:
            if self._report.has_all_items():
                return
            yield one


# --- the log: beyond its limit it only gets how the crawl ends. The launcher stops crawls that print more.

logger = logging.getLogger(__name__)

#: Bytes of the limit that are reserved for messages about the end, and the largest share of the limit that they take.
RESERVE = 512 << 10
RESERVE_SHARE = 0.25
#: Loggers that say how a crawl ends.
_EPILOGUE = frozenset({"scrapy.core.engine", "scrapy.statscollectors", __name__})


class LogLimit:
    """Extension that limits Scrapy's log handler. It checks the file's size, because prints go there as well."""

    def __init__(self, limit: int) -> None:
        reserve = min(RESERVE, int(limit * RESERVE_SHARE))
        self._limit = limit - reserve
        self._longest = max(reserve // 2, 1000)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        limit = crawler.settings.getint(MAX_LOG_BYTES)
        if not limit or not crawler.settings.get(ATTEMPT_DIR):
            raise NotConfigured
        self = cls(limit)
        # only then, because Scrapy makes a new handler after it has built the extensions
        crawler.signals.connect(self.spider_opened, signals.spider_opened)
        return self

    def spider_opened(self) -> None:
        handler = get_scrapy_root_handler()
        if isinstance(handler, logging.StreamHandler):
            handler.setFormatter(_Cut(handler.formatter or logging.Formatter(), self._longest))
            handler.addFilter(_Filter(handler.stream.fileno(), self._limit))


class _Filter(logging.Filter):
    def __init__(self, file: int, limit: int) -> None:
        super().__init__()
        self._file = file
        self._limit = limit
        self._reached = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._reached and os.fstat(self._file).st_size < self._limit:
            return True
        if not self._reached:
            self._reached = True
            logger.warning("Log limit reached: from here on there is only how the crawl ends (CRAWL_MAX_LOG_BYTES)")
        return record.name in _EPILOGUE and record.levelno >= logging.INFO


class _Cut(logging.Formatter):
    """Formats as `inner` does, but cuts records at `longest` characters and never raises."""

    def __init__(self, inner: logging.Formatter, longest: int) -> None:
        super().__init__()
        self._inner = inner
        self._longest = longest

    def format(self, record: logging.LogRecord) -> str:
        try:
            text = self._inner.format(record)
        except Exception as error:  # noqa: BLE001 - an item that cannot be formatted must not break the code that logs it
            hidden = logging.makeLogRecord({**vars(record), "args": None, "exc_info": None, "exc_text": None})
            hidden.msg = f"({type(error).__name__}: this message cannot be shown)"
            text = self._inner.format(hidden)
        return text if len(text) <= self._longest else f"{text[: self._longest]}… ({len(text)} characters)"
