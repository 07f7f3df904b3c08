"""`GET /jobs/queue/status`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.job import JobStatus, WaitingReason
from gateway.domain.run import RUN_STATUSES, RunStatus
from gateway.services.queue_status import QueueReport, SitePerformance
from gateway.web.schemas.types import Timestamp

_CANCELLED = JobStatus.CANCELLED


class QueueQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    hours: int = Field(default=24, ge=1, le=720, description="The window that `sites` looks at.")


class DurationView(BaseModel):
    """Seconds from a run's first start to its end."""

    average: float
    median: float
    longest: float


class SiteRunsView(BaseModel):
    """Runs of one site that ended within the window."""

    site_name: str
    runs: int
    succeeded: int
    partial: int
    failed: int
    cancelled: int
    success_rate: float | None = Field(description="`succeeded` of all that were not cancelled; 0 to 1.")
    duration_seconds: DurationView | None = Field(description="Null where none was ever started.")
    last_finished_at: Timestamp

    @classmethod
    def of(cls, site: SitePerformance) -> SiteRunsView:
        counted = {RUN_STATUSES[status]: count for status, count in site.counts.items() if status is not _CANCELLED}
        return cls(
            site_name=site.site,
            runs=sum(site.counts.values()),
            succeeded=counted.get(RunStatus.SUCCEEDED, 0),
            partial=counted.get(RunStatus.PARTIAL, 0),
            failed=counted.get(RunStatus.FAILED, 0),
            cancelled=site.counts.get(_CANCELLED, 0),
            success_rate=site.success_rate,
            duration_seconds=DurationView(**site.durations._asdict()) if site.durations else None,
            last_finished_at=site.last_ended_at,
        )


class WaitingView(BaseModel):
    """Pending jobs."""

    total: int
    by_reason: dict[WaitingReason, int] = Field(description="Reasons that some job has.")
    unexplained: int = Field(description="Nobody has looked at these yet.")
    oldest_seconds: float | None = Field(description="How long the one that waits longest has been due.")


class WorkersView(BaseModel):
    alive: int
    names: list[str] = Field(description="`worker:<host>:<process>`.")


class QueueStatusView(BaseModel):
    """How the queue fares, at one moment."""

    at: Timestamp
    depth: dict[JobStatus, int] = Field(description="Jobs by status, the ended ones too.")
    waiting: WaitingView
    running: int
    workers: WorkersView
    dead_letters: int
    sites_since: Timestamp = Field(description="Begin of the window that `sites` looks at.")
    sites: list[SiteRunsView] = Field(description="Only those of which a run has ended since then; by name.")
    sites_complete: bool = Field(description="False: only the latest 10,000 runs were looked at.")

    @classmethod
    def of(cls, report: QueueReport) -> QueueStatusView:
        waiting = report.by_status[JobStatus.PENDING]
        oldest = report.oldest_due
        return cls(
            at=report.at,
            depth=report.by_status,
            waiting=WaitingView(
                total=waiting,
                by_reason=report.by_reason,
                # counted one after the other, while the queue moves
                unexplained=max(0, waiting - sum(report.by_reason.values())),
                oldest_seconds=(report.at - oldest).total_seconds() if oldest else None,
            ),
            running=report.by_status[JobStatus.RUNNING],
            workers=WorkersView(alive=len(report.workers), names=report.workers),
            dead_letters=report.dead_letters,
            sites_since=report.since,
            sites=[SiteRunsView.of(site) for site in report.sites],
            sites_complete=report.complete,
        )
