"""Fires what is due, and brings that to its end. Any number of beats may tick at once, and die at any step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, utc_now
from gateway.dispatch.reconciliation import Upcoming
from gateway.jobs.admission import Admission, Look
from gateway.jobs.job import Decision, Job, Occurrence, occurrence_id
from gateway.jobs.messages import Waker, about
from gateway.schedules.occurrences import OccurrenceStore, Plan, Run, Verdict, advanced, judge, plan
from gateway.schedules.orders import (
    NOTHING_TO_RUN,
    OccurrenceOrder,
    OccurrenceOrders,
    is_by_hand,
    occurrence_job,
    orders_of,
    refreshed,
)
from gateway.schedules.recurrence import count_due, following
from gateway.schedules.schedule import LedgerEntry, LedgerKind, Overlap, Schedule
from gateway.schedules.store import Advance, LedgerStore, ScheduleStore

# --- brings held jobs of occurrences to their end, whoever has inserted them, and wherever it has died.
#
# The one way from a held job to a run: for a tick as for the sweep after a crash and for an edit before it is
# answered.

log = structlog.get_logger()

#: Beats and edits can only overtake each other so often before something else is wrong.
_MAX_ROUNDS = 20
_KINDS = {Decision.RUN: LedgerKind.FIRED, Decision.SKIP: LedgerKind.SKIPPED, Decision.MISS: LedgerKind.MISSED}


class TargetMarks(Protocol):
    def scheduled(self, numbers: Sequence[int], at: datetime) -> None:
        """Runs of these targets were handed to workers."""


class HeldJob(NamedTuple):
    job: Job
    occurrence: Occurrence
    fate: Decision
    schedule_id: str

    @classmethod
    def of(cls, job: Job) -> HeldJob | None:
        """`None` if it is not held, or not any more."""
        if job.slot is None or job.held is None or job.schedule_id is None:
            return None
        return cls(job, job.slot, job.held, job.schedule_id)


class Settled(NamedTuple):
    """By job ids. Where several settle the same occurrences at once, more than one may name them."""

    fired: list[str]
    skipped: list[str]
    missed: list[str]
    #: Held still: overtaken again and again.
    left: list[str]


@define(eq=False, repr=False, slots=False, kw_only=True)
class Promotion:
    _schedules: ScheduleStore
    _occurrences: OccurrenceStore
    _ledger: LedgerStore
    _orders: OccurrenceOrders
    _waker: Waker
    _targets: TargetMarks | None = None
    _clock: Clock = utc_now

    def settle(self, jobs: Iterable[Job], known: Mapping[str, Schedule] | None = None) -> Settled:
        """`known`: the schedules as read before the jobs were inserted, good for no more than a compare-and-set."""
        settled = Settled([], [], [], [])
        held = [one for job in jobs if (one := HeldJob.of(job))]
        if known and held:
            won, held = self._advance(held, known)
            self._finish(won, settled)
        for _ in range(_MAX_ROUNDS):
            if not held:
                break
            held = self._round(held, settled)
        settled.left.extend(one.job.id for one in held)
        return settled

    def note(self, jobs: Sequence[Job]) -> None:
        """Of runs that were handed to workers: targets and the ledger know, also if somebody has died before that."""
        targets = [job.target.target_id for job in jobs if job.target]
        if self._targets and targets:
            self._targets.scheduled(targets, self._clock())
        unnoted = [job for job in jobs if not is_by_hand(job)]
        entries = [self._entry(job.id, job.schedule_id, job.slot, Decision.RUN) for job in unnoted if job.slot]
        if entries:
            self._ledger.record(entries)
        if unnoted:
            self._occurrences.note([job.id for job in unnoted])

    def _round(self, held: Sequence[HeldJob], settled: Settled) -> list[HeldJob]:
        """Those that must be looked at again, with their schedules as they are then."""
        found = self._schedules.read({one.schedule_id for one in held})
        schedules = {schedule.id: schedule for schedule in found.schedules}
        verdicts: defaultdict[Verdict, list[HeldJob]] = defaultdict(list)
        for one in held:
            if one.schedule_id not in found.unreadable:
                verdicts[_verdict(one, schedules)].append(one)
        for one in verdicts[Verdict.VOID]:
            self._void(one)
        self._finish(self._not_over(verdicts[Verdict.READY]), settled)
        won, again = self._advance(verdicts[Verdict.ADVANCE], schedules)
        self._finish(won, settled)
        return again + self._refresh(verdicts[Verdict.REFRESH], schedules)

    def _advance(
        self, held: Sequence[HeldJob], schedules: Mapping[str, Schedule]
    ) -> tuple[Sequence[HeldJob], list[HeldJob]]:
        """Those whose schedules have their occurrences behind them by this call; and the others, where that is not
        sure.
        """
        coming: list[HeldJob] = []
        others: list[HeldJob] = []
        for one in held:
            (coming if _verdict(one, schedules) is Verdict.ADVANCE else others).append(one)
        advances = []
        for one in coming:
            schedule = schedules[one.schedule_id]
            advances.append(Advance(schedule, advanced(schedule, one.job.id, one.occurrence, one.fate)))
        if not coming or self._schedules.advance(advances):
            return coming, others
        return [], [*coming, *others]

    def _not_over(self, held: Sequence[HeldJob]) -> list[HeldJob]:
        """Without those that somebody slow has inserted again after they were over: the ledger knows them."""
        if not held:
            return []
        known = self._ledger.revisions([one.job.id for one in held])
        over = {one.job.id for one in held if known.get(one.job.id, 0) >= one.occurrence.rev}
        for one in held:
            if one.job.id in over:
                self._occurrences.remove(one.job)
        return [one for one in held if one.job.id not in over]

    def _void(self, one: HeldJob) -> None:
        """Whoever dies in between leaves a job that can only be taken back."""
        voided = one.job if one.fate is Decision.VOID else self._occurrences.void(one.job)
        if voided is not None:
            self._schedules.uncount(one.schedule_id, voided.id)
            self._occurrences.remove(voided)

    def _refresh(self, held: Sequence[HeldJob], schedules: Mapping[str, Schedule]) -> list[HeldJob]:
        """As they are now; whoever else has changed one meanwhile."""
        if not held:
            return []
        orders = orders_of(self._orders, [schedules[key] for key in {one.schedule_id for one in held}])
        for old in held:
            new = refreshed(old.job, old.occurrence, schedules[old.schedule_id], orders.get(old.schedule_id))
            if self._occurrences.refresh(old.job, new) and new.held is not old.fate:
                self._schedules.uncount(old.schedule_id, old.job.id)
        found = self._occurrences.read([old.job.id for old in held])
        return [one for job in found if (one := HeldJob.of(job))]

    def _finish(self, held: Sequence[HeldJob], settled: Settled) -> None:
        """What was decided happens, now that the schedules have these occurrences behind them."""
        alike: defaultdict[tuple[int, bool, bool], list[HeldJob]] = defaultdict(list)
        for one in held:
            if one.job.is_final:
                # it was cancelled while it was held
                self._occurrences.release(one.job)
            else:
                alike[one.occurrence.rev, one.fate is Decision.RUN, is_by_hand(one.job)].append(one)
        for (rev, runs, by_hand), group in alike.items():
            if not runs:
                self._let_pass(rev, group, settled)
            else:
                self.note(self._run(rev, [one.job for one in group], settled, by_hand=by_hand))

    def _run(self, rev: int, jobs: Sequence[Job], settled: Settled, *, by_hand: bool) -> Sequence[Job]:
        """Those that run, if any of them does by this call: else somebody else has promoted them, and goes on."""
        names = [job.id for job in jobs]
        promoted = self._occurrences.promote(names, rev, by_hand=by_hand)
        if promoted < len(jobs):
            # the others were taken back by an edit in this moment, or promoted by somebody else
            found = self._occurrences.read(names) if promoted else []
            running = {job.id for job in found if job.held is None and (by_hand or job.noted is False)}
            jobs = [job for job in jobs if job.id in running]
        for job in jobs:
            self._waker.wake_job(job)
            with about(job):
                log.info("slot_fired", schedule_id=job.schedule_id, status="pending")
        settled.fired.extend(job.id for job in jobs)
        return jobs

    def _let_pass(self, rev: int, held: Sequence[HeldJob], settled: Settled) -> None:
        entries = [
            self._entry(one.job.id, one.schedule_id, one.occurrence, one.fate)
            for one in held
            if not is_by_hand(one.job)
        ]
        if entries:
            self._ledger.record(entries)
        self._occurrences.clear([one.job.id for one in held], rev)
        for one in held:
            (settled.skipped if one.fate is Decision.SKIP else settled.missed).append(one.job.id)

    def _entry(self, job_id: str, schedule_id: str | None, occurrence: Occurrence, fate: Decision) -> LedgerEntry:
        return LedgerEntry(
            job_id=job_id,
            schedule_id=schedule_id or "",
            kind=_KINDS[fate],
            recorded_at=self._clock(),
            late_by_seconds=max(0.0, (occurrence.fired_at - occurrence.due).total_seconds()),
            **occurrence.model_dump(include={"at", "due", "missed", "reason", "rev"}),
        )


def _verdict(one: HeldJob, schedules: Mapping[str, Schedule]) -> Verdict:
    return Verdict.VOID if one.fate is Decision.VOID else judge(one.occurrence, schedules.get(one.schedule_id))


# --- the tick

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
    """What one tick did, by job ids; for skipped and missed occurrences by the ids that their jobs would have had."""

    fired: list[str]
    skipped: list[str]
    missed: list[str]
    #: One-off jobs whose time has come.
    promoted: list[str]
    #: Schedules that are due still.
    due_left: int
    #: When there will be something to do, as far as is known.
    next_due: datetime | None


@define(eq=False, repr=False, slots=False, kw_only=True)
class Scheduling:
    _schedules: ScheduleStore
    _occurrences: OccurrenceStore
    _promotion: Promotion
    _orders: OccurrenceOrders
    _waker: Waker
    _admission: Admission | None = None
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _looked_at: float = field(init=False, default=float("-inf"))
    _noted_at: float = field(init=False, default=float("-inf"))
    _told_of: set[str] = field(init=False, factory=set)

    def tick(self, upcoming: Upcoming | None = None) -> TickReport:
        """Everything that is due now. Raises what a store raises that is away; whatever was begun is gone on with.
        `upcoming` says what a sweep has found just now: it need not be asked again.
        """
        now, settled = self._clock(), Settled([], [], [], [])
        self._settle_left_over(now, settled)
        is_known = upcoming is not None and upcoming.is_certain
        scheduled = upcoming.scheduled_at if upcoming and is_known else self._occurrences.next_scheduled()
        next_run = self._schedules.next_run()
        promoted, passed = [], []
        if scheduled is not None and scheduled <= now:
            promoted = self._promote(now)
            # what is due still after less than a batch cannot be read
            scheduled = self._occurrences.next_scheduled(after=now if len(promoted) < BATCH else None)
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
        _add(settled, self._promotion.settle(self._occurrences.left_over(before, BATCH)))
        if self._monotonic() - self._noted_at >= UNNOTED_SECONDS:
            self._noted_at = self._monotonic()
            self._promotion.note(self._occurrences.unnoted(before, BATCH))

    def _promote(self, now: datetime) -> list[str]:
        """One-off jobs whose time has come."""
        jobs = self._occurrences.scheduled(now, BATCH)
        if jobs and self._occurrences.promote_scheduled([job.id for job in jobs]):
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
        taken = self._occurrences.insert(jobs)
        if taken:
            # whoever came first has decided
            theirs = self._occurrences.read(taken)
            self._pass_over([job for job in theirs if job.held is None], jobs, known)
            jobs = [job for job in jobs if job.id not in taken] + theirs
        return self._promotion.settle(jobs, known)

    def decide(self, schedules: Sequence[Schedule], end: float = float("inf")) -> list[Job]:
        """The jobs of the occurrences that are due, held; of one at least, and of no more after `end`: to count what
        was missed for months takes its time. Writes nothing.
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
        runs = self._occurrences.live(list(skipping)) if skipping else []
        return {run.schedule_id: run for run in runs if _is_before(run, skipping[run.schedule_id])}

    def _pass_over(self, over: Sequence[Job], mine: Sequence[Job], known: Mapping[str, Schedule]) -> None:
        """Slots that have run already, by an earlier timing of the schedule: it goes on behind them."""
        occurrences = {job.id: job.slot for job in mine}
        advances = []
        for job in over:
            occurrence, schedule = occurrences.get(job.id), known.get(job.schedule_id or "")
            if occurrence and schedule:
                advances.append(Advance(schedule, advanced(schedule, job.id, occurrence, None)))
        if advances:
            self._schedules.advance(advances)

    def _tell_once(self, schedule_id: str, event: str, **facts: object) -> None:
        if schedule_id not in self._told_of:
            self._told_of.add(schedule_id)
            log.error(event, schedule_id=schedule_id, **facts)


