"""`/endpoints`: receivers of events, and the outcome of each call."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Path, Query, Request

from gateway.access.keys import Caller, Scope
from gateway.errors import ConflictError, DeliveryNotFoundError, InvalidRequestError, ScopeMissingError
from gateway.jobs.job import Job
from gateway.jobs.store import JobStore
from gateway.signals.delivery_store import DeliveryStore
from gateway.signals.endpoints import Endpoint, EndpointFilter, EndpointFormat, Endpoints, EndpointStore, secret_name
from gateway.signals.signatures import WebhookSecrets
from gateway.stores.mongo import Document, mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import problems
from gateway.web.middleware import note_changes
from gateway.web.routes.webhooks import SecretRequest, WebhookSecretView
from gateway.web.schemas.endpoint import (
    DeliveriesQuery,
    DeliveryPage,
    DeliveryView,
    EndpointCreate,
    EndpointPage,
    EndpointsQuery,
    EndpointUpdate,
    EndpointView,
    MadeEndpoint,
    ResendRequest,
    Resent,
    WholeDelivery,
)

router = Router(prefix="/endpoints", tags=["webhooks"])
job_router = Router(prefix="/jobs", tags=["webhooks"])

_HEX = "^[0-9a-f]{32}$"
EndpointId = Annotated[
    str, Path(description="As `GET /endpoints` has it.", pattern=_HEX, examples=["7d0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"])
]
DeliveryId = Annotated[
    str,
    Path(
        description="The id that the list of deliveries shows.",
        pattern=_HEX,
        examples=["9a0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"],
    ),
]


@router.get("", summary="List endpoints", responses=problems(503))
@needs(Scope.CRAWL)
def list_endpoints(query: Annotated[EndpointsQuery, Query()], parts: Parts, caller: Called) -> EndpointPage:
    """Newest first. Pass `next` as `after` for the page that follows."""
    with mongo_errors():
        found, following = parts[EndpointStore].page(caller.only(query.user_id), query.limit, query.after)
    return EndpointPage(endpoints=list(map(EndpointView.of, found)), next=following)


@router.post("", status_code=201, summary="Make an endpoint", responses=problems(409, 413, 503))
@needs(Scope.CRAWL)
def create_endpoint(body: EndpointCreate, parts: Parts, caller: Called) -> MadeEndpoint:
    """From now on the endpoint's URL is called for each event of its types. Calls are signed with its `secret`."""
    if body.all_users and Scope.ADMIN not in caller.scopes:
        raise ScopeMissingError(Scope.ADMIN)
    fields = body.model_dump(include={"description", "paused"}, exclude_none=True)
    made, secret = parts[Endpoints].make(
        caller.asking(body.user_id),
        body.url,
        events=tuple(event.value for event in body.events),
        filter=EndpointFilter(**body.filter.model_dump()),
        format=body.format or EndpointFormat.of_address(body.url),
        of_all_users=body.all_users or None,
        **fields,
    )
    return MadeEndpoint.of(made, secret=secret.secret if secret else None)


@router.get("/{endpoint_id}", summary="An endpoint", responses=problems(404, 503))
@needs(Scope.CRAWL)
def get_endpoint(endpoint_id: EndpointId, parts: Parts, caller: Called) -> EndpointView:
    """Without its secret."""
    return EndpointView.of(_endpoint(endpoint_id, parts, caller))


@router.patch("/{endpoint_id}", summary="Change an endpoint", responses=problems(404, 413, 503))
@needs(Scope.CRAWL)
def update_endpoint(
    endpoint_id: EndpointId, body: EndpointUpdate, request: Request, parts: Parts, caller: Called
) -> EndpointView:
    """While an endpoint is `paused`, its deliveries are kept as `skipped`; `POST …/deliveries/resend` sends them."""
    fields = body.model_dump(mode="json", exclude_unset=True)
    gone = [name for name, value in fields.items() if value is None]
    if refused := set(gone) - {"description"}:
        raise InvalidRequestError(min(refused), "must not be null")
    changed = {name: value for name, value in fields.items() if value is not None}
    endpoint = _endpoint(endpoint_id, parts, caller)
    before, after = map(EndpointView.of, (endpoint, parts[Endpoints].change(endpoint, changed, gone)))
    # the path of many a URL is its password
    note_changes(request, before, after, secret=["url"])
    return after


@router.delete("/{endpoint_id}", status_code=204, summary="Delete an endpoint", responses=problems(404, 503))
@needs(Scope.CRAWL)
def delete_endpoint(endpoint_id: EndpointId, parts: Parts, caller: Called) -> None:
    """Deletes the endpoint with its deliveries, also with those that are still to be made."""
    parts[Endpoints].delete(_endpoint(endpoint_id, parts, caller))


