"""How the API shows a job: its status (`JobStatusView`), its line in a list (`JobSummary`), and all its facts
(`JobDetail`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import MOST_HOSTS, AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, FilesKept, Progress
from gateway.jobs.advice import Advice, advice
from gateway.jobs.attempts import MOST_WHOLE
from gateway.jobs.bulk import Action, BulkProgress
from gateway.jobs.job import (
    LISTED_URLS,
    Attempt,
    Job,
    JobStatus,
    ListedJob,
    TargetRun,
    Trigger,
    WaitingReason,
)
from gateway.jobs.queries import JobPoint
from gateway.nodes.node import NodeState
from gateway.web.schemas.types import Body, Cursor, JobsFilter, Open, QueryTime, Timestamp

_AS_OF = "2027-06-01T09:00:00.000Z"
_BULK = {"filter": {"spider": "seo", "status": ["error"]}, "action": "retry", "expect": 312, "as_of": _AS_OF}
_BULK_DONE = {"action": "retry", "matched": 312, "done": 312, "refused": 0}
_BULK_REPORT = {**_BULK_DONE, "as_of": None, "refusals": [], "next": None, "stopped": None}


class SlotView(BaseModel):
    """The occurrence of a schedule for which the job runs."""

    at: Timestamp = Field(
        description="The time by the schedule. A schedule has at most one occurrence for each time."
    )
    due: Timestamp = Field(description="The same time with jitter.")
    fired_at: Timestamp
    missed: int = Field(description="How many later occurrences were missed as well; this run makes up for them.")


class StandingView(BaseModel):
    """The fields of a job, or of a schedule whose id is used in place of a job's id."""

    job_id: str
    status: JobStatus
    spider: str
    version: str | None = Field(description="The version of the spider's project; null for the project `default`.")
    max_items: int | None = Field(description="The job ends after this many items.")
    attempt: int = Field(description="The number of the latest attempt; 0 before the first.")
    spider_job_id: str | None = Field(description="`<job>-<attempt>`: the attempt's name in Scrapyd.")
    node: str | None
    waiting_reason: Open[WaitingReason] | None = Field(
        description="Why the job has not started; only for pending jobs. `disk_full`: the nodes that could run it "
        "have no room. `site_busy`, `previous_run`: it waits for the end of another run."
    )
    queue_position: int | None = Field(
        description="1 goes next: the user with the fewest running crawls has the next turn. Only for pending jobs "
        "that do not wait for another run."
    )
    not_before: Timestamp | None = Field(
        description="The job does not start before this time; only for pending jobs."
    )
    next_run: Timestamp | None = Field(description="When the job will run; only for scheduled jobs.")
    schedule_id: str | None = Field(description="The schedule whose run this job is.")
    slot: SlotView | None = Field(description="The schedule's occurrence; null if a person asked for the run.")
    site: str | None = Field(description="The site whose run this job is.")
    trigger: Trigger | None = Field(description="For a run of a site: whether a person or its schedule asked for it.")
    requested_pages: int
    completed_pages: int
    items_count: int
    errors_count: int
    pages_per_s: float
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    cancel_requested_at: Timestamp | None
    pause_requested_at: Timestamp | None = Field(description="Null again once the job is resumed.")
    expires_at: Timestamp | None = Field(description="When a paused job is cancelled if nobody resumes it.")
    reason: Open[Reason] | None = Field(
        description="Why it ended so, why its last attempt did, or why no node could take its egg: a code. "
        "docs/troubleshooting.md explains each. Null while nothing has ended, and for jobs of releases that had none."
    )
    message: str | None = Field(description="The same in words; they may change from release to release.")
    dead: bool = Field(description="Whether it is a dead letter: it failed and has no retries left.")


class JobStatusView(StandingView):
    """The status and progress of a job. The answer is small enough to be polled."""

    kind: Literal["job"]

    @classmethod
    def of(cls, job: Job, queue_position: int | None = None) -> JobStatusView:
        return cls(**_standing(job, queue_position))


