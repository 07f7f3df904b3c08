"""Writes how a crawl goes and how it ended: the progress file each second, each item when it is found, and the report
at the end.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sized
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import CloseSpider, NotConfigured
from scrapy.utils.httpobj import urlparse_cached

from crawler import extras
from crawler.closing import Closing, was_told_to_stop
from crawler.orders import Expected
from crawler.report.error_groups import ErrorGroups
from crawler.report.failures import (
    exception_reason,
    failure_facts,
    is_permanent,
    is_refusal,
    missing_variable,
    raised_facts,
    status_facts,
    text_of,
)
from crawler.scrapy_versions import create_looping_call, middleware
from crawler.setting_names import ATTEMPT_DIR, EXPECT, MAX_ITEMS
from gateway.clock import to_iso, utc_now
from gateway.contract import outbox
from gateway.contract.expectations import Tally, early_breaches
from gateway.contract.reasons import Reason
from gateway.crash_points import state_change

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Request, Response
    from twisted.python.failure import Failure


logger = logging.getLogger(__name__)

#: Maximum number of errors in the report; the log has them all.
ERRORS_KEPT = 10
#: Maximum number of characters of the reason why an item could not be written.
LONGEST_REASON = 500
#: Maximum number of characters of each text in the report: projects raise errors with a whole page in them.
LONGEST_TEXT = 2000
PROGRESS_SECONDS = 1.0
#: Scrapy's own finish reason for an item limit, which other tools know.
ITEM_LIMIT = "closespider_itemcount"


def report_breakdown(crawler: Crawler, error: BaseException) -> None:
    """Write the report of a crawl that ended with this error, even before its extensions were built."""
    try:
        report = crawler.get_extension(ProgressReport)
    except RuntimeError:
        report = None
    (report or ProgressReport(crawler)).broke_down(error)


class ProgressReport:
    """Extension that counts pages, items and errors, and writes the attempt's items, progress and report."""

    def __init__(self, crawler: Crawler) -> None:
        folder = crawler.settings.get(ATTEMPT_DIR)
        if not folder:
            raise NotConfigured
        self._crawler = crawler
        self._folder = Path(folder)
        self._spool = ItemSpool(self._folder / outbox.ITEMS)
        #: The errors, grouped by cause.
        self.groups = ErrorGroups(self._folder)
        self._progress = _Counts()
        #: Number of items of each request so far; the crawler is the key for those of `start()`.
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        #: What each request that is not done has added to `_progress`, in the order of `_COUNTERS`.
        self._of: WeakKeyDictionary[Request, list[int]] = WeakKeyDictionary()
        #: The counts of requests that are done. They remain if the process dies now.
        self.committed = _Counts()
        self._give: Callable[[bytes], bool] = self._give_at_once
        self._errors: list[dict[str, str]] = []
        #: The first few pages with a status of 4xx.
        self._refusals: list[dict[str, str]] = []
        self._start_error: BaseException | None = None
        self._finish_reason = "finished"
        #: Called once the last report is written.
        self._then: Callable[[], None] | None = None
        #: Whether items could not be written because of the disk. This can happen even after the spider was closed.
        self._items_lost = False
        self._stopped_early = False
        self._published = _Counts()
        self._published_at = monotonic()
        self._timer: Any = None
        self._max_items = crawler.settings.getint(MAX_ITEMS)
        self._expect: Expected = crawler.settings.get(EXPECT) or Expected()
        #: How many items have each field that is expected.
        self._filled = dict.fromkeys(self._expect.fields, 0)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = cls(crawler)
        self.groups.listen()
        for handler, signal in (
            (self.spider_opened, signals.spider_opened),
            (self.item_scraped, signals.item_scraped),
            (self.item_error, signals.item_error),
            (self.spider_error, signals.spider_error),
            (self.spider_closed, signals.spider_closed),
            (self.engine_stopped, signals.engine_stopped),
        ):
            crawler.signals.connect(handler, signal)
        return self

    def asked(self, request: Request) -> None:
        """Note the host of a request that is sent, whatever its outcome."""
        hosts, host = self._progress.hosts, (urlparse_cached(request).hostname or "").rstrip(".")
        if host and host not in hosts and len(hosts) < outbox.MOST_HOSTS:
            self._progress.hosts = self.committed.hosts = (*hosts, host)

    def requested(self, request: Request) -> None:
        self._count(request, _REQUESTED, 1)

    def completed(self, request: Request, response: Response) -> None:
        self._count(request, _COMPLETED, 1)
        if is_refusal(response.status):
            self._count(request, _REFUSED, 1)
            if len(self._refusals) < ERRORS_KEPT:
                self._refusals.append(_refusal(response))
        self._stop_if_due()

    def answered(self, request: Request, status: int) -> None:
        """Count the status of a page, whether the page then counts as completed or as failed."""
        if (what := _ANSWERED.get(status // 100)) is not None:
            self._count(request, what, 1)

    def failed(self, url: str, facts: dict[str, str], request: Request | None = None) -> None:
        """Count a failure. `facts` are those of `failure_facts`."""
        self._count(request, _ERRORS, 1)
        if len(self._errors) < ERRORS_KEPT:
            self._errors.append({"url": url, **facts})
        self._stop_if_due()

    def _count(self, request: Request | None, what: int, change: int) -> None:
        _add(self._progress, what, change)
        if request is None:
            _add(self.committed, what, change)
        else:
            self._of.setdefault(request, [0] * len(_COUNTERS))[what] += change

    def commit(self, request: Request) -> None:
        """Commit the counts of a request, because it is done."""
        for what, change in enumerate(self._of.pop(request, ())):
            _add(self.committed, what, change)

    def facts(self, new_items: int) -> dict[str, Any]:
        """The committed counts for `restore` in a later attempt, which will have `new_items` more items."""
        progress = self.committed
        counts = [getattr(progress, name) for name in _COUNTERS]
        items = progress.items_count + new_items
        return {"counts": counts, "items": items}

    def samples(self) -> dict[str, Any]:
        """The first errors, refusals and hosts so far, also for `restore`. They seldom change."""
        errors = [error for error in self._errors if "kind" not in error]
        return {"errors": errors, "refusals": list(self._refusals), "hosts": list(self.committed.hosts)}

    def restore(self, facts: dict[str, Any], samples: dict[str, Any]) -> None:
        if facts:
            for what, count in enumerate(facts["counts"]):
                _add(self.committed, what, count)
            self.committed.items_count = facts["items"]
            self._errors, self._refusals = list(samples.get("errors", ())), list(samples.get("refusals", ()))
            self.committed.hosts = tuple(samples.get("hosts", ()))
            self._count_fields_before()
            self._progress, self._published = copy(self.committed), copy(self.committed)

    def spider_opened(self) -> None:
        self._timer = create_looping_call(self._publish)
        self._timer.start(PROGRESS_SECONDS)

    @property
    def items_count(self) -> int:
        return self._progress.items_count

    def has_all_items(self) -> bool:
        """Whether the limit of items is reached."""
        return 0 < self._max_items <= self._progress.items_count

    def item_scraped(self, item: object, response: Response | None) -> None:
        if self.has_all_items():
            self._stop_if_due()
            return
        request = getattr(response, "request", None)
        number = self._numbers[request or self._crawler] = self._numbers.get(request or self._crawler, 0) + 1
        try:
            line, filled = encode(item) + b"\n", self._filled_in(item)
        except Exception as error:  # noqa: BLE001 - a project's objects may raise anything
            self._item_refused(number, response, request, error)
            return
        if self._give(line):
            self._progress.items_count += 1
            for name in filled:
                self._filled[name] += 1
        self._stop_if_due()

    def keep_items_with(self, give: Callable[[bytes], bool]) -> None:
        """Have `give` decide when an item's line is written (by `write_items`). It returns whether the
        item is new.
        """
        self._spool.find_end()
        self._give = give

    def note_frontier(self, *, is_kept: bool) -> None:
        """Note whether another attempt could continue this one."""
        self._progress.can_go_on = is_kept

    def once_written(self, then: Callable[[], None]) -> None:
        """Have `then` called once the crawl's last report is written; never if it cannot be written."""
        self._then = then

    def _give_at_once(self, line: bytes) -> bool:
        self.write_items([line])
        return True

    @property
    def items_end(self) -> int:
        """Length of the file of items in bytes."""
        return self._spool.end

    def write_items(self, lines: Sequence[bytes]) -> bool:
        """Write items. If that fails, close the crawl and return false."""
        try:
            self._spool.append(b"".join(lines))
        except OSError as error:
            self._progress.items_count -= len(lines)
            self._items_not_written(error)
            return False
        self.committed.items_count += len(lines)
        return True

    def item_error(self, response: Response | None, failure: Failure) -> None:
        facts = raised_facts(failure.value, Reason.PIPELINE_FAILED)
        facts["reason"] = f"in an item pipeline: {facts['reason']}"
        self.groups.is_of(_url(response), failure)
        self._item_failed(response, facts, getattr(response, "request", None))

    def _item_failed(self, response: Response | None, facts: dict[str, str], request: Request | None) -> None:
        kind: outbox.ErrorKind = "item"
        self.failed(_url(response), {**facts, "kind": kind}, request)

    def start_error(self, error: BaseException | None) -> None:
        """Note what `start()` has raised."""
        if error is None or error is self._start_error:
            return
        self._start_error = error
        # after the first request, a page may have caused the error, so it may not be permanent
        at_once = not self._progress.requested_pages
        facts = _facts(error, "start", Reason.SPIDER_FAILED, may_last=at_once)
        # not committed, because the next attempt calls `start()` again
        _add(self._progress, _ERRORS, 1)
        if len(self._errors) == ERRORS_KEPT:
            self._errors.pop()
        self._errors.append(facts)
        self._stop_if_due()

    def broke_down(self, error: BaseException) -> None:
        """Write the report of a crawl that broke down with this error. It replaces an earlier report."""
        self._finish_reason = outbox.BROKE_DOWN
        self.groups.broke_down(error)
        self._count(None, _ERRORS, 1)
        facts = _facts(error, "breakdown", Reason.BROKE_DOWN, may_last=True)
        self._errors = [facts, *self._errors][:ERRORS_KEPT]
        self._write_report()

    def spider_error(self, response: Response | None, failure: Failure) -> None:
        if response is None:
            self.start_error(failure.value)
            return
        request = getattr(response, "request", None)
        if request is not None and self._of.get(request, _NOTHING)[_COMPLETED]:
            # the page was fetched but its callback failed: it counts only once, as failed
            self._count(request, _COMPLETED, -1)
            self._forget_refusal(request, response)
        facts = raised_facts(failure.value, Reason.SPIDER_FAILED)
        self.failed(_url(response), {**facts, "reason": f"in the spider: {facts['reason']}"}, request)

    def spider_closed(self, reason: str) -> None:
        if reason == outbox.INTERRUPTED and not was_told_to_stop():
            # not interrupted by the node: the crawl has ended itself, and each attempt would do the same
            reason = outbox.STOPPED_ITSELF
        self._finish_reason = outbox.ITEMS_LOST if self._items_lost else reason
        self._count_refusals()
        if self._timer and self._timer.running:
            self._timer.stop()
        self._write_report()

    def engine_stopped(self) -> None:
        # once more: other extensions write their stats when the spider closes
        is_written = self._write_report()
        self._spool.close()
        if is_written and self._then is not None:
            self._then()

    def _filled_in(self, item: Any) -> list[str]:
        """The expected fields that the item has with a value."""
        fields = ItemAdapter(item) if self._filled else {}
        return [name for name in self._filled if _is_filled(fields.get(name))]

    def _count_fields_before(self) -> None:
        """Count the expected fields of the items that earlier attempts have found."""
        if self._filled:
            with os.fdopen(outbox.open_file(self._folder / outbox.ITEMS), "rb") as lines:
                for line in lines:
                    # not every item that was written can be read again, for example a number of thousands of digits
                    with suppress(ValueError, RecursionError):
                        for name in self._filled_in(json.loads(line)):
                            self._filled[name] += 1

    def _stop_if_due(self) -> None:
        """End the crawl if it has all its items: an earlier attempt may have been killed after the last one. Also end
        it if the request wants that and the crawl cannot meet the expectations any more.
        """
        if self.has_all_items():
            self._close(ITEM_LIMIT)
        if self._stopped_early or self._expect.stop_early_after is None:
            return
        if broken := early_breaches(self._expect, self._tally()):
            self._stopped_early = True
            logger.warning("Stopped early: %s", "; ".join(broken))
            self._close(outbox.EXPECTATION_BROKEN)

    def _tally(self) -> Tally:
        progress = self._progress
        return Tally(progress.completed_pages, progress.errors_count, progress.items_count, self._filled)

    def _forget_refusal(self, request: Request, response: Any) -> None:
        if is_refusal(response.status):
            self._count(request, _REFUSED, -1)
            with suppress(ValueError):
                self._refusals.remove(_refusal(response))

    def _count_refusals(self) -> None:
        """Count refused pages as failures if all pages were refused, because then no start URL could be fetched.
        Otherwise a 404 is a result.
        """
        progress = self._progress
        if progress.refused_pages and progress.refused_pages == progress.completed_pages:
            progress.completed_pages = 0
            progress.errors_count += progress.refused_pages
            self._errors = (self._errors + self._refusals)[:ERRORS_KEPT]
            progress.refused_pages = 0

    def _item_refused(
        self, number: int, response: Response | None, request: Request | None, error: Exception
    ) -> None:
        """Report an item that cannot be written as JSON. `number` counts the items of its request, in the order in
        which they came out of the pipelines.
        """
        spider = getattr(self._crawler.spider, "name", "")
        reason = exception_reason(error)[:LONGEST_REASON]
        what = f"item {number} of {spider}.{_giver(response, request)} could not be written: {reason}"
        self._item_failed(response, failure_facts(what, Reason.ITEM_REFUSED), request)
        logger.error("%s: %s", _url(response) or "start()", what)

    def _items_not_written(self, error: OSError) -> None:
        self.failed("", failure_facts(f"the item could not be written: {error}", Reason.DISK_FULL))
        logger.error("Items could not be written: %s", error)
        # all further items would be lost as well
        self._items_lost = True
        self._close(outbox.ITEMS_LOST)

    def _close(self, reason: str) -> None:
        closing = self._crawler.get_extension(Closing)
        if closing:
            closing.close(reason)

    def _publish(self) -> None:
        now = monotonic()
        pages = self._progress.completed_pages - self._published.completed_pages
        self._progress.pages_per_s = round(max(0, pages) / max(now - self._published_at, 0.001), 1)
        changed = self._progress != self._published
        self._published, self._published_at = copy(self._progress), now
        if changed:
            self._write_progress()

    @state_change("spider.progress")
    def _write_progress(self) -> None:
        self._write(outbox.PROGRESS, extras.dumps(self._progress.shown()))

    @state_change("spider.report")
    def _write_report(self) -> bool:
        progress, stats = self._progress.shown(), _stats(self._crawler)
        report = {
            "finish_reason": outbox.whole_text(self._finish_reason[:LONGEST_TEXT]),
            "progress": progress,
            # a page can make up a URL with half a surrogate pair
            "errors": [outbox.whole_text(_shortened(error)) for error in self._errors],
            "filled": self._filled or None,
            "error_groups": self.groups.found(),
            "errors_left_out": self.groups.left_out,
            "stats": {outbox.whole_text(str(key)): _plain(value) for key, value in stats.items()},
            "ended_at": to_iso(utc_now()),
        }
        self._write(outbox.PROGRESS, extras.dumps(progress))
        data = extras.dumps(report)
        if len(data) > outbox.MAX_RECORD:
            # nobody reads a larger report
            data = extras.dumps({**report, "stats": {outbox.STATS_LEFT_OUT: len(stats)}})
        return self._write(outbox.REPORT, data)

    def _write(self, name: str, data: bytes) -> bool:
        try:
            outbox.write_atomically(outbox.state_dir(self._folder) / name, data)
        except OSError as error:
            logger.error("%s could not be written: %s", name, error)  # noqa: TRY400 - a full disk needs no traceback
            return False
        return True


@middleware
class StartErrors:
    """Spider middleware nearest to the engine: reports what `start()` raises. Older Scrapys only log it."""

    def __init__(self, report: ProgressReport) -> None:
        self._report = report

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        report = crawler.get_extension(ProgressReport)
        if report is None:
            raise NotConfigured
        return cls(report)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        with self._told():
            async for one in start:
                yield one

    def process_start_requests(self, start_requests: Iterable[Any], spider: Spider) -> Iterator[Any]:  # noqa: ARG002 - Scrapy's signature before 2.13
        with self._told():
            yield from start_requests

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except CloseSpider:
            raise
        except Exception as error:
            self._report.start_error(error)
            raise


@dataclass
class _Counts:
    """The counts of `progress.json` (`Progress` of the contract), and others that the report needs."""

    requested_pages: int = 0
    completed_pages: int = 0
    items_count: int = 0
    errors_count: int = 0
    pages_per_s: float = 0.0
    can_go_on: bool = False
    #: How many completed pages had a status of 4xx.
    refused_pages: int = 0
    #: How many pages had a status of each class.
    answered_2xx: int = 0
    answered_3xx: int = 0
    answered_4xx: int = 0
    answered_5xx: int = 0
    #: The first hosts that were asked.
    hosts: tuple[str, ...] = ()

    def shown(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _SHOWN}, "at": to_iso(utc_now())}


_CLASSES = ("answered_2xx", "answered_3xx", "answered_4xx", "answered_5xx")
_SHOWN = (
    *("requested_pages", "completed_pages", "items_count", "errors_count", *_CLASSES),
    *("pages_per_s", "can_go_on", "hosts"),
)
# frontier files have the counters in this order, so new ones must come last
_COUNTERS = ("requested_pages", "completed_pages", "errors_count", "refused_pages", *_CLASSES)
_REQUESTED, _COMPLETED, _ERRORS, _REFUSED = range(4)
_ANSWERED = {2: 4, 3: 5, 4: 6, 5: 7}
_NOTHING = (0,) * len(_COUNTERS)


def _add(progress: _Counts, what: int, change: int) -> None:
    name = _COUNTERS[what]
    setattr(progress, name, getattr(progress, name) + change)


def _is_filled(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (isinstance(value, Sized) and not len(value))


def _refusal(response: Response) -> dict[str, str]:
    return {"url": response.url, **status_facts(response.status)}


def _shortened(error: dict[str, str]) -> dict[str, str]:
    return {name: text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…" for name, text in error.items()}


def _url(response: Response | None) -> str:
    # for items of an errback, `response` is a failure
    return getattr(response, "url", "") or getattr(getattr(response, "request", None), "url", "")


def _facts(error: BaseException, kind: outbox.ErrorKind, where: Reason, *, may_last: bool) -> dict[str, str]:
    """The `ERROR_FACTS` of an error that belongs to no request."""
    facts = {"url": "", **raised_facts(error, where), "kind": kind}
    if may_last and is_permanent(error):
        facts["permanent"] = "yes"
    if variable := missing_variable(error):
        facts["variable"] = variable
    return facts


def _stats(crawler: Crawler) -> dict[str, Any]:
    """The crawler's stats; empty for a crawler that was never set up."""
    try:
        stats = crawler.stats
    except RuntimeError:
        return {}
    return stats.get_stats() if stats else {}


def _giver(response: Any, request: Request | None) -> str:
    """The name of the method that gave the item."""
    if request is None:
        return "start"
    method = request.callback if hasattr(response, "url") else request.errback
    return getattr(method, "__name__", "parse")


def _plain(value: Any) -> Any:
    """A stat as a JSON value. A spider can put any object into the stats."""
    if isinstance(value, datetime):
        return to_iso(value)
    return outbox.whole_text(value if isinstance(value, str | int | float | bool | None) else text_of(value))


# --- spools: files of JSON objects, one per line, each written at once

#: Bytes that are reserved while the disk has room, so that a crawl that fills the disk can still write its report.
RESERVE_BYTES = 64 << 10
RESERVE = ".reserve"


class Spool:
    """Appends to a file that nobody else writes. Errors of the disk are raised as `OSError`."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.find_end()

    def find_end(self) -> None:
        #: Length of the file in bytes.
        self.end = os.fstat(self._file).st_size

    def append(self, lines: bytes) -> None:
        try:
            outbox.write_all(self._file, lines)
        except OSError:
            # half a line is removed: the next line would be appended to it
            os.ftruncate(self._file, self.end)
            raise
        self.end += len(lines)

    def close(self) -> None:
        os.close(self._file)


class ItemSpool(Spool):
    """A spool that releases its reserve of disk space once the disk is full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._reserve = outbox.state_dir(path.parent) / RESERVE
        with suppress(OSError):
            self._reserve.write_bytes(b"\0" * RESERVE_BYTES)

    def append(self, lines: bytes) -> None:
        try:
            super().append(lines)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        super().close()
        self._reserve.unlink(missing_ok=True)


def encode(item: object) -> bytes:
    """Compact JSON on one line. Raises `TypeError` if `item` is not an item for Scrapy, and whatever `extras.dumps`
    and the item's own methods raise.
    """
    # a dict needs no copy: `_jsonable` converts what it contains
    return extras.dumps(item if type(item) is dict else ItemAdapter(item).asdict(), _jsonable)


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return list(value)
    return ItemAdapter(value).asdict() if ItemAdapter.is_item(value) else str(value)
