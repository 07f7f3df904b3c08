"""What a job is, which states it can be in, and how it moves between them."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.fetch_options import FetchOptions
from gateway.domain.lane import Lane, Need, rank
from gateway.domain.node_files import ExitReport, Progress
from gateway.domain.slot import Slot, SlotFate, TargetRun, Trigger

#: The project that has no egg: `crawler/`, `default` in scrapy.cfg.
DEFAULT_PROJECT = "default"


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

TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.SCHEDULED: frozenset({JobStatus.PENDING, JobStatus.CANCELLED}),
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.CANCELLED, JobStatus.ERROR}),
    # back to pending: a failed attempt is followed by a new attempt of the same job
    JobStatus.RUNNING: frozenset({JobStatus.PENDING}) | FINAL_STATUSES,
    **{status: frozenset[JobStatus]() for status in FINAL_STATUSES},
}


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


class CrawlSpec(BaseModel):
    """The work itself: everything that changes what a crawl fetches or yields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str = DEFAULT_PROJECT
    #: Of the project's egg: the one that is run, by every attempt. `None` for our own project.
    version: str | None = None
    spider: str
    start_urls: tuple[str, ...]
    #: 0 is the start URLs alone; `None` leaves it to the spider.
    depth: int | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    max_pages: int | None = None
    max_items: int | None = None
    #: Seconds a single attempt may take.
    timeout: int = 3600
    ignore_cache: bool = False
    fetch: FetchOptions | None = None
    #: Named by a run of a site only: whose rate limit holds, together with all other crawls of the site.
    site: str | None = None
    site_rate_limit: str | None = None

    def shown(self) -> Self:
        """As anybody may see it: without what is secret of `fetch`."""
        return self.model_copy(update={"fetch": self.fetch.masked()}) if self.fetch else self


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


class Job(BaseModel):
    """One job document. Field names are those in MongoDB (but `id`, which is `_id` there)."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    id: str = Field(alias="_id")
    user_id: str
    spec: CrawlSpec
    status: JobStatus = JobStatus.PENDING
    #: Identity of the request (see `fingerprint.py`).
    fingerprint: str
    #: The fingerprint while the job is not final and was not overtaken; unique.
    live_key: str | None = None
    #: `<user_id>:<Idempotency-Key>`; unique.
    idempotency_key: str | None = None
    #: It drives a browser, so it needs one of a node's render slots as well; true or absent.
    render: bool | None = None
    #: The schedule that it is a run of, and the slot; without a slot it was asked for by hand.
    schedule_id: str | None = None
    slot: Slot | None = None
    #: The slot's job waits for its schedule to be advanced; what then becomes of it. Never there once that is done.
    held: SlotFate | None = None
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
        """What an attempt on this node occupies: see `gateway/storage/holds.py`."""
        browser = [browser_resource(node)] if self.render else []
        exclusive = [self.exclusive] if self.exclusive else []
        return [node_resource(node), *browser, user_resource(self.user_id), *exclusive]

    @property
    def in_lane(self) -> Lane:
        return Lane(Need(self.spec.project, self.spec.version, bool(self.render)), self.user_id)

    def queue_place(self) -> dict[str, Any]:
        """The job's place among those that wait. A pending job waits for a slot exactly while it has a lane."""
        return {"lane": str(self.in_lane), "rank": rank(max(self.created_at, self.not_before), self.priority)}


def node_resource(node: str) -> str:
    """A node's slots."""
    return f"node:{node}"


def browser_resource(node: str) -> str:
    """Those of its slots that may drive a browser."""
    return f"browser:{node}"


def user_resource(user_id: str) -> str:
    """The crawls that a user has running."""
    return f"user:{user_id}"


def new_job_id() -> str:
    """32 hexadecimal digits."""
    return uuid.uuid4().hex
