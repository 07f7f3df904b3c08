"""The base of our spiders: checked parameters, and a walk over the pages of a site."""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeGuard

from pydantic import BaseModel, Field
from scrapy import Request, Spider, signals
from scrapy.exceptions import DontCloseSpider, IgnoreRequest, StopDownload
from scrapy.http import HtmlResponse, Response

from crawler.extraction.markdown import page_markdown
from crawler.extraction.page_facts import PageFacts
from crawler.extraction.page_urls import Patterns, UrlFilter, formatted, is_on_site, page_url, site_of
from crawler.frontier.resumable_scheduler import together
from crawler.frontier.spider_state import KeptSet, KeptState
from crawler.render.setup import render_meta
from crawler.report.crawl_limits import is_page
from crawler.setting_names import MAX_ITEMS, MAX_PAGES, RENDER_PAGES

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Headers


#: Key in the meta of requests that may leave the site: start URLs, wherever they lead, and checks of external links.
MAY_LEAVE = "may_leave_site"
#: Maximum number of pages of a crawl that follows all links and has no limit of its own. Calendars and filters never
#: end.
MOST_PAGES = 10_000
_LIMITS = (MAX_PAGES, MAX_ITEMS)
OK = range(200, 300)
HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_check_css, _css_field = formatted("css-selector")
Css = Annotated[str, _check_css, _css_field]


class SiteParams(BaseModel, extra="forbid"):
    """Parameters of every spider that walks a site."""

    obey_robots: bool = Field(default=True, description="Obey robots.txt.")
    subdomains: bool = Field(default=False, description="Treat the site's subdomains as part of the site.")
    render: bool = Field(default=False, description="Render pages in a browser (Chromium).")
    wait_for: Css | None = Field(
        default=None, description="With `render`: wait until this CSS selector matches an element of the page."
    )
    scroll: int = Field(
        default=0,
        ge=0,
        le=100,
        description="With `render`: scroll to the end of a page this many times, or until no more loads.",
    )


class PageTextParams(SiteParams):
    """Parameters of spiders that read data out of pages."""

    markdown: bool = Field(
        default=False, description="Also give the page that an item is from as Markdown, in a field of that name."
    )


class FilteredParams(SiteParams):
    """Parameters of spiders that can leave out parts of a site."""

    include: Patterns = Field(
        default_factory=list, description="Visit only URLs that one of these RE2 patterns matches."
    )
    exclude: Patterns = Field(
        default_factory=list, description="Never visit URLs that one of these RE2 patterns matches."
    )

    def url_filter(self) -> UrlFilter:
        return UrlFilter(self.include, self.exclude)


class WalkParams(FilteredParams):
    """Parameters of spiders that follow the links of a site."""

    obey_nofollow: bool = Field(
        default=False,
        description="Follow no link with `rel=nofollow`, and none of a page that asks robots for it (`nofollow`).",
    )


