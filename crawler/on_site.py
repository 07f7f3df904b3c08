"""Requests that may not leave their site, of which the spider is to know when a redirect would have them do so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

#: In a request's meta: where its redirects lead is asked, and the errback told.
STAYS_ON_SITE = "stays_on_site"


class StayOnSite:
    """Downloader middleware for a `SiteSpider`. What is refused when it is scheduled never gets to its errback."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        if request.meta.get(STAYS_ON_SITE) and not self._crawler.spider.is_internal(request.url):  # type: ignore[union-attr] # a SiteSpider
            raise IgnoreRequest(f"{request.url} is not on the site")
