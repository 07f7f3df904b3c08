"""The job: its place among those that wait, the slot that it is the run of, its states, and its name as a run."""

from __future__ import annotations

import re
import uuid
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import ExitReport, Progress
from gateway.errors import RunNotFoundError
from gateway.nodes.node import browser_resource, node_resource, user_resource

#: A point of priority is worth as much as having waited for so much longer.
POINT = timedelta(minutes=1)
_BROWSER, _PLAIN = "browser", "plain"
#: Comes after every character of a quoted text.
_LAST = "\x7f"


class Requirements(NamedTuple):
    """What a job needs of a node besides a slot."""

    project: str
    #: `None` is any.
    version: str | None = None
    render: bool = False

    def __str__(self) -> str:
        parts = _BROWSER if self.render else _PLAIN, quote(self.project, safe=""), quote(self.version or "", safe="")
        return "/".join(parts)

    @property
    def end(self) -> str:
        """Above the names of all partitions that need this, and below those of all that follow."""
        return f"{self}/{_LAST}"


class Partition(NamedTuple):
    """The jobs of one user that need the same: where there is room for one of them there is for any."""

    requirements: Requirements
    user_id: str

    def __str__(self) -> str:
        return f"{self.requirements}/{quote(self.user_id, safe='')}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The partition of that name. Raises `ValueError` for what is none."""
        kind, project, version, user_id = text.split("/")
        return cls(Requirements(unquote(project), unquote(version) or None, kind == _BROWSER), unquote(user_id))


def rank(due: datetime, priority: int) -> datetime:
    """Who has the lowest goes first. All age alike, a second each second, so that who is before whom never changes,
    and is known when a job is made: Jackson's urgency numbers (Naval Research Logistics Quarterly 9, 1962).
    """
    return due - priority * POINT


# --- the slot of a schedule that a job is the run of. Who fires it, and how often it is tried, changes nothing.
class Decision(StrEnum):
    """What becomes of a slot. Decided once, by whoever inserts its document first; all others follow."""

    RUN = "run"
    #: The run before it was not over yet.
    SKIP = "skip"
    #: Nobody was there when it was due, and the schedule does not make up for that.
    MISS = "miss"
    #: The schedule does not have it any more: its job is being taken back, and can never run.
    VOID = "void"


class Occurrence(BaseModel):
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


def occurrence_id(schedule_id: str, at: datetime) -> str:
    """The id of the one job that this slot can have: 32 hexadecimal digits."""
    return uuid.uuid5(uuid.UUID(hex=schedule_id), str(int(at.timestamp() * 1000))).hex


# --- the job itself: its states, and how it moves between them
class JobStatus(StrEnum):
    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    PARTIAL = "partial"
    ERROR = "error"
    CANCELLED = "cancelled"


#: A job in one of these will never change again.
FINAL_STATUSES = frozenset({JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED})
#: Results worth answering a repeated request with.
GOOD_STATUSES = frozenset({JobStatus.FINISHED, JobStatus.PARTIAL})
LIVE_STATUSES = frozenset(JobStatus) - FINAL_STATUSES
#: What may follow what. Every compare-and-set of a status is made from it, by `Step`.
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.SCHEDULED: frozenset({JobStatus.PENDING, JobStatus.CANCELLED}),
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.CANCELLED, JobStatus.ERROR}),
    # back to pending: a failed attempt is followed by a new attempt of the same job
    JobStatus.RUNNING: frozenset({JobStatus.PENDING}) | FINAL_STATUSES,
    **{status: frozenset[JobStatus]() for status in FINAL_STATUSES},
}


class Step(NamedTuple):
    """From one status to the next, in MongoDB's words."""

    query: dict[str, Any]
    change: dict[str, Any]

    @classmethod
    def of(cls, before: JobStatus, after: JobStatus) -> Self:
        """Raises `ValueError` where that may not follow."""
        if after not in TRANSITIONS[before]:
            raise ValueError(f"no job that is {before} becomes {after}")
        return cls({"status": before}, {"status": after})


PROMOTED = Step.of(JobStatus.SCHEDULED, JobStatus.PENDING)
ACCEPTED = Step.of(JobStatus.PENDING, JobStatus.RUNNING)
RETRIED = Step.of(JobStatus.RUNNING, JobStatus.PENDING)


