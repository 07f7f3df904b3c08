"""Targets: made, changed and deleted together with their schedules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import ConflictError, InvalidRequestError, SiteNotFoundError, TargetNotFoundError
from gateway.domain.job import new_job_id
from gateway.domain.schedule import Schedule
from gateway.domain.site import Site, Target
from gateway.services.site_check import SiteCheck
from gateway.services.site_schedules import SiteSchedules, Wanted
from gateway.storage.counters import CounterStore
from gateway.storage.sites import SiteStore
from gateway.storage.targets import TargetStore

#: Edits of one record can only overtake each other so often before something else is wrong.
_MAX_ROUNDS = 20
_TOO_BUSY = "the target is being changed over and over; ask again"


class ScheduledTarget(NamedTuple):
    target: Target
    schedule: Schedule | None


class TargetService:
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

    def get(self, target: str) -> ScheduledTarget:
        """By its id, or by its number as text. Raises `TargetNotFoundError`."""
        return self._scheduled([self._targets.get(target)])[0]

    def page(
        self, limit: int, after: int | None, *, site: str | None, enabled: bool | None
    ) -> tuple[list[ScheduledTarget], int | None]:
        """By number; and where the page that follows begins, `None` after the last."""
        found = self._targets.page(limit + 1, after, site=site, enabled=enabled)
        return self._scheduled(found[:limit]), found[limit - 1].number if len(found) > limit else None

    def create(self, fields: dict[str, Any]) -> ScheduledTarget:
        """Raises `InvalidRequestError` that names the field, `UserQuotaError`."""
        now = self._clock()
        target = Target.model_validate(
            {
                **fields,
                "id": new_job_id(),
                "number": 0,
                "schedule_id": new_job_id(),
                "created_at": now,
                "updated_at": now,
            }
        )
        self._check.check_target(self._site_of(target), target, now)
        with self._schedules.room():
            target.number = self._counters.next("targets")
            self._targets.insert(target)
            self.align(target.id)
        return self.get(target.id)

    def edit(self, target_id: str, changes: dict[str, Any]) -> ScheduledTarget:
        """Raises as `create` does, and `TargetNotFoundError`. No run of what it was begins after this."""
        for _ in range(_MAX_ROUNDS):
            target, now = self._targets.get(target_id), self._clock()
            edited = Target.model_validate({**dict(target), **changes, "rev": target.rev + 1, "updated_at": now})
            self._check.check_target(self._site_of(edited), edited, now)
            if self._targets.replace(edited):
                self.align(target.id)
                return self.get(target.id)
        raise ConflictError(_TOO_BUSY)

    def delete(self, target_id: str) -> None:
        """Runs that were made go on with what they have. Raises `TargetNotFoundError`."""
        target = self._targets.get(target_id)
        self._schedules.delete(target.schedule_id)
        self._targets.delete(target.id)
        # of an edit that did not know of this yet
        self._schedules.delete(target.schedule_id)

    def align(self, target_id: str) -> None:
        """Bring its schedule in line with the target and its site as they are now, whoever changes them meanwhile.
        Without its site it goes, too.

        Raises `TargetNotFoundError`, and `InvalidRequestError` where there is no such site.
        """
        for _ in range(_MAX_ROUNDS):
            target = self._targets.get(target_id)
            site = self._sites.named([target.site]).get(target.site)
            if site is None:
                self.delete(target_id)
                raise _no_site(target.site)
            self._schedules.align_target(Wanted.of_target(site, target))
            now = self._targets.identified([target_id]).get(target_id)
            if now is None:
                self._schedules.delete(target.schedule_id)
                raise TargetNotFoundError(target_id)
            if (now.rev, self._sites.named([target.site]).get(target.site)) == (target.rev, site):
                return
        raise ConflictError(_TOO_BUSY)

    def _site_of(self, target: Target) -> Site:
        try:
            return self._sites.get(target.site)
        except SiteNotFoundError as error:
            raise _no_site(target.site) from error

    def _scheduled(self, targets: Iterable[Target]) -> list[ScheduledTarget]:
        known = list(targets)
        schedules = self._schedules.read(target.schedule_id for target in known)
        return [ScheduledTarget(target, schedules.get(target.schedule_id)) for target in known]


def _no_site(name: str) -> InvalidRequestError:
    return InvalidRequestError("site", f"there is no site {name!r}")
