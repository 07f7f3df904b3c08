"""What streams and calls of webhooks say, made from the API's description by `make blocking-client`.

These are types only: at run time all is as it came, also what a later release adds. Times are text.
"""

from __future__ import annotations

from typing import Any, Literal, Required, TypedDict

from discoverybot_client.records import Event


class JobEndedCall(TypedDict, total=False):
    """What the `webhook_url` of a crawl is called with. The counts are missing if nothing ran."""

    event: Required[Literal["job.ended"]]
    job_id: Required[str]
    status: Required[Literal["finished", "partial", "error", "cancelled"]]
    reason: Required[str | None]
    message: Required[str | None]
    finished_at: Required[str | None]
    completed_pages: int
    items_count: int
    errors_count: int
    schedule_id: str
    """Of a run of a schedule."""
    type: None
    """Calls of endpoints have it."""


class JobEventData(TypedDict, total=False):
    """The facts about the job at the time of the event. Fields without a value are left out."""

    job_id: Required[str]
    """The job's id."""
    seq: Required[int]
    """The number of the event within the job; calls may arrive in another order."""
    user_id: Required[str]
    """The user to whom it belongs."""
    project: Required[str]
    """The project."""
    version: str | None
    """The version."""
    spider: Required[str]
    """The name of the spider."""
    start_url: str | None
    """The first start URL."""
    site: str | None
    """The name of the site."""
    dataset: str | None
    """The dataset that the items go into."""
    schedule_id: str | None
    """The schedule's id."""
    tags: list[str]
    """Labels to find it by."""
    status: Required[str]
    """The job's at its end; otherwise `started`, `paused`, `retried`, `dataset_changed` or `run_held`."""
    attempt: Required[int]
    """The number of the attempt, from 1 on."""
    reason: str | None
    """The code of the reason."""
    message: str | None
    """An explanation for people."""
    started_at: str | None
    """When it began; `null` until then."""
    finished_at: str | None
    """When the job ended; `null` until then."""
    duration_seconds: float | None
    """Duration in seconds."""
    completed_pages: int | None
    """Number of pages that were fetched."""
    items_count: int | None
    """Number of items that were scraped."""
    errors_count: int | None
    """Number of errors in the log."""
    page_url: Required[str]
    """The job, or the dataset's run, in the console."""


