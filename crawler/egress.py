"""Which machines a spider may talk to: asked for every connection, at the address that is about to be used.

A name is checked where it has been resolved, not where a URL was seen, so neither a redirect, nor robots.txt, nor
a name whose address changes between the check and the connection gets around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.exceptions import CannotResolveHostError, IgnoreRequest
from scrapy.resolver import CachingThreadedResolver
from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.error import DNSLookupError

from crawler.header_limit import ConnectionFactory
from crawler.request_limits import RequestLimits
from crawler.setting_names import EGRESS_ALLOWED_NETWORKS
from gateway.domain.public_address import Network, ascii_host, is_allowed, parse_networks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.base import ReactorBase
    from twisted.internet.defer import Deferred


class EgressBlockedError(IgnoreRequest):
    """The request would have gone where crawls may not go. An `IgnoreRequest`: no retry, no traceback."""


class StoppedError(IgnoreRequest):
    """The crawl is being stopped and would not wait for this response."""


class EgressResolver(CachingThreadedResolver):
    """Resolves what may be reached; IPv4 only, as Scrapy's own. Literal addresses come through here as well."""

    def __init__(
        self, reactor: ReactorBase, cache_size: int, timeout: float, allowed: Iterable[Network] = ()
    ) -> None:
        super().__init__(reactor, cache_size, timeout)
        self._allowed = tuple(allowed)
        #: Name → the address for which it was refused.
        self.refused: dict[str, str] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler, reactor: ReactorBase) -> Self:
        settings = crawler.settings
        cache_size = settings.getint("DNSCACHE_SIZE") if settings.getbool("DNSCACHE_ENABLED") else 0
        allowed = parse_networks(settings.getlist(EGRESS_ALLOWED_NETWORKS))
        return cls(reactor, cache_size, settings.getfloat("DNS_TIMEOUT"), allowed)

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> Deferred[str]:  # noqa: N802 - Twisted's
        return super().getHostByName(name, timeout).addCallback(self._check, name)

    def _check(self, address: str, name: str) -> str:
        if not is_allowed(address, self._allowed):
            self.refused[name] = address
            raise DNSLookupError(f"{name} is {address}, which is not a public address")
        self.refused.pop(name, None)
        return address


class EgressDownloadHandler(HTTP11DownloadHandler):
    """Scrapy's own handler; says clearly what the resolver refused, takes no proxy, and can be told to let go."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool._factory = ConnectionFactory  # noqa: SLF001 - as Scrapy does with its own
        self._limits = RequestLimits(crawler)
        self._downloads: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def download_request(self, request: Request) -> Response:
        if request.meta.get("proxy"):
            raise EgressBlockedError("proxies are switched off: the address behind one cannot be checked")
        if self._stopping:
            raise StoppedError("the crawl was stopped")
        self._limits.hold(request)
        task = asyncio.current_task()
        if task:
            self._downloads.add(task)
        try:
            return await super().download_request(request)
        except CannotResolveHostError as error:
            raise _refusal(request) or error from None
        except asyncio.CancelledError:
            raise StoppedError("the crawl was stopped") from None
        finally:
            self._downloads.discard(task) if task else None

    def let_go(self) -> None:
        """Give up what is still being downloaded, so that a stopped crawl ends while it can still report."""
        self._stopping = True
        for task in tuple(self._downloads):
            task.cancel()


def _refusal(request: Request) -> EgressBlockedError | None:
    from twisted.internet import reactor  # noqa: PLC0415 - installs a reactor if none was chosen before

    name = urlparse_cached(request).hostname or ""
    refused = getattr(getattr(reactor, "resolver", None), "refused", {})
    address = refused.get(name) or refused.get(ascii_host(name))
    if not address:
        return None
    where = name if name == address else f"{name} ({address})"
    return EgressBlockedError(f"{where} is not a public address")