class WaitingReason(StrEnum):
    """Why a pending job has no slot."""

    CAPACITY = "capacity"
    #: Another run of its site holds the site's lease.
    SITE_BUSY = "site_busy"
    #: The run of its schedule before it is not over.
    PREVIOUS_RUN = "previous_run"
    USER_QUOTA = "user_quota"
    NO_NODE = "no_node"
    NO_SUCH_PROJECT = "no_such_project"
    DISK_FULL = "disk_full"
    BACKOFF = "backoff"


class Assignment(BaseModel):
    """Which node the coming attempt goes to, from the decision until the node's answer is known. An attempt whose
    answer was lost goes to the same node again: only there is it impossible to launch it twice.
    """

    model_config = ConfigDict(extra="forbid")

    attempt: int
    node: str
    #: Names the worker's decision. Whoever takes the assignment over gives it a new token, so that the first worker
    #: can no longer undo it.
    token: str
    #: The node must not start the attempt later than this.
    until: datetime
    #: Which of the machines that ever had the node's name is meant; absent if it is not known.
    instance: str | None = None
    #: The node had failed before, and this attempt shows whether it is well again.
    is_trial: bool | None = None


class Attempt(BaseModel):
    """One try at running the job, with its own record."""

    model_config = ConfigDict(extra="forbid")

    attempt: int
    node: str
    #: As its assignment's.
    instance: str | None = None
    is_trial: bool | None = None
    dispatched_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    #: The facts, as the node reported them; present before anything is decided.
    exit: ExitReport | None = None
    #: Decided from the facts.
    status: JobStatus | None = None
    message: str | None = None
    #: Byte offset one past the attempt's last log byte; set with the exit.
    log_end: int | None = None


