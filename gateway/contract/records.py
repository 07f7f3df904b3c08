"""The content of the JSON files in a node's outbox, as pydantic models. A spider's process might run in its project's
own Python, which has no pydantic, so it writes and reads these files without them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from gateway.contract import outbox
from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import Fault, read_file, whole_text

_INT64 = 1 << 63


def fits_int64(number: int) -> bool:
    """Whether BSON can hold it as an integer."""
    return -_INT64 <= number < _INT64


def _to_int64(number: int) -> int:
    return max(-_INT64, min(number, _INT64 - 1))


#: A number too large for BSON becomes the largest one: no count is worth losing its record.
Int64 = Annotated[int, AfterValidator(_to_int64)]


class _Record(BaseModel, extra="ignore"):
    """A newer node's extra facts must not stop an older reader."""


# as in `_Record`
class NodeSpec(CrawlSpec, extra="ignore"):
    """`spec.json`: all that a node needs to run one attempt, but for its variables. `timeout` is counted from the
    launch; after it the attempt is stopped gracefully, then by SIGKILL.
    """

    job_id: str
    attempt: int
    #: The launcher refuses to start it later than this.
    not_after: datetime
    user_id: str = ""
    correlation_id: str | None = None
    #: Id of the node's folder (`instance_of`): a machine of the same name with another folder refuses the attempt.
    instance: str | None = None
    #: Whether the attempt has variables. They are handed over beside the spec and are never in this file.
    has_env: bool = False
    #: The node where an earlier attempt has left what is still to be fetched.
    left_on: str | None = None
    #: The number of the first attempt from whose frontier this one may go on; older workers do not say.
    frontier_since: int = 1
    #: What this attempt may take of its key's budget: `pages`, `hosts`, `bytes`. Its seconds are in `timeout`.
    allowance: dict[str, int] | None = None


class Progress(_Record):
    """`progress.json`, and the job's `progress`."""

    requested_pages: Int64 = 0
    completed_pages: Int64 = 0
    items_count: Int64 = 0
    errors_count: Int64 = 0
    #: How many pages were answered with each class of status, those that were given up included.
    answered_2xx: Int64 = 0
    answered_3xx: Int64 = 0
    answered_4xx: Int64 = 0
    answered_5xx: Int64 = 0
    #: Completed pages per second since the previous report.
    pages_per_s: float = 0.0
    #: Whether another attempt could go on from here; nodes of older versions do not say.
    can_go_on: bool | None = None
    at: datetime | None = None


class SpiderReport(_Record):
    """`report.json`: how the crawl ended by Scrapy's own account."""

    finish_reason: str
    progress: Progress
    #: The first few errors, for the message, each with some of `outbox.ERROR_FACTS`.
    errors: list[dict[str, str]] = Field(default_factory=list)
    #: How many items have each of the fields that are expected; absent if none is.
    filled: dict[str, Int64] | None = None
    #: The errors by what they are (`error_groups.py`), as the spider's process has written them, and how many had no
    #: room there. Only the outbox has them: the tailer stores them by themselves.
    error_groups: list[dict[str, Any]] | None = None
    errors_left_out: Int64 | None = None
    #: Scrapy's stats; times as ISO strings.
    stats: dict[str, Any] = Field(default_factory=dict)
    ended_at: datetime


class FilesKept(_Record):
    """Which of an attempt's files were stored."""

    count: Int64 = 0
    bytes: Int64 = 0
    #: How many files were not kept, and `{"name", "reason"}` of the first few of them.
    refused_count: Int64 = 0
    refused: list[dict[str, str]] = Field(default_factory=list)
    #: The file store could not be reached when the attempt ended: they are kept once it is back.
    pending: bool = False


class ExitReport(_Record):
    """`exit.json`: how the process ended, with the spider's own report where there is one."""

    attempt: int
    started_at: datetime | None = None
    ended_at: datetime
    exit_code: Int64 | None = None
    #: Signal number that ended the process.
    signal: Int64 | None = None
    #: What made the launcher end it: one of `outbox.STOP_REASONS`.
    stopped_by: str | None = None
    #: Seconds in which nothing had happened, if it was stopped for that (`stall`).
    stall_seconds: float | None = None
    #: Why it was never started (`stale`, `spawn_failed: …`).
    refused: str | None = None
    #: Whose fault the refusal was; nodes of older versions do not say.
    fault: Fault | None = None
    #: Why it was refused, as one of the codes of `reasons.py`, if there is one.
    reason: str | None = None
    #: Its end was not seen: its lock was free and there was no exit report. With `signal`: the kernel killed it
    #: because its node had no memory left.
    lost: bool = False
    #: Why the items, or the log, are incomplete: what the tailer found instead of the file. Only the tailer sets
    #: these two and `files`, with one exception: Scrapyd sets `items_lost` of an attempt that has removed its folder.
    items_lost: str | None = None
    log_lost: str | None = None
    #: Absent if it has written no files.
    files: FilesKept | None = None
    #: It left a frontier: another attempt on this node goes on where this one was interrupted.
    can_go_on: bool = False
    #: CPU seconds and peak resident bytes of the process, if the operating system reports them.
    cpu_seconds: float | None = None
    peak_memory_bytes: Int64 | None = None
    report: SpiderReport | None = None
    #: Last lines of the log if there is no report: a traceback, usually.
    log_tail: str | None = None


