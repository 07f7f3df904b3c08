"""What the gateway says, as objects, made from the API's description by `make blocking-client`."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from discoverybot_client.records import Record

Action = Literal["cancel", "retry", "delete", "requeue", "dismiss"]

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

AuditKind = Literal["call", "login_failed", "command"]

CatchUp = Literal["one", "none", "all"]

ChangeKind = Literal["new", "changed", "removed"]

DeliveryState = Literal["pending", "delivered", "failed", "refused", "skipped"]

EndpointFormat = Literal["standard", "slack", "apprise"]

ErrorGroupMark = Literal["new", "known", "back"]

ErrorGroupState = Literal["open", "resolved", "ignored"]

ExportWhat = Literal["snapshot", "changes"]

Grouping = Literal["spider", "schedule", "site", "project", "rule", "dataset", "node"]

Incomplete = Literal["not_finished", "own_limit", "ended_early", "items_lost", "seen_skipped"]

JobStatus = Literal["scheduled", "pending", "running", "paused", "finished", "partial", "error", "cancelled"]

KeyState = Literal["valid", "expired", "revoked"]

LedgerKind = Literal["fired", "skipped", "missed"]

ListName = Literal["jobs", "dead-letters", "schedules"]

Measure = Literal["items", "seconds", "failed", "refused", "coverage", "type", "size", "distinct"]

MomentKind = Literal[
    "submitted",
    "scheduled",
    "waiting",
    "dispatched",
    "started",
    "attempt_ended",
    "pause_requested",
    "paused",
    "resumed",
    "cancel_requested",
    "ended",
]

NodeState = Literal["up", "disk_full", "resting", "quarantined", "draining", "not_listed", "incompatible", "dead"]

Overlap = Literal["skip", "queue", "allow"]

PaginationType = Literal["next_link", "page_param", "infinite_scroll", "none"]

RunState = Literal["planned", "published", "held", "rejected", "paused", "superseded", "skipped", "failed"]

ScheduleState = Literal["active", "paused", "ended"]

Scope = Literal["join", "metrics", "read", "read_all", "agent", "crawl", "admin"]

Stage = Literal["learning", "observing", "holding"]

Trigger = Literal["manual", "scheduled"]


class JobRecord(Record):
    """A job: in lists and at its start it has fewer fields than `client.job(…)`."""

    _names = ("job_id",)
    _shows = ("status",)
    job_id: str
    """The job's id."""
    status: JobStatus
    """The status."""
    spider: str | None
    """The name of the spider."""
    version: str | None
    """The version of the spider's project; null for the project `default`."""
    max_items: int | None
    """The job ends after this many items."""
    attempt: int
    """The number of the latest attempt; 0 before the first."""
    spider_job_id: str | None
    """`<job>-<attempt>`: the attempt's name in Scrapyd."""
    node: str | None
    """The name of the node."""
    waiting_reason: str | None
    """Why the job has not started; only for pending jobs. `disk_full`: the nodes that could run it have no
    room. `site_busy`, `previous_run`: it waits for the end of another run.
    """
    queue_position: int | None
    """1 goes next: the user with the fewest running crawls has the next turn. Only for pending jobs that do
    not wait for another run.
    """
    not_before: datetime | None
    """The job does not start before this time; only for pending jobs."""
    next_run: datetime | None
    """When the job will run; only for scheduled jobs."""
    schedule_id: str | None
    """The schedule whose run this job is."""
    slot: ScheduleSlot | None
    """The schedule's occurrence; null if a person asked for the run."""
    site: str | None
    """The site whose run this job is."""
    trigger: Trigger | None
    """For a run of a site: whether a person or its schedule asked for it."""
    requested_pages: int
    """Number of pages that were requested."""
    completed_pages: int
    """Number of pages that were fetched."""
    items_count: int
    """Number of items that were scraped."""
    errors_count: int
    """Number of errors in the log."""
    pages_per_s: float
    """Pages per second."""
    created_at: datetime | None
    """When it was created."""
    started_at: datetime | None
    """When it began; `null` until then."""
    finished_at: datetime | None
    """When the job ended; `null` until then."""
    cancel_requested_at: datetime | None
    """When cancelling was asked for; `null` if it was not."""
    pause_requested_at: datetime | None
    """Null again once the job is resumed."""
    expires_at: datetime | None
    """When a paused job is cancelled if nobody resumes it."""
    reason: str | None
    """Why it ended so, why its last attempt did, or why no node could take its egg: a code.
    docs/troubleshooting.md explains each. Null while nothing has ended, and for jobs of releases that had
    none.
    """
    message: str | None
    """The same in words; they may change from release to release."""
    dead: bool
    """Whether it is a dead letter: it failed and has no retries left."""
    kind: Literal["job"]
    """What kind of thing it is."""
    user_id: str | None
    """The user to whom it belongs."""
    spec: CrawlSpec | None
    """What was asked for."""
    tags: list[str] | None
    """Labels to find it by."""
    priority: int | None
    """Waiting jobs with a higher priority begin first."""
    max_retries: int | None
    """At most this many retries."""
    failures: int | None
    """How many attempts failed, those that their node did not start included."""
    webhooks: list[str] | None
    """Addresses that are called with its events."""
    webhooks_delivered: list[str] | None
    """The webhooks that were called successfully."""
    webhook_message: str | None
    """Why the last call of the other webhooks failed."""
    retry_of: str | None
    """The job that this one repeats."""
    target: TargetRun | None
    """For a run of a target: what the message to the worker said."""
    correlation_id: str | None
    """The id of the request that asked for the job."""
    updated_at: datetime | None
    """When it was last changed."""
    attempts: list[Attempt] | None
    """The newest ones: at least 100, if there are as many."""
    logs_url: str | None
    """The address of the log."""
    items_url: str | None
    """The address of the items."""
    files_url: str | None
    """The address of the list of its files."""
    page_url: str | None
    """The job's page in the console, for people."""
    new_errors: int | None
    """How many of its errors (`GET /jobs/{job_id}/errors`) are new, or back after they were resolved."""
    advice: Advice | None
    """Null where nothing is to be done."""
    logs_removed_at: datetime | None
    """When its log was removed because its retention time was over."""
    items_removed_at: datetime | None
    """The same for its items and files."""


class ScheduleSlot(Record):
    """The occurrence of a schedule for which the job runs."""

    at: datetime
    """The time by the schedule. A schedule has at most one occurrence for each time."""
    due: datetime
    """The same time with jitter."""
    fired_at: datetime
    """When the run was started."""
    missed: int
    """How many later occurrences were missed as well; this run makes up for them."""


class CrawlSpec(Record):
    """The work of a crawl: everything that changes which pages it fetches or which items it finds."""

    project: str | None
    """The project."""
    version: str | None
    """The version."""
    replaced: int | None
    """How often that version was replaced by another egg; `null` for its first egg."""
    spider: str
    """The name of the spider."""
    start_urls: list[str]
    """The URLs at which the crawl begins."""
    depth: int | None
    """How many links from the start URLs the crawl goes."""
    params: dict[str, Any] | None
    """The spider's own parameters."""
    max_pages: int | None
    """The crawl ends after this many pages."""
    max_items: int | None
    """The crawl ends after this many items."""
    timeout: int | None
    """The crawl is ended after this many seconds."""
    ignore_cache: bool | None
    """Whether it is crawled even if the same crawl was asked for before."""
    fetch: FetchOptionsRecord | None
    """How pages are fetched."""
    expect: ExpectRecord | None
    """What a run has to reach; otherwise it is `partial`."""
    settings: dict[str, Any] | None
    """Scrapy's settings."""
    env: dict[str, str] | None
    """Environment variables of the spider's process."""
    site: str | None
    """The name of the site."""
    dataset: str | dict[str, Any] | None
    """The dataset that the items go into."""
    site_rate_limit: str | None
    """Of a run of a site: how many requests go to the site in a time, such as `10/m`."""


class FetchOptionsRecord(Record):
    """How a crawl fetches pages. Each option is optional: without it, the spider or the platform decides."""

    headers: dict[str, str] | None
    """Sent with every request to the start URLs' hosts."""
    cookies: dict[str, str] | None
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


class ExpectRecord(Record):
    """What a good crawl finds. A crawl that finds less is `partial` at best, and its message says why."""

    min_items: int | None
    """Items at least."""
    max_error_rate: float | None
    """Share of its requests that may fail; a 404 is no failure. 0.05 is 5 %."""
    fields: dict[str, float] | None
    """Field of the items → share of them that must have it, 1 for all. Null, an empty or blank text and an
    empty list or object do not count.
    """
    stop_early_after: int | None
    """End the crawl early if `max_error_rate` is broken after so many requests, or `fields` after so many
    items. By default it goes on to its end.
    """


class TargetRun(Record):
    """What the message about a target's run contains besides the job's id and `attempt_count`."""

    target_id: int
    """The search's id."""
    website_id: int
    """The site's id."""
    website_name: str
    """The site's name."""
    search_url: str
    """The address of the site's search."""
    requires_playwright: bool
    """Whether its pages need a browser."""
    pagination_type: str
    """How the site leads to its next page."""
    keywords_used: str
    """The words that were searched for."""
    location_used: str
    """The place that was searched for."""


