"""A schedule: what it runs, when, and its state. `next_run.py` computes the exact times."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from gateway.contract.reasons import Reason
from gateway.jobs.job import CrawlOrder, StoredReason, Trigger, occurrence_id

#: Occurrences at most this many seconds late are fired one by one. Later ones are missed; `catch_up` applies.
GRACE_SECONDS = 5.0
#: `CatchUp.ALL` runs at most this many missed occurrences: the newest.
MAX_CATCH_UP = 100


class Overlap(StrEnum):
    """What happens to an occurrence that is due while the previous run is not over."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """What happens to occurrences that were missed."""

    #: One run for all of them.
    ONE = "one"
    NONE = "none"
    #: One run for each, up to `MAX_CATCH_UP`.
    ALL = "all"


class ScheduleState(StrEnum):
    """Whether a schedule runs crawls."""

    ACTIVE = "active"
    PAUSED = "paused"
    #: Cancelled, or its end date or number of runs is reached.
    ENDED = "ended"


class Timing(BaseModel, extra="forbid", frozen=True):
    """When the schedule is due. A change of it changes every occurrence."""

    #: Five-field cron, `@hourly` and friends, or `every 15m`.
    interval: str
    #: IANA name. The times of a cron expression are in this time zone.
    timezone: str = "UTC"
    #: No run begins before this time, and intervals are counted from it.
    starts_at: datetime
    #: No run begins after this time.
    ends_at: datetime | None = None
    #: A run is moved by up to this fraction of the gap to the next one: either way for `every`, later for cron.
    #: `None`: 0.1 for `every`, 0 for cron.
    jitter: float | None = Field(default=None, ge=0, le=0.5)


class Schedule(BaseModel, extra="forbid", populate_by_name=True):
    """One document of `schedules`; field names are those in MongoDB (but `id`, which is `_id` there)."""

    id: str = Field(alias="_id")
    user_id: str
    name: str | None = None
    #: What it runs. Absent in the schedule of a site or target: there it is made from their records each time.
    crawl: CrawlOrder | None = None
    #: The projects that its spider belonged to before, separated by commas; absent if it was never moved. A key for
    #: some projects sees the schedule only if this is absent or is one of them. Several names in one text are never
    #: one of them, because a project's name has no comma.
    moved_from: str | None = None
    #: The name of the site and, for a target's schedule, the id of the target.
    site: str | None = None
    target: str | None = None
    timing: Timing
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONE
    #: The schedule ends after this many runs.
    max_runs: int | None = None
    state: ScheduleState = ScheduleState.ACTIVE
    #: Why it ended.
    message: str | None = None
    #: Why a person ended it; absent if it ended by itself.
    reason: StoredReason = None
    #: Every change by a person raises it: an occurrence's job of an older revision never runs.
    rev: int = 1
    #: The last revision in which its occurrences changed: a person changed its timing, or paused, resumed or ended
    #: it. Occurrences of an older revision are void.
    timing_rev: int = 1
    #: The next occurrence, as `Occurrence.at` and `Occurrence.due`; absent unless the schedule is active.
    next_at: datetime | None = None
    next_run: datetime | None = None
    #: How many occurrences ran; and how many runs a person started besides, with a release that counts them.
    runs: int = 0
    runs_by_hand: int = 0
    #: When the last run was fired or asked for by hand, and its job.
    last_run_at: datetime | None = None
    last_job_id: str | None = None
    #: Identity of the request. `live_key` is unique, and absent once the schedule has ended.
    fingerprint: str
    live_key: str | None = None
    idempotency_key: str | None = None
    #: The key that made or last changed it, if that key has a budget: its runs use the budget.
    budget_key: str | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def is_cancelled(self) -> bool:
        # 0.2.0 stored only this message, without a reason
        return self.reason is Reason.CANCELLED or self.message == "cancelled on request"

    def to_document(self) -> dict[str, Any]:
        """The stored form: empty fields are absent rather than null."""
        return self.model_dump(by_alias=True, exclude_none=True)


class LedgerKind(StrEnum):
    """What came of a time of a schedule."""

    FIRED = "fired"
    SKIPPED = "skipped"
    MISSED = "missed"


class LedgerEntry(BaseModel, extra="forbid", populate_by_name=True):
    """What happened to one occurrence, or a run that was asked for by hand; `_id` in MongoDB is the id of its job."""

    #: The id of the occurrence's job. The job exists only if the occurrence was fired.
    job_id: str = Field(alias="_id")
    schedule_id: str
    kind: LedgerKind
    at: datetime
    due: datetime
    recorded_at: datetime
    late_by_seconds: float
    #: How many later occurrences this one replaces, or were missed together with it.
    missed: int = 0
    reason: str | None = None
    rev: int
    #: When to announce an occurrence that did not run, or ran late; absent once it is announced.
    announce_due: datetime | None = None

    @property
    def trigger(self) -> Trigger:
        # a run by hand has an id of its own, not that of an occurrence
        is_occurrence = self.job_id == occurrence_id(self.schedule_id, self.at)
        return Trigger.SCHEDULED if is_occurrence else Trigger.MANUAL
