"""Counts the pages that a crawl asks for, from wherever they are then answered (a site, or the cache)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from scrapy.exceptions import NotConfigured

from crawler.page_request import is_new_page
from crawler.report import Report

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


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
