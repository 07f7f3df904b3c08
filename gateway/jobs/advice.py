"""What to do next about a job that waits, or that did not end as it should: by its status and its reason.

`docs/troubleshooting.md` has the same advice, by symptom.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from gateway.contract.reasons import Reason
from gateway.jobs.job import Job, JobStatus, WaitingReason


class Place(StrEnum):
    """Where a step is done; a page makes a link of it."""

    #: The log, from its first error on.
    LOG = "log"
    #: The requests that failed.
    REQUESTS = "requests"
    ITEMS = "items"
    #: The other runs of its schedule, or of the same request.
    RUNS = "runs"
    #: The form of a new crawl, filled in with this crawl's values.
    AGAIN = "again"
    NODES = "nodes"
    PROJECT = "project"
    SCHEDULE = "schedule"
    #: The running crawls of its user, or of its site.
    OF_USER = "of_user"
    OF_SITE = "of_site"
    #: All running crawls.
    RUNNING = "running"
    OVERVIEW = "overview"


class Remedy(NamedTuple):
    words: str
    place: Place | None = None


class Advice(NamedTuple):
    what: str
    steps: tuple[Remedy, ...]
    #: The page of the documentation that says more.
    reference: str


_LOG = Remedy("Read the log from its first error on", Place.LOG)
_FAILED_REQUESTS = Remedy("Look at the requests that failed", Place.REQUESTS)
_AGAIN = Remedy("Run it again", Place.AGAIN)
_NODES = Remedy("See how the nodes are", Place.NODES)
_FAILED = "docs/troubleshooting.md#my-crawl-failed"
_WAITS = "docs/troubleshooting.md#my-crawl-waits"

#: The advice for a job that has ended, by its reason.
_ENDED: dict[Reason, Advice] = {
    Reason.ADDRESS_FORBIDDEN: Advice(
        "It was to fetch an address that is not public, and crawls may reach public ones only.",
        (
            Remedy("If the site is yours, start the platform with its network in CRAWL_ALLOW_NETWORKS"),
            Remedy("Otherwise mend the start URL", Place.AGAIN),
        ),
        "docs/reference/egress.md",
    ),
    Reason.ROBOTS_FORBIDDEN: Advice(
        "The site's robots.txt asks not to be crawled there.",
        (
            Remedy("If you may all the same, run it again with obey_robots off", Place.AGAIN),
            Remedy("Otherwise choose a start URL that robots.txt allows"),
        ),
        "docs/reference/politeness.md",
    ),
    Reason.VARIABLE_MISSING: Advice(
        "Its code reads an environment variable that nobody has set.",
        (Remedy("Set the variable for the project", Place.PROJECT), _AGAIN),
        "docs/reference/environment.md",
    ),
    Reason.NOT_IMPORTABLE: Advice(
        "The spider's code cannot be imported on the node.",
        (
            Remedy("Mend the code, or add the missing library to the project's requirements, and deploy it again"),
            Remedy("See the project's versions and what was installed", Place.PROJECT),
        ),
        "docs/reference/dependencies.md",
    ),
    Reason.SPIDER_MISSING: Advice(
        "This version of the project has no spider of that name.",
        (Remedy("See which spiders its versions have", Place.PROJECT), Remedy("Choose another one", Place.AGAIN)),
        "docs/how-to/deploy-your-own-spiders.md",
    ),
    Reason.ARGUMENTS_WRONG: Advice(
        "The spider does not take the parameters that it was given.",
        (Remedy("Correct its parameters", Place.AGAIN), _LOG),
        "docs/reference/spiders.md",
    ),
    Reason.EXPECTATION_BROKEN: Advice(
        "It found less than it was expected to: the site may have changed, or the selectors do not fit it.",
        (
            Remedy("Look at the items, and at how full their fields are", Place.ITEMS),
            Remedy("Compare it with earlier runs", Place.RUNS),
        ),
        "docs/reference/outcomes.md#what-you-expect",
    ),
    Reason.BROKE_DOWN: Advice(
        "The spider, or a component of its project (a pipeline, the scheduler), could not be opened.",
        (
            _LOG,
            Remedy("See whether the nodes can reach the store that it connects to"),
            _AGAIN,
        ),
        _FAILED,
    ),
    Reason.SPIDER_FAILED: Advice(
        "The spider's own code raised an exception.",
        (_LOG, Remedy("Mend the spider, deploy it, and run it again", Place.AGAIN)),
        _FAILED,
    ),
    Reason.PIPELINE_FAILED: Advice(
        "The spider's own code raised an exception.",
        (_LOG, Remedy("Mend the spider, deploy it, and run it again", Place.AGAIN)),
        _FAILED,
    ),
    Reason.RATE_LIMITED: Advice(
        "The site says that it is asked too often.",
        (Remedy("Run it again with a longer delay, or a rate limit", Place.AGAIN), _FAILED_REQUESTS),
        "docs/reference/politeness.md",
    ),
    Reason.SITE_REFUSES: Advice(
        "The site refuses the crawler: it wants a login, or takes it for a robot.",
        (
            _FAILED_REQUESTS,
            Remedy("Ask more slowly, with other headers, or with a browser (render)", Place.AGAIN),
        ),
        "docs/how-to/crawl-javascript-pages.md",
    ),
    Reason.PAGE_MISSING: Advice(
        "Not one of the pages that it was to begin with is there.",
        (Remedy("Open the start URL in a browser, and correct it", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.SITE_FAILED: Advice(
        "The site's server has failed.",
        (Remedy("Run it again when the site has recovered, perhaps more slowly", Place.AGAIN), _FAILED_REQUESTS),
        "docs/reference/politeness.md",
    ),
    Reason.PROXY_UNREACHABLE: Advice(
        "The proxy that it was to go through cannot be reached. The site was not asked.",
        (Remedy("Mend the proxy's address, or see that it runs", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.SITE_UNREACHABLE: Advice(
        "No connection to the site came about.",
        (Remedy("Look at the start URL's host name and port", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.SITE_TIMEOUT: Advice(
        "The site did not answer in time.",
        (
            Remedy("Run it again later, or with a longer download timeout", Place.AGAIN),
            _FAILED_REQUESTS,
        ),
        "docs/reference/limits.md",
    ),
    Reason.TIME_LIMIT: Advice(
        "Its time was over before it was done. What it had found until then is there.",
        (Remedy("Give it more time, or fewer pages", Place.AGAIN), Remedy("See what took so long", Place.REQUESTS)),
        "docs/reference/limits.md",
    ),
    Reason.MEMORY_LIMIT: Advice(
        "It took more memory than CRAWL_MEMORY_LIMIT allows.",
        (
            Remedy("Crawl fewer pages at once, or keep less in the spider", Place.AGAIN),
            Remedy("Raise CRAWL_MEMORY_LIMIT on the nodes", Place.NODES),
        ),
        "docs/reference/limits.md",
    ),
    Reason.PROCESS_LIMIT: Advice(
        "It had more processes at a time than CRAWL_MAX_PROCESSES allows.",
        (
            Remedy("See what it starts, and have it wait for their end", Place.LOG),
            Remedy("Raise CRAWL_MAX_PROCESSES on the nodes", Place.NODES),
        ),
        "docs/reference/limits.md",
    ),
    Reason.LOG_LIMIT: Advice(
        "Its log became longer than CRAWL_MAX_LOG_BYTES allows.",
        (
            Remedy("See what it prints so often", Place.LOG),
            Remedy("Run it with a higher log level", Place.AGAIN),
        ),
        "docs/reference/limits.md",
    ),
    Reason.ENTRY_LIMIT: Advice(
        "It made more files and folders than CRAWL_MAX_ENTRIES allows, with caches and unfinished files.",
        (
            Remedy("See what it writes", Place.LOG),
            Remedy("Have it write fewer, or raise CRAWL_MAX_ENTRIES on the nodes", Place.NODES),
        ),
        "docs/reference/files.md#how-much",
    ),
    Reason.RECORD_LIMIT: Advice(
        "Its items, requests and frontier took more than CRAWL_MAX_RECORD_BYTES on the node.",
        (
            Remedy("See what it finds so much of", Place.LOG),
            Remedy("Have it find less, or raise CRAWL_MAX_RECORD_BYTES on the nodes", Place.NODES),
        ),
        "docs/reference/limits.md",
    ),
    Reason.FILE_LIMIT: Advice(
        "Its files took more than twice FILES_MAX_BYTES on the node.",
        (
            Remedy("See what it writes", Place.LOG),
            Remedy("Have it write less, or raise FILES_MAX_BYTES on the nodes", Place.NODES),
        ),
        "docs/reference/files.md#how-much",
    ),
    Reason.STALLED: Advice(
        "It stood still, and was stopped: mostly a callback waits for something, or never ends.",
        (Remedy("See what it did last", Place.LOG), _AGAIN),
        "docs/reference/limits.md#standing-still",
    ),
    **dict.fromkeys(
        (Reason.NOT_STARTED, Reason.NO_NODE_TOOK_IT, Reason.NODE_UNREACHABLE, Reason.NODE_REFUSES),
        Advice(
            "The node could not begin it.",
            (_NODES, _AGAIN),
            "docs/troubleshooting.md#a-node-is-resting-or-quarantined",
        ),
    ),
    **dict.fromkeys(
        (
            Reason.EGG_UNREADABLE,
            Reason.EGG_TOO_LARGE,
            Reason.PACKAGE_TAKEN,
            Reason.PROJECT_MISSING,
            Reason.TOO_MANY_SPIDERS,
            Reason.REQUIREMENTS_REFUSED,
            Reason.REQUIREMENTS_UNMET,
            Reason.BUILD_FAILED,
            Reason.INSTALL_LIMIT,
            Reason.PYTHON_MISSING,
            Reason.INDEX_UNREACHABLE,
            Reason.STILL_INSTALLING,
        ),
        Advice(
            "The node could not get its project ready.",
            (Remedy("See what its version depends on", Place.PROJECT), _NODES, _AGAIN),
            "docs/troubleshooting.md#deploy-is-refused",
        ),
    ),
    Reason.DISK_FULL: Advice(
        "The node's disk is full.", (_NODES, _AGAIN), "docs/troubleshooting.md#the-disk-is-full"
    ),
    Reason.ITEMS_UNREADABLE: Advice(
        "The spider has put something else in the place of its items' file.",
        (_LOG, Remedy("Have the spider leave its folder's files alone")),
        _FAILED,
    ),
    Reason.PROCESS_KILLED: Advice(
        "Its process was killed from outside: the node went down, or was out of memory.",
        (_NODES, _AGAIN),
        "docs/reference/outcomes.md",
    ),
    Reason.NODE_SHUT_DOWN: Advice(
        "Its process was killed from outside: the node went down, or was out of memory.",
        (_NODES, _AGAIN),
        "docs/reference/outcomes.md",
    ),
    Reason.PROCESS_CRASHED: Advice(
        "The spider's process has crashed.", (Remedy("Read the end of its log", Place.LOG), _AGAIN), _FAILED
    ),
    Reason.NOTHING_FETCHED: Advice(
        "It ended without a single page.",
        (Remedy("Open the start URL in a browser", Place.AGAIN), _LOG),
        _FAILED,
    ),
    Reason.REQUESTS_FAILED: Advice("Too many of its requests failed.", (_FAILED_REQUESTS, _LOG), _FAILED),
    Reason.CLOSED_EARLY: Advice(
        "The spider has closed itself before it was done.", (_LOG, _AGAIN), "docs/reference/outcomes.md"
    ),
    Reason.NO_ITEMS: Advice(
        "It fetched pages and found nothing in them.",
        (
            Remedy("Look at a page, and at the spider's selectors", Place.REQUESTS),
            Remedy("Say what it must find, so that the next one like this is partial", Place.AGAIN),
        ),
        "docs/reference/outcomes.md#what-you-expect",
    ),
    Reason.PAGE_TOO_LARGE: Advice(
        "A page is larger than a crawl may download.",
        (Remedy("Raise DOWNLOAD_MAXSIZE in the crawl's settings", Place.AGAIN), _FAILED_REQUESTS),
        "docs/reference/limits.md",
    ),
    Reason.PAGE_REFUSED: Advice(
        "The site led in a circle, or sent a page that is made to exhaust who reads it.",
        (_FAILED_REQUESTS, _LOG),
        _FAILED,
    ),
    Reason.URL_UNSUPPORTED: Advice(
        "Its URLs have a scheme that is not fetched.",
        (Remedy("Correct the start URL", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.HANDLER_REFUSED: Advice(
        "Its project brings a download handler, past which this node could not see where requests go.",
        (Remedy("If you trust it, name it in CRAWL_ALLOW_HANDLERS on the nodes", Place.NODES), _LOG),
        "docs/reference/egress.md",
    ),
    Reason.ITEM_REFUSED: Advice(
        "Items that it gave could not be written as JSON.",
        (_LOG, Remedy("Mend the spider, deploy it, and run it again", Place.AGAIN)),
        _FAILED,
    ),
}
_UNKNOWN = Advice("It did not end as it should.", (_LOG, _AGAIN), _FAILED)
#: What a job waits for, as the end of a sentence; `None`: no worker has looked at it yet.
WAITS_FOR: dict[WaitingReason | None, str] = {
    WaitingReason.CAPACITY: "for a free slot",
    WaitingReason.SITE_BUSY: "for another run of its site to end",
    WaitingReason.PREVIOUS_RUN: "for the run before it to end",
    WaitingReason.USER_QUOTA: "for another crawl of its user to end",
    WaitingReason.NO_NODE: "for a node that takes work",
    WaitingReason.NO_SUCH_PROJECT: "for a node with this version of its project",
    WaitingReason.DISK_FULL: "for room on a node's disk",
    WaitingReason.BACKOFF: "for the time of its next try",
    None: "for a worker to look at it",
}
_WAITING: dict[WaitingReason | None, Advice] = {
    WaitingReason.CAPACITY: Advice(
        "Every slot that it could use is taken.",
        (
            Remedy("Wait until one of the jobs that run has ended", Place.RUNNING),
            Remedy("See which nodes have slots", Place.NODES),
            Remedy("Raise NODE_SLOTS, or add a node"),
        ),
        "docs/reference/queue.md",
    ),
    WaitingReason.SITE_BUSY: Advice(
        "Another run of its site has not ended.",
        (Remedy("See the runs of the site that are under way", Place.OF_SITE),),
        "docs/reference/sites.md",
    ),
    WaitingReason.PREVIOUS_RUN: Advice(
        "The run before it of the same schedule has not ended.",
        (
            Remedy("See the runs beside it", Place.RUNS),
            Remedy("Let runs overlap, or be skipped, in the schedule", Place.SCHEDULE),
        ),
        "docs/reference/schedules.md",
    ),
    WaitingReason.USER_QUOTA: Advice(
        "Its user has as many crawls running as one user may have.",
        (Remedy("See the crawls of the user that run", Place.OF_USER), Remedy("Raise CRAWL_USER_RUNNING_MAX")),
        "docs/reference/quotas.md",
    ),
    WaitingReason.NO_NODE: Advice("No node takes work.", (_NODES,), "docs/troubleshooting.md#no-node-takes-work"),
    WaitingReason.NO_SUCH_PROJECT: Advice(
        "No node has this version of its project yet.",
        (
            Remedy("Wait for a moment if it was just deployed", Place.PROJECT),
            Remedy("Otherwise deploy the version again"),
        ),
        _WAITS,
    ),
    WaitingReason.DISK_FULL: Advice(
        "The disks of the nodes that could run it are full.", (_NODES,), "docs/troubleshooting.md#the-disk-is-full"
    ),
    WaitingReason.BACKOFF: Advice(
        "The last try failed; the next one comes by itself.", (_LOG,), "docs/reference/outcomes.md"
    ),
    None: Advice(
        "No worker has looked at it yet. That takes a second.",
        (Remedy("If it stays so, see whether the workers are there", Place.OVERVIEW),),
        _WAITS,
    ),
}


def advice(job: Job) -> Advice | None:
    """What to do about the job; `None` if there is nothing to do."""
    if job.status is JobStatus.PENDING:
        return _WAITING[job.waiting_reason]
    if not job.is_final or job.status is JobStatus.CANCELLED:
        return None
    found = _ENDED.get(job.reason) if job.reason else None
    return found or (None if job.status is JobStatus.FINISHED else _UNKNOWN)
