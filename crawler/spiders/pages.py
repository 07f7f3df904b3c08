"""The `pages` spider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from lxml import etree
from pydantic import Field
from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse

from crawler.extraction.markdown import is_small, main_content, markdown_of
from crawler.extraction.page_facts import PageFacts
from crawler.extraction.page_urls import UrlFilter, page_url
from crawler.extraction.reader import Select, selector
from crawler.report.failures import status_reason
from crawler.setting_names import MAX_ITEMS, MAX_PAGES
from crawler.spiders.site_spider import Css, WalkParams, is_html
from crawler.spiders.sitemap import SitemapEntry, SitemapWalker

if TYPE_CHECKING:
    from scrapy.http import Headers

PRELOAD = ("re2",)
Format = Literal["markdown", "html", "raw_html", "links"]
#: Maximum number of bytes of each text of an item, and of its links: MongoDB has room for 16 MB.
MAX_BYTES = 3_000_000
MAX_LINKS = 5000
#: Maximum number of pages that are taken from sitemaps if the crawl has no limit: they are all in memory.
MAX_NAMED_PAGES = 100_000
#: Content types whose text is used as Markdown.
_PLAIN = frozenset({"text/plain", "text/markdown", "application/json", "text/csv"})
_FIRST_ERROR_STATUS = 400
_unseen: Callable[[Any], Any] = etree.XPath("//script|//style|//noscript|//template")
Tags = Annotated[list[Css], Field(max_length=50)]


class PagesParams(WalkParams):
    """Parameters of `pages`."""

    formats: Annotated[list[Format], Field(max_length=4)] = Field(
        default=["markdown"], description="In which forms an item has the page: a field of this name for each."
    )
    main_content: bool = Field(
        default=True, description="Leave out menus, headers, footers and what else stands around a page's own text."
    )
    include_tags: Tags = Field(default=[], description="Only elements that one of these CSS selectors matches.")
    exclude_tags: Tags = Field(default=[], description="Without elements that one of these CSS selectors matches.")
    sitemap: Literal["skip", "include", "only"] = Field(
        default="skip", description="Also visit the pages that the sites' sitemaps name, or only those."
    )
    below_start: bool = Field(
        default=False, description="Visit only URLs whose path begins with that of a start URL."
    )
    match: Literal["url", "path"] = Field(
        default="url", description="Look for `include` and `exclude` in a page's whole URL, or in its path."
    )
    ignore_query: bool = Field(default=False, description="Take URLs that differ in their query alone for one page.")


class PageFilter(UrlFilter):
    """The URLs that a crawl of pages may visit."""

    def __init__(self, params: PagesParams, start_urls: Iterable[str]) -> None:
        super().__init__(params.include, params.exclude)
        self._of_path = params.match == "path"
        self._beginnings = tuple(urlsplit(url).path or "/" for url in start_urls) if params.below_start else ("",)

    def takes(self, url: str) -> bool:
        path = urlsplit(url).path
        return path.startswith(self._beginnings) and super().takes(path if self._of_path else url)


class PagesSpider(SitemapWalker):
    """Gives the pages of a site as Markdown or HTML, with their titles and links.

    Items: one for each page that was answered, whatever its status.
    """

    name = "pages"
    Params: ClassVar[type[PagesParams]] = PagesParams
    params: PagesParams

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        params = self.params
        self._wanted = PageFilter(params, self.start_urls)
        self._included, self._excluded = _selectors(params.include_tags), _selectors(params.exclude_tags)
        self._named = 0

    @property
    def walks(self) -> bool:
        return self.params.sitemap != "only"

    def begin(self, url: str) -> Iterator[Request]:
        if self.params.sitemap != "only":
            yield from super().begin(url)
        if self.params.sitemap != "skip":
            yield from self.look_for_sitemaps(url)

    def take(self, url: str, entry: SitemapEntry, response: Response) -> Iterator[Request]:  # noqa: ARG002 - the URL is enough
        settings = self.crawler.settings
        room = settings.getint(MAX_ITEMS) or settings.getint(MAX_PAGES) or MAX_NAMED_PAGES
        page = self.address(url)
        if page and self._named < room and self.is_internal(page) and self._wanted.takes(page):
            self._named += 1
            if self.frontier.ask(page):
                yield self.page_request(page, 0)

    def address(self, url: str) -> str | None:
        page = page_url(url)
        return page.partition("?")[0] if page and self.params.ignore_query else page

    def parse(self, response: Response) -> Iterator[Any]:
        meta, kind = response.meta, _type_of(response.headers)
        item: dict[str, Any] = {
            "url": response.url,
            "source_url": next(iter(meta.get("redirect_urls", [])), response.url),
            "status": response.status,
            "content_type": kind,
            "depth": meta["depth"],
            "error": status_reason(response.status) if response.status >= _FIRST_ERROR_STATUS else None,
        }
        goes_on = self.is_readable(response) and self.params.sitemap != "only"
        if isinstance(response, HtmlResponse) and is_html(response.headers):
            # links first: what follows changes the tree
            yield from list(self.walk(response, self._wanted)) if goes_on else []
            yield item | self._content(response)
        elif kind in _PLAIN and isinstance(response, TextResponse):
            yield item | {"markdown": _cut(response.text)}
        else:
            yield item | {"error": item["error"] or f"it is no page: {kind}"}

    def wants_body(self, request: Request, headers: Headers) -> bool:
        return _type_of(headers) in _PLAIN or super().wants_body(request, headers)

    def _content(self, response: HtmlResponse) -> dict[str, Any]:
        facts, formats = PageFacts(response), self.params.formats
        about = facts.as_item()
        item = {name: about[name] for name in ("title", "description", "language", "canonical", "robots")}
        if "links" in formats:
            links = dict.fromkeys(filter(None, map(page_url, facts.links())))
            sizes = accumulate(map(len, links))
            item["links"] = [url for url, size in zip(links, sizes, strict=True) if size <= MAX_BYTES][:MAX_LINKS]
        if "raw_html" in formats:
            item["raw_html"] = _cut(response.text)
        if {"html", "markdown"}.isdisjoint(formats):
            return item
        if not is_small(facts.root):
            self.logger.warning("%s has too many elements to be converted to Markdown", response.url)
            return item | {"error": "it is too large to be converted to Markdown"}
        parts = self._parts(facts.root)
        if "markdown" in formats:
            item["markdown"] = _cut("\n\n".join(filter(None, (markdown_of(part, facts.base) for part in parts))))
        if "html" in formats:
            item["html"] = _cut("\n".join(map(_html, parts)))
        return item

    def _parts(self, root: Any) -> list[Any]:
        """The wanted elements, in the order of the page. Changes the tree."""
        for select in self._excluded:
            for element in select(root):
                _remove(element)
        if self._included:
            found = {element for select in self._included for element in select(root)}
            return [one for one in root.iter() if one in found and found.isdisjoint(one.iterancestors())]
        if not self.params.main_content:
            return [root]
        return [main_content(root)]


def _selectors(written: Iterable[str]) -> list[Select]:
    return [select for select in map(selector, written) if select]


def _remove(element: Any) -> None:
    if getattr(element, "getparent", lambda: None)() is not None:
        element.drop_tree()


def _html(element: Any) -> str:
    for one in _unseen(element):
        _remove(one)
    return str(etree.tostring(element, method="html", encoding="unicode", with_tail=False))


def _type_of(headers: Headers) -> str | None:
    written = (headers.get(b"Content-Type") or b"").decode("latin-1")
    return written.partition(";")[0].strip().lower() or None


def _cut(text: str) -> str:
    """The text, cut to the length for which an item has room."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= MAX_BYTES else data[:MAX_BYTES].decode("utf-8", "ignore")
