"""A spider that drives the browser itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy_playwright.page import PageMethod


class Browsing(Spider):
    name = "browsing"

    async def start(self) -> AsyncIterator[Any]:
        for number, url in enumerate(self.start_urls):
            meta = {
                "playwright": True,
                "playwright_include_page": True,
                "playwright_context": ("english", "direct")[number % 2],
                "playwright_page_methods": [PageMethod("wait_for_selector", "h1", timeout=5000)],
            }
            yield Request(url, meta=meta, errback=self.refused)
        yield Request(self.start_urls[0] + "?plain", self.parse_plain)

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        page = response.meta["playwright_page"]
        yield {
            "type": "rendered",
            "h1": response.css("h1::text").get(),
            "locale": await page.evaluate("navigator.language"),
            "agent": await page.evaluate("navigator.userAgent"),
            "inside": await page.evaluate(
                "url => fetch(url, {mode: 'no-cors'}).then(r => 'answered', e => 'failed')", self.inside
            ),
        }
        await page.close()

    def parse_plain(self, response: Response) -> Any:
        return {"type": "plain", "h1": response.css("h1::text").get()}

    async def refused(self, failure: Any) -> Any:
        page = failure.request.meta.get("playwright_page")
        if page:
            await page.close()
        return {"type": "refused", "error": f"{type(failure.value).__name__}: {failure.value}"}
