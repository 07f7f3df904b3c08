"""The events that endpoints receive. Each has the facts for a sentence and a link."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from gateway.clock import to_iso, utc_now
from gateway.contract.crawl import Egg
from gateway.dispatch.egg_delivery import EggRefusal
from gateway.jobs.job import Job, JobSignal, JobStatus, Turn
from gateway.jobs.queries import RunningCount
from gateway.projects.versions import ProjectVersions
from gateway.schedules.schedule import LedgerEntry, LedgerKind, Schedule
from gateway.stores.mongo import Document

#: The start URL in an event is cut to this many characters. The tags and the message of a job have limits of their
#: own, so the body of an event stays far below 20 kB.
MAX_URL = 1000
_NAMESPACE = uuid.UUID("a6a9c0de-52f1-4d47-8f1d-2b1c5f0f6d11")


class EventType(StrEnum):
    """The events that endpoints can be called with."""

    JOB_STARTED = "job.started"
    JOB_PAUSED = "job.paused"
    #: An attempt failed, and is repeated.
    JOB_RETRIED = "job.retried"
    JOB_FINISHED = "job.finished"
    JOB_PARTIAL = "job.partial"
    #: The last attempt failed; the job is a dead letter.
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"
    #: A running job has more items; at most once a second.
    ITEMS_BATCH = "items.batch"
    #: A run has changed its dataset.
    DATASET_CHANGED = "dataset.changed"
    #: A run is held until a user accepts or rejects it, or the run could not be folded into its dataset.
    RUN_HELD = "run.held"
    #: An occurrence of a schedule did not run: the run before was not over, or a quota was used up.
    SCHEDULE_SKIPPED = "schedule.skipped"
    #: No beat fired it in time.
    SCHEDULE_MISSED = "schedule.missed"
    #: No beat fired it in time, but it was fired later.
    SCHEDULE_LATE = "schedule.late"
    #: A node has given no sign of life for `NODE_DEAD_AFTER`; a node that was down gives signs of life again.
    NODE_DOWN = "node.down"
    NODE_UP = "node.up"
    #: A version has become the latest of its project, by a deployment or a rollback.
    DEPLOY_LIVE = "deploy.live"
    #: A node has read a version and refuses it.
    DEPLOY_FAILED = "deploy.failed"
    #: An alert begins to fire; a reminder that it still fires; the alert ends.
    ALERT_FIRING = "alert.firing"
    ALERT_STILL_FIRING = "alert.still_firing"
    ALERT_RESOLVED = "alert.resolved"
    #: The platform has disabled another endpoint of the same user.
    ENDPOINT_DISABLED = "endpoint.disabled"
    #: A user tests whether calls arrive.
    TEST = "endpoint.test"


#: An endpoint receives these only if it names them, or if a rule names the endpoint. Otherwise it would receive two
#: events about one failed crawl.
ALERTS = frozenset({EventType.ALERT_FIRING, EventType.ALERT_STILL_FIRING, EventType.ALERT_RESOLVED})

#: Events that an endpoint receives only if it names them.
ON_REQUEST = ALERTS | {EventType.ITEMS_BATCH}

_TURNS = {
    Turn.STARTED: EventType.JOB_STARTED,
    Turn.PAUSED: EventType.JOB_PAUSED,
    Turn.RETRIED: EventType.JOB_RETRIED,
    Turn.DATASET_CHANGED: EventType.DATASET_CHANGED,
    Turn.RUN_HELD: EventType.RUN_HELD,
}
_ENDS = {
    JobStatus.FINISHED: EventType.JOB_FINISHED,
    JobStatus.PARTIAL: EventType.JOB_PARTIAL,
    JobStatus.ERROR: EventType.JOB_FAILED,
    JobStatus.CANCELLED: EventType.JOB_CANCELLED,
}


_OF_OCCURRENCES = {
    LedgerKind.FIRED: EventType.SCHEDULE_LATE,
    LedgerKind.SKIPPED: EventType.SCHEDULE_SKIPPED,
    LedgerKind.MISSED: EventType.SCHEDULE_MISSED,
}


class Subject(NamedTuple):
    """The facts about an event by which endpoints choose."""

    user_id: str
    project: str | None = None
    spider: str | None = None
    site: str | None = None
    dataset: str | None = None
    schedule_id: str | None = None
    tags: tuple[str, ...] = ()
    job_id: str | None = None
    traceparent: str | None = None


class SignalEvent(NamedTuple):
    """One event. Its id is made from its facts, so the same facts give the same id."""

    id: str
    type: EventType
    at: datetime
    #: The user whose endpoints receive it, in addition to endpoints for all users; empty for events of the platform.
    user_id: str
    data: dict[str, Any]
    #: `None`: the filters of endpoints do not apply.
    subject: Subject | None = None

    @property
    def message_id(self) -> str:
        return f"msg_{self.id}"

    @property
    def body(self) -> str:
        return orjson.dumps({"type": self.type.value, "timestamp": to_iso(self.at), "data": self.data}).decode()


def event_id(*facts: object) -> str:
    """32 hexadecimal digits."""
    return uuid.uuid5(_NAMESPACE, " ".join(map(str, facts))).hex


def events_of(job: Job, public_url: str) -> Iterator[SignalEvent]:
    """The events of the job's signals. `public_url` is the address of the console for users."""
    for seq, signal in enumerate(job.signals, job.signalled + 1):
        kind = _ENDS.get(job.status) if signal.turn is Turn.ENDED else _TURNS.get(signal.turn)
        if kind is not None:
            identity = event_id(job.id, signal.turn, signal.attempt, to_iso(signal.at))
            data = _job_data(job, signal, seq) | {"page_url": public_url + _page(job, signal)}
            yield SignalEvent(identity, kind, signal.at, job.user_id, data, subject_of(job))


