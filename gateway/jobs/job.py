"""The job: its place in the queue, the schedule's occurrence that it runs, its states, and its id as a site's run."""

from __future__ import annotations

import re
import secrets
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import quote, unquote

from pydantic import BaseModel, BeforeValidator, Field

from gateway.contract.crawl import (
    BUDGET_PROTOCOL,
    DEFAULT_PROJECT,
    SETTINGS_PROTOCOL,
    SPEC_FIELDS,
    CrawlSpec,
    Number,
    fields_of,
    numbers_of,
    protocol_of,
)
from gateway.contract.outbox import StopReason
from gateway.contract.reasons import Reason, reason_of
from gateway.contract.records import ExitReport, Progress
from gateway.errors import InvalidRequestError, RunNotFoundError
from gateway.nodes.node import browser_resource, node_resource, user_resource

#: One point of priority counts as much as this waiting time.
POINT = timedelta(minutes=1)
#: Why a failed attempt may use up no retry: its node was at fault (`node`), or disappeared (`lost`).
Spared = Literal["node", "lost"]
#: How many failed attempts of a job may use up no retry. `node`: the node did not start the attempt or was shut down;
#: the limit ends a job that no node can start. `lost`: the attempt was lost with its node; this limit is lower,
#: because the crawl itself may have brought the node down.
MOST_SPARED: Mapping[Spared, int] = {"node": 8, "lost": 2}
_BROWSER, _PLAIN = "browser", "plain"
#: Sorts after every character of a URL-quoted text.
_LAST = "\x7f"
#: Encloses the protocol in a partition's name, before the user's id. Its quoted form sorts before all users' ids. An
#: older release, which knows no protocols, takes `!2!ada` for a user's id, and still finds and starts the job.
_MARK = "!"


class Requirements(NamedTuple):
    """What a job needs of a node in addition to a slot."""

    project: str
    #: `None`: any version.
    version: str | None = None
    render: bool = False
    #: The protocol that nodes must speak to run it (`outbox.PROTOCOLS`).
    protocol: int = 1

    def __str__(self) -> str:
        """The prefix of the names of all partitions with these requirements."""
        kind, version = _BROWSER if self.render else _PLAIN, quote(self.version or "", safe="")
        mark = "" if self.protocol == 1 else quote(f"{_MARK}{self.protocol}{_MARK}")
        return f"{kind}/{quote(self.project, safe='')}/{version}/{mark}"

    @property
    def end(self) -> str:
        """A text that sorts after the names of all partitions with these requirements, and before the next ones. The
        names of newer protocols come before those of protocol 1.
        """
        return f"{self}{_LAST}"

    def with_configured(self, projects: Collection[str]) -> Self:
        """These requirements, with a newer protocol if their project is in `projects`: the lower-case names of the
        projects that give their crawls environment variables or settings.
        """
        if self.protocol >= SETTINGS_PROTOCOL or self.project.lower() not in projects:
            return self
        return self._replace(protocol=SETTINGS_PROTOCOL)


class Partition(NamedTuple):
    """The jobs of one user that have the same requirements: a node that can run one of them can run any of them."""

    requirements: Requirements
    user_id: str

    def __str__(self) -> str:
        return f"{self.requirements}{quote(self.user_id, safe='')}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The partition with this name. Raises `ValueError` if `text` is not the name of a partition."""
        kind, project, version, last = map(unquote, text.split("/"))
        _, protocol, user_id = last.split(_MARK, 2) if last.startswith(_MARK) else ("", 1, last)
        found = cls(Requirements(project, version or None, kind == _BROWSER, int(protocol)), user_id)
        if str(found) != text:
            # a search that continues after `str(found)` must not find the same text again
            raise ValueError("it is not in its normal form")
        return found


def rank(due: datetime, priority: int) -> datetime:
    """A job's place in the queue: the lowest rank goes first. Waiting raises all jobs equally, so a job's rank never
    changes. These are Jackson's urgency numbers (Naval Research Logistics Quarterly 9, 1962).
    """
    return due - priority * POINT


# --- the occurrence of a schedule that a job runs. Several beats may fire it, several times: the result is the same.
class Decision(StrEnum):
    """What happens to an occurrence. The beat that inserts its job first decides; other beats follow this
    decision.
    """

    RUN = "run"
    #: The previous run was not over yet.
    SKIP = "skip"
    #: No beat fired it in time, and the schedule does not catch up.
    MISS = "miss"
    #: The schedule no longer has this occurrence. Its job is being removed and can never run.
    VOID = "void"


