"""How a crawl's pages are fetched, as the request for the crawl says: user agent, headers, cookies, proxy, pauses.

The request's options overrule the spider and its project: their settings have the highest priority, and the
middlewares come after all those of Scrapy that would fill in other values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import ParseResult, urlsplit

from scrapy.exceptions import NotConfigured
from scrapy.utils.httpobj import urlparse_cached

from crawler.net.egress import EgressBlockedError
from crawler.pace.pacing import Pauses
from crawler.scrapy_versions import middleware
from crawler.setting_names import FETCH_OPTIONS, FETCH_START_URLS, RENDER_PAGES
from gateway.contract.public_address import ascii_host

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from crawler.orders import Fetch


logger = logging.getLogger(__name__)

_FORCED = "cmdline"
_COOKIE, _USER_AGENT = b"Cookie", b"User-Agent"


def apply_fetch_options(settings: BaseSettings) -> None:
    """Put the options of the crawl, if it has any, into Scrapy's own settings."""
    options: Fetch | None = settings.get(FETCH_OPTIONS)
    if options is None:
        return
    if options.proxy and settings.getbool(RENDER_PAGES):
        raise ValueError("a crawl that renders pages cannot have a proxy: the browser would not use it")
    settings.setdict(_scrapy_settings(options, settings), priority=_FORCED)


def _scrapy_settings(options: Fetch, settings: BaseSettings) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if options.user_agent:
        # robots.txt is checked before the request gets this header
        changed |= {"USER_AGENT": options.user_agent, "ROBOTSTXT_USER_AGENT": options.user_agent}
    if options.obey_robots is not None or options.respect:
        changed["ROBOTSTXT_OBEY"] = options.obey_robots or bool(options.respect)
    if options.concurrency:
        # `Pacing` enforces the limit; these settings let as many requests get there
        changed |= {"CONCURRENT_REQUESTS": options.concurrency, "CONCURRENT_REQUESTS_PER_DOMAIN": options.concurrency}
    if Pauses.of(options):
        # Scrapy's own pauses would be added to ours
        changed |= {"DOWNLOAD_DELAY": 0, "AUTOTHROTTLE_ENABLED": False}
    if options.retry_codes is not None:
        changed["RETRY_HTTP_CODES"] = list(options.retry_codes)
        changed |= {"RETRY_ENABLED": True} if options.retry_codes else {}
        # a response that is to be retried must not come from the cache
        kept_out = {*settings.getlist("HTTPCACHE_IGNORE_HTTP_CODES"), *options.retry_codes}
        changed["HTTPCACHE_IGNORE_HTTP_CODES"] = list(kept_out)
    return changed


@middleware
class FetchIdentity:
    """Downloader middleware after Scrapy's own: sets the crawl's user agent, headers and cookies. It removes the
    headers and cookies again where a redirect, or a copy of a request, would carry them to another host.
    """

    def __init__(self, options: Fetch, scope: FetchScope) -> None:
        self._scope = scope
        self._user_agent = options.user_agent and options.user_agent.encode("latin-1")
        self._headers = {name.encode(): value.encode("latin-1") for name, value in options.headers.items()}
        self._cookies = {name.encode(): value.encode() for name, value in options.cookies.items()}
        self._told_browser = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        options: Fetch | None = crawler.settings.get(FETCH_OPTIONS)
        if options is None or not (options.user_agent or options.headers or options.cookies):
            raise NotConfigured
        return cls(options, FetchScope(crawler.settings.getlist(FETCH_START_URLS)))

    def process_request(self, request: Request) -> None:
        if self._user_agent:
            request.headers[_USER_AGENT] = self._user_agent
        if not self._scope.holds(urlparse_cached(request)):
            self._take_off(request)
        elif request.meta.get("playwright"):
            # the browser would send the headers wherever it is redirected; it has the cookies in its own jar
            self._take_off(request)
            self._tell_browser()
        else:
            self._put_on(request)

    def _put_on(self, request: Request) -> None:
        for name, value in self._headers.items():
            request.headers[name] = value
        if self._cookies:
            # a cookie that the request has already is newer: the site has set it
            _set_cookies(request, {**self._cookies, **_cookies(request)})

    def _take_off(self, request: Request) -> None:
        for name, value in self._headers.items():
            if request.headers.get(name) == value:
                del request.headers[name]
        present = _cookies(request)
        foreign = {name: value for name, value in present.items() if self._cookies.get(name) != value}
        if foreign != present:
            _set_cookies(request, foreign)

    def _tell_browser(self) -> None:
        if self._headers and not self._told_browser:
            self._told_browser = True
            logger.warning("The headers of this crawl are not sent with pages that the browser itself opens")


@middleware
class FetchProxy:
    """Downloader middleware before the one that reads `meta["proxy"]`: sends every request through the
    crawl's proxy.
    """

    def __init__(self, proxy: str) -> None:
        self._proxy = proxy

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        options: Fetch | None = crawler.settings.get(FETCH_OPTIONS)
        if options is None or not options.proxy:
            raise NotConfigured
        return cls(options.proxy)

    def process_request(self, request: Request) -> None:
        if request.meta.get("playwright"):
            raise EgressBlockedError("the browser does not go through the proxy of this crawl")
        request.meta["proxy"] = self._proxy


def _cookies(request: Request) -> dict[bytes, bytes]:
    header = b"; ".join(request.headers.getlist(_COOKIE))
    pairs = (part.strip().partition(b"=") for part in header.split(b";") if part.strip())
    return {name: value for name, _, value in pairs}


def _set_cookies(request: Request, cookies: dict[bytes, bytes]) -> None:
    if cookies:
        request.headers[_COOKIE] = b"; ".join(b"=".join(pair) for pair in cookies.items())
    else:
        request.headers.pop(_COOKIE, None)


# --- the hosts that headers and cookies are sent to: only those that the request for the crawl names


class FetchScope:
    """The start URLs' hosts and their subdomains. A host that only `https` URLs name gets nothing over plain HTTP."""

    def __init__(self, start_urls: Iterable[str]) -> None:
        #: Host → whether plain HTTP is allowed.
        self.hosts: dict[str, bool] = {}
        for url in start_urls:
            parts = urlsplit(url.strip())
            host = _name(parts.hostname)
            if host:
                self.hosts[host] = self.hosts.get(host, False) or parts.scheme == "http"

    def holds(self, url: ParseResult) -> bool:
        host = _name(url.hostname)
        return any(
            (host == known or host.endswith(f".{known}")) and (in_clear or url.scheme == "https")
            for known, in_clear in self.hosts.items()
        )


def _name(host: str | None) -> str:
    return ascii_host(host or "").rstrip(".").lower()