class JobSummary(JobStatusView):
    """One line of a list."""

    user_id: str
    project: str
    start_urls: list[str] = Field(description="The first ten start URLs.")
    start_urls_count: int
    tags: list[str]
    priority: int

    @classmethod
    def of(cls, job: Job | ListedJob, queue_position: int | None = None) -> JobSummary:
        return cls(
            **_standing(job, queue_position),
            **job.model_dump(include={"user_id", "tags", "priority"}),
            project=job.spec.project,
            start_urls=list(job.spec.start_urls[:LISTED_URLS]),
            start_urls_count=job.start_urls_count,
        )


class JobPage(BaseModel):
    """A page of jobs."""

    jobs: list[JobSummary]
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")
    searched_to: Timestamp | None = Field(
        description="Where a search ran out of time: jobs created before this time (with `sort=oldest`: after it; "
        "with `started` or `ended`: started or ended before it) were not searched; go on with `next`. Null if the "
        "search was complete.",
        examples=[None],
    )


class JobCount(BaseModel):
    """How many jobs there are."""

    count: int = Field(description="How many jobs there are, up to 10,000.")
    is_exact: bool = Field(description="False: there are more, or there may be.")
    next: str | None = Field(
        default=None, description="With `q`, if the time was over: ask again with it as `after`, and add the counts."
    )


class JobPointView(BaseModel):
    """A job as a point of a picture."""

    job_id: str
    status: JobStatus
    started_at: Timestamp
    finished_at: Timestamp | None

    @classmethod
    def of(cls, point: JobPoint) -> JobPointView:
        return cls(**point._asdict())


class JobPointsView(BaseModel):
    """Jobs as points of a picture."""

    points: list[JobPointView] = Field(description="Jobs that have started, by the time of their first start.")
    is_sample: bool = Field(description="True: points were left out at random, because there are more than `limit`.")
    next: str | None = Field(
        default=None, description="With `q`, if the time was over: the value of `after` for older jobs' points."
    )


class BulkRequest(Body, json_schema_extra={"examples": [_BULK]}):
    """Which jobs, what is to be done with them, and how many the caller expects."""

    filter: JobsFilter = Field(description="The same names as in `GET /jobs`. Empty: all jobs.")
    action: Action = Field(
        description="`cancel`, `retry` or `delete`; for dead letters also `requeue` (run again) and `dismiss`."
    )
    expect: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        default=None, description="How many jobs it must be. Without it nothing is done, and they are counted."
    )
    as_of: QueryTime | None = Field(
        default=None,
        description="The `as_of` of the count: acts on the jobs that were there then, whatever has changed since.",
    )
    after: Cursor | None = Field(default=None, description="The `next` of the previous call: it goes on from there.")


class BulkRefusal(BaseModel):
    """A job with which that could not be done, and why."""

    job_id: str
    code: str
    message: str


class BulkReport(BaseModel, json_schema_extra={"examples": [_BULK_REPORT]}):
    """The result of this call."""

    action: Action
    matched: int | None = Field(
        description="How many of the jobs the action can be done to: live ones for `cancel`, ended ones for `retry` "
        "and `delete`. Null in a call with `after`."
    )
    as_of: Timestamp | None = Field(default=None, description="When they were counted.")
    done: int = 0
    refused: int = Field(default=0, description="How many could not be acted on, because they have changed.")
    refusals: list[BulkRefusal] = Field(default=[], description="The first 20 of these, and why.")
    next: str | None = Field(
        default=None,
        description="Not null: the time was over before all was done. Ask again with this as `after` to go on.",
    )
    stopped: str | None = Field(
        default=None, description="Why it stopped early: a quota, or a store that is away. Go on later, by `next`."
    )

    @classmethod
    def of(cls, action: Action, matched: int | None, progress: BulkProgress) -> BulkReport:
        return cls(
            action=action,
            matched=matched,
            done=progress.done,
            refused=progress.refused,
            refusals=[
                BulkRefusal(job_id=one.job_id, code=one.error.code, message=one.error.message)
                for one in progress.named
            ],
            next=progress.next,
            stopped=progress.stopped.message if progress.stopped else None,
        )


