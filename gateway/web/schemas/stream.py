"""The events of the event streams and their data, for `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, create_model

from gateway.contract.reasons import Reason
from gateway.jobs.job import JobStatus, WaitingReason
from gateway.schedules.schedule import ScheduleState
from gateway.web.schemas.crawl import CrawlReceipt
from gateway.web.schemas.dataset import ChangeView
from gateway.web.schemas.job import JobStatusView, ProgressView
from gateway.web.schemas.schedule import ScheduleStatusView
from gateway.web.schemas.types import Open, Timestamp

EVENT_STREAM = "text/event-stream"
_REFERENCE = "#/components/schemas/{model}"


class LogLineData(BaseModel):
    """A line of the log. A line that belongs to the line before it, such as a line of a traceback, has no time and no
    logger.
    """

    ts: str | None = Field(
        default=None,
        description="When it was written, in ISO 8601. It is as in the line, so it may be no valid time.",
    )
    level: str = Field(description="`DEBUG` to `CRITICAL`.")
    logger: str | None = None
    msg: str
    cont: bool = Field(default=False, description="Whether it belongs to the line before.")


class StatusData(BaseModel):
    """The fields that have changed. Fields without a value are left out."""

    status: JobStatus
    attempt: int
    next_run: Timestamp | None = None
    waiting_reason: Open[WaitingReason] | None = None
    reason: Open[Reason] | None = None
    message: str | None = None
    state: ScheduleState | None = Field(default=None, description="The schedule's state, if it has not run yet.")


class GapData(BaseModel):
    """Lines that cannot be sent any more: from one position to another."""

    from_: str = Field(alias="from", examples=["1-20480"])
    to: str = Field(description="The position after the last of them.", examples=["1-40960"])


class OfJob(BaseModel):
    job_id: str
    user_id: str


class JobStatusData(StatusData, OfJob):
    """A change of one of many jobs."""


class JobProgressData(ProgressView, OfJob):
    """The progress of one of many jobs."""


class SnapshotData(BaseModel):
    """The state of all jobs that the stream follows, at its beginning."""

    jobs: list[JobStatusView]


class Streamed(NamedTuple):
    """A kind of event."""

    #: Its schema's name.
    schema: str
    #: Its name in the stream.
    event: str
    #: The type of its data, which is JSON.
    data: Any
    #: Whether a stream can be resumed after it.
    has_id: bool = True


LOG = (
    Streamed("StreamedLine", "log", LogLineData),
    Streamed("StreamedStatus", "status", StatusData),
    Streamed("StreamedProgress", "progress", ProgressView),
    Streamed("StreamedGap", "gap", GapData),
    Streamed("StreamedEnd", "end", Annotated[JobStatusView | ScheduleStatusView, Field(discriminator="kind")]),
)
#: The answer to a request for a crawl, before its log.
CRAWL = (Streamed("StreamedReceipt", "job", CrawlReceipt), *LOG)
MANY_JOBS = (
    Streamed("StreamedSnapshot", "snapshot", SnapshotData, has_id=False),
    Streamed("StreamedJobStatus", "status", JobStatusData, has_id=False),
    Streamed("StreamedJobProgress", "progress", JobProgressData, has_id=False),
)
CHANGES = (Streamed("StreamedChange", "change", ChangeView),)


#: The schema of one event of a stream: as `itemSchema` of OpenAPI 3.2, which 3.1 does not know.
ITEM_SCHEMA = "x-itemSchema"


def event_content(events: tuple[Streamed, ...], example: str | None = None) -> dict[str, Any]:
    """A route's `content` for its event stream in the OpenAPI document.

    Its `schema` takes anything: some generated clients read the whole body by it, which is a text, and others the
    data of each event.
    """
    references = {one.event: _REFERENCE.format(model=one.schema) for one in events}
    item = {
        "oneOf": [{"$ref": reference} for reference in references.values()],
        "discriminator": {"propertyName": "event", "mapping": references},
    }
    described = {"schema": {}, ITEM_SCHEMA: item}
    return {EVENT_STREAM: {**described, "example": example} if example else described}


def stream_schemas() -> dict[str, Any]:
    """The schemas that `event_content` refers to, for the components of the OpenAPI document."""
    found: dict[str, Any] = {}
    for one in dict.fromkeys((*CRAWL, *MANY_JOBS, *CHANGES)):
        found |= _data_schema(one).get("$defs", {})
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": _choices(one)}}
        properties = {"event": {"const": one.event, "type": "string"}, "data": data}
        if one.has_id:
            properties["id"] = {"type": "string", "description": "`Last-Event-ID` goes on after it."}
        found[one.schema] = {
            "type": "object",
            "title": one.schema,
            "description": f"`event: {one.event}`",
            "required": ["event", "data"],
            "properties": properties,
        }
    return found


def _data_schema(one: Streamed) -> dict[str, Any]:
    around = create_model(one.schema, data=(one.data, ...))
    return around.model_json_schema(mode="serialization", ref_template=_REFERENCE)


def _choices(one: Streamed) -> list[dict[str, Any]]:
    of_data = _data_schema(one)["properties"]["data"]
    choices: list[dict[str, Any]] = of_data.get("oneOf", [of_data])
    return choices
