"""`/jobs`: list jobs, show one, cancel, pause, run again and delete them; the queue; and `/dead-letters`."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from gateway.access.keys import Caller, Scope
from gateway.clock import truncate
from gateway.dispatch.fair_queue import FairQueue
from gateway.errors import ConflictError, InvalidRequestError, ScopeMissingError
from gateway.jobs.attempts import AttemptStore
from gateway.jobs.bulk import Asked, BulkActs
from gateway.jobs.completion import Cancellation, Pausing
from gateway.jobs.job import (
    LISTED_URLS,
    RUN_STATUSES,
    SUCCESS_RULE,
    Job,
    JobStatus,
    ListedJob,
    RunStatus,
    WaitingReason,
    run_id_of,
)
from gateway.jobs.queries import JobFilter, JobOrder, JobQueries
from gateway.jobs.rerun import DeadLetters, Resubmission
from gateway.nodes.node import NodeState
from gateway.nodes.store import NodeStore
from gateway.retention.retention import Deletion
from gateway.schedules.edits import ScheduleChanges
from gateway.schedules.store import JobOrSchedule, RunOf
from gateway.sites.hosts import HostLookup
from gateway.status.facts import JobCounts, QueueReport, QueueStatus, SitePerformance
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, RequestId, Router
from gateway.web.errors import problems
from gateway.web.middleware import MERELY_COUNTED
from gateway.web.schemas.crawl import CrawlReceipt
from gateway.web.schemas.job import (
    BulkReport,
    BulkRequest,
    JobCount,
    JobDetail,
    JobPage,
    JobPointsView,
    JobPointView,
    JobsHealth,
    JobStatusView,
    JobSummary,
)
from gateway.web.schemas.schedule import ScheduleJobView, ScheduleStatusView
from gateway.web.schemas.types import (
    Cursor,
    IdPrefix,
    JobCountQuery,
    JobPointsQuery,
    JobsFilter,
    JobsQuery,
    Name,
    Open,
    QueryModel,
    SearchText,
    Timestamp,
    UserId,
)

router = Router(prefix="/jobs", tags=["jobs"])
health_router = Router(tags=["health"])

#: `GET /jobs/count` counts up to this.
MOST_COUNTED = 10_000
#: The answer to a job id, which may be a job's or a schedule's: `kind` says which.
AnyJobDetail = Annotated[JobDetail | ScheduleJobView, Field(discriminator="kind")]
AnyJobStatus = Annotated[JobStatusView | ScheduleStatusView, Field(discriminator="kind")]
_METHODS = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"]


@router.get("", summary="List jobs", responses=problems(503))
@needs(Scope.READ, by_project=True)
async def list_jobs(query: Annotated[JobsQuery, Query()], parts: Parts, caller: Called) -> JobPage:
    """Pass `next` as `after`, with the same `sort`, for the page that follows.

    With `q` or `host`, or several filters that each fit many jobs, it looks at the newest first, for half a second.
    A page may then have fewer jobs than `limit`, or none: `searched_to` says how far it came, and `next` goes on from
    there.
    """
    wanted = await _wanted(query, parts, caller)
    read = parts[JobQueries].page
    page = await parts.threads.run(read, wanted, query.limit, query.after, JobOrder(query.sort))
    jobs = [JobSummary.of(job) for job in page.jobs]
    return JobPage(jobs=jobs, next=page.next, searched_to=page.searched_to)


async def _wanted(given: JobsFilter, parts: GatewayParts, caller: Caller) -> JobFilter:
    wanted = caller.limited(given.to_filter(), given.user_id)
    if wanted.host is None:
        return wanted
    return wanted._replace(host=await parts.threads.run(parts[HostLookup].find, wanted.host.name))


# before `/jobs/{job_id}`, which would take them for an id
@router.get("/count", summary="How many jobs there are", responses=problems(503))
@needs(Scope.READ, by_project=True)
async def count_jobs(query: Annotated[JobCountQuery, Query()], parts: Parts, caller: Called) -> JobCount:
    """Counts up to 10,000. With `q` or `host` it looks at the newest jobs first, for two seconds; `next` goes on.
    `POST /jobs/bulk` without `expect` counts all.
    """
    wanted = await _wanted(query, parts, caller)
    count, following = await parts.threads.run(parts[JobQueries].count_part, wanted, MOST_COUNTED + 1, query.after)
    is_exact = following is None and query.after is None and count <= MOST_COUNTED
    return JobCount(count=min(count, MOST_COUNTED), is_exact=is_exact, next=following)


@router.get("/points", summary="When jobs ran, and how long", responses=problems(503))
@needs(Scope.READ, by_project=True)
async def list_job_points(query: Annotated[JobPointsQuery, Query()], parts: Parts, caller: Called) -> JobPointsView:
    """The jobs that have started, or a random sample of them, for a chart of start, duration and outcome. With `q` it
    searches the newest jobs first, for two seconds; `next` goes on.
    """
    wanted = await _wanted(query, parts, caller)
    found = await parts.threads.run(parts[JobQueries].points, wanted, query.limit, query.after)
    points = [JobPointView.of(point) for point in found.points]
    return JobPointsView(points=points, is_sample=found.is_sample, next=found.next)


@router.post("/bulk", summary="Cancel, retry or delete many jobs", responses=problems(403, 409, 429, 503))
@needs(Scope.CRAWL)
async def act_on_jobs(
    request: Request, body: BulkRequest, parts: Parts, caller: Called, request_id: RequestId
) -> BulkReport:
    """Acts on all jobs that the filter names and to which the action can be done, newest first.

    Without `expect` it counts the jobs, and `as_of` says when. With `expect` and `as_of` it acts on the jobs that
    existed at that time. With `expect` alone it begins only if the number is still the same; otherwise the answer is
    409 with the present number. It works for about two seconds, and answers with what it has done; go on with `next`
    as `after` until `next` is null. An interrupted call can be repeated: no job is run again twice.
    """
    wanted = await _wanted(body.filter, parts, caller)
    acts = parts[BulkActs]
    if body.expect is None and (body.after is not None or body.as_of is not None):
        raise InvalidRequestError("expect", "is required with after and as_of")
    if body.expect is None:
        setattr(request.state, MERELY_COUNTED, True)
        now = truncate(parts.clock())
        matched = await parts.threads.run(acts.count, body.action, wanted)
        return BulkReport(action=body.action, matched=matched, as_of=now)
    asked = Asked(caller.name, request_id, caller.budget_key, body.as_of)
    done = await parts.threads.run(acts.act, body.action, wanted, body.expect, asked, body.after)
    return BulkReport.of(body.action, body.expect if body.after is None else None, done)


@health_router.get("/jobs/health", summary="The state of the queue", responses=problems(503))
@needs(Scope.ADMIN)
def get_jobs_health(parts: Parts) -> JobsHealth:
    """For monitoring: what waits, for how long, and how many nodes there are."""
    with mongo_errors():
        now = parts.clock()
        oldest = parts[JobQueries].oldest_waiting()
        states = [(node, node.state(now, parts.dead_after)) for node in parts[NodeStore].all(attempts=False)]
        up = [node for node, state in states if state is NodeState.UP]
        return JobsHealth(
            status="degraded" if oldest and not up else "ok",
            jobs=parts[JobCounts].by_status(),
            oldest_waiting_seconds=max(0.0, (now - oldest).total_seconds()) if oldest else None,
            nodes=Counter(state for _, state in states),
            nodes_alive=sum(state is not NodeState.DEAD for _, state in states),
            free_slots=sum(node.free_slots for node in up),
        )


@router.api_route("/health", methods=_METHODS, include_in_schema=False)
@router.api_route("/count", methods=_METHODS, include_in_schema=False)
@router.api_route("/points", methods=_METHODS, include_in_schema=False)
@router.api_route("/bulk", methods=_METHODS, include_in_schema=False)
@router.api_route("/scrape", methods=_METHODS, include_in_schema=False)
@router.api_route("/sites", methods=_METHODS, include_in_schema=False)
async def not_a_job() -> None:
    """Answers these paths with 405 for methods that they do not have, so that no path is taken for a job's id."""
    raise HTTPException(405)


