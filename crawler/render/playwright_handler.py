"""scrapy-playwright's download handler, made reliable: with time limits, and for lost pages and dead browsers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy_playwright.handler import BrowserContextWrapper, ScrapyPlaywrightDownloadHandler
from twisted.internet.defer import Deferred

from crawler.net.egress_proxy import PRIMING_URL
from crawler.net.fetch_options import FetchScope
from crawler.render.page_view import PageView, RenderError
from crawler.setting_names import FETCH_OPTIONS, FETCH_START_URLS, RENDER_PAGES
from gateway.contract.public_address import literal_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.async_api import Page
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from crawler.orders import Fetch
    from crawler.render.browser import Chromium


logger = logging.getLogger(__name__)

#: Key of a request's meta whose page is a `PageView`.
VIEW = "render_view"
CLOSE_SECONDS = 2.0
#: Maximum number of seconds for opening a page in a running browser. It never opens if its process has just died.
OPEN_SECONDS = 15.0
LAST_WORDS_SECONDS = 1.0
_ENDED = "the browser has ended"
#: Before Scrapy 2.14, the handler is given the spider and answers with a `Deferred`.
_IS_COROUTINE = asyncio.iscoroutinefunction(ScrapyPlaywrightDownloadHandler.download_request)
#: Disables WebRTC, whose UDP would bypass the proxy. The browser's switch for that has changed its name before, and
#: no crawl needs WebRTC.
_NO_PEERS = "delete globalThis.RTCPeerConnection; delete globalThis.webkitRTCPeerConnection;"


class NoPageError(RenderError):
    """The browser opens no page; a new driver may be able to start another browser."""


class _BrowserEndedError(RenderError):
    def __init__(self) -> None:
        super().__init__(_ENDED)


class _Visit:
    """The handling of one request in the browser. It ends after its time, or when its page or browser is gone,
    because Playwright may wait for ever for a page that has crashed.
    """

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self.page: Page | None = None
        self.why = f"the page was not ready within {seconds:g} s"

    def begin(self, page: Page) -> None:
        self.page = page
        page.on("crash", lambda _: self.end_soon("the page crashed"))
        self._end_in(self._seconds)

    def end_soon(self, why: str) -> None:
        """End the visit after a moment. Meanwhile Playwright itself usually reports a more precise error."""
        self.why = why
        self._end_in(LAST_WORDS_SECONDS)

    def _end_in(self, seconds: float) -> None:
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)


class PlaywrightHandler(ScrapyPlaywrightDownloadHandler):
    """The crawl's only handler for requests with `meta["playwright"]`, for all schemes."""

    def __init__(self, crawler: Crawler, chromium: Chromium, page_seconds: float) -> None:
        super().__init__(crawler)
        self.browser_provider_cls = lambda _: chromium
        # a page that has killed the browser would do so again
        self.config.target_closed_max_retries = 0
        self._page_seconds = page_seconds
        self._context_options = {
            "user_agent": crawler.settings.get("USER_AGENT"),
            "service_workers": "block",
            # pages that we render need no downloads; a project's own pages may
            "accept_downloads": not crawler.settings.getbool(RENDER_PAGES),
        }
        self._contexts: list[BrowserContextWrapper] = []
        self._visits: dict[Request, _Visit] = {}
        self._openings: set[asyncio.Task[Page]] = set()
        self._closing = False

    async def download_request(self, request: Request) -> Response:
        """Fetch a page in the browser. Raises `RenderError`, and what Playwright raises."""
        kept = False
        visit: _Visit | None = None
        try:
            async with asyncio.timeout(None) as limit:
                visit = self._visits[request] = _Visit(limit, self._page_seconds)
                if request.meta.get("playwright_page"):
                    visit.begin(request.meta["playwright_page"])
                response: Response = await (
                    super().download_request(request)
                    if _IS_COROUTINE
                    else super()._download_request(request, self._crawler.spider)
                )
            kept = bool(request.meta.get("playwright_include_page"))
        except TimeoutError:
            raise RenderError(visit.why if visit else "") from None
        else:
            return response
        finally:
            self._visits.pop(request, None)
            if visit and visit.page and not kept:
                await close_page(visit.page)

    async def launch(self) -> None:
        await self._launch()

    async def close(self) -> None:
        self._closing = True
        closed = super().close()
        await (maybe_deferred_to_future(closed) if isinstance(closed, Deferred) else closed)

    async def _create_browser_context(
        self, name: str, context_kwargs: dict[str, Any] | None, spider: Spider | None = None
    ) -> BrowserContextWrapper:
        """Make a browser context with our user agent, and with the project's options except a proxy."""
        wanted = {key: value for key, value in (context_kwargs or {}).items() if key != "proxy"}
        options = {**self._context_options, **wanted, **context_options(self._crawler.settings)}
        wrapper = await super()._create_browser_context(name, options, spider)
        self._contexts.append(wrapper)
        await wrapper.context.add_init_script(_NO_PEERS)
        await wrapper.context.add_cookies(context_cookies(self._crawler.settings))
        await _prime(wrapper)
        return wrapper

    async def _create_page(self, request: Request, spider: Spider) -> Page:
        try:
            page = await self._open(request, spider)
        except (PlaywrightError, _BrowserEndedError, TimeoutError):
            await self._until_the_dead_are_gone()
            try:
                page = await self._open(request, spider)
            except TimeoutError:
                raise RenderError("the browser opens no page") from None
            except PlaywrightError as error:
                raise NoPageError(error.message) from error
        self._visits[request].begin(page)
        return page

    async def _open(self, request: Request, spider: Spider) -> Page:
        """Open a page. Raises what Playwright raises, and `_BrowserEndedError` and `TimeoutError`: Playwright may
        wait for ever if the browser, or one of its processes, has ended.
        """
        opening = asyncio.ensure_future(super()._create_page(request, spider))
        self._openings.add(opening)
        try:
            async with asyncio.timeout(OPEN_SECONDS if self._contexts else None):
                page: Page = await opening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise _BrowserEndedError from None
        finally:
            self._openings.discard(opening)
        return page

    async def _until_the_dead_are_gone(self) -> None:
        """Wait a moment until the handler has noticed that its browser has ended. Then the page can be retried."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gone(), CLOSE_SECONDS)

    async def _gone(self) -> None:
        # the browser's end is reported a little later than its consequences
        await asyncio.sleep(0.05)
        while hasattr(self, "browser") and not self.browser.is_connected():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.02)

    async def _apply_page_methods(self, page: Page, request: Request, spider: Spider) -> None:
        view = request.meta.get(VIEW)
        if isinstance(view, PageView):
            await view.settle(page)
        await super()._apply_page_methods(page, request, spider)

    async def _browser_disconnected_callback(self) -> None:
        if not self._closing:
            logger.warning("The browser has ended")
        for visit in self._visits.values():
            if visit.page:
                visit.end_soon(_ENDED)
        for opening in tuple(self._openings):
            opening.cancel()
        await super()._browser_disconnected_callback()
        contexts, self._contexts = self._contexts, []
        for wrapper in contexts:
            # otherwise requests that wait for a page of this context would wait for ever
            for _ in range(self.config.max_pages_per_context):
                wrapper.semaphore.release()


async def _prime(wrapper: BrowserContextWrapper) -> None:
    """Open a page through the proxy, so that the browser learns the proxy's password: it does not ask for
    WebSockets.
    """
    page = await wrapper.context.new_page()
    try:
        await page.goto(PRIMING_URL)
    finally:
        await close_page(page)


async def close_page(page: Page) -> None:
    if not page.is_closed():
        with suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for(page.close(), CLOSE_SECONDS)


# --- the browser's user agent and cookies, as the request for the crawl says
#
# The browser's cookie jar sends cookies only to their own hosts, even after a redirect. The browser would send
# headers to any host, so these are only sent with the documents that Scrapy fetches.


def context_options(settings: BaseSettings) -> dict[str, Any]:
    """Options of a browser context that projects cannot change."""
    options: Fetch | None = settings.get(FETCH_OPTIONS)
    return {"user_agent": options.user_agent} if options and options.user_agent else {}


def context_cookies(settings: BaseSettings) -> list[Any]:
    """The crawl's cookies in the form of Playwright's `add_cookies`."""
    options: Fetch | None = settings.get(FETCH_OPTIONS)
    if options is None:
        return []
    scope = FetchScope(settings.getlist(FETCH_START_URLS))
    return [
        {"name": name, "value": value, **place}
        for name, value in options.cookies.items()
        for place in _places(scope, name)
    ]


def _places(scope: FetchScope, name: str) -> Iterator[dict[str, Any]]:
    """The places for which a cookie is set. They follow the rules of its prefix (`__Host-`, `__Secure-`): if the
    browser refused one cookie, it would open no page.
    """
    for host, named_in_clear in scope.hosts.items():
        in_clear = named_in_clear and not name.lower().startswith(("__host-", "__secure-"))
        # an address has no subdomains
        if literal_address(host) or "." not in host or name.lower().startswith("__host-"):
            written = f"[{host}]" if ":" in host else host
            yield {"url": f"http{'' if in_clear else 's'}://{written}/"}
        else:
            yield {"domain": f".{host}", "path": "/", "secure": not in_clear}