class FilesView(FilesKept):
    """Which of the attempt's files were stored."""

    count: int = Field(description="How many files were kept.")
    bytes: int
    refused_count: int = Field(description="How many were not: too large, too many, or no files at all.")
    refused: list[dict[str, str]] = Field(description="The first of those: name and reason.")
    pending: bool = Field(description="Whether they are still to be stored: the file store was away at its end.")


class ExitView(BaseModel):
    """How the spider's process ended, as the node saw it."""

    exit_code: int | None
    signal: int | None
    stopped_by: str | None = Field(
        description="`timeout`, `memory`, `log`, `files`, `stall`, `cancel`, `pause` or `shutdown`."
    )
    refused: str | None = Field(description="Why the node did not start it.")
    lost: bool = Field(description="Whether the process disappeared, so that nobody saw it end.")
    items_lost: str | None = Field(
        description="Why some or all of its items could not be read on the node. The items before them were kept."
    )
    log_lost: str | None = Field(description="The same for its log.")
    files: FilesView | None = Field(description="Null if it has written no files.")
    finish_reason: str | None = Field(description="Scrapy's finish reason.")
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    errors: list[dict[str, str]] = Field(description="The first few errors: URL and reason.")
    log_tail: str | None = Field(description="The end of the log, if the spider left no report.")

    @classmethod
    def of(cls, facts: ExitReport) -> ExitView:
        report = facts.report
        same = facts.model_dump(exclude={"report", "attempt", "started_at", "ended_at"})
        return cls(
            **same,
            finish_reason=report.finish_reason if report else None,
            errors=report.errors if report else [],
        )


class ProgressView(Progress):
    """How far a crawl is."""

    can_go_on: bool | None = Field(
        default=None, description="Whether the crawl goes on where it is if it is interrupted or paused."
    )
    hosts: list[str] = Field(
        default=[],
        description=f"The hosts that it has asked, at most the first {MOST_HOSTS}. A stream's events leave them out.",
    )
    # declared again, because the stored model has a plain `datetime`
    at: Timestamp | None = None


class AttemptView(BaseModel):
    """An attempt of a job: the node that ran it, when, and how it ended."""

    attempt: int
    spider_job_id: str
    node: str
    status: JobStatus | None
    reason: Open[Reason] | None
    message: str | None
    dispatched_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    log_bytes: int | None = Field(description="The size of the attempt's log; known once it has ended.")
    progress: ProgressView | None
    exit: ExitView | None
    filled: dict[str, int] | None = Field(
        description="How many of its items have each field that `expect` names; null without any, or before its end."
    )
    stats: dict[str, Any] = Field(description="Scrapy's stats.")

    @classmethod
    def of(cls, job: Job, attempt: Attempt) -> AttemptView:
        report = attempt.exit.report if attempt.exit else None
        progress = report.progress if report else job.progress if attempt is job.current else None
        return cls(
            **attempt.model_dump(exclude={"exit", "log_end"}),
            spider_job_id=str(AttemptId(job.id, attempt.attempt)),
            log_bytes=attempt.log_end,
            progress=ProgressView(**progress.model_dump()) if progress else None,
            exit=ExitView.of(attempt.exit) if attempt.exit else None,
            filled=report.filled if report else None,
            stats=report.stats if report else {},
        )


class AdviceView(BaseModel):
    """What to do next about a job that waits, or that did not end as it should."""

    what: str = Field(description="What is wrong.")
    steps: list[str]
    reference: str = Field(description="The page of the documentation that says more; it is at `/help/{reference}`.")

    @classmethod
    def of(cls, found: Advice) -> AdviceView:
        return cls(what=found.what, steps=[step.words for step in found.steps], reference=found.reference)


