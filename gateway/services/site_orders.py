"""What a run of a site or a target is, made from their records at the moment it is fired or asked for."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.errors import InvalidRequestError, SiteDisabledError, StartingError
from gateway.domain.schedule import Overlap, Schedule
from gateway.domain.search_url import KEYWORDS, LOCATION
from gateway.domain.site import Site, Target
from gateway.domain.slot import TargetRun, Trigger
from gateway.services.site_check import refuse_words
from gateway.services.site_crawl import Search, first_url, site_crawl
from gateway.services.slot_orders import SlotOrder
from gateway.services.spider_catalog import SpiderCatalog
from gateway.storage.sites import SiteStore
from gateway.storage.targets import TargetStore

#: What `POST /jobs/scrape` calls them.
_MANUAL_NAMES = {KEYWORDS: "search_term"}


class SiteOrders:
    def __init__(self, *, sites: SiteStore, targets: TargetStore, catalog: SpiderCatalog, job_timeout: int) -> None:
        """`job_timeout`: seconds that one attempt may take."""
        self._sites = sites
        self._targets = targets
        self._catalog = catalog
        self._job_timeout = job_timeout

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, SlotOrder]:
        """By the schedules' ids, from two reads; those whose site or target is gone are left out."""
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
    ) -> SlotOrder:
        """For a run that somebody asks for. Words that are `None` are those of the site's own runs.

        Raises `SiteDisabledError`, and `InvalidRequestError` that names the field of `POST /jobs/scrape`.
        """
        given = {KEYWORDS: keywords, LOCATION: location}
        words = {name: site.payload.get(name, "") if word is None else word for name, word in given.items()}
        _refuse_run(site, words, _MANUAL_NAMES)
        search = Search(words[KEYWORDS], words[LOCATION], results_wanted, is_remote)
        return self._order(site, search, Trigger.MANUAL)

    def _scheduled(self, schedule: Schedule, site: Site, target: Target | None) -> SlotOrder:
        words = target.words if target else site.words
        search = Search.of_target(target) if target else Search.of_words(words or {})
        try:
            _refuse_run(site, words)
            order = self._order(site, search, Trigger.SCHEDULED)
        except (InvalidRequestError, SiteDisabledError, StartingError) as error:
            order = SlotOrder(site_crawl(site, search, self._job_timeout), skip=error.message)
        if not order.exclusive and schedule.overlap is Overlap.QUEUE:
            order = order._replace(exclusive=f"schedule:{schedule.id}")
        return order._replace(target=_target_run(site, target)) if target else order

    def _order(self, site: Site, search: Search, trigger: Trigger) -> SlotOrder:
        """Raises `InvalidRequestError` where the egg that it needs is nowhere."""
        return SlotOrder(
            self._catalog.pin(site_crawl(site, search, self._job_timeout)),
            max_retries=site.max_retries,
            exclusive=None if site.allow_overlap else f"site:{site.name}",
            trigger=trigger,
        )


def _refuse_run(site: Site, words: dict[str, str] | None, names: dict[str, str] | None = None) -> None:
    """Raises `SiteDisabledError`, and `InvalidRequestError` where template and words do not suit each other."""
    if not site.enabled:
        raise SiteDisabledError(f"site {site.name!r} is disabled")
    if words is None:
        raise InvalidRequestError("payload", "has no words for the placeholders of search_url")
    refuse_words(site, words, names)


def _target_run(site: Site, target: Target) -> TargetRun:
    return TargetRun(
        target_id=target.number,
        website_id=site.number,
        website_name=site.name,
        search_url=first_url(site, Search.of_target(target)),
        requires_playwright=site.requires_playwright,
        pagination_type=site.pagination_type.value,
        keywords_used=target.keywords,
        location_used=target.location,
    )
