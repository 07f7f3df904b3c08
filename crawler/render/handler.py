"""The HTTP download handler of projects that use scrapy-playwright themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crawler.net.egress import EgressDownloadHandler
from crawler.render.renderer import Renderer

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class RenderingDownloadHandler(EgressDownloadHandler):
    """Our own handler; requests with `meta["playwright"]` go to the browser."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._renderer = crawler.get_extension(Renderer)

    async def fetch(self, request: Request) -> Response:
        if request.meta.get("playwright") and self._renderer:
            return await self._renderer.fetch(request)
        return await super().fetch(request)