class JobDetail(JobStatusView):
    """Everything known of a job."""

    user_id: str
    spec: CrawlSpec
    tags: list[str]
    priority: int
    max_retries: int
    failures: int = Field(description="How many attempts failed, those that their node did not start included.")
    webhooks: list[str]
    webhooks_delivered: list[str] = Field(description="The webhooks that were called successfully.")
    webhook_message: str | None = Field(description="Why the last call of the other webhooks failed.")
    retry_of: str | None
    target: TargetRun | None = Field(description="For a run of a target: what the message to the worker said.")
    correlation_id: str | None = Field(description="The id of the request that asked for the job.")
    updated_at: Timestamp
    attempts: list[AttemptView] = Field(description=f"The newest ones: at least {MOST_WHOLE}, if there are as many.")
    logs_url: str
    items_url: str
    files_url: str
    page_url: str = Field(description="The job's page in the console, for people.")
    new_errors: int = Field(
        description="How many of its errors (`GET /jobs/{job_id}/errors`) are new, or back after they were resolved."
    )
    advice: AdviceView | None = Field(description="Null where nothing is to be done.")
    logs_removed_at: Timestamp | None = Field(
        description="When its log was removed because its retention time was over."
    )
    items_removed_at: Timestamp | None = Field(description="The same for its items and files.")

    @classmethod
    def of(cls, job: Job, queue_position: int | None = None) -> JobDetail:
        attempts = sorted(job.attempts.values(), key=lambda attempt: attempt.attempt)
        return cls(
            **_standing(job, queue_position),
            **job.model_dump(
                include={
                    "user_id", "tags", "priority", "max_retries", "retry_of", "correlation_id",
                    "webhooks", "webhooks_delivered", "webhook_message",
                    "updated_at", "logs_removed_at", "items_removed_at",
                }
            ),
            new_errors=job.new_errors or 0,
            failures=job.failed_attempts,
            spec=job.spec.shown(),
            target=job.target,
            attempts=[AttemptView.of(job, attempt) for attempt in attempts],
            logs_url=f"/jobs/{job.id}/logs",
            items_url=f"/jobs/{job.id}/items",
            files_url=f"/jobs/{job.id}/files",
            page_url=f"/console/jobs/{job.id}",
            advice=AdviceView.of(found) if (found := advice(job)) else None,
        )  # fmt: skip


class JobsHealth(BaseModel):
    """The state of the queue."""

    status: Literal["ok", "degraded"] = Field(description="`degraded`: jobs wait and no node takes new work.")
    jobs: dict[JobStatus, int] = Field(
        description="The number of jobs in each status. Very many ended jobs are counted seldom, and are left out"
        " until the first count is done."
    )
    oldest_waiting_seconds: float | None
    nodes: dict[Open[NodeState], int] = Field(
        description="The number of nodes in each state. Only nodes that are `up` get new work."
    )
    nodes_alive: int
    free_slots: int = Field(description="Free slots of the nodes that are `up`.")


def _standing(job: Job | ListedJob, queue_position: int | None) -> dict[str, Any]:
    """The fields of `JobStatusView`. The queue position is an argument, because only the store knows it."""
    waiting = job.status is JobStatus.PENDING
    progress = job.progress or Progress()
    return {
        "kind": "job",
        **job.model_dump(include=_SAME_OF_JOB),
        **job.spec.model_dump(include={"spider", "version", "max_items", "site"}),
        **progress.model_dump(exclude={"at", "can_go_on", "hosts"}),
        "job_id": job.id,
        "queue_position": queue_position,
        "spider_job_id": str(AttemptId(job.id, job.newest)) if job.newest else None,
        "node": job.node,
        "waiting_reason": job.waiting_reason if waiting else None,
        "not_before": job.not_before if waiting else None,
        "next_run": job.not_before if job.status is JobStatus.SCHEDULED else None,
        "slot": SlotView(**job.slot.model_dump()) if job.slot else None,
    }


_SAME_OF_JOB = {
    *("status", "attempt", "schedule_id", "trigger", "reason", "message", "dead"),
    *("created_at", "started_at", "finished_at", "cancel_requested_at"),
    *("pause_requested_at", "expires_at"),
}