def subject_of(job: Job) -> Subject:
    spec = job.spec
    return Subject(
        user_id=job.user_id,
        project=spec.project,
        spider=spec.spider,
        site=spec.site,
        dataset=spec.dataset.name if spec.dataset else None,
        schedule_id=job.schedule_id,
        tags=tuple(job.tags),
        job_id=job.id,
        traceparent=job.traceparent,
    )


def subject_of_document(job: Document) -> Subject:
    """Like `subject_of`, for a stored job of which only some fields were read. Raises `KeyError`, `TypeError`."""
    spec = job["spec"]
    return Subject(
        user_id=job["user_id"],
        project=spec.get("project"),
        spider=spec["spider"],
        site=spec.get("site"),
        dataset=(spec.get("dataset") or {}).get("name"),
        schedule_id=job.get("schedule_id"),
        tags=tuple(job.get("tags", ())),
        job_id=job["_id"],
    )


def subject_of_schedule(schedule: Schedule) -> Subject:
    crawl = schedule.crawl
    spec = crawl.spec if crawl else None
    return Subject(
        user_id=schedule.user_id,
        project=spec.project if spec else None,
        spider=spec.spider if spec else None,
        site=schedule.site,
        dataset=spec.dataset.name if spec and spec.dataset else None,
        schedule_id=schedule.id,
        tags=crawl.tags if crawl else (),
    )


def event_of_occurrence(entry: LedgerEntry, schedule: Schedule, public_url: str) -> SignalEvent:
    """The event of an occurrence that did not run, or ran late."""
    kind, ran = _OF_OCCURRENCES[entry.kind], entry.kind is LedgerKind.FIRED
    subject = subject_of_schedule(schedule)
    known = {
        "schedule_id": schedule.id,
        "user_id": schedule.user_id,
        "name": schedule.name,
        "project": subject.project,
        "spider": subject.spider,
        "site": schedule.site,
        "due": to_iso(entry.due),
        "more": entry.missed or None,
        "late_by_seconds": round(entry.late_by_seconds, 3) if ran else None,
        "job_id": entry.job_id if ran else None,
        "message": entry.reason,
        "page_url": f"{public_url}/console/schedules/{schedule.id}",
    }
    data = {name: value for name, value in known.items() if value is not None}
    return SignalEvent(event_id(entry.job_id, entry.kind), kind, entry.recorded_at, schedule.user_id, data, subject)


