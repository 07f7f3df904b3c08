"""Ships the data of an attempt: the log (`log_shipping.py`), files (`file_shipping.py`), items, requests and the exit
report to MongoDB, and to Redis what clients watch live.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

import bson
import redis
import structlog
from attrs import define
from bson.errors import BSONError

from gateway.clock import Clock, from_timestamp, utc_now
from gateway.contract import outbox as files
from gateway.contract import records
from gateway.error_groups.attempt_errors import AttemptErrorStore, RunErrors, errors_of
from gateway.errors import JobNotFoundError, UnavailableError
from gateway.items.items import Item, ItemStore
from gateway.jobs.completion import Completion
from gateway.jobs.progress import Point, ProgressStore
from gateway.jobs.store import JobStore
from gateway.logs.store import LogStore, LogStream
from gateway.requests.store import RequestChunk, RequestStore
from gateway.stores.mongo import is_passing
from gateway.tailer.file_shipping import FileSink
from gateway.tailer.log_shipping import CHUNK, CHUNKS_PER_TURN, ship_live_log, ship_log
from gateway.tailer.outbox import AttemptFolder, started_at

# --- from a line of `items.jsonl` to what MongoDB can hold. No line is ever dropped.

#: The largest item, in bytes, both as JSON and as BSON. MongoDB's own limit is 16 MiB.
MAX_ITEM = 15_000_000
#: The deepest nesting of an item. MongoDB's own limit is 100 levels, including the document around the item.
MAX_DEPTH = 90
#: An item with more values than this, at any depth, is stored as text. Each value takes some microseconds, during
#: which nothing of other crawls is shipped, and 15 MB have room for millions of values.
MAX_VALUES = 100_000
#: The first bytes of an item that is too large are stored, so that its author can recognize it.
HEAD = 1000


def parse_item(attempt_id: files.AttemptId, end: int, line: bytes) -> Item:
    """The item on `line`, which ends at byte `end`: its data, or its text if BSON cannot store the data."""
    if len(line) > MAX_ITEM:
        return too_large(attempt_id, end, len(line), line)
    data = _storable_line(line)
    if data is not None:
        return Item(*attempt_id, end, data)
    text = line.decode("utf-8", "replace")
    if len(text) * 3 > MAX_ITEM and len(text.encode()) > MAX_ITEM:
        # each invalid byte has become a replacement character of three bytes
        return too_large(attempt_id, end, len(line), line)
    return Item(*attempt_id, end, None, text)


def as_text(item: Item) -> Item:
    """The item as text, for a server that refuses the data although BSON could store it."""
    text = json.dumps(item.data, ensure_ascii=False, separators=(",", ":"))
    return item._replace(data=None, raw=text)


def too_large(attempt_id: files.AttemptId, end: int, size: int, head: bytes) -> Item:
    """The replacement for an item that is too large: its size and its beginning."""
    text = head[:HEAD].decode("utf-8", "replace")
    return Item(*attempt_id, end, {"error": "this item is too large to be stored", "bytes": size, "begin": text})


def _storable_line(line: bytes) -> dict[str, Any] | None:
    """The JSON object on `line`; `None` if it is not an object, or if BSON cannot store it unchanged."""
    if records.has_more_values(line, MAX_VALUES):
        return None
    try:
        # not orjson: it turns integers beyond 64 bits into floats
        data = json.loads(line, parse_constant=_refuse, parse_float=_finite)
        if not isinstance(data, dict) or not _has_portable_keys(data, 0):
            return None
        return data if len(bson.encode({"data": data})) <= MAX_ITEM else None
    except (ValueError, OverflowError, RecursionError, BSONError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is no double")
    return number


def _has_portable_keys(value: object, depth: int) -> bool:
    """Whether every version of MongoDB accepts these keys: dots and a leading `$` have a meaning in queries."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(
            not key.startswith("$") and "." not in key and "\0" not in key and _has_portable_keys(inner, depth + 1)
            for key, inner in value.items()
        )
    if isinstance(value, list):
        return all(_has_portable_keys(inner, depth + 1) for inner in value)
    return True


# --- items from the spool into MongoDB, in batches; an item that is refused does not hold up the others

log = structlog.get_logger()

#: A batch ends when it reaches one of these two limits, or `MAX_VALUES`. A line that is longer than a batch becomes a
#: batch of its own.
BATCH_ITEMS = 500
BATCH_BYTES = 1 << 20
#: In a line that is too large, the end is searched for. After this many batches, it is another attempt's turn; after
#: `LONGEST_LINE` bytes, the file is given up.
SEARCHED_AT_ONCE = 16
LONGEST_LINE = 1 << 30


