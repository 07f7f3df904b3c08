"""A `start()` that awaits nothing, and the others who need their turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from crawler.closing import is_closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler


class StartPace:
    """Spider middleware nearest to the engine. While that has enough to do, or closes, it takes one request after the
    other from `start()` without a pause: one without end would keep downloads, and the closing, from their turn.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for one in start:
            if is_closing(self._crawler):
                return
            yield one
            if self._crawler.engine and self._crawler.engine.needs_backout():
                await asyncio.sleep(0)
