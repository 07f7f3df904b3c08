"""The `sitemap` spider."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import date
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple
from urllib.parse import urljoin, urlsplit

from lxml import etree
from pydantic import AfterValidator, Field, StringConstraints
from scrapy import Request
from scrapy.utils.gz import gunzip
from scrapy.utils.sitemap import sitemap_urls_from_robots

from crawler.extraction.page_urls import page_url, site_of
from crawler.frontier.spider_state import KeptSet
from crawler.report.crawl_limits import PageLimitError
from crawler.report.failures import exception_reason
from crawler.spiders.site_spider import MAY_LEAVE, OK, FilteredParams, SiteSpider

if TYPE_CHECKING:
    from scrapy.http import Headers, Response
    from twisted.python.failure import Failure


PRELOAD = ("re2",)
#: Maximum number of levels of nested indexes. The protocol allows none; some sites have two.
MAX_NESTING = 4
#: Maximum number of sitemaps that are taken from one robots.txt.
MAX_NAMED = 1000
_SITEMAP_PATH = re.compile(r"\.(?:xml|txt)(?:\.gz)?$|sitemap[^/]*$", re.IGNORECASE)
#: Keys in a request's meta: how many indexes led there, and the item that waits for its page's answer.
_NESTING = "sitemap_nesting"
_ITEM = "sitemap_item"


def _day(text: str) -> str:
    return date.fromisoformat(text).isoformat()


class SitemapParams(FilteredParams):
    """Parameters of `sitemap`."""

    check: bool = Field(default=False, description="Fetch each page and report its status; each counts as a page.")
    since: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$"), AfterValidator(_day)] | None = Field(
        default=None, description="Only pages that changed since this day (2026-03-01), or that give no date."
    )
    other_sites: bool = Field(default=False, description="Also list pages of other sites.")


class SitemapWalker(SiteSpider):
    """Reads the sitemaps of the start URLs' sites. Subclasses say in `take` what to do with each page in them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # separate from the pages, because an index may name a page by mistake
        self._sitemaps = KeptSet()
        self.kept_state["sitemaps"] = self._sitemaps

    def take(self, url: str, entry: SitemapEntry, response: Response) -> Iterator[Any]:
        raise NotImplementedError

    def look_for_sitemaps(self, url: str) -> Iterator[Request]:
        """The request for the robots.txt of the URL's site, which names its sitemaps."""
        robots = urljoin(url, "/robots.txt")
        if self.frontier.ask(robots):
            # robots.txt is always read, even if it forbids itself
            meta = {"depth": 0, "dont_obey_robotstxt": True}
            yield Request(robots, self.parse_robots, errback=self.no_robots, dont_filter=True, meta=meta)

    def parse_robots(self, response: Response) -> Iterator[Request]:
        self.sites.add(site_of(response.url))
        named = list(sitemap_urls_from_robots(response.body, response.url)) if response.status in OK else []
        urls = [url for url in map(page_url, named[:MAX_NAMED]) if url]
        for url in urls or [urljoin(response.url, "/sitemap.xml")]:
            yield from self.sitemap(url, 0)

    def no_robots(self, failure: Failure) -> Iterator[Request]:
        yield from self.sitemap(urljoin(failure.request.url, "/sitemap.xml"), 0)  # type: ignore[attr-defined] # Scrapy sets it for errbacks

    def sitemap(self, url: str, nesting: int) -> Iterator[Request]:
        if nesting > MAX_NESTING:
            self.logger.warning("%s is left out: more than %d indexes lead there", url, MAX_NESTING)
        elif url not in self._sitemaps:
            self._sitemaps.add(url)
            meta = {"depth": 0, _NESTING: nesting}
            yield Request(url, self.parse_sitemap, errback=self.fail, dont_filter=True, meta=meta)

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
                if self.is_wanted(entry):
                    count += 1
                    yield from self._take(entry, response)
        except NoSitemapError as error:
            self.logger.warning("%s is no sitemap: %s", response.url, error)
            return
        self.logger.info("%d entries in %s", count, response.url)

    def is_wanted(self, entry: SitemapEntry) -> bool:  # noqa: ARG002 - for those who override it
        return True

    def wants_body(self, request: Request, headers: Headers) -> bool:
        # sitemaps and robots.txt are read whatever their content type
        return request.callback != self.parse or super().wants_body(request, headers)

    def _take(self, entry: SitemapEntry, response: Response) -> Iterator[Any]:
        url = page_url(urljoin(response.url, entry.url))
        if url is not None:
            nested = entry.is_sitemap
            yield from self.sitemap(url, response.meta[_NESTING] + 1) if nested else self.take(url, entry, response)


