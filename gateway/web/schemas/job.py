"""How the API shows a job: at a glance (`JobStatusView`), in a list, and in full."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import AttemptId, ExitReport, Progress
from gateway.jobs.job import Attempt, Job, JobStatus, TargetRun, Trigger, WaitingReason
from gateway.nodes.node import NodeState
from gateway.web.schemas.types import Timestamp


class OccurrenceView(BaseModel):
    """The occurrence of a schedule that the job is the run of."""

    at: Timestamp = Field(description="Its time by the schedule; with it, it is one of a kind.")
    due: Timestamp = Field(description="The same with jitter.")
    fired_at: Timestamp
    missed: int = Field(description="Later slots that were missed as well, for which this run stands.")


class JobStatusView(BaseModel):
    """Small enough to poll."""

    job_id: str
    status: JobStatus
    spider: str
    version: str | None = Field(description="Of the spider's project; our own has none.")
    max_items: int | None = Field(description="Items after which it ends.")
    attempt: int = Field(description="Number of the newest attempt; 0 before the first.")
    spider_job_id: str | None = Field(description="`<job>-<attempt>`: the attempt's name in Scrapyd.")
    node: str | None
    waiting_reason: WaitingReason | None = Field(
        description="Why it has no slot; pending jobs only. `disk_full`: the nodes that could take it have no room. "
        "`site_busy`, `previous_run`: it waits for the end of another run."
    )
    queue_position: int | None = Field(
        description="1 goes next, if users who wait take turns; pending jobs only that wait for no other run."
    )
    not_before: Timestamp | None = Field(description="It waits until then at least; pending jobs only.")
    next_run: Timestamp | None = Field(description="When it will be run; scheduled jobs only.")
    schedule_id: str | None = Field(description="The schedule that it is a run of.")
    slot: OccurrenceView | None = Field(description="The schedule's slot; none where it was asked for by hand.")
    site: str | None = Field(description="The site that it is a run of.")
    trigger: Trigger | None = Field(description="Who asked for the run of a site.")
    requested_pages: int
    completed_pages: int
    items_count: int
    errors_count: int
    pages_per_s: float
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    cancel_requested_at: Timestamp | None
    message: str | None
    dead: bool = Field(description="Out of retries: a dead letter.")

    @classmethod
    def of(cls, job: Job, queue_position: int | None = None) -> JobStatusView:
        return cls(**_standing(job), queue_position=queue_position)


class JobSummary(JobStatusView):
    """One line of a list."""

    user_id: str
    project: str
    start_urls: list[str] = Field(description="The first ten.")
    start_urls_count: int
    tags: list[str]
    priority: int

    @classmethod
    def of(cls, job: Job, queue_position: int | None = None) -> JobSummary:
        return cls(
            **_standing(job),
            queue_position=queue_position,
            **job.model_dump(include={"user_id", "tags", "priority"}),
            project=job.spec.project,
            start_urls=list(job.spec.start_urls[:10]),
            start_urls_count=len(job.spec.start_urls),
        )


class JobPage(BaseModel):
    jobs: list[JobSummary]
    next: str | None = Field(description="`after` of the next page; null on the last.")
    searched_to: Timestamp | None = Field(
        description="Where a search ran out of time: jobs created before then were not looked at; go on with `next`. "
        "Null if the page is all that it could be.",
        examples=[None],
    )


class ExitView(BaseModel):
    """How the spider's process ended, as the node saw it."""

    exit_code: int | None
    signal: int | None
    stopped_by: str | None = Field(description="`timeout`, `memory`, `log`, `stall`, `cancel` or `shutdown`.")
    refused: str | None = Field(description="Why the node did not start it.")
    lost: bool = Field(description="Nobody saw it end.")
    items_lost: str | None = Field(
        description="Why its items, or the last of them, could not be read on the node; those before are there."
    )
    log_lost: str | None = Field(description="The same of its log.")
    finish_reason: str | None = Field(description="Scrapy's own word.")
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    errors: list[dict[str, str]] = Field(description="The first few: URL and reason.")
    log_tail: str | None = Field(description="Where the spider left no report.")

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
    # in the job's documents it stays a plain time
    at: Timestamp | None = None


class AttemptView(BaseModel):
    attempt: int
    spider_job_id: str
    node: str
    status: JobStatus | None
    message: str | None
    dispatched_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    log_bytes: int | None = Field(description="Known once it has ended.")
    progress: ProgressView | None
    exit: ExitView | None
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
            stats=report.stats if report else {},
        )


class JobDetail(JobStatusView):
    """Everything known of a job."""

    user_id: str
    spec: CrawlSpec
    tags: list[str]
    priority: int
    max_retries: int
    failures: int = Field(description="Attempts that ran and failed.")
    webhooks: list[str]
    webhooks_delivered: list[str] = Field(description="Those of them that have answered.")
    webhook_message: str | None = Field(description="Why the others have not, the last time they were called.")
    retry_of: str | None
    target: TargetRun | None = Field(description="What the message of a target's run says.")
    correlation_id: str | None = Field(description="The id of the request that asked for it.")
    updated_at: Timestamp
    attempts: list[AttemptView]
    logs_url: str
    items_url: str
    logs_removed_at: Timestamp | None = Field(description="When its log had been kept for long enough.")
    items_removed_at: Timestamp | None = Field(description="The same of its items.")

    @classmethod
    def of(cls, job: Job, queue_position: int | None = None) -> JobDetail:
        attempts = sorted(job.attempts.values(), key=lambda attempt: attempt.attempt)
        return cls(
            **_standing(job),
            queue_position=queue_position,
            **job.model_dump(
                include={
                    "user_id", "tags", "priority", "max_retries", "failures", "retry_of", "correlation_id",
                    "webhooks", "webhooks_delivered", "webhook_message",
                    "updated_at", "logs_removed_at", "items_removed_at",
                }
            ),
            spec=job.spec.shown(),
            target=job.target,
            attempts=[AttemptView.of(job, attempt) for attempt in attempts],
            logs_url=f"/jobs/{job.id}/logs",
            items_url=f"/jobs/{job.id}/items",
        )  # fmt: skip


class JobsHealth(BaseModel):
    """How the queue fares."""

    status: Literal["ok", "degraded"] = Field(description="Degraded: jobs wait and no node takes new work.")
    jobs: dict[JobStatus, int]
    oldest_waiting_seconds: float | None
    nodes: dict[NodeState, int] = Field(description="By state; only one that is `up` is offered new work.")
    nodes_alive: int
    free_slots: int = Field(description="Of nodes that are up.")


def _standing(job: Job) -> dict[str, Any]:
    """The fields of `JobStatusView` without the queue position, which only the store knows."""
    current = job.current
    waiting = job.status is JobStatus.PENDING
    progress = job.progress or Progress()
    return {
        **job.model_dump(include=_SAME_OF_JOB),
        **job.spec.model_dump(include={"spider", "version", "max_items", "site"}),
        **progress.model_dump(exclude={"at"}),
        "job_id": job.id,
        "spider_job_id": str(AttemptId(job.id, current.attempt)) if current else None,
        "node": current.node if current else None,
        "waiting_reason": job.waiting_reason if waiting else None,
        "not_before": job.not_before if waiting else None,
        "next_run": job.not_before if job.status is JobStatus.SCHEDULED else None,
        "slot": OccurrenceView(**job.slot.model_dump()) if job.slot else None,
    }


_SAME_OF_JOB = {
    *("status", "attempt", "schedule_id", "trigger", "message", "dead"),
    *("created_at", "started_at", "finished_at", "cancel_requested_at"),
}
