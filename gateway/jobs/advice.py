"""Advice for a job that waits, or that did not end as it should. It follows from the job's status and reason.

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
    """One thing that somebody can do, and where."""

    words: str
    place: Place | None = None
    #: Whether only somebody can do it who runs the platform.
    is_for_admins: bool = False


class Advice(NamedTuple):
    """What is wrong with a job, and what can be done about it."""

    what: str
    steps: tuple[Remedy, ...]
    #: Path of the page of the documentation that says more. The gateway serves it below `/help/`.
    reference: str


_LOG = Remedy("Go to the first error in the log", Place.LOG)
_FAILED_REQUESTS = Remedy("Review the failed requests", Place.REQUESTS)
_AGAIN = Remedy("Edit and rerun", Place.AGAIN)
_NODES = Remedy("Check the nodes", Place.NODES, is_for_admins=True)
#: The paragraph about each reason.
_FAILED = "docs/troubleshooting.md#{reason}"
_WAITS = "docs/troubleshooting.md#my-crawl-waits"

#: The advice for a job that has ended, by its reason.
_ENDED: dict[Reason, Advice] = {
    Reason.ADDRESS_FORBIDDEN: Advice(
        "The address is not public, and crawls can reach public addresses only.",
        (
            Remedy(
                "If the site is yours, add its network to CRAWL_ALLOW_NETWORKS and restart the platform",
                is_for_admins=True,
            ),
            Remedy("Otherwise fix the start URL", Place.AGAIN),
        ),
        "docs/reference/egress.md",
    ),
    Reason.ROBOTS_FORBIDDEN: Advice(
        "The site's robots.txt disallows crawling this URL.",
        (
            Remedy("If you have permission, rerun with obey_robots off", Place.AGAIN),
            Remedy("Otherwise choose a start URL that robots.txt allows"),
        ),
        "docs/reference/politeness.md",
    ),
    Reason.LICENSE_REQUIRED: Advice(
        "The site's robots.txt names a license for its pages, and the crawl respects that.",
        (
            Remedy("If you have a license, rerun without fetch.respect", Place.AGAIN),
            Remedy("Otherwise choose another site"),
        ),
        "docs/reference/politeness.md#licenses-and-payment",
    ),
    Reason.PAYMENT_REQUIRED: Advice(
        "The site asks to be paid for its pages (402). Nothing is ever paid automatically.",
        (_FAILED_REQUESTS, Remedy("Ask the site for access, and rerun with its headers in fetch", Place.AGAIN)),
        "docs/reference/politeness.md#licenses-and-payment",
    ),
    Reason.VARIABLE_MISSING: Advice(
        "The code reads an environment variable that is not set.",
        (Remedy("Set the variable for the project", Place.PROJECT), _AGAIN),
        "docs/reference/environment.md",
    ),
    Reason.NOT_IMPORTABLE: Advice(
        "The spider's code cannot be imported on the node.",
        (
            Remedy("Fix the code, or add the missing library to the project's requirements, and redeploy"),
            Remedy("Check the project's versions and installed packages", Place.PROJECT),
        ),
        "docs/reference/dependencies.md",
    ),
    Reason.SPIDER_MISSING: Advice(
        "This version of the project has no spider with that name.",
        (Remedy("See which spiders each version has", Place.PROJECT), Remedy("Choose another spider", Place.AGAIN)),
        "docs/how-to/deploy-your-own-spiders.md",
    ),
    Reason.ARGUMENTS_WRONG: Advice(
        "The spider does not accept these parameters.",
        (Remedy("Fix the parameters", Place.AGAIN), _LOG),
        "docs/reference/spiders.md",
    ),
    Reason.EXPECTATION_BROKEN: Advice(
        "The crawl found less than expected. The site may have changed, or the selectors may no longer match.",
        (
            Remedy("Check the items and their field coverage", Place.ITEMS),
            Remedy("Compare with earlier runs", Place.RUNS),
        ),
        "docs/reference/outcomes.md#what-you-expect",
    ),
    Reason.BROKE_DOWN: Advice(
        "The spider or a component of its project (a pipeline, the scheduler) could not start.",
        (
            _LOG,
            Remedy("Check that the nodes can reach the store it connects to"),
            _AGAIN,
        ),
        _FAILED,
    ),
    Reason.SPIDER_FAILED: Advice(
        "The spider's own code raised an exception.",
        (_LOG, Remedy("Fix the spider, redeploy and rerun", Place.AGAIN)),
        _FAILED,
    ),
    Reason.PIPELINE_FAILED: Advice(
        "The spider's own code raised an exception.",
        (_LOG, Remedy("Fix the spider, redeploy and rerun", Place.AGAIN)),
        _FAILED,
    ),
    Reason.RATE_LIMITED: Advice(
        "The site is rate limiting the crawl.",
        (Remedy("Rerun with a longer delay or a rate limit", Place.AGAIN), _FAILED_REQUESTS),
        "docs/reference/politeness.md",
    ),
    Reason.SITE_REFUSES: Advice(
        "The site blocks the crawler: it requires a login, or has detected a bot.",
        (
            _FAILED_REQUESTS,
            Remedy("Slow down, change the headers, or use a browser (render)", Place.AGAIN),
        ),
        "docs/how-to/crawl-javascript-pages.md",
    ),
    Reason.PAGE_MISSING: Advice(
        "None of the start pages exist.",
        (Remedy("Open the start URL in a browser, and fix it", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.SITE_FAILED: Advice(
        "The site's server returned errors.",
        (Remedy("Rerun once the site has recovered, possibly at a lower rate", Place.AGAIN), _FAILED_REQUESTS),
        "docs/reference/politeness.md",
    ),
    Reason.PROXY_UNREACHABLE: Advice(
        "The proxy could not be reached, so no request was sent to the site.",
        (Remedy("Fix the proxy's address, or check that the proxy is running", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.SITE_UNREACHABLE: Advice(
        "Could not connect to the site.",
        (Remedy("Check the host name and port of the start URL", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.SITE_TIMEOUT: Advice(
        "The site did not answer in time.",
        (
            Remedy("Rerun later, or with a longer download timeout", Place.AGAIN),
            _FAILED_REQUESTS,
        ),
        "docs/reference/limits.md",
    ),
    Reason.TIME_LIMIT: Advice(
        "The crawl timed out. Everything found until then is kept.",
        (
            Remedy("Increase the timeout, or crawl fewer pages", Place.AGAIN),
            Remedy("See which requests were slow", Place.REQUESTS),
        ),
        "docs/reference/limits.md",
    ),
    Reason.MEMORY_LIMIT: Advice(
        "The crawl used more memory than CRAWL_MEMORY_LIMIT allows.",
        (
            Remedy("Crawl fewer pages at once, or keep less in the spider", Place.AGAIN),
            Remedy("Raise CRAWL_MEMORY_LIMIT on the nodes", Place.NODES, is_for_admins=True),
        ),
        "docs/reference/limits.md",
    ),
    Reason.PROCESS_LIMIT: Advice(
        "The crawl had more processes at once than CRAWL_MAX_PROCESSES allows.",
        (
            Remedy("See which processes it starts, and wait for them to end", Place.LOG),
            Remedy("Raise CRAWL_MAX_PROCESSES on the nodes", Place.NODES, is_for_admins=True),
        ),
        "docs/reference/limits.md",
    ),
    Reason.LOG_LIMIT: Advice(
        "The log grew larger than CRAWL_MAX_LOG_BYTES allows.",
        (
            Remedy("See what it logs so often", Place.LOG),
            Remedy("Rerun with a higher log level", Place.AGAIN),
        ),
        "docs/reference/limits.md",
    ),
    Reason.ENTRY_LIMIT: Advice(
        "The crawl created more files and folders than CRAWL_MAX_ENTRIES allows, caches and partial files included.",
        (
            Remedy("See what it writes", Place.LOG),
            Remedy("Write fewer files, or raise CRAWL_MAX_ENTRIES on the nodes", Place.NODES),
        ),
        "docs/reference/files.md#how-much",
    ),
    Reason.RECORD_LIMIT: Advice(
        "Items, requests and frontier took more than CRAWL_MAX_RECORD_BYTES on the node.",
        (
            Remedy("See what it collects so much of", Place.LOG),
            Remedy("Collect less, or raise CRAWL_MAX_RECORD_BYTES on the nodes", Place.NODES),
        ),
        "docs/reference/limits.md",
    ),
    Reason.FILE_LIMIT: Advice(
        "The crawl's files took more than twice FILES_MAX_BYTES on the node.",
        (
            Remedy("See what it writes", Place.LOG),
            Remedy("Write less, or raise FILES_MAX_BYTES on the nodes", Place.NODES),
        ),
        "docs/reference/files.md#how-much",
    ),
    Reason.BUDGET_SPENT: Advice(
        "The API key that started the crawl had no budget left for it.",
        (
            Remedy("Rerun tomorrow (UTC), or with a key that has more left", Place.AGAIN),
            Remedy("See what ran before it", Place.RUNS),
        ),
        "docs/reference/keys.md#budgets",
    ),
    Reason.STALLED: Advice(
        "The crawl stalled and was stopped. Usually a callback blocks or never returns.",
        (Remedy("See what it logged last", Place.LOG), _AGAIN),
        "docs/reference/limits.md#standing-still",
    ),
    **dict.fromkeys(
        (Reason.NOT_STARTED, Reason.NO_NODE_TOOK_IT, Reason.NODE_UNREACHABLE, Reason.NODE_REFUSES),
        Advice(
            "The node could not start the crawl.",
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
            "The node could not prepare the project.",
            (Remedy("Check the version's dependencies", Place.PROJECT), _NODES, _AGAIN),
            "docs/troubleshooting.md#deploy-is-refused",
        ),
    ),
    Reason.DISK_FULL: Advice(
        "The node's disk is full.", (_NODES, _AGAIN), "docs/troubleshooting.md#the-disk-is-full"
    ),
    Reason.ITEMS_UNREADABLE: Advice(
        "The spider replaced the file that holds its items.",
        (_LOG, Remedy("Keep the spider from touching the files in its folder")),
        _FAILED,
    ),
    Reason.PROCESS_KILLED: Advice(
        "The process was killed: the node went down or ran out of memory.",
        (_NODES, _AGAIN),
        "docs/reference/outcomes.md",
    ),
    Reason.NODE_SHUT_DOWN: Advice(
        "The process was killed: the node went down or ran out of memory.",
        (_NODES, _AGAIN),
        "docs/reference/outcomes.md",
    ),
    Reason.PROCESS_CRASHED: Advice(
        "The spider's process crashed.", (Remedy("Read the end of the log", Place.LOG), _AGAIN), _FAILED
    ),
    Reason.NOTHING_FETCHED: Advice(
        "The crawl ended without fetching a page.",
        (Remedy("Open the start URL in a browser", Place.AGAIN), _LOG),
        _FAILED,
    ),
    Reason.REQUESTS_FAILED: Advice("Too many requests failed.", (_FAILED_REQUESTS, _LOG), _FAILED),
    Reason.CLOSED_EARLY: Advice(
        "The spider closed itself before it was done.", (_LOG, _AGAIN), "docs/reference/outcomes.md"
    ),
    Reason.NO_ITEMS: Advice(
        "Pages were fetched, but no items were found.",
        (
            Remedy("Compare a page with the spider's selectors", Place.REQUESTS),
            Remedy("Set expectations, so that a run like this counts as partial", Place.AGAIN),
        ),
        "docs/reference/outcomes.md#what-you-expect",
    ),
    Reason.PAGE_TOO_LARGE: Advice(
        "A page exceeds the download size limit.",
        (Remedy("Raise DOWNLOAD_MAXSIZE in the crawl's settings", Place.AGAIN), _FAILED_REQUESTS),
        "docs/reference/limits.md",
    ),
    Reason.PAGE_REFUSED: Advice(
        "The site redirected in a loop, or sent a page built to exhaust its reader.",
        (_FAILED_REQUESTS, _LOG),
        _FAILED,
    ),
    Reason.URL_UNSUPPORTED: Advice(
        "The URLs have an unsupported scheme.",
        (Remedy("Fix the start URL", Place.AGAIN), _FAILED_REQUESTS),
        _FAILED,
    ),
    Reason.HANDLER_REFUSED: Advice(
        "The project uses its own download handler, so this node could not check where requests go.",
        (
            Remedy("If you trust it, add it to CRAWL_ALLOW_HANDLERS on the nodes", Place.NODES, is_for_admins=True),
            _LOG,
        ),
        "docs/reference/egress.md",
    ),
    Reason.ITEM_REFUSED: Advice(
        "Some items could not be written as JSON.",
        (_LOG, Remedy("Fix the spider, redeploy and rerun", Place.AGAIN)),
        _FAILED,
    ),
}
_UNKNOWN = Advice("The crawl did not end as expected.", (_LOG, _AGAIN), "docs/troubleshooting.md#my-crawl-failed")
#: What a waiting job does, after "the job is"; `None` if no worker has checked it yet.
WAITS_FOR: dict[WaitingReason | None, str] = {
    WaitingReason.CAPACITY: "waiting for a free slot",
    WaitingReason.SITE_BUSY: "waiting for another run of the site",
    WaitingReason.PREVIOUS_RUN: "waiting for the previous run",
    WaitingReason.USER_QUOTA: "waiting for other crawls of the user",
    WaitingReason.NO_NODE: "waiting for an available node",
    WaitingReason.NO_SUCH_PROJECT: "waiting for a node with this version of the project",
    WaitingReason.DISK_FULL: "waiting for disk space on a node",
    WaitingReason.BACKOFF: "waiting to retry",
    None: "being queued",
}
_WAITING: dict[WaitingReason | None, Advice] = {
    WaitingReason.CAPACITY: Advice(
        "All slots it could use are taken.",
        (
            Remedy("Wait for a running job to end", Place.RUNNING),
            Remedy("Raise NODE_SLOTS, or add a node", Place.NODES, is_for_admins=True),
        ),
        "docs/reference/queue.md",
    ),
    WaitingReason.SITE_BUSY: Advice(
        "Another run of the site is still active.",
        (Remedy("See the active runs of the site", Place.OF_SITE),),
        "docs/reference/sites.md",
    ),
    WaitingReason.PREVIOUS_RUN: Advice(
        "The previous run of the schedule is still active.",
        (
            Remedy("Compare the runs", Place.RUNS),
            Remedy("Let the schedule's runs overlap, or skip them", Place.SCHEDULE),
        ),
        "docs/reference/schedules.md",
    ),
    WaitingReason.USER_QUOTA: Advice(
        "The user is at the limit of running crawls.",
        (
            Remedy("See the user's running crawls", Place.OF_USER),
            Remedy("Raise CRAWL_USER_RUNNING_MAX", is_for_admins=True),
        ),
        "docs/reference/quotas.md",
    ),
    WaitingReason.NO_NODE: Advice("No node is available.", (_NODES,), "docs/troubleshooting.md#no-node-takes-work"),
    WaitingReason.NO_SUCH_PROJECT: Advice(
        "No node has this version of the project yet.",
        (
            Remedy("If it was just deployed, wait a moment", Place.PROJECT),
            Remedy("Otherwise redeploy the version"),
        ),
        _WAITS,
    ),
    WaitingReason.DISK_FULL: Advice(
        "The disks of all nodes that could run it are full.", (_NODES,), "docs/troubleshooting.md#the-disk-is-full"
    ),
    WaitingReason.BACKOFF: Advice(
        "The last attempt failed. It is retried automatically.", (_LOG,), "docs/reference/outcomes.md"
    ),
    None: Advice(
        "The job is being queued. This usually takes a second.",
        (Remedy("If this persists, check the workers", Place.OVERVIEW),),
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
    if found is None:
        return None if job.status is JobStatus.FINISHED else _UNKNOWN
    return found._replace(reference=found.reference.format(reason=job.reason))