class Attempt(Record):
    """An attempt of a job: the node that ran it, when, and how it ended."""

    attempt: int
    """The number of the attempt, from 1 on."""
    spider_job_id: str
    """The name of the attempt on its node."""
    node: str
    """The name of the node."""
    status: JobStatus | None
    """The status."""
    reason: str | None
    """The code of the reason."""
    message: str | None
    """An explanation for people."""
    dispatched_at: datetime
    """When the attempt was handed to a node."""
    started_at: datetime | None
    """When it began; `null` until then."""
    ended_at: datetime | None
    """When it ended."""
    log_bytes: int | None
    """The size of the attempt's log; known once it has ended."""
    progress: Progress | None
    """How far the attempt has come."""
    exit: ProcessExit | None
    """How the process of the attempt ended."""
    filled: dict[str, int] | None
    """How many of its items have each field that `expect` names; null without any, or before its end."""
    stats: dict[str, Any]
    """Scrapy's stats."""


class Progress(Record):
    """How far a crawl is."""

    requested_pages: int | None
    """Number of pages that were requested."""
    completed_pages: int | None
    """Number of pages that were fetched."""
    items_count: int | None
    """Number of items that were scraped."""
    errors_count: int | None
    """Number of errors in the log."""
    answered_2xx: int | None
    """Answers with a status of 200 to 299."""
    answered_3xx: int | None
    """Answers with a status of 300 to 399."""
    answered_4xx: int | None
    """Answers with a status of 400 to 499."""
    answered_5xx: int | None
    """Answers with a status of 500 to 599."""
    pages_per_s: float | None
    """Pages per second."""
    can_go_on: bool | None
    """Whether the crawl goes on where it is if it is interrupted or paused."""
    hosts: list[str] | None
    """The hosts that it has asked, at most the first 20. A stream's events leave them out."""
    at: datetime | None
    """When it happened, or was measured."""


class ProcessExit(Record):
    """How the spider's process ended, as the node saw it."""

    exit_code: int | None
    """What the process exited with; `null` if a signal ended it."""
    signal: int | None
    """The signal that has ended the process; `null` if none did."""
    stopped_by: str | None
    """`timeout`, `memory`, `log`, `files`, `stall`, `cancel`, `pause` or `shutdown`."""
    refused: str | None
    """Why the node did not start it."""
    lost: bool
    """Whether the process disappeared, so that nobody saw it end."""
    items_lost: str | None
    """Why some or all of its items could not be read on the node. The items before them were kept."""
    log_lost: str | None
    """The same for its log."""
    files: Files | None
    """Null if it has written no files."""
    finish_reason: str | None
    """Scrapy's finish reason."""
    cpu_seconds: float | None
    """CPU time of the process, in seconds."""
    peak_memory_bytes: int | None
    """The most memory that the process had, in bytes."""
    errors: list[dict[str, str]]
    """The first few errors: URL and reason."""
    log_tail: str | None
    """The end of the log, if the spider left no report."""


class Files(Record):
    """Which of the attempt's files were stored."""

    count: int
    """How many files were kept."""
    bytes: int
    """Size in bytes."""
    refused_count: int
    """How many were not: too large, too many, or no files at all."""
    refused: list[dict[str, str]]
    """The first of those: name and reason."""
    pending: bool
    """Whether they are still to be stored: the file store was away at its end."""


class Advice(Record):
    """What to do next about a job that waits, or that did not end as it should."""

    what: str
    """What is wrong."""
    steps: list[str]
    """What to do, one step after the other."""
    reference: str
    """The page of the documentation that says more; it is at `/help/{reference}`."""


class JobDetailRecord(JobRecord):
    """A `JobRecord` of which all is known."""

    spider: str
    """The name of the spider."""
    created_at: datetime
    """When it was created."""
    user_id: str
    """The user to whom it belongs."""
    spec: CrawlSpec
    """What was asked for."""
    tags: list[str]
    """Labels to find it by."""
    priority: int
    """Waiting jobs with a higher priority begin first."""
    max_retries: int
    """At most this many retries."""
    failures: int
    """How many attempts failed, those that their node did not start included."""
    webhooks: list[str]
    """Addresses that are called with its events."""
    webhooks_delivered: list[str]
    """The webhooks that were called successfully."""
    updated_at: datetime
    """When it was last changed."""
    attempts: list[Attempt]
    """The newest ones: at least 100, if there are as many."""
    logs_url: str
    """The address of the log."""
    items_url: str
    """The address of the items."""
    files_url: str
    """The address of the list of its files."""
    page_url: str
    """The job's page in the console, for people."""
    new_errors: int
    """How many of its errors (`GET /jobs/{job_id}/errors`) are new, or back after they were resolved."""


class ScheduleRecord(Record):
    """A schedule: in lists it has fewer fields."""

    _names = ("schedule_id",)
    _shows = ("name", "interval", "state")
    schedule_id: str
    """The schedule's id. It can be used in place of a job's id."""
    user_id: str
    """The user to whom it belongs."""
    name: str | None
    """The name."""
    state: ScheduleState
    """The state."""
    message: str | None
    """Why it ended."""
    interval: str
    """How often it runs: a cron expression, `@daily` and the like, or `every 15m`."""
    timezone: str
    """The IANA name of the time zone."""
    schedule_at: datetime
    """No run before this time; intervals are counted from it."""
    ends_at: datetime | None
    """No more runs after this time."""
    jitter: float | None
    """Null: the default, 0.1 for `every` and 0 for cron."""
    overlap: Overlap
    """What happens if the previous run has not ended."""
    catch_up: CatchUp
    """What happens to runs that were missed."""
    max_runs: int | None
    """The schedule ends after this many runs."""
    next_run: datetime | None
    """The next run, with jitter; null unless the schedule is active."""
    runs: int
    """How many of its occurrences ran."""
    runs_by_hand: int
    """How many other runs were started by hand; `max_runs` does not count them."""
    last_run_at: datetime | None
    """When the last run began, also one that somebody asked for."""
    last_job_id: str | None
    """The job of the last run."""
    rev: int
    """The revision: it grows by 1 with each change of the schedule."""
    spider: str | None
    """Null for the schedule of a site or target, whose record says what to run."""
    start_urls: list[str]
    """The first 10 start URLs."""
    start_urls_count: int
    """Number of start URLs."""
    tags: list[str]
    """Labels to find it by."""
    site: str | None
    """The site that the schedule, or the schedule's target, belongs to."""
    target: str | None
    """The id of the search that it runs; `null` if it runs none."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it was last changed."""
    status_url: str
    """The address of the status."""
    logs_url: str
    """The address of the log."""
    items_url: str
    """The address of the items."""
    page_url: str
    """The schedule's page in the console, for people."""
    crawl: CrawlOrder | None
    """Null for the schedule of a site or target, whose record says what to run."""


class CrawlOrder(Record):
    """What each run does."""

    project: str
    """The project."""
    version: str | None
    """Null: each run uses the latest version at its time."""
    spider: str
    """The name of the spider."""
    start_urls: list[str]
    """The URLs at which the crawl begins."""
    depth: int | None
    """How many links from the start URLs the crawl goes."""
    params: dict[str, Any]
    """The spider's own parameters."""
    max_pages: int | None
    """The crawl ends after this many pages."""
    max_items: int | None
    """The crawl ends after this many items."""
    timeout: int
    """The crawl is ended after this many seconds."""
    ignore_cache: bool
    """Whether it is crawled even if the same crawl was asked for before."""
    fetch: FetchOptionsRecord | None
    """How pages are fetched."""
    expect: ExpectRecord | None
    """What the crawl must find; a crawl that finds less is `partial`."""
    settings: dict[str, Any]
    """Scrapy's settings."""
    env: dict[str, str]
    """Without the values."""
    dataset: str | dict[str, Any] | None
    """The dataset that the items go into."""
    max_retries: int
    """At most this many retries."""
    priority: int
    """Waiting jobs with a higher priority begin first."""
    tags: list[str]
    """Labels to find it by."""
    webhooks: list[str]
    """Addresses that are called with its events."""


class SpiderRecord(Record):
    """What can be crawled with."""

    _names = ("project", "version", "name")
    project: str
    """`default` is the platform's own project, which `POST /crawl` uses if it names no project."""
    version: str | None
    """The version of the project's egg; null for the project `default`."""
    latest: bool
    """Whether a crawl that names no version runs this one."""
    name: str
    """The name."""
    description: str
    """A short description."""
    params_schema: dict[str, Any] | None
    """JSON Schema of `params`; null: any parameters that are strings."""
    allowed_domains: list[str]
    """Hosts that it visits, with their subdomains; other start URLs are refused. Empty: no limit."""
    own_start: bool
    """The spider makes its own start requests and may ignore the start URLs."""
    needs_urls: bool
    """Whether a crawl must name start URLs, because the spider has none."""
    arguments: list[str]
    """What the constructor of a deployed spider takes by name, as `params`. Others become attributes."""


class FileRecord(Record):
    """A file that a crawl has written."""

    _shows = ("name", "size", "attempt")
    name: str
    """The file's path below the folder that the spider works in."""
    size: int
    """Bytes."""
    type: str
    """The media type, by its name."""
    sha256: str
    """The SHA-256 of its content, in hexadecimal digits."""
    attempt: int
    """The attempt that wrote it."""
    modified_at: datetime
    """When the spider wrote it last."""
    stored_at: datetime
    """When it was stored."""
    url: str
    """Where it can be fetched."""


