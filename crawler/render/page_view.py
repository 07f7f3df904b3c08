"""One page in the browser: it gets the document that Scrapy fetched, and then time until it is ready."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from crawler.render.setup import Instructions

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from playwright.async_api import CDPSession, Page, Request, Route
    from scrapy import Request as ScrapyRequest
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

logger = logging.getLogger(__name__)

#: Maximum number of seconds for `wait_for`; it also gets at most half of the page's time.
WAIT_SECONDS = 30.0
#: Seconds for the `load` event, and then for the scripts' own requests, before the page is taken as it is.
LOAD_SECONDS = 15.0
QUIET_SECONDS = 5.0
#: A page is quiet after so many seconds without a request (as for Playwright's `networkidle`).
QUIET_FOR = 0.5
#: Maximum number of seconds to wait for new content after a round of scrolling.
SCROLL_SECONDS = 10.0
#: After this many rounds of scrolling without new content, scrolling ends.
ROUNDS_IN_VAIN = 2
POLL = 0.05
#: Share of a page's time that is spent on waiting; what is left is for reading it.
PATIENCE = 0.8
#: Endings of Scrapy's selectors that browsers do not support.
_PSEUDO_ELEMENT = re.compile(r"::(text|attr\([^)]*\))")
#: Resources that are never part of the document, and can be endless.
_NOT_LOADED = frozenset({"media", "font"})
#: Headers that are not handed to the browser: they describe the transfer, or would make it download the document.
_NOT_THE_DOCUMENTS = frozenset({"content-encoding", "content-length", "transfer-encoding", "content-disposition"})
# true once two frames were drawn: by then, the page's observers have seen the changes and sent their requests
_DRAWN = """async () => {
    const late = new Promise(done => setTimeout(done, 5000, false));
    const frame = () => Promise.race([new Promise(done => requestAnimationFrame(() => done(true))), late]);
    return await frame() && await frame();
}"""
# scrolls back first, so that a script that watches the end of the page sees it leave and return; true if both were
# drawn
_SCROLL_TO_END = """async () => {
    const page = document.scrollingElement;
    const scrolled = [page, ...document.querySelectorAll("body *")].filter(element =>
        element && element.scrollHeight > element.clientHeight + 1
        && (element === page || /auto|scroll/.test(getComputedStyle(element).overflowY)));
    for (const element of scrolled) element.scrollTop -= element.clientHeight;
    const drawn = await (DRAWN)();
    for (const element of scrolled) element.scrollTop = element.scrollHeight;
    return drawn;
}""".replace("DRAWN", _DRAWN)
# the click follows no link to another page, only scripts and places on this page
_CLICK = """element => {
    const href = String(element.closest("a[href]")?.href), [path, fragment] = href.split("#");
    const stays = href.startsWith("javascript:") || (fragment !== undefined && path === document.URL.split("#")[0]);
    const stay = event => stays || event.preventDefault();
    window.addEventListener("click", stay);
    element.click();
    window.removeEventListener("click", stay);
}"""
_EXTENT = """() => document.getElementsByTagName("*").length"""
# adds a base element if scripts have changed the page's URL, because links are relative to that URL
_KEEP_BASE = """url => {
    if (document.URL.split("#")[0] !== url && document.head && !document.querySelector("base"))
        document.head.prepend(Object.assign(document.createElement("base"), {href: document.URL}));
    return document.documentElement ? document.documentElement.outerHTML.length : 0;
}"""


class RenderError(Exception):
    """The page could not be rendered; the message says why."""


class ViewLimits(NamedTuple):
    """Limits of one page."""

    seconds: float
    max_bytes: int


class PageView:
    """Controls one page. Its document is served once; later navigations to other documents are noted, not
    followed.
    """

    def __init__(
        self, document: Response, instructions: Instructions, limits: ViewLimits, stats: StatsCollector
    ) -> None:
        self._document = document
        self._instructions = instructions
        self._limits = limits
        self._stats = stats
        self._until = 0.0
        self._served = False
        self._under_way = 0
        self._quiet_since = monotonic()
        #: Bytes after decoding, and as received. Only the latter are known for blobs.
        self._decoded = 0
        self._encoded = 0
        self._cdp: CDPSession | None = None
        #: URL to which a script, or a refresh, would have taken the page.
        self.moved_to: str | None = None

    async def prepare(self, page: Page, _: ScrapyRequest) -> None:
        """Set up a new page, as its `playwright_page_init_callback`."""
        self._until = monotonic() + self._limits.seconds * PATIENCE
        for event in ("requestfinished", "requestfailed"):
            page.on(event, self._ended)
        page.on("request", self._began)
        page.on("popup", _close)
        self._cdp = await page.context.new_cdp_session(page)
        self._cdp.on("Network.dataReceived", self._received)
        await self._cdp.send("Network.enable")
        await page.route("**", self._route)

    async def settle(self, page: Page) -> None:
        """Wait until the page shows what was asked for. If that takes too long, the page is taken as it is."""
        if not self._served:
            raise RenderError("the page was not shown")
        if self._instructions.wait_for:
            patience = self._left(min(WAIT_SECONDS, self._limits.seconds / 2))
            css = _browsers(self._instructions.wait_for)
            selector = page.wait_for_selector(css, state="attached", timeout=patience)
            await self._patiently(f"it has no {self._instructions.wait_for!r} yet", "wait_for", selector)
        else:
            load = page.wait_for_load_state("load", timeout=self._left(LOAD_SECONDS))
            await self._patiently("it has not finished loading", "load", load)
            await self._until_quiet(QUIET_SECONDS)
        await self._scroll(page)
        if await page.evaluate(_KEEP_BASE, self._document.url) > self._limits.max_bytes:
            raise RenderError(
                "the rendered page is larger than its limit (DOWNLOAD_MAXSIZE, which CRAWL_MAX_PAGE_BYTES bounds)"
            )

    async def _patiently(self, what: str, name: str, wait: Coroutine[Any, Any, Any]) -> None:
        try:
            await wait
        except PlaywrightTimeoutError:
            self._stats.inc_value(f"render/timeout/{name}")
            logger.warning("%s is taken as it is: %s", self._document.url, what)

    async def _until_quiet(self, seconds: float) -> None:
        until = min(monotonic() + seconds, self._until)
        while monotonic() < until and not self._is_quiet():  # noqa: ASYNC110 - quiet is when nothing happens
            await asyncio.sleep(POLL)

    def _is_quiet(self) -> bool:
        return self._under_way <= 0 and monotonic() - self._quiet_since > QUIET_FOR

    async def _scroll(self, page: Page) -> None:
        in_vain = 0
        for _ in range(self._instructions.scroll):
            if await self._has_enough(page):
                return
            before = await page.evaluate(_EXTENT)
            if self._instructions.click:
                await self._click(page, self._instructions.click)
            is_seen = await page.evaluate(_SCROLL_TO_END)
            self._stats.inc_value("render/scrolls")
            # a round that a busy machine has not drawn proves nothing, so it is not counted
            in_vain = 0 if await self._has_grown(page, before) else in_vain + is_seen
            if in_vain == ROUNDS_IN_VAIN or monotonic() > self._until:
                return

    async def _has_enough(self, page: Page) -> bool:
        css, count = self._instructions.enough or ("", 0)
        with suppress(PlaywrightError):
            return bool(css) and await page.locator(_browsers(css)).count() >= count
        # only Scrapy knows the selector
        return False

    async def _click(self, page: Page, css: str) -> None:
        # by script, because another element (such as a cookie banner) may cover it
        with suppress(PlaywrightError):
            for found in (await page.query_selector_all(_browsers(css)))[:1]:
                await found.evaluate(_CLICK)

    async def _has_grown(self, page: Page, before: int) -> bool:
        self._quiet_since = monotonic()
        until = min(monotonic() + SCROLL_SECONDS, self._until)
        while monotonic() < until and not await self._stays_quiet(page):
            if await page.evaluate(_EXTENT) > before:
                return True
            await asyncio.sleep(POLL)
        return bool(await page.evaluate(_EXTENT) > before)

    async def _stays_quiet(self, page: Page) -> bool:
        """Whether the page is quiet, and still is after it was drawn: a busy machine takes its time to react."""
        return self._is_quiet() and await page.evaluate(_DRAWN) is not None and self._is_quiet()

    def _left(self, most: float) -> float:
        """Milliseconds to wait, `most` seconds at most. At least one, because 0 would mean for ever."""
        return max(1.0, 1000 * min(most, self._until - monotonic()))

    def _began(self, _: Request) -> None:
        self._under_way += 1

    def _ended(self, _: Request) -> None:
        self._under_way -= 1
        self._quiet_since = monotonic()

    @property
    def _is_full(self) -> bool:
        return max(self._decoded, self._encoded) > self._limits.max_bytes

    async def _received(self, event: dict[str, Any]) -> None:
        within = not self._is_full
        self._decoded += event["dataLength"]
        self._encoded += event["encodedDataLength"]
        if within and self._is_full and self._cdp:
            self._stats.inc_value("render/cut")
            logger.warning(
                "%s may load no more: its limit is reached (DOWNLOAD_MAXSIZE, which CRAWL_MAX_PAGE_BYTES bounds)",
                self._document.url,
            )
            with suppress(PlaywrightError):
                await self._cdp.send("Page.stopLoading")

    async def _route(self, route: Route, request: Request) -> None:
        # the page may be closed before the answer
        with suppress(PlaywrightError):
            await self._answer(route, request)

    async def _answer(self, route: Route, request: Request) -> None:
        moves = request.is_navigation_request() and request.frame.parent_frame is None
        if moves and not self._served:
            self._served = True
            await route.fulfill(status=self._document.status, headers=self._headers(), body=self._document.body)
        elif moves:
            if request.method == "GET" and request.url != self._document.url:
                self.moved_to = request.url
            await route.abort()
        elif request.resource_type in _NOT_LOADED or self._is_full:
            await route.abort()
        else:
            await route.continue_()

    def _headers(self) -> dict[str, str]:
        headers = self._document.headers.to_unicode_dict().items()
        return {str(name): value for name, value in headers if str(name).lower() not in _NOT_THE_DOCUMENTS}


def _browsers(css: str) -> str:
    """Scrapy's selector in Playwright's form."""
    return "css=" + _PSEUDO_ELEMENT.sub("", css)


async def _close(page: Page) -> None:
    with suppress(PlaywrightError):
        await page.close()