def ship_items(store: ItemStore, attempt: AttemptFolder, *, ended: bool) -> bool:
    """Ship one batch. Returns whether there may be more.

    Raises `OSError` and PyMongo's errors; the checkpoint then stays where it is.
    """
    items, end, more = _next_batch(attempt, attempt.checkpoint.items)
    for refused in store.insert(items) if items else ():
        log.warning("item_kept_as_text", item=refused.id)
        if refused.data is None or store.insert([as_text(refused)]):
            raise ValueError(f"MongoDB refuses {refused.id} in every form")
    attempt.checkpoint.items = end
    if ended and not more:
        _look_at_rest(attempt, end)
    return more


def _next_batch(attempt: AttemptFolder, start: int) -> tuple[list[Item], int, bool]:
    """The items of one batch, the position after them, and whether there may be more. Raises `HostileFileError`
    beyond `longest_items`, because a sparse file takes no disk space, but could be read for hours.
    """
    data = files.read_part(attempt.folder / files.ITEMS, start, BATCH_BYTES)
    if data and start >= attempt.longest_items:
        raise files.HostileFileError(
            errno.EFBIG,
            f"{files.ITEMS} has more than {attempt.longest_items:.0f} bytes (twice CRAWL_MAX_RECORD_BYTES)",
        )
    if b"\n" not in data and len(data) == BATCH_BYTES:
        return _long_line(attempt, start)
    items: list[Item] = []
    position = 0
    values = 0
    while len(items) < BATCH_ITEMS and values < MAX_VALUES and (newline := data.find(b"\n", position)) >= 0:
        line = data[position:newline]
        position = newline + 1
        # empty lines count, too, because there may be as many of them as bytes
        values += 1 + records.count_marks(line)
        if line.strip():
            items.append(parse_item(attempt.id, start + position, line))
    return items, start + position, position > 0


def _look_at_rest(attempt: AttemptFolder, start: int) -> None:
    """Check the bytes after the last item. Raises `HostileFileError` if the file is shorter than before."""
    path = attempt.folder / files.ITEMS
    if torn := files.read_part(path, start, BATCH_BYTES):
        log.warning("torn_item", attempt=str(attempt.id), begin=torn[:200].decode("utf-8", "replace"))
    elif (size := files.file_size(path)) < start:
        raise files.HostileFileError(errno.EIO, f"{files.ITEMS} was cut to {size} bytes when {start} were read")


def _long_line(attempt: AttemptFolder, start: int) -> tuple[list[Item], int, bool]:
    """The item of the long line at `start` if its end was found, the position after it, and whether there may be
    more. A line beyond `MAX_ITEM` is only measured, a piece at a time. Raises `HostileFileError` for a line without
    an end.
    """
    path = attempt.folder / files.ITEMS
    data = files.read_part(path, start, MAX_ITEM + 1)
    if (newline := data.find(b"\n")) >= 0:
        end = start + newline + 1
        return [parse_item(attempt.id, end, data[:newline])], end, True
    head, position = data[:BATCH_BYTES], max(start + len(data), attempt.items_searched)
    for _ in range(SEARCHED_AT_ONCE):
        data = files.read_part(path, position, BATCH_BYTES)
        if (newline := data.find(b"\n")) >= 0:
            end = position + newline + 1
            return [too_large(attempt.id, end, end - 1 - start, head)], end, True
        attempt.items_searched = position = position + len(data)
        if position - start > LONGEST_LINE:
            raise files.HostileFileError(errno.EFBIG, f"{files.ITEMS} has a line of more than {LONGEST_LINE} bytes")
    return [], start, len(data) == BATCH_BYTES


# --- the record of requests, in chunks as the log

#: The longest line, in bytes, that is shipped. The lines that the platform writes are far shorter.
LONGEST_RECORD = 64 << 10


def ship_requests(store: RequestStore, attempt: AttemptFolder, limit: int) -> bool:
    """Ship some chunks of the first `limit` bytes. Returns whether there might be more.

    As in the log, only the bytes decide where a chunk ends: at the first line that ends `CHUNK` or more bytes after
    the chunk's start. Raises `OSError`, PyMongo's errors, and `HostileFileError` for a line that is too long to be
    written by the platform.
    """
    for _ in range(CHUNKS_PER_TURN):
        start = attempt.checkpoint.requests
        size = min(CHUNK + LONGEST_RECORD, limit - start)
        data = files.read_part(attempt.folder / files.REQUESTS, start, size)
        full = data.find(b"\n", CHUNK - 1) + 1
        end = start + (full or data.rfind(b"\n") + 1)
        if end > attempt.requests_stored:
            store.append(RequestChunk(*attempt.id, start, end, data[: end - start]))
            attempt.requests_stored = end
        if not full:
            if len(data) == CHUNK + LONGEST_RECORD:
                raise files.HostileFileError(errno.EFBIG, f"{files.REQUESTS} has a line that is too long")
            return False
        attempt.checkpoint.requests = end
    return True