class DatasetRecord(Record):
    """A dataset: what is known across runs."""

    _names = ("user_id", "name")
    name: str
    """The name."""
    user_id: str
    """The user to whom it belongs."""
    key: list[str]
    """Empty: the canonical `url`, or the content of items without one."""
    ignore: list[str]
    """Fields whose difference is no change."""
    confirm_removed: int
    """An item is removed after so many complete runs in a row without it."""
    drop_guard: float
    """A run that would remove more than this share of the items is held."""
    empty_values: list[str]
    """Texts that count as empty, besides null and blank."""
    may_fail: list[str]
    """Addresses of pages whose failure does not make a run incomplete."""
    item_schema: dict[str, Any]
    """The JSON Schema that each item has to fit; empty: every item fits."""
    exports: list[ExportOrderRecord]
    """The files to write after each run, and where."""
    runs: int
    """How many runs were published."""
    last_seq: int
    """The number of the last change: the cursor of those who know all."""
    floor_seq: int
    """Changes up to this number are no longer kept."""
    held: int
    """How many runs are held: somebody should accept or reject them."""
    waiting: int
    """How many runs have ended and are about to be taken up."""
    head_run: str | None
    """The job of the last published run."""
    complete_at: datetime | None
    """When the last complete run had ended."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it was last changed."""
    page_url: str
    """The address of its page in the console."""


class ExportOrderRecord(Record):
    """One file of each run."""

    to: str
    """`s3://bucket/prefix`, `file:///folder`, or a folder below the first of `EXPORT_TO`."""
    format: Literal["jsonl", "csv", "xlsx", "parquet"]
    """The format in which it is sent or written."""
    what: ExportWhat | None
    """What is written: the whole dataset, or the changes of a run. By default `snapshot`."""
    each: Literal["run"] | None
    """When it is written: after each run. By default `run`."""


class DatasetItem(Record):
    """An item of a dataset, and what is known of it."""

    _shows = ("key", "seq")
    key_hash: str
    """The hash of the item's key, the same in all its changes."""
    key: dict[str, Any]
    """The values that identify the item."""
    item: dict[str, Any]
    """The item; if it is gone, the last that was known."""
    seq: int
    """The change that made it what it is. Apply only changes with a higher `seq` to it."""
    run: str
    """The id of the run's job."""
    first_seen: datetime
    """When it was first seen."""
    changed_at: datetime
    """When it last changed."""
    removed: bool
    """Whether the item is gone."""


class Change(Record):
    """What a run has found out of one item."""

    _names = ("id",)
    _shows = ("type", "key")
    id: str
    """The change's id, the same each time that it is read."""
    seq: int
    """The change's number: changes are in this order. Numbers may be missing."""
    type: ChangeKind
    """The type."""
    deleted: bool
    """Whether the item is gone, for programs that have a column for that."""
    key_hash: str
    """The hash of the item's key, the same in all its changes."""
    key: dict[str, Any]
    """The values that identify the item."""
    item: dict[str, Any]
    """The item; of a removed one the last that was known."""
    changes: dict[str, ChangedField] | None
    """The differences of a changed item, by field; null if they are too large to be stored."""
    run: str
    """The job that found it."""
    at: datetime
    """When it happened, or was measured."""
    first_seen: datetime
    """When it was first seen."""


class ChangedField(Record):
    """A field's values before and after a change."""

    previous: Any
    """The value in the run before."""
    current: Any
    """The value in this run."""


class DatasetRunRecord(Record):
    """What a crawl has done to a dataset."""

    _names = ("job_id",)
    _shows = ("state",)
    job_id: str
    """The job's id."""
    state: RunState
    """The state."""
    incomplete: Incomplete | None
    """Why it removes nothing; null for a complete run."""
    incomplete_message: str | None
    """What kept it from being complete, such as the page that failed."""
    excused: list[str]
    """The pages that failed and may fail (`may_fail`): the run is complete without them."""
    started_at: datetime
    """When it began; `null` until then."""
    ended_at: datetime
    """When it ended."""
    counts: RunCounts
    """How many items the run changes."""
    first_seq: int | None
    """The number of the run's first change."""
    last_seq: int | None
    """The number of the run's last change."""
    findings: list[StoredFinding]
    """Why it is held, or was before it was accepted."""
    left_out: list[str]
    """The first items without a key, as JSON, cut."""
    schema_breaks: list[SchemaBreak]
    """Why items are set apart: by field and rule, the first 20."""
    message: str | None
    """An explanation for people."""
    accepted_by: str | None
    """Who has accepted the run."""
    rejected_by: str | None
    """Who has rejected the run."""
    exports: list[RunExport]
    """The outcomes of the dataset's exports of this run."""
    page_url: str
    """The address of its page in the console."""


class RunCounts(Record):
    """How many items a run changes, or would change if it were published."""

    items: int | None
    """How many items the run has. Items with the same key count once."""
    new: int | None
    """How many items are new."""
    changed: int | None
    """How many items have changed."""
    removed: int | None
    """How many items are gone."""
    same: int | None
    """How many items are as they were."""
    missed: int | None
    """Items that the run has not found, and that are not removed yet."""
    repeated: int | None
    """Items that a later item of the run with the same key has replaced."""
    without_key: int | None
    """Items that are left out because a field of the key is empty."""
    set_apart: int | None
    """Items that are left out because they break the dataset's schema."""


class StoredFinding(Record):
    """Why a run is held: a code, the field, the normal value, the value of this run, and a message."""

    code: str
    """What is unusual, for programs."""
    field: str | None
    """The name of the field."""
    type: str | None
    """The usual type of the field's values, if the finding is that they have another type."""
    normal: float | None
    """The usual value."""
    here: float | None
    """The value of this run."""
    holds: bool | None
    """Whether it holds the run; otherwise it is only shown."""
    message: str
    """An explanation for people."""


class SchemaBreak(Record):
    """One way in which items of a run break the dataset's schema."""

    field: str | None
    """The name of the field."""
    rule: str
    """The keyword of JSON Schema that is broken, such as `type` or `required`."""
    items: int | None
    """Items: their number, or a page of them."""
    message: str
    """An explanation for people."""
    example: str
    """An example: the first of its kind."""


class RunExport(Record):
    """The outcome of one export of a run."""

    to: str
    """Where it is sent."""
    what: ExportWhat
    """What was written: the whole dataset, or the changes of a run."""
    format: str
    """The format in which it is sent or written."""
    rows: int | None
    """Number of rows."""
    written_at: datetime | None
    """When it was written."""
    problem: str | None
    """What went wrong; `null` if nothing did."""


class DatasetHealth(Record):
    """How a dataset's last run compares with others."""

    _shows = ("stage", "runs")
    stage: Stage
    """How much is known of what is normal."""
    runs: int
    """How many runs it is learned from."""
    run: DatasetRunRecord | None
    """The last run, published or held."""
    measures: list[DatasetMeasure]
    """The measures of the run, each with what is normal."""


class DatasetMeasure(Record):
    """A measure of the last run, and what is normal."""

    measure: Measure
    """What is measured."""
    field: str | None
    """The name of the field."""
    value: float
    """Of the run."""
    normal: float
    """The usual value."""
    lower: float | None
    """Below it a run is held."""
    upper: float | None
    """Above it a run is held."""
    within: bool
    """Whether the value is within the bounds."""


class EndpointRecord(Record):
    """A receiver of events; `secret` is of one that was just made."""

    _names = ("endpoint_id",)
    _shows = ("url",)
    endpoint_id: str
    """The endpoint's id."""
    user_id: str
    """The user to whom it belongs."""
    url: str
    """The URL."""
    description: str | None
    """A short description."""
    events: list[str]
    """Empty: all of them."""
    filter: EndpointFilterRecord
    """Which crawls it is about."""
    format: EndpointFormat
    """The format in which it is sent or written."""
    all_users: bool
    """Whether it covers the crawls of all users."""
    paused: bool
    """Whether it is paused."""
    disabled_at: datetime | None
    """Since when the platform calls it no more."""
    disabled_reason: str | None
    """Why nothing is sent to it any more; `null` while it is enabled."""
    failing_since: datetime | None
    """Since when every call has failed."""
    created_at: datetime
    """When it was created."""
    secret: str | None
    """The secret that signs calls; `GET …/secret` shows it again. `null` with the format `apprise`."""


class EndpointFilterRecord(Record):
    """Which crawls the endpoint receives events of. A crawl must have one of the values of each given field."""

    projects: list[str] | None
    """The projects."""
    spiders: list[str] | None
    """The spiders."""
    sites: list[str] | None
    """The sites."""
    datasets: list[str] | None
    """Names of datasets: only events of these."""
    schedules: list[str] | None
    """The schedules."""
    tags: list[str] | None
    """Labels to find it by."""
    users: list[str] | None
    """The users."""


