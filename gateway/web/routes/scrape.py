"""`/jobs/scrape`: runs of sites, started by hand."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Query, Response
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.access.keys import Scope
from gateway.contract.records import Progress
from gateway.errors import InvalidRequestError, RunGoesOnError
from gateway.items.formats import JsonFormat
from gateway.items.items import ItemStore
from gateway.jobs.job import RUN_STATUSES, Job, Requester, RunStatus, Trigger, run_id_of
from gateway.sites.runs import RequestedRun, RunRecords, Scraping, SiteRun
from gateway.sites.site import OPERATOR
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, RequestId, Router
from gateway.web.downloads import RowsExport
from gateway.web.errors import problems
from gateway.web.routes.crawl import IdempotencyKey
from gateway.web.routes.items import ItemPages
from gateway.web.schemas.types import Name, Params, QueryModel, Text, Timestamp, UserId

#: Maximum number of results that a request which waits for them may ask for.
MAX_SYNC_RESULTS = 25
_JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_EXAMPLE: JsonDict = {
    "site_name": "exampleboard",
    "search_term": "data engineer",
    "location": "Berlin",
    "is_remote": False,
    "results_wanted": 20,
}
_RECEIPT: JsonDict = {"task_id": _JOB, "run_id": f"manual_{_JOB}", "status": "queued", "execution_mode": "async"}
_RECORD: JsonDict = {
    "run_id": f"manual_{_JOB}",
    "site_schedule_id": 3,
    "task_id": _JOB,
    "trigger": "manual",
    "status": "succeeded",
    "started_at": "2027-06-01T09:00:00.250Z",
    "finished_at": "2027-06-01T09:00:09.750Z",
    "requested_pages": 2,
    "completed_pages": 2,
    "errors_count": 0,
    "message": "2 pages",
    "created_at": "2027-06-01T09:00:00.000Z",
    "updated_at": "2027-06-01T09:00:09.900Z",
    "results": [{"title": "Data engineer", "url": "https://board.example.com/jobs/1"}],
    "next": None,
    "items_url": f"/jobs/{_JOB}/items",
}
Words = Annotated[Text, Field(max_length=500)]


class ScrapeRequest(BaseModel, extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]}):
    """A run of a site, now. Only `site_name` is required; absent fields are as in the site's own runs."""

    site_name: Name = Field(description="A site of `GET /jobs/sites`.")
    search_term: Words | None = Field(
        default=None, description="The words for `{keywords}` in the site's search URL."
    )
    location: Words | None = Field(default=None, description="The place for `{location}` in the site's search URL.")
    is_remote: bool | None = Field(
        default=None, description="`true`: only remote postings; `false`: only the others; by default all."
    )
    results_wanted: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="The run ends after this many results. With `mode=sync`: 25 at most, and by default.",
    )
    payload: Params = Field(
        default_factory=dict, description="Further parameters, which override those of the site's own `payload`."
    )
    user_id: UserId = Field(default=OPERATOR, description="The user who asks; by default the user of the key.")

    def requested(self, budget_key: str | None, **more: Any) -> RequestedRun:
        by = Requester(self.user_id, budget_key, **more)
        return RequestedRun(by, self.site_name, **self.model_dump(exclude={"site_name", "user_id"}))


class ScrapeQuery(QueryModel):
    mode: Literal["async", "sync"] = Field(
        default="async",
        description="`sync` waits until the run has ended, but no longer than `SCRAPE_SYNC_TIMEOUT` seconds.",
    )


class RunQuery(QueryModel):
    limit: int = Field(
        default=100, ge=0, le=1000, description="Maximum number of results in the answer; 0: only the record."
    )
    after: Annotated[str, Field(pattern="^[0-9]{1,6}-[0-9]{1,15}$")] | None = Field(
        default=None, description="The `next` of the previous page."
    )


class ScrapeReceiptData(BaseModel):
    """The run that was begun."""

    task_id: str = Field(description="The job's id.")
    run_id: str
    status: Literal["queued"]
    execution_mode: Literal["async"]


class RunRecord(BaseModel):
    run_id: str
    site_schedule_id: int | None = Field(description="The site's number; null if the site was deleted.")
    task_id: str = Field(description="The job's id.")
    trigger: Trigger
    status: RunStatus
    started_at: Timestamp | None
    finished_at: Timestamp | None
    requested_pages: int
    completed_pages: int
    errors_count: int
    message: str | None
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, run: SiteRun) -> RunRecord:
        job, progress = run.job, run.job.progress or Progress()
        return cls(
            run_id=run.id,
            site_schedule_id=run.site_number,
            task_id=job.id,
            trigger=job.trigger or Trigger.MANUAL,
            status=RUN_STATUSES[job.status],
            **progress.model_dump(include={"requested_pages", "completed_pages", "errors_count"}),
            **job.model_dump(include={"started_at", "finished_at", "message", "created_at", "updated_at"}),
        )


class SiteRunView(RunRecord, json_schema_extra={"examples": [_RECORD]}):
    """A run and its results so far: of the attempt that counts, in the order they were scraped."""

    items_url: str = Field(description="The URL of all results, in every format.")
    results: list[dict[str, Any]]
    next: str | None = Field(description="The value of `after` for the next page.")


class SyncRunView(SiteRunView):
    """A run of a site that was waited for."""

    execution_mode: Literal["sync"]


