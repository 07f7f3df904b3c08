"""The crawl's only browser: an extension that renders pages for others. It starts the browser with the first page."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from playwright.async_api import Error as PlaywrightError
from scrapy import signals
from scrapy.downloadermiddlewares.redirect import BaseRedirectMiddleware
from scrapy.exceptions import NotConfigured
from scrapy.http import HtmlResponse
from scrapy.utils.httpobj import urlparse_cached

from crawler.closing import StoppedError
from crawler.net.egress import EgressBlockedError, EgressDownloadHandler
from crawler.net.egress_proxy import REFUSED_HEADER, EgressProxy
from crawler.render.browser import Chromium, find_chromium
from crawler.render.page_view import PageView, RenderError, ViewLimits
from crawler.render.playwright_handler import VIEW, NoPageError, PlaywrightHandler
from crawler.render.setup import RENDER, Instructions
from crawler.setting_names import CHROMIUM_PATH, EGRESS_ALLOWED_NETWORKS, MAX_PAGE_SECONDS
from gateway.contract.public_address import parse_networks

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response, TextResponse


logger = logging.getLogger(__name__)

#: Maximum number of pages of our spiders that are open at once; each has a process of its own.
PAGES_AT_ONCE = 4
#: Seconds for starting the browser and opening the page, in addition to the page's own time.
OPENING_SECONDS = 60.0
CLOSE_SECONDS = 5.0


class Renderer:
    """Renders pages that Scrapy fetched, and fetches pages that a project wants from the browser."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        settings = crawler.settings
        self._executable = find_chromium(settings.get(CHROMIUM_PATH))
        allowed = parse_networks(settings.getlist(EGRESS_ALLOWED_NETWORKS))
        self._limits = ViewLimits(settings.getfloat(MAX_PAGE_SECONDS), settings.getint("DOWNLOAD_MAXSIZE"))
        self._proxy = EgressProxy(allowed, settings.getint("DOWNLOAD_MAXSIZE"))
        self._chromium: Chromium | None = None
        self._handler: PlaywrightHandler | None = None
        self._starting = asyncio.Lock()
        self._places = asyncio.Semaphore(PAGES_AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = cls(crawler)
        crawler.signals.connect(self.count_refusals, signals.spider_closed)
        crawler.signals.connect(self.close, signals.engine_stopped)
        return self

    async def render(
        self, request: Request, document: TextResponse, instructions: Instructions
    ) -> tuple[TextResponse, str | None]:
        """The page after its scripts have run, and the URL to which they would have moved, if any. Raises
        `RenderError`.
        """
        view = PageView(document, instructions, self._limits, self._crawler.stats)
        meta = {
            "playwright": True,
            "playwright_page_init_callback": view.prepare,
            "playwright_page_goto_kwargs": {"wait_until": "commit"},
            VIEW: view,
        }
        asked = request.replace(url=document.url, method="GET", body=b"", meta=meta)
        async with self._places:
            try:
                async with asyncio.timeout(self._limits.seconds + OPENING_SECONDS):
                    rendered = await self.fetch(asked)
            except TimeoutError:
                raise RenderError("the browser does not answer") from None
            except PlaywrightError as error:
                raise RenderError(f"the browser gave it up: {_first_line(error)}") from error
        self._crawler.stats.inc_value("render/pages")
        body = rendered.text.encode(errors="replace")
        return document.replace(body=body, encoding="utf-8", flags=[*document.flags, "rendered"]), view.moved_to

    async def fetch(self, request: Request) -> Response:
        """Fetch a request with `meta["playwright"]` through scrapy-playwright."""
        if self._stopping:
            raise StoppedError("the crawl was stopped")
        task = asyncio.current_task()
        if task:
            self._tasks.add(task)
        try:
            response = await self._download(request)
        except PlaywrightError as error:
            raise self._refusal(request) or error from error
        except asyncio.CancelledError:
            if self._stopping:
                raise StoppedError("the crawl was stopped") from None
            raise
        finally:
            self._tasks.discard(task) if task else None
        if REFUSED_HEADER in response.headers:
            raise self._refusal(request) or RenderError("the proxy refused the page")
        return response

    async def _download(self, request: Request) -> Response:
        try:
            return await (await self._started()).download_request(request)
        except NoPageError:
            return await (await self._started()).download_request(request)

    async def _started(self) -> PlaywrightHandler:
        if self._executable is None:
            raise RenderError("no Chromium was found on this node: install one or set CHROMIUM_PATH")
        async with self._starting:
            if self._chromium is None:
                await self._proxy.start()
                options = self._crawler.settings.getdict("PLAYWRIGHT_LAUNCH_OPTIONS")
                self._chromium = Chromium(self._executable, self._proxy, options)
            if self._handler is None or not self._chromium.is_alive:
                handler = PlaywrightHandler(self._crawler, self._chromium, self._limits.seconds)
                await handler.launch()
                self._handler = handler
        return self._handler

    def _refusal(self, request: Request) -> EgressBlockedError | None:
        reason = self._proxy.refused.get(urlparse_cached(request).hostname or "")
        return EgressBlockedError(reason) if reason else None

    def let_go(self) -> None:
        """Give up what is still being rendered, so that a stopped crawl can end in time and report."""
        self._stopping = True
        for task in tuple(self._tasks):
            task.cancel()

    def count_refusals(self) -> None:
        self._crawler.stats.set_value("render/refused", self._proxy.refusals)

    async def close(self) -> None:
        """Close browser and proxy. Anything that does not close in time ends with the crawl's process."""
        self._stopping = True
        if self._handler:
            with suppress(PlaywrightError, TimeoutError):
                await asyncio.wait_for(self._handler.close(), CLOSE_SECONDS)
        await self._proxy.close()


def _first_line(error: PlaywrightError) -> str:
    return error.message.partition("\n")[0]


# --- pages of our spiders: they are rendered once Scrapy has fetched them

_OK = range(200, 300)


class RenderPages(BaseRedirectMiddleware):
    """Downloader middleware after redirects, retries and decompression, so that it only renders complete pages.

    Scrapy fetches the document itself, so robots.txt, the HTTP cache, limits and retries apply as to any page. If a
    script moves to another document, that is treated as a redirect.
    """

    _renderer: Renderer

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        renderer = crawler.get_extension(Renderer)
        if renderer is None:
            raise NotConfigured
        self = super().from_crawler(crawler)
        self._renderer = renderer
        return self

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        wanted = request.meta.get(RENDER)
        if not wanted or not isinstance(response, HtmlResponse) or not _is_whole(response):
            return response
        try:
            rendered, moved_to = await self._renderer.render(request, response, Instructions(*wanted))
        except RenderError as error:
            logger.error("%s was not rendered: %s", response.url, error)  # noqa: TRY400 - the traceback would not be of our code
            raise
        if moved_to:
            redirected = self._build_redirect_request(request, response, url=moved_to, method="GET", body=b"")
            return self._redirect(redirected, request, "script")
        return rendered


def _is_whole(response: Response) -> bool:
    """Whether the response is worth rendering: not an error, and with its body, which files do not have here."""
    return response.status in _OK and "download_stopped" not in response.flags


# --- projects that use scrapy-playwright themselves


class RenderingDownloadHandler(EgressDownloadHandler):
    """Our own handler, which sends requests with `meta["playwright"]` to the browser."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._renderer = crawler.get_extension(Renderer)

    async def fetch(self, request: Request) -> Response:
        if request.meta.get("playwright") and self._renderer:
            return await self._renderer.fetch(request)
        return await super().fetch(request)
