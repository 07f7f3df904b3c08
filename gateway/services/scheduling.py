"""Fires what is due. Any number of beats may tick at once, and die between any two steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from pymongo.errors import PyMongoError

from gateway.correlation import about
from gateway.domain.catch_up import Plan, plan
from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Job
from gateway.domain.recurrence import count_due, following
from gateway.domain.schedule import Overlap, Schedule
from gateway.domain.slot import Slot, SlotFate, slot_id
from gateway.domain.slot_rule import advanced
from gateway.services.admission import Admission, Look
from gateway.services.settling import Settled, Settling
from gateway.services.slot_jobs import NOTHING_TO_RUN, slot_job
from gateway.services.slot_orders import SlotOrder, SlotOrders, orders_of
from gateway.services.sweeping import Upcoming
from gateway.services.waker import Waker
from gateway.storage.schedules import Advance, ScheduleStore
from gateway.storage.slots import Run, SlotStore

log = structlog.get_logger()

#: Schedules fired, and jobs promoted, by one write.
BATCH = 500
#: What is held for longer than this was left by somebody who died, or waits;
LEFT_OVER = timedelta(seconds=1)
#: and seconds between two looks at that, and at what the ledger may lack.
LEFT_OVER_SECONDS, UNNOTED_SECONDS = 3.0, 10.0
#: Seconds that a tick may take: others want their turn, and the next tick goes on at once.
TICK_BUDGET = 1.5
#: A schedule whose user has all that one may have is not looked at again before this.
QUOTA_REST = timedelta(seconds=5)
#: Schedules that are counted as due still.
_MAX_COUNTED = 10_000


class TickReport(NamedTuple):
    """What one tick did, by job ids; for skipped and missed slots by the ids that their jobs would have had."""

    fired: list[str]
    skipped: list[str]
    missed: list[str]
    #: One-off jobs whose time has come.
    promoted: list[str]
    #: Schedules that are due still.
    due_left: int
    #: When there will be something to do, as far as is known.
    next_due: datetime | None


class Scheduling:
    def __init__(
        self,
        *,
        schedules: ScheduleStore,
        slots: SlotStore,
        settling: Settling,
        orders: SlotOrders,
        waker: Waker,
        admission: Admission | None = None,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedules = schedules
        self._slots = slots
        self._settling = settling
        self._orders = orders
        self._waker = waker
        self._admission = admission
        self._clock = clock
        self._monotonic = monotonic
        self._looked_at = self._noted_at = float("-inf")
        self._told_of: set[str] = set()

    def tick(self, upcoming: Upcoming | None = None) -> TickReport:
        """Everything that is due now. Raises what a store raises that is away; whatever was begun is gone on with.
        `upcoming` says what a sweep has found just now: it need not be asked again.
        """
        now, settled = self._clock(), Settled([], [], [], [])
        self._settle_left_over(now, settled)
        is_known = upcoming is not None and upcoming.is_certain
        scheduled = upcoming.scheduled_at if upcoming and is_known else self._slots.next_scheduled()
        next_run = self._schedules.next_run()
        promoted, passed = [], []
        if scheduled is not None and scheduled <= now:
            promoted = self._promote(now)
            # what is due still after less than a batch cannot be read
            scheduled = self._slots.next_scheduled(after=now if len(promoted) < BATCH else None)
        if next_run is not None and next_run <= now:
            passed = self._fire_due(now, settled)
            next_run = self._schedules.next_run(but=passed)
        next_due = min((moment for moment in (scheduled, next_run) if moment), default=None)
        behind = bool(passed) or (next_due is not None and next_due <= now)
        due_left = self._schedules.count_due(now, _MAX_COUNTED) if behind else 0
        return TickReport(settled.fired, settled.skipped, settled.missed, promoted, due_left, next_due)

    def _settle_left_over(self, now: datetime, settled: Settled) -> None:
        if self._monotonic() - self._looked_at < LEFT_OVER_SECONDS:
            return
        self._looked_at = self._monotonic()
        before = now - LEFT_OVER
        _add(settled, self._settling.settle(self._slots.left_over(before, BATCH)))
        if self._monotonic() - self._noted_at >= UNNOTED_SECONDS:
            self._noted_at = self._monotonic()
            self._settling.note(self._slots.unnoted(before, BATCH))

    def _promote(self, now: datetime) -> list[str]:
        """One-off jobs whose time has come."""
        jobs = self._slots.scheduled(now, BATCH)
        if jobs and self._slots.promote_scheduled([job.id for job in jobs]):
            for job in jobs:
                self._waker.wake_job(job)
                with about(job):
                    log.info("crawl_due", status="pending")
        return [job.id for job in jobs]

    def _fire_due(self, now: datetime, settled: Settled) -> list[str]:
        """Batch after batch; the ids of schedules that could not be fired."""
        end = self._monotonic() + TICK_BUDGET
        passed: list[str] = []
        seen: set[tuple[str, datetime | None]] = set()
        while self._monotonic() < end:
            due = self._schedules.due(now, BATCH, but=passed)
            for schedule_id in due.unreadable:
                self._tell_once(schedule_id, "schedule_unreadable")
                passed.append(schedule_id)
            passed.extend(schedule.id for schedule in due.schedules if (schedule.id, schedule.next_at) in seen)
            schedules = [schedule for schedule in due.schedules if (schedule.id, schedule.next_at) not in seen]
            seen.update((schedule.id, schedule.next_at) for schedule in schedules)
            if schedules:
                _add(settled, self._fire(schedules, end))
            elif not due.unreadable and not due.schedules:
                break
        return passed

    def _fire(self, schedules: Sequence[Schedule], end: float) -> Settled:
        known = {schedule.id: schedule for schedule in schedules}
        jobs = self.decide(schedules, end)
        if not jobs:
            return Settled([], [], [], [])
        taken = self._slots.insert(jobs)
        if taken:
            # whoever came first has decided
            theirs = self._slots.read(taken)
            self._pass_over([job for job in theirs if job.held is None], jobs, known)
            jobs = [job for job in jobs if job.id not in taken] + theirs
        return self._settling.settle(jobs, known)

    def decide(self, schedules: Sequence[Schedule], end: float = float("inf")) -> list[Job]:
        """The jobs of the slots that are due, held; of one at least, and of no more after `end`: to count what was
        missed for months takes its time. Writes nothing.
        """
        now = self._clock()
        orders = orders_of(self._orders, schedules)
        live = self._live(schedules)
        look = self._admission.look() if self._admission else None
        jobs: list[Job] = []
        for schedule in schedules:
            if jobs and self._monotonic() > end:
                break
            try:
                jobs.append(_decided(schedule, orders.get(schedule.id), live.get(schedule.id), look, now))
            except PyMongoError:
                raise
            except Exception as error:  # noqa: BLE001 - one schedule of which nothing can be made must not keep the others
                self._tell_once(schedule.id, "schedule_not_fired", error=str(error), kind=type(error).__name__)
        return jobs

    def _live(self, schedules: Sequence[Schedule]) -> dict[str, Run]:
        """By schedule, a run that keeps its next one from running."""
        skipping = {schedule.id: schedule for schedule in schedules if schedule.overlap is Overlap.SKIP}
        runs = self._slots.live(list(skipping)) if skipping else []
        return {run.schedule_id: run for run in runs if _is_before(run, skipping[run.schedule_id])}

    def _pass_over(self, over: Sequence[Job], mine: Sequence[Job], known: Mapping[str, Schedule]) -> None:
        """Slots that have run already, by an earlier timing of the schedule: it goes on behind them."""
        slots = {job.id: job.slot for job in mine}
        advances = []
        for job in over:
            slot, schedule = slots.get(job.id), known.get(job.schedule_id or "")
            if slot and schedule:
                advances.append(Advance(schedule, advanced(schedule, job.id, slot, None)))
        if advances:
            self._schedules.advance(advances)

    def _tell_once(self, schedule_id: str, event: str, **facts: object) -> None:
        if schedule_id not in self._told_of:
            self._told_of.add(schedule_id)
            log.error(event, schedule_id=schedule_id, **facts)


def _decided(
    schedule: Schedule, order: SlotOrder | None, before: Run | None, look: Look | None, now: datetime
) -> Job:
    if schedule.next_at is None or schedule.next_run is None:
        raise ValueError("it is due, but has no slot to come")
    planned = plan(schedule, now)
    fate, reason = planned.fate, planned.reason
    if fate is SlotFate.RUN and (skip := _why_not(order, before)):
        fate, reason = SlotFate.SKIP, skip
    elif fate is SlotFate.RUN and look and (refusal := look.take(schedule.user_id)):
        fate, reason, planned = SlotFate.SKIP, refusal, _after_a_rest(schedule, schedule.next_at, now)
    slot = Slot(
        rev=schedule.rev,
        at=schedule.next_at,
        due=schedule.next_run,
        fired_at=now,
        missed=planned.missed,
        reason=reason,
        next_at=planned.next.at if planned.next else None,
        next_due=planned.next.due if planned.next else None,
    )
    return slot_job(schedule, order, slot, fate, now)


def _after_a_rest(schedule: Schedule, at: datetime, now: datetime) -> Plan:
    """This slot stands for those of the next seconds: they would be refused, too, and cost others their time."""
    until = now + QUOTA_REST
    missed = count_due(schedule.id, schedule.timing, at, until)
    return Plan(SlotFate.SKIP, missed, following(schedule.id, schedule.timing, at, until))


def _is_before(run: Run, schedule: Schedule) -> bool:
    """A run that is only held counts if it will run, by the present revision, and is not the slot that is due."""
    if run.held_by is None:
        return True
    own = schedule.next_at and slot_id(schedule.id, schedule.next_at)
    return run.held_by == schedule.rev and run.job_id != own


def _why_not(order: SlotOrder | None, before: Run | None) -> str | None:
    if order is None:
        return NOTHING_TO_RUN
    if order.skip:
        return order.skip
    return f"the run before it, {before.job_id}, is not over ({before.status})" if before else None


def _add(total: Settled, more: Settled) -> None:
    for mine, theirs in zip(total, more, strict=True):
        mine.extend(theirs)
