"""How the crawl is doing and how it ended: the progress file each second, each item when it is found, the report at
the very end.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sized
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import orjson
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from crawler.closing import Closing
from crawler.report.failures import exception_reason, is_refusal, status_reason
from crawler.setting_names import ATTEMPT_DIR, EXPECT, MAX_ITEMS
from gateway.clock import to_iso, utc_now
from gateway.contract import outbox
from gateway.contract.crawl import Expect, Tally
from gateway.contract.outbox import Progress, SpiderReport
from gateway.crash_points import state_change

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Request, Response
    from twisted.python.failure import Failure


logger = logging.getLogger(__name__)

#: Errors kept in the report; the log has them all.
ERRORS_KEPT = 10
PROGRESS_SECONDS = 1.0
#: Scrapy's own name for this ending, so that it is understood wherever Scrapy's is.
ITEM_LIMIT = "closespider_itemcount"


class Report:
    """Extension that counts, spools items and writes the attempt's progress and report."""

    def __init__(self, crawler: Crawler) -> None:
        folder = crawler.settings.get(ATTEMPT_DIR)
        if not folder:
            raise NotConfigured
        self._crawler = crawler
        self._folder = Path(folder)
        self._spool = ItemSpool(self._folder / outbox.ITEMS)
        self._progress = Progress()
        #: Those whose pages count as completed, while anybody has them.
        self._completed: WeakSet[Request] = WeakSet()
        self._errors: list[dict[str, str]] = []
        #: How many of the completed pages were answered with a 4xx, and the first few of them.
        self._refused = 0
        self._refusals: list[dict[str, str]] = []
        self._finish_reason = "finished"
        #: The disk was in the way; it may have been the last ones, when the spider was closed already.
        self._items_lost = False
        self._stopped_early = False
        self._published = Progress()
        self._published_at = monotonic()
        self._timer: Any = None
        self._max_items = crawler.settings.getint(MAX_ITEMS)
        self._expect: Expect = crawler.settings.get(EXPECT) or Expect()
        #: How many items have each field that is expected.
        self._filled = dict.fromkeys(self._expect.fields, 0)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = cls(crawler)
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

    def requested(self) -> None:
        self._progress.requested_pages += 1

    def completed(self, request: Request, response: Response) -> None:
        self._completed.add(request)
        self._progress.completed_pages += 1
        if is_refusal(response.status):
            self._refused += 1
            if len(self._refusals) < ERRORS_KEPT:
                self._refusals.append(_refusal(response))
        self._stop_if_hopeless()

    def failed(self, url: str, reason: str) -> None:
        self._progress.errors_count += 1
        if len(self._errors) < ERRORS_KEPT:
            self._errors.append({"url": url, "reason": reason})
        self._stop_if_hopeless()

    def spider_opened(self) -> None:
        self._timer = create_looping_call(self._publish)
        self._timer.start(PROGRESS_SECONDS)

    @property
    def items_count(self) -> int:
        return self._progress.items_count

    def has_all_items(self) -> bool:
        """Whether there are as many items as there may be."""
        return 0 < self._max_items <= self._progress.items_count

    def item_scraped(self, item: object, response: Response | None) -> None:
        if self.has_all_items():
            return
        try:
            self._spool.append(item)
        except (OSError, TypeError) as error:
            self._item_lost(_url(response), error)
        else:
            self._progress.items_count += 1
            self._count_fields(item)
            if self.has_all_items():
                self._close(ITEM_LIMIT)
            self._stop_if_hopeless()

    def item_error(self, response: Response | None, failure: Failure) -> None:
        self.failed(_url(response), f"in an item pipeline: {exception_reason(failure.value)}")

    def spider_error(self, response: Response | None, failure: Failure) -> None:
        request = getattr(response, "request", None)
        if request is not None and request in self._completed:
            # fetched, and of no use: it counts once, as what failed
            self._completed.discard(request)
            self._progress.completed_pages -= 1
            self._forget_refusal(response)
        self.failed(_url(response), f"in the spider: {exception_reason(failure.value)}")

    def spider_closed(self, reason: str) -> None:
        self._finish_reason = outbox.ITEMS_LOST if self._items_lost else reason
        self._count_refusals()
        if self._timer and self._timer.running:
            self._timer.stop()
        self._write_report()

    def engine_stopped(self) -> None:
        # again: only now do the stats hold what other extensions wrote when the spider closed
        self._write_report()
        self._spool.close()

    def _count_fields(self, item: Any) -> None:
        if self._filled:
            fields = ItemAdapter(item)
            for name in self._filled:
                self._filled[name] += _is_filled(fields.get(name))

    def _stop_if_hopeless(self) -> None:
        """End the crawl early if it has broken what is expected of it, and is to end then."""
        if self._stopped_early or self._expect.stop_early_after is None:
            return
        if breaches := self._expect.early_breaches(self._tally()):
            self._stopped_early = True
            logger.warning("Stopped early: %s", "; ".join(breaches))
            self._close(outbox.EXPECTATION_BROKEN)

    def _tally(self) -> Tally:
        progress = self._progress
        return Tally(progress.completed_pages, progress.errors_count, progress.items_count, self._filled)

    def _forget_refusal(self, response: Any) -> None:
        if is_refusal(response.status):
            self._refused -= 1
            with suppress(ValueError):
                self._refusals.remove(_refusal(response))

    def _count_refusals(self) -> None:
        """A 404 on the way is a finding. Where no page at all was answered otherwise, not one start URL could be
        had: then each is a failure.
        """
        if self._refused and self._refused == self._progress.completed_pages:
            self._progress.completed_pages = 0
            self._progress.errors_count += self._refused
            self._errors = (self._errors + self._refusals)[:ERRORS_KEPT]
            self._refused = 0

    def _item_lost(self, url: str, error: Exception) -> None:
        self.failed(url, f"the item could not be written: {error}")
        logger.error("The item of %s could not be written: %s", url or "start()", error)
        if isinstance(error, OSError):
            # all else that it found would be lost as well
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
        self._published, self._published_at = self._progress.model_copy(), now
        if changed:
            self._write_progress()

    def _stamped(self) -> Progress:
        return self._progress.model_copy(update={"at": utc_now()})

    @state_change("spider.progress")
    def _write_progress(self) -> None:
        self._write(outbox.PROGRESS, self._stamped().model_dump_json())

    @state_change("spider.report")
    def _write_report(self) -> None:
        report = SpiderReport(
            finish_reason=outbox.whole_text(self._finish_reason),
            progress=self._stamped(),
            # half surrogate pairs can be in a URL that a page made up
            errors=outbox.whole_text(self._errors),
            filled=self._filled or None,
            stats={
                outbox.whole_text(str(key)): _plain(value) for key, value in self._crawler.stats.get_stats().items()
            },
            ended_at=utc_now(),
        )
        self._write(outbox.PROGRESS, report.progress.model_dump_json())
        text = report.model_dump_json()
        if len(text.encode()) > outbox.MAX_RECORD:
            # nobody would read it
            stats = {"discoverybot/stats_left_out": len(report.stats)}
            text = report.model_copy(update={"stats": stats}).model_dump_json()
        self._write(outbox.REPORT, text)

    def _write(self, name: str, text: str) -> None:
        try:
            outbox.write_atomically(self._folder / name, text.encode())
        except OSError as error:
            logger.error("%s could not be written: %s", name, error)  # noqa: TRY400 - a full disk needs no traceback