#: Seconds that a request waits at most: fewer than proxies leave a connection silent.
LONGEST_WAIT = 30


class WaitQuery(QueryModel):
    wait: int = Field(
        default=0,
        ge=0,
        le=LONGEST_WAIT,
        description="Answer once the job has ended, or after so many seconds with its state then. It may be sooner, "
        "when the gateway stops. Not for schedules.",
    )


@router.get("/{job_id}", summary="Everything known of a job", responses=problems(404, 429, 503))
@needs(Scope.READ)
async def get_job(job_id: JobId, query: Annotated[WaitQuery, Query()], parts: Parts, caller: Called) -> AnyJobDetail:
    """A schedule's id is answered with the schedule. A call that waits counts as an open stream of its user."""
    await _wait(job_id, query, parts)
    return await parts.threads.look(job_view, job_id, parts, caller)


def job_view(job_id: str, parts: GatewayParts, caller: Caller) -> AnyJobDetail:
    named = parts[JobOrSchedule].find(job_id)
    if isinstance(named, RunOf):
        return ScheduleJobView.of_schedule(*named)
    with mongo_errors():
        return JobDetail.of(parts[AttemptStore].complete(named), queue_position(named, parts, caller))


@router.get("/{job_id}/status", summary="The status and progress of a job", responses=problems(404, 429, 503))
@needs(Scope.READ)
async def get_job_status(
    job_id: JobId, query: Annotated[WaitQuery, Query()], parts: Parts, caller: Called
) -> AnyJobStatus:
    """Small enough to poll. The log stream sends the same as it happens. A schedule is `scheduled` until it ends."""
    await _wait(job_id, query, parts)
    return await parts.threads.look(_status_view, job_id, parts, caller)


