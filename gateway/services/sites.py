"""Sites: made, changed and deleted together with their schedules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import (
    ConflictError,
    InvalidRequestError,
    SiteExistsError,
    SiteInUseError,
    SiteNotFoundError,
)
from gateway.domain.job import new_job_id
from gateway.domain.schedule import Schedule
from gateway.domain.search_url import FIELD, SearchUrl
from gateway.domain.site import Site
from gateway.services.site_check import SiteCheck
from gateway.services.site_schedules import SiteSchedules, Wanted
from gateway.storage.counters import CounterStore
from gateway.storage.sites import SiteStore
from gateway.storage.targets import TargetStore

#: Edits of one record can only overtake each other so often before something else is wrong.
_MAX_ROUNDS = 20
_TOO_BUSY = "the site is being changed over and over; ask again"


class ScheduledSite(NamedTuple):
    site: Site
    schedule: Schedule | None


class SiteService:
    def __init__(
        self,
        *,
        sites: SiteStore,
        targets: TargetStore,
        counters: CounterStore,
        schedules: SiteSchedules,
        check: SiteCheck,
        clock: Clock = utc_now,
    ) -> None:
        self._sites = sites
        self._targets = targets
        self._counters = counters
        self._schedules = schedules
        self._check = check
        self._clock = clock

    def get(self, name: str) -> ScheduledSite:
        """Raises `SiteNotFoundError`."""
        return self._scheduled([self._sites.get(name)])[0]

    def page(self, limit: int, after: str | None, *, enabled: bool | None) -> tuple[list[ScheduledSite], str | None]:
        """By name; and where the page that follows begins, `None` after the last."""
        found = self._sites.page(limit + 1, after, enabled=enabled)
        return self._scheduled(found[:limit]), found[limit - 1].name if len(found) > limit else None

    def all(self) -> list[Site]:
        """By name."""
        return self._sites.all()

    def named(self, names: Iterable[str]) -> dict[str, Site]:
        """Those that there are, by name."""
        return self._sites.named(names)

    def create(self, fields: dict[str, Any]) -> ScheduledSite:
        """Raises `InvalidRequestError` that names the field, `ForbiddenAddressError`, `SiteExistsError`,
        `UserQuotaError`.
        """
        now = self._clock()
        site = Site.model_validate(
            {**fields, "number": 0, "schedule_id": new_job_id(), "created_at": now, "updated_at": now}
        )
        self._check.check(site)
        with self._schedules.room():
            site.number = self._counters.next("sites")
            try:
                self._sites.insert(site)
            except SiteExistsError:
                # whoever made it may have died before its schedule was there
                self.align(site.name)
                raise
            self.align(site.name)
        return self.get(site.name)

    def edit(self, name: str, changes: dict[str, Any]) -> ScheduledSite:
        """Raises as `create` does, and `SiteNotFoundError`. No run of what it was begins after this."""
        for _ in range(_MAX_ROUNDS):
            site = self._sites.get(name)
            edited = Site.model_validate({**dict(site), **changes, "rev": site.rev + 1, "updated_at": self._clock()})
            self._check.check(edited)
            if edited.search_url != site.search_url:
                self._check_targets(edited)
            if self._sites.replace(edited):
                self.align(name)
                return self.get(name)
        raise ConflictError(_TOO_BUSY)

    def delete(self, name: str, *, force: bool = False) -> None:
        """With its targets, if that is what `force` says. Runs that were made go on with what they have.

        Raises `SiteNotFoundError`, `SiteInUseError`.
        """
        site = self._sites.get(name)
        if not force and (count := self._targets.count(name)):
            targets = "1 target names" if count == 1 else f"{count} targets name"
            raise SiteInUseError(f"{targets} site {name!r}; ?force=true deletes them too", detail={"targets": count})
        self._delete_targets(name)
        self._schedules.delete(site.schedule_id)
        self._sites.delete(site)
        # of somebody who did not know of this yet
        self._delete_targets(name)

    def align(self, name: str) -> None:
        """Bring its schedules, and its targets', in line with the site as it is now, whoever edits it meanwhile.

        Raises `SiteNotFoundError`.
        """
        for _ in range(_MAX_ROUNDS):
            site = self._sites.get(name)
            targets = self._targets.of_site(name)
            wanted = [Wanted.of_site(site), *(Wanted.of_target(site, target) for target in targets)]
            self._schedules.align_site(name, wanted)
            now = self._sites.named([name]).get(name)
            if now is None or now.number != site.number:
                self._schedules.delete(site.schedule_id)
                raise SiteNotFoundError(name)
            if now.rev == site.rev:
                return
        raise ConflictError(_TOO_BUSY)

    def _delete_targets(self, name: str) -> None:
        for target in self._targets.of_site(name):
            self._schedules.delete(target.schedule_id)
            self._targets.delete(target.id)

    def _check_targets(self, site: Site) -> None:
        search_url = SearchUrl(site.search_url)
        for target in self._targets.of_site(site.name):
            if refusal := search_url.refusal(target.words):
                word, why = refusal
                raise InvalidRequestError(FIELD, f"does not suit target {target.number}: its {word}: {why}")

    def _scheduled(self, sites: Iterable[Site]) -> list[ScheduledSite]:
        known = list(sites)
        schedules = self._schedules.read(site.schedule_id for site in known)
        return [ScheduledSite(site, schedules.get(site.schedule_id)) for site in known]