class Occurrence(BaseModel, extra="forbid", frozen=True):
    """An occurrence of a schedule. It is stored in its job before the schedule is advanced, so that every beat
    advances the schedule in the same way.
    """

    #: Revision of the schedule that the job was made from.
    rev: int
    #: Nominal time. The job's id is made from it and the schedule's id.
    at: datetime
    #: `at` plus jitter.
    due: datetime
    #: When a beat found it due.
    fired_at: datetime
    #: How many later occurrences were also due when it was fired. It replaces them.
    missed: int = 0
    #: Why it does not run; absent if it runs.
    reason: str | None = None
    #: `at` and `due` of the schedule's next occurrence; `None` if the schedule ends.
    next_at: datetime | None = None
    next_due: datetime | None = None


class Trigger(StrEnum):
    """Who asked for a run: a person, or a schedule at its time."""

    MANUAL = "manual"
    SCHEDULED = "scheduled"


class TargetRun(BaseModel, extra="forbid", frozen=True):
    """What the message about a target's run contains besides the job's id and `attempt_count`."""

    target_id: int
    website_id: int
    website_name: str
    search_url: str
    requires_playwright: bool
    pagination_type: str
    keywords_used: str
    location_used: str

    def to_message(self, attempt_count: int) -> dict[str, Any]:
        """The message as a dict. `attempt_count` is 0 for the first attempt."""
        return {**self.model_dump(), "attempt_count": attempt_count}


def occurrence_id(schedule_id: str, at: datetime) -> str:
    """The id of the occurrence's job: 32 hexadecimal digits. It is always the same, so there is at most one job."""
    return uuid.uuid5(uuid.UUID(hex=schedule_id), str(int(at.timestamp() * 1000))).hex


# --- the job itself: its states, and how it moves between them
class JobStatus(StrEnum):
    """The state of a job."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    #: It waits until somebody resumes it.
    PAUSED = "paused"
    FINISHED = "finished"
    PARTIAL = "partial"
    ERROR = "error"
    CANCELLED = "cancelled"


#: A job in one of these states never leaves it.
FINAL_STATUSES = frozenset({JobStatus.FINISHED, JobStatus.PARTIAL, JobStatus.ERROR, JobStatus.CANCELLED})
#: A job in one of these states may answer a repeated request.
GOOD_STATUSES = frozenset({JobStatus.FINISHED, JobStatus.PARTIAL})
LIVE_STATUSES = frozenset(JobStatus) - FINAL_STATUSES
#: What every success rate is, in words and as `success_rate` computes it.
SUCCESS_RULE = "The share of finished runs among those that ended, without cancelled ones. Partial is no success."


def success_rate(ended: Mapping[JobStatus, int]) -> float | None:
    """By `SUCCESS_RULE`, from 0 to 1; `None` if nothing has ended, or all was cancelled. `ended`: how many ended with
    each status.
    """
    judged = sum(ended.get(status, 0) for status in FINAL_STATUSES - {JobStatus.CANCELLED})
    return ended.get(JobStatus.FINISHED, 0) / judged if judged else None


#: Which status may follow which. `Step` makes every compare-and-set of a status from it.
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.SCHEDULED: frozenset({JobStatus.PENDING, JobStatus.CANCELLED}),
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.CANCELLED, JobStatus.ERROR}),
    # back to pending: a failed attempt is followed by a new attempt of the same job
    JobStatus.RUNNING: frozenset({JobStatus.PENDING, JobStatus.PAUSED}) | FINAL_STATUSES,
    # back to running: its attempt was given up as lost, and then its end became known after all
    JobStatus.PAUSED: frozenset({JobStatus.PENDING, JobStatus.RUNNING, JobStatus.CANCELLED}),
    **{status: frozenset[JobStatus]() for status in FINAL_STATUSES},
}


class StatusStep(NamedTuple):
    """One change of status, as a MongoDB query and the fields to set."""

    query: dict[str, Any]
    change: dict[str, Any]

    @classmethod
    def of(cls, before: JobStatus, after: JobStatus) -> Self:
        """Raises `ValueError` if `after` may not follow `before`."""
        if after not in TRANSITIONS[before]:
            raise ValueError(f"a job cannot go from {before} to {after}")
        return cls({"status": before}, {"status": after})


PROMOTED = StatusStep.of(JobStatus.SCHEDULED, JobStatus.PENDING)
ACCEPTED = StatusStep.of(JobStatus.PENDING, JobStatus.RUNNING)
RETRIED = StatusStep.of(JobStatus.RUNNING, JobStatus.PENDING)
RESUMED = StatusStep.of(JobStatus.PAUSED, JobStatus.PENDING)


class WaitingReason(StrEnum):
    """Why a pending job has no slot."""

    CAPACITY = "capacity"
    #: Another run of its site holds the site's lease.
    SITE_BUSY = "site_busy"
    #: The previous run of its schedule is not over.
    PREVIOUS_RUN = "previous_run"
    USER_QUOTA = "user_quota"
    NO_NODE = "no_node"
    NO_SUCH_PROJECT = "no_such_project"
    DISK_FULL = "disk_full"
    BACKOFF = "backoff"


class Assignment(BaseModel, extra="forbid"):
    """Which node the next attempt goes to. It exists from the worker's decision until the node's answer is known. If
    the answer is lost, the attempt is sent to the same node again: this node knows whether it has started the attempt
    already, and other nodes do not.
    """

    attempt: int
    node: str
    #: Identifies the worker's decision. A worker that takes over the assignment gives it a new token, so that the
    #: first worker can no longer undo it.
    token: str
    #: The node must not start the attempt later than this.
    until: datetime
    #: Identifies the machine, because several machines may have had the node's name; absent if unknown.
    instance: str | None = None
    #: The node is on probation: it failed before, and this attempt shows whether it works again.
    is_trial: bool | None = None


class StepKind(StrEnum):
    """The kinds of steps in a job's history, besides its attempts."""

    #: The reason why it waits has changed.
    WAITS = "waits"
    PAUSE_REQUESTED = "pause_requested"
    PAUSED = "paused"
    RESUMED = "resumed"
    CANCEL_REQUESTED = "cancel_requested"