def _status_view(job_id: str, parts: GatewayParts, caller: Caller) -> AnyJobStatus:
    named = parts[JobOrSchedule].find(job_id)
    if isinstance(named, RunOf):
        return ScheduleStatusView.of_schedule(*named)
    return JobStatusView.of(named, queue_position(named, parts, caller))


def queue_position(job: Job, parts: GatewayParts, caller: Caller) -> int | None:
    """The job's place in the queue. `None` also if the caller may see only some projects, because the place would
    reveal how many jobs others have.
    """
    return None if caller.projects else parts[JobQueries].queue_position(job, parts[FairQueue].running)


async def _wait(job_id: str, query: WaitQuery, parts: GatewayParts) -> None:
    if query.wait and await parts.threads.look(parts[JobOrSchedule].is_schedule, job_id):
        raise InvalidRequestError("wait", "is for jobs, and this is a schedule, which does not end by itself")
    if query.wait:
        await parts.streams.ending(job_id, query.wait)


@router.post("/{job_id}/cancel", summary="Stop a job", responses=problems(404, 409, 503))
@needs(Scope.AGENT)
def cancel_job(job_id: JobId, parts: Parts, caller: Called) -> AnyJobStatus:
    """A waiting job ends at once. A running one is asked to end, and killed after `CRAWL_STOP_GRACE` seconds:
    until then its status stays `running`, with `cancel_requested_at` set.

    A schedule ends: no further run begins, and the one under way goes on.
    """
    if not parts[JobOrSchedule].is_schedule(job_id):
        return JobStatusView.of(parts[Cancellation].cancel(job_id, caller.name))
    if caller.is_agent:
        raise ScopeMissingError(Scope.CRAWL)
    parts[ScheduleChanges].cancel(job_id)
    return _status_view(job_id, parts, caller)


BeginAnew = Annotated[
    bool,
    Query(description="Pause a running crawl also where it cannot go on later, and begins anew when it is resumed."),
]


@router.post("/{job_id}/pause", summary="Pause a job", responses=problems(404, 409, 503))
@needs(Scope.AGENT)
def pause_job(
    job_id: JobId,
    parts: Parts,
    caller: Called,
    begin_anew: BeginAnew = False,  # noqa: FBT002 - a query
) -> JobStatusView:
    """A waiting job is `paused` at once. A running crawl is asked to stop: until it has, its status stays `running`,
    with `pause_requested_at` set. It writes down what it still has to fetch, and frees its node.

    A paused job waits for `POST /jobs/{id}/resume`; after `PAUSED_JOB_DAYS` days it is cancelled. It still answers
    repeated requests, and no other run of its site or schedule begins. A schedule has a pause of its own.
    """
    if parts[JobOrSchedule].is_schedule(job_id):
        raise ConflictError(f"it is a schedule: POST /schedules/{job_id}/pause starts no run until it is resumed")
    return JobStatusView.of(parts[Pausing].pause(job_id, caller.name, begin_anew=begin_anew))


