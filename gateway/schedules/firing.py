"""Fires due occurrences and completes them. Any number of beats may tick at once, and may die at any step."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import Clock, utc_now
from gateway.errors import BudgetSpentError, InvalidRequestError
from gateway.jobs.admission import Admission, Look
from gateway.jobs.job import Decision, Job, Occurrence, occurrence_id
from gateway.jobs.messages import Waker, about
from gateway.schedules.next_run import count_due, following
from gateway.schedules.occurrences import (
    EarlierRun,
    OccurrencePlan,
    OccurrenceStore,
    OccurrenceVerdict,
    advanced,
    judge,
    plan,
)
from gateway.schedules.orders import (
    NOTHING_TO_RUN,
    RunOrder,
    RunOrders,
    is_by_hand,
    occurrence_job,
    orders_of,
    refreshed,
)
from gateway.schedules.schedule import GRACE_SECONDS, LedgerEntry, LedgerKind, Overlap, Schedule
from gateway.schedules.store import Advance, LedgerStore, ScheduleStore, UnwritableError

# --- settling: promotes or removes the held jobs of occurrences, even if the process that inserted them has died
#
# This is the only way from a held job to a run: for a tick, for the sweep after a crash, and for an edit before it
# is answered.

log = structlog.get_logger()

#: How often beats and edits may overtake each other; more often would mean that something else is wrong.
_MAX_ROUNDS = 20
_KINDS = {Decision.RUN: LedgerKind.FIRED, Decision.SKIP: LedgerKind.SKIPPED, Decision.MISS: LedgerKind.MISSED}


class TargetMarks(Protocol):
    def scheduled(self, numbers: Sequence[int], at: datetime) -> None:
        """Record that runs of these targets were handed to workers."""


class HeldJob(NamedTuple):
    job: Job
    occurrence: Occurrence
    fate: Decision
    schedule_id: str

    @classmethod
    def of(cls, job: Job) -> HeldJob | None:
        """The job with its occurrence; `None` if the job is not held (any more)."""
        if job.slot is None or job.held is None or job.schedule_id is None:
            return None
        return cls(job, job.slot, job.held, job.schedule_id)


class Settled(NamedTuple):
    """Job ids. If several processes settle the same occurrences at once, more than one of them may list an id."""

    fired: list[str]
    skipped: list[str]
    missed: list[str]
    #: Still held, because other processes overtook this one in every round.
    left: list[str]


@define(eq=False, repr=False, slots=False, kw_only=True)
class Promotion:
    _schedules: ScheduleStore
    _occurrences: OccurrenceStore
    _ledger: LedgerStore
    _orders: RunOrders
    _waker: Waker
    _targets: TargetMarks | None = None
    _clock: Clock = utc_now
    #: Schedules that cannot be written, so that each is logged once and not at each tick.
    _unwritable: set[str] = field(init=False, factory=set)

    def settle(self, jobs: Iterable[Job], known: Mapping[str, Schedule] | None = None) -> Settled:
        """Promote or remove these held jobs. `known`: the schedules as read before the jobs were inserted; they are
        only used for a compare-and-set.
        """
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
        """Record in targets and ledger that workers got these runs. If this process dies before that, a later tick
        repeats it. Runs by hand are not repeated: they then only lack their entry in the ledger.
        """
        targets = [job.target.target_id for job in jobs if job.target]
        if self._targets and targets:
            self._targets.scheduled(targets, self._clock())
        entries = [self._entry(job.id, job.schedule_id, job.slot, Decision.RUN) for job in jobs if job.slot]
        if entries:
            self._ledger.record(entries)
        if unnoted := [job for job in jobs if not is_by_hand(job)]:
            self._occurrences.note([job.id for job in unnoted])

    def _round(self, held: Sequence[HeldJob], settled: Settled) -> list[HeldJob]:
        """Settle each job by its schedule's present state. Returns those that need another round."""
        found = self._schedules.read({one.schedule_id for one in held})
        schedules = {schedule.id: schedule for schedule in found.schedules}
        verdicts: defaultdict[OccurrenceVerdict, list[HeldJob]] = defaultdict(list)
        for one in held:
            if one.schedule_id not in found.unreadable:
                verdicts[_verdict(one, schedules)].append(one)
        for one in verdicts[OccurrenceVerdict.VOID]:
            self._void(one)
        self._finish(self._not_over(verdicts[OccurrenceVerdict.READY]), settled)
        won, again = self._advance(verdicts[OccurrenceVerdict.ADVANCE], schedules)
        self._finish(won, settled)
        return again + self._refresh(verdicts[OccurrenceVerdict.REFRESH], schedules)

    def _advance(
        self, held: Sequence[HeldJob], schedules: Mapping[str, Schedule]
    ) -> tuple[Sequence[HeldJob], list[HeldJob]]:
        """Advance the schedules. Returns the jobs whose schedules this call has advanced, and the jobs for which that
        is uncertain.
        """
        coming: list[HeldJob] = []
        others: list[HeldJob] = []
        for one in held:
            (coming if _verdict(one, schedules) is OccurrenceVerdict.ADVANCE else others).append(one)
        advances = []
        for one in coming:
            schedule = schedules[one.schedule_id]
            advances.append(Advance(schedule, advanced(schedule, one.job.id, one.occurrence, one.fate)))
        try:
            if not coming or self._schedules.advance(advances):
                return coming, others
        except UnwritableError as error:
            # their occurrences stay held: these are late, and no others
            if not self._unwritable.issuperset(error.schedule_ids):
                log.warning("schedules_not_advanced", error=str(error))
            self._unwritable.update(error.schedule_ids)
            coming = [one for one in coming if one.schedule_id not in error.schedule_ids]
        return [], [*coming, *others]

    def _not_over(self, held: Sequence[HeldJob]) -> list[HeldJob]:
        """Remove jobs that a slow beat inserted again after they were over, as the ledger shows; return the rest. A
        job whose entry cannot be read stays held, because it may be over.
        """
        if not held:
            return []
        known = self._ledger.revisions([one.job.id for one in held])
        left: list[HeldJob] = []
        for one in held:
            if (rev := known.get(one.job.id, 0)) is None:
                continue
            if rev >= one.occurrence.rev:
                self._occurrences.remove(one.job)
            else:
                left.append(one)
        return left

    def _void(self, one: HeldJob) -> None:
        """Mark the job void first: if the process dies in between, the job can only be removed, and never runs."""
        voided = one.job if one.fate is Decision.VOID else self._occurrences.void(one.job)
        if voided is not None:
            self._schedules.uncount(one.schedule_id, voided.id)
            self._occurrences.remove(voided)

    def _refresh(self, held: Sequence[HeldJob], schedules: Mapping[str, Schedule]) -> list[HeldJob]:
        """Give the jobs their schedules' present content. Returns them as they are now, perhaps changed by others."""
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
        """Carry out the decisions, now that the schedules are advanced past these occurrences."""
        alike: defaultdict[tuple[int, bool, bool], list[HeldJob]] = defaultdict(list)
        for one in held:
            if one.job.is_final:
                # the job was cancelled while it was held
                self._occurrences.release(one.job)
            else:
                alike[one.occurrence.rev, one.fate is Decision.RUN, is_by_hand(one.job)].append(one)
        for (rev, runs, by_hand), group in alike.items():
            if not runs:
                self._let_pass(rev, group, settled)
            else:
                self.note(self._run(rev, [one.job for one in group], settled, by_hand=by_hand))

    def _run(self, rev: int, jobs: Sequence[Job], settled: Settled, *, by_hand: bool) -> Sequence[Job]:
        """Promote the jobs. Returns those that run; none if another process has promoted them all, and so goes on."""
        names = [job.id for job in jobs]
        promoted = self._occurrences.promote(names, rev, by_hand=by_hand)
        if promoted < len(jobs):
            # the others were just removed by an edit, or promoted by another process
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
        now, late_by = self._clock(), max(0.0, (occurrence.fired_at - occurrence.due).total_seconds())
        return LedgerEntry(
            job_id=job_id,
            schedule_id=schedule_id or "",
            kind=_KINDS[fate],
            recorded_at=now,
            announce_due=None if fate is Decision.RUN and late_by <= GRACE_SECONDS else now,
            late_by_seconds=late_by,
            **occurrence.model_dump(include={"at", "due", "missed", "reason", "rev"}),
        )


