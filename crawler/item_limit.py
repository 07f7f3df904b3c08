"""`max_items`: the spider is asked for nothing more once the crawl has had them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from scrapy.exceptions import NotConfigured

from crawler.report import Report
from crawler.setting_names import MAX_ITEMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy.crawler import Crawler


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
