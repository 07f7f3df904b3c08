"""`/jobs/scrape`: runs of sites, asked for by hand."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from gateway.domain.errors import InvalidRequestError, RunGoesOnError
from gateway.domain.job import Job
from gateway.domain.run import RUN_STATUSES, run_id_of
from gateway.services.run_record import RunRecords
from gateway.services.scraping import Scraping
from gateway.storage.items import ItemStore
from gateway.web.access import Called
from gateway.web.dependencies import Parts, RequestId
from gateway.web.parts import GatewayParts
from gateway.web.routes.crawl import IdempotencyKey
from gateway.web.run_format import run_page, sync_page
from gateway.web.schemas.problem import problems
from gateway.web.schemas.run import (
    MAX_SYNC_RESULTS,
    RunQuery,
    RunView,
    ScrapeQuery,
    ScrapeReceipt,
    ScrapeReceiptData,
    ScrapeRequest,
    ScrapeResult,
)

router = APIRouter(prefix="/jobs/scrape", tags=["sites"])

JSON = "application/json"
RunId = Annotated[
    str,
    Path(description="`manual_` or `sched_` and the job's id.", examples=["manual_5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"]),
]


@router.post(
    "",
    summary="Scrape a site now",
    response_model=ScrapeReceipt | ScrapeResult,
    responses=problems(404, 409, 413, 429, 503, 504),
)
async def scrape(
    *,
    body: ScrapeRequest,
    query: Annotated[ScrapeQuery, Query()],
    parts: Parts,
    caller: Called,
    request_id: RequestId,
    idempotency_key: IdempotencyKey = "",
) -> ScrapeReceipt | Response:
    """Starts a run and answers with its id; with `mode=sync` waits for its end and answers with its results.

    A run that takes longer than `SCRAPE_SYNC_TIMEOUT` is answered with a 504 that names it, and goes on.
    """
    asked_by = caller.only(body.user_id if "user_id" in body.model_fields_set else None) or body.user_id
    body = body.model_copy(update={"user_id": asked_by})
    parts.truth.require()
    if query.mode == "sync":
        body = _small(body)
    order = body.to_order(idempotency_key=idempotency_key or None, correlation_id=request_id)
    job = await parts.submits.run(parts[Scraping].start, order)
    if query.mode == "sync":
        return await _results(parts, job, body.results_wanted or MAX_SYNC_RESULTS)
    return ScrapeReceipt(data=ScrapeReceiptData(task_id=job.id, run_id=str(run_id_of(job))))


@router.get("/{run_id}", summary="A run and its results", response_model=RunView, responses=problems(404, 503))
async def get_run(run_id: RunId, query: Annotated[RunQuery, Query()], parts: Parts) -> Response:
    """Its record, and the results so far, a page at a time. Pass `next` as `after` for the page that follows, or take
    all of them from `items_url`.
    """
    run = await parts.reads.run(parts[RunRecords].find, run_id)
    page = await parts.reads.run(run_page, parts[ItemStore], run, query.limit, query.after)
    return Response(page, media_type=JSON)


def _small(body: ScrapeRequest) -> ScrapeRequest:
    wanted = body.results_wanted or MAX_SYNC_RESULTS
    if wanted > MAX_SYNC_RESULTS:
        message = f"must be at most {MAX_SYNC_RESULTS} in sync mode; an asynchronous run may have more"
        raise InvalidRequestError("results_wanted", message)
    return body.model_copy(update={"results_wanted": wanted})


async def _results(parts: GatewayParts, job: Job, limit: int) -> Response:
    """Raises `RunGoesOnError`."""
    ended = await parts.streams.ending(job.id, parts.settings.scrape_sync_timeout)
    if not ended.is_final:
        raise _goes_on(ended)
    run = await parts.reads.run(parts[RunRecords].find, str(run_id_of(ended)))
    return Response(await parts.reads.run(sync_page, parts[ItemStore], run, limit), media_type=JSON)


def _goes_on(job: Job) -> RunGoesOnError:
    run_id = str(run_id_of(job))
    told = {"run_id": run_id, "task_id": job.id, "status": RUN_STATUSES[job.status], "execution_mode": "sync"}
    message = "the run has not ended in time; it goes on"
    return RunGoesOnError(message, detail={**told, "run_url": f"/jobs/scrape/{run_id}"})
