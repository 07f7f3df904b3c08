"""Makes and checks the crawl of a site's run, from the records of the site and the target."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

from attrs import define

from gateway.contract.crawl import DEFAULT_PROJECT, CrawlSpec, Expect, FetchOptions, PaginationType
from gateway.contract.param_formats import compile_css
from gateway.contract.public_address import Network, check_url
from gateway.errors import InvalidRequestError, SiteDisabledError, StartingError
from gateway.jobs.job import CrawlOrder, TargetRun, Trigger
from gateway.projects.catalog import SpiderCatalog, check_fetch
from gateway.schedules.next_run import check_timing
from gateway.schedules.orders import RunOrder
from gateway.schedules.schedule import Overlap, Schedule, Timing
from gateway.sites.site import FIELD, JOBS_SPIDER, KEYWORDS, LOCATION, PAGE, SELECTORS, SearchUrl, Site, Target
from gateway.sites.store import SiteStore, TargetStore

FIRST_PAGE = "first_page"
#: Parameters of the spider `jobs` that a site's `payload` may set. Everything else in it is passed on as `extra`.
JOBS_PAYLOAD = frozenset(
    {
        *(FIRST_PAGE, "page_step", "max_result_pages", "results_wanted", "is_remote", "details", "markdown"),
        *("obey_robots", "subdomains", "render", "wait_for", "scroll"),
    }
)
_WORDS = {KEYWORDS, LOCATION}


class SiteSearch(NamedTuple):
    """What one run searches for."""

    keywords: str = ""
    location: str = ""
    results_wanted: int | None = None
    is_remote: bool | None = None

    @classmethod
    def of_words(cls, words: dict[str, str]) -> SiteSearch:
        return cls(words.get(KEYWORDS, ""), words.get(LOCATION, ""))

    @classmethod
    def of_target(cls, target: Target) -> SiteSearch:
        return cls(target.keywords, target.location, target.results_wanted, target.is_remote)


def is_job_board(site: Site) -> bool:
    """Whether the site's spider is the one that accepts selectors and pagination."""
    return (site.project, site.spider) == (DEFAULT_PROJECT, JOBS_SPIDER)


def first_url(site: Site, search: SiteSearch) -> str:
    """The start URL of the run."""
    page = int(site.payload.get(FIRST_PAGE, 1)) if is_job_board(site) else 1
    return SearchUrl(site.search_url).render(search.keywords, search.location, page)


def site_crawl(site: Site, search: SiteSearch, timeout: int) -> CrawlSpec:
    """The spec of one run. `timeout`: seconds that one attempt may take."""
    board = is_job_board(site)
    return CrawlSpec(
        project=site.project,
        spider=site.spider,
        start_urls=(first_url(site, search),),
        params=_board_params(site, search) if board else _other_params(site, search),
        # the spider `jobs` stops by itself, because it counts only the items that it keeps
        max_items=None if board else search.results_wanted,
        timeout=timeout,
        # each run must find new items, and not read the pages of the previous run from the HTTP cache
        ignore_cache=True,
        fetch=site.fetch.model_copy(
            update={"min_pause_seconds": site.min_pause_seconds, "max_pause_seconds": site.max_pause_seconds}
        ),
        expect=site.expect and _within(site.expect, search.results_wanted),
        dataset=site.dataset,
        site=site.name,
        site_rate_limit=site.rate_limit,
    )


def _within(expect: Expect, results_wanted: int | None) -> Expect:
    """The expectations, lowered so that a run need not find more items than were asked for."""
    if expect.min_items is None or results_wanted is None:
        return expect
    return expect.model_copy(update={"min_items": min(expect.min_items, results_wanted)})


def _board_params(site: Site, search: SiteSearch) -> dict[str, Any]:
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


def _other_params(site: Site, search: SiteSearch) -> dict[str, Any]:
    given = {name: value for name, value in site.payload.items() if name not in _WORDS}
    if site.project == DEFAULT_PROJECT:
        return given | ({"render": True} if site.requires_playwright else {})
    search_url = SearchUrl(site.search_url).render(search.keywords, search.location)
    return given | {KEYWORDS: search.keywords, LOCATION: search.location, "search_url": search_url}