# --- an exit report that MongoDB can store: no content of a spider's report may prevent the end of its job.
#
# A spider can put any value into its stats, and can even write the exit report itself.

#: Limits on the parts of a spider's report, in numbers and in bytes, because they are stored in the job's document.
MAX_STATS = 200
MAX_FIELDS = 50
MAX_STATS_BYTES = 16 << 10
MAX_NAME = 200
MAX_TEXT = 2000
MAX_ERRORS = 10
MAX_ERRORS_BYTES = 16 << 10
MAX_LOG_TAIL = 8000
#: Stats that the platform reads, and that are therefore kept before all others.
_FIRST_STATS = ("discoverybot/", "item_dropped_count", "robotstxt/", "finish_reason", "downloader/")
#: The stat that says how many stats were left out.
LEFT_OUT = "discoverybot/stats_left_out"


def read_facts(attempt: AttemptFolder) -> tuple[records.ExitReport, RunErrors | None]:
    """The content of `exit.json`, or a report that the file is unreadable; and the error groups, which are not part
    of the returned report. Raises `OSError`.

    A node writes only complete reports. So the spider has written an unreadable one, and the node is not to blame.
    """
    facts = records.read_record(attempt.folder / files.EXIT, records.ExitReport)
    if facts is not None:
        return _storable_facts(facts), errors_of(facts.report) if facts.report else None
    log.warning("exit_report_unreadable", attempt=str(attempt.id))
    written = from_timestamp((attempt.folder / files.EXIT).lstat().st_mtime)
    why = f"{files.EXIT} is not what a node writes"
    return records.ExitReport(attempt=attempt.id.attempt, ended_at=written, exit_code=1, log_tail=why), None


def _storable_facts(facts: records.ExitReport) -> records.ExitReport:
    return facts.model_copy(
        update={
            "stopped_by": _cut(facts.stopped_by),
            "refused": _cut(facts.refused),
            "items_lost": _cut(facts.items_lost),
            "log_tail": facts.log_tail and _last(facts.log_tail, MAX_LOG_TAIL),
            "report": _account(facts.report) if facts.report else None,
        }
    )


def _account(report: records.SpiderReport) -> records.SpiderReport:
    return report.model_copy(
        update={
            "finish_reason": _first(report.finish_reason, MAX_TEXT),
            "errors": _errors(report.errors[:MAX_ERRORS]),
            "filled": _filled(report.filled),
            "error_groups": None,
            "errors_left_out": None,
            "stats": _stats(report.stats),
        }
    )


def _filled(filled: dict[str, int] | None) -> dict[str, int] | None:
    return filled and {_name(key): count for key, count in list(filled.items())[:MAX_FIELDS]}


def _errors(errors: list[dict[str, str]]) -> list[dict[str, str]]:
    """The first errors, each one complete, up to a total size. The log has all errors."""
    kept: list[dict[str, str]] = []
    size = 0
    for error in errors:
        shown: dict[str, str] = {name: _first(error[name], MAX_TEXT) for name in files.ERROR_FACTS if name in error}
        size += sum(len(text.encode()) for text in shown.values())
        if size > MAX_ERRORS_BYTES:
            break
        kept.append(shown)
    return kept


def _cut(text: str | None) -> str | None:
    return text and _first(text, MAX_TEXT)


def _first(text: str, size: int) -> str:
    """As many whole characters from the beginning as fit into `size` bytes of UTF-8."""
    return text[:size].encode()[:size].decode(errors="ignore")


def _last(text: str, size: int) -> str:
    return text[-size:].encode()[-size:].decode(errors="ignore")