class ScrapeAnswer(BaseModel, json_schema_extra={"examples": [{"status": "success", "data": _RECEIPT}]}):
    """The run that was started, or, with `mode=sync`, the run and its results."""

    status: Literal["success", "failed"] = Field(description="`failed`: the run has failed; `data.message` says why.")
    data: Annotated[ScrapeReceiptData | SyncRunView, Field(discriminator="execution_mode")]


# --- a run's record and a page of its results as one JSON document; the results pass through as they were stored
class RunFormat(JsonFormat):
    """`{…record…, "results": […], "next": …}`."""

    def __init__(self, record: bytes, *, before: bytes = b"", behind: bytes = b"") -> None:
        super().__init__()
        self._separator = before + record.removesuffix(b"}") + b',"results":[\n'
        self._behind = behind

    def end(self, following: str | None) -> bytes:
        return super().end(following) + self._behind


def run_page(items: ItemStore, run: SiteRun, limit: int, after: str | None) -> bytes:
    """The answer to a request for a run."""
    return _page(items, run.job, RunFormat(_record(run)), limit, after)


def sync_page(items: ItemStore, run: SiteRun, limit: int) -> bytes:
    """The answer to a request that has waited for a run."""
    failed = RunRecord.of(run).status is RunStatus.FAILED
    before = b'{"status":"%s","data":' % (b"failed" if failed else b"success")
    encoder = RunFormat(_record(run, execution_mode="sync"), before=before, behind=b"}")
    return _page(items, run.job, encoder, limit, None)


def _record(run: SiteRun, **more: Any) -> bytes:
    record = RunRecord.of(run).model_dump(mode="json")
    return orjson.dumps({**record, **more, "items_url": f"/jobs/{run.job.id}/items"})


def _page(items: ItemStore, job: Job, encoder: RunFormat, limit: int, after: str | None) -> bytes:
    attempt = job.current.attempt if job.current else 0
    data, _ = RowsExport(ItemPages(items, job.id, attempt, after), encoder).page(limit)
    return data


router = Router(prefix="/jobs/scrape", tags=["sites"])

JSON = "application/json"
RunId = Annotated[
    str,
    Path(
        description="The run's id: `manual_` or `sched_`, and the job's id.",
        examples=["manual_5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"],
    ),
]


@router.post(
    "",
    summary="Scrape a site now",
    response_model=ScrapeAnswer,
    responses=problems(404, 409, 413, 429, 503, 504),
)
@needs(Scope.CRAWL)
async def scrape_site(
    *,
    body: ScrapeRequest,
    query: Annotated[ScrapeQuery, Query()],
    parts: Parts,
    caller: Called,
    request_id: RequestId,
    idempotency_key: IdempotencyKey = "",
) -> ScrapeAnswer | Response:
    """Starts a run and answers with its id; with `mode=sync` waits for its end and answers with its results.

    A run that takes longer than `SCRAPE_SYNC_TIMEOUT` is answered with a 504 that names it, and goes on.
    """
    asked_by = caller.only(body.user_id if "user_id" in body.model_fields_set else None) or body.user_id
    body = body.model_copy(update={"user_id": asked_by})
    if query.mode == "sync":
        parts.answers.take()
        body = _small(body)
    order = body.requested(caller.budget_key, idempotency_key=idempotency_key or None, correlation_id=request_id)
    job = await parts.threads.run(parts[Scraping].start, order)
    if query.mode == "sync":
        return await _results(parts, job, body.results_wanted or MAX_SYNC_RESULTS)
    started = ScrapeReceiptData(task_id=job.id, run_id=str(run_id_of(job)), status="queued", execution_mode="async")
    return ScrapeAnswer(status="success", data=started)


@router.get("/{run_id}", summary="A run and its results", response_model=SiteRunView, responses=problems(404, 503))
@needs(Scope.READ)
async def get_site_run(run_id: RunId, query: Annotated[RunQuery, Query()], parts: Parts) -> Response:
    """The run's record and its results so far, a page at a time. Pass `next` as `after` for the next page, or take
    all of them from `items_url`.
    """
    run = await parts.threads.look(parts[RunRecords].find, run_id)
    page = await parts.threads.run(run_page, parts[ItemStore], run, query.limit, query.after)
    return Response(page, media_type=JSON)


def _small(body: ScrapeRequest) -> ScrapeRequest:
    wanted = body.results_wanted or MAX_SYNC_RESULTS
    if wanted > MAX_SYNC_RESULTS:
        message = f"must be at most {MAX_SYNC_RESULTS} in sync mode; an asynchronous run may have more"
        raise InvalidRequestError("results_wanted", message)
    return body.model_copy(update={"results_wanted": wanted})


async def _results(parts: GatewayParts, job: Job, limit: int) -> Response:
    """The answer with the results, once the run has ended. Raises `RunGoesOnError` if it does not end in time."""
    ended = await parts.streams.ending(job.id, parts.settings.scrape_sync_timeout)
    if not ended.is_final:
        raise _goes_on(ended)
    run = await parts.threads.look(parts[RunRecords].find, str(run_id_of(ended)))
    return Response(await parts.threads.run(sync_page, parts[ItemStore], run, limit), media_type=JSON)


def _goes_on(job: Job) -> RunGoesOnError:
    run_id = str(run_id_of(job))
    run = {"run_id": run_id, "task_id": job.id, "status": RUN_STATUSES[job.status], "execution_mode": "sync"}
    message = "the run has not ended in time; it goes on"
    return RunGoesOnError(message, detail={**run, "run_url": f"/jobs/scrape/{run_id}"})