# --- checks whether a site can be crawled as its record says, and whether a target fits its site

#: Names that are not allowed in `payload`: the site's own fields, or the search, set them.
_NOT_IN_PAYLOAD = frozenset({"search_url", "pagination_type", "selectors", "extra"})
#: Names that are not allowed in `fetch`: the site has fields of its own for them.
_NOT_IN_FETCH = ("min_pause_seconds", "max_pause_seconds", "rate_limit")
_MOST_WORDS = 500
#: For fields of the crawl: the field of the site's record from which they are made, and which an error names.
_FIELDS = {"params.search_url": FIELD, "start_urls": FIELD, "params.render": "requires_playwright"}
_FIELDS |= {"params.pagination_type": "pagination_type", "params.selectors": "selectors", "params": "payload"}


@define(eq=False, repr=False, slots=False)
class SiteCheck:
    """Checks the records of sites and targets."""

    _catalog: SpiderCatalog
    _allowed_networks: Sequence[Network] = ()

    def check(self, site: Site) -> None:
        """Check the site's record. Raises `InvalidRequestError` or `ForbiddenAddressError`, which name the field."""
        search_url = SearchUrl(site.search_url)
        if site.pagination_type is PaginationType.PAGE_PARAM and PAGE not in search_url.placeholders:
            raise InvalidRequestError(FIELD, f"pagination_type page_param needs {{{PAGE}}} in it")
        if site.max_pause_seconds < site.min_pause_seconds:
            raise InvalidRequestError("max_pause_seconds", "must not be below min_pause_seconds")
        _check_payload(site)
        _check_selectors(site)
        _check_fetch(site.fetch)
        words = site.words or dict.fromkeys(search_url.placeholders - {PAGE}, "sample")
        sample = site_crawl(site, SiteSearch.of_words(words), timeout=1)
        check_fetch(sample.fetch, self._allowed_networks, renders=sample.renders)
        check_url(FIELD, sample.start_urls[0], self._allowed_networks)
        self._check_spider(sample)

    def check_target(self, site: Site, target: Target, now: datetime) -> None:
        """Check the target's record. Raises `InvalidRequestError`, which names the field of the target."""
        refuse_words(site, target.words)
        timing = Timing(interval=target.interval(site), timezone=target.timezone, starts_at=now)
        try:
            check_timing(timing, now)
        except InvalidRequestError as error:
            _blame("frequency" if error.field == "interval" else error.field, error)

    def _check_spider(self, sample: CrawlSpec) -> None:
        """Check the crawl against the spiders that nodes have published. If no node has published any yet, errors
        show only in the first run.
        """
        try:
            self._catalog.check(self._catalog.pin(sample))
        except StartingError:
            return
        except InvalidRequestError as error:
            _blame(_field_of_site(error.field), error)


def refuse_words(site: Site, words: dict[str, str], names: dict[str, str] | None = None) -> None:
    """Raises `InvalidRequestError` if the words do not fit the template; `names` are the request's field names."""
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
        raise InvalidRequestError(f"payload.{taken[0]}", "is set by the site's own fields")


def _check_selectors(site: Site) -> None:
    if site.selectors and not is_job_board(site):
        raise InvalidRequestError("selectors", f"are only for the spider {JOBS_SPIDER!r}; others get the payload")
    for name, selector in site.selectors.items():
        field = f"selectors.{name}"
        if name not in SELECTORS:
            message = f"unknown selector; known are {', '.join(SELECTORS)}"
            raise InvalidRequestError(field, message, detail={"field": field, "known": sorted(SELECTORS)})
        try:
            compile_css(selector)
        except ValueError as error:
            raise InvalidRequestError(field, str(error)) from error


def _field_of_site(field: str) -> str:
    """The site's field for a field of the crawl, for example `selectors.title` for `params.selectors.title`."""
    for prefix, name in _FIELDS.items():
        if field == prefix or field.startswith(f"{prefix}."):
            # leave out the index in `start_urls`, because a site has only one start URL
            return name if name == FIELD else name + field.removeprefix(prefix)
    return field


