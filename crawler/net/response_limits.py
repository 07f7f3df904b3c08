"""Limits of one response: size, time, compression, attributes of a tag, headers. No request, spider or project can
raise them.
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


#: Maximum number of attributes of one tag. libxml2's time grows with their square: 200,000 take half a minute.
MAX_ATTRIBUTES = 512
#: Bytes up to which a page is not checked: even if all are attributes of one tag, libxml2 takes a tenth of a second.
_HARMLESS = 32 << 10
#: How many times a body can be compressed. Each time can cost as much as a page of the largest size.
MAX_CODINGS = 3


class UnusableResponseError(IgnoreRequest):
    """The page must not be given to any spider. Unlike other ignored requests, this counts as an error."""


@middleware
class ResponseLimits:
    """Downloader middleware, the last before the cache, so that pages from the cache are decompressed within the
    limits, too. The download handler applies the limits once more.

    The limits are set in the request: Scrapy prefers its `download_maxsize` and `download_timeout` to all settings.
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
    """Downloader middleware, right after the decompression: a page with too many attributes in a tag is an error.

    libxml2 itself counts them, because nothing else reads a broken page in the same way. As long as it builds no
    tree, a thousand tags take half a millisecond.
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
    """A parser target, which lxml calls instead of building a tree."""

    def start(self, _: str, attributes: dict[str, str]) -> None:
        if len(attributes) > MAX_ATTRIBUTES:
            raise _TooManyError

    def close(self) -> None:
        pass


def _is_harmless(text: str) -> bool:
    # as parsel prepares the text
    data = text.replace("\x00", "").encode(errors="replace")
    parser = etree.HTMLParser(target=_Tags(), recover=True, encoding="utf8", huge_tree=True)  # type: ignore[arg-type]  # lxml calls no more than there is
    try:
        etree.fromstring(data, parser)
    except _TooManyError:
        return False
    except etree.LxmlError:
        # the text cannot be parsed at all
        return True
    return True


def at_most(limit: float, value: Any) -> Any:
    """`value`, or `limit` if it is larger, not a number, or 0 or `None`, which mean no limit to Scrapy."""
    try:
        return value if 0 < float(value) <= limit else limit
    except (TypeError, ValueError):
        return limit


# --- a limit for all headers together: Twisted limits the length of each line, but not their number

#: As much as the common browsers accept.
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
    """Makes our connections; to be set as `_factory` of Twisted's `HTTPConnectionPool`."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> _Connection:  # noqa: ARG002, N802 - Twisted's signature
        return _Connection(self._quiescentCallback)  # type: ignore[no-untyped-call]  # Twisted is typed in parts only
