"""The texts on the page of a job: the entries of its timeline, its facts, and its runs as bars."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from gateway.console.formats import plain
from gateway.contract.crawl import MASK, CrawlSpec
from gateway.jobs.advice import WAITS_FOR
from gateway.jobs.job import GOOD_STATUSES, Job, JobStatus, ListedJob
from gateway.jobs.run_days import day_of
from gateway.jobs.timeline import Moment, MomentKind, timeline

# --- the time line: moments that belong together are one entry

#: Shorter waits are not worth an entry.
_SHORT_WAIT = 1.0
_ICONS = {
    MomentKind.SUBMITTED: "plus",
    MomentKind.SCHEDULED: "scheduled",
    MomentKind.WAITING: "pending",
    MomentKind.DISPATCHED: "node",
    MomentKind.STARTED: "running",
    MomentKind.PAUSE_REQUESTED: "pause",
    MomentKind.PAUSED: "paused",
    MomentKind.RESUMED: "play",
    MomentKind.CANCEL_REQUESTED: "stop",
}


def no_log(job: Job) -> str:
    """The text of the page if the job's log has no lines: the reason."""
    if job.logs_removed_at is not None:
        return "The log was deleted by retention (LOG_RETENTION_DAYS)."
    if not job.attempts:
        return _not_begun(job)
    if not job.is_final or job.settled is False:
        return "No log yet."
    # an attempt whose end of the log is unknown may have written a log
    if all(attempt.log_end == 0 for attempt in job.attempts.values()):
        return "The crawl wrote no log."
    return "No log was stored."


def _not_begun(job: Job) -> str:
    if job.status is JobStatus.PENDING:
        return f"No log yet: the job is {WAITS_FOR[job.waiting_reason]}."
    return "No log: the job never started." if job.is_final else "No log yet: the job has not started."


class StoryEntry(NamedTuple):
    at: datetime
    icon: str
    words: str
    #: Its duration, or the time until now if it still lasts; `None` for a moment without a duration.
    seconds: float | None = None
    by: str | None = None
    message: str | None = None
    #: How an attempt, or the job, ended.
    status: JobStatus | None = None


def story(job: Job, now: datetime) -> list[StoryEntry]:
    """The job's timeline, the first entry first."""
    moments = timeline(job)
    return [_entry(job, moment, now) for moment in moments if not _is_told_elsewhere(moment, moments, now)]


def _is_told_elsewhere(moment: Moment, moments: list[Moment], now: datetime) -> bool:
    if moment.kind is MomentKind.SCHEDULED and moment.until:
        # "Run now" makes an occurrence that is due a moment after the request
        return (moment.until - moment.at).total_seconds() < _SHORT_WAIT
    if moment.kind is MomentKind.WAITING:
        return ((moment.until or now) - moment.at).total_seconds() < _SHORT_WAIT
    if moment.kind is MomentKind.DISPATCHED:
        return any(one.kind is MomentKind.STARTED and one.attempt == moment.attempt for one in moments)
    if moment.kind is MomentKind.ATTEMPT_ENDED:
        # the last attempt ends when the job ends
        last = max((one.attempt or 0 for one in moments), default=0)
        return moment.attempt == last and moments[-1].kind is MomentKind.ENDED
    return False


def _entry(job: Job, moment: Moment, now: datetime) -> StoryEntry:
    icon = _ICONS.get(moment.kind) or str(moment.status or JobStatus.ERROR)
    lasts = moment.kind in {MomentKind.WAITING, MomentKind.PAUSED, MomentKind.STARTED}
    seconds = ((moment.until or now) - moment.at).total_seconds() if lasts else None
    by = moment.by if moment.by != job.user_id or (moment.kind is MomentKind.SUBMITTED and not job.slot) else None
    return StoryEntry(moment.at, icon, _words(job, moment), seconds, by, moment.message, moment.status)