@router.post("/{job_id}/resume", summary="Resume a paused job", responses=problems(404, 409, 503))
@needs(Scope.AGENT)
def resume_job(job_id: JobId, parts: Parts, caller: Called) -> JobStatusView:
    """The job is `pending` again, ahead of younger jobs. On its former node it goes on where it was. If that node is
    full or gone, it begins anew on another one, and its log says so.
    """
    if parts[JobOrSchedule].is_schedule(job_id):
        raise ConflictError(f"it is a schedule: POST /schedules/{job_id}/resume goes on with its next run")
    return JobStatusView.of(parts[Pausing].resume(job_id, caller.name, caller.budget_key))


@router.post(
    "/{job_id}/retry",
    summary="Run an ended job again",
    response_model_exclude_none=True,
    responses=problems(404, 409, 429, 503),
)
@needs(Scope.AGENT)
def retry_job(job_id: JobId, parts: Parts, caller: Called, request_id: RequestId) -> CrawlReceipt:
    """Creates a new job, linked to the old one by `retry_of`: the same spider, in the same version of its project."""
    if parts[JobOrSchedule].is_schedule(job_id):
        raise ConflictError(f"a schedule is run by itself, and at once by POST /schedules/{job_id}/run")
    job = parts[Resubmission].run_again(job_id, request_id, budget_key=caller.budget_key)
    return CrawlReceipt.of(job.id, cached=False, retry_of=job.retry_of)


