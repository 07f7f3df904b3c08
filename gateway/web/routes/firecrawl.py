"""`/v2/…`: the part of Firecrawl's API that its clients need, translated to calls of our own routes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, NoReturn

from fastapi import Header, Query, Request, Response

from gateway.access.keys import Scope
from gateway.contract.reasons import Reason
from gateway.jobs.job import FINAL_STATUSES
from gateway.web.authorisation import for_everybody, needs
from gateway.web.dependencies import JobId, Router
from gateway.web.errors import problem, problems
from gateway.web.inner_calls import InnerCalls, RefusedCallError
from gateway.web.middleware import MERELY_COUNTED
from gateway.web.routes.jobs import LONGEST_WAIT
from gateway.web.schemas.firecrawl import (
    SPIDER,
    FirecrawlActive,
    FirecrawlActiveCrawl,
    FirecrawlBatch,
    FirecrawlCancelled,
    FirecrawlConcurrency,
    FirecrawlCrawl,
    FirecrawlCredits,
    FirecrawlErrors,
    FirecrawlFailure,
    FirecrawlLinks,
    FirecrawlMap,
    FirecrawlPage,
    FirecrawlQueue,
    FirecrawlScrape,
    FirecrawlScraped,
    FirecrawlStarted,
    FirecrawlStatus,
    FirecrawlTokens,
)

router = Router(tags=["firecrawl"])

#: The caller's name in the audit trail, and the user of the jobs as long as there are no keys.
_NAME = "firecrawl"
#: Tags of jobs.
_SCRAPE, _MAP, _CRAWL, _BATCH = (f"firecrawl-{kind}" for kind in ("scrape", "map", "crawl", "batch"))
#: Documents of a page, which has 16 MiB at most: what MongoDB answers at once.
_DOCUMENTS = 100
#: Entries that an answer has at most, and pages of the record of requests that are read for them.
_MOST_ERRORS = 1000
_MOST_READS = 10
_WAITING, _RUNNING = ("scheduled", "pending", "paused"), ("running",)

IdempotencyKey = Annotated[
    str,
    Header(
        alias="x-idempotency-key",
        description="Requests with the same key get the same job.",
        max_length=255,
        pattern="^[!-~]*$",
    ),
]


async def refused(request: Request, error: Exception) -> Response:
    """The answer to a call that a route of ours has refused."""
    assert isinstance(error, RefusedCallError)  # noqa: S101 - registered for nothing else
    headers = {"Retry-After": error.retry_after} if error.retry_after else None
    return problem(request.scope, error.status, error.code, error.message, detail=error.detail, headers=headers)


def _refuse(status: HTTPStatus, code: str, message: str, **detail: Any) -> NoReturn:
    raise RefusedCallError(status.value, {"code": code, "message": message, "detail": detail or None})


def _calls(request: Request) -> InnerCalls:
    setattr(request.state, MERELY_COUNTED, True)
    return InnerCalls(request, _NAME)


async def _start(calls: InnerCalls, body: dict[str, Any], tag: str, key: str = "") -> str:
    who = {} if calls.caller.key else {"user_id": _NAME}
    told = await calls.post("/crawl", body={**body, **who, "tags": [tag]}, key=key)
    return str(told["job_id"])


async def _end(calls: InnerCalls, job_id: str, until: float) -> dict[str, Any]:
    """The job once it has ended. Refuses at the time `until`, and when the gateway stops."""
    while True:
        began = time.monotonic()
        wait = max(0, min(math.ceil(until - began), LONGEST_WAIT))
        job: dict[str, Any] = await calls.get("/jobs/{}/status", job_id, wait=wait)
        if job["status"] in FINAL_STATUSES:
            return job
        if time.monotonic() >= until or time.monotonic() - began < wait - 1:
            message = "it has not ended in time; its job goes on, and the same request may find it done"
            _refuse(HTTPStatus.REQUEST_TIMEOUT, "SCRAPE_TIMEOUT", message, job_id=job_id)


def _fail(job: dict[str, Any]) -> NoReturn:
    message = job["message"] or f"its job is {job['status']}"
    _refuse(HTTPStatus.FAILED_DEPENDENCY, "SCRAPE_FAILED", message, reason=job["reason"], job_id=job["job_id"])


# --- one page, and a site's addresses: calls that wait


@router.post(
    "/v2/scrape",
    summary="Give one page",
    response_class=Response,
    responses={200: {"model": FirecrawlScraped}, **problems(408, 424, 503)},
)
@needs(Scope.AGENT)
async def firecrawl_scrape_page(request: Request, body: FirecrawlScrape, key: IdempotencyKey = "") -> Response:
    """Waits for `timeout` milliseconds, and takes no thread meanwhile. A page that was given before is given again if
    `maxAge` allows it.
    """
    calls, until = _calls(request), time.monotonic() + body.seconds()
    # what is given again may have been in the HTTP cache as long
    too_old = body.max_age is not None and body.max_age < 2000 * calls.parts.settings.crawl_cache_ttl
    order = body.body([body.url], ignore_cache=too_old, max_pages=1, max_retries=1)
    job = await _end(calls, await _start(calls, order, _SCRAPE, key), until)
    scraped = await calls.shaped(_scraped(job["job_id"]), "/jobs/{}/items", job["job_id"], limit=1)
    return _json(scraped) if scraped else _fail(job)


def _scraped(job_id: str) -> Callable[[Any], bytes | None]:
    def shape(page: dict[str, Any]) -> bytes | None:
        pages = [FirecrawlPage.of(item, job_id) for item in page["items"]]
        return _encoded(FirecrawlScraped.model_construct(data=pages[0])) if pages else None

    return shape


def _encoded(answer: Any) -> bytes:
    text: str = answer.model_dump_json(by_alias=True, exclude_none=True, warnings=False)
    return text.encode()


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json")


@router.post(
    "/v2/map",
    summary="List a site's addresses",
    response_class=Response,
    responses={200: {"model": FirecrawlLinks}, **problems(408, 424, 503)},
)
@needs(Scope.AGENT)
async def firecrawl_map_site(request: Request, body: FirecrawlMap) -> Response:
    """The links of the page, and the URLs in the site's sitemaps. With `search`, only URLs with all of its words."""
    calls, until = _calls(request), time.monotonic() + body.seconds()
    started = [await _start(calls, order | {"max_retries": 1}, _MAP) for order in body.bodies()]
    jobs = [await _end(calls, job_id, until) for job_id in started]
    items = [item for job in jobs for item in await _items(calls, job["job_id"])]
    if not items and (failed := [job for job in jobs if job["status"] == "error"]):
        _fail(failed[0])
    # there may be a hundred thousand of them
    return _json(
        await calls.parts.threads.run(lambda: _encoded(FirecrawlLinks(id=started[-1], links=body.links(items))))
    )