class DeliveryRecord(Record):
    """A call of an endpoint; `body` is of one that was asked for by its id."""

    _names = ("delivery_id",)
    _shows = ("type", "state")
    delivery_id: str
    """The delivery's id."""
    message_id: str
    """The `webhook-id` of each of its calls."""
    type: str
    """The type."""
    endpoint_id: str | None
    """`null` for a webhook that was named with the crawl."""
    job_id: str | None
    """The job's id."""
    url: str
    """The endpoint's URL at the time of the event."""
    state: DeliveryState
    """`failed`: no try was answered well; `refused`: the receiver wants no further call (410); `skipped`: its
    endpoint was paused or disabled.
    """
    created_at: datetime
    """When it was created."""
    next_try: datetime | None
    """When the next try is due."""
    tries: int
    """Since it was made, or since it was last sent again."""
    calls: list[DeliveryTry]
    """The last 20, the newest last."""
    body: dict[str, Any] | None
    """The body of the call."""


class DeliveryTry(Record):
    """A try of a call, and its answer."""

    at: datetime
    """When it happened, or was measured."""
    seconds: float
    """How long the call took."""
    status: int | None
    """Of the answer, if there was one."""
    problem: str | None
    """Why it failed."""
    answer: str | None
    """The beginning of the answer's body, up to 1 KB."""


class AlertRecord(Record):
    """What a rule has found."""

    _names = ("alert_id",)
    _shows = ("rule", "group", "firing")
    alert_id: str
    """The alert's id."""
    rule_id: str
    """The rule's id."""
    rule: str
    """The rule's name."""
    user_id: str
    """The user; empty for an alert about the platform."""
    group_by: Grouping
    """One alert for each of these."""
    group: str
    """The spider, schedule, node or other thing that the alert is about."""
    firing: bool
    """Whether it still fires."""
    since: datetime | None
    """Since when it is so, or was at last."""
    until: datetime | None
    """When it ended."""
    message: str
    """An explanation for people."""
    job_id: str | None
    """The last run that it is about."""
    told: bool
    """Whether the receivers were notified of the alert, and not of its end since."""
    silenced_until: datetime | None
    """`null` unless it is silenced now."""
    past: list[PastAlert]
    """Earlier incidents of this alert: the last 20, the oldest first."""


class PastAlert(Record):
    """A time at which an alert fired before."""

    since: datetime
    """When it began to fire."""
    until: datetime
    """When it ceased to fire."""
    message: str
    """An explanation for people."""


class AlertRuleRecord(Record):
    """When an alert begins, and who is told."""

    _names = ("rule_id",)
    _shows = ("name",)
    rule_id: str
    """The rule's id."""
    user_id: str
    """Empty for one that everybody has."""
    name: str
    """The name."""
    when: AlertConditionRecord
    """What is measured, and from which value on there is an alert."""
    filter: EndpointFilterRecord
    """Which crawls it is about."""
    group_by: Grouping
    """One alert for each of these."""
    to: list[str]
    """Where it is sent."""
    quiet: QuietHoursRecord | None
    """Hours in which nobody is notified."""
    silenced_until: datetime | None
    """`null` unless it is silenced now."""
    remind_seconds: float | None
    """Seconds after which an alert that still fires is sent again."""
    paused: bool
    """Whether it is paused."""
    all_users: bool
    """Whether it covers the crawls of all users."""
    builtin: str | None
    """The built-in rule that this is, or is a version of."""
    is_changed: bool
    """Whether this is a form of one that everybody has; deleting it takes it back."""
    created_at: datetime
    """When it was created."""


class AlertConditionRecord(Record):
    """What is measured, and from which value on there is an alert."""

    measure: AlertMeasure
    """What is measured."""
    above: float | None
    """There is an alert if the measure is above it."""
    below: float | None
    """There is an alert if the measure is below it."""
    of_usual: int | None
    """`above` or `below` is a multiple of the median of so many earlier runs."""
    runs: int | None
    """The condition must hold for this many runs in a row. By default `1`."""
    for_seconds: float | None
    """The condition must hold for so many seconds. By default `0.0`."""


class QuietHoursRecord(Record):
    """No alerts are sent between these times of day. An alert that still fires at the end is sent then."""

    since: str
    """The time of day at which they begin."""
    until: str
    """The time of day at which they end."""
    timezone: str | None
    """The IANA name of the time zone. By default `UTC`."""


class AlertRulePreview(Record):
    """What a rule would have found."""

    _shows = ("runs", "count")
    since: datetime
    """From when on runs were looked at: later than asked for if there are many."""
    runs: int
    """Runs: their number, or a page of them."""
    count: int
    """How often it would have fired."""
    incidents: list[AlertIncident]
    """The latest 200, the newest first."""


class AlertIncident(Record):
    """When a rule would have found something, and what."""

    group_by: Grouping
    """One alert for each of these."""
    group: str
    """The spider, schedule, node or other thing that the alert is about."""
    since: datetime
    """Since when it goes on."""
    until: datetime | None
    """`null` while it lasts."""
    message: str
    """An explanation for people."""


class ErrorGroupRecord(Record):
    """Errors of many runs that are the same; in lists it has fewer fields."""

    _names = ("error_id",)
    _shows = ("title", "state")
    error_id: str
    """The same for all runs of this user's spider."""
    kind: str
    """`exception`; `log`: a message of level ERROR or above; `status`: an answer of 400 or above; `download`:
    a request without an answer; `crawl`: a crawl that failed without any of these.
    """
    title: str
    """The error in one line."""
    name: str
    """The exception's class, the level, the status, or the job's `reason`."""
    place: str
    """The function of the project's code that raised or logged it, or the host."""
    message: str
    """The message, with `<number>`, `<text>`, `<url>` … for values that differ."""
    user_id: str
    """The user to whom it belongs."""
    project: str
    """The project."""
    spider: str
    """The name of the spider."""
    state: ErrorGroupState
    """The state."""
    first_seen: ErrorGroupRun
    """When it was first seen."""
    last_seen: ErrorGroupRun
    """When it was last seen."""
    first_since: ErrorGroupRun | None
    """In a list with `since`: the first run since then with it, of the last 50 with it."""
    runs: int
    """How many runs have had it."""
    count: int
    """How often it occurred in all of them."""
    days: list[ErrorGroupDay]
    """The days on which runs with it ended, the oldest first: of the last 30 in lists, else up to 90."""
    runs_since: int
    """How many runs of the spider have ended well since, without it."""
    runs_since_is_least: bool
    """Whether `runs_since` is too low: it counts 30 days only, and the error is older."""
    resolved_at: datetime | None
    """When somebody said last that it is repaired."""
    resolved_by: str | None
    """Who has resolved it; `null` if nobody has."""
    resolved_version: str | None
    """The version with the repair, as named by whoever resolved it."""
    back: ErrorGroupRun | None
    """The run that has had it again after that."""
    example: ErrorGroupExample
    """An example: the first of its kind."""
    recent_runs: list[ErrorGroupMarkedRun] | None
    """The last 50 runs with it, the newest first."""
    gone_since: ErrorGroupRun | None
    """The first run without it that ended well after the last one with it, if that is among the spider's last
    50; its `count` is 0.
    """


class ErrorGroupRun(Record):
    """A run with errors of the group."""

    job_id: str
    """The job's id."""
    version: str | None
    """The project's version; `null` if the crawl named none."""
    at: datetime
    """When the run ended."""
    count: int
    """How often it occurred in the run."""


class ErrorGroupDay(Record):
    """How often an error came on a day."""

    day: date
    """The day, by UTC."""
    runs: int
    """Runs: their number, or a page of them."""
    count: int
    """Number of occurrences."""


class ErrorGroupExample(Record):
    """The first error of the group in the last run."""

    job_id: str
    """The job's id."""
    attempt: int
    """The number of the attempt, from 1 on."""
    text: str
    """The message with its values, up to 500 characters."""
    url: str
    """The page that it is about; empty if that is not known."""
    at: datetime | None
    """When it happened, or was measured."""
    position: str | None
    """Where its line begins in the log: the `from` of `GET /jobs/{job_id}/logs/lines`."""


class ErrorGroupMarkedRun(Record):
    """A run of the group's spider, and what it means for the group."""

    job_id: str
    """The job's id."""
    version: str | None
    """The project's version; `null` if the crawl named none."""
    at: datetime
    """When the run ended."""
    count: int
    """How often it occurred in the run."""
    mark: ErrorGroupMark
    """`new`: the first run with it; `back`: it was resolved before the run began."""


class JobErrorRecord(Record):
    """Errors of one job that are the same."""

    _shows = ("title", "count", "mark")
    error_id: str
    """The same for all runs of this user's spider."""
    kind: str
    """`exception`; `log`: a message of level ERROR or above; `status`: an answer of 400 or above; `download`:
    a request without an answer; `crawl`: a crawl that failed without any of these.
    """
    title: str
    """The error in one line."""
    name: str
    """The exception's class, the level, the status, or the job's `reason`."""
    place: str
    """The function of the project's code that raised or logged it, or the host."""
    message: str
    """The message, with `<number>`, `<text>`, `<url>` … for values that differ."""
    mark: ErrorGroupMark
    """`new`: no run before has had it; `back`: it was resolved before the run began; else `known`."""
    state: ErrorGroupState | None
    """`null` while it is not known across runs."""
    count: int
    """How often it occurred in this run."""
    first_seen: ErrorGroupRun | None
    """When it was first seen."""
    runs: int
    """How many runs have had it, if this is known."""
    example: ErrorGroupExample
    """An example: the first of its kind."""


