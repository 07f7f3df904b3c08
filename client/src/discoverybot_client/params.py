"""What the methods of both clients take by name, made from the API's description by `make blocking-client`.

At run time nothing is refused here: the gateway says what it does not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Required, TypedDict


class FetchOptions(TypedDict, total=False):
    """How a crawl fetches pages. Each option is optional: without it, the spider or the platform decides."""

    headers: dict[str, str]
    cookies: dict[str, str]
    user_agent: str | None
    proxy: str | None
    min_pause_seconds: float | None
    max_pause_seconds: float | None
    concurrency: int | None
    obey_robots: bool | None
    retry_codes: list[int] | None
    rate_limit: str | None
    respect: list[Literal["rsl"]] | None


class Expect(TypedDict, total=False):
    """What a good crawl finds. A crawl that finds less is `partial` at best, and its message says why."""

    min_items: int | None
    max_error_rate: float | None
    fields: dict[str, float]
    stop_early_after: int | None


class DatasetOrder(TypedDict, total=False):
    """The dataset that the items of a crawl go into."""

    key: list[str] | None
    ignore: list[str] | None
    confirm_removed: int | None
    drop_guard: float | None
    empty_values: list[str] | None
    name: Required[str]


class CrawlFields(TypedDict, total=False):
    """Of `POST /crawl`."""

    user_id: str | None
    webhook_url: str | None
    depth: int | None
    max_pages: int | None
    max_items: int | None
    ignore_cache: bool | None
    params: dict[str, Any] | None
    priority: int | None
    tags: list[str] | None
    timeout: int | None
    max_retries: int | None
    project: str | None
    version: str | None
    fetch: FetchOptions | None
    expect: Expect | None
    settings: dict[str, Any] | None
    dataset: str | DatasetOrder | None
    env: dict[str, str] | None
    schedule_at: datetime | str | None


Overlap = Literal["skip", "queue", "allow"]


CatchUp = Literal["one", "none", "all"]


class ScheduleFields(CrawlFields, total=False):
    """Of `POST /schedules`."""

    timezone: str | None
    jitter: float | None
    overlap: Overlap | None
    catch_up: CatchUp | None
    ends_at: datetime | str | None
    max_runs: int | None


class ScheduleChanges(TypedDict, total=False):
    """Of `PATCH /schedules/{schedule_id}`."""

    depth: int | None
    max_pages: int | None
    max_items: int | None
    ignore_cache: bool
    params: dict[str, Any]
    priority: int
    tags: list[str]
    timeout: int | None
    max_retries: int | None
    project: str | None
    version: str | None
    fetch: FetchOptions | None
    expect: Expect | None
    settings: dict[str, Any]
    dataset: str | DatasetOrder | None
    env: dict[str, str]
    interval: str
    schedule_at: datetime | str | None
    timezone: str | None
    jitter: float | None
    overlap: Overlap | None
    catch_up: CatchUp | None
    ends_at: datetime | str | None
    max_runs: int | None
    name: str | None
    spider: str
    start_urls: list[str]
    webhooks: list[str]
    rev: int | None


ExportWhat = Literal["snapshot", "changes"]


class ExportOrder(TypedDict, total=False):
    """One file of each run."""

    to: Required[str]
    format: Required[Literal["jsonl", "csv", "xlsx", "parquet"]]
    what: ExportWhat
    each: Literal["run"]


class DatasetOptions(TypedDict, total=False):
    """Of `PUT /datasets/{name}`."""

    key: list[str] | None
    ignore: list[str] | None
    confirm_removed: int | None
    drop_guard: float | None
    empty_values: list[str] | None
    item_schema: dict[str, Any] | None
    exports: list[ExportOrder] | None


class DatasetChanges(DatasetOptions, total=False):
    """Of `PATCH /datasets/{name}`."""


EventType = Literal[
    "job.started",
    "job.paused",
    "job.retried",
    "job.finished",
    "job.partial",
    "job.failed",
    "job.cancelled",
    "items.batch",
    "dataset.changed",
    "run.held",
    "schedule.skipped",
    "schedule.missed",
    "schedule.late",
    "node.down",
    "node.up",
    "deploy.live",
    "deploy.failed",
    "alert.firing",
    "alert.still_firing",
    "alert.resolved",
    "endpoint.disabled",
    "endpoint.test",
]


class FilterBody(TypedDict, total=False):
    """Which crawls the endpoint receives events of. A crawl must have one of the values of each given field."""

    projects: list[str]
    spiders: list[str]
    sites: list[str]
    datasets: list[str]
    schedules: list[str]
    tags: list[str]
    users: list[str]


EndpointFormat = Literal["standard", "slack", "apprise"]


class EndpointFields(TypedDict, total=False):
    """Of `POST /endpoints`."""

    user_id: str | None
    description: str | None
    events: list[EventType]
    filter: FilterBody
    format: EndpointFormat | None
    all_users: bool
    paused: bool


class EndpointChanges(TypedDict, total=False):
    """Of `PATCH /endpoints/{endpoint_id}`."""

    url: str | None
    description: str | None
    events: list[EventType] | None
    filter: FilterBody | None
    format: EndpointFormat | None
    paused: bool | None


JobStatus = Literal["scheduled", "pending", "running", "paused", "finished", "partial", "error", "cancelled"]


WaitingReason = Literal[
    "capacity", "site_busy", "previous_run", "user_quota", "no_node", "no_such_project", "disk_full", "backoff"
]


class JobFilters(TypedDict, total=False):
    """Of `GET /jobs`."""

    user_id: str | None
    status: list[JobStatus] | None
    spider: str | None
    site: str | None
    host: str | None
    project: str | None
    schedule_id: str | None
    tag: str | None
    since: datetime | str | None
    until: datetime | str | None
    started_since: datetime | str | None
    started_until: datetime | str | None
    finished_since: datetime | str | None
    finished_until: datetime | str | None
    waiting_reason: WaitingReason | None
    dead: bool | None
    q: str | None
    id_prefix: str | None
    job_id: list[str] | None
    sort: Literal["newest", "oldest", "started", "ended"] | None
    limit: int | None
    after: str | None


ScheduleState = Literal["active", "paused", "ended"]


class ScheduleFilters(TypedDict, total=False):
    """Of `GET /schedules`."""

    user_id: str | None
    state: ScheduleState | None
    site: str | None
    host: str | None
    spider: str | None
    q: str | None
    limit: int | None
    after: str | None


class SpiderFilters(TypedDict, total=False):
    """Of `GET /spiders`."""

    project: str | None
    version: str | None
    name: str | None
    q: str | None
    limit: int | None
    after: str | None


ChangeTypes = list[Literal["new", "changed", "removed"]]


DeliveryState = Literal["pending", "delivered", "failed", "refused", "skipped"]


ItemFormat = Literal["json", "jsonl", "csv", "xlsx", "parquet"]
