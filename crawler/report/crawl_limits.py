"""`max_pages` and `max_items`: never one more, however many are in flight."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from scrapy import signals
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotConfigured
from scrapy.http.request import NO_CALLBACK

from crawler.closing import Closing
from crawler.report.progress import Report
from crawler.setting_names import MAX_ITEMS, MAX_PAGES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler


def is_page(request: Request) -> bool:
    """Not robots.txt and not an image of a media pipeline: those are fetched by components, for themselves."""
    return request.callback is not NO_CALLBACK


def is_new_page(request: Request) -> bool:
    """Neither the next hop of a redirect nor a retry of what was counted before."""
    meta = request.meta
    return is_page(request) and not meta.get("redirect_times") and not meta.get("retry_times")


# Counts the pages that a crawl asks for, from wherever they are then answered (a site, or the cache)
class PageCount:
    """Downloader middleware, behind those that drop requests and before the cache that answers them."""

    def __init__(self, report: Report) -> None:
        self._report = report

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        report = crawler.get_extension(Report)
        if report is None:
            raise NotConfigured
        return cls(report)

    def process_request(self, request: Request) -> None:
        if is_new_page(request):
            self._report.requested()


# --- `max_pages`: never one page more, however many are in flight

#: Scrapy's own name for this ending, so that it is understood wherever Scrapy's is.
REASON = "closespider_pagecount"
#: Between two looks at whether the pages that were counted are done.
LOOK_SECONDS = 0.5


class PageLimitError(IgnoreRequest):
    """The crawl has had all the pages that it was allowed."""


class PageLimit:
    """Downloader middleware, after robots.txt: what that forbids is not fetched and costs nothing.

    Once the limit is reached everything new is dropped and the spider ends when it is idle, so retries and
    redirects of the pages that were counted still come to their end; Scrapy's own `CLOSESPIDER_PAGECOUNT` would
    cut those short and lets through what is in flight.
    """

    def __init__(self, crawler: Crawler, limit: int) -> None:
        if not limit:
            raise NotConfigured
        self._crawler = crawler
        self._limit = limit
        self._asked_for = 0
        self._dropped = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = cls(crawler, crawler.settings.getint(MAX_PAGES))
        crawler.signals.connect(self.request_scheduled, signals.request_scheduled)
        crawler.signals.connect(self.spider_idle, signals.spider_idle)
        return self

    def request_scheduled(self, request: Request, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's signature
        if self._asked_for >= self._limit and is_new_page(request):
            self._drop()

    def process_request(self, request: Request) -> None:
        if not is_new_page(request):
            return
        if self._asked_for >= self._limit:
            self._drop()
        self._asked_for += 1

    def spider_idle(self, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's signature
        if self._dropped:
            raise CloseSpider(REASON)

    def _drop(self) -> None:
        if not self._dropped:
            self._dropped = True
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._end_when_done)
        raise PageLimitError(f"the limit of {self._limit} pages is reached")

    def _end_when_done(self) -> None:
        """A spider whose `start()` goes on for ever is never idle."""
        engine, closing = self._crawler.engine, self._crawler.get_extension(Closing)
        if engine is None or engine.scheduler is None or engine.scraper.slot is None or closing is None:
            return
        if engine.downloader.active or not engine.scraper.slot.is_idle() or engine.scheduler.has_pending_requests():
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._end_when_done)
        else:
            closing.close(REASON)


# `max_items`: the spider is asked for nothing more once the crawl has had them
class ItemLimit:
    """Spider middleware nearest to the engine. `Report` counts the items, spools none beyond the limit and closes the
    spider; but a callback that yields for ever would keep the loop, and with it the closing, from its turn.
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        report = crawler.get_extension(Report)
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
