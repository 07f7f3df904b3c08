"""A crawl node's outbox: the names and formats of the files that one attempt leaves behind.

`<outbox>/<job id>-<attempt>/` holds all of them. Each has one writer, and whoever finds them after a crash can
tell from them alone what happened:

=================  ===========================================================================================
`spec.json`        what to run; written by `schedule.json` before the attempt is queued
`started`          made exclusively by the launcher, `flock`ed by the spider process for as long as it lives
`crawl.log`        stdout, stderr and the log of the spider process
`items.jsonl`      one item a line, flushed per item
`progress.json`    rewritten about once a second
`active`           touched about once a second while something happens in the crawl, or it waits for its turn
`report.json`      Scrapy's own account of how it ended, written by the add-on
`stopping`         why it was asked to stop (`timeout`, `cancel`, …); written exclusively before it is told
`exit.json`        how the process ended; written exclusively, by the launcher or, were it killed, the tailer
`shipped.json`     the tailer's checkpoints
=================  ===========================================================================================
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gateway.domain.fetch_options import FetchOptions

SPEC = "spec.json"
STARTED = "started"
LOG = "crawl.log"
ITEMS = "items.jsonl"
PROGRESS = "progress.json"
ACTIVE = "active"
REPORT = "report.json"
STOPPING = "stopping"
EXIT = "exit.json"
SHIPPED = "shipped.json"
#: Beside the attempts: what this node can run (`[SpiderInfo]`), shipped to the `spiders` collection.
CATALOG = "catalog.json"
#: Beside it: `{"chromium": path | null}`, the browser that renders pages here; written when Scrapyd starts.
BROWSER = "browser.json"

#: What `stopping` and `stopped_by` may say.
STOP_REASONS = frozenset({"timeout", "memory", "log", "stall", "cancel", "shutdown"})

#: Finish reason of a crawl that could not keep what it found: the node's disk is full, or broken.
ITEMS_LOST = "items_not_writable"

_INT64 = 1 << 63

_ATTEMPT_ID = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,5})")


class AttemptId(NamedTuple):
    """Names one attempt of one job; also its Scrapyd job id and its folder in the outbox."""

    job_id: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.job_id}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """`None` for anything that is not one of ours, so `../../x` can never become a path."""
        match = _ATTEMPT_ID.fullmatch(text)
        return cls(match[1], int(match[2])) if match else None


def fits_int64(number: int) -> bool:
    """Whether BSON has an integer for it."""
    return -_INT64 <= number < _INT64


def _to_int64(number: int) -> int:
    return max(-_INT64, min(number, _INT64 - 1))


#: One too large for BSON becomes the largest: no count is worth losing the record it is in.
Int64 = Annotated[int, AfterValidator(_to_int64)]


class _Record(BaseModel):
    # a newer node's extra facts must not stop an older reader
    model_config = ConfigDict(extra="ignore")


class NodeSpec(_Record):
    """`spec.json`: all that a node needs to run one attempt."""

    job_id: str
    attempt: int
    project: str
    spider: str
    version: str | None = None
    start_urls: list[str]
    depth: int | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    max_pages: int | None = None
    #: Items after which the crawl ends; it never hands out more.
    max_items: int | None = None
    #: Seconds, counted from the launch; then a graceful stop, then SIGKILL.
    timeout: int = 3600
    ignore_cache: bool = False
    #: The launcher refuses to start it later than this.
    not_after: datetime
    fetch: FetchOptions | None = None
    #: The site whose rate limit (`30/m`) this crawl shares with all others of that site.
    site: str | None = None
    site_rate_limit: str | None = None
    user_id: str = ""
    correlation_id: str | None = None


class Progress(_Record):
    """`progress.json`, and the job's `progress`."""

    requested_pages: Int64 = 0
    completed_pages: Int64 = 0
    items_count: Int64 = 0
    errors_count: Int64 = 0
    #: Completed pages per second since the previous report.
    pages_per_s: float = 0.0
    at: datetime | None = None


class SpiderReport(_Record):
    """`report.json`: how the crawl ended in Scrapy's eyes."""

    finish_reason: str
    progress: Progress
    #: The first few errors, for the message: `{"url", "reason"}`.
    errors: list[dict[str, str]] = Field(default_factory=list)
    #: Scrapy's stats; times as ISO strings.
    stats: dict[str, Any] = Field(default_factory=dict)
    ended_at: datetime


class ExitReport(_Record):
    """`exit.json`: how the process ended, with the spider's own report where there is one."""

    attempt: int
    started_at: datetime | None = None
    ended_at: datetime
    exit_code: Int64 | None = None
    #: Signal number that ended the process.
    signal: Int64 | None = None
    #: What made the launcher end it: `timeout`, `memory`, `log`, `stall`, `cancel`, `shutdown`.
    stopped_by: str | None = None
    #: Seconds in which nothing had happened when it was stopped for that (`stall`).
    stall_seconds: float | None = None
    #: Why it was never started (`stale`, `spawn_failed: …`).
    refused: str | None = None
    #: Nobody saw it end: its lock was free and there was no exit report.
    lost: bool = False
    #: CPU seconds and peak resident bytes of the process, where the operating system told.
    cpu_seconds: float | None = None
    peak_memory_bytes: Int64 | None = None
    report: SpiderReport | None = None
    #: Last lines of the log where there is no report: a traceback, usually.
    log_tail: str | None = None


class SpiderInfo(_Record):
    """One spider that a node can run."""

    project: str
    #: The egg's; `None` for our own project, which has none.
    version: str | None = None
    #: Whether a crawl that names no version gets this one.
    latest: bool = True
    name: str
    description: str = ""
    #: JSON Schema of `params`; `None` takes free-form string parameters.
    params_schema: dict[str, Any] | None = None
    #: Hosts that it keeps to by itself (Scrapy's `allowed_domains`), their subdomains included; empty is no limit.
    allowed_domains: list[str] = Field(default_factory=list)
    #: It decides by itself where it starts (it has a `start()` of its own) and may not look at the start URLs.
    own_start: bool = False


RecordT = TypeVar("RecordT", bound=_Record)


def attempt_dir(outbox: Path, attempt: AttemptId) -> Path:
    return outbox / str(attempt)


def write_atomically(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replace `path`: readers see the old content or the new, never half of it. `private`: nobody else's, as there
    are secrets in it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if private:
        temporary.touch(mode=0o600)
    temporary.write_bytes(data)
    temporary.replace(path)


def write_exclusively(path: Path, data: bytes) -> bool:
    """Create `path` with its full content unless it exists; whether it was us."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def read_record(path: Path, model: type[RecordT]) -> RecordT | None:
    """The record in `path`, or `None` where there is none or it cannot be understood."""
    with suppress(OSError, ValueError, RecursionError):
        return model.model_validate(whole_text(json.loads(path.read_bytes())))
    return None


def whole_text(value: Any) -> Any:
    """`value`, as JSON has it, without half surrogate pairs: JSON can spell them, UTF-8 and BSON cannot."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {whole_text(key): whole_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole_text(inner) for inner in value]
    return value


def stopping_reason(folder: Path) -> str | None:
    """Why the attempt was asked to stop, if it was."""
    with suppress(OSError, ValueError):
        reason = (folder / STOPPING).read_text()
        return reason if reason in STOP_REASONS else None
    return None


def is_locked(folder: Path) -> bool:
    """Whether a living process holds the attempt's started mark; false where there is none."""
    return is_held(folder / STARTED)


def is_held(lock: Path) -> bool:
    """Whether a living process holds the `flock` on this file; false where there is none."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # shared: two who look at the same time must not see each other
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
