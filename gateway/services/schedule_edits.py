"""What people do to schedules. Once it is answered, nothing happens by an older revision any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import (
    ConflictError,
    InvalidRequestError,
    JobNotFoundError,
    ScheduleChangedError,
    ScheduleEndedError,
)
from gateway.domain.job import Job
from gateway.domain.recurrence import check_timing, first
from gateway.domain.schedule import Overlap, Schedule, ScheduleState, Timing
from gateway.services.admission import Admission
from gateway.services.settling import Settling
from gateway.services.slot_jobs import NOTHING_TO_RUN, job_by_hand
from gateway.services.slot_orders import SlotOrder, SlotOrders
from gateway.storage.client import Document
from gateway.storage.jobs import JobStore
from gateway.storage.ledger import LedgerStore
from gateway.storage.schedules import ScheduleStore
from gateway.storage.slots import SlotStore

#: Edits and beats can only overtake each other so often before something else is wrong.
_MAX_ROUNDS = 20
_NO_SLOT: Document = {"next_at": None, "next_run": None}
_EDITABLE = frozenset({"name", "crawl", "timing", "overlap", "catch_up", "max_runs", "fingerprint", "live_key"})


class ScheduleEdits:
    """Each raises `ScheduleNotFoundError`."""

    def __init__(
        self,
        *,
        schedules: ScheduleStore,
        slots: SlotStore,
        ledger: LedgerStore,
        jobs: JobStore,
        settling: Settling,
        orders: SlotOrders,
        admission: Admission | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._schedules = schedules
        self._slots = slots
        self._ledger = ledger
        self._jobs = jobs
        self._settling = settling
        self._orders = orders
        self._admission = admission
        self._clock = clock

    def edit(self, schedule_id: str, changes: dict[str, Any], *, rev: int | None = None) -> Schedule:
        """`changes` by field names of `Schedule`: `name`, `crawl`, `timing`, `overlap`, `catch_up`, `max_runs`,
        `fingerprint`, `live_key`; `None` takes one away. With `rev` only if it is in that revision still. Slots stay,
        also those that are due, unless the timing is another.

        Raises `InvalidRequestError`, `LiveTwinError`, `ScheduleChangedError` where `rev` is not its own any more, and
        `ScheduleEndedError` for one that has ended.
        """
        unknown = changes.keys() - _EDITABLE
        if unknown:
            raise ValueError(f"not to be edited: {sorted(unknown)}")

        def edited(schedule: Schedule) -> Document:
            if rev is not None and schedule.rev != rev:
                raise ScheduleChangedError(f"the schedule is in revision {schedule.rev} by now")
            return self._edited(schedule, changes)

        return self._change(schedule_id, edited)

    def pause(self, schedule_id: str) -> Schedule:
        """Raises `ScheduleEndedError`. One that is paused already stays as it is."""

        def paused(schedule: Schedule) -> Document | None:
            if schedule.state is ScheduleState.PAUSED:
                return None
            return {"state": ScheduleState.PAUSED, **_NO_SLOT, **_other_slots(schedule)}

        return self._change(schedule_id, paused)

    def resume(self, schedule_id: str) -> Schedule:
        """From the first slot after now. Raises `ScheduleEndedError`, also where no slot is left."""

        def resumed(schedule: Schedule) -> Document | None:
            if schedule.state is ScheduleState.ACTIVE:
                return None
            slot = self._first_slot(schedule.id, schedule.timing)
            return {"state": ScheduleState.ACTIVE, **slot, **_other_slots(schedule)}

        return self._change(schedule_id, resumed)

    def end(self, schedule_id: str, message: str) -> Schedule:
        """One that has ended already stays as it is."""
        ended = {"state": ScheduleState.ENDED, "message": message, "live_key": None, **_NO_SLOT}

        def change(schedule: Schedule) -> Document | None:
            return None if schedule.state is ScheduleState.ENDED else {**ended, **_other_slots(schedule)}

        return self._change(schedule_id, change, also_ended=True)

    def delete(self, schedule_id: str) -> None:
        """With its ledger; its jobs stay."""
        if not self._schedules.delete(schedule_id):
            # whoever began may have died here
            self._settle([schedule_id])
            self._schedules.get(schedule_id)
        self._settle([schedule_id])
        self._ledger.delete(schedule_id)

    def run_now(self, schedule_id: str) -> Job:
        """A run beside its slots. Raises `ConflictError` where the schedule would skip a slot now, `TooManyError`."""
        for _ in range(_MAX_ROUNDS):
            job = job_by_hand(*self._may_run(schedule_id), self._clock())
            with self._admission.room_by_hand(job.user_id) if self._admission else nullcontext():
                if self._slots.insert([job]):
                    raise ConflictError("a run that somebody else has just asked for is not over")
            self._settling.settle([job])
            with suppress(JobNotFoundError):
                return self._jobs.get(job.id)
            # the schedule has changed in such a way that it was taken back
        raise ConflictError("the schedule is being changed over and over; ask again")

    def _may_run(self, schedule_id: str) -> tuple[Schedule, SlotOrder]:
        schedule = self._schedules.get(schedule_id)
        if schedule.state is ScheduleState.ENDED:
            raise ScheduleEndedError(_ended(schedule))
        order = self._orders.orders([schedule]).get(schedule_id)
        if order is None or order.skip:
            raise ConflictError(order.skip if order and order.skip else NOTHING_TO_RUN)
        if schedule.overlap is Overlap.SKIP and (live := self._slots.live([schedule_id])):
            raise ConflictError(f"the run before it, {live[0].job_id}, is not over ({live[0].status})")
        return schedule, order

    def touch(self, *, site: str | None = None, target: str | None = None) -> None:
        """What these schedules run has changed: no slot runs as it was before."""
        touched = self._schedules.touch(site=site, target=target)
        if touched:
            self._settle(touched)

    def _edited(self, schedule: Schedule, changes: dict[str, Any]) -> Document:
        most = changes.get("max_runs")
        if most is not None and most <= schedule.runs:
            raise InvalidRequestError("max_runs", f"it has run {schedule.runs} times already")
        timing: Timing = changes.get("timing", schedule.timing)
        stored = {name: _stored(value) for name, value in changes.items()}
        if timing == schedule.timing:
            return stored
        check_timing(timing, self._clock())
        is_active = schedule.state is ScheduleState.ACTIVE
        return {**stored, **(self._first_slot(schedule.id, timing) if is_active else {}), **_other_slots(schedule)}

    def _first_slot(self, schedule_id: str, timing: Timing) -> dict[str, datetime]:
        moment = first(schedule_id, timing, self._clock())
        if moment is None:
            raise ScheduleEndedError("no run is left before its end")
        return {"next_at": moment.at, "next_run": moment.due}

    def _change(
        self, schedule_id: str, decide: Callable[[Schedule], Document | None], *, also_ended: bool = False
    ) -> Schedule:
        """`decide` says what changes, `None` if that was done before: by somebody who may have died after it."""
        for _ in range(_MAX_ROUNDS):
            schedule = self._schedules.get(schedule_id)
            if schedule.state is ScheduleState.ENDED and not also_ended:
                raise ScheduleEndedError(_ended(schedule))
            changes = decide(schedule)
            if changes is None or self._schedules.change(schedule, changes):
                self._settle([schedule_id])
                return self._schedules.get(schedule_id)
        raise ConflictError("the schedule is being changed over and over; ask again")

    def _settle(self, schedule_ids: Sequence[str]) -> None:
        """The slots that were inserted by now are nobody's any more, or run as the schedule is now."""
        for _ in range(_MAX_ROUNDS):
            if not self._settling.settle(self._slots.held(schedule_ids)).left:
                return
        raise ConflictError("the schedule is being fired over and over; ask again")


def _other_slots(schedule: Schedule) -> Document:
    return {"timing_rev": schedule.rev + 1}


def _ended(schedule: Schedule) -> str:
    return "the schedule has ended" + (f": {schedule.message}" if schedule.message else "")


def _stored(value: object) -> object:
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
