"""Decides whether the figures of some runs call for an alert. Nothing here reads or writes, so the same code serves
runs that have just ended, and runs of the last days for a preview.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel

from gateway.jobs.job import GOOD_STATUSES, Job, JobStatus
from gateway.schedules.schedule import LedgerEntry
from gateway.signals.alert_rules import FEWEST_USUAL, MOST_IN_A_ROW, MOST_USUAL, AlertCondition, AlertMeasure
from gateway.signals.sentences import lasting
from gateway.stores.mongo import Document

#: An alert keeps this many runs.
KEPT = MOST_IN_A_ROW + MOST_USUAL + 10
#: A run's message is cut to this many characters.
_MESSAGE = 300
_ENDED = frozenset({JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR})
_BAD = {
    AlertMeasure.FAILED: frozenset({JobStatus.ERROR}),
    AlertMeasure.INCOMPLETE: frozenset({JobStatus.ERROR, JobStatus.PARTIAL}),
}
_COUNTED = {
    AlertMeasure.ITEMS: "items",
    AlertMeasure.PAGES: "pages",
    AlertMeasure.ERRORS: "errors",
    AlertMeasure.DURATION: "seconds",
}


class ComparedRun(BaseModel, extra="ignore", frozen=True):
    """The figures of one run that rules compare, or of an occurrence of a schedule without a run."""

    job_id: str
    at: datetime
    #: `None` for an occurrence that was skipped or missed.
    status: str | None = None
    items: int = 0
    pages: int = 0
    errors: int = 0
    #: The number of its error groups that are new, or back after they were resolved.
    new_errors: int = 0
    seconds: float = 0.0
    message: str = ""

    @classmethod
    def of(cls, job: Job) -> ComparedRun | None:
        """The figures of a job; `None` if its run is not over, or was cancelled."""
        read = {"status", "started_at", "finished_at", "progress", "message", "new_errors"}
        return cls.of_document({"_id": job.id, **job.model_dump(include=read)})

    @classmethod
    def of_document(cls, job: Document) -> ComparedRun | None:
        """Like `of`, for a stored job of which only some fields were read. Raises `ValueError`."""
        if job.get("status") not in _ENDED or (ended := job.get("finished_at")) is None:
            return None
        progress = job.get("progress") or {}
        return cls(
            job_id=job["_id"],
            at=ended,
            status=job["status"],
            items=progress.get("items_count", 0),
            pages=progress.get("completed_pages", 0),
            errors=progress.get("errors_count", 0),
            new_errors=job.get("new_errors") or 0,
            seconds=max(0.0, (ended - (job.get("started_at") or ended)).total_seconds()),
            message=(job.get("message") or "")[:_MESSAGE],
        )

    @classmethod
    def of_occurrence(cls, entry: LedgerEntry) -> ComparedRun:
        return cls(job_id=entry.job_id, at=entry.recorded_at, message=(entry.reason or "")[:_MESSAGE])

    @property
    def is_good(self) -> bool:
        return self.status in GOOD_STATUSES

    def value(self, measure: AlertMeasure) -> float | None:
        """The figure; `None` if the run does not count for this measure. A failed run does not count for the number
        of items, because its failure is an alert already.
        """
        if measure is AlertMeasure.NOT_STARTED:
            return float(self.status is None)
        if bad := _BAD.get(measure):
            return None if self.status is None else float(self.status in bad)
        if measure is AlertMeasure.NEW_ERRORS:
            return None if self.status is None else float(self.new_errors)
        if self.status not in GOOD_STATUSES:
            return None
        if measure is AlertMeasure.ERROR_SHARE:
            return self.errors / max(1, self.pages + self.errors)
        return float(getattr(self, _COUNTED[measure]))


def merged(known: Sequence[ComparedRun], further: Iterable[ComparedRun]) -> list[ComparedRun]:
    """The newest runs of both, the oldest first. The result does not depend on the order in which runs are added, nor
    on how often.
    """
    every = {one.job_id: one for one in (*known, *further)}
    return sorted(every.values(), key=lambda one: (one.at, one.job_id))[-KEPT:]


class RunVerdict(NamedTuple):
    """The condition of a rule holds since this run."""

    #: When the run ended.
    at: datetime
    message: str
    #: The run's job; `None` for an occurrence without a run.
    job_id: str | None = None
    #: The usual figure that it was compared with; `None` for a fixed bound.
    usual: float | None = None


def check(when: AlertCondition, runs: Sequence[ComparedRun], usual: float | None = None) -> RunVerdict | None:
    """A verdict if the condition holds after the last of these runs. `usual`: the usual figure when the condition
    began to hold. It must stay the same, because an unusual figure that lasts would become the usual one.
    """
    told = [(one, value) for one in runs if (value := one.value(when.measure)) is not None]
    last = told[-when.runs :]
    if len(last) < when.runs:
        return None
    if when.of_usual is not None and usual is None:
        usual = _median(told[: -when.runs][-when.of_usual :])
    if not all(when.is_beyond(value, usual) for _, value in last):
        return None
    newest, value = last[-1]
    job_id = None if newest.status is None else newest.job_id
    return RunVerdict(newest.at, said(when, value, usual, newest.message), job_id, usual)


def _median(earlier: Sequence[tuple[ComparedRun, float]]) -> float | None:
    return statistics.median(value for _, value in earlier) if len(earlier) >= FEWEST_USUAL else None


class Incident(NamedTuple):
    since: datetime
    #: `None` while it lasts.
    until: datetime | None
    message: str


def incidents(when: AlertCondition, runs: Sequence[ComparedRun]) -> Iterator[Incident]:
    """The alerts that there would have been, run after run."""
    began: RunVerdict | None = None
    for count in range(1, len(runs) + 1):
        found = check(when, runs[max(0, count - KEPT) : count], began.usual if began else None)
        if began is None:
            began = found
        elif found is None and runs[count - 1].value(when.measure) is not None:
            yield Incident(began.at, runs[count - 1].at, began.message)
            began = None
    if began is not None:
        yield Incident(began.at, None, began.message)


# --- in words

#: The words for the figure of each measure.
_WORDS = {
    AlertMeasure.ITEMS: "{value} items",
    AlertMeasure.PAGES: "{value} pages",
    AlertMeasure.ERRORS: "{value} errors",
    AlertMeasure.NEW_ERRORS: "new kinds of error: {value}",
    AlertMeasure.ERROR_SHARE: "{value} of the pages failed",
    AlertMeasure.DURATION: "it took {value}",
    AlertMeasure.IDLE: "nothing has ended well for {value}",
    AlertMeasure.WAITING: "a job that could start has waited for {value}",
    AlertMeasure.QUEUE: "{value} jobs wait",
}
_YES = {
    AlertMeasure.FAILED: "failed",
    AlertMeasure.INCOMPLETE: "ended with errors",
    AlertMeasure.NOT_STARTED: "did not run",
}


def said(when: AlertCondition, value: float, usual: float | None = None, message: str = "") -> str:
    """`failed 3 times in a row: 12 of 400 pages`, `40 items, usually 200`, `nothing has ended well for 26 h`."""
    if words := _YES.get(when.measure):
        often = f" {when.runs} times in a row" if when.runs > 1 else ""
        return f"{words}{often}" + (f": {message}" if message else "")
    told = _WORDS[when.measure].format(value=_shown(when.measure, value))
    if usual is not None:
        return f"{told}, usually {_shown(when.measure, usual)}"
    if when.measure in {AlertMeasure.IDLE, AlertMeasure.WAITING}:
        return told
    bound, word = (when.above, "more") if when.above is not None else (when.below, "less")
    return f"{told}, {word} than {_shown(when.measure, bound or 0.0)}"


def _shown(measure: AlertMeasure, value: float) -> str:
    if measure is AlertMeasure.ERROR_SHARE:
        return f"{value:.1%}"
    if measure in {AlertMeasure.DURATION, AlertMeasure.IDLE, AlertMeasure.WAITING}:
        return lasting(value)
    return f"{value:,.0f}"
