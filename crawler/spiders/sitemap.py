"""The `sitemap` spider."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urljoin, urlsplit

from pydantic import AfterValidator, Field, StringConstraints
from scrapy import Request
from scrapy.utils.sitemap import sitemap_urls_from_robots

from crawler.extraction.page_urls import page_url, site_of
from crawler.report.crawl_limits import PageLimitError
from crawler.report.failures import exception_reason
from crawler.sitemap_file import MAX_BYTES, Entry, NoSitemapError, entries
from crawler.spiders.site_spider import MAY_LEAVE, OK, FilteredParams, SiteSpider

if TYPE_CHECKING:
    from scrapy.http import Headers, Response
    from twisted.python.failure import Failure

PRELOAD = ("re2",)
#: Indexes within indexes. The protocol allows none; some sites have two.
MAX_NESTING = 4
#: Sitemaps that one robots.txt may name.
MAX_NAMED = 1000
_SITEMAP_PATH = re.compile(r"\.(?:xml|txt)(?:\.gz)?$|sitemap[^/]*$", re.IGNORECASE)
#: In a request's meta: how many indexes led there, and the item that waits for its page's answer.
_NESTING = "sitemap_nesting"
_ITEM = "sitemap_item"


def _day(text: str) -> str:
    return date.fromisoformat(text).isoformat()


class SitemapParams(FilteredParams):
    """Parameters of `sitemap`."""

    check: bool = Field(default=False, description="Fetch each page and tell its status; this counts as a page each.")
    since: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$"), AfterValidator(_day)] | None = Field(
        default=None, description="Only what has changed since this day (2026-03-01), or does not say when it did."
    )
    other_sites: bool = Field(default=False, description="Take pages of other sites, too.")


class SitemapSpider(SiteSpider):
    """Lists the pages that sites name in their sitemaps, and can check that they answer.

    Items: one for each page, with what the sitemap says of it.
    """

    name = "sitemap"
    Params: ClassVar[type[SitemapParams]] = SitemapParams
    params: SitemapParams

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._wanted = self.params.url_filter()
        # apart from the pages: an index may name one by mistake
        self._sitemaps: set[str] = set()

    def begin(self, url: str) -> Iterator[Request]:
        """A sitemap, if it looks like one; otherwise a site, whose robots.txt names them."""
        if _SITEMAP_PATH.search(urlsplit(url).path):
            yield from self._sitemap(url, 0)
            return
        robots = urljoin(url, "/robots.txt")
        if self.frontier.ask(robots):
            # what it forbids is for others to read, too
            meta = {"depth": 0, "dont_obey_robotstxt": True}
            yield Request(robots, self.parse_robots, errback=self.no_robots, dont_filter=True, meta=meta)

    def parse_robots(self, response: Response) -> Iterator[Request]:
        self.sites.add(site_of(response.url))
        named = list(sitemap_urls_from_robots(response.body, response.url)) if response.status in OK else []
        urls = [url for url in map(page_url, named[:MAX_NAMED]) if url]
        for url in urls or [urljoin(response.url, "/sitemap.xml")]:
            yield from self._sitemap(url, 0)

    def no_robots(self, failure: Failure) -> Iterator[Request]:
        yield from self._sitemap(urljoin(failure.request.url, "/sitemap.xml"), 0)  # type: ignore[attr-defined] # Scrapy sets it for errbacks

    def parse_sitemap(self, response: Response) -> Iterator[Any]:
        self.logger.info("%d %s", response.status, response.url)
        if response.status not in OK:
            return
        if response.meta["depth"] == 0 and response.meta.get(_NESTING) == 0:
            self.sites.add(site_of(response.url))
        limit = min(MAX_BYTES, self.crawler.settings.getint("DOWNLOAD_MAXSIZE") or MAX_BYTES)
        count = 0
        try:
            for entry in entries(response.body, limit):
                if self._is_recent(entry):
                    count += 1
                    yield from self._take(entry, response)
        except NoSitemapError as error:
            self.logger.warning("%s is no sitemap: %s", response.url, error)
            return
        self.logger.info("%d entries in %s", count, response.url)

    def parse(self, response: Response) -> Iterator[dict[str, Any]]:
        """The answer of a page that is checked."""
        hops = [*response.meta.get("redirect_urls", [])]
        item = response.meta[_ITEM]
        yield {**item, "status": response.status, "error": None, "redirected_to": response.url if hops else None}

    def fail(self, failure: Failure) -> Iterable[dict[str, Any]]:
        item = failure.request.meta.get(_ITEM)  # type: ignore[attr-defined] # Scrapy sets it for errbacks
        if item is None or isinstance(failure.value, PageLimitError):
            return ()
        return [{**item, "status": None, "error": exception_reason(failure.value), "redirected_to": None}]

    def stay_on_site(self, request: Request) -> None:
        """Wherever a page leads, that is what it answers."""

    def wants_body(self, request: Request, headers: Headers) -> bool:  # noqa: ARG002 - whatever they say
        return request.callback != self.parse

    def _sitemap(self, url: str, nesting: int) -> Iterator[Request]:
        if nesting > MAX_NESTING:
            self.logger.warning("%s is left out: more than %d indexes lead there", url, MAX_NESTING)
        elif url not in self._sitemaps:
            self._sitemaps.add(url)
            meta = {"depth": 0, _NESTING: nesting}
            yield Request(url, self.parse_sitemap, errback=self.fail, dont_filter=True, meta=meta)

    def _take(self, entry: Entry, response: Response) -> Iterator[Any]:
        url = page_url(urljoin(response.url, entry.url))
        if url is None:
            return
        if entry.is_sitemap:
            yield from self._sitemap(url, response.meta[_NESTING] + 1)
        elif (
            (self.params.other_sites or self.is_internal(url)) and self._wanted.takes(url) and self.frontier.ask(url)
        ):
            item = {"url": url, **entry.about, "sitemap": response.url}
            if self.params.check:
                yield self.page_request(url, 1, **{MAY_LEAVE: True, _ITEM: item})
            else:
                yield item

    def _is_recent(self, entry: Entry) -> bool:
        since, lastmod = self.params.since, entry.lastmod
        if not since or not lastmod:
            return True
        # it may be as short as a year
        day = lastmod[: len(since)]
        return day >= since[: len(day)]
