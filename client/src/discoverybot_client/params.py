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
    """The fields of `POST /crawl`."""

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
    """The fields of `POST /schedules`."""

    timezone: str | None
    jitter: float | None
    overlap: Overlap | None
    catch_up: CatchUp | None
    ends_at: datetime | str | None
    max_runs: int | None


class ScheduleChanges(TypedDict, total=False):
    """The fields of `PATCH /schedules/{schedule_id}`."""

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
    """The fields of `PUT /datasets/{name}`."""

    key: list[str] | None
    ignore: list[str] | None
    confirm_removed: int | None
    drop_guard: float | None
    empty_values: list[str] | None
    item_schema: dict[str, Any] | None
    exports: list[ExportOrder] | None


class DatasetChanges(DatasetOptions, total=False):
    """The fields of `PATCH /datasets/{name}`."""


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
    """The fields of `POST /endpoints`."""

    user_id: str | None
    description: str | None
    events: list[EventType]
    filter: FilterBody
    format: EndpointFormat | None
    all_users: bool
    paused: bool


class EndpointChanges(TypedDict, total=False):
    """The fields of `PATCH /endpoints/{endpoint_id}`."""

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


class JobCountFilters(TypedDict, total=False):
    """The fields of `GET /jobs/count`."""

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


class JobFilters(JobCountFilters, total=False):
    """The fields of `GET /jobs`."""

    sort: Literal["newest", "oldest", "started", "ended"] | None
    limit: int | None


ScheduleState = Literal["active", "paused", "ended"]


class ScheduleFilters(TypedDict, total=False):
    """The fields of `GET /schedules`."""

    user_id: str | None
    state: ScheduleState | None
    site: str | None
    host: str | None
    spider: str | None
    q: str | None
    limit: int | None


class SpiderFilters(TypedDict, total=False):
    """The fields of `GET /spiders`."""

    project: str | None
    version: str | None
    name: str | None
    q: str | None
    limit: int | None


class DeadLetterFilters(TypedDict, total=False):
    """The fields of `GET /dead-letters`."""

    user_id: str | None
    spider: str | None
    q: str | None
    id_prefix: str | None
    limit: int | None


Reason = Literal[
    "completed",
    "own_limit",
    "no_items",
    "expectation_broken",
    "closed_early",
    "nothing_fetched",
    "requests_failed",
    "cancelled",
    "paused",
    "pause_expired",
    "address_forbidden",
    "robots_forbidden",
    "license_required",
    "payment_required",
    "site_refuses",
    "rate_limited",
    "page_missing",
    "site_failed",
    "site_unreachable",
    "site_timeout",
    "proxy_unreachable",
    "page_too_large",
    "page_refused",
    "url_unsupported",
    "not_importable",
    "spider_missing",
    "arguments_wrong",
    "variable_missing",
    "handler_refused",
    "broke_down",
    "spider_failed",
    "pipeline_failed",
    "item_refused",
    "process_crashed",
    "items_unreadable",
    "time_limit",
    "memory_limit",
    "process_limit",
    "log_limit",
    "file_limit",
    "entry_limit",
    "record_limit",
    "budget_spent",
    "stalled",
    "not_started",
    "no_node_took_it",
    "node_shut_down",
    "process_killed",
    "disk_full",
    "node_unreachable",
    "node_refuses",
    "project_missing",
    "egg_unreadable",
    "egg_too_large",
    "package_taken",
    "too_many_spiders",
    "requirements_refused",
    "requirements_unmet",
    "build_failed",
    "install_limit",
    "python_missing",
    "index_unreachable",
    "still_installing",
]


class RequestFilters(TypedDict, total=False):
    """The fields of `GET /jobs/{job_id}/requests`."""

    failed: bool | None
    slow_ms: int | None
    redirected: bool | None
    cached: bool | None
    status: str | None
    code: Reason | None
    q: str | None
    sort: Literal["at", "-ms", "-bytes"] | None
    attempt: str | None
    limit: int | None


ErrorGroupState = Literal["open", "resolved", "ignored"]


class ErrorFilters(TypedDict, total=False):
    """The fields of `GET /errors`."""

    user_id: str | None
    project: str | None
    spider: str | None
    state: ErrorGroupState | None
    kind: Literal["exception", "log", "status", "download", "crawl"] | None
    since: datetime | str | None
    new_since: datetime | str | None
    until: datetime | str | None
    q: str | None
    sort: Literal["last_seen", "count", "first_seen"] | None
    limit: int | None


class AlertFilters(TypedDict, total=False):
    """The fields of `GET /alerts`."""

    user_id: str | None
    firing: bool | None
    limit: int | None


AuditKind = Literal["call", "login_failed", "command"]