async def _items(calls: InnerCalls, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 1000, "fields": "url,title,description,links"}
    while True:
        page = await calls.get("/jobs/{}/items", job_id, **query)
        found += page["items"]
        if page["next"] is None:
            return found
        query["after"] = page["next"]


# --- crawls and batches: jobs that are asked for their pages


@router.post("/v2/crawl", summary="Crawl a site", responses=problems(503))
@needs(Scope.AGENT)
async def firecrawl_start_crawl(request: Request, body: FirecrawlCrawl, key: IdempotencyKey = "") -> FirecrawlStarted:
    """A job of its own each time."""
    job_id = await _start(_calls(request), body.body(ignore_cache=True), _CRAWL, key)
    return FirecrawlStarted(id=job_id, url=f"/v2/crawl/{job_id}")


@router.post("/v2/batch/scrape", summary="Fetch many pages", responses=problems(503))
@needs(Scope.AGENT)
async def firecrawl_start_batch(request: Request, body: FirecrawlBatch, key: IdempotencyKey = "") -> FirecrawlStarted:
    """A job of its own each time. Of pages that lead to each other, one is given."""
    urls, invalid = body.split()
    job_id = await _start(_calls(request), body.body(urls, ignore_cache=True), _BATCH, key)
    return FirecrawlStarted(id=job_id, url=f"/v2/batch/scrape/{job_id}", invalid_urls=invalid)