class PastStep(BaseModel, extra="forbid"):
    """One step in a job's history."""

    at: datetime
    kind: StepKind
    #: Why the job waits, for `WAITS`.
    reason: WaitingReason | None = None
    #: The user of the API key that asked for the step; absent while there are no keys.
    by: str | None = None
    message: str | None = None


#: A reason that only a newer release knows is read as `None`.
StoredReason = Annotated[Reason | None, BeforeValidator(reason_of)]


class Attempt(BaseModel, extra="forbid"):
    """One attempt to run the job."""

    attempt: int
    node: str
    #: `instance` and `is_trial` are as in its assignment.
    instance: str | None = None
    is_trial: bool | None = None
    dispatched_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    #: The facts as the node reported them, recorded before the gateway decides on them.
    exit: ExitReport | None = None
    #: What the gateway decided from the facts.
    status: JobStatus | None = None
    #: Absent in attempts that older releases stored.
    reason: StoredReason = None
    message: str | None = None
    #: Byte offset one past the attempt's last log byte; set together with `exit`.
    log_end: int | None = None

    @property
    def spared(self) -> Spared | None:
        """Why its failure may use up no retry; `None` if it did not fail, or if its node was not at fault."""
        end = self.exit
        if end is None or self.status is JobStatus.PAUSED:
            return None
        if end.refused:
            return "node" if end.fault != "job" and end.stopped_by != "pause" else None
        if end.lost:
            # it was lost with its node, Scrapyd, or their container
            return "lost" if end.stopped_by is None else None
        was_interrupted = end.report is not None and end.report.finish_reason == "shutdown"
        return "node" if end.stopped_by == "shutdown" or (end.stopped_by is None and was_interrupted) else None


class CrawlOrder(BaseModel, extra="forbid", frozen=True):
    """What to crawl, but not who asks for it or when it runs."""

    spec: CrawlSpec
    max_retries: Annotated[
        int,
        Number(
            "Max retries",
            "How often a failed crawl is retried.",
            least=0,
            most=20,
            about="Maximum number of retries after failures; `MAX_RETRIES` by default.",
        ),
    ] = 3
    priority: Annotated[
        int,
        Number(
            "Priority",
            "Crawls with a higher priority go first, -100 to 100.",
            least=-100,
            most=100,
            about="Jobs with a higher priority go first.",
            hint="Higher goes first.",
            default=0,
        ),
    ] = 0
    tags: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()

    def with_spec(self, spec: CrawlSpec) -> Self:
        return self.model_copy(update={"spec": spec})

    def job_fields(self) -> dict[str, Any]:
        tags, webhooks = list(self.tags), list(self.webhooks)
        # `vars`, because `dict(self)` would look for a method `keys` in every base class, which takes as long as
        # making the rest of a job
        return {**vars(self), "tags": tags, "webhooks": webhooks, "render": self.spec.renders or None}


