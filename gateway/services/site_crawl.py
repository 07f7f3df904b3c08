"""The crawl that a run of a site is: made from the site's record and from what is searched for, at that moment."""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.domain.fetch_options import FetchOptions
from gateway.domain.job import DEFAULT_PROJECT, CrawlSpec
from gateway.domain.search_url import KEYWORDS, LOCATION, SearchUrl
from gateway.domain.site import JOBS_SPIDER, PaginationType, Site, Target

FIRST_PAGE = "first_page"
#: Parameters of `jobs` that a site's `payload` may give; what else is in it goes along as `extra`.
JOBS_PAYLOAD = frozenset(
    {
        *(FIRST_PAGE, "page_step", "max_result_pages", "results_wanted", "is_remote", "details"),
        *("obey_robots", "subdomains", "render", "wait_for", "scroll"),
    }
)
_WORDS = {KEYWORDS, LOCATION}


class Search(NamedTuple):
    """What one run looks for."""

    keywords: str = ""
    location: str = ""
    results_wanted: int | None = None
    is_remote: bool | None = None

    @classmethod
    def of_words(cls, words: dict[str, str]) -> Search:
        return cls(words.get(KEYWORDS, ""), words.get(LOCATION, ""))

    @classmethod
    def of_target(cls, target: Target) -> Search:
        return cls(target.keywords, target.location, target.results_wanted, target.is_remote)


def is_job_board(site: Site) -> bool:
    """Whether its spider is the one that takes selectors and pagination."""
    return (site.project, site.spider) == (DEFAULT_PROJECT, JOBS_SPIDER)


def first_url(site: Site, search: Search) -> str:
    """Where the run begins."""
    page = int(site.payload.get(FIRST_PAGE, 1)) if is_job_board(site) else 1
    return SearchUrl(site.search_url).render(search.keywords, search.location, page)


def site_crawl(site: Site, search: Search, timeout: int) -> CrawlSpec:
    """`timeout`: seconds that one attempt may take."""
    board = is_job_board(site)
    return CrawlSpec(
        project=site.project,
        spider=site.spider,
        start_urls=(first_url(site, search),),
        params=_board_params(site, search) if board else _other_params(site, search),
        # `jobs` stops by itself, and counts what it keeps
        max_items=None if board else search.results_wanted,
        timeout=timeout,
        # it is asked again to learn what is new: pages of an hour ago would be last time's results
        ignore_cache=True,
        fetch=_fetch(site),
        site=site.name,
        site_rate_limit=site.rate_limit,
    )


def _board_params(site: Site, search: Search) -> dict[str, Any]:
    given = {name: value for name, value in site.payload.items() if name in JOBS_PAYLOAD}
    extra = {name: value for name, value in site.payload.items() if name not in JOBS_PAYLOAD | _WORDS}
    if site.requires_playwright or site.pagination_type is PaginationType.INFINITE_SCROLL:
        given["render"] = True
    said = {
        "search_url": SearchUrl(site.search_url).render(search.keywords, search.location),
        "pagination_type": site.pagination_type.value,
        "selectors": site.selectors or None,
        "results_wanted": search.results_wanted,
        "is_remote": search.is_remote,
        KEYWORDS: search.keywords or None,
        LOCATION: search.location or None,
        "extra": extra or None,
    }
    return given | {name: value for name, value in said.items() if value is not None}


def _other_params(site: Site, search: Search) -> dict[str, Any]:
    given = {name: value for name, value in site.payload.items() if name not in _WORDS}
    if site.project == DEFAULT_PROJECT:
        return given | ({"render": True} if site.requires_playwright else {})
    search_url = SearchUrl(site.search_url).render(search.keywords, search.location)
    return given | {KEYWORDS: search.keywords, LOCATION: search.location, "search_url": search_url}


def _fetch(site: Site) -> FetchOptions:
    pauses = {"min_pause_seconds": site.min_pause_seconds, "max_pause_seconds": site.max_pause_seconds}
    return site.fetch.model_copy(update=pauses)