class SiteSpider(Spider):
    """Fetches the pages of the start URLs' sites, each once, down to `depth` (0: the start URLs alone)."""

    name = ""
    Params: ClassVar[type[SiteParams]] = SiteParams
    custom_settings = {  # noqa: RUF012 - so declared by Scrapy
        # our own frontier limits the depth
        "DEPTH_LIMIT": 0,
        # breadth first, and in the order of the links on a page
        "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
        # a 404 is a result
        "HTTPERROR_ALLOW_ALL": True,
        # a page that refreshes to another one is still a page
        "METAREFRESH_ENABLED": False,
        # as search engines do: no sessions, so that visits do not differ
        "COOKIES_ENABLED": False,
    }

    def __init__(self, *, start_urls: list[str] | str = "", depth: int | str | None = None, **params: Any) -> None:
        super().__init__()
        given = start_urls.split(",") if isinstance(start_urls, str) else start_urls
        self.start_urls = [url.strip() for url in given if url.strip()]
        # Scrapyd adds arguments of its own, `_job` among them
        own = {name: value for name, value in params.items() if not name.startswith("_")}
        self.params = self.Params.model_validate(own)
        #: The sites to which the crawl is limited, as `site_of` names them.
        self.sites = KeptSet()
        self.frontier = Frontier(None if depth is None else int(depth))
        #: The state that is restored when a crawl is continued.
        self.kept_state: dict[str, KeptState] = {"sites": self.sites, "frontier": self.frontier}

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        if not spider.params.obey_robots:
            crawler.settings.set("ROBOTSTXT_OBEY", value=False, priority="cmdline")
        crawler.settings.set(RENDER_PAGES, spider.params.render, priority="cmdline")
        if spider.walks and not spider.frontier.by_level and not any(map(crawler.settings.getint, _LIMITS)):
            spider.logger.info("Without depth, max_pages or max_items, the crawl ends after %d pages", MOST_PAGES)
            crawler.settings.set(MAX_PAGES, MOST_PAGES, priority="cmdline")
        crawler.signals.connect(spider.stay_on_site, signals.request_scheduled)
        crawler.signals.connect(spider.skip_body, signals.headers_received)
        crawler.signals.connect(spider.begin_next_level, signals.spider_idle)
        return spider

    @property
    def walks(self) -> bool:
        """Whether the spider follows all links within the site."""
        return isinstance(self.params, WalkParams)

    async def start(self) -> AsyncIterator[Request]:
        for start_url in self.start_urls:
            url = page_url(start_url)
            if url is None:
                raise ValueError(f"{start_url!r} is not a URL of a page")
            self.sites.add(site_of(url))
            for request in self.begin(url):
                yield request

    def begin(self, url: str) -> Iterator[Request]:
        """The first request for a start URL."""
        if self.frontier.ask(url):
            yield self.page_request(url, 0, **{MAY_LEAVE: True})

    def page_request(self, url: str, depth: int, **meta: Any) -> Request:
        # without Scrapy's filter, which would hash every URL: our frontier requests each page once
        params = self.params
        meta |= render_meta(render=params.render, wait_for=params.wait_for, scroll=params.scroll)
        return Request(url, self.parse, errback=self.fail, dont_filter=True, meta={"depth": depth, **meta})

    def is_readable(self, response: Response) -> TypeGuard[HtmlResponse]:
        """Whether the response is an HTML page with a status of 2xx. The site to which a start URL was redirected is
        added to the crawl's sites.
        """
        self.logger.info("%d %s", response.status, response.url)
        if response.status not in OK or not isinstance(response, HtmlResponse) or not is_html(response.headers):
            return False
        if response.meta.get(MAY_LEAVE) and not response.meta["depth"]:
            self.sites.add(site_of(response.url))
        return True

    def walk(self, response: HtmlResponse, wanted: UrlFilter) -> Iterator[Request]:
        """Requests for the pages of the site that this one links to."""
        depth = response.meta["depth"] + 1
        links = PageFacts(response).links(obey_nofollow=getattr(self.params, "obey_nofollow", False))
        for url in dict.fromkeys(url for url in map(self.address, links) if url):
            if self.is_internal(url) and wanted.takes(url) and self.frontier.admits(url, depth):
                yield from self.follow(url, depth)

    def address(self, url: str) -> str | None:
        """The URL that stands for the page in this crawl; `None` if `url` is not a page's."""
        return page_url(url)

    def fail(self, failure: Any) -> Any:
        """Called if there was no response. The report has the reason; subclasses can do more."""

    def follow(self, url: str, depth: int) -> Iterator[Request]:
        """The request for a page that `admits` let in, unless it has to wait for its level."""
        if self.frontier.by_level:
            self.frontier.hold(url, depth)
        elif self.frontier.ask(url):
            yield self.page_request(url, depth)

    def is_internal(self, url: str) -> bool:
        return is_on_site(url, self.sites, subdomains=self.params.subdomains)

    def begin_next_level(self) -> None:
        with together(self.crawler):
            requests = [self.page_request(url, depth) for url, depth in self.frontier.next_level()]
            for request in requests:
                self.crawler.engine.crawl(request)
        if requests:
            raise DontCloseSpider

    def stay_on_site(self, request: Request) -> None:
        """Drop a redirect that leaves the site, or leads to a page that is fetched anyway."""
        hops = request.meta.get("redirect_urls")
        if not hops or request.callback != self.parse or request.meta.get("retry_times"):
            return
        target = page_url(request.url)
        if target is None or not (request.meta.get(MAY_LEAVE) or self.is_internal(target)):
            raise IgnoreRequest(f"{hops[0]} leads off the site")
        asked = {page_url(hop) for hop in hops}
        if target not in asked and not self.frontier.ask(target) and not self.frontier.goes_round(target, asked):
            self.merge(hops[0], target)

    def with_page(self, item: dict[str, Any], response: HtmlResponse | None) -> dict[str, Any]:
        """The item, with its page as Markdown if that is wanted."""
        if not getattr(self.params, "markdown", False):
            return item
        return {**item, "markdown": response and page_markdown(response.text, response.url)}

    def count(self, what: str, number: int = 1) -> None:
        """Add to one of the crawl's stats."""
        if self.crawler.stats:
            self.crawler.stats.inc_value(what, number)

    def merge(self, url: str, target: str) -> None:
        """Drop a redirect from `url` to `target`, because `target` was requested before."""
        self.frontier.merge(url, target)
        raise IgnoreRequest(f"{url} leads to {target}, which was asked for before")

    def skip_body(self, headers: Headers, request: Request) -> None:
        """Do not download the bodies of files that are not pages. Only their status matters."""
        if is_page(request) and not self.wants_body(request, headers):
            raise StopDownload(fail=False)

    def wants_body(self, request: Request, headers: Headers) -> bool:  # noqa: ARG002 - for those who override it
        return is_html(headers)


