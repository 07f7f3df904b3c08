"""`POST /crawl`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from gateway.domain.job import CrawlSpec
from gateway.services.spider_catalog import project_name
from gateway.services.submission import Order
from gateway.settings import Settings
from gateway.web.dependencies import RequestId, Wired
from gateway.web.schemas.crawl import CrawlQuery, CrawlReceipt, CrawlRequest
from gateway.web.schemas.problem import problems

router = APIRouter(tags=["crawls"])

EVENT_STREAM = "text/event-stream"

IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=255,
        pattern="^[!-~]*$",
        description="Makes a retry safe: the same key is answered with the same job, even with `ignore_cache`.",
    ),
]


@router.post(
    "/crawl",
    summary="Ask for a crawl",
    response_model=CrawlReceipt,
    response_model_exclude_none=True,
    responses={
        200: {
            "description": "The job. With `Accept: text/event-stream` its log, begun by `event: job`.",
            "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
        },
        **problems(409, 413, 503),
    },
)
async def crawl(
    *,
    request: Request,
    body: CrawlRequest,
    query: Annotated[CrawlQuery, Query()],
    wiring: Wired,
    request_id: RequestId,
    idempotency_key: IdempotencyKey = "",
) -> CrawlReceipt | Response:
    """Runs a spider over the start URLs, once a slot is free.

    The same request of the same user within `CRAWL_CACHE_TTL` is answered with the job that exists.
    """
    wiring.truth.require()
    order = _order(body, wiring.settings, ignore_cache=body.ignore_cache or query.ignore_cache)
    order = order._replace(idempotency_key=idempotency_key or None, correlation_id=request_id)
    receipt = await wiring.submission.submit(order)
    answer = CrawlReceipt.of(receipt.job_id, cached=receipt.cached, cached_at=receipt.cached_at)
    if EVENT_STREAM not in request.headers.get("accept", ""):
        return answer
    opening = ("job", answer.model_dump(mode="json", exclude_none=True))
    return await wiring.streams.response(receipt.job_id, request, first_event=opening)


def _order(body: CrawlRequest, settings: Settings, *, ignore_cache: bool) -> Order:
    spec = CrawlSpec(
        project=project_name(body.project),
        version=body.version,
        spider=body.spider,
        start_urls=tuple(body.start_urls),
        depth=body.depth,
        params=body.params,
        max_pages=body.max_pages,
        max_items=body.max_items,
        timeout=settings.job_timeout if body.timeout is None else body.timeout,
        ignore_cache=ignore_cache,
    )
    return Order(
        user_id=body.user_id,
        spec=spec,
        priority=body.priority,
        tags=tuple(dict.fromkeys(body.tags)),
        max_retries=settings.max_retries if body.max_retries is None else body.max_retries,
        webhook_url=body.webhook_url,
    )
