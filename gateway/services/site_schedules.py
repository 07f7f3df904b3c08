"""The schedules of sites and targets: as those records say, whoever wrote them last and died on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from typing import NamedTuple

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import ScheduleExistsError, ScheduleNotFoundError
from gateway.domain.recurrence import first
from gateway.domain.schedule import Schedule, ScheduleState, Timing
from gateway.domain.site import OPERATOR, Site, Target, every_minutes
from gateway.services.admission import Admission
from gateway.services.schedule_edits import ScheduleEdits
from gateway.storage.schedules import ScheduleStore


class Wanted(NamedTuple):
    """What a record says of its schedule."""

    schedule_id: str
    name: str
    site: str
    target: str | None
    interval: str
    timezone: str
    active: bool

    @classmethod
    def of_site(cls, site: Site) -> Wanted:
        """Run by itself if it is enabled, and its template needs no words that `payload` has not."""
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
        # an identity that no request can have: of each there is one
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


class SiteSchedules:
    def __init__(
        self,
        schedules: ScheduleStore,
        edits: ScheduleEdits,
        clock: Clock = utc_now,
        admission: Admission | None = None,
    ) -> None:
        self._schedules = schedules
        self._edits = edits
        self._admission = admission
        self._clock = clock

    def room(self) -> AbstractContextManager[None]:
        """For the record of which one schedule more comes. Raises `UserQuotaError`."""
        return self._admission.room_for_schedule(OPERATOR) if self._admission else nullcontext()

    def read(self, schedule_ids: Iterable[str]) -> dict[str, Schedule]:
        """Those that there are, by id."""
        return {schedule.id: schedule for schedule in self._schedules.read(schedule_ids).schedules}

    def align_site(self, site: str, wanted: Sequence[Wanted]) -> None:
        """Make the schedules of the site and its targets what is wanted of them. No run of what the site was before
        is begun after this.
        """
        present = self.read(one.schedule_id for one in wanted)
        for one in wanted:
            self._align(present.get(one.schedule_id), one)
        self._edits.touch(site=site)

    def align_target(self, wanted: Wanted) -> None:
        """The same for the schedule of one target."""
        schedule = self.read([wanted.schedule_id]).get(wanted.schedule_id)
        self._align(schedule, wanted)
        if schedule is None:
            return
        with suppress(ScheduleNotFoundError):
            # with no more than its name it is a new revision
            self._edits.edit(wanted.schedule_id, {"name": wanted.name})

    def delete(self, schedule_id: str) -> None:
        """Also if somebody was faster."""
        with suppress(ScheduleNotFoundError):
            self._edits.delete(schedule_id)

    def _align(self, schedule: Schedule | None, wanted: Wanted) -> None:
        if schedule is not None and schedule.state is ScheduleState.ENDED:
            # by somebody, through `/schedules`: nothing brings that one back
            self.delete(schedule.id)
            schedule = None
        if schedule is None:
            # two edits may find that it is missing
            with suppress(ScheduleExistsError):
                self._schedules.insert(wanted.to_schedule(self._clock()))
            return
        # one whose record is deleted in this moment needs nothing any more, and must not keep the others
        with suppress(ScheduleNotFoundError):
            self._change(schedule, wanted)

    def _change(self, schedule: Schedule, wanted: Wanted) -> None:
        if not wanted.suits(schedule.timing):
            when = {"interval": wanted.interval, "timezone": wanted.timezone, "starts_at": self._clock()}
            self._edits.edit(schedule.id, {"timing": schedule.timing.model_copy(update=when)})
        if wanted.active and schedule.state is ScheduleState.PAUSED:
            self._edits.resume(schedule.id)
        elif not wanted.active and schedule.state is ScheduleState.ACTIVE:
            self._edits.pause(schedule.id)
