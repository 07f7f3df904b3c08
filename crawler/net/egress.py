"""The SSRF guard: which machines a spider may connect to. Each connection is checked by the address that it uses.

A name is checked when it is resolved for a connection, not when its URL is seen. So neither a redirect, nor
robots.txt, nor a name whose address changes after a check can bypass the guard.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.resolver import CachingThreadedResolver
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object
from scrapy.utils.url import add_http_if_no_scheme
from twisted.internet.error import DNSLookupError
from twisted.internet.threads import deferToThreadPool

from crawler.closing import StoppedError
from crawler.net.response_limits import ConnectionFactory, ResponseLimits
from crawler.pace.pacing import Pacing
from crawler.scrapy_versions import CannotResolveHostError, HTTP11DownloadHandler, middleware
from crawler.setting_names import ALLOWED_HANDLERS, EGRESS_ALLOWED_NETWORKS
from gateway.contract import public_address
from gateway.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from twisted.internet.base import ReactorBase
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure


class EgressBlockedError(IgnoreRequest):
    """The request's target is not allowed for crawls. It is an `IgnoreRequest`, so there is no retry or traceback."""


class EgressResolver(CachingThreadedResolver):
    """Resolves names, to IPv4 if possible, and refuses addresses that are not allowed, literal ones included."""

    def __init__(
        self, reactor: ReactorBase, cache_size: int, timeout: float, allowed: Iterable[public_address.Network] = ()
    ) -> None:
        super().__init__(reactor, cache_size, timeout)
        self._allowed = tuple(allowed)
        #: Name → the address for which it was refused.
        self.refused: dict[str, str] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler, reactor: ReactorBase) -> Self:
        settings = crawler.settings
        cache_size = settings.getint("DNSCACHE_SIZE") if settings.getbool("DNSCACHE_ENABLED") else 0
        allowed = public_address.parse_networks(settings.getlist(EGRESS_ALLOWED_NETWORKS))
        return cls(reactor, cache_size, settings.getfloat("DNS_TIMEOUT"), allowed)

    def install_on_reactor(self) -> None:
        super().install_on_reactor()
        reactor: Any = self.reactor
        connect = reactor.connectTCP

        def connect_checked(host: str, *args: Any, **kwargs: Any) -> Any:
            """Check literal addresses here, because they can be connected to without the resolver (`MailSender`)."""
            address = public_address.literal_address(host)
            if address is not None and not public_address.is_allowed(address, self._allowed):
                raise _blocked(host, str(address))
            return connect(host, *args, **kwargs)

        reactor.connectTCP = connect_checked

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> Deferred[str]:  # noqa: N802 - Twisted's
        address = super().getHostByName(name, timeout).addErrback(self._try_ipv6, name)
        return address.addCallback(self._check, name)

    def _try_ipv6(self, failure: Failure, name: str) -> Deferred[str]:
        reactor: Any = self.reactor
        address = deferToThreadPool(reactor, reactor.getThreadPool(), _ipv6_address, name)
        # if there is no IPv6 address either, the failure for IPv4 is reported
        return address.addTimeout(self.timeout, reactor).addErrback(lambda _: failure)

    def _check(self, address: str, name: str) -> str:
        if not public_address.is_allowed(address, self._allowed):
            self.refused[name] = address
            raise DNSLookupError(f"{name} is {address}, which is not a public address")
        self.refused.pop(name, None)
        return address


def _ipv6_address(name: str) -> str:
    return str(socket.getaddrinfo(name, None, socket.AF_INET6, socket.SOCK_STREAM)[0][4][0])


@middleware
class EgressCheck:
    """Downloader middleware before the cache: a page that must not be fetched must not come from the cache either."""

    def __init__(self, allowed: Iterable[public_address.Network]) -> None:
        self._allowed = tuple(allowed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(public_address.parse_networks(crawler.settings.getlist(EGRESS_ALLOWED_NETWORKS)))

    def process_request(self, request: Request) -> None:
        host = urlparse_cached(request).hostname or ""
        address = public_address.address_without_dns(host)
        if address is not None and not public_address.is_allowed(address, self._allowed):
            raise _blocked(host, str(address))


class MetaProxy(HttpProxyMiddleware):
    """Scrapy's middleware, limited to `meta["proxy"]`: spiders do not use the environment's proxies."""

    def __init__(self, auth_encoding: str | None = "latin-1") -> None:
        super().__init__(auth_encoding)
        self.proxies = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings.get("HTTPPROXY_AUTH_ENCODING"))


def is_allowed_handler(settings: BaseSettings, handler: Any) -> bool:
    """Whether the node's operator lets projects use this download handler, a class or its dotted name."""
    allowed = settings.getlist(ALLOWED_HANDLERS)
    return bool(allowed and handler) and _loaded(handler) in [_loaded(name) for name in allowed]


