"""What one response may take and hold: size, time, compression, attributes of a tag, headers. No request, spider or
project can ask for more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from lxml import etree
from scrapy.exceptions import IgnoreRequest
from scrapy.http import TextResponse, XmlResponse
from twisted.web.client import _HTTP11ClientFactory

from crawler.scrapy_versions import HttpClientParser, HttpClientProtocol, JsonResponse, middleware
from crawler.setting_names import MAX_PAGE_BYTES, MAX_PAGE_SECONDS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IAddress
    from twisted.web._newclient import Request as TwistedRequest
    from twisted.web.iweb import IResponse


#: Of one tag. libxml2 appends each to a list that it walks from its begin: 200,000 hold it for half a minute.
MAX_ATTRIBUTES = 512
#: Characters of a page that are not worth a look: as attributes of one tag they hold libxml2 for a tenth of a second.
_HARMLESS = 32 << 10
#: Ways in which a body may be compressed, one inside the other. Each costs up to a page of the largest size.
MAX_CODINGS = 3


class UnusableResponseError(IgnoreRequest):
    """The page was wanted, and no spider may be given it: an error, unlike what else is ignored."""


@middleware
class ResponseLimits:
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
            raise UnusableResponseError(f"Ignored response {response}: it is compressed {codings} times over")
        return response

    def hold(self, request: Request) -> None:
        settings, meta = self._crawler.settings, request.meta
        size = getattr(self._crawler.spider, "download_maxsize", settings.getint("DOWNLOAD_MAXSIZE"))
        meta["download_maxsize"] = at_most(self._max_bytes, meta.get("download_maxsize", size))
        seconds = settings.getfloat("DOWNLOAD_TIMEOUT")
        meta["download_timeout"] = at_most(self._max_seconds, meta.get("download_timeout", seconds))


@middleware
class AttributeLimit:
    """Downloader middleware, right behind what decompresses. Such a page is an error for every spider.

    libxml2 itself says how many attributes a tag has, since nothing else reads a broken page as it does. As long as
    it builds no tree, a thousand tags take half a millisecond.
    """

    def process_response(self, request: Request, response: Response) -> Response:  # noqa: ARG002 - Scrapy's signature
        if isinstance(response, TextResponse) and not isinstance(response, XmlResponse | JsonResponse):
            text = response.text if len(response.body) > _HARMLESS else ""
            if "<" in text and not _is_harmless(text):
                words = f"a tag has more than {MAX_ATTRIBUTES} attributes"
                raise UnusableResponseError(f"Ignored response {response}: {words}")
        return response


class _TooManyError(Exception):
    """A tag has too many attributes."""


class _Tags:
    """What lxml calls instead of building a tree."""

    def start(self, _: str, attributes: dict[str, str]) -> None:
        if len(attributes) > MAX_ATTRIBUTES:
            raise _TooManyError

    def close(self) -> None:
        pass


def _is_harmless(text: str) -> bool:
    # as parsel does it
    data = text.replace("\x00", "").encode(errors="replace")
    parser = etree.HTMLParser(target=_Tags(), recover=True, encoding="utf8", huge_tree=True)  # type: ignore[arg-type]  # lxml calls no more than there is
    try:
        etree.fromstring(data, parser)
    except _TooManyError:
        return False
    except etree.LxmlError:
        # nothing that could be parsed
        return True
    return True


def at_most(limit: float, value: Any) -> Any:
    """`value` unless it is beyond the limit; Scrapy takes 0 and `None` for none at all."""
    try:
        return value if 0 < float(value) <= limit else limit
    except (TypeError, ValueError):
        return limit


# --- headers of a sane size: Twisted bounds each line, not how many there are

#: As the common browsers.
MAX_HEADER_BYTES = 256 << 10


class ResponseHeadersTooLargeError(ValueError):
    """The headers of a response do not end."""


class _Parser(HttpClientParser):
    #: Bytes of header lines so far, those of interim responses (1xx) included.
    received = 0

    def lineReceived(self, line: bytes) -> None:  # noqa: N802 - Twisted's name
        self.received += len(line)
        if self.received > MAX_HEADER_BYTES:
            raise ResponseHeadersTooLargeError(f"its headers are larger than {MAX_HEADER_BYTES} bytes")
        super().lineReceived(line)


class _Connection(HttpClientProtocol):
    def request(self, request: TwistedRequest) -> Deferred[IResponse]:
        response = super().request(request)
        # as Scrapy does with its own: Twisted has no way to choose a parser
        if self._parser is not None:
            self._parser.__class__ = _Parser
        return response


class ConnectionFactory(_HTTP11ClientFactory):
    """For the `_factory` of Twisted's `HTTPConnectionPool`."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> _Connection:  # noqa: ARG002, N802 - Twisted's signature
        return _Connection(self._quiescentCallback)  # type: ignore[no-untyped-call]  # Twisted is typed in parts only
