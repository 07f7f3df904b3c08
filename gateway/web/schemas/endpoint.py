"""How the API shows endpoints and their deliveries."""

from __future__ import annotations

from typing import Annotated, Any, Self

import orjson
from pydantic import BaseModel, Field, model_validator
from pydantic.config import JsonDict

from gateway.signals.delivery_store import Delivery, DeliveryState, DeliveryTry
from gateway.signals.endpoints import Endpoint, EndpointFormat
from gateway.signals.events import EventType
from gateway.web.schemas.types import (
    Body,
    Cursor,
    Name,
    Open,
    QueryModel,
    QueryTime,
    Tag,
    Text,
    Timestamp,
    UrlText,
    UserId,
)

_ID = "7d0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_URL = "https://hooks.example.com/crawls"
_FILTER: JsonDict = {"projects": ["shop"], "tags": ["nightly"]}
_WISH: JsonDict = {"url": _URL, "events": ["job.failed", "job.partial"], "filter": _FILTER}
_ENDPOINT: JsonDict = {
    "endpoint_id": _ID,
    "user_id": "abc123",
    "url": _URL,
    "description": "the channel of the shop's crawls",
    "events": ["job.failed", "job.partial"],
    "filter": _FILTER,
    "format": "standard",
    "all_users": False,
    "paused": False,
    "disabled_at": None,
    "disabled_reason": None,
    "failing_since": None,
    "created_at": "2027-06-01T09:00:00.000Z",
}
_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="  # noqa: S105 - an example
_JOB_ID = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_TRY: JsonDict = {
    "at": "2027-06-01T09:00:01.000Z",
    "seconds": 0.12,
    "status": 503,
    "problem": "answered 503",
    "answer": "try again later",
}
_DELIVERY: JsonDict = {
    "delivery_id": "9a0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "message_id": "msg_1b0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "type": "job.failed",
    "endpoint_id": _ID,
    "job_id": _JOB_ID,
    "url": _URL,
    "state": "pending",
    "created_at": "2027-06-01T09:00:00.000Z",
    "next_try": "2027-06-01T09:00:06.000Z",
    "tries": 1,
    "calls": [_TRY],
}
_BODY: JsonDict = {
    "type": "job.failed",
    "timestamp": "2027-06-01T09:00:00.000Z",
    "data": {"job_id": _JOB_ID, "seq": 2, "spider": "prices", "reason": "http_errors", "message": "12 of 400 pages"},
}


Few: Any = Field(default_factory=list, max_length=50)
ScheduleId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class CrawlFilter(Body, json_schema_extra={"examples": [_FILTER]}):
    """Which crawls the endpoint receives events of. A crawl must have one of the values of each given field."""

    projects: list[Name] = Few
    spiders: list[Name] = Few
    sites: list[Name] = Few
    datasets: list[Name] = Few
    schedules: list[ScheduleId] = Few
    tags: list[Tag] = Few
    users: list[UserId] = Few


Description = Annotated[Text, Field(max_length=200)]
Events = Annotated[list[EventType], Field(max_length=50)]


class EndpointCreate(Body, json_schema_extra={"examples": [_WISH]}):
    """A new endpoint: its address, and the events that it is called with."""

    url: UrlText = Field(description="The URL to call, with POST.")
    user_id: UserId | None = Field(default=None, description="Whose endpoint; by default the caller's.")
    description: Description | None = None
    events: Events = Field(default=[], description="The events to receive; by default all.")
    filter: CrawlFilter = CrawlFilter()
    format: EndpointFormat | None = Field(
        default=None,
        description="By default `slack` if the URL is an incoming webhook of Slack or of what takes the same, "
        "else `standard`. "
        "`slack`: a sentence with a link, for an incoming webhook of Slack, Mattermost, Rocket.Chat, or "
        "Discord (its URL with `/slack`). `apprise`: a title and a text, for a service that Apprise knows: `url` is "
        "Apprise's, such as `mailtos://user:password@example.com`, and is never shown again.",
    )
    all_users: bool = Field(
        default=False, strict=True, description="Receive events of all users' crawls; for admins."
    )
    paused: bool = Field(default=False, strict=True)


class EndpointUpdate(Body, json_schema_extra={"examples": [{"paused": False}]}):
    """What is to be changed of an endpoint."""

    url: UrlText | None = None
    description: Description | None = None
    events: Events | None = None
    filter: CrawlFilter | None = None
    format: EndpointFormat | None = Field(default=None, description="Of what happens from now on.")
    paused: bool | None = Field(
        default=None, strict=True, description="`false` also has one called again that was disabled."
    )


