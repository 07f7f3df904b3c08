"""What becomes of a slot that is due, and where its schedule goes from there. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from gateway.domain.clock import to_iso
from gateway.domain.recurrence import Moment, count_due, following, newest_due
from gateway.domain.schedule import GRACE_SECONDS, MAX_CATCH_UP, CatchUp, Schedule
from gateway.domain.slot import SlotFate

GRACE = timedelta(seconds=GRACE_SECONDS)
_MILLISECOND = timedelta(milliseconds=1)


class Plan(NamedTuple):
    """`RUN` or `MISS`; whether the run before it is over yet is not asked here."""

    fate: SlotFate
    #: Later slots that were due as well, for which this one stands.
    missed: int
    #: Absent where the schedule ends.
    next: Moment | None
    #: Why it does not run.
    reason: str | None = None


def plan(schedule: Schedule, now: datetime) -> Plan:
    """For the slot that comes next, `schedule.next_at`. Raises `ValueError` if there is none."""
    at, due, timing = schedule.next_at, schedule.next_run, schedule.timing
    if at is None or due is None:
        raise ValueError(f"schedule {schedule.id} has no slot to come")
    if now - due <= GRACE:
        return Plan(SlotFate.RUN, 0, following(schedule.id, timing, at))
    if timing.ends_at is not None and now > timing.ends_at + GRACE:
        # nothing runs after the end date
        reason = f"found {_late(now, due)} late, after the end date {to_iso(timing.ends_at)}"
        return Plan(SlotFate.MISS, count_due(schedule.id, timing, at, now), None, reason)
    if schedule.catch_up is CatchUp.ALL:
        return _each(schedule, at, due, now)
    if schedule.catch_up is CatchUp.NONE:
        return _none(schedule, at, due, now)
    return Plan(SlotFate.RUN, count_due(schedule.id, timing, at, now), following(schedule.id, timing, at, now))


def _none(schedule: Schedule, at: datetime, due: datetime, now: datetime) -> Plan:
    """On to the first slot that is fresh or ahead."""
    stale = now - GRACE - _MILLISECOND
    missed = count_due(schedule.id, schedule.timing, at, stale)
    reason = f"found {_late(now, due)} late, and catch_up is none"
    return Plan(SlotFate.MISS, missed, following(schedule.id, schedule.timing, at, stale), reason)


def _each(schedule: Schedule, at: datetime, due: datetime, now: datetime) -> Plan:
    """One by one; where there are too many, on to the newest that are made up for."""
    schedule_id, timing = schedule.id, schedule.timing
    is_few = count_due(schedule_id, timing, at, now) < MAX_CATCH_UP
    oldest = None if is_few else newest_due(schedule_id, timing, now, MAX_CATCH_UP)
    if oldest is None or oldest.at <= at:
        return Plan(SlotFate.RUN, 0, following(schedule_id, timing, at))
    missed = count_due(schedule_id, timing, at, oldest.due - _MILLISECOND)
    reason = f"found {_late(now, due)} late, and catch_up makes up for the newest {MAX_CATCH_UP} slots only"
    return Plan(SlotFate.MISS, missed, oldest, reason)


def _late(now: datetime, due: datetime) -> str:
    return f"{(now - due).total_seconds():.0f} s"
