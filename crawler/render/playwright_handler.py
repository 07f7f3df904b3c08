"""scrapy-playwright's download handler, with what it leaves to luck: time limits, forgotten pages, a dead browser."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError
from scrapy_playwright.handler import BrowserContextWrapper, ScrapyPlaywrightDownloadHandler

from crawler.render.egress_proxy import PRIMING_URL
from crawler.render.page_view import PageView, RenderError

if TYPE_CHECKING:
    from playwright.async_api import Page
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from crawler.render.browser import Chromium

logger = logging.getLogger(__name__)

#: Key of a request's meta whose page is a `PageView`.
VIEW = "render_view"
CLOSE_SECONDS = 5.0
#: UDP knows no proxy. The switch that forbids it to WebRTC has changed its name once, and no crawl needs WebRTC.
_NO_PEERS = "delete globalThis.RTCPeerConnection; delete globalThis.webkitRTCPeerConnection;"


class PlaywrightHandler(ScrapyPlaywrightDownloadHandler):
    """One for the whole crawl, whatever the scheme; it is given the requests with `meta["playwright"]`."""

    def __init__(self, crawler: Crawler, chromium: Chromium, page_seconds: float) -> None:
        super().__init__(crawler)
        self.browser_provider_cls = lambda _: chromium
        # a page that ends the browser would do so again
        self.config.target_closed_max_retries = 0
        self._page_seconds = page_seconds
        self._user_agent = crawler.settings.get("USER_AGENT")
        self._contexts: list[BrowserContextWrapper] = []
        self._closing = False

    async def launch(self) -> None:
        await self._launch()

    async def close(self) -> None:
        self._closing = True
        await super().close()

    async def _create_browser_context(
        self, name: str, context_kwargs: dict[str, Any] | None, spider: Spider | None = None
    ) -> BrowserContextWrapper:
        """With our user agent; the project's other wishes are honoured, but for a proxy of its own."""
        wanted = {key: value for key, value in (context_kwargs or {}).items() if key != "proxy"}
        options = {"user_agent": self._user_agent, "service_workers": "block", **wanted}
        wrapper = await super()._create_browser_context(name, options, spider)
        self._contexts.append(wrapper)
        await wrapper.context.add_init_script(_NO_PEERS)
        await _prime(wrapper)
        return wrapper

    async def _create_page(self, request: Request, spider: Spider) -> Page:
        page: Page
        try:
            page = await super()._create_page(request, spider)
        except PlaywrightError:
            await self._until_the_dead_are_gone()
            page = await super()._create_page(request, spider)
        return page

    async def _until_the_dead_are_gone(self) -> None:
        """A browser that has just ended takes a moment to be forgotten; a page of it is nobody's fault."""
        async with asyncio.timeout(CLOSE_SECONDS):
            while hasattr(self, "browser") and not self.browser.is_connected():  # noqa: ASYNC110 - theirs
                await asyncio.sleep(0.02)

    async def _download_request_with_page(self, request: Request, page: Page, spider: Spider) -> Response:
        kept = False
        try:
            async with asyncio.timeout(self._page_seconds):
                response: Response = await super()._download_request_with_page(request, page, spider)
            kept = bool(request.meta.get("playwright_include_page"))
        except TimeoutError:
            raise RenderError(f"the page was not ready within {self._page_seconds:g} s") from None
        else:
            return response
        finally:
            if not kept:
                await close_page(page)

    async def _apply_page_methods(self, page: Page, request: Request, spider: Spider) -> None:
        view = request.meta.get(VIEW)
        if isinstance(view, PageView):
            await view.settle(page)
        await super()._apply_page_methods(page, request, spider)

    async def _browser_disconnected_callback(self) -> None:
        if not self._closing:
            logger.warning("The browser has ended")
        await super()._browser_disconnected_callback()
        contexts, self._contexts = self._contexts, []
        for wrapper in contexts:
            # who waits for a page of it would wait for ever
            for _ in range(self.config.max_pages_per_context):
                wrapper.semaphore.release()


async def _prime(wrapper: BrowserContextWrapper) -> None:
    """Let the browser learn the proxy's password: WebSockets do not ask for one."""
    page = await wrapper.context.new_page()
    try:
        await page.goto(PRIMING_URL)
    finally:
        await close_page(page)


async def close_page(page: Page) -> None:
    if not page.is_closed():
        with suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for(page.close(), CLOSE_SECONDS)