# before the routes with an id, which would take it for one
@router.get("/v2/crawl/active", summary="List the crawls that go on", responses=problems(503))
@needs(Scope.READ)
async def firecrawl_list_active_crawls(request: Request) -> FirecrawlActive:
    """The newest two hundred."""
    page = await _calls(request).get("/jobs", tag=_CRAWL, status=[*_WAITING, *_RUNNING], limit=200)
    crawls = [
        FirecrawlActiveCrawl(id=one["job_id"], team_id=one["user_id"], url=one["start_urls"][0])
        for one in page["jobs"]
        if one["start_urls"]
    ]
    return FirecrawlActive(crawls=crawls)


_Cursor = Annotated[str, Query(max_length=64, description="In the `next` of the answer before.")]
_STATUS: dict[int | str, dict[str, Any]] = {200: {"model": FirecrawlStatus}, **problems(404, 503)}


@router.get("/v2/crawl/{job_id}", summary="How a crawl goes", response_class=Response, responses=_STATUS)
@needs(Scope.READ)
async def firecrawl_get_crawl_status(request: Request, job_id: JobId, cursor: _Cursor = "") -> Response:
    """The crawl with its pages so far, at most 100 and 16 MiB. `next` is the URL of further pages, if any."""
    return await _status(request, job_id, cursor)


@router.get("/v2/batch/scrape/{job_id}", summary="How a batch goes", response_class=Response, responses=_STATUS)
@needs(Scope.READ)
async def firecrawl_get_batch_status(request: Request, job_id: JobId, cursor: _Cursor = "") -> Response:
    """The same for a batch."""
    return await _status(request, job_id, cursor)


async def _status(request: Request, job_id: str, cursor: str) -> Response:
    calls = _calls(request)
    days, path = calls.parts.settings.item_retention_days, request.url.path
    job = await _job(calls, job_id)

    def shape(page: dict[str, Any]) -> bytes:
        pages = [FirecrawlPage.of(item, job_id) for item in page["items"]]
        # relative, because the client alone knows by which name it reaches us
        following = page["next"] and f"{path}?cursor={page['next']}"
        return _encoded(FirecrawlStatus.of(job, pages, following, days))

    return _json(await calls.shaped(shape, "/jobs/{}/items", job_id, limit=_DOCUMENTS, after=cursor or None))


