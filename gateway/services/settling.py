"""Brings held jobs of slots to their end, whoever has inserted them, and wherever it has died.

The one way from a held job to a run: for a tick as for the sweep after a crash and for an edit before it is answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import structlog

from gateway.correlation import about
from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Job
from gateway.domain.schedule import LedgerEntry, LedgerKind, Schedule
from gateway.domain.slot import Slot, SlotFate
from gateway.domain.slot_rule import Verdict, advanced, judge
from gateway.services.slot_jobs import is_by_hand, refreshed
from gateway.services.slot_orders import SlotOrders, orders_of
from gateway.services.waker import Waker
from gateway.storage.ledger import LedgerStore
from gateway.storage.schedules import Advance, ScheduleStore
from gateway.storage.slots import SlotStore

log = structlog.get_logger()

#: Beats and edits can only overtake each other so often before something else is wrong.
_MAX_ROUNDS = 20
_KINDS = {SlotFate.RUN: LedgerKind.FIRED, SlotFate.SKIP: LedgerKind.SKIPPED, SlotFate.MISS: LedgerKind.MISSED}


class TargetMarks(Protocol):
    def scheduled(self, numbers: Sequence[int], at: datetime) -> None:
        """Runs of these targets were handed to workers."""


class HeldJob(NamedTuple):
    job: Job
    slot: Slot
    fate: SlotFate
    schedule_id: str

    @classmethod
    def of(cls, job: Job) -> HeldJob | None:
        """`None` if it is not held, or not any more."""
        if job.slot is None or job.held is None or job.schedule_id is None:
            return None
        return cls(job, job.slot, job.held, job.schedule_id)


class Settled(NamedTuple):
    """By job ids. Where several settle the same slots at once, more than one may name them."""

    fired: list[str]
    skipped: list[str]
    missed: list[str]
    #: Held still: overtaken again and again.
    left: list[str]


class Settling:
    def __init__(
        self,
        *,
        schedules: ScheduleStore,
        slots: SlotStore,
        ledger: LedgerStore,
        orders: SlotOrders,
        waker: Waker,
        targets: TargetMarks | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._schedules = schedules
        self._slots = slots
        self._ledger = ledger
        self._orders = orders
        self._waker = waker
        self._targets = targets
        self._clock = clock

    def settle(self, jobs: Iterable[Job], known: Mapping[str, Schedule] | None = None) -> Settled:
        """`known` are the schedules as they were read before the jobs were inserted: good for no more than a
        compare-and-set.
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
        """Of runs that were handed to workers: targets and the ledger know, also if somebody has died before that."""
        targets = [job.target.target_id for job in jobs if job.target]
        if self._targets and targets:
            self._targets.scheduled(targets, self._clock())
        unnoted = [job for job in jobs if not is_by_hand(job)]
        entries = [self._entry(job.id, job.schedule_id, job.slot, SlotFate.RUN) for job in unnoted if job.slot]
        if entries:
            self._ledger.record(entries)
        if unnoted:
            self._slots.note([job.id for job in unnoted])

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
        """Those whose schedules have their slots behind them by this call; and the others, where that is not sure."""
        coming: list[HeldJob] = []
        others: list[HeldJob] = []
        for one in held:
            is_coming = _verdict(one, schedules) is Verdict.ADVANCE
            (coming if is_coming else others).append(one)
        advances = [_advance(one, schedules[one.schedule_id]) for one in coming]
        if not coming or self._schedules.advance(advances):
            return coming, others
        return [], [*coming, *others]

    def _not_over(self, held: Sequence[HeldJob]) -> list[HeldJob]:
        """Without those that somebody slow has inserted again after they were over: the ledger knows them."""
        if not held:
            return []
        known = self._ledger.revisions([one.job.id for one in held])
        over = {one.job.id for one in held if known.get(one.job.id, 0) >= one.slot.rev}
        for one in held:
            if one.job.id in over:
                self._slots.remove(one.job)
        return [one for one in held if one.job.id not in over]

    def _void(self, one: HeldJob) -> None:
        """Whoever dies in between leaves a job that can only be taken back."""
        voided = one.job if one.fate is SlotFate.VOID else self._slots.void(one.job)
        if voided is not None:
            self._schedules.uncount(one.schedule_id, voided.id)
            self._slots.remove(voided)

    def _refresh(self, held: Sequence[HeldJob], schedules: Mapping[str, Schedule]) -> list[HeldJob]:
        """As they are now; whoever else has changed one meanwhile."""
        if not held:
            return []
        orders = orders_of(self._orders, [schedules[key] for key in {one.schedule_id for one in held}])
        for old in held:
            new = refreshed(old.job, old.slot, schedules[old.schedule_id], orders.get(old.schedule_id))
            if self._slots.refresh(old.job, new) and new.held is not old.fate:
                self._schedules.uncount(old.schedule_id, old.job.id)
        found = self._slots.read([old.job.id for old in held])
        return [one for job in found if (one := HeldJob.of(job))]

    def _finish(self, held: Sequence[HeldJob], settled: Settled) -> None:
        """What was decided happens, now that the schedules have these slots behind them."""
        alike: defaultdict[tuple[int, bool, bool], list[HeldJob]] = defaultdict(list)
        for one in self._not_ended(held):
            alike[one.slot.rev, one.fate is SlotFate.RUN, is_by_hand(one.job)].append(one)
        for (rev, runs, by_hand), group in alike.items():
            if not runs:
                self._let_pass(rev, group, settled)
            elif self._run(rev, group, settled, by_hand=by_hand):
                self.note([one.job for one in group])

    def _not_ended(self, held: Sequence[HeldJob]) -> list[HeldJob]:
        """Without those that were cancelled while they were held."""
        for one in held:
            if one.job.is_final:
                self._slots.release(one.job)
        return [one for one in held if not one.job.is_final]

    def _run(self, rev: int, held: Sequence[HeldJob], settled: Settled, *, by_hand: bool) -> bool:
        """Whether any of them runs by this call."""
        jobs = [one.job for one in held]
        if not self._slots.promote([job.id for job in jobs], rev, by_hand=by_hand):
            # somebody else has promoted all of them, and goes on with them
            return False
        for job in jobs:
            self._waker.wake_job(job)
            with about(job):
                log.info("slot_fired", schedule_id=job.schedule_id, status="pending")
        settled.fired.extend(job.id for job in jobs)
        return True

    def _let_pass(self, rev: int, held: Sequence[HeldJob], settled: Settled) -> None:
        entries = [
            self._entry(one.job.id, one.schedule_id, one.slot, one.fate) for one in held if not is_by_hand(one.job)
        ]
        if entries:
            self._ledger.record(entries)
        self._slots.clear([one.job.id for one in held], rev)
        for one in held:
            (settled.skipped if one.fate is SlotFate.SKIP else settled.missed).append(one.job.id)

    def _entry(self, job_id: str, schedule_id: str | None, slot: Slot, fate: SlotFate) -> LedgerEntry:
        return LedgerEntry(
            job_id=job_id,
            schedule_id=schedule_id or "",
            kind=_KINDS[fate],
            at=slot.at,
            due=slot.due,
            recorded_at=self._clock(),
            late_by_seconds=max(0.0, (slot.fired_at - slot.due).total_seconds()),
            missed=slot.missed,
            reason=slot.reason,
            rev=slot.rev,
        )


def _verdict(one: HeldJob, schedules: Mapping[str, Schedule]) -> Verdict:
    return Verdict.VOID if one.fate is SlotFate.VOID else judge(one.slot, schedules.get(one.schedule_id))


def _advance(one: HeldJob, schedule: Schedule) -> Advance:
    return Advance(schedule, advanced(schedule, one.job.id, one.slot, one.fate))
