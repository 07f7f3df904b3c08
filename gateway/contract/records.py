"""The content of the JSON files in a node's outbox, as pydantic models. A spider's process does not use these models,
because its project may have a Python of its own without pydantic.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from gateway.contract import outbox
from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import Fault, read_file, whole_text

_INT64 = 1 << 63
_LONGEST_HOST = 253


def fits_int64(number: int) -> bool:
    """Whether BSON can store the number as an integer."""
    return -_INT64 <= number < _INT64


def _to_int64(number: int) -> int:
    return max(-_INT64, min(number, _INT64 - 1))


#: A number that is too large for BSON becomes the largest one, because a wrong count is better than a lost record.
Int64 = Annotated[int, AfterValidator(_to_int64)]
#: All times outside of these become one of them: some of those are no times in UTC, and BSON cannot store them.
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def storable_time(said: datetime) -> datetime:
    """The time in UTC; a time without a zone is taken for UTC. A spider can write any time, such as the first hour of
    the year 1 in a zone east of Greenwich.
    """
    aware = said if said.tzinfo else said.replace(tzinfo=UTC)
    # compared without a conversion, which such a time would make fail
    return min(max(aware, _EARLIEST), _LATEST).astimezone(UTC)


#: As `Int64`, for a time.
Moment = Annotated[datetime, AfterValidator(storable_time)]


def _hosts(given: object) -> list[str]:
    """Names that can be hosts. A spider may have written anything, and the counts beside it are not to be lost."""
    hosts = [one.lower() for one in given if isinstance(one, str)] if isinstance(given, list) else []
    return [one for one in hosts if 0 < len(one) <= _LONGEST_HOST][: outbox.MOST_HOSTS]


class _Record(BaseModel, extra="ignore"):
    """A record whose unknown fields are ignored, so that an older version can read the records of newer nodes."""


# unknown fields are ignored as in `_Record`
class NodeSpec(CrawlSpec, extra="ignore"):
    """`spec.json`: everything that a node needs to run one attempt, except its variables. `timeout` begins at the
    launch; at its end the attempt is stopped gracefully, and later by SIGKILL.
    """

    job_id: str
    attempt: int
    #: The launcher refuses to start the attempt after this time.
    not_after: Moment
    user_id: str = ""
    correlation_id: str | None = None
    #: The id of the node's folder (`instance_of`). A node with the same name but another folder refuses the attempt.
    instance: str | None = None
    #: Whether the attempt has variables. They are sent separately and are never in this file.
    has_env: bool = False
    #: The node where an earlier attempt has left its frontier.
    left_on: str | None = None
    #: The number of the first attempt whose frontier this one may continue; older workers do not send it.
    frontier_since: int = 1
    #: How much of its key's budget this attempt may use: `pages`, `hosts`, `bytes`. Its seconds are in `timeout`.
    allowance: dict[str, int] | None = None


class Progress(_Record):
    """`progress.json`, and the job's `progress`."""

    requested_pages: Int64 = 0
    completed_pages: Int64 = 0
    items_count: Int64 = 0
    errors_count: Int64 = 0
    #: How many responses had each class of status, including those of failed requests.
    answered_2xx: Int64 = 0
    answered_3xx: Int64 = 0
    answered_4xx: Int64 = 0
    answered_5xx: Int64 = 0
    #: Completed pages per second since the previous report.
    pages_per_s: float = 0.0
    #: Whether another attempt could continue from here; older nodes do not send it.
    can_go_on: bool | None = None
    #: The first `outbox.MOST_HOSTS` hosts that were asked, in small letters; older nodes send none.
    hosts: Annotated[list[str], BeforeValidator(_hosts)] = Field(default_factory=list)
    at: Moment | None = None


class SpiderReport(_Record):
    """`report.json`: how the crawl ended according to Scrapy."""

    finish_reason: str
    progress: Progress
    #: The first few errors, for the message, each with some of `outbox.ERROR_FACTS`.
    errors: list[dict[str, str]] = Field(default_factory=list)
    #: By expected field: how many items have it; absent if no field is expected.
    filled: dict[str, Int64] | None = None
    #: The error groups (`error_groups.py`), as the spider's process has written them, and how many errors are in no
    #: group. They are only in the outbox: the tailer stores them in a collection of their own.
    error_groups: list[dict[str, Any]] | None = None
    errors_left_out: Int64 | None = None
    #: Scrapy's stats; times as ISO strings.
    stats: dict[str, Any] = Field(default_factory=dict)
    ended_at: Moment


class FilesKept(_Record):
    """Which of an attempt's files were stored."""

    count: Int64 = 0
    bytes: Int64 = 0
    #: How many files were not stored, and `{"name", "reason"}` of the first few of them.
    refused_count: Int64 = 0
    refused: list[dict[str, str]] = Field(default_factory=list)
    #: Whether the file store did not answer when the attempt ended: the files are stored once it answers.
    pending: bool = False


