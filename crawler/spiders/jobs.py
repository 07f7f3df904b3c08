"""The `jobs` spider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from lxml import etree
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator
from scrapy import Request
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import HtmlResponse

from crawler.extraction.page_urls import page_url
from crawler.extraction.rules import Page
from crawler.frontier.spider_state import KeptQueue, KeptState
from crawler.job_posting.pages import SelectedPostings, posting_on, results_of
from crawler.job_posting.posting import Quota, web_url
from crawler.render.setup import render_meta
from crawler.report.crawl_limits import PageLimitError
from crawler.spiders.site_spider import MAY_LEAVE, Css, PageTextParams, SiteSpider
from gateway.contract.crawl import PaginationType

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from crawler.job_posting.posting import Posting


#: Placeholder for the number of a result page in `search_url`.
PAGE = "{page}"
MAX_RESULTS = 10_000
MAX_RESULT_PAGES = 10_000
#: Room for a template with two texts of 500 characters, each of four bytes that are quoted.
MAX_URL = 16_000
Words = Annotated[str, StringConstraints(max_length=500)]


class SiteSelectors(BaseModel, extra="forbid"):
    """How the postings of a site without JSON-LD are read. Selectors of fields apply inside a `result`."""

    result: Css | None = Field(default=None, description="Matches each posting on a result page.")
    title: Css | None = None
    company: Css | None = None
    location: Css | None = None
    salary: Css | None = None
    posted: Css | None = None
    url: Css | None = Field(
        default=None, description="The link to the posting's own page; by default its first link."
    )
    description: Css | None = None
    next: Css | None = Field(default=None, description="The link to the next result page.")
    load_more: Css | None = Field(default=None, description="What to click on for more results, in a browser.")


def _if_paginated_by(kind: PaginationType, then: dict[str, JsonValue]) -> JsonValue:
    return {
        "if": {"properties": {"pagination_type": {"const": kind.value}}, "required": ["pagination_type"]},
        "then": then,
    }


_CONDITIONS: list[JsonValue] = [
    _if_paginated_by(
        PaginationType.PAGE_PARAM,
        {"required": ["search_url"], "properties": {"search_url": {"pattern": r"\{page\}"}}},
    ),
    _if_paginated_by(
        PaginationType.INFINITE_SCROLL, {"required": ["render"], "properties": {"render": {"const": True}}}
    ),
]


class JobsParams(PageTextParams):
    """Parameters of `jobs`."""

    # in the schema as well, so that a wrong request is refused when it is submitted
    model_config = ConfigDict(json_schema_extra={"allOf": _CONDITIONS})

    search_url: Annotated[str, StringConstraints(max_length=MAX_URL)] | None = Field(
        default=None, description="URL of a result page with `{page}` in place of its number; see `page_param`."
    )
    pagination_type: PaginationType = Field(
        default=PaginationType.NONE, description="How to get from one page of results to the next."
    )
    selectors: SiteSelectors = Field(default=SiteSelectors(), description="For sites without JSON-LD.")
    first_page: int = Field(default=1, ge=0, le=1_000_000, description="The page number of the start URL.")
    page_step: int = Field(default=1, ge=1, le=10_000, description="How much the number grows from page to page.")
    max_result_pages: int = Field(default=100, ge=1, le=MAX_RESULT_PAGES, description="The most pages of results.")
    results_wanted: int | None = Field(
        default=None, ge=1, le=MAX_RESULTS, description="End after this many postings; by default after all of them."
    )
    is_remote: bool | None = Field(
        default=None, description="`true`: only remote postings; `false`: only those that are not known to be remote."
    )
    keywords: Words | None = Field(default=None, description="The words searched for; copied to the items.")
    location: Words | None = Field(default=None, description="The place searched in; copied to the items.")
    details: bool | None = Field(
        default=None, description="Open each posting's page; by default only if result pages have no JSON-LD."
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Anything else; the spider ignores it.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.pagination_type is PaginationType.PAGE_PARAM and PAGE not in (self.search_url or ""):
            raise ValueError("pagination_type page_param needs a search_url with {page}")
        if self.pagination_type is PaginationType.INFINITE_SCROLL and not self.render:
            raise ValueError("pagination_type infinite_scroll needs render")
        return self


# --- the spider

#: Modules that the warm process imports because crawls of this spider may need them.
PRELOAD = ("dateparser.date",)
#: Finish reason of a crawl that has all the postings that were wanted.
REASON = "results_wanted"
GONE = frozenset({404, 410})
#: Maximum number of times that an infinite result page is scrolled if the parameters do not limit that.
MAX_SCROLLS = 100
#: After this many postings' own pages without anything new, the others are read from the result pages alone.
PAGES_IN_VAIN = 2
#: Keys in a request's meta: the number of the result page, and the posting that waits for its own page.
_NUMBER = "jobs_page"
_POSTING = "jobs_posting"
_rel_next: Callable[[Any], Any] = etree.XPath(
    "(//a|//link)[contains(concat(' ', translate(normalize-space(@rel), 'NEXT', 'next'), ' '), ' next ')]/@href"
)


class JobsSpider(SiteSpider):
    """Reads the postings of job boards: JSON-LD or selectors, from result pages and the postings' own.

    Items: one for each posting.
    """

    name = "jobs"
    Params: ClassVar[type[JobsParams]] = JobsParams
    params: JobsParams
    custom_settings = {  # noqa: RUF012 - so declared by Scrapy
        **SiteSpider.custom_settings,
        # early, so that robots.txt of another site is not fetched either
        "DOWNLOADER_MIDDLEWARES": {"crawler.spiders.jobs.StayOnSite": 50},
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        params = self.params
        self._selected = SelectedPostings(params.selectors.model_dump())
        self._found = FoundJobs(Quota(params.results_wanted), params.details)
        self.kept_state |= {"found": self._found, "waiting": self._found.waiting, "pages": self._found.pages}
        self._warned: set[str] = set()

    def begin(self, url: str) -> Iterator[Request]:
        if self.frontier.ask(url):
            yield self._result_page(url, 1, **{MAY_LEAVE: True})

    def parse(self, response: Response) -> Iterator[Any]:
        """Read a result page."""
        try:
            if self.is_readable(response):
                self._read_results(response)
            else:
                self._warn("unreadable", "%s is no result page: %d", response.url, response.status)
        except Exception:
            # postings that wait for their turn must still be processed
            yield from self._go_on()
            raise
        yield from self._go_on()

    def parse_posting(self, response: Response) -> Iterator[Any]:
        """Read a posting's own page."""
        self._found.end_detour()
        posting: Posting | None = response.meta[_POSTING]
        if posting and self.is_readable(response):
            try:
                posting = self._read_posting(response, posting)
            except Exception:
                yield from self._tell(posting, response.meta[_NUMBER], response)
                yield from self._go_on()
                raise
        elif response.status in GONE:
            self.count("jobs/gone")
            posting = None
        if posting:
            page = response if isinstance(response, HtmlResponse) else None
            yield from self._tell(posting, response.meta[_NUMBER], page)
        yield from self._go_on()

    def fail_posting(self, failure: Failure) -> Iterator[Any]:
        """Give the item with what the result page says, because the posting's own page cannot be fetched."""
        self._found.end_detour()
        meta = failure.request.meta  # type: ignore[attr-defined] # Scrapy sets it for errbacks
        if not isinstance(failure.value, PageLimitError):
            yield from self._tell(meta[_POSTING], meta[_NUMBER])
            yield from self._go_on()

    def fail(self, failure: Failure) -> Iterator[Any]:  # noqa: ARG002 - Scrapy's signature
        yield from self._go_on()

    def _read_results(self, response: HtmlResponse) -> None:
        """Queue the new postings of a result page and, if there are any, the next result page."""
        page, number = Page(response), response.meta[_NUMBER]
        postings = results_of(page, self._selected)
        new = [posting for posting in postings if self._found.is_new(posting.identities())]
        self.logger.info("%d postings on %s, %d of them new", len(postings), page.url, len(new))
        self.count("jobs/result_pages")
        if not postings and number == 1:
            self._warn_of_nothing(page)
        for position, posting in enumerate(new):
            self._found.waiting.put(f"{page.url} {position}", (posting, number))
        if new and number < self.params.max_result_pages and (url := self._next_page(page, number)):
            self._found.pages.put(url, number + 1)

    def _next_page(self, page: Page, number: int) -> str | None:
        params, url = self.params, None
        if params.pagination_type is PaginationType.NEXT_LINK:
            written = self._selected.next_url(page.root) or next(iter(_rel_next(page.root)), None)
            url = page_url(web_url(page.base, written or "") or "")
        elif params.pagination_type is PaginationType.PAGE_PARAM and params.search_url:
            url = page_url(params.search_url.replace(PAGE, str(params.first_page + number * params.page_step)))
        if url and not self.is_internal(url):
            self._warn("next", "The next page, %s, is not on the site", url)
        elif url and self.frontier.ask(url):
            return url
        return None

    def _result_page(self, url: str, number: int, **meta: Any) -> Request:
        params = self.params
        request = self.page_request(url, 0, **{_NUMBER: number, **meta})
        if params.pagination_type is PaginationType.INFINITE_SCROLL:
            # with a filter it is unknown how many of the postings count
            counted = params.selectors.result if params.is_remote is None else None
            instructions = render_meta(
                render=params.render,
                wait_for=params.wait_for,
                scroll=params.scroll or min(params.max_result_pages, MAX_SCROLLS),
                click=params.selectors.load_more,
                enough=(counted, params.results_wanted) if counted and params.results_wanted else None,
            )
            request.meta.update(instructions)
        return request

    def _go_on(self) -> Iterator[Any]:
        """Give the waiting postings, or request their own pages, up to the wanted number. If there are too few,
        request the next result page.
        """
        found = self._found
        while found.waiting and found.quota.has_room:
            posting, number = found.waiting.first()
            url = self._own_page(posting)
            if url and found.pages_help is None and found.quota.under_way:
                # wait: the first posting's own page decides whether further ones are fetched
                return
            found.waiting.take()
            if url and self.frontier.ask(url):
                found.begin_detour()
                yield self._posting_page(url, posting, number)
            else:
                yield from self._tell(posting, number)
        if found.quota.is_met:
            raise CloseSpider(REASON)
        while found.pages and found.quota.has_room:
            yield self._result_page(*found.pages.take())

    def _own_page(self, posting: Posting) -> str | None:
        """The URL of the posting's own page, if fetching it makes sense."""
        url = page_url(posting.url) if posting.url else None
        wanted = self._found.pages_help is not False or (self.params.details is None and not posting.title)
        is_complete = self.params.details is None and posting.source == "json-ld" and posting.title
        return url if url and wanted and not is_complete and self.is_internal(url) else None

    def _posting_page(self, url: str, posting: Posting, number: int) -> Request:
        meta = {"depth": 1, _POSTING: posting, _NUMBER: number, STAYS_ON_SITE: True}
        meta |= render_meta(render=self.params.render, wait_for=None, scroll=0)
        return Request(url, self.parse_posting, errback=self.fail_posting, dont_filter=True, meta=meta)

    def _read_posting(self, response: HtmlResponse, listed: Posting) -> Posting:
        before = listed.as_item()
        posting = posting_on(Page(response), listed, self._selected)
        if self._found.pages_help is None:
            helped = posting.source == "json-ld" or posting.as_item() | {"raw": None} != before | {"raw": None}
            # a redirect may lead to other postings, so this page does not count as one without anything new
            if self._found.judge(helped, not helped and "redirect_urls" not in response.meta) is False:
                self.logger.info(
                    "The postings' own pages say no more than the result pages; no more of them are fetched"
                )
        return posting

    def _tell(self, posting: Posting, number: int, response: HtmlResponse | None = None) -> Iterator[dict[str, Any]]:
        """The item, unless it was given before or is not wanted."""
        identities = set(posting.identities())
        if not posting.title:
            self.count("jobs/without_title")
            self._warn("title", "A posting on result page %d is left out, and counted: it has no title", number)
        elif self.params.is_remote is not None and self.params.is_remote is not (posting.remote is True):
            self.count("jobs/filtered")
        elif not self._found.delivered.isdisjoint(identities):
            self.count("jobs/repeated")
        else:
            self._found.deliver(identities)
            asked = {"keywords": self.params.keywords, "location_asked": self.params.location}
            yield self.with_page({**posting.as_item(), "page": number, **asked}, response)

    def _warn_of_nothing(self, page: Page) -> None:
        selector = self.params.selectors.result
        if selector is None:
            why = "the page carries no JSON-LD JobPosting, and there is no selectors.result"
        else:
            why = f"the page carries no JSON-LD JobPosting, and nothing on it matches selectors.result ({selector})"
        self.logger.warning("No postings on %s: %s", page.url, why)

    def _warn(self, what: str, message: str, *args: Any) -> None:
        """Log a warning, but only the first of each kind."""
        if what not in self._warned:
            self._warned.add(what)
            self.logger.warning(message, *args)