def write_exit(folder: Path, report: ExitReport) -> bool:
    """Write the attempt's exit report unless there is one. Returns whether it was written. On a full disk it goes
    into the room that was reserved, without the stats if they are too long. Raises `OSError`.
    """
    try:
        written = outbox.write_exclusively(folder / outbox.EXIT, _exit_json(report))
    except OSError as error:
        if error.errno not in outbox.FULL:
            raise
        return _write_into_room(folder / outbox.EXIT, report, error)
    with suppress(OSError):
        (folder / outbox.ROOM).unlink()
    return written


def _write_into_room(path: Path, report: ExitReport, full: OSError) -> bool:
    try:
        return outbox.write_into_room(path, _exit_json(fitting(report, outbox.ROOM_BYTES)))
    except FileNotFoundError:
        raise full from None


def fitting(report: ExitReport, most: int) -> ExitReport:
    """The report, without what a spider can make long if it has more than `most` bytes as JSON: first without the
    stats and the groups of errors, then without the spider's whole account and the end of the log.
    """
    account = report.report
    left_out = {outbox.STATS_LEFT_OUT: len(account.stats)} if account else {}
    without_stats = account and account.model_copy(update={"stats": left_out, "error_groups": None})
    for changes in ({}, {"report": without_stats}, {"report": None, "log_tail": None}):
        shorter = report.model_copy(update=changes)
        if len(_exit_json(shorter)) <= most:
            break
    return shorter


def _exit_json(report: ExitReport) -> bytes:
    return report.model_dump_json(exclude_none=True).encode()


class SpiderInfo(_Record):
    """One spider that a node can run."""

    project: str
    #: The egg's version; `None` for our own project, which has no egg.
    version: str | None = None
    #: Whether a crawl that names no version gets this one.
    latest: bool = True
    name: str
    description: str = ""
    #: JSON Schema of `params`; `None` if the spider accepts any parameters, as strings.
    params_schema: dict[str, Any] | None = None
    #: Hosts that it keeps to by itself (Scrapy's `allowed_domains`), their subdomains included; empty is no limit.
    allowed_domains: list[str] = Field(default_factory=list)
    #: It decides by itself where it starts (it has a `start()` of its own) and may ignore the start URLs.
    own_start: bool = False
    #: Module of the spider's class, in an egg: the one module of the project that its crawls import.
    module: str | None = None
    #: It has no start URLs of its own: a crawl of it must name some.
    needs_urls: bool = True
    #: Names of its constructor's arguments, those of its base classes included. Nodes of 0.2.0 do not say.
    arguments: list[str] = Field(default_factory=list)
    #: Seconds after which it ends by itself, as its settings say (`CLOSESPIDER_TIMEOUT`). Nodes of 0.2.0 do not say.
    timeout: int | None = Field(default=None, ge=1, lt=10**9)


class NotedDeployment(_Record):
    """An egg that was deployed with Scrapyd's own tools. The tailer notes the last one with the number alone."""

    #: Counts all deployments on this node.
    number: int
    project: str = ""
    version: str = ""


class Deployments(_Record):
    """The deployments that the tailer had not noted when the last one was written down, in their order."""

    deployments: list[NotedDeployment] = Field(default_factory=list)


RecordT = TypeVar("RecordT", bound=BaseModel)

#: Values in a record, at any depth. What a request of 256 KiB asks for has fewer, and so has a report of 2 MiB, of
#: which each stat has a name. A record with as many as this takes 0.3 s to read; with a million, five times as long.
MAX_VALUES = 200_000


def read_record(path: Path, model: type[RecordT]) -> RecordT | None:
    """The record in `path`, or `None` if there is none or it cannot be understood. A spider can fill a record with
    millions of empty lists, which take ten seconds to read: the one with too many is not read.
    """
    with suppress(OSError, ValueError, RecursionError):
        content = read_file(path)
        return None if has_more_values(content, MAX_VALUES) else model.model_validate(whole_text(json.loads(content)))
    return None


# --- how much work it is to read JSON that a spider may have written

#: In JSON, each value inside an object or array comes after one of these; and quotes around a value and its name.
_MARKS, _QUOTES = (b",", b"[", b"{"), 4


#: Values in a node's answer about an egg. A process that parses an answer does nothing else meanwhile. Ten thousand
#: spiders have fewer, unless their parameters are described at length.
MAX_ANSWERED = 400_000


def count_marks(data: bytes) -> int:
    """At least as many as the values inside the JSON `data`; marks in strings are counted as well."""
    return sum(map(data.count, _MARKS))


def has_more_values(data: bytes, most: int) -> bool:
    """Whether the marks outside of strings, or the strings, are more than `most` values have. For any bytes, up to
    the first that is no JSON. No regular expression looks for the strings: a spider can write bytes with which it
    takes hours, and meanwhile no other thread of this process runs, not even the heartbeat.
    """
    if count_marks(data) <= most:
        return False
    # without escapes, each quote begins a string or ends it
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    parts = bare.split(b'"', _QUOTES * most + 1)
    return len(parts) > _QUOTES * most + 1 or count_marks(b"".join(parts[::2])) > most
