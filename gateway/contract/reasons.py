"""Codes for the reason why an attempt or a job ended, and for the reason why a node refused an egg. Each cause has
one code, which does not depend on the message.

`docs/troubleshooting.md` has a paragraph for each code. Codes are stored and shown, so they are never renamed. A
stored code may be unknown, because a newer version has written it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

#: A regular expression for the message of Python's `TypeError` when the arguments of a call do not fit.
MISFITS = r"unexpected keyword|missing \d+ required|positional arguments? but|multiple values for"


class Reason(StrEnum):
    """Why a job ended, waits, or failed."""

    # --- the crawl ended by itself
    COMPLETED = "completed"
    #: The crawl has reached the number of pages or items that was asked for.
    OWN_LIMIT = "own_limit"
    NO_ITEMS = "no_items"
    EXPECTATION_BROKEN = "expectation_broken"
    #: The spider has closed itself with a reason of its own.
    CLOSED_EARLY = "closed_early"
    NOTHING_FETCHED = "nothing_fetched"
    REQUESTS_FAILED = "requests_failed"
    # --- somebody ended it
    CANCELLED = "cancelled"
    PAUSED = "paused"
    #: The job was paused, and not resumed in time.
    PAUSE_EXPIRED = "pause_expired"
    # --- the site, and the connection to it
    ADDRESS_FORBIDDEN = "address_forbidden"
    ROBOTS_FORBIDDEN = "robots_forbidden"
    #: The site requires a license, and the crawl respects that (`fetch.respect`).
    LICENSE_REQUIRED = "license_required"
    PAYMENT_REQUIRED = "payment_required"
    SITE_REFUSES = "site_refuses"
    RATE_LIMITED = "rate_limited"
    PAGE_MISSING = "page_missing"
    SITE_FAILED = "site_failed"
    SITE_UNREACHABLE = "site_unreachable"
    SITE_TIMEOUT = "site_timeout"
    PROXY_UNREACHABLE = "proxy_unreachable"
    PAGE_TOO_LARGE = "page_too_large"
    #: Endless redirects, or a page that Scrapy refuses to pass to a spider.
    PAGE_REFUSED = "page_refused"
    URL_UNSUPPORTED = "url_unsupported"
    # --- the project's code
    NOT_IMPORTABLE = "not_importable"
    SPIDER_MISSING = "spider_missing"
    ARGUMENTS_WRONG = "arguments_wrong"
    VARIABLE_MISSING = "variable_missing"
    HANDLER_REFUSED = "handler_refused"
    #: The spider, or a component of its project, could not be built or opened.
    BROKE_DOWN = "broke_down"
    SPIDER_FAILED = "spider_failed"
    PIPELINE_FAILED = "pipeline_failed"
    ITEM_REFUSED = "item_refused"
    PROCESS_CRASHED = "process_crashed"
    ITEMS_UNREADABLE = "items_unreadable"
    # --- a limit
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    PROCESS_LIMIT = "process_limit"
    LOG_LIMIT = "log_limit"
    FILE_LIMIT = "file_limit"
    ENTRY_LIMIT = "entry_limit"
    RECORD_LIMIT = "record_limit"
    #: Nothing is left of the budget of the key that asked for the crawl.
    BUDGET_SPENT = "budget_spent"
    STALLED = "stalled"
    # --- the node
    NOT_STARTED = "not_started"
    NO_NODE_TOOK_IT = "no_node_took_it"
    NODE_SHUT_DOWN = "node_shut_down"
    PROCESS_KILLED = "process_killed"
    DISK_FULL = "disk_full"
    NODE_UNREACHABLE = "node_unreachable"
    #: The node refuses the platform's password, or the host name under which the platform calls it.
    NODE_REFUSES = "node_refuses"
    #: The node has no such project, or no such version of it.
    PROJECT_MISSING = "project_missing"
    # --- an egg, and what it depends on
    EGG_UNREADABLE = "egg_unreadable"
    EGG_TOO_LARGE = "egg_too_large"
    #: The node has a package of the same name.
    PACKAGE_TAKEN = "package_taken"
    #: The descriptions of its spiders do not fit into the node's catalogue.
    TOO_MANY_SPIDERS = "too_many_spiders"
    REQUIREMENTS_REFUSED = "requirements_refused"
    REQUIREMENTS_UNMET = "requirements_unmet"
    BUILD_FAILED = "build_failed"
    #: The installation took more time or room than the node allows.
    INSTALL_LIMIT = "install_limit"
    PYTHON_MISSING = "python_missing"
    INDEX_UNREACHABLE = "index_unreachable"
    STILL_INSTALLING = "still_installing"


def reason_of(code: str | None) -> Reason | None:
    """The reason with this code; `None` if there is none, or if this version does not know the code."""
    return Reason._value2member_map_.get(code or "")  # type: ignore[return-value]


class Limit(NamedTuple):
    reason: Reason
    words: str
    #: What sets it.
    setting: str


#: By the value of `stopped_by` in an exit report: the limits at which a node stops a process.
LIMITS = {
    "timeout": Limit(Reason.TIME_LIMIT, "time limit", "timeout"),
    "memory": Limit(Reason.MEMORY_LIMIT, "memory limit", "CRAWL_MEMORY_LIMIT"),
    "processes": Limit(Reason.PROCESS_LIMIT, "limit of processes", "CRAWL_MAX_PROCESSES"),
    "log": Limit(Reason.LOG_LIMIT, "log limit", "CRAWL_MAX_LOG_BYTES"),
    "files": Limit(Reason.FILE_LIMIT, "limit of files", "twice FILES_MAX_BYTES"),
    "entries": Limit(Reason.ENTRY_LIMIT, "limit of files and folders", "CRAWL_MAX_ENTRIES"),
    "records": Limit(Reason.RECORD_LIMIT, "limit of items and requests", "CRAWL_MAX_RECORD_BYTES"),
    "disk": Limit(Reason.DISK_FULL, "share of a disk that was nearly full", "NODE_MIN_FREE_BYTES"),
}
