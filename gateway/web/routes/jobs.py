"""Jobs: lists, one in full or at a glance, cancel, run again, delete."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException

from gateway.domain.errors import ConflictError
from gateway.domain.node_state import NodeState
from gateway.services.cancellation import Cancellation
from gateway.services.deletion import Deletion
from gateway.services.job_or_schedule import JobOrSchedule, RunOf
from gateway.services.retry import Resubmission
from gateway.services.schedule_changes import ScheduleChanges
from gateway.storage.client import truth_store_errors
from gateway.storage.job_queries import JobQueries
from gateway.storage.nodes import NodeStore
from gateway.web.access import Called
from gateway.web.dependencies import JobId, Parts, RequestId
from gateway.web.schemas.crawl import CrawlReceipt
from gateway.web.schemas.job import JobDetail, JobPage, JobsHealth, JobStatusView, JobSummary
from gateway.web.schemas.listing import JobsQuery
from gateway.web.schemas.problem import problems
from gateway.web.schemas.schedule_status import ScheduleJobView, ScheduleStatusView
from gateway.web.store_route import StoreRoute

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=StoreRoute)

_METHODS = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"]


@router.get("", summary="List jobs", responses=problems(503))
async def list_jobs(query: Annotated[JobsQuery, Query()], parts: Parts, caller: Called) -> JobPage:
    """Newest first. Pass `next` as `after` for the page that follows.

    With `q`, or several filters that each fit many jobs, it looks at the newest first, and for half a second: a page
    may then have fewer jobs than `limit`, or none, and `searched_to` says how far it came. `next` goes on from there.
    """
    wanted = query.to_filter()._replace(user_id=caller.only(query.user_id))
    page = await parts.reads.run(parts[JobQueries].page, wanted, query.limit, query.after)
    jobs = [JobSummary.of(job) for job in page.jobs]
    return JobPage(jobs=jobs, next=page.next, searched_to=page.searched_to)


# before `/jobs/{job_id}`, which would take it for an id
@router.get("/health", summary="How the queue fares", tags=["platform"], responses=problems(503))
def jobs_health(parts: Parts) -> JobsHealth:
    with truth_store_errors():
        now = parts.clock()
        oldest = parts[JobQueries].oldest_waiting()
        states = [(node, node.state(now, parts.dead_after)) for node in parts[NodeStore].all()]
        up = [node for node, state in states if state is NodeState.UP]
        return JobsHealth(
            status="degraded" if oldest and not up else "ok",
            jobs=parts[JobQueries].counts(),
            oldest_waiting_seconds=max(0.0, (now - oldest).total_seconds()) if oldest else None,
            nodes=Counter(state for _, state in states),
            nodes_alive=sum(state is not NodeState.DEAD for _, state in states),
            free_slots=sum(node.free_slots for node in up),
        )


@router.api_route("/health", methods=_METHODS, include_in_schema=False)
@router.api_route("/scrape", methods=_METHODS, include_in_schema=False)
@router.api_route("/sites", methods=_METHODS, include_in_schema=False)
async def not_a_job() -> None:
    """What these can be asked for stands before: no method takes their names for the id of a job."""
    raise HTTPException(405)


@router.get("/{job_id}", summary="Everything known of a job", responses=problems(404, 503))
def get_job(job_id: JobId, parts: Parts) -> JobDetail | ScheduleJobView:
    """A schedule's id is answered with the schedule."""
    named = parts[JobOrSchedule].find(job_id)
    if isinstance(named, RunOf):
        return ScheduleJobView.of_schedule(*named)
    return JobDetail.of(named, parts[JobQueries].queue_position(named))


@router.get("/{job_id}/status", summary="Where a job stands", responses=problems(404, 503))
def get_status(job_id: JobId, parts: Parts) -> JobStatusView | ScheduleStatusView:
    """Small enough to poll; the log stream carries the same as it happens. A schedule is `scheduled` to its end."""
    named = parts[JobOrSchedule].find(job_id)
    if isinstance(named, RunOf):
        return ScheduleStatusView.of_schedule(*named)
    return JobStatusView.of(named, parts[JobQueries].queue_position(named))


@router.post("/{job_id}/cancel", summary="Stop a job", responses=problems(404, 409, 503))
def cancel_job(job_id: JobId, parts: Parts) -> JobStatusView | ScheduleStatusView:
    """A waiting job ends at once. A running one is asked to end, and killed after `CRAWL_STOP_GRACE` seconds:
    until then its status stays `running`, with `cancel_requested_at` set.

    A schedule ends: no further run begins, and the one under way goes on.
    """
    if not parts[JobOrSchedule].is_schedule(job_id):
        return JobStatusView.of(parts[Cancellation].cancel(job_id))
    parts[ScheduleChanges].cancel(job_id)
    return get_status(job_id, parts)


@router.post(
    "/{job_id}/retry",
    summary="Run an ended job again",
    response_model=CrawlReceipt,
    response_model_exclude_none=True,
    responses=problems(404, 409, 429, 503),
)
def retry_job(job_id: JobId, parts: Parts, request_id: RequestId) -> CrawlReceipt:
    """As a new job, linked to the old by `retry_of`: the same spider, in the same version of its project."""
    parts.truth.require()
    if parts[JobOrSchedule].is_schedule(job_id):
        raise ConflictError(f"a schedule is run by itself, and at once by POST /schedules/{job_id}/run")
    job = parts[Resubmission].run_again(job_id, request_id)
    return CrawlReceipt.of(job.id, cached=False, retry_of=job.retry_of)


@router.delete("/{job_id}", summary="Delete an ended job", status_code=204, responses=problems(404, 409, 503))
def delete_job(job_id: JobId, parts: Parts) -> None:
    """With its items and logs. Of a schedule that has ended, its history; its runs stay."""
    if parts[JobOrSchedule].is_schedule(job_id):
        parts[ScheduleChanges].delete(job_id, only_ended=True)
    else:
        parts[Deletion].delete(job_id)