def event_of_items(job: RunningCount, at: datetime, public_url: str) -> SignalEvent:
    subject = subject_of_document(job.facts)
    known = {
        "job_id": job.id,
        "user_id": subject.user_id,
        "project": subject.project,
        "version": job.facts["spec"].get("version"),
        "spider": subject.spider,
        "site": subject.site,
        "dataset": subject.dataset,
        "schedule_id": subject.schedule_id,
        "tags": list(subject.tags) or None,
        "attempt": job.attempt,
        "items_count": job.items,
        "items_url": f"{public_url}/jobs/{job.id}/items?attempt={job.attempt}",
        "page_url": f"{public_url}/console/jobs/{job.id}",
    }
    data = {name: value for name, value in known.items() if value is not None}
    identity = event_id(EventType.ITEMS_BATCH, job.id, job.attempt, job.items)
    return SignalEvent(identity, EventType.ITEMS_BATCH, at, subject.user_id, data, subject)


def event_of_node(node: str, since: datetime, at: datetime, public_url: str, *, is_up: bool) -> SignalEvent:
    """The event of a node that has been down `since` its last sign of life, or is up again."""
    kind = EventType.NODE_UP if is_up else EventType.NODE_DOWN
    gone = f"{since:%Y-%m-%d %H:%M:%S} UTC"
    message = f"it was down since {gone}, and is up again" if is_up else f"it has given no sign of life since {gone}"
    data = {"node": node, "since": to_iso(since), "message": message, "page_url": f"{public_url}/console/nodes"}
    return SignalEvent(event_id("node", node, kind, to_iso(since)), kind, at, "", data)


def event_of_live(versions: ProjectVersions, public_url: str) -> SignalEvent:
    """The event of a project's new latest version, at the time of the project's last change."""
    egg = Egg(versions.project, versions.history[-1])
    facts = (EventType.DEPLOY_LIVE, *egg, versions.rev)
    return _event_of_project(facts, egg, versions.changed_at or utc_now(), public_url, {})


def event_of_refusal(refusal: EggRefusal, at: datetime, public_url: str) -> SignalEvent:
    data = {"node": refusal.node, "reason": refusal.reason, "message": refusal.message}
    facts = (EventType.DEPLOY_FAILED, *refusal.egg, refusal.sha256, refusal.reason)
    return _event_of_project(facts, refusal.egg, at, public_url, data)


def _event_of_project(
    facts: tuple[EventType, *tuple[object, ...]], egg: Egg, at: datetime, public_url: str, data: dict[str, Any]
) -> SignalEvent:
    known = {"project": egg.project, "version": egg.version, **{name: one for name, one in data.items() if one}}
    known["page_url"] = f"{public_url}/console/projects/{quote(egg.project)}"
    return SignalEvent(event_id(*facts), facts[0], at, "", known, Subject("", egg.project))


def _job_data(job: Job, signal: JobSignal, seq: int) -> dict[str, Any]:
    is_end = signal.turn is Turn.ENDED
    counts = {"completed_pages", "items_count", "errors_count"}
    known = {
        "job_id": job.id,
        "seq": seq,
        "user_id": job.user_id,
        "project": job.spec.project,
        "version": job.spec.version,
        "spider": job.spec.spider,
        "start_url": next(iter(job.spec.start_urls), "")[:MAX_URL] or None,
        "site": job.spec.site,
        "dataset": job.spec.dataset.name if job.spec.dataset else None,
        "schedule_id": job.schedule_id,
        "tags": job.tags or None,
        "status": job.status.value if is_end else signal.turn.value,
        "attempt": signal.attempt,
        "reason": signal.reason,
        "message": signal.message,
        "started_at": to_iso(job.started_at) if job.started_at else None,
        "finished_at": to_iso(job.finished_at) if is_end and job.finished_at else None,
        "duration_seconds": _seconds(job) if is_end else None,
        **(job.progress.model_dump(include=counts) if is_end and job.progress else {}),
        **(signal.counts or {}),
    }
    return {name: value for name, value in known.items() if value is not None}


def _page(job: Job, signal: JobSignal) -> str:
    """The console's page about the event."""
    if job.spec.dataset is not None and signal.turn in {Turn.DATASET_CHANGED, Turn.RUN_HELD}:
        return f"/console/datasets/{job.spec.dataset.name}/runs/{job.id}?{urlencode({'owner': job.user_id})}"
    return f"/console/jobs/{job.id}"


def _seconds(job: Job) -> float | None:
    if job.started_at is None or job.finished_at is None:
        return None
    return round(max(0.0, (job.finished_at - job.started_at).total_seconds()), 3)