class CrawlOrder(BaseModel):
    """What somebody wants crawled, without who asks and when it runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    spec: CrawlSpec
    priority: int = 0
    tags: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    max_retries: int = 3

    def with_spec(self, spec: CrawlSpec) -> Self:
        return self.model_copy(update={"spec": spec})

    def job_fields(self) -> dict[str, Any]:
        tags, webhooks = list(self.tags), list(self.webhooks)
        return {**dict(self), "tags": tags, "webhooks": webhooks, "render": self.spec.renders or None}


class Job(BaseModel):
    """One job document. Field names are those in MongoDB (but `id`, which is `_id` there)."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    id: str = Field(alias="_id")
    user_id: str
    spec: CrawlSpec
    status: JobStatus = JobStatus.PENDING
    #: Identity of the request (see `dedupe.py`).
    fingerprint: str
    #: The fingerprint while the job is not final and was not overtaken; unique.
    live_key: str | None = None
    #: `<user_id>:<Idempotency-Key>`; unique.
    idempotency_key: str | None = None
    #: It drives a browser, so it needs one of a node's render slots as well; true or absent.
    render: bool | None = None
    #: The schedule that it is a run of, and the slot; without a slot it was asked for by hand.
    schedule_id: str | None = None
    slot: Occurrence | None = None
    #: The slot's job waits for its schedule to be advanced; what then becomes of it. Never there once that is done.
    held: Decision | None = None
    #: False until the schedule's ledger has the slot.
    noted: bool | None = None
    #: For runs of a site or a target.
    trigger: Trigger | None = None
    target: TargetRun | None = None
    #: Of all jobs with the same text here only one runs at a time (`site:<name>`, `schedule:<id>`).
    exclusive: str | None = None
    #: Another one holds that lease: not looked at before it is free.
    blocked: bool | None = None
    priority: int = 0
    tags: list[str] = Field(default_factory=list)
    webhooks: list[str] = Field(default_factory=list)
    #: Those that have answered.
    webhooks_delivered: list[str] = Field(default_factory=list)
    #: When the others are to be called (again); absent before the job's end and when there is nothing left to do.
    webhooks_due: datetime | None = None
    webhook_failures: int = 0
    #: Why those failed that were called last and did not answer.
    webhook_message: str | None = None
    max_retries: int = 3
    created_at: datetime
    updated_at: datetime
    #: Pending jobs are not looked at before this (back-off).
    not_before: datetime
    waiting_reason: WaitingReason | None = None
    assignment: Assignment | None = None
    #: When somebody must look at the job again, if nobody has by then: its exit is recorded and not decided upon, its
    #: end has consequences that are not carried out, its node has not answered, its back-off is over, or it waits and
    #: was cancelled.
    attend_at: datetime | None = None
    #: Number of the newest attempt that was ever assigned; 0 before the first. A number is assigned at most once.
    attempt: int = 0
    #: Nodes where its last attempts failed, the latest last: others are tried first.
    avoid: list[str] = Field(default_factory=list)
    #: By number as a string: MongoDB paths can then name one (`attempts.2.exit`).
    attempts: dict[str, Attempt] = Field(default_factory=dict)
    #: Attempts that ran and failed; compared with `max_retries`.
    failures: int = 0
    #: Dispatches that failed in a row; drives the back-off and, in the end, gives up.
    dispatch_failures: int = 0
    progress: Progress | None = None
    cancel_requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    message: str | None = None
    #: When its time was over: what there was of it before is gone, or about to be.
    logs_removed_at: datetime | None = None
    items_removed_at: datetime | None = None
    #: False from the outcome until every consequence of it has been carried out.
    settled: bool | None = None
    #: Out of retries: a dead letter.
    dead: bool = False
    #: The job that this one runs again.
    retry_of: str | None = None
    correlation_id: str | None = None

    @classmethod
    def new(cls, user_id: str, crawl: CrawlOrder, identity: str, now: datetime, **origin: Any) -> Self:
        """The only place where a job is made. `identity` is its fingerprint. `origin` is what it has from where it
        comes: from a request, a schedule, a site or a job before it.
        """
        made = {"id": new_job_id(), "user_id": user_id, "fingerprint": identity}
        times = {"created_at": now, "updated_at": now, "not_before": now}
        return cls(**{**made, **times, **crawl.job_fields(), **origin})

    @property
    def order(self) -> CrawlOrder:
        tags, webhooks = tuple(self.tags), tuple(self.webhooks)
        return CrawlOrder(
            spec=self.spec, priority=self.priority, tags=tags, webhooks=webhooks, max_retries=self.max_retries
        )

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_STATUSES

    @property
    def current(self) -> Attempt | None:
        """The attempt that counts: the newest one that a node has accepted."""
        return self.attempts[max(self.attempts, key=int)] if self.attempts else None

    def to_document(self) -> dict[str, Any]:
        """As stored: absent rather than null, so that sparse and partial indexes see what is there."""
        document = {**self.model_dump(by_alias=True, exclude_none=True), **self.queue_place()}
        if self.status is JobStatus.PENDING and self.blocked:
            del document["lane"]
        elif self.status is JobStatus.PENDING and self.not_before > self.created_at:
            del document["lane"]
            document["attend_at"] = self.not_before
        elif self.status is JobStatus.SCHEDULED and self.held is None:
            document["attend_at"] = self.not_before
        return document

    def resources(self, node: str) -> list[str]:
        """What an attempt on this node occupies: see `gateway/nodes/holds.py`."""
        browser = [browser_resource(node)] if self.render else []
        exclusive = [self.exclusive] if self.exclusive else []
        return [node_resource(node), *browser, user_resource(self.user_id), *exclusive]

    @property
    def partition(self) -> Partition:
        return Partition(Requirements(self.spec.project, self.spec.version, bool(self.render)), self.user_id)

    def queue_place(self) -> dict[str, Any]:
        """The job's place among those that wait. A pending job waits for a slot exactly while it has a partition."""
        return {"lane": str(self.partition), "rank": rank(max(self.created_at, self.not_before), self.priority)}


def new_job_id() -> str:
    """32 hexadecimal digits."""
    return uuid.uuid4().hex


# --- the run model: the same facts as a job's, under the names that runs of sites go by
class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"


RUN_STATUSES: dict[JobStatus, RunStatus] = {
    JobStatus.SCHEDULED: RunStatus.QUEUED,
    JobStatus.PENDING: RunStatus.QUEUED,
    JobStatus.RUNNING: RunStatus.RUNNING,
    JobStatus.FINISHED: RunStatus.SUCCEEDED,
    JobStatus.PARTIAL: RunStatus.PARTIAL,
    JobStatus.ERROR: RunStatus.FAILED,
    JobStatus.CANCELLED: RunStatus.FAILED,
}
#: What a run's id begins with says who asked for it.
PREFIXES: dict[Trigger, str] = {Trigger.MANUAL: "manual_", Trigger.SCHEDULED: "sched_"}
_RUN_ID = re.compile(r"(manual_|sched_)([0-9a-f]{32})")


def run_id_of(job: Job) -> str | None:
    """The job's id behind its prefix, not a second identity; `None` for a job that is no run of a site."""
    return None if job.trigger is None else PREFIXES[job.trigger] + job.id


def job_id_of(run_id: str) -> str:
    """Raises `RunNotFoundError` for what cannot be the id of a run."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        raise RunNotFoundError(run_id)
    return match[2]