def _blame(field: str, error: InvalidRequestError) -> NoReturn:
    """Raise the same error, but for another field."""
    detail = {**error.detail, "field": field} if isinstance(error.detail, dict) else None
    raise type(error)(field, error.problem, detail=detail) from error


# --- makes the order for a run of a site or target from their records, when the run is fired or asked for


@define(eq=False, repr=False, slots=False, kw_only=True)
class SiteOrders:
    """Makes the orders for runs of sites and targets."""

    _sites: SiteStore
    _targets: TargetStore
    _catalog: SpiderCatalog
    #: Seconds that one attempt may take.
    _job_timeout: int

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, RunOrder]:
        """The orders by the schedules' ids, made with two queries. Schedules whose site or target does not exist are
        left out.
        """
        targets = self._targets.identified(schedule.target for schedule in schedules if schedule.target)
        sites = self._sites.named(schedule.site for schedule in schedules if schedule.site)
        orders = {}
        for schedule in schedules:
            site = sites.get(schedule.site or "")
            target = targets.get(schedule.target) if schedule.target else None
            if site and (target or not schedule.target):
                orders[schedule.id] = self._scheduled(schedule, site, target)
        return orders

    def manual(
        self,
        site: Site,
        *,
        keywords: str | None = None,
        location: str | None = None,
        results_wanted: int | None = None,
        is_remote: bool | None = None,
    ) -> RunOrder:
        """The order for a run that a client asks for. If a word is `None`, the word of the site's own runs is used.

        Raises `SiteDisabledError`, and `InvalidRequestError`, which names the field of `POST /jobs/scrape`.
        """
        given = {KEYWORDS: keywords, LOCATION: location}
        words = {name: site.payload.get(name, "") if word is None else word for name, word in given.items()}
        # the field name of `POST /jobs/scrape`
        _refuse_run(site, words, {KEYWORDS: "search_term"})
        search = SiteSearch(words[KEYWORDS], words[LOCATION], results_wanted, is_remote)
        return self._order(site, search, Trigger.MANUAL)

    def _scheduled(self, schedule: Schedule, site: Site, target: Target | None) -> RunOrder:
        words = target.words if target else site.words
        search = SiteSearch.of_target(target) if target else SiteSearch.of_words(words or {})
        try:
            _refuse_run(site, words)
            order = self._order(site, search, Trigger.SCHEDULED)
        except (InvalidRequestError, SiteDisabledError, StartingError) as error:
            order = RunOrder(CrawlOrder(spec=site_crawl(site, search, self._job_timeout)), skip=error.message)
        if not order.exclusive and schedule.overlap is Overlap.QUEUE:
            order = order._replace(exclusive=f"schedule:{schedule.id}")
        return order._replace(target=_target_run(site, target)) if target else order

    def _order(self, site: Site, search: SiteSearch, trigger: Trigger) -> RunOrder:
        """The order for this search. Raises `InvalidRequestError` if the project or its version does not exist."""
        spec = self._catalog.pin(site_crawl(site, search, self._job_timeout))
        return RunOrder(
            CrawlOrder(spec=spec, max_retries=site.max_retries),
            exclusive=None if site.allow_overlap else f"site:{site.name}",
            trigger=trigger,
        )


def _refuse_run(site: Site, words: dict[str, str] | None, names: dict[str, str] | None = None) -> None:
    """Raises `SiteDisabledError`, and `InvalidRequestError` if the words are missing or do not fit the template."""
    if not site.enabled:
        raise SiteDisabledError(f"site {site.name!r} is disabled")
    if words is None:
        raise InvalidRequestError("payload", "has no words for the placeholders in search_url")
    refuse_words(site, words, names)


def _target_run(site: Site, target: Target) -> TargetRun:
    return TargetRun(
        target_id=target.number,
        website_id=site.number,
        website_name=site.name,
        search_url=first_url(site, SiteSearch.of_target(target)),
        requires_playwright=site.requires_playwright,
        pagination_type=site.pagination_type.value,
        keywords_used=target.keywords,
        location_used=target.location,
    )