class ExitReport(_Record):
    """`exit.json`: how the process ended, with the spider's own report if there is one."""

    attempt: Int64
    started_at: Moment | None = None
    ended_at: Moment
    exit_code: Int64 | None = None
    #: Signal number that ended the process.
    signal: Int64 | None = None
    #: Why the launcher stopped it: one of `outbox.STOP_REASONS`.
    stopped_by: str | None = None
    #: Seconds without any activity, if it was stopped for that (`stall`).
    stall_seconds: float | None = None
    #: Why it was never started (`stale`, `spawn_failed: …`).
    refused: str | None = None
    #: Whose fault the refusal was; older nodes do not send it.
    fault: Fault | None = None
    #: Why it was refused, as one of the codes of `reasons.py`, if there is one.
    reason: str | None = None
    #: Whether nobody saw its end: its lock was free, and there was no exit report. With `signal`: the kernel killed
    #: it, because its node had no memory left.
    lost: bool = False
    #: Why the items, or the log, are incomplete: the error when the tailer read the file. Only the tailer sets these
    #: two and `files`, with one exception: Scrapyd sets `items_lost` if an attempt has removed its folder.
    items_lost: str | None = None
    log_lost: str | None = None
    #: Absent if the attempt has written no files.
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
    """Write the attempt's exit report unless there is one. Returns whether it was written. On a full disk it is
    written into the reserved room, without the stats if they are too long. Raises `OSError`.
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
    """The report, shortened if it has more than `most` bytes as JSON: first without the stats and the error groups,
    then without the spider's report and the end of the log.
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
    #: Whether a crawl without a version runs this one.
    latest: bool = True
    name: str
    description: str = ""
    #: JSON Schema of `params`; `None` if the spider accepts any parameters, as strings.
    params_schema: dict[str, Any] | None = None
    #: The only hosts that it visits (Scrapy's `allowed_domains`), with their subdomains; empty: no limit.
    allowed_domains: list[str] = Field(default_factory=list)
    #: Whether it has a `start()` of its own, and so may ignore the start URLs.
    own_start: bool = False
    #: The module of the spider's class, if it is in an egg: the only module of the project that its crawls import.
    module: str | None = None
    #: Whether it has no start URLs of its own, so that a crawl of it must name some.
    needs_urls: bool = True
    #: The names of its constructor's arguments, including those of its base classes. Nodes of 0.2.0 do not send them.
    arguments: list[str] = Field(default_factory=list)
    #: Seconds after which it ends by itself, from its setting `CLOSESPIDER_TIMEOUT`. Nodes of 0.2.0 do not send it.
    timeout: int | None = Field(default=None, ge=1, lt=10**9)


class NotedDeployment(_Record):
    """An egg that was deployed with Scrapyd's own tools. For the last one that it has reported, the tailer stores
    only the number.
    """

    #: Counts all deployments on this node.
    number: int
    project: str = ""
    version: str = ""


class Deployments(_Record):
    """The deployments, in their order, that the tailer had not reported when Scrapyd wrote the file."""

    deployments: list[NotedDeployment] = Field(default_factory=list)


RecordT = TypeVar("RecordT", bound=BaseModel)

#: A record may have at most this many values, at any depth. A spec from a request of 256 KiB has fewer, and so does a
#: report of 2 MiB, because each stat has a name. It takes 0.3 s to read a record with this many values.
MAX_VALUES = 200_000


def read_record(path: Path, model: type[RecordT]) -> RecordT | None:
    """The record in `path`; `None` if there is none, or if it cannot be read. A record with too many values is not
    read, because a spider can fill it with millions of empty lists, which would take ten seconds.
    """
    with suppress(OSError, ValueError, RecursionError):
        content = read_file(path)
        return None if has_more_values(content, MAX_VALUES) else model.model_validate(whole_text(json.loads(content)))
    return None


# --- a limit for JSON that a spider may have written

#: In JSON, one of these marks precedes each value inside an object or array. A value and its name have at most this
#: many quotes.
_MARKS, _QUOTES = (b",", b"[", b"{"), 4


#: A node's answer about an egg may have at most this many values, because parsing blocks the whole process. Ten
#: thousand spiders have fewer, unless the descriptions of their parameters are long.
MAX_ANSWERED = 400_000


def count_marks(data: bytes) -> int:
    """An upper bound of the number of values inside the JSON `data`: marks in strings are counted, too."""
    return sum(map(data.count, _MARKS))


def has_more_values(data: bytes, most: int) -> bool:
    """Whether the JSON has more than `most` values, estimated by its marks outside of strings and its quotes. It
    works for any bytes. Strings are not found by a regular expression, because a spider can write bytes for which
    this takes hours, and meanwhile no other thread of this process runs, not even the heartbeat.
    """
    if count_marks(data) <= most:
        return False
    # without escapes, each quote begins a string or ends it
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    parts = bare.split(b'"', _QUOTES * most + 1)
    return len(parts) > _QUOTES * most + 1 or count_marks(b"".join(parts[::2])) > most
