"""The bodies that endpoints get, as `/openapi.json` describes them under `webhooks`."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.contract.reasons import Reason
from gateway.signals.alert_rules import Grouping
from gateway.signals.events import ALERTS, EventType
from gateway.web.schemas.types import Open, Timestamp

_JOB: JsonDict = {
    "job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "seq": 2,
    "user_id": "abc123",
    "project": "shop",
    "version": "2.0",
    "spider": "prices",
    "start_url": "https://shop.example.com/",
    "schedule_id": "0b0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "tags": ["nightly"],
    "status": "error",
    "attempt": 1,
    "reason": "too_many_errors",
    "message": "120 of 400 pages failed",
    "started_at": "2027-06-01T09:00:01.000Z",
    "finished_at": "2027-06-01T09:03:41.000Z",
    "duration_seconds": 220.0,
    "completed_pages": 280,
    "items_count": 270,
    "errors_count": 120,
    "page_url": "https://crawls.example.com/console/jobs/5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
}
_RUN: JsonDict = {"status": "dataset_changed", "items": 270, "new": 4, "changed": 31, "removed": 2, "last_seq": 2211}
_ITEMS: JsonDict = {
    "job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "user_id": "abc123",
    "project": "shop",
    "spider": "prices",
    "attempt": 1,
    "items_count": 270,
    "items_url": "https://crawls.example.com/jobs/5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a/items?attempt=1",
    "page_url": "https://crawls.example.com/console/jobs/5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
}
_SCHEDULE: JsonDict = {
    "schedule_id": "0b0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "user_id": "abc123",
    "name": "prices each morning",
    "project": "shop",
    "spider": "prices",
    "due": "2027-06-01T09:00:00.000Z",
    "message": "the previous run is not over",
    "page_url": "https://crawls.example.com/console/schedules/0b0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
}
_NODE: JsonDict = {
    "node": "n1",
    "since": "2027-06-01T09:00:00.000Z",
    "message": "it has given no sign of life since 2027-06-01 09:00:00 UTC",
    "page_url": "https://crawls.example.com/console/nodes",
}
_DEPLOY: JsonDict = {
    "project": "shop",
    "version": "1.5",
    "node": "n1",
    "reason": "requirements_unmet",
    "message": "the requirements cannot be met: the node's index has no itemloader",
    "page_url": "https://crawls.example.com/console/projects/shop",
}
_ALERT: JsonDict = {
    "alert_id": "3e0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "rule_id": "crawl-failed",
    "rule": "a crawl failed",
    "user_id": "abc123",
    "group_by": "spider",
    "group": "shop/prices",
    "project": "shop",
    "spider": "prices",
    "job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "since": "2027-06-01T09:03:41.000Z",
    "duration_seconds": 0.4,
    "message": "failed: 120 of 400 pages failed",
    "page_url": "https://crawls.example.com/console/jobs/5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
}
_ENDPOINT: JsonDict = {
    "endpoint_id": "7d0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "user_id": "abc123",
    "message": "every call has failed for 5 days, the last: answered 503",
}


class JobEventData(BaseModel, json_schema_extra={"examples": [_JOB]}):
    """The facts about the job at the time of the event. Fields without a value are left out."""

    job_id: str
    seq: int = Field(description="The number of the event within the job; calls may arrive in another order.")
    user_id: str
    project: str
    version: str | None = None
    spider: str
    start_url: str | None = None
    site: str | None = None
    dataset: str | None = None
    schedule_id: str | None = None
    tags: list[str] = []
    status: str = Field(
        description="The job's at its end; otherwise `started`, `paused`, `retried`, `dataset_changed` or `run_held`."
    )
    attempt: int
    reason: Open[Reason] | None = None
    message: str | None = None
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    duration_seconds: float | None = None
    completed_pages: int | None = None
    items_count: int | None = None
    errors_count: int | None = None
    page_url: str = Field(description="The job, or the dataset's run, in the console.")


class RunEventData(JobEventData, json_schema_extra={"examples": [{**_JOB, **_RUN}]}):
    """A run of a dataset: its job, and for `dataset.changed` the numbers of its changes."""

    items: int | None = Field(default=None, description="Items that the run has found.")
    new: int | None = None
    changed: int | None = None
    removed: int | None = None
    last_seq: int | None = Field(
        default=None, description="The number of its last change: changes of this run are up to there."
    )


class ItemsEventData(BaseModel, json_schema_extra={"examples": [_ITEMS]}):
    """How many items a running job has. The items themselves can be read at `items_url`."""

    job_id: str
    user_id: str
    project: str
    version: str | None = None
    spider: str
    site: str | None = None
    dataset: str | None = None
    schedule_id: str | None = None
    tags: list[str] = []
    attempt: int
    items_count: int
    items_url: str = Field(description="`GET /jobs/{job_id}/items`; go on with the `after` of the answer before.")
    page_url: str = Field(description="The job in the console.")


class ScheduleEventData(BaseModel, json_schema_extra={"examples": [_SCHEDULE]}):
    """An occurrence of a schedule that did not run, or ran late."""

    schedule_id: str
    user_id: str
    name: str | None = None
    project: str | None = None
    spider: str | None = None
    site: str | None = None
    due: Timestamp
    more: int | None = Field(default=None, description="How many later ones did not run together with it.")
    late_by_seconds: float | None = Field(default=None, description="How late it ran.")
    job_id: str | None = Field(default=None, description="The job of the run that was late.")
    message: str | None = None
    page_url: str = Field(description="The schedule in the console.")


class NodeEventData(BaseModel, json_schema_extra={"examples": [_NODE]}):
    """The node that an event is about."""

    node: str
    since: Timestamp = Field(description="The node's last sign of life before it was down.")
    message: str
    page_url: str = Field(description="The nodes in the console.")


class DeployEventData(BaseModel, json_schema_extra={"examples": [_DEPLOY]}):
    """A version that has become the latest of its project, or that a node refuses."""

    project: str
    version: str
    node: str | None = Field(default=None, description="The node that does not take it.")
    reason: Open[Reason] | None = None
    message: str | None = None
    page_url: str = Field(description="The project in the console.")


class EndpointEventData(BaseModel, json_schema_extra={"examples": [_ENDPOINT]}):
    """The endpoint that an event is about."""

    endpoint_id: str
    user_id: str
    message: str


class AlertEventData(BaseModel, json_schema_extra={"examples": [_ALERT]}):
    """An alert: the state of one rule for one group, such as a spider."""

    alert_id: str
    rule_id: str
    rule: str = Field(description="The name of the rule.")
    user_id: str | None = Field(
        default=None, description="Missing for an alert about the platform, such as about a node."
    )
    group_by: Open[Grouping]
    group: str = Field(description="The group of the alert, such as `shop/prices`, a schedule's id, or a node.")
    name: str | None = Field(default=None, description="The group in words, where it is an id.")
    project: str | None = None
    spider: str | None = None
    site: str | None = None
    dataset: str | None = None
    schedule_id: str | None = None
    tags: list[str] = []
    job_id: str | None = Field(default=None, description="The last run that it is about.")
    since: Timestamp
    until: Timestamp | None = Field(default=None, description="When it ended, of `alert.resolved`.")
    duration_seconds: float = Field(description="For how long it has been so, or was.")
    message: str
    page_url: str = Field(description="The job, or the alerts, in the console.")


class EventBody(BaseModel):
    type: Open[EventType]
    timestamp: Timestamp = Field(description="When it happened, or was found.")


class JobEventBody(EventBody):
    """An event of a job, as endpoints are called with it."""

    data: JobEventData


class RunEventBody(EventBody):
    """An event of a dataset's run, as endpoints are called with it."""

    data: RunEventData