@router.post("/{endpoint_id}/test", summary="Call an endpoint to try it", responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def test_endpoint(endpoint_id: EndpointId, parts: Parts, caller: Called) -> DeliveryView:
    """Calls the endpoint with an event `endpoint.test`. `GET …/deliveries/{delivery_id}` shows the outcome."""
    return DeliveryView.of(parts[Endpoints].test(_endpoint(endpoint_id, parts, caller)))


def _endpoint(endpoint_id: str, parts: GatewayParts, caller: Caller) -> Endpoint:
    """The endpoint. Raises `ScopeMissingError` if it receives events of all users' crawls and the caller may not see
    them.
    """
    found = parts[Endpoints].get(endpoint_id)
    if found.of_all_users and Scope.ADMIN not in caller.scopes:
        raise ScopeMissingError(Scope.ADMIN)
    return found


# --- its secret


@router.get("/{endpoint_id}/secret", summary="With what its calls are signed", responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def get_endpoint_secret(endpoint_id: EndpointId, parts: Parts, caller: Called) -> WebhookSecretView:
    """The secret that its calls are signed with."""
    endpoint = _signing(endpoint_id, parts, caller)
    known = parts[WebhookSecrets].get(secret_name(endpoint.id))
    return WebhookSecretView.of(known.model_copy(update={"user_id": endpoint.user_id}))


@router.post(
    "/{endpoint_id}/secret", status_code=201, summary="Make its next secret", responses=problems(404, 409, 413, 503)
)
@needs(Scope.CRAWL)
def renew_endpoint_secret(
    endpoint_id: EndpointId, parts: Parts, caller: Called, body: SecretRequest | None = None
) -> WebhookSecretView:
    """For `keep_hours` hours, calls are signed with the old secret, too."""
    endpoint = _signing(endpoint_id, parts, caller)
    keep = timedelta(hours=(body or SecretRequest()).keep_hours)
    made = parts[WebhookSecrets].renew(secret_name(endpoint.id), keep)
    return WebhookSecretView.of(made.model_copy(update={"user_id": endpoint.user_id}))


def _signing(endpoint_id: str, parts: GatewayParts, caller: Caller) -> Endpoint:
    """An endpoint whose calls are signed. Raises `ConflictError` for an Apprise endpoint: its secret is its address,
    which is never shown.
    """
    endpoint = _endpoint(endpoint_id, parts, caller)
    if endpoint.format is EndpointFormat.APPRISE:
        raise ConflictError("its calls are not signed: its address is its secret, and is not shown")
    return endpoint


# --- deliveries


@router.get("/{endpoint_id}/deliveries", summary="What it was told", responses=problems(404, 503))
@needs(Scope.CRAWL)
def list_endpoint_deliveries(
    endpoint_id: EndpointId, query: Annotated[DeliveriesQuery, Query()], parts: Parts, caller: Called
) -> DeliveryPage:
    """The deliveries with the outcome of each call, newest first. Pass `next` as `after` for the next page."""
    return _page({"endpoint_id": _endpoint(endpoint_id, parts, caller).id}, query, parts)


@router.get("/{endpoint_id}/deliveries/{delivery_id}", summary="One delivery", responses=problems(404, 503))
@needs(Scope.CRAWL)
def get_endpoint_delivery(
    endpoint_id: EndpointId, delivery_id: DeliveryId, parts: Parts, caller: Called
) -> WholeDelivery:
    """The delivery, with the body of the call."""
    endpoint = _endpoint(endpoint_id, parts, caller)
    with mongo_errors():
        found = parts[DeliveryStore].get(delivery_id)
    if found is None or found.endpoint_id != endpoint.id:
        raise DeliveryNotFoundError(delivery_id)
    return WholeDelivery.whole(found)


@router.post(
    "/{endpoint_id}/deliveries/resend", summary="Send deliveries again", responses=problems(404, 409, 413, 503)
)
@needs(Scope.CRAWL)
def resend_endpoint_deliveries(endpoint_id: EndpointId, body: ResendRequest, parts: Parts, caller: Called) -> Resent:
    """Repeated deliveries keep their `webhook-id`, so that a receiver recognises those that it already has."""
    endpoint = _endpoint(endpoint_id, parts, caller)
    return Resent(resent=parts[Endpoints].send_again(endpoint, **dict(body)))


@job_router.get("/{job_id}/deliveries", summary="Who was told of a job", responses=problems(404, 503))
@needs(Scope.CRAWL)
def list_job_deliveries(
    job_id: JobId, query: Annotated[DeliveriesQuery, Query()], parts: Parts, caller: Called
) -> DeliveryPage:
    """The calls of the job's own webhooks and of its user's endpoints, newest first."""
    return _page(_about(parts[JobStore].get(job_id), caller), query, parts)


@job_router.get(
    "/{job_id}/deliveries/{delivery_id}", summary="One delivery about a job", responses=problems(404, 503)
)
@needs(Scope.CRAWL)
def get_job_delivery(job_id: JobId, delivery_id: DeliveryId, parts: Parts, caller: Called) -> WholeDelivery:
    """The delivery, with the body of the call."""
    with mongo_errors():
        about, found = parts[JobStore].get(job_id).id, parts[DeliveryStore].get(delivery_id)
    if found is None or found.job_id != about or not caller.may_see(found.user_id):
        raise DeliveryNotFoundError(delivery_id)
    return WholeDelivery.whole(found)


@job_router.post("/{job_id}/deliveries/resend", summary="Tell of a job again", responses=problems(404, 413, 503))
@needs(Scope.CRAWL)
def resend_job_deliveries(job_id: JobId, body: ResendRequest, parts: Parts, caller: Called) -> Resent:
    """Repeated deliveries keep their `webhook-id`, so that a receiver recognises those that it already has."""
    about = _about(parts[JobStore].get(job_id), caller)
    return Resent(resent=parts[Endpoints].again(about, **dict(body)))


def _about(job: Job, caller: Caller) -> Document:
    mine = {"user_id": caller.user_id} if caller.user_id is not None else {}
    return {"job_id": job.id, **mine}


def _page(of: Document, query: DeliveriesQuery, parts: GatewayParts) -> DeliveryPage:
    wanted = [of, *({name: value} for name in ("state", "type") if (value := getattr(query, name)) is not None)]
    with mongo_errors():
        found, following = parts[DeliveryStore].page(wanted, query.limit, query.after)
    return DeliveryPage(deliveries=list(map(DeliveryView.of, found)), next=following)
