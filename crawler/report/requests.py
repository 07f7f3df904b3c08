"""The one place that sees how every request ended, after all middlewares have had their say."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from scrapy.core.downloader import Downloader
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Request, Response
from twisted.python.failure import Failure

from crawler.net.egress import EgressBlockedError
from crawler.report.activity import Activity
from crawler.report.crawl_limits import is_page
from crawler.report.failures import exception_reason, status_reason
from crawler.report.progress import Report

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT", bound=Response | Request | Failure)

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
#: `IgnoreRequest` mostly says that nobody wanted the page (robots.txt, off site, a limit). With these words Scrapy
#: says that it was wanted and could not be had: a redirect loop, a body that explodes when decompressed.
_GIVEN_UP = ("max redirections reached", "Ignored response")


class CountingDownloader(Downloader):
    """Scrapy's downloader; tells the report what became of each page."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._report = crawler.get_extension(Report)
        self._activity = crawler.get_extension(Activity)

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:  # noqa: ARG002 - Scrapy passes none any more
        outcome = super().fetch(request)
        if self._activity:
            self._activity.note()
            outcome.addBoth(self._note, self._activity)
        if self._report and is_page(request):
            outcome.addBoth(self._count, request, self._report)
        return outcome

    def _note(self, result: ResultT, activity: Activity) -> ResultT:
        activity.note()
        return result

    def _count(self, result: ResultT, request: Request, report: Report) -> ResultT:
        if isinstance(result, Response):
            if is_error_status(result.status):
                report.failed(result.url, status_reason(result.status))
            else:
                report.completed(request)
        elif isinstance(result, Failure) and is_error(result.value):
            reason = exception_reason(result.value)
            report.failed(request.url, reason)
            if isinstance(result.value, IgnoreRequest):
                # of these alone Scrapy says nothing in the log
                logger.error("Gave up %s: %s", request.url, reason)
        return result


def is_error_status(status: int) -> bool:
    """Being sent away, or a broken server. Any other status, a 404 too, is an answer."""
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR


def is_error(error: BaseException | None) -> bool:
    if isinstance(error, IgnoreRequest) and not isinstance(error, EgressBlockedError):
        return str(error).startswith(_GIVEN_UP)
    return True
