"""A schedule: what is run, when, and where it stands. When exactly is `recurrence.py`'s."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gateway.jobs.job import CrawlOrder

#: Occurrences not later than this are fired one by one; older ones are missed, and `catch_up` says what follows.
GRACE_SECONDS = 5.0
#: Missed occurrences that `CatchUp.ALL` makes up for, at the most: the newest.
MAX_CATCH_UP = 100


class Overlap(StrEnum):
    """What an occurrence does that is due while the run before it is not over."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """What becomes of occurrences that were missed."""

    #: One run for all of them.
    ONE = "one"
    NONE = "none"
    #: Each, up to `MAX_CATCH_UP`.
    ALL = "all"


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    #: Cancelled, or its end date or number of runs is reached.
    ENDED = "ended"


class Timing(BaseModel):
    """When. A change of it is a change of every occurrence."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Five-field cron, `@hourly` and friends, or `every 15m`.
    interval: str
    #: IANA name; cron is read in it.
    timezone: str = "UTC"
    #: No run before it; intervals are counted from it.
    starts_at: datetime
    #: No run after it.
    ends_at: datetime | None = None
    #: Fraction of the gap to the next occurrence by which a run is moved: to and fro for `every`, later for cron.
    #: `None`: 0.1 for `every`, 0 for cron.
    jitter: float | None = Field(default=None, ge=0, le=0.5)


class Schedule(BaseModel):
    """One document of `schedules`; field names are those in MongoDB (but `id`, which is `_id` there)."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    id: str = Field(alias="_id")
    user_id: str
    name: str | None = None
    #: What is run. Absent in the schedule of a site or a target: there it is made from those two at each occurrence.
    crawl: CrawlOrder | None = None
    #: Names of the site and, for a target's schedule, the id of the target.
    site: str | None = None
    target: str | None = None
    timing: Timing
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONE
    #: Runs after which it ends.
    max_runs: int | None = None
    state: ScheduleState = ScheduleState.ACTIVE
    #: Why it ended.
    message: str | None = None
    #: Raised by every change a person makes: an occurrence's job of an older revision never runs.
    rev: int = 1
    #: The revision in which its occurrences became other ones: its timing was changed, or it was paused, resumed or
    #: ended by a person. Occurrences of an older one are void.
    timing_rev: int = 1
    #: The coming occurrence, as `Occurrence.at` and `Occurrence.due`; absent unless the schedule is active.
    next_at: datetime | None = None
    next_run: datetime | None = None
    #: Occurrences that ran.
    runs: int = 0
    #: Of the occurrence that ran last: when it was fired, and its job.
    last_run_at: datetime | None = None
    last_job_id: str | None = None
    #: Identity of the request; `live_key` is unique, and there until the schedule ends.
    fingerprint: str
    live_key: str | None = None
    idempotency_key: str | None = None
    created_at: datetime
    updated_at: datetime

    def to_document(self) -> dict[str, Any]:
        """As stored: absent rather than null."""
        return self.model_dump(by_alias=True, exclude_none=True)


class LedgerKind(StrEnum):
    FIRED = "fired"
    SKIPPED = "skipped"
    MISSED = "missed"


class LedgerEntry(BaseModel):
    """What became of one occurrence; `_id` in MongoDB is the occurrence's job id."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    #: The job of an occurrence that was fired.
    job_id: str = Field(alias="_id")
    schedule_id: str
    kind: LedgerKind
    at: datetime
    due: datetime
    recorded_at: datetime
    late_by_seconds: float
    #: Occurrences for which a catch-up run stands, or that were missed with this one.
    missed: int = 0
    reason: str | None = None
    rev: int
