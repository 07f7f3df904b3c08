"""Size and time that one response may take, whatever its request, the spider or the project would like."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from scrapy.exceptions import IgnoreRequest

from crawler.setting_names import MAX_PAGE_BYTES, MAX_PAGE_SECONDS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

#: Ways in which a body may be compressed, one inside the other. Each costs up to a page of the largest size.
MAX_CODINGS = 3


class RequestLimits:
    """Downloader middleware, the last before the cache, so that what comes from there is decompressed within the
    limits as well; the download handler asks it once more.

    Scrapy takes `download_maxsize` and `download_timeout` from a request before it looks at any setting.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._max_bytes = crawler.settings.getint(MAX_PAGE_BYTES) or math.inf
        self._max_seconds = crawler.settings.getfloat(MAX_PAGE_SECONDS) or math.inf

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        self.hold(request)

    def process_response(self, request: Request, response: Response) -> Response:  # noqa: ARG002 - Scrapy's signature
        codings = b",".join(response.headers.getlist(b"Content-Encoding")).count(b",") + 1
        if codings > MAX_CODINGS:
            # with these words `CountingDownloader` takes it for an error
            raise IgnoreRequest(f"Ignored response {response}: it is compressed {codings} times over")
        return response

    def hold(self, request: Request) -> None:
        settings, meta = self._crawler.settings, request.meta
        size = getattr(self._crawler.spider, "download_maxsize", settings.getint("DOWNLOAD_MAXSIZE"))
        meta["download_maxsize"] = at_most(self._max_bytes, meta.get("download_maxsize", size))
        seconds = settings.getfloat("DOWNLOAD_TIMEOUT")
        meta["download_timeout"] = at_most(self._max_seconds, meta.get("download_timeout", seconds))


def at_most(limit: float, value: Any) -> Any:
    """`value` unless it is beyond the limit; Scrapy takes 0 and `None` for none at all."""
    try:
        return value if 0 < float(value) <= limit else limit
    except (TypeError, ValueError):
        return limit
