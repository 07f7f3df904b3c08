"""The record of a crawl's requests: one line for each, once it is final."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scrapy import Request, signals
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from twisted.python.failure import Failure

from crawler import extras
from crawler.closing import StoppedError
from crawler.report.crawl_limits import PageLimitError
from crawler.report.failures import (
    download_code,
    exception_reason,
    is_error,
    is_error_status,
    status_code,
    status_reason,
)
from crawler.report.progress import Spool
from crawler.scrapy_versions import middleware
from crawler.setting_names import ATTEMPT_DIR, REQUESTS_MAX_BYTES, REQUESTS_MAX_COUNT
from gateway.contract import outbox
from gateway.crash_points import state_change

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: Maximum number of characters of a URL, and of a reason, that are recorded.
LONGEST_URL = 2000
LONGEST_REASON = 500
#: Key in a request's `meta` with the URL of the page that led to it. Retries, redirects and later attempts keep it.
PARENT = "discoverybot_parent"
#: The stat with the number of requests for which the record has no room.
LEFT_OUT = "discoverybot/requests_left_out"
#: Requests with these errors are not recorded: they were not sent, or the crawl did not wait for the answer.
_NOT_ASKED = (PageLimitError, StoppedError)
#: `user:password@` in a URL, or anything like it in a text.
_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
_LOGIN_IN_TEXT = re.compile(r"[^/\s]+@")


class RequestRecord:
    """Extension that writes `requests.jsonl`. `gateway/requests/store.py` reads its fields (`_KNOWN`)."""

    def __init__(self, folder: Path, most: int, most_bytes: int) -> None:
        """Record at most `most` lines. After `most_bytes` bytes no other line begins."""
        attempt = outbox.AttemptId.parse(folder.name)
        self._path = folder / outbox.REQUESTS
        self._attempt = attempt.attempt if attempt else 1
        self._most, self._most_bytes = most, most_bytes
        self._spool = Spool(self._path)
        self._give: Callable[[Request, bytes], None] = self._give_at_once
        #: Number and bytes of the lines that are written or waiting.
        self._count = self._bytes = 0
        #: Number of requests for which the record has no room.
        self.left_out = 0
        self._stats: Any = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        settings = crawler.settings
        folder, most = settings.get(ATTEMPT_DIR), settings.getint(REQUESTS_MAX_COUNT)
        if not (folder and most):
            raise NotConfigured
        self = cls(Path(folder), most, settings.getint(REQUESTS_MAX_BYTES))
        self._stats = crawler.stats
        crawler.signals.connect(self.spider_closed, signals.spider_closed)
        crawler.signals.connect(self._spool.close, signals.engine_stopped)
        return self

    def note(self, request: Request, result: Response | Request | Failure, sent_at: float | None) -> None:
        """Record how the request ended. If its result is another request (a retry, a redirect), it has not ended yet.
        `sent_at` (monotonic) is `None` if it was not sent.
        """
        if isinstance(result, Request) or (isinstance(result, Failure) and isinstance(result.value, _NOT_ASKED)):
            return
        if self._count >= self._most or self._bytes >= self._most_bytes:
            self._leave_out()
            return
        line = extras.dumps(self._facts(request, result, sent_at)) + b"\n"
        self._count += 1
        self._bytes += len(line)
        self._give(request, line)

    def keep_with(self, give: Callable[[Request, bytes], None], left_out: int) -> None:
        """Have `give` decide when a line is written, by `write`. Lines from an earlier attempt count, and so do the
        `left_out` requests that it did not record.
        """
        self._spool.find_end()
        self._bytes, self._count = self._spool.end, _count_lines(self._path)
        self.left_out = left_out
        self._give = give

    @property
    def end(self) -> int:
        """Length of the file in bytes."""
        return self._spool.end

    @state_change("spider.record_requests")
    def write(self, lines: Sequence[bytes]) -> bool:
        """Write lines; return whether that worked. If not (a full disk), only the record ends, and the
        crawl goes on.
        """
        try:
            if self._most:
                self._spool.append(b"".join(lines))
                return True
        except OSError as error:
            logger.error("%s could not be written: %s", outbox.REQUESTS, error)  # noqa: TRY400 - needs no traceback
            self._most = 0
        self.left_out += len(lines)
        return False

    def spider_closed(self) -> None:
        if self.left_out:
            self._stats.set_value(LEFT_OUT, self.left_out)

    def _give_at_once(self, request: Request, line: bytes) -> None:  # noqa: ARG002 - the signature of `give`
        self.write([line])

    def _leave_out(self) -> None:
        if not self.left_out:
            logger.warning("From here on requests are not recorded (REQUESTS_MAX_COUNT, REQUESTS_MAX_BYTES)")
        self.left_out += 1

    def _facts(self, request: Request, result: Response | Failure, sent_at: float | None) -> dict[str, Any]:
        """The fields of a line that are not empty. It must be quick, because it is called for each request."""
        meta = request.meta
        url = _first_url(request, meta)
        facts: dict[str, Any] = {"url": _kept(url), "at": int(time.time() * 1000), "attempt": self._attempt}
        if sent_at is not None:
            facts["ms"] = round((time.monotonic() - sent_at) * 1000)
        if isinstance(parent := meta.get(PARENT), str):
            facts["parent"] = _kept(parent)
        if isinstance(retries := meta.get("retry_times"), int):
            facts["retries"] = retries
        last = request.url
        if isinstance(result, Response):
            last = result.url
            _add_answer(facts, result)
        else:
            _add_failure(facts, result, request)
        if last != url:
            facts["redirected_to"] = _kept(last)
        return facts


def _first_url(request: Request, meta: dict[str, Any]) -> str:
    """The URL that was requested before any redirect."""
    urls = meta.get("redirect_urls")
    # a project may have put anything there
    return urls[0] if isinstance(urls, list) and urls and isinstance(urls[0], str) else request.url


def _add_answer(facts: dict[str, Any], response: Response) -> None:
    facts["status"], facts["bytes"] = response.status, len(response.body)
    if "cached" in response.flags:
        facts["cached"] = True
    if is_error_status(response.status):
        facts |= {
            "failed": True,
            "reason": status_reason(response.status),
            "code": status_code(response.status).value,
        }


def _add_failure(facts: dict[str, Any], failure: Failure, request: Request) -> None:
    reason = _LOGIN_IN_TEXT.sub("", exception_reason(failure.value, request))
    facts["reason"] = outbox.whole_text(reason[:LONGEST_REASON])
    facts["code"] = download_code(failure.value, request).value
    if is_error(failure.value):
        facts["failed"] = True


def _kept(url: str) -> str:
    """The URL as it is recorded: shortened, and without user name and password."""
    if "@" in url:
        url = _LOGIN.sub("", url)
    whole: str = outbox.whole_text(url[:LONGEST_URL])
    return whole


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


@middleware
class ParentNote:
    """Spider middleware nearest to the engine: notes in each request the page that led to it."""

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        for one in result:
            yield _with_parent(one, response)

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for one in result:
            yield _with_parent(one, response)


def _with_parent(one: Any, response: Response) -> Any:
    if isinstance(one, Request):
        one.meta[PARENT] = response.url
    return one
