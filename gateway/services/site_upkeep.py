"""Sees that all sites and targets have the schedules that their records ask for.

Whoever writes a record brings its schedule in line next, and may die in between: nobody was answered then, but the
record is there, and its next edit may be years away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import DiscoveryBotError
from gateway.domain.schedule import Schedule
from gateway.domain.site import Site, Target
from gateway.services.site_schedules import Wanted
from gateway.services.sites import SiteService
from gateway.services.targets import TargetService

log = structlog.get_logger()

#: Sites, and targets, that are looked at in one go; the next go takes those that follow.
BATCH = 500
#: Seconds between two goes.
PACE = 10.0
#: Who wrote a record more lately may be about to make its schedule.
YOUNG = timedelta(seconds=5)


class SiteUpkeep:
    def __init__(
        self,
        *,
        sites: SiteService,
        targets: TargetService,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sites = sites
        self._targets = targets
        self._clock = clock
        self._monotonic = monotonic
        self._looked_at = float("-inf")
        # how far the goes have come
        self._site: str | None = None
        self._target: int | None = None

    def look(self) -> None:
        """One go, if the last one was long enough ago."""
        if self._monotonic() - self._looked_at < PACE:
            return
        self._looked_at = self._monotonic()
        sites, self._site = self._sites.page(BATCH, self._site, enabled=None)
        for site, schedule in sites:
            if self._is_old(site) and not Wanted.of_site(site).is_met_by(schedule):
                self._mend(self._sites.align, site.name, schedule)
        targets, self._target = self._targets.page(BATCH, self._target, site=None, enabled=None)
        of_targets = self._sites.named(target.site for target, _ in targets)
        for target, schedule in targets:
            named = of_targets.get(target.site)
            if self._is_old(target) and not (named and Wanted.of_target(named, target).is_met_by(schedule)):
                self._mend(self._targets.align, target.id, schedule)

    def _is_old(self, record: Site | Target) -> bool:
        return record.updated_at < self._clock() - YOUNG

    def _mend(self, align: Callable[[str], None], record: str, schedule: Schedule | None) -> None:
        """One that cannot be helped must not keep the others; somebody may also change or delete it right now."""
        log.warning("schedule_mended", record=record, schedule_id=schedule.id if schedule else None)
        try:
            align(record)
        except DiscoveryBotError as error:
            log.warning("schedule_not_mended", record=record, error=error.message)
