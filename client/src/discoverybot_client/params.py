"""What the methods of both clients take by name, made from the API's description by `make blocking-client`.

At run time nothing is refused here: the gateway says what it does not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Required, TypedDict


class FetchOptions(TypedDict, total=False):
    """How a crawl fetches pages. Each option is optional: without it, the spider or the platform decides."""

    headers: dict[str, str]
    """Sent with every request to the start URLs' hosts."""
    cookies: dict[str, str]
    """Likewise."""
    user_agent: str | None
    """What is sent as `User-Agent`."""
    proxy: str | None
    """URL of an http proxy; its address is checked like any other."""
    min_pause_seconds: float | None
    """The shortest pause between two requests to a host."""
    max_pause_seconds: float | None
    """The longest pause; each pause is a random time between the two."""
    concurrency: int | None
    """Requests at once."""
    obey_robots: bool | None
    """Whether `robots.txt` is obeyed; by default as the spider or the platform has it."""
    retry_codes: list[int] | None
    """HTTP statuses after which a page is tried again."""
    rate_limit: str | None
    """The rate limit of this crawl alone, such as `30/m`."""
    respect: list[Literal["rsl"]] | None
    """`rsl`: ask for no page of a host whose robots.txt names a license (Really Simple Licensing)."""


class Expect(TypedDict, total=False):
    """What a good crawl finds. A crawl that finds less is `partial` at best, and its message says why."""

    min_items: int | None
    """Items at least."""
    max_error_rate: float | None
    """Share of its requests that may fail; a 404 is no failure. 0.05 is 5 %."""
    fields: dict[str, float]
    """Field of the items → share of them that must have it, 1 for all. Null, an empty or blank text and an
    empty list or object do not count.
    """
    stop_early_after: int | None
    """End the crawl early if `max_error_rate` is broken after so many requests, or `fields` after so many
    items. By default it goes on to its end.
    """


class DatasetOrder(TypedDict, total=False):
    """The dataset that the items of a crawl go into."""

    key: list[str] | None
    """The fields that say which items are the same. By default the canonical URL in `url`, and the whole
    content of items without one. It can be changed only while the dataset has no items.
    """
    ignore: list[str] | None
    """Fields whose difference is no change."""
    confirm_removed: int | None
    """After how many complete runs in a row without it an item counts as removed; 1 by default."""
    drop_guard: float | None
    """Hold a run that would remove more than this share of the items, and more than three; 0.2 by default. 1
    holds none for that.
    """
    empty_values: list[str] | None
    """Texts that count as empty, such as `N/A`, besides null and blank."""
    may_fail: list[str] | None
    """Addresses of pages that may fail, because they have no items and lead to none: a run is complete if
    nothing else failed, and not more than ten pages.
    """
    name: Required[str]


class CrawlFields(TypedDict, total=False):
    """The fields of `POST /crawl`."""

    user_id: str | None
    """The user who asks; letters, digits and `. _ @ + | ~ = -`. By default the user of the key; a request
    without a key must name one.
    """
    webhook_url: str | None
    """This URL is called when a run has ended."""
    depth: int | None
    """How many links to follow from a start URL; 0: only the start URLs."""
    max_pages: int | None
    """The crawl ends after this many pages."""
    max_items: int | None
    """The crawl ends after this many items."""
    ignore_cache: bool | None
    """Make a new job, and fetch its pages without the HTTP cache. Runs of a schedule never use it."""
    params: dict[str, Any] | None
    """The spider's parameters, which are checked against its schema."""
    priority: int | None
    """Jobs with a higher priority go first."""
    tags: list[str] | None
    """Labels to find it by."""
    timeout: int | None
    """How many seconds one attempt may take, up to `JOB_MAX_TIMEOUT`; `JOB_TIMEOUT` by default, or what the
    project's `CLOSESPIDER_TIMEOUT` takes, if that is longer.
    """
    max_retries: int | None
    """Maximum number of retries after failures; `MAX_RETRIES` by default."""
    project: str | None
    """The project of the spider; by default the platform's own, or the only one that has the spider."""
    version: str | None
    """The version of the project's egg, which all attempts run; by default the latest one. Without a version,
    each run of a schedule uses the latest version at its time.
    """
    fetch: FetchOptions | None
    """How pages are fetched."""
    expect: Expect | None
    """What the crawl must find; a crawl that finds less is `partial`."""
    settings: dict[str, Any] | None
    """Settings of Scrapy, over those of the project and its spiders: plain ones, and those that the project
    opens.
    """
    dataset: str | DatasetOrder | None
    """The dataset that the items become part of when the crawl has ended: a name, or an object that also says
    what makes an item the same. It is made if it does not exist.
    """
    env: dict[str, str] | None
    """Variables for a deployed project's spider, over those of the project, as far as it opens them. They are
    kept as they are: secrets belong to the project.
    """
    schedule_at: datetime | str | None
    """Run the crawl at this time, in the future and with an offset; with `interval`, not before it."""


