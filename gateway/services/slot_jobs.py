"""The job of a slot: made when the slot is found due, made anew when its schedule changes before it runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gateway.correlation import current_correlation
from gateway.domain.fingerprint import fingerprint
from gateway.domain.job import Job, JobStatus, new_job_id
from gateway.domain.schedule import Overlap, Schedule
from gateway.domain.slot import Slot, SlotFate, Trigger, slot_id
from gateway.services.rendering import renders
from gateway.services.slot_orders import NOTHING, SlotOrder

NOTHING_TO_RUN = "there is nothing to run: its site or target is gone"


def slot_job(schedule: Schedule, order: SlotOrder | None, slot: Slot, fate: SlotFate, now: datetime) -> Job:
    """Held: nobody runs it before its schedule has it behind it."""
    return Job(
        id=slot_id(schedule.id, slot.at),
        status=JobStatus.SCHEDULED,
        held=fate,
        noted=False,
        slot=slot,
        correlation_id=slot_id(schedule.id, slot.at),
        **content(schedule, order or NOTHING),
        **_new(schedule, now),
    )


def job_by_hand(schedule: Schedule, order: SlotOrder, now: datetime) -> Job:
    """A run that somebody asks for now. It is held as if it had a slot, so that it overtakes no change of the
    schedule; it is no slot's, and the ledger does not know of it. Where runs must not overlap, there is one such job
    at a time, however many ask for it at once.
    """
    at = now if schedule.next_at != now else now - timedelta(milliseconds=1)
    return Job(
        id=new_job_id(),
        status=JobStatus.SCHEDULED,
        held=SlotFate.RUN,
        slot=Slot(rev=schedule.rev, at=at, due=at, fired_at=now),
        correlation_id=current_correlation(),
        live_key=f"run:{schedule.id}" if schedule.overlap is Overlap.SKIP else None,
        **{**content(schedule, order), "trigger": order.trigger and Trigger.MANUAL},
        **_new(schedule, now),
    )


def is_by_hand(job: Job) -> bool:
    return job.noted is None


def content(schedule: Schedule, order: SlotOrder) -> dict[str, Any]:
    """Of a slot's job, what its schedule makes it and not the slot."""
    return {
        "spec": order.spec,
        "fingerprint": fingerprint(schedule.user_id, order.spec),
        "render": renders(order.spec),
        "trigger": order.trigger,
        "target": order.target,
        "exclusive": order.exclusive,
        "priority": order.priority,
        "tags": list(order.tags),
        "webhooks": list(order.webhooks),
        "max_retries": order.max_retries,
    }


def refreshed(job: Job, slot: Slot, schedule: Schedule, order: SlotOrder | None) -> Job:
    """The job by the schedule's present revision; one that was to run is skipped where that has nothing to run."""
    skip = NOTHING_TO_RUN if order is None else order.skip
    new = slot.model_copy(update={"rev": schedule.rev})
    if skip and job.held is SlotFate.RUN:
        new = new.model_copy(update={"reason": skip})
        return job.model_copy(update={"slot": new, "held": SlotFate.SKIP})
    fresh = content(schedule, order) if order else {}
    return job.model_copy(update={"slot": new, **fresh, "trigger": job.trigger})


def _new(schedule: Schedule, now: datetime) -> dict[str, Any]:
    return {
        "user_id": schedule.user_id,
        "schedule_id": schedule.id,
        "created_at": now,
        "updated_at": now,
        "not_before": now,
    }