#: What budgets limit. A limit in minutes is counted in seconds.
Resource = Literal["pages", "seconds", "hosts", "bytes"]
Amounts = dict[Resource, int]
_LIMIT = Field(default=None, ge=1, le=10**15)


class KeyBudget(BaseModel, extra="forbid", frozen=True, strict=True):
    """How much the crawls of an API key may use on one day (UTC). An absent amount has no limit."""

    pages: int | None = _LIMIT
    minutes: int | None = Field(default=None, ge=1, le=10**9, description="Duration of all its crawls together.")
    hosts: int | None = Field(
        default=None, ge=1, le=10**9, description="Hosts that crawls send requests to, counted for each crawl."
    )
    bytes: int | None = Field(
        default=None, ge=1, le=10**15, description="Size of the responses as sent, before decompression."
    )

    @property
    def amounts(self) -> Amounts:
        seconds = self.minutes and self.minutes * 60
        found: dict[Resource, int | None] = {"pages": self.pages, "seconds": seconds}
        found |= {"hosts": self.hosts, "bytes": self.bytes}
        return {name: amount for name, amount in found.items() if amount is not None}


class BudgetUse(BaseModel, extra="ignore", frozen=True):
    """The budget that a job uses: see `budgets.py`."""

    key_id: str
    #: The day (UTC) of the budget; absent until something is reserved for the job.
    day: datetime | None = None


class Requester(NamedTuple):
    """Who asks for a job, and by which request."""

    user_id: str
    #: The key, if it has a budget.
    budget_key: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None

    @property
    def unique_idempotency_key(self) -> str | None:
        """The key with the user's id before it, because two users may choose the same key."""
        return f"{self.user_id}:{self.idempotency_key}" if self.idempotency_key else None

    def job_fields(self) -> dict[str, Any]:
        """The fields of a job that come from the request, except the user."""
        return {
            "idempotency_key": self.unique_idempotency_key,
            "correlation_id": self.correlation_id,
            "traceparent": self.traceparent,
            "budget": budget_of(self.budget_key),
        }


def budget_of(key_id: str | None) -> BudgetUse | None:
    """The `budget` of a new job that uses this key's budget."""
    return BudgetUse(key_id=key_id) if key_id else None


#: The fields of an order except its `spec`, and all fields of a crawl that a request may set.
ORDER_FIELDS = {name: field for name, field in fields_of(CrawlOrder).items() if name != "spec"}
ASKED_FIELDS = {name: field for name, field in {**SPEC_FIELDS, **ORDER_FIELDS}.items() if field.asked}
#: The fields that are numbers.
NUMBERS = {**numbers_of(CrawlSpec), **numbers_of(CrawlOrder)}
#: The numbers that are optional limits of a crawl.
LIMITS = {
    name: one for name, one in NUMBERS.items() if name in SPEC_FIELDS and CrawlSpec.model_fields[name].default is None
}


class JobFacts(BaseModel, populate_by_name=True):
    """The fields of a job that lists also show. Fields have the same names in MongoDB, except `id`, which
    is `_id`.
    """

    id: str = Field(alias="_id")
    user_id: str
    status: JobStatus = JobStatus.PENDING
    #: The schedule that this job is a run of, and the occurrence. A run that was asked for by hand has no occurrence.
    schedule_id: str | None = None
    slot: Occurrence | None = None
    #: Who asked for the run; absent unless it is a run of a site or a target.
    trigger: Trigger | None = None
    priority: int = 0
    tags: list[str] = Field(default_factory=list)
    created_at: datetime
    #: No worker looks at a pending job before this time (backoff).
    not_before: datetime
    waiting_reason: WaitingReason | None = None
    #: Number of the newest attempt that was assigned; 0 before the first. A number is assigned at most once.
    attempt: int = 0
    #: How many attempts were moved from the job to the collection `attempts`.
    superseded: int = 0
    progress: Progress | None = None
    cancel_requested_at: datetime | None = None
    #: Removed when the job is resumed.
    pause_requested_at: datetime | None = None
    #: When a paused job ends if nobody resumes it; absent unless it is paused.
    expires_at: datetime | None = None
    #: When an attempt first began.
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: Why it ended; while it waits for a retry, why its last attempt ended. Absent in jobs of older releases.
    reason: StoredReason = None
    message: str | None = None
    #: It is a dead letter: it has failed and has no retries left.
    dead: bool = False
    #: The job that this one runs again.
    retry_of: str | None = None

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_STATUSES