def _stats(stats: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    size = 0
    for key, value in sorted(stats.items(), key=lambda stat: not stat[0].startswith(_FIRST_STATS)):
        name, plain = _name(key), _plain(value)
        size += len(name.encode()) + len(str(plain).encode())
        if len(kept) == MAX_STATS or size > MAX_STATS_BYTES:
            kept[LEFT_OUT] = len(stats) - len(kept)
            break
        kept[name] = plain
    return kept


def _name(key: str) -> str:
    name = _first(key, MAX_NAME).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"_{name}" if not name or name.startswith("$") else name


def _plain(value: Any) -> Any:
    """The value as it is stored in the job. Numbers that BSON or JSON cannot store, lists and objects become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if records.fits_int64(value) else str(value)[:MAX_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return (value if isinstance(value, str) else json.dumps(value))[:MAX_TEXT]


@define(eq=False, repr=False, slots=False, kw_only=True)
class MongoSink:
    """Ships everything to MongoDB: first the start of the attempt, and last its end."""

    name = "MongoDB"
    _jobs: JobStore
    _items: ItemStore
    _logs: LogStore
    _progress: ProgressStore
    _requests: RequestStore
    _errors: AttemptErrorStore
    #: At most this many bytes of a record of requests are shipped.
    _requests_limit: int
    _completion: Completion
    _files: FileSink
    _clock: Clock = utc_now

    def ship(self, attempt: AttemptFolder) -> bool:
        """Ship some of the new data; returns whether there may be more. Raises `OSError`, `UnavailableError` and
        PyMongo's errors.
        """
        if attempt.checkpoint.acknowledged:
            return False
        is_told, ended = attempt.start_reported, attempt.has_ended
        self._ship_start(attempt)
        if attempt.start_reported and not (is_told or ended):
            # not more yet: a short crawl will ship everything at once when it ends
            return False
        more = self._ship_files(attempt, ended=ended)
        if not ended:
            self._ship_progress(attempt)
        elif not more and attempt.is_log_stored and not self._files.keeps_waiting(attempt):
            self._end(attempt)
        return more

    def _ship_start(self, attempt: AttemptFolder) -> None:
        if not attempt.start_reported and (moment := started_at(attempt.folder)):
            self._completion.attempt_started(attempt.id, moment)
            attempt.start_reported = True

    def _ship_files(self, attempt: AttemptFolder, *, ended: bool) -> bool:
        """Ship each file separately, so that an unreadable file does not block the others. Its `OSError` is raised at
        the end.
        """
        more, failed = False, None
        ships: dict[str, Callable[[], bool]] = {
            files.LOG: lambda: ship_log(self._logs, attempt),
            files.ITEMS: lambda: ship_items(self._items, attempt, ended=ended),
            files.REQUESTS: lambda: ship_requests(self._requests, attempt, self._requests_limit),
        }
        for name, ship in ships.items():
            try:
                more |= name not in attempt.checkpoint.lost and ship()
                attempt.was_read(name)
            except OSError as error:
                attempt.not_read(name, error)
                failed = error
        if failed is not None:
            raise failed
        return more

    def _end(self, attempt: AttemptFolder) -> None:
        lost, kept = attempt.checkpoint.lost, attempt.checkpoint.files_kept
        written = (kept or records.FilesKept(pending=True)) if attempt.has_files else None
        facts, errors = read_facts(attempt)
        items_lost = lost.get(files.ITEMS) or facts.items_lost
        facts = facts.model_copy(update={"items_lost": items_lost, "log_lost": lost.get(files.LOG), "files": written})
        if facts.report:
            self._note_progress(attempt, facts.report.progress, is_last=True)
        if errors is not None and (errors.groups or errors.left_out):
            # before the exit report, because this ends the job, and then the groups are added up across runs
            self._errors.save(attempt.id, errors)
        if not self._completion.record_exit(attempt.id, facts, attempt.log_end or 0):
            self._remove_orphans(attempt.id.job_id)
        attempt.checkpoint.acknowledged = True

    def _remove_orphans(self, job_id: str) -> None:
        """Remove the shipped data of a job that was deleted while the node was away: no other process would find it.
        Its files are removed by the thread that ships files, because the file store may not answer.
        """
        try:
            self._jobs.get(job_id)
        except JobNotFoundError:
            self._items.delete(job_id)
            self._requests.delete(job_id)
            self._logs.delete(job_id)
            self._progress.delete(job_id)
            self._errors.delete(job_id)

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, UnavailableError) or is_passing(error)

    def _ship_progress(self, attempt: AttemptFolder) -> None:
        watch = attempt.progress_recorded
        if progress := watch.news():
            self._jobs.record_progress(attempt.id.job_id, attempt.id.attempt, progress)
            self._note_progress(attempt, progress)
            watch.told()

    def _note_progress(self, attempt: AttemptFolder, progress: records.Progress, *, is_last: bool = False) -> None:
        """Add `progress` to the series, with the time of our own clock: a spider can write any time
        into its report.
        """
        series = attempt.series = attempt.series or self._progress.get(attempt.id)
        if not series.points and (began := started_at(attempt.folder)):
            series.add(Point(began))
        if series.add(Point.of(self._clock(), progress), is_last=is_last):
            self._progress.save(series)


@define(eq=False, repr=False, slots=False)
class LiveSink:
    """Ships to Redis what clients watch live: the log and the progress."""

    name = "Redis"
    _stream: LogStream

    def ship(self, attempt: AttemptFolder) -> bool:
        """Ship some of the new data. Returns whether there may be more. Raises `redis.RedisError`."""
        more = ship_live_log(self._stream, attempt)
        watch = attempt.progress_published
        if progress := watch.news(ended=attempt.log_end is not None):
            self._stream.publish_progress(attempt.id, progress)
            watch.told()
        return more

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, redis.ConnectionError | redis.TimeoutError)