def may_be_replaced(handler: Any) -> bool:
    """Whether our handler can replace `handler`, because that is one of Scrapy's own or not set."""
    kind = _loaded(handler) if handler else None
    name = kind if isinstance(kind, str) else getattr(kind, "__module__", "")
    return not handler or kind is EgressDownloadHandler or str(name).startswith("scrapy.core.downloader.handlers.")


class HandlerRefusedError(Exception):
    """The project has a download handler that this node does not allow; the message says which, and what to do."""

    def __init__(self, handler: Any, scheme: str) -> None:
        path = handler if isinstance(handler, str) else f"{handler.__module__}.{handler.__qualname__}"
        super().__init__(
            f"the project fetches {scheme} by {path}, whose connections cannot be checked; the node's operator can "
            f"allow it: CRAWL_ALLOW_HANDLERS={path}"
        )


def _loaded(handler: Any) -> Any:
    """The class, which may be imported under several names; the name itself if there is no such class."""
    try:
        return load_object(handler)
    except (ImportError, NameError, ValueError):
        return handler


class EgressDownloadHandler(HTTP11DownloadHandler):
    """Scrapy's handler that reports what the resolver refused, checks proxies, and can give up its downloads."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool._factory = ConnectionFactory  # noqa: SLF001 - there is no public way; Scrapy does it, too
        self._limits = ResponseLimits(crawler)
        pacing = crawler.get_extension(Pacing)
        assert pacing is not None  # noqa: S101 - the add-on installs it
        self._pacing = pacing
        self._allowed = public_address.parse_networks(crawler.settings.getlist(EGRESS_ALLOWED_NETWORKS))
        self._downloads: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def download_request(self, request: Request) -> Response:
        async with self._pacing.turn(request):
            return await self.fetch(request)

    async def fetch(self, request: Request) -> Response:
        """Fetch the page. Call this when it is the request's turn."""
        if self._stopping:
            raise StoppedError("the crawl was stopped")
        require_guard()
        self._limits.hold(request)
        task = asyncio.current_task()
        if task:
            self._downloads.add(task)
        try:
            await self._check_proxy(request)
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

    async def _check_proxy(self, request: Request) -> None:
        """Check a request's proxy and, since the proxy resolves it, the request's target. The name of a proxy is also
        checked when it is connected to, but a tunnel through a literal address is opened without the resolver.
        """
        proxy = request.meta.get("proxy")
        if not proxy:
            return
        host = _proxy_host(proxy)
        address = public_address.literal_address(public_address.ascii_host(host))
        if address is not None and not public_address.is_allowed(address, self._allowed):
            raise _blocked(host, str(address))
        try:
            public_address.check_url("through a proxy", request.url, self._allowed)
        except InvalidRequestError as error:
            raise EgressBlockedError(error.message) from None
        await self._check_name(urlparse_cached(request).hostname or "")

    async def _check_name(self, name: str) -> None:
        resolver = _resolver()
        try:
            await maybe_deferred_to_future(resolver.getHostByName(public_address.ascii_host(name)))
        except DNSLookupError:
            # the proxy may know a name that this node cannot resolve
            if address := resolver.refused.get(public_address.ascii_host(name)):
                raise _blocked(name, address) from None
            if public_address.is_nearby(name):
                raise EgressBlockedError(f"{name} is not a public name") from None


def _proxy_host(proxy: str) -> str:
    try:
        parts = urlsplit(add_http_if_no_scheme(proxy))
    except ValueError:
        raise EgressBlockedError("the proxy's address cannot be read") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise EgressBlockedError("a proxy must be an http:// or https:// URL")
    return parts.hostname


def _resolver() -> Any:
    from twisted.internet import reactor  # noqa: PLC0415 - installs a reactor if none was chosen before

    return reactor.resolver


def require_guard() -> None:
    """Raises `EgressBlockedError` if our resolver is not in use, because then nothing would be checked."""
    if not isinstance(_resolver(), EgressResolver):
        raise EgressBlockedError("the address guard of this node is not in place: nothing is fetched without it")


def _refusal(request: Request) -> EgressBlockedError | None:
    asked = (
        _proxy_host(request.meta["proxy"]) if request.meta.get("proxy") else urlparse_cached(request).hostname or ""
    )
    refused: dict[str, str] = getattr(_resolver(), "refused", {})
    address = refused.get(asked) or refused.get(public_address.ascii_host(asked))
    return _blocked(asked, address) if address else None


def _blocked(name: str, address: str) -> EgressBlockedError:
    where = name if name == address else f"{name} ({address})"
    return EgressBlockedError(f"{where} is not a public address")