@router.delete("/{job_id}", summary="Delete an ended job", status_code=204, responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def delete_job(job_id: JobId, parts: Parts) -> None:
    """Deletes the job with its items and logs. A schedule that has ended loses its history; its runs stay."""
    if parts[JobOrSchedule].is_schedule(job_id):
        parts[ScheduleChanges].delete(job_id, only_ended=True)
    else:
        parts[Deletion].delete(job_id)


class QueueQuery(QueryModel):
    hours: int = Field(default=24, ge=1, le=720, description="The number of hours that `sites` covers.")


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
    success_rate: float | None = Field(description=f"{SUCCESS_RULE} From 0 to 1; null without such.")
    duration_seconds: DurationView | None = Field(description="Null if no run was started.")
    last_finished_at: Timestamp

    @classmethod
    def of(cls, site: SitePerformance) -> SiteRunsView:
        ended = {status: count for status, count in site.counts.items() if status is not JobStatus.CANCELLED}
        counted = {RUN_STATUSES[status]: count for status, count in ended.items()}
        return cls(
            site_name=site.site,
            runs=sum(site.counts.values()),
            succeeded=counted.get(RunStatus.SUCCEEDED, 0),
            partial=counted.get(RunStatus.PARTIAL, 0),
            failed=counted.get(RunStatus.FAILED, 0),
            cancelled=site.counts.get(JobStatus.CANCELLED, 0),
            success_rate=site.success_rate,
            duration_seconds=DurationView(**site.durations._asdict()) if site.durations else None,
            last_finished_at=site.last_ended_at,
        )


class WaitingView(BaseModel):
    """Pending jobs."""

    total: int
    by_reason: dict[Open[WaitingReason], int] = Field(
        description="How many jobs wait for each reason; reasons without a job are left out."
    )
    unexplained: int = Field(description="How many have no reason yet: no worker has considered them so far.")
    oldest_seconds: float | None = Field(description="Seconds since the job that waits longest was due.")


class WorkersView(BaseModel):
    """The workers that live."""

    alive: int
    names: list[str] = Field(description="`worker:<host>:<process>`.")


class QueueStatusView(BaseModel):
    """The state of the queue at one moment."""

    at: Timestamp
    depth: dict[JobStatus, int] = Field(
        description="The number of jobs in each status. Very many ended jobs are counted seldom, and are left out"
        " until the first count is done."
    )
    waiting: WaitingView
    running: int
    workers: WorkersView
    dead_letters: int
    sites_since: Timestamp = Field(description="The start of the time that `sites` covers.")
    sites: list[SiteRunsView] = Field(description="Sites with a run that has ended since then, sorted by name.")
    sites_complete: bool = Field(description="False: only the latest 10,000 runs were counted.")

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
                # not below 0: the two counts are taken one after the other, while the queue moves
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


@health_router.get(
    "/jobs/queue/status", summary="Waiting jobs, workers, and success rates of sites", responses=problems(503)
)
@needs(Scope.ADMIN)
async def get_queue_status(query: Annotated[QueueQuery, Query()], parts: Parts) -> QueueStatusView:
    """Depth by status and by what jobs wait for, living workers, dead letters, and for each site the success rate and
    the durations of the runs that ended within the last `hours`.
    """
    window = timedelta(hours=query.hours)
    return QueueStatusView.of(await parts.threads.run(parts[QueueStatus].report, window))


class DeadLettersQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="Only jobs of this user.")
    spider: Name | None = Field(default=None, description="Only jobs of this spider.")
    q: SearchText | None = Field(
        default=None, description="Only jobs with this text in the id, spider, tags, start URLs or message."
    )
    id_prefix: IdPrefix | None = Field(
        default=None, description="Only jobs whose id begins so; at least four digits of it."
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")

    def to_filter(self) -> JobFilter:
        return JobFilter(user_id=self.user_id, spider=self.spider, q=self.q, id_prefix=self.id_prefix, dead=True)


class DeadLetter(BaseModel):
    """A job that is out of retries."""

    id: str = Field(description="The job's id.")
    run_id: str | None = Field(description="The run's id, if the job is a run of a site.")
    user_id: str
    project: str
    spider: str
    site: str | None
    start_urls: list[str] = Field(description="The first ten start URLs.")
    message: str | None = Field(description="Why it ended.")
    attempts: int = Field(description="The number of its attempts.")
    created_at: Timestamp
    finished_at: Timestamp | None
    retry_of: str | None
    job_url: str
    logs_url: str

    @classmethod
    def of(cls, job: ListedJob) -> DeadLetter:
        return cls(
            **job.model_dump(include={"id", "user_id", "message", "created_at", "finished_at", "retry_of"}),
            **job.spec.model_dump(include={"project", "spider", "site"}),
            run_id=run_id_of(job),
            start_urls=list(job.spec.start_urls[:LISTED_URLS]),
            attempts=job.attempts_count,
            job_url=f"/jobs/{job.id}",
            logs_url=f"/jobs/{job.id}/logs",
        )


class DeadLetterPage(BaseModel):
    """A page of dead letters."""

    dead_letters: list[DeadLetter]
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")
    searched_to: Timestamp | None = Field(
        description="Where a search ran out of time, see `GET /jobs`.", examples=[None]
    )


# --- `/dead-letters`: jobs that are out of retries, and what is done about them

dead_letters_router = Router(prefix="/dead-letters", tags=["jobs"])

LetterId = Annotated[
    str, Path(description="The job's id.", examples=["5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"], max_length=100)
]


@dead_letters_router.get("", summary="List jobs that are out of retries", responses=problems(503))
@needs(Scope.READ, by_project=True)
async def list_dead_letters(
    query: Annotated[DeadLettersQuery, Query()], parts: Parts, caller: Called
) -> DeadLetterPage:
    """Newest first. Pass `next` as `after` for the page that follows."""
    wanted = caller.limited(query.to_filter(), query.user_id)
    page = await parts.threads.run(parts[JobQueries].page, wanted, query.limit, query.after)
    letters = [DeadLetter.of(job) for job in page.jobs]
    return DeadLetterPage(dead_letters=letters, next=page.next, searched_to=page.searched_to)


@dead_letters_router.post(
    "/{letter_id}/requeue",
    summary="Run a dead letter again",
    response_model_exclude_none=True,
    responses=problems(404, 409, 429, 503),
)
@needs(Scope.CRAWL)
def requeue_dead_letter(letter_id: LetterId, parts: Parts, caller: Called, request_id: RequestId) -> CrawlReceipt:
    """Creates a new job, linked to the old one by `retry_of`. The old job stays as it is, and leaves this list."""
    job = parts[DeadLetters].requeue(letter_id, request_id, budget_key=caller.budget_key)
    return CrawlReceipt.of(job.id, cached=False, retry_of=job.retry_of)


@dead_letters_router.delete(
    "/{letter_id}", summary="Remove a dead letter from the list", status_code=204, responses=problems(404, 503)
)
@needs(Scope.CRAWL)
def dismiss_dead_letter(letter_id: LetterId, parts: Parts) -> None:
    """The job leaves this list. The job itself, its items and its log stay until `DELETE /jobs/{id}` or retention."""
    parts[DeadLetters].dismiss(letter_id)
