"""`POST /crawl`: now, later, or again and again."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Header, Query, Request, Response

from gateway.access.keys import Caller, Scope
from gateway.contract.crawl import DEFAULT_PROJECT, SPEC_FIELDS, CrawlSpec, Expect, FetchOptions
from gateway.datasets.service import Datasets
from gateway.errors import InvalidRequestError, ScopeMissingError
from gateway.jobs.job import ASKED_FIELDS, LIMITS, ORDER_FIELDS, CrawlOrder, Requester
from gateway.jobs.submission import RequestedCrawl, Submission
from gateway.projects.catalog import SpiderCatalog, project_name
from gateway.projects.time_limits import TimeLimits, check_timeout
from gateway.schedules.crawl_preview import Forecasts
from gateway.schedules.edits import Change
from gateway.schedules.schedule import CatchUp, Overlap
from gateway.schedules.submission import ScheduleSubmission, When, spelled
from gateway.settings import Settings
from gateway.web.authorisation import Called, caller_of, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.schemas.crawl import CrawlQuery, CrawlReceipt, CrawlRequest
from gateway.web.schemas.preview import CrawlPreview
from gateway.web.schemas.schedule import ScheduleUpdate
from gateway.web.schemas.stream import CRAWL, EVENT_STREAM, event_content

Wishes = TypeVar("Wishes", FetchOptions, Expect)

_WHEN = set(When._fields)
_TIMING = {"interval", "timezone", "jitter", "ends_at"}
_SCHEDULE = {"name", "overlap", "catch_up", "max_runs"}
#: The fields of a request that describe the work (`CrawlSpec`), and those that say how it is done (`CrawlOrder`).
_SPEC, _ORDER = ASKED_FIELDS.keys() & SPEC_FIELDS, ORDER_FIELDS.keys()


#: The fields that an agent may set. The other fields would make crawls go on without the agent, choose who is
#: notified or through which proxy pages are fetched, change a dataset, or decide where a project's secrets are sent.
_OF_AGENTS = {
    *("user_id", "spider", "start_urls", "project", "version", "params", "expect"),
    *("ignore_cache", "priority", "tags", "timeout", "max_retries", *LIMITS),
}


def _check_agent(body: CrawlRequest, caller: Caller) -> None:
    """Raises `ScopeMissingError` for a field that an agent may not set."""
    more = body.model_fields_set - _OF_AGENTS if caller.is_agent else ()
    if more:
        raise ScopeMissingError(Scope.CRAWL, min(more))


async def order_of(body: CrawlRequest, query: CrawlQuery, caller: Caller, parts: GatewayParts) -> RequestedCrawl:
    """The crawl that the request asks for, with the defaults of this gateway and of the spider's project.

    Raises `NotYourUserError`, `ScopeMissingError`, `InvalidRequestError`, `StartingError`, `UnavailableError`.
    """
    _check_agent(body, caller)
    user_id, settings = caller.asking(body.user_id), parts.settings
    asked = {name: getattr(body, name) for name in _SPEC} | {
        "project": await _project_of(body, parts),
        "start_urls": tuple(body.start_urls),
        "timeout": settings.job_timeout if body.timeout is None else body.timeout,
        "ignore_cache": body.ignore_cache or query.ignore_cache,
        "fetch": _wishes(body.fetch),
        "expect": _wishes(body.expect),
    }
    spec = CrawlSpec(**asked)
    crawl = CrawlOrder(
        spec=await _timed(spec, body.timeout, parts),
        priority=body.priority,
        tags=tuple(dict.fromkeys(body.tags)),
        webhooks=(body.webhook_url,) if body.webhook_url else (),
        max_retries=settings.max_retries if body.max_retries is None else body.max_retries,
    )
    if spec.dataset is not None:
        await parts.threads.run(parts[Datasets].check, user_id, spec.dataset)
    return RequestedCrawl(Requester(user_id, caller.budget_key), crawl)


async def _timed(spec: CrawlSpec, asked: int | None, parts: GatewayParts) -> CrawlSpec:
    """The crawl with its time limit. Raises `InvalidRequestError` if the time that was asked for is too long."""
    if asked is not None:
        check_timeout(asked, parts.settings.job_max_timeout)
        return spec
    if spec.project == DEFAULT_PROJECT:  # there is nothing to look up, so no thread is needed
        return spec
    return spec.model_copy(update={"timeout": await parts.threads.run(parts[TimeLimits].of, spec)})


async def _project_of(body: CrawlRequest, parts: GatewayParts) -> str:
    catalog = parts[SpiderCatalog]
    if body.project is not None or (body.version is None and catalog.has_own(body.spider)):
        return project_name(body.project)
    return await parts.threads.run(catalog.project_of, body.spider, body.version)


def when_of(body: CrawlRequest) -> When | None:
    """The times at which the crawl runs; `None` for a crawl that runs now."""
    if body.interval is None and body.schedule_at is None:
        return None
    return When(**body.model_dump(include=_WHEN, exclude_none=True))


def change_of(body: ScheduleUpdate, settings: Settings) -> Change:
    """Only the fields that were given; null stands for the default. Raises `InvalidRequestError`."""
    given = {name: getattr(body, name) for name in body.model_fields_set}
    defaults: dict[str, Any] = {
        "project": DEFAULT_PROJECT,
        "timezone": "UTC",
        "overlap": Overlap.SKIP,
        "catch_up": CatchUp.ONE,
        "timeout": settings.job_timeout,
        "max_retries": settings.max_retries,
    }
    if body.timeout is not None:
        check_timeout(body.timeout, settings.job_max_timeout)
    wanted = {name: defaults.get(name) if value is None else _plain(name, value) for name, value in given.items()}
    timing = _only(_TIMING, wanted)
    if "schedule_at" in wanted:
        timing["starts_at"] = wanted["schedule_at"]
    return Change(_only(_SCHEDULE, wanted), timing, _only(_ORDER, wanted), _only(_SPEC, wanted), body.rev)


def _only(names: Collection[str], fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}


def _plain(name: str, value: Any) -> Any:
    match name:
        case "interval":
            return spelled(value)
        case "project":
            return project_name(value)
        case "start_urls" | "webhooks" | "tags":
            return tuple(dict.fromkeys(value) if name != "start_urls" else value)
        case "fetch" | "expect":
            return _wishes(value)
        case _:
            return value


def _wishes(options: Wishes | None) -> Wishes | None:
    """The options; `None` if all have their defaults."""
    return None if options is None or options == type(options)() else options


IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=255,
        pattern="^[!-~]*$",
        description="Makes a retry safe: requests with the same key get the same job, even with `ignore_cache`.",
    ),
]


router = Router(tags=["crawls"])


@router.post(
    "/crawl",
    summary="Ask for a crawl",
    response_model=CrawlReceipt,
    response_model_exclude_none=True,
    responses={
        200: {
            "description": "The job. With `Accept: text/event-stream` its log, begun by `event: job`.",
            "content": event_content(CRAWL),
        },
        202: {
            "description": "With `schedule_at` or `interval`: the job that will be run then, or the schedule.",
            "model": CrawlReceipt,
        },
        **problems(409, 413, 429, 503),
    },
)
@needs(Scope.AGENT)
async def create_crawl(
    *,
    request: Request,
    response: Response,
    body: CrawlRequest,
    query: Annotated[CrawlQuery, Query()],
    parts: Parts,
    idempotency_key: IdempotencyKey = "",
) -> CrawlReceipt | Response:
    """Runs a spider over the start URLs: once a slot is free, or at the times of `schedule_at` and `interval`.

    The same request of the same user within `CRAWL_CACHE_TTL` is answered with the job that exists. A request for
    later is answered with the job or schedule that exists, however old, until that has ended.
    """
    streams = EVENT_STREAM in request.headers.get("accept", "")
    if streams:
        parts.answers.take()
    # the caller and the request id are read from `request` and not injected, because each FastAPI dependency costs
    # time: see `_admit` in gateway.web.dependencies
    order = await order_of(body, query, caller_of(request), parts)
    order = order.with_request(idempotency_key or None, request.state.request_id)
    when = when_of(body)
    await _make_dataset(parts, order)
    answer = await (_now(parts, order) if when is None else _later(parts, order, when))
    if streams:
        opening = ("job", answer.model_dump(mode="json", exclude_none=True))
        return await parts.streams.response(answer.job_id, request, first_event=opening)
    if answer.scheduled:
        response.status_code = HTTPStatus.ACCEPTED.value
    return answer


@router.post(
    "/crawl/preview",
    summary="What a crawl would be answered",
    responses=problems(413, 503),
)
@needs(Scope.AGENT)
async def preview_crawl(
    *, body: CrawlRequest, query: Annotated[CrawlQuery, Query()], parts: Parts, caller: Called
) -> CrawlPreview:
    """Takes what `POST /crawl` takes, and tells what that would answer: why it would be refused, field by field,
    which job or schedule would answer, and when and where the crawl would run. Nothing is made, counted or reserved.

    A body that `POST /crawl` could not read gets the same 422 here.
    """
    try:
        order, when = await order_of(body, query, caller, parts), when_of(body)
    except InvalidRequestError as error:
        return CrawlPreview.refused(error)
    forecast = await parts[Forecasts].of(order, when)
    return CrawlPreview.of(forecast, when, parts.settings.crawl_cache_ttl, parts.clock())


async def _make_dataset(parts: GatewayParts, order: RequestedCrawl) -> None:
    """Make the dataset that the crawl names, so that it can be read from now on."""
    if order.spec.dataset is not None:
        await parts.threads.run(parts[Datasets].ensure, order.user_id, order.spec.dataset)


async def _now(parts: GatewayParts, order: RequestedCrawl) -> CrawlReceipt:
    receipt = await parts[Submission].submit(order)
    return CrawlReceipt.of(receipt.job_id, cached=receipt.cached, cached_at=receipt.cached_at)


async def _later(parts: GatewayParts, order: RequestedCrawl, when: When) -> CrawlReceipt:
    found, cached = receipt = await parts.threads.run(parts[ScheduleSubmission].submit, order, when)
    return CrawlReceipt.of(
        found.id,
        scheduled=True,
        cached=cached,
        cached_at=found.created_at if cached else None,
        next_run=receipt.next_run,
    )