Overlap = Literal["skip", "queue", "allow"]


CatchUp = Literal["one", "none", "all"]


class ScheduleFields(CrawlFields, total=False):
    """The fields of `POST /schedules`."""

    timezone: str | None
    """The IANA name of the time zone for cron; `UTC` by default."""
    jitter: float | None
    """Shift each run by up to this fraction of the gap to the next; 0.1 for `every`, 0 for cron."""
    overlap: Overlap | None
    """What to do if a run is due before the previous one has ended; `skip` by default."""
    catch_up: CatchUp | None
    """How to make up for missed runs: by `one` run for all of them, by `none`, or `all`."""
    ends_at: datetime | str | None
    """No run after this time."""
    max_runs: int | None
    """Runs after which the schedule ends."""


class ScheduleChanges(TypedDict, total=False):
    """The fields of `PATCH /schedules/{schedule_id}`."""

    depth: int | None
    """How many links to follow from a start URL; 0: only the start URLs."""
    max_pages: int | None
    """The crawl ends after this many pages."""
    max_items: int | None
    """The crawl ends after this many items."""
    ignore_cache: bool
    """Whether runs fetch all pages without the HTTP cache."""
    params: dict[str, Any]
    """The spider's parameters, which are checked against its schema."""
    priority: int
    """Jobs with a higher priority go first."""
    tags: list[str]
    """Labels to find it by."""
    timeout: int | None
    """How many seconds one attempt may take, up to `JOB_MAX_TIMEOUT`; `JOB_TIMEOUT` by default, or what the
    project's `CLOSESPIDER_TIMEOUT` takes, if that is longer.
    """
    max_retries: int | None
    """Maximum number of retries after failures; `MAX_RETRIES` by default."""
    project: str | None
    """The project of the spider; by default the platform's own, or the only one that has the spider."""
    version: str | None
    """The version of the project's egg, which all attempts run; by default the latest one. Without a version,
    each run of a schedule uses the latest version at its time.
    """
    fetch: FetchOptions | None
    """How pages are fetched."""
    expect: Expect | None
    """What the crawl must find; a crawl that finds less is `partial`."""
    settings: dict[str, Any]
    """Settings of Scrapy, over those of the project and its spiders: plain ones, and those that the project
    opens.
    """
    dataset: str | DatasetOrder | None
    """The dataset that the items become part of when the crawl has ended: a name, or an object that also says
    what makes an item the same. It is made if it does not exist.
    """
    env: dict[str, str]
    """Variables for a deployed project's spider, over those of the project, as far as it opens them. They are
    kept as they are: secrets belong to the project.
    """
    interval: str
    """Five-field cron, a name such as `@daily`, or `every 15m`."""
    schedule_at: datetime | str | None
    """Run the crawl at this time, in the future and with an offset; with `interval`, not before it."""
    timezone: str | None
    """The IANA name of the time zone for cron; `UTC` by default."""
    jitter: float | None
    """Shift each run by up to this fraction of the gap to the next; 0.1 for `every`, 0 for cron."""
    overlap: Overlap | None
    """What to do if a run is due before the previous one has ended; `skip` by default."""
    catch_up: CatchUp | None
    """How to make up for missed runs: by `one` run for all of them, by `none`, or `all`."""
    ends_at: datetime | str | None
    """No run after this time."""
    max_runs: int | None
    """Runs after which the schedule ends."""
    name: str | None
    """The name."""
    spider: str
    """A spider of `GET /spiders`."""
    start_urls: list[str]
    """Absolute http(s) URLs of public hosts. A spider that has its own needs none: `GET /spiders` says whether
    it `needs_urls`.
    """
    webhooks: list[str]
    """URLs that are called when a run has ended."""
    rev: int | None
    """Change the schedule only if its revision is still this one; otherwise the answer is 409."""