class ItemsEventBody(EventBody):
    """An event about new items, as endpoints are called with it."""

    data: ItemsEventData


class ScheduleEventBody(EventBody):
    """An event of a schedule, as endpoints are called with it."""

    data: ScheduleEventData


class NodeEventBody(EventBody):
    """An event of a node, as endpoints are called with it."""

    data: NodeEventData


class DeployEventBody(EventBody):
    """An event of a deployment, as endpoints are called with it."""

    data: DeployEventData


class AlertEventBody(EventBody):
    """An event of an alert, as endpoints are called with it."""

    data: AlertEventData


class EndpointEventBody(EventBody):
    """An event of an endpoint itself, as endpoints are called with it."""

    data: EndpointEventData


#: By event: the model of its body.
BODIES: dict[EventType, type[EventBody]] = {
    **dict.fromkeys(EventType, JobEventBody),
    EventType.ITEMS_BATCH: ItemsEventBody,
    **dict.fromkeys((EventType.DATASET_CHANGED, EventType.RUN_HELD), RunEventBody),
    **dict.fromkeys(
        (EventType.SCHEDULE_SKIPPED, EventType.SCHEDULE_MISSED, EventType.SCHEDULE_LATE), ScheduleEventBody
    ),
    **dict.fromkeys((EventType.NODE_DOWN, EventType.NODE_UP), NodeEventBody),
    **dict.fromkeys((EventType.DEPLOY_LIVE, EventType.DEPLOY_FAILED), DeployEventBody),
    **dict.fromkeys(ALERTS, AlertEventBody),
    **dict.fromkeys((EventType.ENDPOINT_DISABLED, EventType.TEST), EndpointEventBody),
}


def described_events() -> APIRouter:
    """The events as routes for the documentation. They describe calls of receivers, and are not routes of the
    gateway.
    """
    router = APIRouter(tags=["webhooks"])
    for kind, body in BODIES.items():

        def call(body: BaseModel) -> None:
            """Answer with 2xx within ten seconds. The call is signed by Standard Webhooks."""

        call.__annotations__ = {"body": body, "return": None}
        router.add_api_route(
            kind.value,
            call,
            methods=["POST"],
            name=kind.value,
            operation_id=f"on_{kind.value.replace('.', '_')}",
            summary=kind.value.replace(".", " "),
            status_code=204,
        )
    return router