class DeadLetterRecord(Record):
    """A job that is out of retries."""

    _names = ("id",)
    _shows = ("spider", "message")
    id: str
    """The job's id."""
    run_id: str | None
    """The run's id, if the job is a run of a site."""
    user_id: str
    """The user to whom it belongs."""
    project: str
    """The project."""
    spider: str
    """The name of the spider."""
    site: str | None
    """The name of the site."""
    start_urls: list[str]
    """The first ten start URLs."""
    message: str | None
    """Why it ended."""
    attempts: int
    """The number of its attempts."""
    created_at: datetime
    """When it was created."""
    finished_at: datetime | None
    """When the job ended; `null` until then."""
    retry_of: str | None
    """The job that this one repeats."""
    job_url: str
    """The address of the job."""
    logs_url: str
    """The address of the log."""


class RequestRecord(Record):
    """A request that a crawl has made."""

    _shows = ("url", "status")
    url: str
    """The URL as requested, without a login, at most 2,000 characters."""
    status: int | None
    """Null if there was no answer."""
    ms: int | None
    """Milliseconds of the last try; null if nothing was sent."""
    bytes: int | None
    """Size of the answer, decompressed."""
    cached: bool
    """Whether the HTTP cache answered."""
    failed: bool
    """Whether it counts as an error: no answer, 429 or 5xx, after all retries."""
    reason: str | None
    """Why it failed, or was not sent."""
    code: str | None
    """The reason as a code, one of the codes of a job's `reason`."""
    redirected_to: str | None
    """The URL that answered, if it is another one."""
    retries: int
    """How often it was tried again."""
    parent: str | None
    """The page that led to it; null for start URLs and robots.txt."""
    attempt: int
    """The attempt that asked."""
    at: datetime | None
    """When it ended."""


class JobProgress(Record):
    """How far a job is, and how it has come there."""

    _shows = ("estimate",)
    attempts: list[AttemptCurve]
    """The latest ten."""
    estimate: Estimate | None
    """Null unless it runs, and while nobody can know: its queue grows, or does not move."""


class AttemptCurve(Record):
    """Counts from the attempt's beginning on: all lists have the same length, and belong to the times in `at`.
    There are at most 240 points; the longer the crawl, the further apart they are.
    """

    attempt: int
    """The number of the attempt, from 1 on."""
    at: list[datetime]
    """When it happened, or was measured."""
    requested_pages: list[int]
    """Number of pages that were requested."""
    completed_pages: list[int]
    """Number of pages that were fetched."""
    items_count: list[int]
    """Number of items that were scraped."""
    errors_count: list[int]
    """Number of errors in the log."""
    answered_2xx: list[int]
    """Answers with a status of 200 to 299."""
    answered_3xx: list[int]
    """Answers with a status of 300 to 399."""
    answered_4xx: list[int]
    """Answers with a status of 400 to 499."""
    answered_5xx: list[int]
    """Answers with a status of 500 to 599."""


class Estimate(Record):
    """When the crawl ends if it goes on at the pace of the last minute."""

    at: datetime
    """When it happened, or was measured."""
    reckoned_by: Literal["queue", "max_pages", "max_items", "timeout"]
    """What will end it. `queue`: no request is left; `max_pages`, `max_items`, `timeout`: that limit."""
    queued: int
    """Requests that wait or are under way."""
    done_per_s: float
    """Requests that end, a second."""
    found_per_s: float
    """New requests, a second. The queue gets shorter while this is smaller."""
    items_per_s: float
    """Items per second."""


class RepairBundle(Record):
    """What a spider is mended with."""

    _shows = ("version", "last_good_run")
    notice: str
    """For a program that obeys what it reads."""
    untrusted: list[str]
    """The parts whose texts come from web pages."""
    job: JobSummary
    """The job."""
    version: str | None
    """Of the project; null for the platform's own."""
    advice: Advice | None
    """What to do next; `null` if nothing has to be done."""
    last_good_run: str | None
    """The job that it is compared with: the last of its kind that ended well."""
    differences: list[RunDifference]
    """Between the two: what was asked for, counts, and how sites have answered."""
    failing_pages: list[RequestRecord]
    """The first 30 requests that failed."""
    more_failing_pages: bool
    """Whether there are more than `failing_pages`."""
    errors: list[JobErrorRecord]
    """The first 20 kinds of errors, the new ones first."""
    errors_left_out: int
    """How many more kinds of errors there are."""
    fields: list[CoveredField]
    """Fields that are emptier than in the runs before, or gone."""
    log_end: str | None
    """The end of the log, of a process that ended without a report."""
    source: Source | None
    """The texts in the deployed version; null if they cannot be shown."""
    source_missing: str | None
    """Why there is no source."""


class JobSummary(Record):
    """One line of a list."""

    job_id: str
    """The job's id."""
    status: JobStatus
    """The status."""
    spider: str
    """The name of the spider."""
    version: str | None
    """The version of the spider's project; null for the project `default`."""
    max_items: int | None
    """The job ends after this many items."""
    attempt: int
    """The number of the latest attempt; 0 before the first."""
    spider_job_id: str | None
    """`<job>-<attempt>`: the attempt's name in Scrapyd."""
    node: str | None
    """The name of the node."""
    waiting_reason: str | None
    """Why the job has not started; only for pending jobs. `disk_full`: the nodes that could run it have no
    room. `site_busy`, `previous_run`: it waits for the end of another run.
    """
    queue_position: int | None
    """1 goes next: the user with the fewest running crawls has the next turn. Only for pending jobs that do
    not wait for another run.
    """
    not_before: datetime | None
    """The job does not start before this time; only for pending jobs."""
    next_run: datetime | None
    """When the job will run; only for scheduled jobs."""
    schedule_id: str | None
    """The schedule whose run this job is."""
    slot: ScheduleSlot | None
    """The schedule's occurrence; null if a person asked for the run."""
    site: str | None
    """The site whose run this job is."""
    trigger: Trigger | None
    """For a run of a site: whether a person or its schedule asked for it."""
    requested_pages: int
    """Number of pages that were requested."""
    completed_pages: int
    """Number of pages that were fetched."""
    items_count: int
    """Number of items that were scraped."""
    errors_count: int
    """Number of errors in the log."""
    pages_per_s: float
    """Pages per second."""
    created_at: datetime
    """When it was created."""
    started_at: datetime | None
    """When it began; `null` until then."""
    finished_at: datetime | None
    """When the job ended; `null` until then."""
    cancel_requested_at: datetime | None
    """When cancelling was asked for; `null` if it was not."""
    pause_requested_at: datetime | None
    """Null again once the job is resumed."""
    expires_at: datetime | None
    """When a paused job is cancelled if nobody resumes it."""
    reason: str | None
    """Why it ended so, why its last attempt did, or why no node could take its egg: a code.
    docs/troubleshooting.md explains each. Null while nothing has ended, and for jobs of releases that had
    none.
    """
    message: str | None
    """The same in words; they may change from release to release."""
    dead: bool
    """Whether it is a dead letter: it failed and has no retries left."""
    kind: Literal["job"]
    """What kind of thing it is."""
    user_id: str
    """The user to whom it belongs."""
    project: str
    """The project."""
    start_urls: list[str]
    """The first ten start URLs."""
    start_urls_count: int
    """Number of start URLs."""
    tags: list[str]
    """Labels to find it by."""
    priority: int
    """Waiting jobs with a higher priority begin first."""


class RunDifference(Record):
    """A value that differs from that of the last good run."""

    name: str
    """The name."""
    before: Any
    """The value in the run that it is compared with."""
    now: Any
    """The value in this run."""


class CoveredField(Record):
    """How full a field of a job's items is, and with which types."""

    name: str
    """For a field of an object, both names with a dot between them."""
    path: list[str]
    """The same as one name, or two for a field of an object."""
    filled: int
    """How many items have something in it: no null, blank text, empty list or object."""
    share: float
    """`filled` among the items that were counted; from 0 to 1."""
    types: dict[str, int]
    """How many values are of each type; types as in JSON Schema."""
    example: str | None
    """The first value that is not empty, as JSON; cut if it is long."""
    share_before: float | None
    """What was usual: the median of the last five runs before that were not lower themselves; null if none is
    known.
    """
    lower: bool
    """Whether the share is lower than before by more than 5 percentage points."""
    lower_since: str | None
    """If it is lower: the job since which it was lower in all runs; the same job if this is the first."""


class Source(Record):
    """The source of the version that ran."""

    files: list[SourceFile]
    """The spider's own module first."""
    left_out: list[str]
    """Paths of texts that have found no room."""
    more: int
    """How many further paths there are."""


class SourceFile(Record):
    """A file of a version's source."""

    path: str
    """The path of the file."""
    text: str
    """The content of the file."""
    is_cut: bool
    """Whether the text is only its beginning."""


class SpiderFields(Record):
    """How full a spider's fields were, run by run."""

    _shows = ("complete",)
    runs: list[SpiderRun]
    """The last 20 that ended well, the oldest first: of the schedule of the newest one, or with the same start
    URLs and parameters if it has none.
    """
    fields: list[FieldOverRuns]
    """Fields whose share is lower come first; at most 300 of each run."""
    complete: bool
    """Whether all items were counted. If not, ask again: it goes on."""


class SpiderRun(Record):
    """A run whose fields were counted."""

    job_id: str
    """The job's id."""
    version: str | None
    """The version."""
    finished_at: datetime | None
    """When the job ended; `null` until then."""
    counted: int
    """How many of its items were counted."""