ExportWhat = Literal["snapshot", "changes"]


class ExportOrder(TypedDict, total=False):
    """One file of each run."""

    to: Required[str]
    """`s3://bucket/prefix`, `file:///folder`, or a folder below the first of `EXPORT_TO`."""
    format: Required[Literal["jsonl", "csv", "xlsx", "parquet"]]
    """The format in which it is sent or written."""
    what: ExportWhat
    """What is written: the whole dataset, or the changes of a run. By default `snapshot`."""
    each: Literal["run"]
    """When it is written: after each run. By default `run`."""


class DatasetOptions(TypedDict, total=False):
    """The fields of `PUT /datasets/{name}`."""

    key: list[str] | None
    """The fields that say which items are the same. By default the canonical URL in `url`, and the whole
    content of items without one. It can be changed only while the dataset has no items.
    """
    ignore: list[str] | None
    """Fields whose difference is no change."""
    confirm_removed: int | None
    """After how many complete runs in a row without it an item counts as removed; 1 by default."""
    drop_guard: float | None
    """Hold a run that would remove more than this share of the items, and more than three; 0.2 by default. 1
    holds none for that.
    """
    empty_values: list[str] | None
    """Texts that count as empty, such as `N/A`, besides null and blank."""
    may_fail: list[str] | None
    """Addresses of pages that may fail, because they have no items and lead to none: a run is complete if
    nothing else failed, and not more than ten pages.
    """
    item_schema: dict[str, Any] | None
    """The JSON Schema that the items must match."""
    exports: list[ExportOrder] | None
    """The files to write after each run, and where."""


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


class CrawlFilter(TypedDict, total=False):
    """Which crawls the endpoint receives events of. A crawl must have one of the values of each given field."""

    projects: list[str]
    """The projects."""
    spiders: list[str]
    """The spiders."""
    sites: list[str]
    """The sites."""
    datasets: list[str]
    """Names of datasets: only events of these."""
    schedules: list[str]
    """The schedules."""
    tags: list[str]
    """Labels to find it by."""
    users: list[str]
    """The users."""


EndpointFormat = Literal["standard", "slack", "apprise"]


class EndpointFields(TypedDict, total=False):
    """The fields of `POST /endpoints`."""

    user_id: str | None
    """Whose endpoint; by default the caller's."""
    description: str | None
    """A short description."""
    events: list[EventType]
    """The events to receive; by default all."""
    filter: CrawlFilter
    """Which crawls it is about."""
    format: EndpointFormat | None
    """By default `slack` if the URL is an incoming webhook of Slack or of what takes the same, else
    `standard`. `slack`: a sentence with a link, for an incoming webhook of Slack, Mattermost, Rocket.Chat,
    or Discord (its URL with `/slack`). `apprise`: a title and a text, for a service that Apprise knows:
    `url` is Apprise's, such as `mailtos://user:password@example.com`, and is never shown again.
    """
    all_users: bool
    """Receive events of all users' crawls; for admins."""
    paused: bool
    """Whether it is paused."""


class EndpointChanges(TypedDict, total=False):
    """The fields of `PATCH /endpoints/{endpoint_id}`."""

    url: str | None
    """The URL."""
    description: str | None
    """A short description."""
    events: list[EventType] | None
    """The types of events that the endpoint receives."""
    filter: CrawlFilter | None
    """Which crawls it is about."""
    format: EndpointFormat | None
    """Of what happens from now on."""
    paused: bool | None
    """`false` also has one called again that was disabled."""


JobStatus = Literal["scheduled", "pending", "running", "paused", "finished", "partial", "error", "cancelled"]


WaitingReason = Literal[
    "capacity", "site_busy", "previous_run", "user_quota", "no_node", "no_such_project", "disk_full", "backoff"
]


