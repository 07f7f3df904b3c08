"""Connections whose responses have headers of a sane size: Twisted bounds each line, not how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.http11 import _LenientHTTP11ClientProtocol, _LenientHTTPClientParser
from twisted.web.client import _HTTP11ClientFactory

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IAddress
    from twisted.web._newclient import Request
    from twisted.web.iweb import IResponse

#: As the common browsers.
MAX_HEADER_BYTES = 256 << 10


class HeadersTooLargeError(ValueError):
    """The headers of a response do not end."""


class _Parser(_LenientHTTPClientParser):
    #: Bytes of header lines so far, those of interim responses (1xx) included.
    received = 0

    def lineReceived(self, line: bytes) -> None:  # noqa: N802 - Twisted's name
        self.received += len(line)
        if self.received > MAX_HEADER_BYTES:
            raise HeadersTooLargeError(f"its headers are larger than {MAX_HEADER_BYTES} bytes")
        super().lineReceived(line)


class _Connection(_LenientHTTP11ClientProtocol):
    def request(self, request: Request) -> Deferred[IResponse]:
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