class FieldOverRuns(Record):
    """How full a field was, run by run."""

    name: str
    """For a field of an object, both names with a dot between them."""
    path: list[str]
    """The same as one name, or two for a field of an object."""
    shares: list[float | None]
    """The share of items that fill it, from 0 to 1, in each of `runs`; null for a run without items, or with
    too many fields to count this one.
    """
    lower_since: str | None
    """The job since which its share is lower in all runs than what was usual, by more than 5 percentage
    points; null if it is not lower in the last run. Usual is the median of the last five runs that were not
    lower themselves. If it is the first of `runs`, runs before these may have been lower, too.
    """
    lower_in: list[str]
    """The jobs among `runs` in which its share is lower than what was usual."""
    missing_on: list[MissingFieldPlace]
    """If it is lower: the parts of the site of whose items at least half lack it, in the last run."""
    types: dict[str, int]
    """How many values are of each type, in the last run that has items."""


class MissingFieldPlace(Record):
    """A place where a field is missing, and how often."""

    place: str
    """The first part of the paths of these pages, by the item's `url`."""
    items: int
    """How many of the items that were looked at are from there."""
    missing: int
    """How many of these lack the field."""


class JobsHealth(Record):
    """What waits, and for how long."""

    _shows = ("status", "free_slots")
    status: Literal["ok", "degraded"]
    """`degraded`: jobs wait and no node takes new work."""
    jobs: dict[str, int]
    """The number of jobs in each status. Very many ended jobs are counted seldom, and are left out until the
    first count is done.
    """
    oldest_waiting_seconds: float | None
    """How long the job that has waited the longest has done so."""
    nodes: dict[str, int]
    """The number of nodes in each state. Only nodes that are `up` get new work."""
    nodes_alive: int
    """How many nodes take work."""
    free_slots: int
    """Free slots of the nodes that are `up`."""


class SchedulerStatus(Record):
    """Whether schedules are on time."""

    _shows = ("due", "lag_seconds")
    at: datetime
    """When it happened, or was measured."""
    beats_alive: int
    """How many of these processes live."""
    beats: list[SchedulerProcess]
    """The beats with a recent sign of life."""
    due: int
    """How many schedules are due and not fired yet; counted up to 10,000."""
    lag_seconds: float
    """How late the most delayed of them is; 0 if none is due."""
    next_run: datetime | None
    """When the next occurrence of any schedule is due, or was due."""
    schedules: dict[str, int]
    """The number of schedules in each state."""
    one_off_jobs: int
    """How many single crawls have a `schedule_at` in the future."""
    last_fires: list[OccurrenceDecision]
    """The latest entries in the ledger of all schedules, newest first."""


class SchedulerProcess(Record):
    """A process that starts what is due, and whether it lives."""

    name: str
    """`beat:<host>:<process>`."""
    alive: bool
    """Whether it has been heard of lately."""
    last_seen_at: datetime
    """When it was last heard of."""


class OccurrenceDecision(Record):
    """The decision on one occurrence."""

    schedule_id: str
    """The schedule's id."""
    job_id: str
    """The run's job; if the occurrence was not fired, the id that its job would have had."""
    kind: LedgerKind
    """What kind of thing it is."""
    due: datetime
    """When the run was due."""
    recorded_at: datetime
    """When it was recorded."""
    late_by_seconds: float
    """How many seconds late the run began."""
    missed: int
    """How many other occurrences this run makes up for, or were missed together with this one."""
    reason: str | None
    """The code of the reason."""


class Moment(Record):
    """What has happened to a job at a time."""

    _shows = ("at", "kind")
    at: datetime
    """When it happened, or was measured."""
    kind: MomentKind
    """What kind of thing it is."""
    until: datetime | None
    """The end of what lasts: `scheduled`, `waiting`, `started`, `paused`. Null if it goes on."""
    attempt: int | None
    """The number of the attempt, from 1 on."""
    node: str | None
    """The name of the node."""
    reason: str | None
    """Why it waits; null until a worker has looked at it, as in `GET /jobs/{job_id}/status`."""
    status: JobStatus | None
    """Of the attempt, or of the job."""
    message: str | None
    """An explanation for people."""
    by: str | None
    """The user who asked for it; null while there are no keys."""


class FieldCoverage(Record):
    """How full the fields of a job's items are."""

    _shows = ("items", "counted")
    job_id: str | None
    """The job; for a schedule its run, null before the first one."""
    attempt: int | None
    """The attempt that the items are from; null before the first one."""
    items: int
    """How many items there are."""
    counted: int
    """How many of them were counted. If there are more, ask again: it goes on."""
    fields: list[CoveredField]
    """In the order of their appearance; those that only runs before had come last."""
    more_fields: bool
    """Whether there are fields that are not counted: too many, or names too long."""
    runs: list[CoveredRun]
    """The runs that it is compared with, newest first."""
    removed_at: datetime | None
    """When its items were removed: their retention time was over."""


class CoveredRun(Record):
    """The run that a job's fields are compared with."""

    job_id: str
    """The job's id."""
    version: str | None
    """The version."""
    finished_at: datetime | None
    """When the job ended; `null` until then."""
    counted: int
    """How many of its items were counted."""


class ItemDifferences(Record):
    """Which items of a job are new, changed or gone since another."""

    _shows = ("new", "changed", "removed")
    job_id: str | None
    """The job; for a schedule its run, null before the first one."""
    other_job_id: str | None
    """The run that it is compared with; null if there is none before it that ended well."""
    key: list[str]
    """The fields that make two items the same item."""
    compared: int
    """How many items of the run were compared: the first 20,000 at most."""
    other_compared: int
    """The same of the other run."""
    is_whole: bool
    """Whether these are all items of both. If not, what seems new or removed may only come later in the other
    run.
    """
    new: int
    """How many items are new."""
    changed: int
    """How many items have changed."""
    removed: int
    """How many items are gone."""
    same: int
    """How many items are as they were."""
    repeated: int
    """How many items have the key of an item before them, in whose place they are."""
    without_key: int
    """How many items lack a field of the key, and are not compared."""
    differences: list[ItemDifference]
    """Changed items first, then new ones and removed ones."""


class ItemDifference(Record):
    """An item that is new, changed or gone."""

    type: ChangeKind
    """The type."""
    key: dict[str, Any]
    """Empty for an item without `url`, which is compared by all of its content."""
    item: dict[str, Any]
    """Of a removed one as the other run had it."""
    changes: dict[str, ChangedField] | None
    """The differences of a changed item, by field; null if they are too large."""


class ComingRun(Record):
    """A run of a schedule that is to come."""

    _shows = ("at", "local")
    at: datetime
    """The time by the schedule."""
    due: datetime
    """The same time with jitter: the run starts then."""
    local: str
    """`due` in the schedule's time zone, with its offset."""
    clocks_moved_minutes: int
    """By how many minutes the clocks of the time zone have moved since the run before, or since now."""


class Occurrence(Record):
    """A time of a schedule, and what came of it."""

    _shows = ("kind", "due", "job_id")
    kind: LedgerKind
    """What kind of thing it is."""
    trigger: Trigger
    """`manual`: somebody asked for the run, beside the occurrences."""
    job_id: str | None
    """The run's job; null if there was no run."""
    status: JobStatus | None
    """The job's; null if there was no run, or if it was deleted."""
    at: datetime
    """When it happened, or was measured."""
    due: datetime
    """When the run was due."""
    recorded_at: datetime
    """When it was recorded."""
    late_by_seconds: float
    """How many seconds late the run began."""
    missed: int
    """How many other occurrences this run makes up for, or were missed together with this one."""
    reason: str | None
    """The code of the reason."""
    rev: int
    """The revision of the schedule that the decision was made by."""


class CrawlPreview(Record):
    """What would become of a crawl."""

    _shows = ("accepted",)
    accepted: bool
    """Whether `POST /crawl` would accept it."""
    problems: list[PreviewProblem]
    """Why it would be refused."""
    answer: PreviewAnswer | None
    """Null if it would be refused."""
    place: PreviewPlace | None
    """Null unless a new job would begin now."""
    schedule: PreviewedSchedule | None
    """Null for a crawl that would begin now."""
    runs: list[ComingRun]
    """The next ten at most, for a crawl for later. Those of a new schedule are without jitter."""
    crawl: CrawlOrder | None
    """The crawl as it would be, with the defaults of what was left out; null if its spider is unknown."""


class PreviewProblem(Record):
    """Why `POST /crawl` would refuse the request: its status and its error."""

    status: int
    """The status."""
    code: str
    """What is wrong, for programs."""
    field: str | None
    """The wrong field; null if no field is wrong."""
    message: str
    """An explanation for people."""
    detail: Any
    """Further facts, which differ from code to code."""


class PreviewAnswer(Record):
    """The job or schedule that the request would get."""

    cached: bool
    """Whether a job or schedule that exists answers."""
    scheduled: bool
    """Whether the crawl would run later, or again and again."""
    job_id: str | None
    """The job or schedule that exists; null if there would be a new one."""
    cached_at: datetime | None
    """When that was first asked for."""
    status: JobStatus | ScheduleState | None
    """The job's status."""
    reason: str
    """Why it answers, or why nothing does."""


