"""Observes each request: how it ended after all middlewares, and that the crawl is alive."""

from __future__ import annotations

import logging
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar

from scrapy import signals
from scrapy.core.downloader import Downloader
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http import Request, Response
from twisted.python.failure import Failure

from crawler.pace.pacing import Pacing
from crawler.report.crawl_limits import is_page
from crawler.report.error_groups import COUNTED
from crawler.report.failures import (
    download_code,
    exception_reason,
    failure_facts,
    is_error,
    is_error_status,
    is_refusal,
    status_facts,
)
from crawler.report.progress import ProgressReport
from crawler.report.request_record import RequestRecord
from crawler.scrapy_versions import create_looping_call, for_spider
from crawler.setting_names import ATTEMPT_DIR, STALL_SECONDS
from gateway.contract.outbox import ACTIVE, state_dir
from gateway.crash_points import state_change

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.core.downloader import Slot
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred


logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT", bound=Response | Request | Failure)


class CountingDownloader(Downloader):
    """Scrapy's downloader, which also counts in the report how each page ended."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._report = crawler.get_extension(ProgressReport)
        self._activity = crawler.get_extension(Activity)
        self._record = crawler.get_extension(RequestRecord)
        #: When each request that is under way was sent (monotonic).
        self._sent: dict[Request, float] = {}

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:
        outcome = super().fetch(request, *for_spider(spider))
        if self._activity:
            self._activity.note()
            outcome.addBoth(self._note, self._activity)
        if self._report:
            self._report.asked(request)
            count = self._count if is_page(request) else self._pass_over
            outcome.addBoth(count, request, self._report)
        if self._record:
            outcome.addBoth(self._note_end, request, self._record)
        return outcome

    def _download(self, slot: Slot, request: Request, *spider: Spider) -> Any:
        """Note the time when the request gets its turn: the site is not responsible for the wait before."""
        if self._record:
            self._sent[request] = monotonic()
        return super()._download(slot, request, *spider)

    def _note_end(self, result: ResultT, request: Request, record: RequestRecord) -> ResultT:
        record.note(request, result, self._sent.pop(request, None))
        return result

    def _note(self, result: ResultT, activity: Activity) -> ResultT:
        activity.note()
        return result

    def _pass_over(self, result: ResultT, request: Request, report: ProgressReport) -> ResultT:
        """Do not group an error of a request that is not for a page, such as robots.txt: the failed pages
        of the same site are grouped.
        """
        report.groups.pass_over(request, result.value if isinstance(result, Failure) else None)
        return result

    def _count(self, result: ResultT, request: Request, report: ProgressReport) -> ResultT:
        if isinstance(result, Response):
            report.answered(request, result.status)
            if is_error_status(result.status) or is_refusal(result.status):
                report.groups.answered(request, result)
            if is_error_status(result.status):
                report.failed(result.url, status_facts(result.status), request)
            else:
                report.completed(request, result)
        elif isinstance(result, Failure) and is_error(result.value):
            reason = exception_reason(result.value, request)
            report.groups.not_answered(request, result.value)
            report.failed(request.url, failure_facts(reason, download_code(result.value, request)), request)
            if isinstance(result.value, IgnoreRequest):
                # Scrapy does not log these
                logger.error("Gave up %s: %s", request.url, reason, extra={COUNTED: True})
        return result


# --- signs of life for the node: the log of a busy crawl can be silent

#: Maximum number of seconds between two signs, and minimum number of signs within the time limit of a stall.
EVERY = 1.0
SIGNS = 10


class Activity:
    """Extension that touches the attempt's file `active` while requests are sent, answered or wait for their turn,
    and while items are found. A crawl that is blocked does not touch it.
    """

    def __init__(self, crawler: Crawler, folder: Path, every: float) -> None:
        self._crawler = crawler
        self._path = state_dir(folder) / ACTIVE
        self._every = every
        self._happened = False
        self._items = 0
        self._timer: Any = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        folder, limit = crawler.settings.get(ATTEMPT_DIR), crawler.settings.getfloat(STALL_SECONDS)
        if not (folder and limit):
            raise NotConfigured
        self = cls(crawler, Path(folder), min(EVERY, limit / SIGNS))
        crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawler.signals.connect(self.note, signals.item_dropped)
        crawler.signals.connect(self.spider_closed, signals.spider_closed)
        return self

    def note(self) -> None:
        """Note that something has happened. It is called for each request, so it only sets a flag."""
        self._happened = True

    def spider_opened(self) -> None:
        self._timer = create_looping_call(self._look)
        self._timer.start(self._every, now=False)

    def spider_closed(self) -> None:
        if self._timer and self._timer.running:
            self._timer.stop()

    def _look(self) -> None:
        report = self._crawler.get_extension(ProgressReport)
        items, self._items = self._items, report.items_count if report else 0
        if self._happened or items != self._items or self._waits_on_purpose():
            self._happened = False
            self._touch()

    def _waits_on_purpose(self) -> bool:
        pacing = self._crawler.get_extension(Pacing)
        if pacing and pacing.is_waiting:
            return True
        downloader = self._crawler.engine.downloader if self._crawler.engine else None
        # Scrapy's own delay between two requests
        return downloader is not None and any(slot.queue and slot.latercall for slot in downloader.slots.values())

    @state_change("spider.active")
    def _touch(self) -> None:
        try:
            self._path.touch()
        except OSError as error:
            logger.error("%s could not be touched: %s", ACTIVE, error)  # noqa: TRY400 - a full disk needs no traceback
