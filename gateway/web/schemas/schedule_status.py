"""A schedule where a job is asked for."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gateway.domain.job import Job, JobStatus
from gateway.domain.node_files import Progress
from gateway.domain.outcome import CANCELLED
from gateway.domain.schedule import Schedule, ScheduleState
from gateway.web.schemas.job import JobStatusView
from gateway.web.schemas.schedule import ScheduleView

_NEVER_RUN: dict[str, Any] = {
    **dict.fromkeys(JobStatusView.model_fields),
    **Progress().model_dump(exclude={"at"}),
    "spider": "",
    "attempt": 0,
}


class ScheduleStatusView(JobStatusView):
    """A schedule where a job is asked for: `scheduled` until it ends. Counts and times are those of the run under
    way, or the one before.
    """

    state: ScheduleState
    runs: int = Field(description="Slots that ran.")
    last_run: JobStatusView | None

    @classmethod
    def of_schedule(cls, schedule: Schedule, run: Job | None) -> ScheduleStatusView:
        return cls(**_standing(schedule, run))


class ScheduleJobView(ScheduleStatusView):
    """The same, with all that is known of the schedule."""

    schedule: ScheduleView

    @classmethod
    def of_schedule(cls, schedule: Schedule, run: Job | None) -> ScheduleJobView:
        return cls(**_standing(schedule, run), schedule=ScheduleView.of(schedule))


def _standing(schedule: Schedule, run: Job | None) -> dict[str, Any]:
    last_run = JobStatusView.of(run) if run else None
    spec = schedule.crawl.spec if schedule.crawl else None
    return {
        **(last_run.model_dump() if last_run else _NEVER_RUN),
        **(spec.model_dump(include={"spider", "version", "max_items"}) if spec else {}),
        "job_id": schedule.id,
        "schedule_id": schedule.id,
        "site": schedule.site,
        "status": _status(schedule),
        "message": schedule.message,
        "next_run": schedule.next_run,
        "created_at": schedule.created_at,
        "slot": None,
        "cancel_requested_at": None,
        "dead": False,
        "state": schedule.state,
        "runs": schedule.runs,
        "last_run": last_run,
    }


def _status(schedule: Schedule) -> JobStatus:
    if schedule.state is not ScheduleState.ENDED:
        return JobStatus.SCHEDULED
    return JobStatus.CANCELLED if schedule.message == CANCELLED.message else JobStatus.FINISHED