def _verdict(one: HeldJob, schedules: Mapping[str, Schedule]) -> OccurrenceVerdict:
    return (
        OccurrenceVerdict.VOID if one.fate is Decision.VOID else judge(one.occurrence, schedules.get(one.schedule_id))
    )


# --- the tick

#: How many schedules one write fires, and how many jobs one write promotes.
BATCH = 500
#: Seconds after which it is the turn of users whose schedules were not read yet.
TURN_SECONDS = 0.3
#: A job that is held for longer than this was left by a process that died, or by one that waits.
LEFT_OVER = timedelta(seconds=1)
#: Seconds between two checks of such jobs, and between two checks of runs that the ledger may lack.
LEFT_OVER_SECONDS, UNNOTED_SECONDS = 3.0, 10.0
#: Seconds that a tick may take, because the beat has other work; the next tick goes on at once.
TICK_BUDGET = 1.5
#: A schedule whose user has reached a quota is not fired again before this time has passed.
QUOTA_REST = timedelta(seconds=5)
#: Schedules that are still due are counted up to this number.
_MAX_COUNTED = 10_000


class TickReport(NamedTuple):
    """What one tick did, as job ids. Skipped and missed occurrences have the ids that their jobs would have had."""

    fired: list[str]
    skipped: list[str]
    missed: list[str]
    #: One-off jobs whose start time has come.
    promoted: list[str]
    #: How many schedules are still due.
    due_left: int
    #: When the next occurrence is due; `None` if none is known.
    next_due: datetime | None


