"""What the gateway says, as objects. Fields that this release does not know are kept: `record.field`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from inspect import get_annotations
from typing import Any, ClassVar, NamedTuple, Self


class Record:
    """One JSON object. Annotated fields that the answer lacks are `None`. Times are `datetime`s as attributes, and
    text in `raw`.
    """

    _times: ClassVar[frozenset[str]] = frozenset()
    _known: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = dict(data)

    @property
    def raw(self) -> dict[str, Any]:
        """The object as it came."""
        return self._data

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = get_annotations(cls)
        cls._known = cls._known | {name for name in own if not name.startswith("_")}
        cls._times = cls._times | {name for name, kind in own.items() if "datetime" in str(kind)}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._data and name not in self._known:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        value = self._data.get(name)
        return datetime.fromisoformat(value) if name in self._times and isinstance(value, str) else value

    def __getitem__(self, name: str) -> Any:
        return self._data[name]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._data!r})"


#: Statuses of jobs that have ended.
FINAL = frozenset({"finished", "partial", "error", "cancelled"})


class JobRecord(Record):
    """`GET /jobs/{id}`, or a line of `GET /jobs`, which has fewer fields."""

    job_id: str
    status: str
    spider: str | None
    version: str | None
    user_id: str | None
    attempt: int
    node: str | None
    waiting_reason: str | None
    queue_position: int | None
    next_run: datetime | None
    schedule_id: str | None
    requested_pages: int
    completed_pages: int
    items_count: int
    errors_count: int
    pages_per_s: float
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    message: str | None
    dead: bool
    tags: list[str] | None
    page_url: str | None


#: What a job is before more is known of it.
NEW_JOB: dict[str, Any] = {
    "status": "pending",
    "attempt": 0,
    "requested_pages": 0,
    "completed_pages": 0,
    "items_count": 0,
    "errors_count": 0,
    "pages_per_s": 0.0,
    "dead": False,
}


class LogLine(NamedTuple):
    """A line of a log, or of one that was removed (`is_gap`): then `msg` says from where to where."""

    msg: str
    level: str
    #: Follow again after this line: `job.follow(after=line.id)`.
    id: str
    ts: datetime | None = None
    logger: str | None = None
    #: It belongs to the line before, as a traceback's do.
    cont: bool = False
    is_gap: bool = False

    @classmethod
    def of(cls, event: Event) -> Self:
        data = event.data
        if event.name == "gap":
            return cls(f"lines from {data['from']} to {data['to']} are not kept", "WARNING", event.id, is_gap=True)
        ts = datetime.fromisoformat(data["ts"]) if data.get("ts") else None
        return cls(data["msg"], data["level"], event.id, ts, data.get("logger"), bool(data.get("cont")))

    def __str__(self) -> str:
        return self.msg if self.cont or self.ts is None else f"{self.ts:%H:%M:%S} {self.level:<8} {self.msg}"


class Event(NamedTuple):
    """An event of a stream: `log`, `status`, `progress`, `gap`, `end`; or `change` of a dataset."""

    name: str
    #: The stream goes on after it.
    id: str
    data: dict[str, Any]


class ScheduleRecord(Record):
    schedule_id: str
    user_id: str
    name: str | None
    state: str
    interval: str | None
    timezone: str | None
    next_run: datetime | None
    runs: int
    rev: int
    page_url: str | None


class SpiderRecord(Record):
    name: str
    project: str
    version: str | None
    params_schema: dict[str, Any] | None


class FileRecord(Record):
    """A file that a crawl has written."""

    #: Its path below the folder that the spider works in.
    name: str
    size: int
    type: str
    sha256: str
    attempt: int


class DatasetRecord(Record):
    name: str
    user_id: str
    key: list[str]
    last_seq: int


class DatasetItem(Record):
    """An item of a dataset, and what is known of it."""

    item: dict[str, Any]
    key: dict[str, Any]
    key_hash: str
    seq: int
    first_seen: datetime
    changed_at: datetime


class Change(Record):
    """What a run has found out of one item."""

    #: `new`, `changed` or `removed`.
    type: str
    id: str
    seq: int
    item: dict[str, Any]
    key: dict[str, Any]
    changes: dict[str, Any] | None
    run: str
    at: datetime


class EndpointRecord(Record):
    endpoint_id: str
    url: str
    events: list[str]
    paused: bool
    disabled_at: datetime | None
    #: Only of one that was just made.
    secret: str | None


class DeliveryRecord(Record):
    """A call of an endpoint."""

    delivery_id: str
    type: str
    state: str
    job_id: str | None


class ProjectRecord(Record):
    name: str
    latest: str | None
