"""`/console/endpoints`: the endpoints that receive events, and the outcome of each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field

from gateway.access.keys import Caller, Scope
from gateway.console.pages import Pages, page
from gateway.errors import ConflictError, NotFoundError, SecretsKeyError
from gateway.signals.endpoints import EndpointFilter
from gateway.signals.events import EventType
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.endpoints import (
    EndpointId,
    get_endpoint,
    get_endpoint_secret,
    list_endpoint_deliveries,
    list_endpoints,
)
from gateway.web.schemas.endpoint import CrawlFilter, DeliveriesQuery, EndpointsQuery, EndpointView

router = Pages()

#: The words in the form for each event.
_EVENTS = {
    EventType.JOB_STARTED: "an attempt started",
    EventType.JOB_PAUSED: "a job was paused",
    EventType.JOB_RETRIED: "an attempt failed and is retried",
    EventType.JOB_FINISHED: "a job finished",
    EventType.JOB_PARTIAL: "a job finished with errors or too few items",
    EventType.JOB_FAILED: "a job failed for good",
    EventType.JOB_CANCELLED: "a job was cancelled",
    EventType.ITEMS_BATCH: "a running job has more items (each second, only if chosen)",
    EventType.DATASET_CHANGED: "a run changed its dataset",
    EventType.RUN_HELD: "a run of a dataset is held",
    EventType.SCHEDULE_SKIPPED: "a scheduled run was skipped",
    EventType.SCHEDULE_MISSED: "a scheduled run was missed",
    EventType.SCHEDULE_LATE: "a scheduled run was made up for, late",
    EventType.NODE_DOWN: "a node is down (all users)",
    EventType.NODE_UP: "a node is up again (all users)",
    EventType.DEPLOY_LIVE: "another version of a project is live (all users)",
    EventType.DEPLOY_FAILED: "a version could not be deployed (all users)",
    EventType.ALERT_FIRING: "an alert begins",
    EventType.ALERT_STILL_FIRING: "an alert lasts (if its rule reminds)",
    EventType.ALERT_RESOLVED: "an alert is over",
    EventType.ENDPOINT_DISABLED: "another endpoint was disabled",
}
#: The events that are ticked for a new endpoint: those that need attention. With all events, each start would send a
#: message.
_FIRST_EVENTS = (EventType.JOB_PARTIAL, EventType.JOB_FAILED)
#: The words in the form for each field of the filter.
_FILTERS = {
    "projects": "Projects",
    "spiders": "Spiders",
    "sites": "Sites",
    "datasets": "Datasets",
    "schedules": "Schedule ids",
    "tags": "Tags",
    "users": "Users",
}


class EndpointsPageQuery(EndpointsQuery):
    #: The events that are ticked for a new endpoint.
    events: Annotated[list[EventType], Field(max_length=len(EventType), default_factory=lambda: [*_FIRST_EVENTS])]


@router.page("/console/endpoints")
@needs(Scope.CRAWL)
def endpoints_page(
    request: Request, query: Annotated[EndpointsPageQuery, Query()], parts: Parts, caller: Called
) -> Response:
    found = list_endpoints(EndpointsQuery(**query.model_dump(exclude={"events"})), parts, caller)
    form = _form(EndpointFilter(), first_events=query.events)
    return page(request, "endpoints/list.html", found=found, asked=query, **form)


@router.page("/console/endpoints/{endpoint_id}")
@needs(Scope.CRAWL)
def endpoint_page(
    endpoint_id: EndpointId,
    request: Request,
    query: Annotated[DeliveriesQuery, Query()],
    parts: Parts,
    caller: Called,
) -> Response:
    endpoint = get_endpoint(endpoint_id, parts, caller)
    told = list_endpoint_deliveries(endpoint_id, query, parts, caller)
    secret = _secret(endpoint_id, parts, caller)
    return page(
        request, "endpoints/one.html", told=told, asked=query, secret=secret, **_form(endpoint.filter, endpoint)
    )


def _form(
    given: EndpointFilter | CrawlFilter, endpoint: EndpointView | None = None, first_events: Sequence[EventType] = ()
) -> dict[str, Any]:
    """The context of the template of the form: for a new endpoint, or to change one."""
    return {"events": _EVENTS, "first_events": first_events, "endpoint": endpoint, **filter_form(given)}


def filter_form(given: EndpointFilter | CrawlFilter) -> dict[str, Any]:
    """The context of `endpoints/filter.html`."""
    return {"filters": _FILTERS, "given": given, "filtered": any(getattr(given, name) for name in _FILTERS)}


def _secret(endpoint_id: str, parts: GatewayParts, caller: Caller) -> str | None:
    """The endpoint's secret; `None` if it cannot be read."""
    try:
        return get_endpoint_secret(endpoint_id, parts, caller).secret
    except (ConflictError, NotFoundError, SecretsKeyError):
        return None