@define(eq=False, repr=False, slots=False, kw_only=True)
class Scheduling:
    _schedules: ScheduleStore
    _occurrences: OccurrenceStore
    _promotion: Promotion
    _orders: RunOrders
    _waker: Waker
    _admission: Admission | None = None
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _looked_at: float = field(init=False, default=float("-inf"))
    _noted_at: float = field(init=False, default=float("-inf"))
    _told_of: set[str] = field(init=False, factory=set)
    #: Users who had a turn, and have more schedules that are due.
    _served: set[str] = field(init=False, factory=set)

    def tick(self) -> TickReport:
        """Fire everything that is due now. Raises the error of a store that cannot be reached; the next tick goes on
        with what was begun.
        """
        now, settled = self._clock(), Settled([], [], [], [])
        self._settle_left_over(now, settled)
        scheduled = self._occurrences.next_scheduled()
        next_run = self._schedules.next_run()
        promoted, passed = [], []
        if scheduled is not None and scheduled <= now:
            promoted = self._promote(now)
            # after less than a full batch, a job that is still due cannot be read, so only later ones count
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
        """Promote one-off jobs whose start time has come."""
        jobs = self._occurrences.scheduled(now, BATCH)
        if jobs and self._occurrences.promote_scheduled([job.id for job in jobs]):
            for job in jobs:
                self._waker.wake_job(job)
                with about(job):
                    log.info("crawl_due", status="pending")
        return [job.id for job in jobs]

    def _fire_due(self, now: datetime, settled: Settled) -> list[str]:
        """Fire due schedules in batches. Returns the ids of schedules that could not be fired.

        Users for whose schedules a turn had no time are served: others come before them, also in the next ticks,
        until nobody else is due. So a thousand schedules of one user, each with thousands of URLs, delay no others.
        """
        end = self._monotonic() + TICK_BUDGET
        passed: list[str] = []
        seen: set[tuple[str, datetime | None]] = set()
        while self._monotonic() < end:
            due = self._schedules.due(now, BATCH, but=passed, users=self._served)
            for schedule_id in due.unreadable:
                self._tell_once(schedule_id, "schedule_unreadable")
                passed.append(schedule_id)
            passed.extend(schedule.id for schedule in due.schedules if (schedule.id, schedule.next_at) in seen)
            schedules = [schedule for schedule in due.schedules if (schedule.id, schedule.next_at) not in seen]
            if schedules:
                fired, late = self._fire(_in_turns(schedules), min(end, self._monotonic() + TURN_SECONDS))
                _add(settled, fired)
                left = {schedule.id for schedule in late}
                seen.update((one.id, one.next_at) for one in schedules if one.id not in left)
                self._served.update(schedule.user_id for schedule in late)
            elif not due.unreadable and not due.schedules:
                if not self._served:
                    break
                self._served.clear()
        return passed

    def _fire(self, schedules: Sequence[Schedule], end: float) -> tuple[Settled, Sequence[Schedule]]:
        """Fire the schedules. Also returns those for which there was no time."""
        known = {schedule.id: schedule for schedule in schedules}
        jobs, late = self.decide(schedules, end)
        if not jobs:
            return Settled([], [], [], []), late
        taken = self._occurrences.insert(jobs)
        if taken:
            # another process has inserted these jobs first, and its decision counts
            theirs = self._occurrences.read(taken)
            self._pass_over([job for job in theirs if job.held is None], jobs, known)
            jobs = [job for job in jobs if job.id not in taken] + theirs
        return self._promotion.settle(jobs, known), late

    def decide(
        self, schedules: Sequence[Schedule], end: float = float("inf")
    ) -> tuple[list[Job], Sequence[Schedule]]:
        """The held jobs of the due occurrences. After `end` no further job is made, except the first, because
        counting the occurrences that were missed in months takes time; the schedules that are left then are returned,
        too. It writes only the jobs' reservations of budgets. They are given back if another process decides
        otherwise.
        """
        now = self._clock()
        orders = orders_of(self._orders, schedules)
        live = self._live(schedules)
        look = self._admission.look() if self._admission else None
        jobs: list[Job] = []
        for place, schedule in enumerate(schedules):
            if jobs and self._monotonic() > end:
                return jobs, schedules[place:]
            try:
                job = _decided(schedule, orders.get(schedule.id), live.get(schedule.id), look, now)
                jobs.append(self._admitted(job, schedule))
            except PyMongoError:
                raise
            except Exception as error:  # noqa: BLE001 - an error in one schedule must not stop the others
                self._tell_once(schedule.id, "schedule_not_fired", error=str(error), kind=type(error).__name__)
        return jobs, ()

    def _admitted(self, job: Job, schedule: Schedule) -> Job:
        """The job with its reservation. It is skipped if its key's budget has no room for it."""
        if job.held is not Decision.RUN or job.slot is None:
            return job
        try:
            return self._occurrences.budgets.reserve(job)
        except (BudgetSpentError, InvalidRequestError) as error:
            reason = f"{error.code}: {error.reason if isinstance(error, BudgetSpentError) else error.message}"
            rested = _after_a_rest(schedule, job.slot.at, self._clock())
            skipped = job.slot.model_copy(update={"reason": reason, **_next(rested)})
            return job.model_copy(update={"held": Decision.SKIP, "slot": skipped})

    def _live(self, schedules: Sequence[Schedule]) -> dict[str, EarlierRun]:
        """By schedule id, the run because of which the next occurrence is skipped."""
        skipping = {schedule.id: schedule for schedule in schedules if schedule.overlap is Overlap.SKIP}
        runs = self._occurrences.live(list(skipping)) if skipping else []
        return {run.schedule_id: run for run in runs if _is_before(run, skipping[run.schedule_id])}

    def _pass_over(self, over: Sequence[Job], mine: Sequence[Job], known: Mapping[str, Schedule]) -> None:
        """Advance schedules past occurrences that ran before, under an earlier timing of the schedule."""
        occurrences = {job.id: job.slot for job in mine}
        advances = []
        for job in over:
            occurrence, schedule = occurrences.get(job.id), known.get(job.schedule_id or "")
            if occurrence and schedule:
                advances.append(Advance(schedule, advanced(schedule, job.id, occurrence, None)))
        if advances:
            with suppress(UnwritableError):
                self._schedules.advance(advances)

    def _tell_once(self, schedule_id: str, event: str, **facts: object) -> None:
        if schedule_id not in self._told_of:
            self._told_of.add(schedule_id)
            log.error(event, schedule_id=schedule_id, **facts)