# --- the postings of result pages, and which of them were given as items

_Identities = Iterable[tuple[str | None, ...]]


class FoundJobs(KeptState):
    def __init__(self, quota: Quota, pages_help: bool | None) -> None:  # noqa: FBT001 - three states
        self.quota = quota
        #: Postings that wait for their turn, with the numbers of their result pages.
        self.waiting = KeptQueue()
        #: Numbers of result pages that wait, by their URLs.
        self.pages = KeptQueue()
        self.seen: set[tuple[str | None, ...]] = set()
        self.delivered: set[tuple[str | None, ...]] = set()
        #: Whether the postings' own pages have more facts than the result pages; `None` until that is known.
        self.pages_help = pages_help
        self._in_vain = 0

    def is_new(self, identities: _Identities) -> bool:
        """Whether no earlier result page has had this posting. It then counts as seen."""
        own = set(identities)
        new = self.seen.isdisjoint(own)
        self.seen |= own
        self.note("is_new", own)
        return new

    def begin_detour(self) -> None:
        """Note that a posting's own page is requested."""
        self.quota.under_way += 1
        self.note("begin_detour")

    def end_detour(self) -> None:
        self.quota.under_way -= 1
        self.note("end_detour")

    def judge(self, helped: bool, in_vain: bool) -> bool | None:  # noqa: FBT001 - a replay passes it by position
        """Note whether a posting's own page said more than the result page (`helped`), or nothing more (`in_vain`).
        Returns `pages_help`.
        """
        self._in_vain += in_vain
        self.pages_help = True if helped else False if self._in_vain == PAGES_IN_VAIN else None
        self.note("judge", helped, in_vain)
        return self.pages_help

    def deliver(self, identities: _Identities) -> None:
        own = set(identities)
        self.delivered |= own
        self.quota.delivered += 1
        self.note("deliver", own)


# --- requests that must not leave their site: the spider gets an error if a redirect leads elsewhere

#: Key in the meta of a request whose redirects must stay on the site; otherwise its errback is called.
STAYS_ON_SITE = "stays_on_site"


class StayOnSite:
    """Downloader middleware for a `SiteSpider` that refuses requests which leave the site. If the scheduler refused
    them, their errback would not be called.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        if request.meta.get(STAYS_ON_SITE) and not self._crawler.spider.is_internal(request.url):  # type: ignore[union-attr] # a SiteSpider
            raise IgnoreRequest(f"{request.url} is not on the site")
