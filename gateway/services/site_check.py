"""Whether a site can be crawled as its record says, and a target searched for on it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NoReturn

from gateway.domain.errors import InvalidRequestError, StartingError
from gateway.domain.fetch_options import FetchOptions
from gateway.domain.job import CrawlSpec
from gateway.domain.param_formats import compile_css
from gateway.domain.public_address import Network, check_url
from gateway.domain.recurrence import check_timing
from gateway.domain.schedule import Timing
from gateway.domain.search_url import FIELD, KEYWORDS, LOCATION, PAGE, SearchUrl
from gateway.domain.site import JOBS_SPIDER, SELECTORS, PaginationType, Site, Target
from gateway.services.fetch_check import check_fetch
from gateway.services.rendering import renders
from gateway.services.site_crawl import FIRST_PAGE, Search, is_job_board, site_crawl
from gateway.services.spider_catalog import SpiderCatalog

#: Set by the site's own fields, or by what is searched for.
_NOT_IN_PAYLOAD = frozenset({"search_url", "pagination_type", "selectors", "extra"})
#: Of `fetch`, what the site has fields of its own for.
_NOT_IN_FETCH = ("min_pause_seconds", "max_pause_seconds", "rate_limit")
_MOST_WORDS = 500
_SAMPLE = "sample"
#: Where a fault of the crawl comes from in the site's record.
_FIELDS = {"params.search_url": FIELD, "start_urls": FIELD, "params.render": "requires_playwright"}
_FIELDS |= {"params.pagination_type": "pagination_type", "params.selectors": "selectors", "params": "payload"}


class SiteCheck:
    def __init__(self, catalog: SpiderCatalog, allowed_networks: Iterable[Network] = ()) -> None:
        self._catalog = catalog
        self._allowed = tuple(allowed_networks)

    def check(self, site: Site) -> None:
        """Raises `InvalidRequestError`, or `ForbiddenAddressError`, that names the field."""
        search_url = SearchUrl(site.search_url)
        if site.pagination_type is PaginationType.PAGE_PARAM and PAGE not in search_url.placeholders:
            raise InvalidRequestError(FIELD, f"pagination_type page_param needs {{{PAGE}}} in it")
        if site.max_pause_seconds < site.min_pause_seconds:
            raise InvalidRequestError("max_pause_seconds", "must not be below min_pause_seconds")
        _check_payload(site)
        _check_selectors(site)
        _check_fetch(site.fetch)
        sample = site_crawl(site, _sample(site, search_url), timeout=1)
        check_fetch(sample.fetch, self._allowed, renders=bool(renders(sample)))
        check_url(FIELD, sample.start_urls[0], self._allowed)
        self._check_spider(sample)

    def check_target(self, site: Site, target: Target, now: datetime) -> None:
        """Raises `InvalidRequestError` that names the field of the target."""
        refuse_words(site, target.words)
        timing = Timing(interval=target.interval(site), timezone=target.timezone, starts_at=now)
        try:
            check_timing(timing, now)
        except InvalidRequestError as error:
            _blame("frequency" if error.field == "interval" else error.field, error)

    def _check_spider(self, sample: CrawlSpec) -> None:
        """Against what the nodes have published; where none has, the first run will tell."""
        try:
            self._catalog.check(self._catalog.pin(sample))
        except StartingError:
            return
        except InvalidRequestError as error:
            _blame(_field_of_site(error.field), error)


def refuse_words(site: Site, words: dict[str, str], names: dict[str, str] | None = None) -> None:
    """Raises `InvalidRequestError` where the site's template and the words do not suit each other.

    `names`: what the request calls them.
    """
    refusal = SearchUrl(site.search_url).refusal(words)
    if refusal:
        name, why = refusal
        raise InvalidRequestError((names or {}).get(name, name), why)


def _check_fetch(fetch: FetchOptions) -> None:
    for name in _NOT_IN_FETCH:
        if getattr(fetch, name) is not None:
            raise InvalidRequestError(f"fetch.{name}", f"is a field of the site itself: {name}")


def _check_payload(site: Site) -> None:
    for name in (KEYWORDS, LOCATION):
        words = site.payload.get(name, "")
        if not isinstance(words, str) or len(words) > _MOST_WORDS:
            raise InvalidRequestError(f"payload.{name}", f"must be text of at most {_MOST_WORDS} characters")
    if is_job_board(site):
        _check_board_payload(site)
    words = site.words
    if words is not None:
        refuse_words(site, words, {name: f"payload.{name}" for name in words})


def _check_board_payload(site: Site) -> None:
    page = site.payload.get(FIRST_PAGE, 1)
    if not isinstance(page, int) or isinstance(page, bool) or page < 0:
        raise InvalidRequestError(f"payload.{FIRST_PAGE}", "must be a number from 0")
    taken = sorted(_NOT_IN_PAYLOAD & site.payload.keys())
    if taken:
        raise InvalidRequestError(f"payload.{taken[0]}", "is said by the site's own fields")


def _check_selectors(site: Site) -> None:
    if site.selectors and not is_job_board(site):
        raise InvalidRequestError("selectors", f"are for the spider {JOBS_SPIDER!r}; others take what is in payload")
    for name, selector in site.selectors.items():
        field = f"selectors.{name}"
        if name not in SELECTORS:
            detail = {"field": field, "known": sorted(SELECTORS)}
            raise InvalidRequestError(
                field, f"there is no such selector; there is {', '.join(SELECTORS)}", detail=detail
            )
        try:
            compile_css(selector)
        except ValueError as error:
            raise InvalidRequestError(field, str(error)) from error


def _sample(site: Site, search_url: SearchUrl) -> Search:
    words = site.words or dict.fromkeys(search_url.placeholders - {PAGE}, _SAMPLE)
    return Search.of_words(words)


def _field_of_site(field: str) -> str:
    """`params.selectors.title` of a crawl is `selectors.title` of the site."""
    for prefix, name in _FIELDS.items():
        if field == prefix or field.startswith(f"{prefix}."):
            # of the start URLs there is but one
            return name if name == FIELD else name + field.removeprefix(prefix)
    return field


def _blame(field: str, error: InvalidRequestError) -> NoReturn:
    """The same refusal, naming another field."""
    detail = {**error.detail, "field": field} if isinstance(error.detail, dict) else None
    raise type(error)(field, error.message.removeprefix(f"{error.field}: "), detail=detail) from error