class PreviewPlace(Record):
    """Where a new job would run now."""

    node: str | None
    """The node that would get it; null if it would have to wait."""
    waiting_reason: str | None
    """Why it would have to wait."""
    queue_position: int | None
    """The job's place among the jobs that wait; 1 goes next."""


class PreviewedSchedule(Record):
    """The requested timing, with defaults for the fields that were left out."""

    interval: str | None
    """How often it runs: a cron expression, `@daily` and the like, or `every 15m`."""
    timezone: str
    """The IANA name of the time zone."""
    schedule_at: datetime | None
    """When it would run."""
    ends_at: datetime | None
    """No more runs after this time."""
    jitter: float
    """The largest share of the gap to the next run by which a run is moved."""
    overlap: Overlap
    """What happens if the previous run has not ended."""
    catch_up: CatchUp
    """What happens to runs that were missed."""
    max_runs: int | None
    """The schedule ends after this many runs."""


class BulkReport(Record):
    """What was done to many jobs."""

    _shows = ("action", "matched", "done")
    action: Action
    """What was done to the jobs."""
    matched: int | None
    """How many of the jobs the action can be done to: live ones for `cancel`, ended ones for `retry` and
    `delete`. Null in a call with `after`.
    """
    as_of: datetime | None
    """When they were counted."""
    done: int | None
    """How many jobs it was done to."""
    refused: int | None
    """How many could not be acted on, because they have changed."""
    refusals: list[BulkRefusal] | None
    """The first 20 of these, and why."""
    next: str | None
    """Not null: the time was over before all was done. Ask again with this as `after` to go on."""
    stopped: str | None
    """Why it stopped early: a quota, or a store that is away. Go on later, by `next`."""


class BulkRefusal(Record):
    """A job with which that could not be done, and why."""

    job_id: str
    """The job's id."""
    code: str
    """What is wrong, for programs."""
    message: str
    """An explanation for people."""


class RunDays(Record):
    """How runs went, day by day."""

    _shows = ("total",)
    total: RunSums
    """The sums of all these days."""
    days: list[RunDay]
    """Every day, the oldest first; the last one is today."""


class RunSums(Record):
    """Jobs that have ended."""

    runs: int
    """How many have ended; with which status, the next four say."""
    finished: int
    """Number of finished runs."""
    partial: int
    """Number of partial runs."""
    error: int
    """Number of runs that ended with an error."""
    cancelled: int
    """Number of cancelled runs."""
    success_rate: float | None
    """The share of finished runs among those that ended, without cancelled ones. Partial is no success. From 0
    to 1; null without such.
    """
    pages: int
    """Number of pages."""
    items: int
    """Items: their number, or a page of them."""
    errors: int
    """Errors: their number, or a page of them."""
    error_share: float | None
    """Errors among pages and errors; null if there are neither."""
    median_seconds: float | None
    """From the first start to the end, right to 9 %; null if none was started."""


class RunDay(Record):
    """How the runs of a day went."""

    runs: int
    """How many have ended; with which status, the next four say."""
    finished: int
    """Number of finished runs."""
    partial: int
    """Number of partial runs."""
    error: int
    """Number of runs that ended with an error."""
    cancelled: int
    """Number of cancelled runs."""
    success_rate: float | None
    """The share of finished runs among those that ended, without cancelled ones. Partial is no success. From 0
    to 1; null without such.
    """
    pages: int
    """Number of pages."""
    items: int
    """Items: their number, or a page of them."""
    errors: int
    """Errors: their number, or a page of them."""
    error_share: float | None
    """Errors among pages and errors; null if there are neither."""
    median_seconds: float | None
    """From the first start to the end, right to 9 %; null if none was started."""
    day: date
    """The day (UTC) on which these jobs ended."""


class SiteRecord(Record):
    """Where is searched, and how often."""

    _names = ("name",)
    _shows = ("enabled",)
    name: str
    """The name."""
    number: int
    """The site's number: `website_id` in messages, `site_schedule_id` in run records."""
    enabled: bool
    """Whether the search runs at its times."""
    project: str
    """The project."""
    spider: str
    """The name of the spider."""
    search_url: str
    """The address of the site's search."""
    requires_playwright: bool
    """Whether its pages need a browser."""
    pagination_type: PaginationType
    """How the site leads to its next page."""
    selectors: dict[str, str]
    """CSS selectors by field."""
    interval_minutes: int
    """Minutes from one run to the next."""
    min_pause_seconds: float
    """The shortest pause between two requests, in seconds."""
    max_pause_seconds: float
    """The longest pause between two requests, in seconds."""
    max_retries: int
    """At most this many retries."""
    rate_limit: str | None
    """How many requests go to the site in a time, such as `10/m`; `null` for no limit."""
    allow_overlap: bool
    """Whether a run begins although the previous one has not ended."""
    payload: dict[str, Any]
    """What the site's spider is given."""
    fetch: FetchOptionsRecord
    """The options, without the values of headers and cookies and without the proxy's password."""
    expect: ExpectRecord | None
    """What each run must find; a run that finds less is `partial`."""
    dataset: str | dict[str, Any] | None
    """The dataset that the items of its runs become part of."""
    schedule_id: str
    """The id of the site's schedule in `/schedules`."""
    schedule_state: ScheduleState | None
    """The state of its schedule. While `paused`, it runs only when somebody asks."""
    last_run_at: datetime | None
    """When its schedule last ran it."""
    next_run_at: datetime | None
    """The next run by its schedule; null if the site is disabled or its search URL needs words."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it was last changed."""


class TargetRecord(Record):
    """What is searched for on a site."""

    _names = ("id",)
    _shows = ("site", "keywords")
    id: str
    """The id."""
    number: int
    """The target's number: `target_id` in messages. It can be used instead of the id in every path."""
    site: str
    """The name of the site."""
    keywords: str
    """The words that are searched for."""
    location: str
    """The place that is searched for."""
    frequency: int | str | None
    """How often the search runs."""
    timezone: str
    """The IANA name of the time zone."""
    enabled: bool
    """Whether the search runs at its times."""
    results_wanted: int | None
    """The search ends after this many results."""
    is_remote: bool | None
    """Whether only remote jobs are searched for."""
    schedule_id: str
    """The id of its schedule in `/schedules`."""
    last_scheduled: datetime | None
    """When a run of it was last handed to a worker."""
    next_run: datetime | None
    """Null if it or its site is disabled."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it was last changed."""


class ProjectRecord(Record):
    """A project of spiders."""

    _names = ("name",)
    _shows = ("latest",)
    name: str
    """The name."""
    latest: str | None
    """The version that a crawl runs if it names none."""
    previous: str | None
    """The version that a rollback makes the latest; null if there is none."""
    versions: list[str]
    """All versions; the one that was deployed last comes last. Empty for the project `default`."""


class VersionRecord(Record):
    """A version of a project."""

    _shows = ("version", "latest")
    version: str
    """The version."""
    latest: bool
    """Whether a crawl that names no version runs this one."""
    deployed_at: datetime | None
    """When its egg was stored; null if no egg is stored."""
    sha256: str | None
    """The SHA-256 of the egg."""
    size: int | None
    """The size of the egg in bytes."""
    spiders: int
    """How many spiders it has."""
    nodes: list[str]
    """The nodes that have it. Others get it when a crawl waits for it."""


class Deployment(Record):
    """A version that nodes have now."""

    _shows = ("project", "version", "spiders")
    project: str
    """The project."""
    version: str
    """The version."""
    spiders: int
    """The number of spiders in the egg."""
    nodes: list[NodeAnswer]
    """One entry for each node."""


class NodeAnswer(Record):
    """What a node has said to a deployment."""

    node: str
    """The name of the node."""
    accepted: bool
    """Whether it was accepted."""
    spiders: int
    """The number of spiders in the egg."""
    message: str | None
    """Why the node did not accept the egg."""
    reason: str | None
    """The same as a code, which docs/troubleshooting.md explains. Nodes of older releases give none."""


class Dependencies(Record):
    """What nodes have installed for a version."""

    _shows = ("project", "version")
    project: str
    """The project."""
    version: str
    """The version."""
    nodes: list[NodeDependencies]
    """One entry for each node."""


class NodeDependencies(Record):
    """What a node has installed for a version."""

    node: str
    """The name of the node."""
    state: Literal["none", "building", "ready", "failed", "unknown"]
    """`none`: the version has no requirements and runs with what the node has. `unknown`: the node does not
    answer, or not in a way that is understood.
    """
    message: str | None
    """Why it failed, or why the node cannot say it."""
    reason: str | None
    """The same as a code, which docs/troubleshooting.md explains. Nodes of older releases give none."""
    packages: list[str]
    """The installed packages, as `name==version`."""
    log: str
    """The installer's output so far."""
    warnings: list[str] | None
    """Known vulnerabilities of what is installed, and what a node has changed so that the version runs
    (`PROJECT_LENIENT`), as sentences.
    """


class Variable(Record):
    """A variable of a project; of a secret without value."""

    _shows = ("name", "secret")
    name: str
    """The name."""
    secret: bool
    """Whether its value is never shown."""
    value: str | None
    """Null for a secret: it cannot be read, only replaced."""
    updated_at: datetime
    """When it was last changed."""