class JobCountFilters(TypedDict, total=False):
    """The fields of `GET /jobs/count`."""

    user_id: str | None
    """Only jobs of this user."""
    status: list[JobStatus] | None
    """Only jobs with this status; may be repeated for several."""
    spider: str | None
    """Only jobs of this spider."""
    site: str | None
    """Only runs of this site."""
    host: str | None
    """Only jobs that crawl this host or one below it: their start URLs name it, they have asked it (see
    `progress.hosts` of an attempt), or they wait and their spider is known to crawl it.
    """
    project: str | None
    """Only jobs of this project."""
    schedule_id: str | None
    """Only runs of this schedule."""
    tag: str | None
    """Only jobs with this tag."""
    since: datetime | str | None
    """Only jobs created at or after this time; RFC 3339 with an offset."""
    until: datetime | str | None
    """Only jobs created before this time."""
    started_since: datetime | str | None
    """Only jobs that started at or after this time."""
    started_until: datetime | str | None
    """Only jobs that started before this time."""
    finished_since: datetime | str | None
    """Only jobs that ended at or after this time."""
    finished_until: datetime | str | None
    """Only jobs that ended before this time."""
    waiting_reason: WaitingReason | None
    """Only jobs that wait for this reason."""
    dead: bool | None
    """Only dead letters."""
    q: str | None
    """Only jobs with this text in the id, spider, tags, start URLs or message."""
    id_prefix: str | None
    """Only jobs whose id begins so; at least four digits of it."""
    job_id: list[str] | None
    """Only these jobs; may be repeated."""


class JobFilters(JobCountFilters, total=False):
    """The fields of `GET /jobs`."""

    sort: Literal["newest", "oldest", "started", "ended"] | None
    """Which jobs come first: the last or first created, the last started, or the last ended."""
    limit: int | None
    """The size of a page."""


ScheduleState = Literal["active", "paused", "ended"]


class ScheduleFilters(TypedDict, total=False):
    """The fields of `GET /schedules`."""

    user_id: str | None
    """Only schedules of this user."""
    state: ScheduleState | None
    """Only schedules in this state."""
    site: str | None
    """Only schedules of this site and its targets."""
    host: str | None
    """Only schedules that crawl this host or one below it: by their start URLs, their site, what a recent run
    has asked, or what their spider is known to crawl.
    """
    spider: str | None
    """Only schedules of this spider."""
    q: str | None
    """Only schedules with this text in the id, name, spider, site, tags or start URLs."""
    limit: int | None
    """The size of a page."""


class SpiderFilters(TypedDict, total=False):
    """The fields of `GET /spiders`."""

    project: str | None
    """Only spiders of this project."""
    version: str | None
    """Only spiders of this version."""
    name: str | None
    """Only spiders with this name."""
    q: str | None
    """Only spiders with this text in their name."""
    limit: int | None
    """The size of a page."""


class DeadLetterFilters(TypedDict, total=False):
    """The fields of `GET /dead-letters`."""

    user_id: str | None
    """Only jobs of this user."""
    spider: str | None
    """Only jobs of this spider."""
    q: str | None
    """Only jobs with this text in the id, spider, tags, start URLs or message."""
    id_prefix: str | None
    """Only jobs whose id begins so; at least four digits of it."""
    limit: int | None
    """The size of a page."""


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


RequestSort = Literal["at", "-ms", "-bytes"]


class RequestFilters(TypedDict, total=False):
    """The fields of `GET /jobs/{job_id}/requests`."""

    failed: bool | None
    """Only those that failed (no answer, 429 or 5xx, after all retries), or not."""
    slow_ms: int | None
    """Only those that took so many milliseconds or more."""
    redirected: bool | None
    """Only those that were sent elsewhere, or not."""
    cached: bool | None
    """Only those that the HTTP cache answered, or not."""
    status: str | None
    """Only answers with this status, such as `404`, or of this class, such as `4xx`."""
    code: Reason | None
    """Only those that failed or were not sent for this."""
    q: str | None
    """Only those with this text in their URL, or in the one they were redirected to."""
    sort: RequestSort | None
    """In order of time, or the slowest or the largest first."""
    attempt: str | None
    """`all`, or the number of an attempt; by default the attempt that counts."""
    limit: int | None
    """The size of a page, by default 100."""