class EndpointView(BaseModel, json_schema_extra={"examples": [_ENDPOINT]}):
    """A receiver of events."""

    endpoint_id: str
    user_id: str
    url: str
    description: str | None
    events: list[str] = Field(description="Empty: all of them.")
    filter: CrawlFilter
    format: Open[EndpointFormat]
    all_users: bool
    paused: bool
    disabled_at: Timestamp | None = Field(description="Since when the platform calls it no more.")
    disabled_reason: str | None
    failing_since: Timestamp | None = Field(description="Since when every call has failed.")
    created_at: Timestamp

    @classmethod
    def of(cls, endpoint: Endpoint, /, **more: str | None) -> Self:
        shown = endpoint.model_dump(include=set(cls.model_fields))
        shown |= {"endpoint_id": endpoint.id, "all_users": bool(endpoint.of_all_users)}
        return cls.model_validate({**shown, **more})


class MadeEndpoint(EndpointView, json_schema_extra={"examples": [{**_ENDPOINT, "secret": _SECRET}]}):
    """An endpoint that was just made, with its secret."""

    secret: str | None = Field(
        description="The secret that signs calls; `GET …/secret` shows it again. `null` with the format `apprise`."
    )


class EndpointPage(BaseModel):
    """A page of endpoints."""

    endpoints: list[EndpointView]
    next: str | None = Field(description="The `after` of the next page; `null` on the last one.")


class EndpointsQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="Only endpoints of this user.")
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")


class DeliveryTryView(BaseModel, json_schema_extra={"examples": [_TRY]}):
    """A try of a call, and its answer."""

    at: Timestamp
    seconds: float
    status: int | None = Field(description="Of the answer, if there was one.")
    problem: str | None = Field(description="Why it failed.")
    answer: str | None = Field(description="The beginning of the answer's body, up to 1 KB.")

    @classmethod
    def of(cls, made: DeliveryTry) -> DeliveryTryView:
        return cls(**made.model_dump())


class DeliveryView(BaseModel, json_schema_extra={"examples": [_DELIVERY]}):
    """The call of an endpoint, and what came of it."""

    delivery_id: str
    message_id: str = Field(description="The `webhook-id` of each of its calls.")
    type: str
    endpoint_id: str | None = Field(description="`null` for a webhook that was named with the crawl.")
    job_id: str | None
    url: str = Field(description="The endpoint's URL at the time of the event.")
    state: DeliveryState = Field(
        description="`failed`: no try was answered well; `refused`: the receiver wants no further call (410); "
        "`skipped`: its endpoint was paused or disabled."
    )
    created_at: Timestamp
    next_try: Timestamp | None
    tries: int = Field(description="Since it was made, or since it was last sent again.")
    calls: list[DeliveryTryView] = Field(description="The last 20, the newest last.")

    @classmethod
    def of(cls, delivery: Delivery, /, **more: Any) -> Self:
        shown = delivery.model_dump(include=set(cls.model_fields) - {"calls"})
        shown |= {"delivery_id": delivery.id, "calls": list(map(DeliveryTryView.of, delivery.calls))}
        shown["next_try"] = delivery.due_at if delivery.state is DeliveryState.PENDING else None
        return cls(**{**shown, **more})


class WholeDelivery(DeliveryView, json_schema_extra={"examples": [{**_DELIVERY, "body": _BODY}]}):
    """A call with its body and all of its tries."""

    body: dict[str, Any] = Field(description="The body of the call.")

    @classmethod
    def whole(cls, delivery: Delivery) -> WholeDelivery:
        return cls.of(delivery, body=orjson.loads(delivery.body))


class DeliveryPage(BaseModel):
    """A page of an endpoint's calls."""

    deliveries: list[DeliveryView]
    next: str | None = Field(description="The `after` of the next page; `null` on the last one.")


class DeliveriesQuery(QueryModel):
    state: DeliveryState | None = Field(default=None, description="Only deliveries in this state.")
    type: Annotated[str, Field(pattern=r"^[a-z]+\.[a-z_]+$")] | None = Field(
        default=None, description="Only those about such events; `job.ended` are those of a `webhook_url`."
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")


class ResendRequest(Body, json_schema_extra={"examples": [{"missing": True, "since": "2027-06-01T09:00:00Z"}]}):
    """Which deliveries are sent again. Deliveries that still have a call to come are left out."""

    deliveries: Annotated[list[Annotated[str, Field(pattern="^[0-9a-f]{32}$")]], Field(max_length=200)] = Field(
        default=[], description="These."
    )
    since: QueryTime | None = Field(default=None, description="Deliveries made at or after this time.")
    missing: bool = Field(
        default=False, strict=True, description="Only those that the receiver has not got; without `since` all such."
    )

    @model_validator(mode="after")
    def _say_which(self) -> Self:
        if not self.deliveries and self.since is None and not self.missing:
            raise ValueError("say which: `deliveries`, `since` or `missing`")
        return self


class Resent(BaseModel, json_schema_extra={"examples": [{"resent": 3}]}):
    """How many calls will be made again."""

    resent: int = Field(description="How many are called once more, 10,000 at most.")
