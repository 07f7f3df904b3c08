"""The `seo` spider."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field
from scrapy import Request
from scrapy.http import HtmlResponse, Response

from crawler.extraction.page_facts import PageFacts
from crawler.extraction.page_urls import page_url, site_of
from crawler.frontier.spider_state import KeptState
from crawler.report.failures import exception_reason, is_error
from crawler.spiders.site_spider import MAY_LEAVE, OK, PageTextParams, SiteParams, SiteSpider, WalkParams, is_html

if TYPE_CHECKING:
    from scrapy.http import Headers
    from twisted.python.failure import Failure


PRELOAD = ("re2",)
#: Maximum number of links of each kind that an item lists; its counts include all links.
MAX_LINKS = 1000
_FIRST_ERROR_STATUS = 400


class SeoParams(WalkParams, PageTextParams):
    """Parameters of `seo`."""

    check_external: bool = Field(
        default=False, description="Also check links to other sites; each check counts as a page."
    )


class SeoSpider(SiteSpider):
    """Audits a site for search engines: what each page says about itself, and which links are broken.

    Items: one of `type: "page"` for each HTML page that was answered with 2xx, one of `type: "broken_link"` for
    each link, on each page, that leads to a status of 400 or above or to no answer at all.
    """

    name = "seo"
    Params: ClassVar[type[SiteParams]] = SeoParams
    params: SeoParams

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._wanted = self.params.url_filter()
        self.ledger = LinkLedger()
        self.kept_state["ledger"] = self.ledger

    def page_request(self, url: str, depth: int, **meta: Any) -> Request:
        self.ledger.expect(url)
        if depth == 0:
            self.ledger.mention(url, Mention(url, None))
        return super().page_request(url, depth, **meta)

    def parse(self, response: Response) -> Iterator[Any]:
        asked = asked_urls(response.request, response.url)
        self.logger.info("%d %s", response.status, response.url)
        if response.status >= _FIRST_ERROR_STATUS:
            yield from self.broken(asked, Breakage(status=response.status))
            return
        for url in asked:
            self.ledger.works(url)
        if response.status in OK and isinstance(response, HtmlResponse) and is_html(response.headers):
            if response.meta.get(MAY_LEAVE):
                self.sites.add(site_of(response.url))
            yield from self.audit(response)

    def parse_external(self, response: Response) -> Iterator[Any]:
        """Note whether a page of another site works. Its content does not matter."""
        asked = asked_urls(response.request, response.url)
        if response.status >= _FIRST_ERROR_STATUS:
            yield from self.broken(asked, Breakage(status=response.status))
        for url in asked:
            self.ledger.works(url)

    def fail(self, failure: Failure) -> Iterable[Any]:
        if not is_error(failure.value):
            return ()
        request: Request = failure.request  # type: ignore[attr-defined] # Scrapy sets it for errbacks
        return self.broken(asked_urls(request), Breakage(error=exception_reason(failure.value, request)))

    def wants_body(self, request: Request, headers: Headers) -> bool:
        return request.callback != self.parse_external and super().wants_body(request, headers)

    def merge(self, url: str, target: str) -> None:
        if self.ledger.is_broken(target):
            return  # fetched again, so that links that lead there by this redirect are also reported
        self.ledger.same(url, target)
        super().merge(url, target)

    def audit(self, response: HtmlResponse) -> Iterator[Any]:
        facts = PageFacts(response)
        links = dict.fromkeys(url for url in map(page_url, facts.links()) if url)
        internal = [url for url in links if self.is_internal(url)]
        external = [url for url in links if not self.is_internal(url)]
        yield self.with_page({**answer(response), **facts.as_item(), **listed(internal, external)}, response)
        depth = response.meta["depth"] + 1
        # read the links again only if some of them must not be followed
        followed = set(map(page_url, facts.links(obey_nofollow=True))) if self.params.obey_nofollow else links
        for url in internal:
            if url in followed and self._wanted.takes(url) and self.frontier.admits(url, depth):
                self.ledger.expect(url)
                yield from self.follow(url, depth)
            yield from self.mention(url, response.url)
        if self.params.check_external:
            yield from self.look_up(external, response.url, depth)

    def look_up(self, urls: Iterable[str], page: str, depth: int) -> Iterator[Any]:
        for url in urls:
            if self.frontier.ask(url):
                self.ledger.expect(url)
                meta = {"depth": depth, MAY_LEAVE: True}
                yield Request(url, self.parse_external, errback=self.fail, dont_filter=True, meta=meta)
            yield from self.mention(url, page)

    def mention(self, url: str, page: str) -> Iterator[dict[str, Any]]:
        mention = Mention(url, page)
        breakage = self.ledger.mention(url, mention)
        if breakage:
            yield broken_link(mention, breakage)

    def broken(self, urls: Iterable[str], breakage: Breakage) -> Iterator[dict[str, Any]]:
        for url in urls:
            for mention in self.ledger.breaks(url, breakage):
                yield broken_link(mention, breakage)


def asked_urls(request: Request | None, url: str | None = None) -> list[str]:
    """The URL that was requested, and all to which it was redirected."""
    hops = request.meta.get("redirect_urls", []) if request else []
    last = url or (request.url if request else "")
    pages = map(page_url, [*hops, last])
    return list(dict.fromkeys(page for page in pages if page))


def broken_link(mention: Mention, breakage: Breakage) -> dict[str, Any]:
    return {
        "type": "broken_link",
        "url": mention.url,
        "page": mention.page,
        "status": breakage.status,
        "error": breakage.error,
    }


def answer(response: Response) -> dict[str, Any]:
    """How the page was fetched. `response_time_ms` is that of the last redirect, and `None` for a cached page."""
    meta = response.meta
    cached = "cached" in response.flags
    latency = None if cached else meta.get("download_latency")
    hops = zip(meta.get("redirect_urls", []), meta.get("redirect_reasons", []), strict=False)
    return {
        "type": "page",
        "url": response.url,
        "status": response.status,
        "depth": meta["depth"],
        "redirects": [{"url": url, "status": reason} for url, reason in hops],
        "response_time_ms": None if latency is None else round(latency * 1000, 1),
        "size": len(response.body),
        "from_cache": cached,
    }


def listed(internal: list[str], external: list[str]) -> dict[str, Any]:
    return {
        "internal_links_count": len(internal),
        "external_links_count": len(external),
        "internal_links": internal[:MAX_LINKS],
        "external_links": external[:MAX_LINKS],
    }


# --- which pages link to which, until it is known whether the links work


class Mention(NamedTuple):
    """A link as it is written on a page; `page` is `None` for a start URL."""

    url: str
    page: str | None


class Breakage(NamedTuple):
    """Why a link does not work: the status of the answer, or the error if there was none."""

    status: int | None = None
    error: str | None = None


class LinkLedger(KeptState):
    """Keeps the mentions of requested pages until they are answered, and then only those that are broken."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[Mention]] = {}
        self._broken: dict[str, Breakage] = {}
        #: Links that an earlier attempt has reported as broken, on pages that may be read again.
        self._told: set[Mention] = set()

    def expect(self, url: str) -> None:
        """Note that `url` has been requested, or will be at once."""
        if url not in self._awaited:
            self._awaited[url] = []
            self.note("expect", url)

    def mention(self, url: str, mention: Mention) -> Breakage | None:
        """Note a link to `url`. Returns what is wrong with it, if that is known and was not reported yet."""
        if mention in self._told:
            self._told.discard(mention)
            return None
        if url in self._awaited:
            self.wait(url, mention)
        return self._broken.get(url)

    def wait(self, url: str, mention: Mention) -> None:
        """Let the mention wait for the answer of `url`. This also works before `expect`: when a crawl is continued,
        the request that expects the page may have been interrupted, and runs again.
        """
        self._awaited.setdefault(url, []).append(mention)
        self.note("wait", url, mention)

    def works(self, url: str) -> None:
        if self._awaited.pop(url, None) is not None:
            self.note("works", url)

    def breaks(self, url: str, breakage: Breakage) -> list[Mention]:
        """Remember that `url` is broken. Returns all its mentions so far."""
        mentions = self._awaited.pop(url, [])
        self._broken[url] = breakage
        self.note("broke", url, breakage, mentions)
        return mentions

    def broke(self, url: str, breakage: Breakage, told: list[Mention]) -> None:
        """Repeat what `breaks` did in an earlier attempt. Pages that were not done then will mention `url` again."""
        self._awaited.pop(url, None)
        self._broken[url] = breakage
        self._told.update(told)

    def is_broken(self, url: str) -> bool:
        return url in self._broken

    def same(self, url: str, target: str) -> None:
        """Note that `url` leads to `target`, which is fetched anyway: both work or both are broken."""
        mentions = self._awaited.pop(url, [])
        if target in self._awaited:
            self._awaited[target].extend(mentions)
        self.note("same", url, target)