class RequestExportOptions(TypedDict, total=False):
    """The fields of `GET /jobs/{job_id}/requests/download`."""

    escape_formulas: bool | None
    """In a CSV, put a `'` before text that a spreadsheet would run (`=…`, `+…`, `-…`, `@…`), but not before
    plain numbers. `false` gives the text as it was scraped.
    """
    bom: bool | None
    """Begin a CSV with a byte order mark, by which Excel knows that it is UTF-8."""
    failed: bool | None
    """Only those that failed (no answer, 429 or 5xx, after all retries), or not."""
    slow_ms: int | None
    """Only those that took so many milliseconds or more."""
    redirected: bool | None
    """Only those that were sent elsewhere, or not."""
    cached: bool | None
    """Only those that the HTTP cache answered, or not."""
    status: str | None
    """Only answers with this status, such as `404`, or of this class, such as `4xx`."""
    code: Reason | None
    """Only those that failed or were not sent for this."""
    q: str | None
    """Only those with this text in their URL, or in the one they were redirected to."""
    sort: RequestSort | None
    """In order of time, or the slowest or the largest first."""
    attempt: str | None
    """`all`, or the number of an attempt; by default the attempt that counts."""


ErrorGroupState = Literal["open", "resolved", "ignored"]


class ErrorFilters(TypedDict, total=False):
    """The fields of `GET /errors`."""

    user_id: str | None
    """Only errors of this user's crawls."""
    project: str | None
    """Only errors of this project."""
    spider: str | None
    """Only errors of this spider."""
    state: ErrorGroupState | None
    """Only errors in this state."""
    kind: Literal["exception", "log", "status", "download", "crawl"] | None
    """Only such errors."""
    since: datetime | str | None
    """Only what was seen at or after this time."""
    new_since: datetime | str | None
    """Only what was first seen at or after this time."""
    until: datetime | str | None
    """Only what was first seen before this time."""
    q: str | None
    """Only with this text in the name, message or place."""
    sort: Literal["last_seen", "count", "first_seen", "oldest"] | None
    """What comes first: what was seen last, what occurred most often, or what was seen for the first time
    before all others. `oldest`: what came first since `since` (`first_since`); this is one page, of the
    1,000 errors that were seen last.
    """
    limit: int | None
    """The size of a page."""


class AlertFilters(TypedDict, total=False):
    """The fields of `GET /alerts`."""

    user_id: str | None
    """Only alerts of this user."""
    firing: bool | None
    """Only those that fire now, or only those that do not."""
    limit: int | None
    """The size of a page."""


AuditKind = Literal["call", "login_failed", "command"]


class AuditFilters(TypedDict, total=False):
    """The fields of `GET /audit`."""

    user_id: str | None
    """Only calls with this user's keys."""
    key_id: str | None
    """Only calls with this key."""
    route: str | None
    """Only this route, as it is written here: `/jobs/{job_id}/cancel`; or only this command."""
    kind: AuditKind | None
    """Only entries of this kind."""
    since: datetime | str | None
    """Only calls at or after this time; RFC 3339 with an offset."""
    until: datetime | str | None
    """Only calls before this time."""
    limit: int | None
    """The size of a page."""


RuleGrouping = Literal["spider", "schedule", "site", "project", "rule"]


class QuietHours(TypedDict, total=False):
    """No alerts are sent between these times of day. An alert that still fires at the end is sent then."""

    since: Required[str]
    """The time of day at which they begin."""
    until: Required[str]
    """The time of day at which they end."""
    timezone: str
    """The IANA name of the time zone. By default `UTC`."""


class AlertRuleFields(TypedDict, total=False):
    """The fields of `POST /alerts/rules`."""

    user_id: str | None
    """Whose rule; by default the caller's."""
    filter: CrawlFilter
    """About which crawls; by default all."""
    group_by: RuleGrouping
    """What the runs are grouped by: each group has an alert of its own."""
    to: list[str]
    """The endpoints to notify; by default those whose `events` name alerts."""
    quiet: QuietHours | None
    """Hours in which nobody is notified."""
    silenced_until: datetime | str | None
    """Nobody is notified until then."""
    remind_seconds: float | None
    """Tell again so long after, while it lasts."""
    all_users: bool
    """About the crawls of all users; for admins."""
    paused: bool
    """Whether it is paused."""


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
    """What is measured."""
    above: float | None
    """There is an alert if the measure is above it."""
    below: float | None
    """There is an alert if the measure is below it."""
    of_usual: int | None
    """`above` or `below` is a multiple of the median of so many earlier runs."""
    runs: int
    """The condition must hold for this many runs in a row. By default `1`."""
    for_seconds: float
    """The condition must hold for so many seconds. By default `0.0`."""