class ProjectSettings(Record):
    """The settings of a project that were set here."""

    _shows = ("project",)
    project: str
    """The project."""
    settings: dict[str, Any]
    """Scrapy's settings."""
    open: list[str]
    """Settings that a crawl may set itself."""
    open_env: list[str]
    """Variables that a crawl may set itself."""


class NodeRecord(Record):
    """A machine that crawls."""

    _names = ("name",)
    _shows = ("state",)
    name: str
    """The name."""
    url: str
    """The URL."""
    version: str
    """The version."""
    state: NodeState
    """Only a node that is `up` gets new work."""
    why: str | None
    """Why it is in this state; null if there is nothing to explain."""
    since: datetime | None
    """Since when the reason exists."""
    todo: str | None
    """What to do about it."""
    failures: int
    """Failures in a row. After three the node is quarantined; one success sets the number to 0."""
    rest_until: datetime | None
    """Until then it gets no work. Then it is probed, and gets work again if it answers."""
    draining: bool
    """Whether a person has drained the node, so that it gets no new work."""
    waits_for: list[str]
    """What must happen before the machine of a drained node may go; empty for one that is not drained."""
    removable: bool
    """Whether the node is drained, has no crawl, and has shipped all its data."""
    healthy: bool
    """Whether the node's last sign of life is recent."""
    max_slots: int
    """How many crawls the node runs at once."""
    used_slots: int
    """How many crawls the node runs."""
    free_slots: int
    """Slots that are not in use. They are used only if the node's state is `up`."""
    max_render_slots: int
    """How many of its slots may drive a browser; 0 if the node has no browser."""
    used_render_slots: int
    """How many of them use a browser."""
    running: int
    """Spider processes that ran at its last sign of life."""
    load: float
    """The share of its slots that are in use, 0 to 1."""
    free_bytes: int | None
    """Free bytes of its disk."""
    cpu_load: float | None
    """The share of its machine's processors in use at its last sign of life, 0 to 1."""
    memory_load: float | None
    """The same of its machine's memory."""
    disk_full: bool
    """Whether less than `NODE_MIN_FREE_BYTES` is free."""
    heartbeat_at: datetime
    """When the node was last heard of."""
    eggs: list[NodeEgg]
    """The eggs that the node has. The project `default`, which has no egg, is on every node."""


class NodeEgg(Record):
    """A version of a project that a node has."""

    project: str
    """The project."""
    version: str
    """The version."""


class Invitation(Record):
    """What a new node needs to join."""

    _shows = ("expires_at",)
    token: str
    """Good once, for `POST /nodes/join`, which answers with Scrapyd's password."""
    expires_at: datetime
    """It is valid until then."""
    needs: list[str]
    """Settings that the machine has to bring: the stores, as users of this node alone. The platform's own
    passwords are not handed on.
    """
    warnings: list[str]
    """Settings with which the node will not work on another machine."""


class KeyRecord(Record):
    """A key; `key` itself is of one that was just made."""

    _names = ("key_id",)
    _shows = ("user_id", "scopes", "state")
    key_id: str
    """The id of the key."""
    user_id: str
    """The user to whom it belongs."""
    scopes: list[Scope]
    """What the key allows."""
    projects: list[str]
    """The projects that the key may read; empty if all."""
    state: KeyState
    """The state."""
    note: str | None
    """What the key is for."""
    budget: KeyBudgetRecord | None
    """What its crawls may take on one day; `null` is no limit."""
    created_at: datetime
    """When it was created."""
    expires_at: datetime | None
    """It is valid until then."""
    revoked_at: datetime | None
    """When it was revoked; `null` if it was not."""
    last_used_at: datetime | None
    """To within ten minutes."""
    key: str | None
    """`db_<id>_<secret>`. Only this answer has it."""


class KeyBudgetRecord(Record):
    """What the crawls of a key may take on one day; null is no limit."""

    limits: BudgetAmounts
    """The limits of a day."""
    left: BudgetAmounts
    """How much further crawls may use today."""
    reserved: BudgetAmounts
    """How much is reserved for crawls that have not ended, and so is not in `left`. They give back what they
    do not use.
    """
    until: datetime
    """When the next day begins."""


class BudgetAmounts(Record):
    """Amounts of what a budget limits."""

    pages: int | None
    """Number of pages."""
    minutes: int | None
    """Number of minutes."""
    hosts: int | None
    """Number of hosts."""
    bytes: int | None
    """Size in bytes."""


class Session(Record):
    """Whose key it is, and what it may do."""

    _shows = ("user_id", "scopes")
    user_id: str | None
    """The user that the caller acts for; `null` while there are no keys."""
    scopes: list[Scope]
    """What the caller may do, with the scopes that its own include."""
    projects: list[str]
    """The projects that the caller may read; empty if all."""
    key_id: str | None
    """The id of the key."""
    expires_at: datetime | None
    """When the session ends; without a session, when the key does."""
    csrf_token: str | None
    """The value for `X-CSRF-Token`; `null` without a session."""
    budget: KeyBudgetRecord | None
    """How much the key's crawls may use today; `null` for no limit."""


class AuditEntry(Record):
    """Who has changed what, and when."""

    _names = ("id",)
    _shows = ("at", "route", "user_id")
    id: str
    """The id."""
    at: datetime
    """When it was called; for failed logins, the first of them."""
    kind: AuditKind
    """`login_failed`: the wrong keys that one address sent within an hour."""
    user_id: str | None
    """The user of the key; null while there are no keys."""
    key_id: str | None
    """The id of the key."""
    scope: Scope | None
    """The highest scope of the key."""
    method: str | None
    """The method of the HTTP request."""
    route: str | None
    """The route that was called, or the command that was run on the server."""
    resources: dict[str, str]
    """The records that the path names, those that were created, and the codes of a refusal."""
    changes: dict[str, list[str]]
    """The fields of the record that the call has changed: before and after it, as JSON, of which the first 200
    characters are kept.
    """
    status: int | None
    """The status of the answer."""
    request_id: str | None
    """The same id is in the log, and is the `correlation_id` of jobs that the call created."""
    address: str | None
    """The client's address; for a command, its user and machine."""
    count: int | None
    """How many logins failed."""
    last_at: datetime | None
    """When the last of them failed."""


class SavedViewRecord(Record):
    """A list of the console that was saved."""

    _names = ("view_id",)
    _shows = ("list", "name")
    view_id: str
    """The view's id."""
    list: ListName
    """Which list it is a view of."""
    name: str
    """The name."""
    query: str
    """The query of the list's address."""
    shared: bool
    """Whether others see it, too."""
    default: bool
    """The caller's list begins with it."""
    own: bool
    """Whether the view is the caller's, who may change and delete it."""
    page_url: str
    """The view's address in the console. It stays the same when the view changes."""
    created_at: datetime
    """When it was created."""


class Health(Record):
    """What works, and what does not."""

    _shows = ("status",)
    status: Literal["ok", "degraded", "starting", "down"]
    """`starting`: no node has published its spiders. While `starting` or `down`, no crawl is accepted."""
    checks: dict[str, HealthCheck]
    """The state of each part, by its name."""


class HealthCheck(Record):
    """The result of one check, and what to do about it."""

    status: Literal["ok", "down", "starting"]
    """The status."""
    message: str
    """An explanation for people."""
    todo: str | None
    """What to do about it."""


class QueueStatus(Record):
    """What waits, and who works."""

    _shows = ("running", "dead_letters")
    at: datetime
    """When it happened, or was measured."""
    depth: dict[str, int]
    """The number of jobs in each status. Very many ended jobs are counted seldom, and are left out until the
    first count is done.
    """
    waiting: WaitingJobs
    """The jobs that wait."""
    running: int
    """Number of running jobs."""
    workers: Workers
    """The processes that hand jobs to nodes."""
    dead_letters: int
    """Dead letters: their number, or a page of them."""
    sites_since: datetime
    """The start of the time that `sites` covers."""
    sites: list[SiteRuns]
    """Sites with a run that has ended since then, sorted by name."""
    sites_complete: bool
    """False: only the latest 10,000 runs were counted."""


class WaitingJobs(Record):
    """Pending jobs."""

    total: int
    """How many jobs wait."""
    by_reason: dict[str, int]
    """How many jobs wait for each reason; reasons without a job are left out."""
    unexplained: int
    """How many have no reason yet: no worker has considered them so far."""
    oldest_seconds: float | None
    """Seconds since the job that waits longest was due."""


class Workers(Record):
    """The workers that live."""

    alive: int
    """How many workers live."""
    names: list[str]
    """`worker:<host>:<process>`."""


class SiteRuns(Record):
    """Runs of one site that ended within the window."""

    site_name: str
    """The name of the site."""
    runs: int
    """Runs: their number, or a page of them."""
    succeeded: int
    """Number of runs that have succeeded."""
    partial: int
    """Number of partial runs."""
    failed: int
    """Number of runs that have failed."""
    cancelled: int
    """Number of cancelled runs."""
    success_rate: float | None
    """The share of finished runs among those that ended, without cancelled ones. Partial is no success. From 0
    to 1; null without such.
    """
    duration_seconds: Duration | None
    """Null if no run was started."""
    last_finished_at: datetime
    """When its last run ended."""


class Duration(Record):
    """Seconds from a run's first start to its end."""

    average: float
    """The arithmetic mean, in seconds."""
    median: float
    """The median, in seconds."""
    longest: float
    """The longest, in seconds."""
