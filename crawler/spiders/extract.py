"""The `extract` spider."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, ClassVar

from pydantic import Field
from scrapy import Request
from scrapy.http import HtmlResponse, Response
from w3lib.url import add_or_replace_parameter, url_query_parameter

from crawler.extraction.page_urls import page_url
from crawler.extraction.reader import ObjectReader, Select, selector
from crawler.extraction.rules import MAX_FIELDS, Fields, NextLink, Page, PageParam, Selector, SlowRulesError
from crawler.frontier.spider_state import KeptSet
from crawler.report.progress import encode
from crawler.spiders.site_spider import MAY_LEAVE, PageTextParams, SiteSpider, WalkParams

#: Modules that the warm process imports because crawls of this spider may need them.
PRELOAD = ("re2", "dateparser.date")
MAX_LEVELS = 5
#: Keys in a request's meta: how many levels of links led to it, and which page of its list it is.
_LEVEL = "extract_level"
_NUMBER = "extract_page"

Levels = Annotated[list[Selector], Field(max_length=MAX_LEVELS)]


class ExtractParams(WalkParams, PageTextParams):
    """Parameters of `extract`."""

    fields: Annotated[Fields, Field(min_length=1, max_length=MAX_FIELDS)] = Field(
        description="Name → selector (CSS; XPath if it begins with / ./ or parenthesis), or a rule as an object.",
        examples=[{"title": "h1", "price": {"css": ".price", "type": "number"}, "image": "img::attr(src)"}],
    )
    items: Selector | None = Field(
        default=None, description="One item for each element that this matches; without it, one for each page."
    )
    links: Selector | Levels = Field(
        default_factory=list,
        description="Links that lead to the pages with the items; a list of selectors for several levels of links.",
    )
    pagination: Selector | NextLink | PageParam | None = Field(
        default=None, description="How to get to the next page of a list: the selector of a link, or an object."
    )
    other_sites: bool = Field(default=False, description="Follow `links` to other sites, too.")

    def levels(self) -> list[Select]:
        written = [self.links] if isinstance(self.links, str) else self.links
        return [select for select in map(selector, written) if select]


class ExtractSpider(SiteSpider):
    """Reads items out of pages by rules: CSS, XPath and regular expressions, with types, lists and pagination.

    Items: `url` of the page, and what `fields` says.
    """

    name = "extract"
    Params: ClassVar[type[ExtractParams]] = ExtractParams
    params: ExtractParams

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        params = self.params
        self._items = selector(params.items)
        self._reader = ObjectReader(params.fields)
        self._levels = params.levels()
        self._wanted = params.url_filter()
        written = params.pagination
        self._pagination = NextLink(next=written) if isinstance(written, str) else written
        self._next = selector(self._pagination.next) if isinstance(self._pagination, NextLink) else None
        # without depth or include, only the start URLs are wanted
        roams = kwargs.get("depth") is not None or bool(params.include)
        self._walks = roams and not self._levels and not self._pagination
        self._seen = KeptSet()
        self.kept_state["seen"] = self._seen
        self._warned: set[str] = set()

    @property
    def walks(self) -> bool:
        return self._walks

    def parse(self, response: Response) -> Iterator[Any]:
        if not self.is_readable(response):
            return
        page = Page(response)
        level = response.meta.get(_LEVEL, 0)
        if level < len(self._levels):
            found: list[Any] = list(self._linked(response, page, level))
            new = bool(found)
        else:
            found = list(self._extracted(page))
            news = [self._is_new(item) for item in found]
            new = any(news)
        if new or response.meta.get(_NUMBER, 1) == 1:
            yield from (self.with_page(one, response) if isinstance(one, dict) else one for one in found)
        if new and level == max(len(self._levels) - 1, 0):
            yield from self._next_page(response, page)
        if self._walks:
            yield from self.walk(response, self._wanted)

    def _extracted(self, page: Page) -> Iterator[dict[str, Any]]:
        scopes = [page.root] if self._items is None else self._items(page.root)
        count = 0
        try:
            for scope in scopes:
                read = self._reader.read(scope, page)
                if read is not None:
                    count += 1
                    yield {"url": page.url, **read}
        except SlowRulesError:
            self.logger.warning("The rules take too long on %s; the rest of it is left out", page.url)
            self.count("extract/slow_pages")
        if not count:
            self.logger.info("No items on %s", page.url)
        self._tell_trouble(page)

    def _linked(self, response: HtmlResponse, page: Page, level: int) -> Iterator[Request]:
        depth = response.meta["depth"] + 1
        urls = self._urls(self._levels[level], page)
        if not urls:
            self.logger.info("No links on %s", page.url)
        meta: dict[str, Any] = {_LEVEL: level + 1, **({MAY_LEAVE: True} if self.params.other_sites else {})}
        for url in urls:
            if not (self.params.other_sites or self.is_internal(url)):
                self.count("extract/links_to_other_sites")
            elif self._wanted.takes(url) and self.frontier.admits(url, depth) and self.frontier.ask(url):
                yield self.page_request(url, depth, **meta)

    def _next_page(self, response: HtmlResponse, page: Page) -> Iterator[Request]:
        number = response.meta.get(_NUMBER, 1)
        if self._pagination is None or number >= self._pagination.max_pages:
            return
        meta = {_LEVEL: response.meta.get(_LEVEL, 0), _NUMBER: number + 1}
        urls = self._urls(self._next, page)[:1] if self._next else [self._counted(page.url)]
        for url in urls:
            if self.is_internal(url) and self.frontier.ask(url):
                yield self.page_request(url, response.meta["depth"], **meta)

    def _counted(self, url: str) -> str:
        """The URL with the number of the next page."""
        pages = self._pagination
        if not isinstance(pages, PageParam):
            raise TypeError
        given = url_query_parameter(url, pages.page_param, "") or ""
        current = int(given) if given.isascii() and given.isdigit() else pages.start
        return page_url(add_or_replace_parameter(url, pages.page_param, str(current + pages.step))) or url

    def _urls(self, select: Select, page: Page) -> list[str]:
        hrefs = [_href(found) for found in select(page.root)]
        urls = []
        for href in hrefs:
            with suppress(ValueError):
                urls.append(page_url(page.absolute(href)) if href else None)
        return list(dict.fromkeys(url for url in urls if url))

    def _is_new(self, item: dict[str, Any]) -> bool:
        """Whether no earlier page had the same item, apart from its URL."""
        rest = {name: value for name, value in item.items() if name != "url" or name in self.params.fields}
        digest = hashlib.blake2b(encode(rest), digest_size=16).digest()
        new = digest not in self._seen
        self._seen.add(digest)
        return new

    def _tell_trouble(self, page: Page) -> None:
        """Note fields that are unread or missing in the stats, and the first unread one of each field in the log."""
        for field, count in page.unread.items():
            self.count(f"extract/unread/{field}", count)
            if field not in self._warned:
                self.logger.warning(
                    "Cannot read %s on %s: %s; further ones are counted", field, page.url, page.why[field]
                )
                self._warned.add(field)
        for field, count in page.missing.items():
            self.count(f"extract/missing/{field}", count)


def _href(found: Any) -> str | None:
    """The URL in what a selector has found: a text, a link, or an element, whose first link is taken."""
    if isinstance(found, str):
        return found
    if not hasattr(found, "get"):
        return None
    href = found.get("href") or next(iter(found.xpath(".//a/@href")), None)
    return str(href) if href else None
