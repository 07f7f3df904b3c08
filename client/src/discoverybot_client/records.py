"""What the gateway says, as objects. Fields that this release does not know are kept: `record["field"]`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self


class Record:
    """One JSON object. Annotated fields that the answer lacks are `None`. Times are `datetime`s as attributes, and
    text in `raw`.
    """

    _times: ClassVar[frozenset[str]] = frozenset()
    _known: ClassVar[frozenset[str]] = frozenset()
    #: The fields that name one among all of its kind; without them, only an object itself is equal to it.
    _names: ClassVar[tuple[str, ...]] = ()
    #: What else people see of it; without both, all.
    _shows: ClassVar[tuple[str, ...]] = ()

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

    if not TYPE_CHECKING:  # what is misspelt would have a type, too

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            if name not in self._data and name not in self._known:
                raise AttributeError(f"{type(self).__name__} has no {name!r}")
            value = self._data.get(name)
            return datetime.fromisoformat(value) if name in self._times and isinstance(value, str) else value

    def __getitem__(self, name: str) -> Any:
        return self._data[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._known, *self._data})

    def __eq__(self, other: object) -> bool:
        if not (self._names and isinstance(other, Record) and type(other) is type(self)):
            return NotImplemented
        return self._named() == other._named()

    def __hash__(self) -> int:
        return hash((type(self), *self._named())) if self._names else super().__hash__()

    def __repr__(self) -> str:
        shown = [f"{name}={self._data.get(name)!r}" for name in self._shows]
        what = [*map(repr, self._named()), *shown] or [repr(self._data)]
        return f"{type(self).__name__}({', '.join(what)})"

    def _named(self) -> tuple[Any, ...]:
        return tuple(self._data.get(name) for name in self._names)


#: Statuses of jobs that have ended.
FINAL = frozenset({"finished", "partial", "error", "cancelled"})


class JobRecord(Record):
    """`GET /jobs/{id}`, or a line of `GET /jobs`, which has fewer fields."""

    _names = ("job_id",)
    _shows = ("status",)

    job_id: str
    status: str
    spider: str | None
    version: str | None
    max_items: int | None
    attempt: int
    spider_job_id: str | None
    node: str | None
    waiting_reason: str | None
    queue_position: int | None
    not_before: datetime | None
    next_run: datetime | None
    schedule_id: str | None
    slot: Any
    site: str | None
    trigger: str | None
    requested_pages: int
    completed_pages: int
    items_count: int
    errors_count: int
    pages_per_s: float
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    pause_requested_at: datetime | None
    expires_at: datetime | None
    reason: str | None
    message: str | None
    dead: bool
    kind: str | None
    user_id: str | None
    spec: Any
    tags: list[str] | None
    priority: int | None
    max_retries: int | None
    failures: int | None
    webhooks: list[str] | None
    webhooks_delivered: list[str] | None
    webhook_message: str | None
    retry_of: str | None
    target: Any
    correlation_id: str | None
    updated_at: datetime | None
    attempts: list[dict[str, Any]] | None
    logs_url: str | None
    items_url: str | None
    files_url: str | None
    page_url: str | None
    new_errors: int | None
    advice: Any
    logs_removed_at: datetime | None
    items_removed_at: datetime | None


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
    _names = ("schedule_id",)
    _shows = ("name", "interval", "state")

    schedule_id: str
    user_id: str
    name: str | None
    state: str
    message: str | None
    interval: str
    timezone: str
    schedule_at: datetime
    ends_at: datetime | None
    jitter: float | None
    overlap: str
    catch_up: str
    max_runs: int | None
    next_run: datetime | None
    runs: int
    last_run_at: datetime | None
    last_job_id: str | None
    rev: int
    spider: str | None
    start_urls: list[str]
    start_urls_count: int
    tags: list[str]
    site: str | None
    target: str | None
    created_at: datetime
    updated_at: datetime
    status_url: str
    logs_url: str
    items_url: str
    page_url: str
    crawl: Any


class SpiderRecord(Record):
    _names = ("project", "version", "name")

    project: str
    version: str | None
    latest: bool
    name: str
    description: str
    params_schema: dict[str, Any] | None
    allowed_domains: list[str]
    own_start: bool
    needs_urls: bool
    arguments: list[str]


class FileRecord(Record):
    """A file that a crawl has written."""

    _shows = ("name", "size", "attempt")

    #: Its path below the folder that the spider works in.
    name: str
    size: int
    type: str
    sha256: str
    attempt: int
    modified_at: datetime
    stored_at: datetime
    url: str


class DatasetRecord(Record):
    """How many `items` there are is in `raw`: as an attribute they are the items."""

    _names = ("user_id", "name")

    name: str
    user_id: str
    key: list[str]
    ignore: list[str]
    confirm_removed: int
    drop_guard: float
    empty_values: list[str]
    item_schema: dict[str, Any]
    exports: list[dict[str, Any]]
    runs: int
    last_seq: int
    floor_seq: int
    held: int
    waiting: int
    head_run: str | None
    complete_at: datetime | None
    created_at: datetime
    updated_at: datetime
    page_url: str


class DatasetItem(Record):
    """An item of a dataset, and what is known of it."""

    _shows = ("key", "seq")

    item: dict[str, Any]
    key: dict[str, Any]
    key_hash: str
    seq: int
    run: str
    first_seen: datetime
    changed_at: datetime
    removed: bool


class Change(Record):
    """What a run has found out of one item."""

    _names = ("id",)
    _shows = ("type", "key")

    #: `new`, `changed` or `removed`.
    type: str
    id: str
    seq: int
    deleted: bool
    item: dict[str, Any]
    key: dict[str, Any]
    key_hash: str
    changes: dict[str, Any] | None
    run: str
    at: datetime
    first_seen: datetime


class EndpointRecord(Record):
    _names = ("endpoint_id",)
    _shows = ("url",)

    endpoint_id: str
    user_id: str
    url: str
    description: str | None
    events: list[str]
    filter: Any
    format: str
    all_users: bool
    paused: bool
    disabled_at: datetime | None
    disabled_reason: str | None
    failing_since: datetime | None
    created_at: datetime
    #: Only of one that was just made.
    secret: str | None


class DeliveryRecord(Record):
    """A call of an endpoint."""

    _names = ("delivery_id",)
    _shows = ("type", "state")

    delivery_id: str
    message_id: str
    type: str
    endpoint_id: str | None
    job_id: str | None
    url: str
    state: str
    created_at: datetime
    next_try: datetime | None
    tries: int
    calls: list[dict[str, Any]]


class ProjectRecord(Record):
    _names = ("name",)
    _shows = ("latest",)

    name: str
    latest: str | None
    previous: str | None
    versions: list[str]