def _is_filled(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (isinstance(value, Sized) and not len(value))


def _refusal(response: Response) -> dict[str, str]:
    return {"url": response.url, "reason": status_reason(response.status)}


def _url(response: Response | None) -> str:
    return getattr(response, "url", "")


def _plain(value: Any) -> Any:
    """What JSON can say; stats may hold anything a spider puts there."""
    if isinstance(value, datetime):
        return to_iso(value)
    return outbox.whole_text(value if isinstance(value, str | int | float | bool | None) else str(value))


# --- the item spool: one JSON object a line, in the file as soon as it is scraped

#: Bytes set aside while the disk has room, so that a crawl that fills it can still say so in its report.
RESERVE_BYTES = 64 << 10
RESERVE = ".reserve"


class ItemSpool:
    """Appends to one file that nobody else writes to. Errors of the disk are raised as `OSError`."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._end = os.fstat(self._file).st_size
        self._reserve = path.with_name(RESERVE)
        with suppress(OSError):
            self._reserve.write_bytes(b"\0" * RESERVE_BYTES)

    def append(self, item: object) -> None:
        line = encode(item) + b"\n"
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            # half a line would swallow the next one; what is there is whole
            os.ftruncate(self._file, self._end)
            self._reserve.unlink(missing_ok=True)
            raise
        self._end += len(line)

    def close(self) -> None:
        os.close(self._file)
        self._reserve.unlink(missing_ok=True)


def encode(item: object) -> bytes:
    """Compact JSON on one line. Raises `TypeError` for what is no item in Scrapy's sense."""
    # orjson knows dicts, and asks `_jsonable` for what else is in them, which is much quicker than a copy
    data = item if type(item) is dict else ItemAdapter(item).asdict()
    try:
        return orjson.dumps(data, default=_jsonable, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # integers beyond 64 bits and lone surrogates are JSON, but not orjson's
        return json.dumps(data, default=_jsonable, separators=(",", ":")).encode()


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return list(value)
    return ItemAdapter(value).asdict() if ItemAdapter.is_item(value) else str(value)