def is_html(headers: Headers) -> bool:
    """Whether the content type is HTML, or missing."""
    content_type = (headers.get(b"Content-Type") or b"text/html").decode("latin-1")
    return content_type.partition(";")[0].strip().lower() in HTML_TYPES


# --- which pages are still to be fetched, nearest first


class Frontier(KeptState):
    """The pages of a crawl by URL (see `page_url`), each requested once.

    With a depth limit it goes level by level. Otherwise a page could be found on a longer path while the page on the
    shorter path is still being fetched. Its depth would then be too large, and the pages behind it would be missed.
    With eight requests in flight that is not rare.
    """

    def __init__(self, depth_limit: int | None = None) -> None:
        self._depth_limit = depth_limit
        self._asked: set[str] = set()
        self._next_level: dict[str, int] = {}
        #: Pages that were dropped because they redirect to others: first URL → URL of the other page.
        self._merged: dict[str, str] = {}

    def ask(self, url: str) -> bool:
        """Whether `url` should be fetched now. It then counts as requested."""
        if url in self._asked:
            return False
        self._asked.add(url)
        # a redirect may lead to a page that waits for the next level
        self._next_level.pop(url, None)
        self.note("ask", url)
        return True

    def admits(self, url: str, depth: int) -> bool:
        """Whether `url`, at `depth`, is within the limit and new."""
        within = self._depth_limit is None or depth <= self._depth_limit
        return within and url not in self._asked and url not in self._next_level

    def hold(self, url: str, depth: int) -> None:
        """Keep `url` for the next level."""
        if url not in self._asked:
            self._next_level[url] = depth
            self.note("hold", url, depth)

    @property
    def by_level(self) -> bool:
        return self._depth_limit is not None

    def next_level(self) -> Iterator[tuple[str, int]]:
        """URL and depth of all pages that wait for the next level. They no longer wait after that."""
        level, self._next_level = self._next_level, {}
        yield from ((url, depth) for url, depth in level.items() if self.ask(url))

    def merge(self, url: str, target: str) -> None:
        """Note that `url` redirects to `target`, which is requested anyway."""
        self._merged[url] = target
        self.note("merge", url, target)

    def goes_round(self, target: str, asked: Container[str | None]) -> bool:
        """Whether `target` was dropped because it redirects to one of `asked`. Then this page must not be dropped as
        well: of two pages that redirect to each other, one must be fetched.
        """
        seen: set[str] = set()
        while target in self._merged and target not in seen:
            seen.add(target)
            target = self._merged[target]
        return target in asked