class AuditFilters(TypedDict, total=False):
    """The fields of `GET /audit`."""

    user_id: str | None
    key_id: str | None
    route: str | None
    kind: AuditKind | None
    since: datetime | str | None
    until: datetime | str | None
    limit: int | None


class QuietHours(TypedDict, total=False):
    """No alerts are sent between these times of day. An alert that still fires at the end is sent then."""

    since: Required[str]
    until: Required[str]
    timezone: str


class AlertRuleFields(TypedDict, total=False):
    """The fields of `POST /alerts/rules`."""

    user_id: str | None
    filter: FilterBody
    group_by: Literal["spider", "schedule", "site", "project", "rule"]
    to: list[str]
    quiet: QuietHours | None
    silenced_until: datetime | str | None
    remind_seconds: float | None
    all_users: bool
    paused: bool


AlertMeasure = Literal[
    "failed",
    "incomplete",
    "not_started",
    "new_errors",
    "items",
    "pages",
    "errors",
    "error_share",
    "duration",
    "idle",
    "waiting",
    "queue",
    "node_down",
    "disk_full",
    "held",
]


class AlertCondition(TypedDict, total=False):
    """What is measured, and from which value on there is an alert."""

    measure: Required[AlertMeasure]
    above: float | None
    below: float | None
    of_usual: int | None
    runs: int
    for_seconds: float


class AlertRuleChanges(TypedDict, total=False):
    """The fields of `PATCH /alerts/rules/{rule_id}`."""

    name: str | None
    when: AlertCondition | None
    filter: FilterBody | None
    group_by: Literal["spider", "schedule", "site", "project", "rule"] | None
    to: list[str] | None
    quiet: QuietHours | None
    silenced_until: datetime | str | None
    remind_seconds: float | None
    paused: bool | None


PaginationType = Literal["next_link", "page_param", "infinite_scroll", "none"]


class SiteFields(TypedDict, total=False):
    """The fields of `POST /sites`."""

    enabled: bool
    project: str
    spider: str
    requires_playwright: bool
    pagination_type: PaginationType
    selectors: dict[str, str]
    interval_minutes: int
    min_pause_seconds: float
    max_pause_seconds: float
    max_retries: int
    rate_limit: str | None
    allow_overlap: bool
    payload: dict[str, Any]
    fetch: FetchOptions
    dataset: str | DatasetOrder | None
    expect: Expect | None


class SiteChanges(TypedDict, total=False):
    """The fields of `PATCH /sites/{name}`."""

    enabled: bool
    project: str
    spider: str
    search_url: str
    requires_playwright: bool
    pagination_type: PaginationType
    selectors: dict[str, str]
    interval_minutes: int
    min_pause_seconds: float
    max_pause_seconds: float
    max_retries: int
    rate_limit: str | None
    allow_overlap: bool
    payload: dict[str, Any]
    fetch: FetchOptions
    dataset: str | DatasetOrder | None
    expect: Expect | None


class ScrapeFields(TypedDict, total=False):
    """The fields of `POST /jobs/scrape`."""

    search_term: str | None
    location: str | None
    is_remote: bool | None
    results_wanted: int | None
    payload: dict[str, Any]
    user_id: str


class TargetFields(TypedDict, total=False):
    """The fields of `POST /targets`."""

    keywords: str
    location: str
    frequency: int | str | None
    timezone: str
    enabled: bool
    results_wanted: int | None
    is_remote: bool | None


class TargetChanges(TypedDict, total=False):
    """The fields of `PATCH /targets/{target_id}`."""

    keywords: str
    location: str
    frequency: int | str | None
    timezone: str
    enabled: bool
    results_wanted: int | None
    is_remote: bool | None


class KeyBudget(TypedDict, total=False):
    """How much the crawls of an API key may use on one day (UTC). An absent amount has no limit."""

    pages: int | None
    minutes: int | None
    hosts: int | None
    bytes: int | None


class KeyFields(TypedDict, total=False):
    """The fields of `POST /keys`."""

    projects: list[str]
    expires_at: datetime | str | None
    note: str | None
    budget: KeyBudget | None


class SavedViewChanges(TypedDict, total=False):
    """The fields of `PATCH /views/{view_id}`."""

    query: str | None
    shared: bool | None
    default: bool | None


class ResendFields(TypedDict, total=False):
    """The fields of `POST /endpoints/{endpoint_id}/deliveries/resend`."""

    deliveries: list[str]
    since: datetime | str | None
    missing: bool


ChangeTypes = list[Literal["new", "changed", "removed"]]


DeliveryState = Literal["pending", "delivered", "failed", "refused", "skipped"]


ItemFormat = Literal["json", "jsonl", "csv", "xlsx", "parquet"]


LogFormat = Literal["text", "jsonl"]


RunState = Literal["planned", "published", "held", "rejected", "paused", "superseded", "skipped", "failed"]


ListName = Literal["jobs", "dead-letters", "schedules"]
