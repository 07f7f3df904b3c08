"""What may become of a held job of a slot, by where its schedule stands: for every beat, sweep and edit alike."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from gateway.domain.schedule import Schedule, ScheduleState
from gateway.domain.slot import Slot, SlotFate


class Verdict(Enum):
    #: The schedule does not have this slot, or not any more.
    VOID = auto()
    #: The slot is right, what it runs is out of date.
    REFRESH = auto()
    #: The schedule has the slot before it.
    ADVANCE = auto()
    #: The schedule has it behind it: what was decided may happen.
    READY = auto()


def judge(slot: Slot, schedule: Schedule | None) -> Verdict:
    """`schedule` as read after the slot's job was inserted; `None` if it is gone.

    A job whose revision is the schedule's was decided about by that very revision: also where the schedule has ended
    by it, for whatever a person does raises the revision.
    """
    if schedule is None:
        return Verdict.VOID
    if slot.rev != schedule.rev:
        return Verdict.REFRESH if schedule.timing_rev <= slot.rev < schedule.rev else Verdict.VOID
    return Verdict.ADVANCE if schedule.next_at == slot.at else Verdict.READY


def advanced(schedule: Schedule, job_id: str, slot: Slot, fate: SlotFate | None) -> dict[str, Any]:
    """What changes in the schedule when that slot is put behind it; `None`: the field goes. Without a `fate` the slot
    has run before and is not counted again.
    """
    runs = schedule.runs + (fate is SlotFate.RUN)
    changes: dict[str, Any] = {"next_at": slot.next_at, "next_run": slot.next_due}
    if fate is SlotFate.RUN:
        changes |= {"runs": runs, "last_run_at": slot.fired_at, "last_job_id": job_id}
    if message := _end(schedule, slot, runs):
        changes |= {
            "next_at": None,
            "next_run": None,
            "state": ScheduleState.ENDED,
            "message": message,
            "live_key": None,
        }
    return changes


def _end(schedule: Schedule, slot: Slot, runs: int) -> str | None:
    if schedule.max_runs is not None and runs >= schedule.max_runs:
        return f"it has run {runs} times" if runs > 1 else "it has run once"
    return None if slot.next_at else "no run is left before its end"