#: How many start URLs lists show.
LISTED_URLS = 10


class ListedSpec(BaseModel, frozen=True):
    """The part of a job's spec that lists show."""

    project: str = DEFAULT_PROJECT
    version: str | None = None
    spider: str
    #: The first `LISTED_URLS` of them.
    start_urls: tuple[str, ...]
    max_items: int | None = None
    site: str | None = None


class ListedJob(JobFacts):
    """A job in a list. Lists read only these fields: a spec may have 256 KiB, and an attempt a tenth of that."""

    spec: ListedSpec
    start_urls_count: int = 0
    #: The nodes of the attempts that are still in the job, by attempt number.
    nodes: dict[int, str] = Field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.nodes, default=0)

    @property
    def node(self) -> str | None:
        return self.nodes.get(self.newest)

    @property
    def attempts_count(self) -> int:
        return len(self.nodes) + self.superseded


class Turn(StrEnum):
    """What has happened to a job: the events that subscribers and webhooks are informed of."""

    STARTED = "started"
    PAUSED = "paused"
    #: Its attempt failed, and another attempt follows.
    RETRIED = "retried"
    ENDED = "ended"
    #: Its run has changed the dataset.
    DATASET_CHANGED = "dataset_changed"
    #: Its run is held: it changes the dataset only after somebody has accepted it.
    RUN_HELD = "run_held"
    #: A receiver was added after its end.
    WEBHOOK_ADDED = "webhook_added"


class JobSignal(BaseModel, extra="ignore", frozen=True):
    """One `Turn` of a job that is to be announced (`gateway/signals/announcing.py`). It is stored in the job, in the
    same write as the change itself.
    """

    turn: Turn
    at: datetime
    #: The number of its newest attempt.
    attempt: int = 0
    reason: StoredReason = None
    message: str | None = None
    #: The receiver that was added.
    url: str | None = None
    #: How many items the run has changed, and the number of its last change.
    counts: dict[str, int] | None = None