def _in_turns(schedules: Iterable[Schedule]) -> list[Schedule]:
    """The first schedule of each user, then the second of each, and so on."""
    turns: Counter[str] = Counter()
    places: list[tuple[int, Schedule]] = []
    for schedule in schedules:
        turns[schedule.user_id] += 1
        places.append((turns[schedule.user_id], schedule))
    return [schedule for _, schedule in sorted(places, key=lambda one: one[0])]


def _decided(
    schedule: Schedule, order: RunOrder | None, before: EarlierRun | None, look: Look | None, now: datetime
) -> Job:
    if schedule.next_at is None or schedule.next_run is None:
        raise ValueError("it is due, but has no occurrence to come")
    planned = plan(schedule, now)
    fate, reason = planned.fate, planned.reason
    if fate is Decision.RUN and (skip := _why_not(order, before)):
        fate, reason = Decision.SKIP, skip
    elif fate is Decision.RUN and look and (refusal := look.take(schedule.user_id)):
        fate, reason, planned = Decision.SKIP, refusal, _after_a_rest(schedule, schedule.next_at, now)
    occurrence = Occurrence(
        rev=schedule.rev, at=schedule.next_at, due=schedule.next_run, fired_at=now, reason=reason, **_next(planned)
    )
    return occurrence_job(schedule, order, occurrence, fate, now)


def _next(planned: OccurrencePlan) -> dict[str, Any]:
    at, due = planned.next or (None, None)
    return {"missed": planned.missed, "next_at": at, "next_due": due}


def _after_a_rest(schedule: Schedule, at: datetime, now: datetime) -> OccurrencePlan:
    """Skip this occurrence and those of the next seconds, which would be refused, too, and delay other schedules."""
    until = now + QUOTA_REST
    missed = count_due(schedule.id, schedule.timing, at, until)
    return OccurrencePlan(Decision.SKIP, missed, following(schedule.id, schedule.timing, at, until))


def _is_before(run: EarlierRun, schedule: Schedule) -> bool:
    """Whether the run is before the due occurrence. A held run counts only if the schedule's present revision decided
    about it, and if it is not the due occurrence itself.
    """
    if run.held_by is None:
        return True
    own = schedule.next_at and occurrence_id(schedule.id, schedule.next_at)
    return run.held_by == schedule.rev and run.job_id != own


def _why_not(order: RunOrder | None, before: EarlierRun | None) -> str | None:
    if order is None:
        return NOTHING_TO_RUN
    if order.skip:
        return order.skip
    return f"the previous run, {before.job_id}, has not ended ({before.status})" if before else None


def _add(total: Settled, more: Settled) -> None:
    for mine, theirs in zip(total, more, strict=True):
        mine.extend(theirs)