async def _job(calls: InnerCalls, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = await calls.get("/jobs/{}/status", job_id)
    if job["kind"] != "job" or job["spider"] != SPIDER:
        _refuse(HTTPStatus.NOT_FOUND, "job_not_found", f"{job_id!r} is no crawl of the spider {SPIDER!r}")
    return job


@router.get("/v2/crawl/{job_id}/errors", summary="Which pages a crawl could not fetch", responses=problems(404, 503))
@needs(Scope.READ)
async def firecrawl_list_crawl_errors(request: Request, job_id: JobId) -> FirecrawlErrors:
    """A page with a status such as 404 is a document, with `metadata.error`."""
    return await _errors(request, job_id)


@router.get(
    "/v2/batch/scrape/{job_id}/errors", summary="Which pages a batch could not fetch", responses=problems(404, 503)
)
@needs(Scope.READ)
async def firecrawl_list_batch_errors(request: Request, job_id: JobId) -> FirecrawlErrors:
    """The same for a batch."""
    return await _errors(request, job_id)


async def _errors(request: Request, job_id: str) -> FirecrawlErrors:
    calls = _calls(request)
    await _job(calls, job_id)
    failed = await _requests(calls, job_id, failed="true")
    blocked = await _requests(calls, job_id, code=Reason.ROBOTS_FORBIDDEN.value)
    errors = [
        FirecrawlFailure(
            id=f"{job_id}-{number}", timestamp=one["at"], url=one["url"], code=one["code"], error=one["reason"] or ""
        )
        for number, one in enumerate(failed, 1)
    ]
    return FirecrawlErrors(errors=errors, robots_blocked=[one["url"] for one in blocked])


async def _requests(calls: InnerCalls, job_id: str, **wanted: Any) -> list[dict[str, Any]]:
    """An answer ends after two seconds of search, even if it has found nothing by then."""
    found: list[dict[str, Any]] = []
    after = None
    for _ in range(_MOST_READS):
        page = await calls.get("/jobs/{}/requests", job_id, limit=_MOST_ERRORS, after=after, **wanted)
        found += page["requests"]
        after = page["next"]
        if after is None or len(found) >= _MOST_ERRORS:
            break
    # robots.txt is asked for on behalf of pages, which have entries of their own
    return [one for one in found if not one["url"].endswith("/robots.txt")][:_MOST_ERRORS]


@router.delete("/v2/crawl/{job_id}", summary="Cancel a crawl", responses=problems(404, 409, 503))
@needs(Scope.AGENT)
async def firecrawl_cancel_crawl(request: Request, job_id: JobId) -> FirecrawlCancelled:
    """The crawl ends within moments. Its results stay."""
    return await _cancel(request, job_id)


@router.delete("/v2/batch/scrape/{job_id}", summary="Cancel a batch", responses=problems(404, 409, 503))
@needs(Scope.AGENT)
async def firecrawl_cancel_batch(request: Request, job_id: JobId) -> FirecrawlCancelled:
    """The same for a batch."""
    return await _cancel(request, job_id)


async def _cancel(request: Request, job_id: str) -> FirecrawlCancelled:
    calls = _calls(request)
    await _job(calls, job_id)
    await calls.post("/jobs/{}/cancel", job_id)
    return FirecrawlCancelled()


# --- what clients ask about the team, which is the user here


@router.get("/v2/team/credit-usage", summary="How many credits are left")
@needs(Scope.READ)
async def firecrawl_get_credit_usage() -> FirecrawlCredits:
    """The gateway does not count these: the answer is always a thousand million."""
    return FirecrawlCredits()


@router.get("/v2/team/token-usage", summary="How many tokens are left")
@needs(Scope.READ)
async def firecrawl_get_token_usage() -> FirecrawlTokens:
    """The gateway does not count these: the answer is always a thousand million."""
    return FirecrawlTokens()


@router.get("/v2/team/queue-status", summary="How many crawls wait and run", responses=problems(503))
@needs(Scope.READ)
async def firecrawl_get_team_queue(request: Request) -> FirecrawlQueue:
    """All jobs of the user, whatever they crawl."""
    calls = _calls(request)
    waiting = (await calls.get("/jobs/count", status=_WAITING))["count"]
    running = (await calls.get("/jobs/count", status=_RUNNING))["count"]
    last = (await calls.get("/jobs", status="finished", limit=1))["jobs"]
    return FirecrawlQueue(
        jobs_in_queue=waiting + running,
        active_jobs_in_queue=running,
        waiting_jobs_in_queue=waiting,
        max_concurrency=calls.parts.settings.crawl_user_running_max,
        most_recent_success=last[0]["finished_at"] if last else None,
    )


@router.get("/v2/concurrency-check", summary="How many crawls run", responses=problems(503))
@needs(Scope.READ)
async def firecrawl_get_concurrency(request: Request) -> FirecrawlConcurrency:
    """All jobs of the user, whatever they crawl."""
    calls = _calls(request)
    running = (await calls.get("/jobs/count", status=_RUNNING))["count"]
    return FirecrawlConcurrency(concurrency=running, max_concurrency=calls.parts.settings.crawl_user_running_max)


# --- all other routes of Firecrawl

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_THERE = "scrape, map, crawl, batch/scrape and team/* of version 2"


@router.api_route("/v1/{rest:path}", methods=_METHODS, include_in_schema=False)
@router.api_route("/v2/{rest:path}", methods=_METHODS, include_in_schema=False)
@for_everybody
async def refuse_others(request: Request, rest: str) -> None:  # noqa: ARG001 - the address is named as a whole
    """Refuse all other routes of Firecrawl."""
    address = f"{request.method} {request.url.path[:200]}"
    message = f"{address} is not possible here: of Firecrawl's API there are {_THERE}; see /help/"
    _refuse(HTTPStatus.NOT_FOUND, "NOT_SUPPORTED", message)