class Job(JobFacts, extra="forbid"):
    """One job document."""

    spec: CrawlSpec
    #: Identity of the request (see `dedupe.py`).
    fingerprint: str
    #: The fingerprint, while the job may answer a repeated request. Removed once the job is final, is to be
    #: cancelled, or was replaced by a fresh run. Unique.
    live_key: str | None = None
    #: `<user_id>:<Idempotency-Key>`; unique.
    idempotency_key: str | None = None
    #: Whether it uses a browser, and so also needs one of a node's render slots; true or absent.
    render: bool | None = None
    #: What happens to the job once its schedule is advanced; absent afterwards.
    held: Decision | None = None
    #: False until the schedule's ledger has an entry for the occurrence.
    noted: bool | None = None
    target: TargetRun | None = None
    #: Jobs with the same text here run one at a time (`site:<name>`, `schedule:<id>`).
    exclusive: str | None = None
    #: The budget that it uses; absent if the API key that asked for it has none.
    budget: BudgetUse | None = None
    #: Another job holds the `exclusive` resource; no worker looks at this job until the resource is free.
    blocked: bool | None = None
    webhooks: list[str] = Field(default_factory=list)
    #: The webhooks that have answered.
    webhooks_delivered: list[str] = Field(default_factory=list)
    #: Why the last call of one of the other webhooks failed.
    webhook_message: str | None = None
    #: The signals that are not announced yet, at most `queue.MOST_SIGNALS`.
    signals: list[JobSignal] = Field(default_factory=list)
    #: How many signals the job had before those.
    signalled: int = 0
    #: Since when signals wait to be announced; absent if none do.
    signals_due: datetime | None = None
    #: When its webhooks are to be called; only in jobs that an older release stored.
    webhooks_due: datetime | None = None
    max_retries: int = 3
    updated_at: datetime
    assignment: Assignment | None = None
    #: When a beat or a worker must look at the job again, at the latest. The reasons: its exit is recorded but not
    #: decided on, consequences of its end are not carried out, its node has not answered, its backoff ends, or it was
    #: cancelled while it waits.
    attend_at: datetime | None = None
    #: Nodes where its last attempts failed, the latest last. Other nodes are tried first.
    avoid: list[str] = Field(default_factory=list)
    #: The node that has the frontier of the last attempt, where the next attempt can continue; absent if that attempt
    #: ran to its end.
    prefer: str | None = None
    #: The number of the first attempt with a frontier that the next attempt may continue from. Frontiers of earlier
    #: attempts, maybe on other nodes, are out of date.
    frontier_since: int = 1
    #: The newest attempt that a node has accepted, by its number as a string, so that a MongoDB path can name it
    #: (`attempts.2.exit`). Older ones are in the collection `attempts`, unless they have not been moved there yet.
    attempts: dict[str, Attempt] = Field(default_factory=dict)
    #: When its run is to be folded into its dataset; absent without a dataset, before the job's end, and once the run
    #: is folded.
    dataset_due: datetime | None = None
    #: How often folding has failed.
    dataset_failures: int = 0
    #: Whether its run is held: its items stay until somebody has decided.
    dataset_held: bool | None = None
    #: How many attempts failed, without those that `spared` counts.
    failures: int = 0
    #: How many attempts in the collection `attempts` used up no retry, by reason, up to `MOST_SPARED`.
    spared: dict[Spared, int] = Field(default_factory=dict)
    #: How many dispatches in a row have failed. It determines the backoff; at a limit the job is given up.
    dispatch_failures: int = 0
    #: Its last steps, at most `queue.MOST_STEPS`, the oldest first.
    history: list[PastStep] = Field(default_factory=list)
    #: When a node first accepted an attempt; absent in jobs of older releases.
    dispatched_at: datetime | None = None
    #: When the retention of its logs, and of its items, ended: whatever existed then is deleted or about to be.
    logs_removed_at: datetime | None = None
    items_removed_at: datetime | None = None
    #: False from the outcome until all its consequences are carried out.
    settled: bool | None = None
    #: The marks of the documents that count it (`added_once.py`): daily sums, and groups of errors.
    summed: list[str] = Field(default_factory=list)
    #: How many groups of its errors are new, or have come back after they were resolved; absent if there are none.
    new_errors: int | None = None
    correlation_id: str | None = None
    #: The trace of the request that asked for it, in the form of the header `traceparent` (W3C Trace Context). Absent
    #: if traces are off, and if no request asked for the job.
    traceparent: str | None = None

    @classmethod
    def new(cls, user_id: str, crawl: CrawlOrder, identity: str, now: datetime, **origin: Any) -> Self:
        """The only place where a job is made. `identity` is its fingerprint. `origin` holds the fields that depend on
        where the job comes from: a request, a schedule, a site or an earlier job.
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
    def stop_reason(self) -> StopReason | None:
        """Why its attempt is to be stopped; `None` if it is not."""
        if self.cancel_requested_at is not None:
            return "cancel"
        return None if self.pause_requested_at is None else "pause"

    @property
    def needs_its_node(self) -> bool:
        """Whether the attempt's node must be asked to stop the attempt, or has not reported that it started."""
        attempt = self.current if self.status is JobStatus.RUNNING else None
        return attempt is not None and attempt.exit is None and bool(self.stop_reason or attempt.started_at is None)

    @property
    def current(self) -> Attempt | None:
        """The attempt that counts: the newest one that a node has accepted."""
        return self.attempts[max(self.attempts, key=int)] if self.attempts else None

    @property
    def newest(self) -> int:
        """The number of the current attempt; 0 before the first."""
        return max(map(int, self.attempts), default=0)

    @property
    def node(self) -> str | None:
        """The node of its newest attempt."""
        return self.current.node if self.current else None

    @property
    def attempts_count(self) -> int:
        """How many attempts it has had; right only if the job was read without its earlier attempts."""
        return len(self.attempts) + self.superseded

    @property
    def start_urls_count(self) -> int:
        return len(self.spec.start_urls)

    def require_attempt(self, number: int) -> None:
        """Raises `InvalidRequestError` if the job cannot have had the attempt with this number."""
        if not 1 <= number <= self.newest:
            most = self.newest
            raise InvalidRequestError("attempt", f"must be from 1 to {most}" if most else "there is none yet")

    def with_earlier(self, attempts: Mapping[str, Attempt]) -> Self:
        """The job with these attempts added. An attempt that the job already has stays as it is."""
        return self.model_copy(update={"attempts": {**attempts, **self.attempts}})

    @property
    def failed_attempts(self) -> int:
        """How many attempts failed, including those that cost no retry."""
        return self.failures + sum(self.spared.values())

    @property
    def retries(self) -> int:
        """How many of `max_retries` its failures have used up."""
        return self.failures - sum(spared_more(self.attempts.values(), self.spared).values())

    def to_document(self) -> dict[str, Any]:
        """The stored form. Empty fields are absent rather than null, so that sparse and partial indexes skip them."""
        document = {**self.model_dump(by_alias=True, exclude_none=True), **self.queue_place()}
        if self.status is JobStatus.PENDING and self.blocked:
            del document["lane"]
        elif self.status is JobStatus.PENDING and self.not_before > self.created_at:
            del document["lane"]
            document["attend_at"] = self.not_before
        elif self.status is JobStatus.SCHEDULED and self.held is None:
            document["attend_at"] = self.not_before
        if self.start_urls_count > LISTED_URLS:
            # for lists, which read only the first start URLs
            document["start_urls_count"] = self.start_urls_count
        return document

    def resources(self, node: str) -> list[str]:
        """The resources that an attempt on this node holds: see `gateway/nodes/holds.py`."""
        browser = [browser_resource(node)] if self.render else []
        exclusive = [self.exclusive] if self.exclusive else []
        return [node_resource(node), *browser, user_resource(self.user_id), *exclusive]

    @property
    def protocol(self) -> int:
        """The oldest protocol that a node must speak to run it."""
        return BUDGET_PROTOCOL if self.budget else protocol_of(self.spec)

    @property
    def partition(self) -> Partition:
        spec = self.spec
        needs = Requirements(spec.project, spec.version, bool(self.render), self.protocol)
        return Partition(needs, self.user_id)

    def queue_place(self) -> dict[str, Any]:
        """The job's place in the queue: its partition and rank. A pending job waits for a slot if and only if its
        document has a partition (`lane`).
        """
        return {"lane": str(self.partition), "rank": rank(max(self.created_at, self.not_before), self.priority)}