def _decided(
    schedule: Schedule, order: OccurrenceOrder | None, before: Run | None, look: Look | None, now: datetime
) -> Job:
    if schedule.next_at is None or schedule.next_run is None:
        raise ValueError("it is due, but has no slot to come")
    planned = plan(schedule, now)
    fate, reason = planned.fate, planned.reason
    if fate is Decision.RUN and (skip := _why_not(order, before)):
        fate, reason = Decision.SKIP, skip
    elif fate is Decision.RUN and look and (refusal := look.take(schedule.user_id)):
        fate, reason, planned = Decision.SKIP, refusal, _after_a_rest(schedule, schedule.next_at, now)
    occurrence = Occurrence(
        rev=schedule.rev,
        at=schedule.next_at,
        due=schedule.next_run,
        fired_at=now,
        missed=planned.missed,
        reason=reason,
        next_at=planned.next.at if planned.next else None,
        next_due=planned.next.due if planned.next else None,
    )
    return occurrence_job(schedule, order, occurrence, fate, now)


def _after_a_rest(schedule: Schedule, at: datetime, now: datetime) -> Plan:
    """This occurrence stands for those of the next seconds: they would be refused too, and take others' time."""
    until = now + QUOTA_REST
    missed = count_due(schedule.id, schedule.timing, at, until)
    return Plan(Decision.SKIP, missed, following(schedule.id, schedule.timing, at, until))


def _is_before(run: Run, schedule: Schedule) -> bool:
    """A run that is only held counts if it will run, by the present revision, and is not the due occurrence."""
    if run.held_by is None:
        return True
    own = schedule.next_at and occurrence_id(schedule.id, schedule.next_at)
    return run.held_by == schedule.rev and run.job_id != own


def _why_not(order: OccurrenceOrder | None, before: Run | None) -> str | None:
    if order is None:
        return NOTHING_TO_RUN
    if order.skip:
        return order.skip
    return f"the run before it, {before.job_id}, is not over ({before.status})" if before else None


def _add(total: Settled, more: Settled) -> None:
    for mine, theirs in zip(total, more, strict=True):
        mine.extend(theirs)
