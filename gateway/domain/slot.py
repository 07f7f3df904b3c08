"""The slot of a schedule that a job is the run of. Who fires it, and how often it is tried, changes nothing."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class SlotFate(StrEnum):
    """What becomes of a slot. Decided once, by whoever inserts its document first; all others follow."""

    RUN = "run"
    #: The run before it was not over yet.
    SKIP = "skip"
    #: Nobody was there when it was due, and the schedule does not make up for that.
    MISS = "miss"
    #: The schedule does not have it any more: its job is being taken back, and can never run.
    VOID = "void"


class Slot(BaseModel):
    """Stands in the job of a slot, from before the schedule is advanced; so every beat advances it alike."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Revision of the schedule by which the job was made.
    rev: int
    #: Nominal time; with the schedule it makes the job's id.
    at: datetime
    #: `at` with jitter.
    due: datetime
    #: When it was found to be due.
    fired_at: datetime
    #: Later slots that were due as well and for which this one stands.
    missed: int = 0
    #: Why it does not run.
    reason: str | None = None
    #: Where the schedule goes from here, as `at` and `due`; `None` where it ends.
    next_at: datetime | None = None
    next_due: datetime | None = None


class Trigger(StrEnum):
    """Who asked for a run of a site."""

    MANUAL = "manual"
    SCHEDULED = "scheduled"


class TargetRun(BaseModel):
    """What the message of a target's run says beside the job's id, with `attempt_count`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_id: int
    website_id: int
    website_name: str
    search_url: str
    requires_playwright: bool
    pagination_type: str
    keywords_used: str
    location_used: str

    def to_message(self, attempt_count: int) -> dict[str, Any]:
        """`attempt_count` is 0 at the first attempt."""
        return {**self.model_dump(), "attempt_count": attempt_count}


def slot_id(schedule_id: str, at: datetime) -> str:
    """The id of the one job that this slot can have: 32 hexadecimal digits."""
    return uuid.uuid5(uuid.UUID(hex=schedule_id), str(int(at.timestamp() * 1000))).hex