def spared_more(attempts: Iterable[Attempt], spared: Mapping[Spared, int]) -> Counter[Spared]:
    """How many of the attempts use up no retry, by reason. `spared`: how many earlier attempts have used up none."""
    found = Counter(attempt.spared for attempt in attempts)
    left = {kind: most - spared.get(kind, 0) for kind, most in MOST_SPARED.items()}
    return Counter({kind: number for kind in left if (number := min(left[kind], found[kind])) > 0})


def new_job_id() -> str:
    """32 hexadecimal digits."""
    return secrets.token_hex(16)


# --- the run model: a job's statuses and id, under the names that are used for runs of sites
class RunStatus(StrEnum):
    """The state of a run, in the words of the sites' routes."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"


RUN_STATUSES: dict[JobStatus, RunStatus] = {
    JobStatus.SCHEDULED: RunStatus.QUEUED,
    JobStatus.PENDING: RunStatus.QUEUED,
    JobStatus.RUNNING: RunStatus.RUNNING,
    # a paused job also waits, until somebody resumes it
    JobStatus.PAUSED: RunStatus.QUEUED,
    JobStatus.FINISHED: RunStatus.SUCCEEDED,
    JobStatus.PARTIAL: RunStatus.PARTIAL,
    JobStatus.ERROR: RunStatus.FAILED,
    JobStatus.CANCELLED: RunStatus.FAILED,
}
#: The prefix of a run's id says who asked for the run.
PREFIXES: dict[Trigger, str] = {Trigger.MANUAL: "manual_", Trigger.SCHEDULED: "sched_"}
_RUN_ID = re.compile(r"(manual_|sched_)([0-9a-f]{32})")


def run_id_of(job: JobFacts) -> str | None:
    """The id of the run: a prefix and the job's id. `None` for a job that is not a run of a site."""
    return None if job.trigger is None else PREFIXES[job.trigger] + job.id


def job_id_of(run_id: str) -> str:
    """The id of the run's job. Raises `RunNotFoundError` if `run_id` cannot be the id of a run."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        raise RunNotFoundError(run_id)
    return match[2]