class AlertRuleChanges(TypedDict, total=False):
    """The fields of `PATCH /alerts/rules/{rule_id}`."""

    name: str | None
    """The name."""
    when: AlertCondition | None
    """What is measured, and from which value on there is an alert."""
    filter: CrawlFilter | None
    """Which crawls it is about."""
    group_by: RuleGrouping | None
    """One alert for each of these."""
    to: list[str] | None
    """Where it is sent."""
    quiet: QuietHours | None
    """`null` ends them."""
    silenced_until: datetime | str | None
    """`null` ends a silence."""
    remind_seconds: float | None
    """`null`: nobody is reminded."""
    paused: bool | None
    """Whether it is paused."""


PaginationType = Literal["next_link", "page_param", "infinite_scroll", "none"]


class SiteFields(TypedDict, total=False):
    """The fields of `POST /sites`."""

    enabled: bool
    """If `false`, neither the site nor its targets are run."""
    project: str
    """The project of a deployed egg; `default` is the platform's own."""
    spider: str
    """A spider of `GET /spiders`."""
    requires_playwright: bool
    """Whether its pages are rendered in a browser."""
    pagination_type: PaginationType
    """How the spider `jobs` gets from one page of results to the next."""
    selectors: dict[str, str]
    """CSS selectors by name, which the spider `jobs` uses on pages without JSON-LD."""
    interval_minutes: int
    """Minutes between two runs of the site, and of its targets that have no frequency of their own."""
    min_pause_seconds: float
    """The shortest pause between two requests of a run."""
    max_pause_seconds: float
    """The longest pause. Each pause is a random time between the two."""
    max_retries: int
    """How many times a failed run is tried again."""
    rate_limit: str | None
    """The rate limit for all runs of the site together, such as `30/m`; null: no limit."""
    allow_overlap: bool
    """Whether two runs of the site may run at once; if not, the second one waits."""
    payload: dict[str, Any]
    """Further parameters for the spider. `keywords` and `location` are used by the site's own runs."""
    fetch: FetchOptions
    """Headers, cookies and other options; the pauses have fields of their own."""
    dataset: str | DatasetOrder | None
    """The dataset that the items of its runs and of its targets' runs become part of: a name, or an object
    with its options.
    """
    expect: Expect | None
    """What each run must find. A run that finds less is `partial`; null: nothing."""


class SiteChanges(TypedDict, total=False):
    """The fields of `PATCH /sites/{name}`."""

    enabled: bool
    """If `false`, neither the site nor its targets are run."""
    project: str
    """The project of a deployed egg; `default` is the platform's own."""
    spider: str
    """A spider of `GET /spiders`."""
    search_url: str
    """The URL of a search, with `{keywords}`, `{location}` and `{page}` as placeholders."""
    requires_playwright: bool
    """Whether its pages are rendered in a browser."""
    pagination_type: PaginationType
    """How the spider `jobs` gets from one page of results to the next."""
    selectors: dict[str, str]
    """CSS selectors by name, which the spider `jobs` uses on pages without JSON-LD."""
    interval_minutes: int
    """Minutes between two runs of the site, and of its targets that have no frequency of their own."""
    min_pause_seconds: float
    """The shortest pause between two requests of a run."""
    max_pause_seconds: float
    """The longest pause. Each pause is a random time between the two."""
    max_retries: int
    """How many times a failed run is tried again."""
    rate_limit: str | None
    """The rate limit for all runs of the site together, such as `30/m`; null: no limit."""
    allow_overlap: bool
    """Whether two runs of the site may run at once; if not, the second one waits."""
    payload: dict[str, Any]
    """Further parameters for the spider. `keywords` and `location` are used by the site's own runs."""
    fetch: FetchOptions
    """Headers, cookies and other options; the pauses have fields of their own."""
    dataset: str | DatasetOrder | None
    """The dataset that the items of its runs and of its targets' runs become part of: a name, or an object
    with its options.
    """
    expect: Expect | None
    """What each run must find. A run that finds less is `partial`; null: nothing."""