class SitemapSpider(SitemapWalker):
    """Lists the pages that sites name in their sitemaps, and can check that they answer.

    Items: one for each page, with what the sitemap says of it.
    """

    name = "sitemap"
    Params: ClassVar[type[SitemapParams]] = SitemapParams
    params: SitemapParams

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._wanted = self.params.url_filter()

    def begin(self, url: str) -> Iterator[Request]:
        """The first request: for the URL if it looks like a sitemap, otherwise for the site's robots.txt."""
        is_sitemap = _SITEMAP_PATH.search(urlsplit(url).path)
        return self.sitemap(url, 0) if is_sitemap else self.look_for_sitemaps(url)

    def parse(self, response: Response) -> Iterator[dict[str, Any]]:
        """Give the item of a checked page, with its status."""
        hops = [*response.meta.get("redirect_urls", [])]
        item = response.meta[_ITEM]
        yield {**item, "status": response.status, "error": None, "redirected_to": response.url if hops else None}

    def fail(self, failure: Failure) -> Iterable[dict[str, Any]]:
        request: Request = failure.request  # type: ignore[attr-defined] # Scrapy sets it for errbacks
        item = request.meta.get(_ITEM)
        if item is None or isinstance(failure.value, PageLimitError):
            return ()
        return [{**item, "status": None, "error": exception_reason(failure.value, request), "redirected_to": None}]

    def stay_on_site(self, request: Request) -> None:
        """Follow all redirects, because the item says where a page leads."""

    def wants_body(self, request: Request, headers: Headers) -> bool:  # noqa: ARG002 - the base class has them
        return request.callback != self.parse

    def take(self, url: str, entry: SitemapEntry, response: Response) -> Iterator[Any]:
        if (self.params.other_sites or self.is_internal(url)) and self._wanted.takes(url) and self.frontier.ask(url):
            item = {"url": url, **entry.about, "sitemap": response.url}
            if self.params.check:
                yield self.page_request(url, 1, **{MAY_LEAVE: True, _ITEM: item})
            else:
                yield item

    def is_wanted(self, entry: SitemapEntry) -> bool:
        """Whether the page may have changed since the day of `since`."""
        since, lastmod = self.params.since, entry.lastmod
        if not since or not lastmod:
            return True
        # the date may be only a year or a month
        day = lastmod[: len(since)]
        return day >= since[: len(day)]


# --- the file: XML (a sitemap or an index) or plain text, gzipped or not. See sitemaps.org/protocol.html.

#: Maximum number of bytes of a sitemap when unpacked: the protocol's own limit.
MAX_BYTES = 50 << 20
_GZIP = b"\x1f\x8b\x08"
_ENTRIES = {"url": False, "sitemap": True}
#: Maximum number of alternates of one page; there are not many more languages on the web.
_MAX_ALTERNATES = 500


class NoSitemapError(Exception):
    """The file is no sitemap, or cannot be unpacked."""


class SitemapEntry(NamedTuple):
    """A page, or another sitemap. `about` has what the file says about it, as in the item."""

    url: str
    is_sitemap: bool
    about: dict[str, Any]

    @property
    def lastmod(self) -> str | None:
        return self.about.get("lastmod")


def entries(body: bytes, max_bytes: int = MAX_BYTES) -> Iterator[SitemapEntry]:
    """The entries one by one, so that a long sitemap is never in memory as a tree. Raises `NoSitemapError` at the
    first one.
    """
    data = _unpacked(body, max_bytes).removeprefix(b"\xef\xbb\xbf").lstrip()
    if data.startswith(b"<"):
        yield from _xml_entries(data)
    else:
        yield from _text_entries(data)


def _unpacked(body: bytes, max_bytes: int) -> bytes:
    if not body.startswith(_GZIP):
        return body
    try:
        return gunzip(body, max_size=max_bytes)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise NoSitemapError(f"it cannot be unpacked: {error}") from error


def _text_entries(data: bytes) -> Iterator[SitemapEntry]:
    for line in data.splitlines():
        text = line.decode("utf-8", "replace").strip()
        if text.startswith(("http://", "https://")):
            yield SitemapEntry(text, is_sitemap=False, about={})


def _xml_entries(data: bytes) -> Iterator[SitemapEntry]:
    walk = etree.iterparse(
        BytesIO(data), events=("start", "end"), recover=True, resolve_entities=False, no_network=True, huge_tree=False
    )
    try:
        root = next((node for _, node in walk), None)
        if root is None or _name(root) not in {"urlset", "sitemapindex"}:
            raise NoSitemapError("it is neither a sitemap nor an index of sitemaps")
        for event, node in walk:
            if event == "end" and node.getparent() is root:
                if _name(node) in _ENTRIES:
                    yield from _entry(node)
                _let_go(node, root)
    except etree.XMLSyntaxError as error:
        raise NoSitemapError(f"it is no XML: {error}") from error


def _let_go(node: Any, root: Any) -> None:
    """Remove the node and all nodes before it from the tree. Those after it may have been parsed already."""
    node.clear()
    while node.getprevious() is not None:
        del root[0]


def _entry(node: Any) -> Iterator[SitemapEntry]:
    texts = {_name(child): (child.text or "").strip() for child in node}
    url = texts.get("loc")
    if url:
        about = {
            "lastmod": texts.get("lastmod") or None,
            "changefreq": texts.get("changefreq") or None,
            "priority": _priority(texts.get("priority")),
            "alternates": [
                {"language": child.get("hreflang"), "url": child.get("href")}
                for child in node
                if _name(child) == "link" and child.get("href")
            ][:_MAX_ALTERNATES],
        }
        yield SitemapEntry(url, is_sitemap=_ENTRIES[_name(node)], about=about)


def _priority(text: str | None) -> float | None:
    try:
        return float(text) if text and len(text) < 10 else None  # noqa: PLR2004 - 0.0 to 1.0
    except ValueError:
        return None


def _name(node: Any) -> str:
    """The name of an element without its namespace, because many sitemaps have a wrong one, or none."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
