"""`POST /crawl`: now, later, or again and again."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from gateway.services.schedule_submission import ScheduleSubmission, When
from gateway.services.submission import Order, Submission
from gateway.web.access import Called
from gateway.web.dependencies import Parts, RequestId
from gateway.web.parts import GatewayParts
from gateway.web.schedule_request import order_of, when_of
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
        202: {
            "description": "With `schedule_at` or `interval`: the job that will be run then, or the schedule.",
            "model": CrawlReceipt,
        },
        **problems(409, 413, 429, 503),
    },
)
async def crawl(
    *,
    request: Request,
    response: Response,
    body: CrawlRequest,
    query: Annotated[CrawlQuery, Query()],
    parts: Parts,
    caller: Called,
    request_id: RequestId,
    idempotency_key: IdempotencyKey = "",
) -> CrawlReceipt | Response:
    """Runs a spider over the start URLs: once a slot is free, or when `schedule_at` and `interval` say.

    The same request of the same user within `CRAWL_CACHE_TTL` is answered with the job that exists; one for later
    with the job or schedule that exists, however old, until it has ended.
    """
    caller.acting_for(body.user_id)
    parts.truth.require()
    order = order_of(body, parts.settings, ignore_cache=body.ignore_cache or query.ignore_cache)
    order = order._replace(idempotency_key=idempotency_key or None, correlation_id=request_id)
    when = when_of(body)
    answer = await (_now(parts, order) if when is None else _later(parts, order, when))
    if EVENT_STREAM in request.headers.get("accept", ""):
        opening = ("job", answer.model_dump(mode="json", exclude_none=True))
        return await parts.streams.response(answer.job_id, request, first_event=opening)
    if answer.scheduled:
        response.status_code = HTTPStatus.ACCEPTED.value
    return answer


async def _now(parts: GatewayParts, order: Order) -> CrawlReceipt:
    receipt = await parts[Submission].submit(order)
    return CrawlReceipt.of(receipt.job_id, cached=receipt.cached, cached_at=receipt.cached_at)


async def _later(parts: GatewayParts, order: Order, when: When) -> CrawlReceipt:
    found, cached = receipt = await parts.submits.run(parts[ScheduleSubmission].submit, order, when)
    return CrawlReceipt.of(
        found.id,
        scheduled=True,
        cached=cached,
        cached_at=found.created_at if cached else None,
        next_run=receipt.next_run,
    )