def _words(job: Job, moment: Moment) -> str:
    number = f"Attempt {moment.attempt}" if len(job.attempts) > 1 or job.max_retries else "Crawl"
    simple = {
        MomentKind.SCHEDULED: "Scheduled for later",
        MomentKind.DISPATCHED: f"Sent to node {moment.node}",
        MomentKind.STARTED: f"{number} on node {moment.node}",
        MomentKind.ATTEMPT_ENDED: f"{number} ended",
        MomentKind.PAUSE_REQUESTED: "Pause requested",
        MomentKind.PAUSED: "Paused",
        MomentKind.RESUMED: "Resumed",
        MomentKind.CANCEL_REQUESTED: "Cancel requested",
        MomentKind.ENDED: f"Ended: {moment.status}",
    }
    if moment.kind is MomentKind.WAITING:
        return WAITS_FOR[moment.reason].capitalize()
    if moment.kind is MomentKind.SUBMITTED:
        return f"Started by schedule (owner: {job.user_id})" if job.slot else "Submitted"
    return simple[moment.kind]


# --- the request for the crawl

_USERINFO = re.compile(r"(?<=//)[^/@\s]*@")


def start_urls(spec: CrawlSpec) -> list[tuple[str, bool]]:
    """The first ten start URLs without passwords, each with whether the page may show it as a link."""
    shown = [_USERINFO.sub(f"{MASK}@", url) for url in spec.start_urls[:10]]
    return [(url, bool(re.match(r"https?://", url))) for url in shown]


def parameters(spec: CrawlSpec) -> list[tuple[str, str]]:
    """The names and values of the crawl's fields that are not at their defaults, without the values of secrets."""
    return [(name, text) for name, value in _given(spec.shown()) if (text := pretty(value))]


def _given(spec: CrawlSpec) -> Iterator[tuple[str, Any]]:
    yield "Parameters", spec.params
    yield "Fetch options", spec.fetch.model_dump(mode="json", exclude_defaults=True) if spec.fetch else None
    yield "Scrapy settings", spec.settings
    yield "Environment variables", sorted(spec.env)
    yield "Expectations", spec.expect.model_dump(mode="json", exclude_defaults=True) if spec.expect else None


def pretty(value: Any) -> str:
    """Indented JSON with visible escapes for invisible characters; an empty text for an empty value."""
    if not value:
        return ""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return "\n".join(plain(line, 2000) for line in text[:50_000].split("\n"))


# --- runs side by side


class RunRow(NamedTuple):
    job: ListedJob | Job
    seconds: float | None
    pages: int
    items: int
    errors: int


class Runs(NamedTuple):
    rows: list[RunRow]
    #: The greatest value of each column, at least 1: the value of a full bar. Its `job` has no meaning.
    most: RunRow


def runs(jobs: Sequence[ListedJob | Job], now: datetime) -> Runs:
    rows = [_run(job, now) for job in jobs]
    columns = {name: max([1, *(getattr(row, name) or 0 for row in rows)]) for name in RunRow._fields[1:]}
    return Runs(rows, RunRow(jobs[0], **columns))


def today_and_before(jobs: Sequence[ListedJob], now: datetime) -> tuple[ListedJob, ListedJob] | None:
    """The last good run of today (UTC), and the last good one of an earlier day, of one schedule or both of none.

    `None` if there are no two. `jobs` have the newest first.
    """
    good = [job for job in jobs if job.status in GOOD_STATUSES]
    of_today = [job for job in good if day_of(job.created_at) == day_of(now)]
    earlier = [job for job in good if day_of(job.created_at) < day_of(now)]
    pairs = ((one, other) for one in of_today for other in earlier if other.schedule_id == one.schedule_id)
    return next(pairs, None)


def _run(job: ListedJob | Job, now: datetime) -> RunRow:
    ended = job.finished_at or now
    seconds = (ended - job.started_at).total_seconds() if job.started_at else None
    counts = job.progress
    if counts is None:
        return RunRow(job, seconds, 0, 0, 0)
    return RunRow(job, seconds, counts.completed_pages, counts.items_count, counts.errors_count)
