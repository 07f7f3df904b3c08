"""A group of equal errors across the runs of one spider of one user: since when they occur, how often, and whether a
user has marked them as resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from pydantic import BaseModel, Field

from gateway.error_groups.attempt_errors import MOST_COUNTED, FoundErrors
from gateway.jobs.added_once import AnyRun, Counting
from gateway.jobs.run_days import day_of

#: A group keeps its counts of this many days, and this many of its runs.
DAYS_KEPT, RUNS_KEPT = 90, 50


class ErrorGroupState(StrEnum):
    """Whether an error is open."""

    OPEN = "open"
    #: A user has marked it as resolved. It is open again once it occurs in a run that began later.
    RESOLVED = "resolved"
    #: A user has marked it as ignored. It stays ignored, however often it occurs.
    IGNORED = "ignored"


class ErrorGroupMark(StrEnum):
    """How a group appears in a run that has it."""

    #: No earlier run has it.
    NEW = "new"
    KNOWN = "known"
    #: It had been resolved before the run began.
    BACK = "back"


class ErrorRun(BaseModel, extra="ignore", frozen=True):
    """A run with errors of the group."""

    job_id: str
    version: str | None = None
    #: When the run ended.
    at: datetime
    count: int
    #: The group was resolved, and the run has opened it again.
    is_back: bool = False

    @property
    def order(self) -> tuple[datetime, str]:
        return self.at, self.job_id


class ErrorExample(BaseModel, extra="ignore", frozen=True):
    job_id: str
    #: 0 for an error without an attempt.
    attempt: int = 0
    text: str
    #: The page.
    url: str = ""
    at: datetime | None = None
    #: The offset in the attempt's log at which its line begins.
    log_start: int | None = None


class Resolution(BaseModel, extra="ignore", frozen=True):
    at: datetime
    by: str | None = None
    #: The version in which it is resolved.
    version: str | None = None


class DayErrors(BaseModel, extra="ignore", frozen=True):
    runs: int = 0
    count: int = 0


class ErrorGroup(Counting, extra="ignore"):
    user_id: str
    project: str
    spider: str
    fingerprint: str
    #: As in `FoundErrors`.
    kind: str
    name: str
    place: str
    message: str
    state: ErrorGroupState = ErrorGroupState.OPEN
    first: ErrorRun
    last: ErrorRun
    #: When the last run ended. Groups are sorted by this.
    last_seen_at: datetime
    #: How many runs of the spider had ended well on the day of the last run, up to and including that run.
    last_place: int = 0
    runs: int = 0
    count: int = 0
    #: By date, such as `2027-06-01`: the last `DAYS_KEPT` days with errors of the group.
    days: dict[str, DayErrors] = Field(default_factory=dict)
    #: The last `RUNS_KEPT` runs with it, the oldest first.
    recent: list[ErrorRun] = Field(default_factory=list)
    example: ErrorExample
    #: The last time that it was resolved; absent if a user has opened it again.
    resolved: Resolution | None = None
    #: The run that has opened it again.
    back: ErrorRun | None = None

    @classmethod
    def new(cls, run: AnyRun, found: FoundErrors) -> ErrorGroup:
        """A new group for these errors. The run is not added to it yet."""
        seen = _seen(run, found)
        return cls(
            id=group_id(run.user_id, run.spec.project, run.spec.spider, found.fingerprint),
            rev=0,
            user_id=run.user_id,
            project=run.spec.project,
            spider=run.spec.spider,
            **found.model_dump(include={"fingerprint", "kind", "name", "place", "message"}),
            first=seen,
            last=seen,
            last_seen_at=seen.at,
            example=_example(run, found),
        )

    @property
    def mark(self) -> str:
        # short, as a job may have fifty
        return f"e/{self.id[:12]}"

    def mark_for(self, job_id: str) -> ErrorGroupMark:
        """How the group appears in a run that was added to it."""
        if self.first.job_id == job_id:
            return ErrorGroupMark.NEW
        is_back = any(one.is_back and one.job_id == job_id for one in self.recent)
        return ErrorGroupMark.BACK if is_back else ErrorGroupMark.KNOWN

    def first_since(self, moment: datetime) -> ErrorRun | None:
        """The first run with it that ended at this moment or later, among those that the group still knows."""
        return min(
            (one for one in (self.first, *self.recent) if one.at >= moment), key=lambda one: one.at, default=None
        )

    def knows_all_since(self, moment: datetime) -> bool:
        """Whether it still knows every run with it that ended at this moment or later."""
        return self.first.at >= moment or sum(one.at >= moment for one in self.recent) < RUNS_KEPT

    def names(self, job_id: str) -> bool:
        """Whether the group still knows the run: the first one, and the last `RUNS_KEPT`."""
        return self.first.job_id == job_id or any(one.job_id == job_id for one in self.recent)

    def mark_for_later(self, run: AnyRun) -> ErrorGroupMark:
        """How the group will appear in a run that is not added yet."""
        return ErrorGroupMark.BACK if self._is_reopened_by(run) else ErrorGroupMark.KNOWN

    def with_run(self, run: AnyRun, found: FoundErrors, place: int) -> ErrorGroup:
        """The group with a run added that it does not count yet. The counts do not depend on the order of the runs.
        `place`: the run's `last_place`.
        """
        is_back = self._is_reopened_by(run)
        seen = _seen(run, found).model_copy(update={"is_back": is_back})
        is_last = not self.runs or seen.order > self.last.order
        changes = {
            "first": min(self.first, seen, key=lambda one: one.order) if self.runs else seen,
            "runs": self.runs + 1,
            "count": min(self.count + found.count, MOST_COUNTED),
            "days": _with_day(self.days, seen),
            "recent": sorted([*self.recent, seen], key=lambda one: one.order)[-RUNS_KEPT:],
        }
        if is_last:
            changes |= {"last": seen, "last_seen_at": seen.at, "last_place": place, "example": _example(run, found)}
        if is_back:
            changes |= {"state": ErrorGroupState.OPEN, "back": seen}
        return self.model_copy(update=changes)

    def _is_reopened_by(self, run: AnyRun) -> bool:
        if self.state is not ErrorGroupState.RESOLVED or self.resolved is None:
            return False
        return (run.started_at or run.created_at) >= self.resolved.at


def group_id(user_id: str, project: str, spider: str, fingerprint: str) -> str:
    """32 hexadecimal digits."""
    return sha256(f"{user_id}\n{project}\n{spider}\n{fingerprint}".encode()).hexdigest()[:32]


def _seen(run: AnyRun, found: FoundErrors) -> ErrorRun:
    at = run.finished_at or run.created_at
    return ErrorRun(job_id=run.id, version=run.spec.version, at=at, count=found.count)


def _example(run: AnyRun, found: FoundErrors) -> ErrorExample:
    facts = found.model_dump(include={"url", "at", "log_start", "attempt"})
    return ErrorExample(job_id=run.id, text=found.example or found.message, **facts)


def _with_day(days: Mapping[str, DayErrors], seen: ErrorRun) -> dict[str, DayErrors]:
    day = f"{day_of(seen.at):%Y-%m-%d}"
    known = days.get(day, DayErrors())
    changed = {**days, day: DayErrors(runs=known.runs + 1, count=min(known.count + seen.count, MOST_COUNTED))}
    return dict(sorted(changed.items())[-DAYS_KEPT:])


class Gone(NamedTuple):
    """For how long a group has not occurred."""

    #: How many runs of the spider have ended well without it since it was last seen.
    runs: int
    #: Whether there may be more, because only the runs of the last days are counted.
    is_least: bool


#: Runs without a group are counted over this many days.
GONE_DAYS = 30


def gone(group: ErrorGroup, good: Mapping[datetime, int], now: datetime) -> Gone:
    """`good`: how many runs of the spider have ended well on each of the last `GONE_DAYS` days."""
    first, last = day_of(now) - timedelta(days=GONE_DAYS), day_of(group.last.at)
    later = sum(number for day, number in good.items() if day > last and day >= first)
    same_day = max(0, good.get(last, 0) - group.last_place) if last >= first else 0
    return Gone(later + same_day, is_least=last < first)