class ScrapeFields(TypedDict, total=False):
    """The fields of `POST /jobs/scrape`."""

    search_term: str | None
    """The words for `{keywords}` in the site's search URL."""
    location: str | None
    """The place for `{location}` in the site's search URL."""
    is_remote: bool | None
    """`true`: only remote postings; `false`: only the others; by default all."""
    results_wanted: int | None
    """The run ends after this many results. With `mode=sync`: 25 at most, and by default."""
    payload: dict[str, Any]
    """Further parameters, which override those of the site's own `payload`."""
    user_id: str
    """The user who asks; by default the user of the key."""


class TargetFields(TypedDict, total=False):
    """The fields of `POST /targets`."""

    keywords: str
    """The words for `{keywords}` in the site's search URL."""
    location: str
    """The place for `{location}` in the site's search URL."""
    frequency: int | str | None
    """Minutes, or cron (`0 9 * * *`, `@daily`); null: the site's `interval_minutes`."""
    timezone: str
    """The time zone for cron."""
    enabled: bool
    """Whether its schedule runs it."""
    results_wanted: int | None
    """A run ends after this many results; null: no limit."""
    is_remote: bool | None
    """`true`: only remote postings; `false`: only the others; null: all."""


class TargetChanges(TypedDict, total=False):
    """The fields of `PATCH /targets/{target_id}`."""

    keywords: str
    """The words for `{keywords}` in the site's search URL."""
    location: str
    """The place for `{location}` in the site's search URL."""
    frequency: int | str | None
    """Minutes, or cron (`0 9 * * *`, `@daily`); null: the site's `interval_minutes`."""
    timezone: str
    """The time zone for cron."""
    enabled: bool
    """Whether its schedule runs it."""
    results_wanted: int | None
    """A run ends after this many results; null: no limit."""
    is_remote: bool | None
    """`true`: only remote postings; `false`: only the others; null: all."""


class VariableWish(TypedDict, total=False):
    """A variable to set."""

    value: str | None
    """Null: the one that it has stays."""
    secret: bool
    """Whether its value is never shown."""


class EnvironmentFields(TypedDict, total=False):
    """The fields of `PUT /projects/{project}/env`."""

    variables: dict[str, VariableWish]
    """By their names."""


class KeyBudget(TypedDict, total=False):
    """How much the crawls of an API key may use on one day (UTC). An absent amount has no limit."""

    pages: int | None
    """Number of pages."""
    minutes: int | None
    """Duration of all its crawls together."""
    hosts: int | None
    """Hosts that crawls send requests to, counted for each crawl."""
    bytes: int | None
    """Size of the responses as sent, before decompression."""


class KeyFields(TypedDict, total=False):
    """The fields of `POST /keys`."""

    projects: list[str]
    """With `read_all` alone: the key may only read these projects, of all users."""
    expires_at: datetime | str | None
    """The key is invalid from then on; by default it does not expire."""
    note: str | None
    """What the key is for."""
    budget: KeyBudget | None
    """What all its crawls together may take on one day (UTC). For keys with the scope agent or crawl, and not
    for an admin's.
    """


class SavedViewChanges(TypedDict, total=False):
    """The fields of `PATCH /views/{view_id}`."""

    query: str | None
    """The query of the list's address."""
    shared: bool | None
    """Whether others see it, too."""
    default: bool | None
    """`false`: the list begins with no view."""


class ResendFields(TypedDict, total=False):
    """The fields of `POST /endpoints/{endpoint_id}/deliveries/resend`."""

    deliveries: list[str]
    """These."""
    since: datetime | str | None
    """Deliveries made at or after this time."""
    missing: bool
    """Only those that the receiver has not got; without `since` all such."""


ChangeKind = Literal["new", "changed", "removed"]


ChangeTypes = list[ChangeKind]


DeliveryState = Literal["pending", "delivered", "failed", "refused", "skipped"]


FileFormat = Literal["json", "jsonl", "csv", "xlsx", "parquet"]


ItemFormat = FileFormat


LogFormat = Literal["text", "jsonl"]


RequestFormat = Literal["jsonl", "csv"]


RunState = Literal["planned", "published", "held", "rejected", "paused", "superseded", "skipped", "failed"]


ListName = Literal["jobs", "dead-letters", "schedules"]
