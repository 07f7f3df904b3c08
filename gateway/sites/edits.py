"""Creates, changes and deletes sites and targets together with their schedules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

import structlog
from attrs import define, field

from gateway import errors
from gateway.clock import Clock, utc_now
from gateway.jobs.admission import Admission
from gateway.jobs.job import new_job_id
from gateway.schedules.edits import ScheduleEdits
from gateway.schedules.next_run import first
from gateway.schedules.schedule import Schedule, ScheduleState, Timing
from gateway.schedules.store import ScheduleStore
from gateway.sites.crawl import SiteCheck
from gateway.sites.site import FIELD, OPERATOR, SearchUrl, Site, Target, every_minutes
from gateway.sites.store import CounterStore, SiteStore, TargetStore


class Wanted(NamedTuple):
    """The schedule that the record of a site or target asks for."""

    schedule_id: str
    name: str
    site: str
    target: str | None
    interval: str
    timezone: str
    active: bool

    @classmethod
    def of_site(cls, site: Site) -> Wanted:
        """The site's own schedule. It is active if the site is enabled, and its `payload` has all words that the
        search URL needs.
        """
        active = site.enabled and site.words is not None
        interval = every_minutes(site.interval_minutes)
        return cls(site.schedule_id, f"site {site.name}", site.name, None, interval, "UTC", active)

    @classmethod
    def of_target(cls, site: Site, target: Target) -> Wanted:
        name = f"target {target.number} of {site.name}"
        active = site.enabled and target.enabled
        interval = target.interval(site)
        return cls(target.schedule_id, name, site.name, target.id, interval, target.timezone, active)

    def is_met_by(self, schedule: Schedule | None) -> bool:
        """Whether the schedule needs no change."""
        state = ScheduleState.ACTIVE if self.active else ScheduleState.PAUSED
        return schedule is not None and schedule.state is state and self.suits(schedule.timing)

    def suits(self, timing: Timing) -> bool:
        return (timing.interval, timing.timezone) == (self.interval, self.timezone)

    def to_schedule(self, now: datetime) -> Schedule:
        timing = Timing(interval=self.interval, timezone=self.timezone, starts_at=now)
        moment = first(self.schedule_id, timing, now) if self.active else None
        # no request can have this identity, so there is one schedule for each site or target
        identity = f"target:{self.target}" if self.target else f"site:{self.site}"
        return Schedule(
            id=self.schedule_id,
            user_id=OPERATOR,
            name=self.name,
            site=self.site,
            target=self.target,
            timing=timing,
            state=ScheduleState.ACTIVE if self.active else ScheduleState.PAUSED,
            next_at=moment.at if moment else None,
            next_run=moment.due if moment else None,
            fingerprint=identity,
            live_key=identity,
            created_at=now,
            updated_at=now,
        )


@define(eq=False, repr=False, slots=False)
class SiteSchedules:
    """The schedules that belong to sites and targets."""

    _schedules: ScheduleStore
    _edits: ScheduleEdits
    _clock: Clock = utc_now
    _admission: Admission | None = None

    def room(self) -> AbstractContextManager[None]:
        """Takes a place for the schedule of a new site or target. Raises `UserQuotaError`."""
        return self._admission.room_for_schedule(OPERATOR) if self._admission else nullcontext()

    def read(self, schedule_ids: Iterable[str]) -> dict[str, Schedule]:
        """The schedules that exist, by id."""
        return {schedule.id: schedule for schedule in self._schedules.read(schedule_ids).schedules}

    def align_site(self, site: str, wanted: Sequence[Wanted]) -> None:
        """Align the schedules of the site and its targets with what is wanted. Afterwards no run with the old content
        begins.
        """
        present = self.read(one.schedule_id for one in wanted)
        for one in wanted:
            self._align(present.get(one.schedule_id), one)
        self._edits.touch(site=site)

    def align_target(self, wanted: Wanted) -> None:
        """As `align_site`, for the schedule of one target."""
        schedule = self.read([wanted.schedule_id]).get(wanted.schedule_id)
        self._align(schedule, wanted)
        if schedule is None:
            return
        with suppress(errors.ScheduleNotFoundError):
            # even if nothing changes, this makes a new revision, so that no run with the old content begins
            self._edits.edit(wanted.schedule_id, {"name": wanted.name})

    def delete(self, schedule_id: str) -> None:
        """Delete the schedule, unless another request has deleted it before."""
        with suppress(errors.ScheduleNotFoundError):
            self._edits.delete(schedule_id)

    def _align(self, schedule: Schedule | None, wanted: Wanted) -> None:
        if schedule is not None and schedule.state is ScheduleState.ENDED:
            # a client has ended it with `/schedules`, and an ended schedule cannot be resumed: make a new one
            self.delete(schedule.id)
            schedule = None
        if schedule is None:
            # another edit may also have found it missing, and inserted it first
            with suppress(errors.ScheduleExistsError):
                self._schedules.insert(wanted.to_schedule(self._clock()))
            return
        # if the record is being deleted, its schedule needs no change, and must not keep the others from being
        # aligned
        with suppress(errors.ScheduleNotFoundError):
            self._change(schedule, wanted)

    def _change(self, schedule: Schedule, wanted: Wanted) -> None:
        if not wanted.suits(schedule.timing):
            when = {"interval": wanted.interval, "timezone": wanted.timezone, "starts_at": self._clock()}
            self._edits.edit(schedule.id, {"timing": schedule.timing.model_copy(update=when)})
        if wanted.active and schedule.state is ScheduleState.PAUSED:
            self._edits.resume(schedule.id)
        elif not wanted.active and schedule.state is ScheduleState.ACTIVE:
            self._edits.pause(schedule.id)


#: How often an edit is tried while others change the same record. More means that something is wrong.
_MAX_ROUNDS = 20
_SITE_BUSY = "the site keeps changing; ask again"


Record = TypeVar("Record", Site, Target)


class Scheduled(NamedTuple, Generic[Record]):
    """A site or target, with its schedule."""

    record: Record
    schedule: Schedule | None


@define(eq=False, repr=False, slots=False, kw_only=True)
class _Service:
    _sites: SiteStore
    _targets: TargetStore
    _counters: CounterStore
    _schedules: SiteSchedules
    _check: SiteCheck
    _clock: Clock = utc_now

    def _scheduled(self, records: Sequence[Record]) -> list[Scheduled[Record]]:
        schedules = self._schedules.read(record.schedule_id for record in records)
        return [Scheduled(record, schedules.get(record.schedule_id)) for record in records]


class SiteService(_Service):
    """Creates, changes and deletes sites."""

    def get(self, name: str) -> Scheduled[Site]:
        """The site and its schedule. Raises `SiteNotFoundError`."""
        return self._scheduled([self._sites.get(name)])[0]

    def page(
        self, limit: int, after: str | None, *, enabled: bool | None
    ) -> tuple[list[Scheduled[Site]], str | None]:
        """Sites in the order of their names, and the name after which the next page begins; `None` on the
        last page.
        """
        found = self._sites.page(limit + 1, after, enabled=enabled)
        return self._scheduled(found[:limit]), found[limit - 1].name if len(found) > limit else None

    def named(self, names: Iterable[str]) -> dict[str, Site]:
        """The sites that exist, by name."""
        return self._sites.named(names)

    def create(self, fields: dict[str, Any]) -> Scheduled[Site]:
        """Create the site and its schedule. Raises `InvalidRequestError`, which names the field,
        `ForbiddenAddressError`, `SiteExistsError`, `UserQuotaError`.
        """
        now = self._clock()
        site = Site.model_validate({**fields, **_new(now)})
        self._check.check(site)
        with self._schedules.room():
            site.number = self._counters.next("sites")
            try:
                self._sites.insert(site)
            except errors.SiteExistsError:
                # the process that created it may have died before it inserted the schedule
                self.align(site.name)
                raise
            self.align(site.name)
        return self.get(site.name)

    def edit(self, name: str, changes: dict[str, Any]) -> Scheduled[Site]:
        """Change the site and its schedules. Afterwards no run with the old content begins. Raises as `create` does,
        and `SiteNotFoundError`.
        """
        for _ in range(_MAX_ROUNDS):
            site = self._sites.get(name)
            edited = Site.model_validate({**dict(site), **changes, "rev": site.rev + 1, "updated_at": self._clock()})
            self._check.check(edited)
            if edited.search_url != site.search_url:
                self._check_targets(edited)
            if self._sites.replace(edited):
                self.align(name)
                return self.get(name)
        raise errors.ConflictError(_SITE_BUSY)

    def delete(self, name: str, *, force: bool = False) -> None:
        """Delete the site, and with `force` also its targets. Existing runs continue unchanged.

        Raises `SiteNotFoundError`, `SiteInUseError`.
        """
        site = self._sites.get(name)
        if not force and (count := self._targets.count(name)):
            targets = "1 target names" if count == 1 else f"{count} targets name"
            raise errors.SiteInUseError(
                f"{targets} site {name!r}; ?force=true also deletes them", detail={"targets": count}
            )
        self._delete_targets(name)
        self._schedules.delete(site.schedule_id)
        self._sites.delete(site)
        # again, because another request may have added targets since
        self._delete_targets(name)

    def align(self, name: str) -> None:
        """Align the schedules of the site and its targets, even while it is edited. Raises `SiteNotFoundError`."""
        for _ in range(_MAX_ROUNDS):
            site = self._sites.get(name)
            targets = self._targets.of_site(name)
            wanted = [Wanted.of_site(site), *(Wanted.of_target(site, target) for target in targets)]
            self._schedules.align_site(name, wanted)
            now = self._sites.named([name]).get(name)
            if now is None or now.number != site.number:
                self._schedules.delete(site.schedule_id)
                raise errors.SiteNotFoundError(name)
            if now.rev == site.rev:
                return
        raise errors.ConflictError(_SITE_BUSY)

    def _delete_targets(self, name: str) -> None:
        for target in self._targets.of_site(name):
            self._schedules.delete(target.schedule_id)
            self._targets.delete(target.id)

    def _check_targets(self, site: Site) -> None:
        search_url = SearchUrl(site.search_url)
        for target in self._targets.of_site(site.name):
            if refusal := search_url.refusal(target.words):
                word, why = refusal
                raise errors.InvalidRequestError(FIELD, f"does not fit target {target.number}: its {word}: {why}")


_TARGET_BUSY = "the target keeps changing; ask again"


class TargetService(_Service):
    """Creates, changes and deletes targets."""

    def get(self, target: str) -> Scheduled[Target]:
        """The target with this id, or this number as text, and its schedule. Raises `TargetNotFoundError`."""
        return self._scheduled([self._targets.get(target)])[0]

    def page(
        self, limit: int, after: int | None, *, site: str | None, enabled: bool | None
    ) -> tuple[list[Scheduled[Target]], int | None]:
        """Targets in the order of their numbers, and the number after which the next page begins; `None` on the last
        page.
        """
        found = self._targets.page(limit + 1, after, site=site, enabled=enabled)
        return self._scheduled(found[:limit]), found[limit - 1].number if len(found) > limit else None

    def create(self, fields: dict[str, Any]) -> Scheduled[Target]:
        """Create a target and its schedule. Raises `InvalidRequestError`, which names the field, `UserQuotaError`."""
        now = self._clock()
        target = Target.model_validate({**fields, **_new(now), "id": new_job_id()})
        self._check.check_target(self._site_of(target), target, now)
        with self._schedules.room():
            target.number = self._counters.next("targets")
            self._targets.insert(target)
            self.align(target.id)
        return self.get(target.id)

    def edit(self, target_id: str, changes: dict[str, Any]) -> Scheduled[Target]:
        """Change the target and its schedule. Afterwards no run with the old content begins. Raises as `create` does,
        and `TargetNotFoundError`.
        """
        for _ in range(_MAX_ROUNDS):
            target, now = self._targets.get(target_id), self._clock()
            edited = Target.model_validate({**dict(target), **changes, "rev": target.rev + 1, "updated_at": now})
            self._check.check_target(self._site_of(edited), edited, now)
            if self._targets.replace(edited):
                self.align(target.id)
                return self.get(target.id)
        raise errors.ConflictError(_TARGET_BUSY)

    def delete(self, target_id: str) -> None:
        """Delete the target. Existing runs continue unchanged. Raises `TargetNotFoundError`."""
        target = self._targets.get(target_id)
        self._schedules.delete(target.schedule_id)
        self._targets.delete(target.id)
        # again, because an edit at the same time may have inserted the schedule again
        self._schedules.delete(target.schedule_id)

    def align(self, target_id: str) -> None:
        """Align the target's schedule with the present records of the target and its site, even while they change. A
        target whose site does not exist any more is deleted.

        Raises `TargetNotFoundError`, and `InvalidRequestError` if the site does not exist.
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
                raise errors.TargetNotFoundError(target_id)
            if (now.rev, self._sites.named([target.site]).get(target.site)) == (target.rev, site):
                return
        raise errors.ConflictError(_TARGET_BUSY)

    def _site_of(self, target: Target) -> Site:
        try:
            return self._sites.get(target.site)
        except errors.SiteNotFoundError as error:
            raise _no_site(target.site) from error