class JobEventBody(TypedDict, total=False):
    """An event of a job, as endpoints are called with it."""

    type: Required[
        Literal[
            "job.started", "job.paused", "job.retried", "job.finished", "job.partial", "job.failed", "job.cancelled"
        ]
    ]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[JobEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


class ItemsEventData(TypedDict, total=False):
    """How many items a running job has. The items themselves can be read at `items_url`."""

    job_id: Required[str]
    """The job's id."""
    user_id: Required[str]
    """The user to whom it belongs."""
    project: Required[str]
    """The project."""
    version: str | None
    """The version."""
    spider: Required[str]
    """The name of the spider."""
    site: str | None
    """The name of the site."""
    dataset: str | None
    """The dataset that the items go into."""
    schedule_id: str | None
    """The schedule's id."""
    tags: list[str]
    """Labels to find it by."""
    attempt: Required[int]
    """The number of the attempt, from 1 on."""
    items_count: Required[int]
    """Number of items that were scraped."""
    items_url: Required[str]
    """`GET /jobs/{job_id}/items`; go on with the `after` of the answer before."""
    page_url: Required[str]
    """The job in the console."""


class ItemsEventBody(TypedDict, total=False):
    """An event about new items, as endpoints are called with it."""

    type: Required[Literal["items.batch"]]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[ItemsEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


class RunEventData(TypedDict, total=False):
    """A run of a dataset: its job, and for `dataset.changed` the numbers of its changes."""

    job_id: Required[str]
    """The job's id."""
    seq: Required[int]
    """The number of the event within the job; calls may arrive in another order."""
    user_id: Required[str]
    """The user to whom it belongs."""
    project: Required[str]
    """The project."""
    version: str | None
    """The version."""
    spider: Required[str]
    """The name of the spider."""
    start_url: str | None
    """The first start URL."""
    site: str | None
    """The name of the site."""
    dataset: str | None
    """The dataset that the items go into."""
    schedule_id: str | None
    """The schedule's id."""
    tags: list[str]
    """Labels to find it by."""
    status: Required[str]
    """The job's at its end; otherwise `started`, `paused`, `retried`, `dataset_changed` or `run_held`."""
    attempt: Required[int]
    """The number of the attempt, from 1 on."""
    reason: str | None
    """The code of the reason."""
    message: str | None
    """An explanation for people."""
    started_at: str | None
    """When it began; `null` until then."""
    finished_at: str | None
    """When the job ended; `null` until then."""
    duration_seconds: float | None
    """Duration in seconds."""
    completed_pages: int | None
    """Number of pages that were fetched."""
    items_count: int | None
    """Number of items that were scraped."""
    errors_count: int | None
    """Number of errors in the log."""
    page_url: Required[str]
    """The job, or the dataset's run, in the console."""
    items: int | None
    """Items that the run has found."""
    new: int | None
    """How many items are new."""
    changed: int | None
    """How many items have changed."""
    removed: int | None
    """How many items are gone."""
    last_seq: int | None
    """The number of its last change: changes of this run are up to there."""


class RunEventBody(TypedDict, total=False):
    """An event of a dataset's run, as endpoints are called with it."""

    type: Required[Literal["dataset.changed", "run.held"]]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[RunEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


class ScheduleEventData(TypedDict, total=False):
    """An occurrence of a schedule that did not run, or ran late."""

    schedule_id: Required[str]
    """The schedule's id."""
    user_id: Required[str]
    """The user to whom it belongs."""
    name: str | None
    """The name."""
    project: str | None
    """The project."""
    spider: str | None
    """The name of the spider."""
    site: str | None
    """The name of the site."""
    due: Required[str]
    """When the run was due."""
    more: int | None
    """How many later ones did not run together with it."""
    late_by_seconds: float | None
    """How late it ran."""
    job_id: str | None
    """The job of the run that was late."""
    message: str | None
    """An explanation for people."""
    page_url: Required[str]
    """The schedule in the console."""


class ScheduleEventBody(TypedDict, total=False):
    """An event of a schedule, as endpoints are called with it."""

    type: Required[Literal["schedule.skipped", "schedule.missed", "schedule.late"]]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[ScheduleEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


class NodeEventData(TypedDict, total=False):
    """The node that an event is about."""

    node: Required[str]
    """The name of the node."""
    since: Required[str]
    """The node's last sign of life before it was down."""
    message: Required[str]
    """An explanation for people."""
    page_url: Required[str]
    """The nodes in the console."""


class NodeEventBody(TypedDict, total=False):
    """An event of a node, as endpoints are called with it."""

    type: Required[Literal["node.down", "node.up"]]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[NodeEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


class DeployEventData(TypedDict, total=False):
    """A version that has become the latest of its project, or that a node refuses."""

    project: Required[str]
    """The project."""
    version: Required[str]
    """The version."""
    node: str | None
    """The node that does not take it."""
    reason: str | None
    """The code of the reason."""
    message: str | None
    """An explanation for people."""
    page_url: Required[str]
    """The project in the console."""


class DeployEventBody(TypedDict, total=False):
    """An event of a deployment, as endpoints are called with it."""

    type: Required[Literal["deploy.live", "deploy.failed"]]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[DeployEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


class AlertEventData(TypedDict, total=False):
    """An alert: the state of one rule for one group, such as a spider."""

    alert_id: Required[str]
    """The alert's id."""
    rule_id: Required[str]
    """The rule's id."""
    rule: Required[str]
    """The name of the rule."""
    user_id: str | None
    """Missing for an alert about the platform, such as about a node."""
    group_by: Required[str]
    """One alert for each of these."""
    group: Required[str]
    """The group of the alert, such as `shop/prices`, a schedule's id, or a node."""
    name: str | None
    """The group in words, where it is an id."""
    project: str | None
    """The project."""
    spider: str | None
    """The name of the spider."""
    site: str | None
    """The name of the site."""
    dataset: str | None
    """The dataset that the items go into."""
    schedule_id: str | None
    """The schedule's id."""
    tags: list[str]
    """Labels to find it by."""
    job_id: str | None
    """The last run that it is about."""
    since: Required[str]
    """Since when it fires."""
    until: str | None
    """When it ended, of `alert.resolved`."""
    duration_seconds: Required[float]
    """For how long it has been so, or was."""
    message: Required[str]
    """An explanation for people."""
    page_url: Required[str]
    """The job, or the alerts, in the console."""


class AlertEventBody(TypedDict, total=False):
    """An event of an alert, as endpoints are called with it."""

    type: Required[Literal["alert.firing", "alert.still_firing", "alert.resolved"]]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[AlertEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


class EndpointEventData(TypedDict, total=False):
    """The endpoint that an event is about."""

    endpoint_id: Required[str]
    """The endpoint's id."""
    user_id: Required[str]
    """The user to whom it belongs."""
    message: Required[str]
    """An explanation for people."""


class EndpointEventBody(TypedDict, total=False):
    """An event of an endpoint itself, as endpoints are called with it."""

    type: Required[Literal["endpoint.disabled", "endpoint.test"]]
    timestamp: Required[str]
    """When it happened, or was found."""
    data: Required[EndpointEventData]
    """The data of the event."""
    event: None
    """Calls of a crawl's `webhook_url` have it."""


Call = (
    JobEndedCall
    | JobEventBody
    | ItemsEventBody
    | RunEventBody
    | ScheduleEventBody
    | NodeEventBody
    | DeployEventBody
    | AlertEventBody
    | EndpointEventBody
)


class LogLineData(TypedDict, total=False):
    """A line of the log. A line that belongs to the line before it, such as a line of a traceback, has no time
    and no logger.
    """

    ts: str | None
    """When it was written, in ISO 8601. It is as in the line, so it may be no valid time."""
    level: Required[str]
    """`DEBUG` to `CRITICAL`."""
    logger: str | None
    """The name of the logger."""
    msg: Required[str]
    """The text of the line."""
    cont: bool
    """Whether it belongs to the line before."""


JobStatus = Literal["scheduled", "pending", "running", "paused", "finished", "partial", "error", "cancelled"]


ScheduleState = Literal["active", "paused", "ended"]


class StatusData(TypedDict, total=False):
    """The fields that have changed. Fields without a value are left out."""

    status: Required[JobStatus]
    """The status."""
    attempt: Required[int]
    """The number of the attempt, from 1 on."""
    next_run: str | None
    """When the next run is due."""
    waiting_reason: str | None
    """Why it waits; `null` if it does not."""
    reason: str | None
    """The code of the reason."""
    message: str | None
    """An explanation for people."""
    state: ScheduleState | None
    """The schedule's state, if it has not run yet."""


class ProgressFields(TypedDict, total=False):
    """How far a crawl is."""

    requested_pages: int
    """Number of pages that were requested."""
    completed_pages: int
    """Number of pages that were fetched."""
    items_count: int
    """Number of items that were scraped."""
    errors_count: int
    """Number of errors in the log."""
    answered_2xx: int
    """Answers with a status of 200 to 299."""
    answered_3xx: int
    """Answers with a status of 300 to 399."""
    answered_4xx: int
    """Answers with a status of 400 to 499."""
    answered_5xx: int
    """Answers with a status of 500 to 599."""
    pages_per_s: float
    """Pages per second."""
    can_go_on: bool | None
    """Whether the crawl goes on where it is if it is interrupted or paused."""
    hosts: list[str]
    """The hosts that it has asked, at most the first 20. A stream's events leave them out."""
    at: str | None
    """When it happened, or was measured."""


class SlotFields(TypedDict, total=False):
    """The occurrence of a schedule for which the job runs."""

    at: Required[str]
    """The time by the schedule. A schedule has at most one occurrence for each time."""
    due: Required[str]
    """The same time with jitter."""
    fired_at: Required[str]
    """When the run was started."""
    missed: Required[int]
    """How many later occurrences were missed as well; this run makes up for them."""


Trigger = Literal["manual", "scheduled"]


class JobStatusFields(TypedDict, total=False):
    """The status and progress of a job. The answer is small enough to be polled."""

    job_id: Required[str]
    """The job's id."""
    status: Required[JobStatus]
    """The status."""
    spider: Required[str]
    """The name of the spider."""
    version: Required[str | None]
    """The version of the spider's project; null for the project `default`."""
    max_items: Required[int | None]
    """The job ends after this many items."""
    attempt: Required[int]
    """The number of the latest attempt; 0 before the first."""
    spider_job_id: Required[str | None]
    """`<job>-<attempt>`: the attempt's name in Scrapyd."""
    node: Required[str | None]
    """The name of the node."""
    waiting_reason: Required[str | None]
    """Why the job has not started; only for pending jobs. `disk_full`: the nodes that could run it have no
    room. `site_busy`, `previous_run`: it waits for the end of another run.
    """
    queue_position: Required[int | None]
    """1 goes next: the user with the fewest running crawls has the next turn. Only for pending jobs that do
    not wait for another run.
    """
    not_before: Required[str | None]
    """The job does not start before this time; only for pending jobs."""
    next_run: Required[str | None]
    """When the job will run; only for scheduled jobs."""
    schedule_id: Required[str | None]
    """The schedule whose run this job is."""
    slot: Required[SlotFields | None]
    """The schedule's occurrence; null if a person asked for the run."""
    site: Required[str | None]
    """The site whose run this job is."""
    trigger: Required[Trigger | None]
    """For a run of a site: whether a person or its schedule asked for it."""
    requested_pages: Required[int]
    """Number of pages that were requested."""
    completed_pages: Required[int]
    """Number of pages that were fetched."""
    items_count: Required[int]
    """Number of items that were scraped."""
    errors_count: Required[int]
    """Number of errors in the log."""
    pages_per_s: Required[float]
    """Pages per second."""
    created_at: Required[str]
    """When it was created."""
    started_at: Required[str | None]
    """When it began; `null` until then."""
    finished_at: Required[str | None]
    """When the job ended; `null` until then."""
    cancel_requested_at: Required[str | None]
    """When cancelling was asked for; `null` if it was not."""
    pause_requested_at: Required[str | None]
    """Null again once the job is resumed."""
    expires_at: Required[str | None]
    """When a paused job is cancelled if nobody resumes it."""
    reason: Required[str | None]
    """Why it ended so, why its last attempt did, or why no node could take its egg: a code.
    docs/troubleshooting.md explains each. Null while nothing has ended, and for jobs of releases that had
    none.
    """
    message: Required[str | None]
    """The same in words; they may change from release to release."""
    dead: Required[bool]
    """Whether it is a dead letter: it failed and has no retries left."""
    kind: Required[Literal["job"]]
    """What kind of thing it is."""


class ScheduleStatusFields(TypedDict, total=False):
    """A schedule as the routes of jobs show it: its status is `scheduled` until it ends. The counts and times
    are those of the current run, or else of the last run.
    """

    job_id: Required[str]
    """The job's id."""
    status: Required[JobStatus]
    """The status."""
    spider: Required[str]
    """The name of the spider."""
    version: Required[str | None]
    """The version of the spider's project; null for the project `default`."""
    max_items: Required[int | None]
    """The job ends after this many items."""
    attempt: Required[int]
    """The number of the latest attempt; 0 before the first."""
    spider_job_id: Required[str | None]
    """`<job>-<attempt>`: the attempt's name in Scrapyd."""
    node: Required[str | None]
    """The name of the node."""
    waiting_reason: Required[str | None]
    """Why the job has not started; only for pending jobs. `disk_full`: the nodes that could run it have no
    room. `site_busy`, `previous_run`: it waits for the end of another run.
    """
    queue_position: Required[int | None]
    """1 goes next: the user with the fewest running crawls has the next turn. Only for pending jobs that do
    not wait for another run.
    """
    not_before: Required[str | None]
    """The job does not start before this time; only for pending jobs."""
    next_run: Required[str | None]
    """When the job will run; only for scheduled jobs."""
    schedule_id: Required[str | None]
    """The schedule whose run this job is."""
    slot: Required[SlotFields | None]
    """The schedule's occurrence; null if a person asked for the run."""
    site: Required[str | None]
    """The site whose run this job is."""
    trigger: Required[Trigger | None]
    """For a run of a site: whether a person or its schedule asked for it."""
    requested_pages: Required[int]
    """Number of pages that were requested."""
    completed_pages: Required[int]
    """Number of pages that were fetched."""
    items_count: Required[int]
    """Number of items that were scraped."""
    errors_count: Required[int]
    """Number of errors in the log."""
    pages_per_s: Required[float]
    """Pages per second."""
    created_at: Required[str]
    """When it was created."""
    started_at: Required[str | None]
    """When it began; `null` until then."""
    finished_at: Required[str | None]
    """When the job ended; `null` until then."""
    cancel_requested_at: Required[str | None]
    """When cancelling was asked for; `null` if it was not."""
    pause_requested_at: Required[str | None]
    """Null again once the job is resumed."""
    expires_at: Required[str | None]
    """When a paused job is cancelled if nobody resumes it."""
    reason: Required[str | None]
    """Why it ended so, why its last attempt did, or why no node could take its egg: a code.
    docs/troubleshooting.md explains each. Null while nothing has ended, and for jobs of releases that had
    none.
    """
    message: Required[str | None]
    """The same in words; they may change from release to release."""
    dead: Required[bool]
    """Whether it is a dead letter: it failed and has no retries left."""
    kind: Required[Literal["schedule"]]
    """What kind of thing it is."""
    state: Required[ScheduleState]
    """The state."""
    runs: Required[int]
    """How many of its occurrences ran."""
    last_run: Required[JobStatusFields | None]
    """Its last run; `null` if there was none."""


JobEvent = (
    Event[Literal["log"], LogLineData]
    | Event[Literal["status"], StatusData]
    | Event[Literal["progress"], ProgressFields]
    | Event[Literal["gap"], dict[str, str]]
    | Event[Literal["end"], JobStatusFields | ScheduleStatusFields]
    | Event[Literal["dropped"], dict[str, Any]]
)


class SnapshotData(TypedDict, total=False):
    """The state of all jobs that the stream follows, at its beginning."""

    jobs: Required[list[JobStatusFields]]
    """The jobs."""


class JobStatusData(TypedDict, total=False):
    """A change of one of many jobs."""

    job_id: Required[str]
    """The job's id."""
    user_id: Required[str]
    """The user to whom it belongs."""
    status: Required[JobStatus]
    """The status."""
    attempt: Required[int]
    """The number of the attempt, from 1 on."""
    next_run: str | None
    """When the next run is due."""
    waiting_reason: str | None
    """Why it waits; `null` if it does not."""
    reason: str | None
    """The code of the reason."""
    message: str | None
    """An explanation for people."""
    state: ScheduleState | None
    """The schedule's state, if it has not run yet."""


class JobProgressData(TypedDict, total=False):
    """The progress of one of many jobs."""

    job_id: Required[str]
    """The job's id."""
    user_id: Required[str]
    """The user to whom it belongs."""
    requested_pages: int
    """Number of pages that were requested."""
    completed_pages: int
    """Number of pages that were fetched."""
    items_count: int
    """Number of items that were scraped."""
    errors_count: int
    """Number of errors in the log."""
    answered_2xx: int
    """Answers with a status of 200 to 299."""
    answered_3xx: int
    """Answers with a status of 300 to 399."""
    answered_4xx: int
    """Answers with a status of 400 to 499."""
    answered_5xx: int
    """Answers with a status of 500 to 599."""
    pages_per_s: float
    """Pages per second."""
    can_go_on: bool | None
    """Whether the crawl goes on where it is if it is interrupted or paused."""
    hosts: list[str]
    """The hosts that it has asked, at most the first 20. A stream's events leave them out."""
    at: str | None
    """When it happened, or was measured."""


ManyJobsEvent = (
    Event[Literal["snapshot"], SnapshotData]
    | Event[Literal["status"], JobStatusData]
    | Event[Literal["progress"], JobProgressData]
    | Event[Literal["dropped"], dict[str, Any]]
)