def _new(now: datetime) -> dict[str, Any]:
    """The fields that every new site or target gets. Its number is set later."""
    return {"number": 0, "schedule_id": new_job_id(), "created_at": now, "updated_at": now}


def _no_site(name: str) -> errors.InvalidRequestError:
    return errors.InvalidRequestError("site", f"there is no site {name!r}")


# --- upkeep: aligns schedules that do not match their records. A request first writes the record and then aligns its
# schedule. If the process dies in between, the record is there, and its next edit may be years away.

log = structlog.get_logger()

#: How many sites, and how many targets, one round checks. The next round continues with the others.
BATCH = 500
#: Seconds between two rounds.
PACE = 10.0
#: If a record was written more recently than this, its request may still be aligning the schedule.
YOUNG = timedelta(seconds=5)


@define(eq=False, repr=False, slots=False, kw_only=True)
class SiteUpkeep:
    """Finds and aligns schedules that do not match their site or target."""

    _sites: SiteService
    _targets: TargetService
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _looked_at: float = field(init=False, default=float("-inf"))
    #: The name of the site, and the number of the target, after which the next round continues.
    _site: str | None = field(init=False, default=None)
    _target: int | None = field(init=False, default=None)

    def look(self) -> None:
        """Check the next sites and targets, unless the last round was less than `PACE` ago."""
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
        """Align the record's schedule. An error is only logged, because a client may be changing or deleting this
        record right now, and the other records must be checked.
        """
        log.warning("schedule_mended", record=record, schedule_id=schedule.id if schedule else None)
        try:
            align(record)
        except errors.DiscoveryBotError as error:
            log.warning("schedule_not_mended", record=record, error=error.message)
